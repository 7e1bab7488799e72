"""The values that all packages share. They are frozen, and tied by hash to the candidate that they are about.

    TaskCard --> Candidate --> Verdict --> Findings --> Plan --> Candidate ...

A candidate's `id` is the hash of its task, precision, code and command. Verdicts, profiles and findings carry it, so a
figure is never shown beside another kernel's code. `TaskCard` is in `tasks.cards`.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from cudamaster.core.likelihood import Errors, Makeup
from cudamaster.core.speed import Change, Comparison, Interval

# Marks a field that older records lack: core/records.py leaves it out if it has its default.
LATER: Mapping[str, bool] = {"later": True}


class Precision(StrEnum):
    """Element type of a task: float, or __nv_bfloat16 or __half, whose sums the task's card describes."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


# Those in which each of MSKernelBench's fifty tasks exists.
BENCHMARK_PRECISIONS = (Precision.FP32, Precision.BF16)


def wrapper_name(task: str, precision: Precision, *, optimized: bool = False) -> str:
    """Name of a task's extern "C" wrapper: the baseline's, or the candidate's."""
    suffix = "" if precision is Precision.FP32 else f"_{precision.value}"
    return f"{task}{suffix}{'_optimized' if optimized else ''}"


class Role(StrEnum):
    """The agents that a strategy can ask, each naming those that it needs; and one that training asks."""

    PLANNER = "planner"
    CODER = "coder"
    COMPILER = "compiler"
    DEBUG = "debug"
    JUDGE = "judge"  # CudaForge's
    REVIEWER = "reviewer"  # examines a score that is too good
    AGENT = "agent"  # a program that searches by itself, outside this one
    DESCRIBER = "describer"  # writes what a piece of code may have been asked for; in no search

    @property
    def in_words(self) -> str:
        """What it is called in a sentence: "the planner agent", "the outside agent"."""
        return f"the {'outside' if self is Role.AGENT else self.value} agent"


# Those of a search that a model answers.
MODEL_ROLES = tuple(role for role in Role if role not in (Role.AGENT, Role.DESCRIBER))


class Status(StrEnum):
    """The result of judging a candidate. There are no others."""

    CORRECT = "correct"
    WRONG = "wrong"  # ran to its end, but an output is wrong
    FAULT = "fault"  # a CUDA error, a crash, a write outside a buffer, a changed input
    TIMEOUT = "timeout"  # ran far longer than the baseline
    COMPILE_ERROR = "compile_error"  # the compiler or the linker failed
    REJECTED = "rejected"  # breaks the contract: source, object or flag guard
    UNSUPPORTED = "unsupported"  # this device cannot execute it, which says nothing about the kernel


class Bottleneck(StrEnum):
    """Bottleneck classes of table 2 in the CUDAMaster paper."""

    COMPUTE = "compute bound"
    LATENCY = "memory latency bound"
    BANDWIDTH = "memory bandwidth bound"


def content_hash(*parts: str) -> str:
    """First 16 hex digits of the SHA-256 over the parts, each preceded by its length."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(f"{len(raw)}:".encode() + raw)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Candidate:
    """A kernel: the text between the markers of the harness, and the compile command that its agent chose."""

    task: str
    precision: Precision
    code: str
    command: str

    @property
    def id(self) -> str:
        """Hash of the content: two candidates with the same task, precision, code and command have the same id."""
        return content_hash(self.task, self.precision, self.code, self.command)


@dataclass(frozen=True)
class Mismatch:
    """One output element outside its bound. Values may be NaN or infinite."""

    element: int
    expected: float
    got: float
    allowed: float


@dataclass(frozen=True)
class OutputCheck:
    """The check of one output buffer in one case.

    Errors and bound are in units of the element's scale, the sum of the absolute terms that made it (of a sparse row
    what docs/promises.md says); the bound is 0 for outputs that are compared exactly. `pattern` says which elements are
    wrong and what their values have in common. `width` is the length of a row if the output is a matrix.
    """

    name: str
    elements: int
    oracle_elements: int
    mismatches: int
    worst_error: float
    baseline_worst_error: float
    bound: float
    pattern: str
    first: tuple[Mismatch, ...] = ()
    width: int | None = None


@dataclass(frozen=True)
class Timing:
    """Raw samples of whole wrapper calls, in microseconds, baseline and candidate taken in turn.

    `..._device_us` are from a few more calls, timed on the device from the start of the first kernel to the end of the
    last, so without launching and waiting. They do not count in the score.
    """

    baseline_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    baseline_device_us: tuple[float, ...] = ()
    candidate_device_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class GpuModel:
    """The model that gave the times: its version, the GPU that it models, and the seed of the inputs that were counted.

    Nine of ten modelled speedups of one kernel over another of the same task are within the factor `ratio_error` of
    the measured speedups; None if that was never measured. `order_share` is the share of pairs in the right order.
    `errors` gives the interval of a single speedup; older records have none.
    """

    version: str
    gpu: str
    ratio_error: float | None = None
    order_share: float | None = None
    seed: int | None = None
    errors: Errors | None = field(default=None, metadata=LATER)

    @property
    def described(self) -> str:
        """Version, GPU and known error, as in every table of modelled times."""
        if self.errors is not None and self.errors.assumed_of:
            return (
                f"gpu-model {self.version} of an {self.gpu}; its error is not known: no time was measured "
                f"there, and intervals are those of an {self.errors.assumed_of} modelled by its data sheet"
            )
        if self.ratio_error is None:
            return f"gpu-model {self.version} of an {self.gpu}; its error is not known"
        return f"gpu-model {self.version} of an {self.gpu}; 9 of 10 speedups within a factor of {self.ratio_error:.2f}"


@dataclass(frozen=True)
class Modelled:
    """Modelled times of one call in one case, in microseconds. `bound` says what limits the candidate.

    They are no measurements and never appear in a `Timing`. Whole calls include launches and waiting, as in P. Device
    times are those of the kernels and the gaps between them. Makeups say what the whole calls are made of, by which
    the interval of their ratio is known; older records and calls of eager PyTorch have none.
    """

    baseline_us: float
    candidate_us: float
    baseline_device_us: float
    candidate_device_us: float
    bound: str
    baseline_makeup: Makeup | None = field(default=None, metadata=LATER)
    candidate_makeup: Makeup | None = field(default=None, metadata=LATER)


# Begin the reason why a case has no modelled time, if the candidate alone is not to blame.
OF_BASELINE, OF_BOTH = "the baseline: ", "both: "
# Begins a note: the checker of races was too slow to see all of a kernel.
RACES_UNSEEN = "not checked for races to the end"


@dataclass(frozen=True)
class CaseVerdict:
    """One case: its sizes, what the check found, and its times if it is part of the sweep.

    `skipped` says why the case was not run: too little memory, or too long for this device. `floor_us` is the shortest
    possible time of a call on this GPU (workbench/floors.py), with an empty launch. On a device without times of its
    own, `modelled` has the model's, even if the case was not run. If the model has none, `not_modelled` says why; it
    begins with OF_BASELINE or OF_BOTH if the candidate alone is not to blame.
    """

    label: str
    sweep: bool
    weight: float
    status: Status | None
    skipped: str | None = None
    detail: str = ""
    outputs: tuple[OutputCheck, ...] = ()
    timing: Timing | None = None
    speed: Comparison | None = None
    empty_us: float | None = None
    floor_us: float | None = None
    modelled: Modelled | None = field(default=None, metadata=LATER)
    not_modelled: str = field(default="", metadata=LATER)

    @property
    def lacks_model(self) -> bool:
        """Whether a compared kernel, and not the baseline, is the reason why the case has no modelled time."""
        return self.sweep and bool(self.not_modelled) and not self.not_modelled.startswith((OF_BASELINE, OF_BOTH))

    @property
    def times_us(self) -> tuple[float, float] | None:
        """The time of a whole call, of the baseline and of the candidate: the model's, or medians of samples.

        The verdict's `mark` says which. None if the case has neither.
        """
        if self.modelled is not None:
            return self.modelled.baseline_us, self.modelled.candidate_us
        if self.timing is None or not self.timing.baseline_us or not self.timing.candidate_us:
            return None
        return statistics.median(self.timing.baseline_us), statistics.median(self.timing.candidate_us)

    @property
    def over_floor(self) -> float | None:
        """The candidate's time as a multiple of the floor."""
        return self.times_us[1] / self.floor_us if self.times_us is not None and self.floor_us else None

    @property
    def of_bound(self) -> float | None:
        """The worst error as a fraction of its bound, NaN above all; None if every output is compared exactly."""
        parts = (output.worst_error / output.bound for output in self.outputs if output.bound)
        return max(parts, key=lambda part: math.inf if math.isnan(part) else part, default=None)


def mark(*, emulated: bool, modelled: GpuModel | None) -> str:
    """The word shown beside a score that no GPU measured; empty for a measured score."""
    if modelled is not None:
        return "modelled"
    return "emulated" if emulated else ""


@dataclass(frozen=True)
class Seconds:
    """Seconds by the clock from candidate to verdict, by what they went into.

    `start` is the starting and ending of processes (each has a context on a GPU), except while a build runs. `waiting`
    is the wait for a device that others hold. `command` is what a command does before it looks at the candidate (loads
    Python and its modules, looks for a GPU). `rest` is everything else.
    """

    build: float = 0.0
    check: float = 0.0
    timing: float = 0.0
    modelling: float = field(default=0.0, metadata=LATER)
    start: float = field(default=0.0, metadata=LATER)
    waiting: float = field(default=0.0, metadata=LATER)
    command: float = field(default=0.0, metadata=LATER)
    rest: float = field(default=0.0, metadata=LATER)

    def __add__(self, other: Seconds) -> Seconds:
        """The sum of both, part by part."""
        return Seconds(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return math.fsum(getattr(self, part.name) for part in fields(self))


@dataclass(frozen=True)
class Hold:
    """A period in which a device was held. `unit` is a GPU's UUID, `started` is in seconds since 1970.

    A measurement holds the device `alone`; checks may share it.
    """

    unit: str
    started: float
    seconds: float
    alone: bool


@dataclass(frozen=True)
class Verdict:
    """The result of judging one candidate on one device.

    `score` is P = sum(T*S)/sum(T) over the sweep cases that ran (paper eq. 2); None unless correct. `speed` says how
    sure it is. `notes` are what a reader of the times has to know: who else used the GPU, what slowed it down.
    `sanitizers` has the result of each tool of compute-sanitizer that ran, by name. `complete` is False if a sweep case
    was skipped or has no time. `log` is for the Debug agent: compiler errors with line numbers of the region, the fault
    report, or the mismatch with its pattern. If the times are modelled, `modelled` is the model, and `complete` says
    whether every case has a time; if one lacks it because of the candidate alone, there is no score. `protocol` says
    how calls were timed, and `asked_bytes` is the largest allocation of a timed call of either kernel. `build` has the
    commands, with hashes of what was built (devices/machine_code.py) and of what judged it.
    """

    candidate: str
    device: str
    emulated: bool
    status: Status
    detail: str
    log: str = ""
    seed: int | None = None
    score: float | None = None
    speed: Comparison | None = None
    complete: bool = True
    notes: tuple[str, ...] = ()
    sanitizers: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[CaseVerdict, ...] = ()
    seconds: Seconds = field(default_factory=Seconds)
    build: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    modelled: GpuModel | None = field(default=None, metadata=LATER)
    protocol: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    asked_bytes: int = field(default=0, metadata=LATER)

    @property
    def mark(self) -> str:
        """What its times are: "modelled" or "emulated", empty if a GPU measured them."""
        return mark(emulated=self.emulated, modelled=self.modelled)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Timed cases that could be modelled for the baseline and not for the candidate, which may be slow there.

        P over the other cases does not count. Verdicts from before this rule have one nevertheless.
        """
        return tuple(case.label for case in self.cases if case.lacks_model)

    @property
    def correct(self) -> bool:
        """Whether every case that ran was right (CheckValid of algorithm 1)."""
        return self.status is Status.CORRECT

    def after(self, first: Verdict) -> Verdict:
        """This second measurement with what only the first one found: what sanitizers say, and the instructions."""
        return replace(self, build={**first.build, **self.build}, sanitizers=first.sanitizers or self.sanitizers)


class ProfileMode(StrEnum):
    """What agents see of the hardware: the CUDAMaster paper's three configurations (table 5), and CudaForge's."""

    FILTERED = "filtered"  # the metrics that matter for the class
    FULL = "full"  # all of table 6
    CUDAFORGE24 = "cudaforge24"  # the 24 metrics of CudaForge's Judge, without a class
    NONE = "none"


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a candidate under the profiler, with its time per wrapper call. Metrics are in base units."""

    kernel: str
    launches: int
    duration_us: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Profile:
    """All kernels of a candidate in one case, the one that takes most time first. `source` says what measured them.

    For a modelled profile, `modelled` is the model, and `breakdown` says where the time of a call goes, in
    microseconds.
    """

    candidate: str
    case: str
    source: str
    kernels: tuple[KernelProfile, ...]
    modelled: GpuModel | None = field(default=None, metadata=LATER)
    breakdown: Mapping[str, float] = field(default_factory=dict, metadata=LATER)


@dataclass(frozen=True)
class KernelReport:
    """Every metric of one kernel in one case, by the paper's names. Time and launches are per wrapper call."""

    case: str
    kernel: str
    launches: int
    duration_us: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Findings:
    """What the filter kept of a candidate's profile (paper table 2).

    Agents see `metrics`; or, if the filter is off, `reports`: all kernels, in every profiled case. A missing metric is
    absent, never zero. `units` and `meanings` are for metrics whose names do not say them. `measured` is everything
    measured of the kernel, by the paper's names, and `thresholds` are those that decided its class. Without a profile,
    `bottleneck` is None, `note` says why, and `metrics` has only what needs no counters. For a modelled profile,
    `modelled` is the model, and `breakdown` says where the time of a call goes, in microseconds.
    """

    candidate: str
    note: str
    bottleneck: Bottleneck | None = None
    kernel: str | None = None
    time_share: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    thresholds: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    reports: tuple[KernelReport, ...] = ()
    modelled: GpuModel | None = field(default=None, metadata=LATER)
    breakdown: Mapping[str, float] = field(default_factory=dict, metadata=LATER)


@dataclass(frozen=True)
class Plan:
    """One optimisation scheme of the Planner. `idea` is a short title, `text` the scheme itself."""

    idea: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """The result of a plan: the scheme as the next Planner call sees it (algorithm 1, lines 20 to 25).

    With modelled times, `interval` is that of the score, and `against` the speedup over the best so far: UNSURE there
    means that only a GPU can tell which of the two is faster. None for a kernel without P, and in older records.
    """

    round: int
    plan: Plan
    status: Status
    score: float | None
    accepted: bool
    detail: str = ""
    against: Comparison | None = field(default=None, metadata=LATER)
    interval: Interval | None = field(default=None, metadata=LATER)

    @property
    def unsure(self) -> bool:
        """Whether the model cannot tell the kernel and the best so far apart."""
        return self.against is not None and self.against.change is Change.UNSURE


@dataclass(frozen=True)
class Hardware:
    """The device in words and figures, as prompts and `doctor` show it; `modelled` is the model of its times."""

    name: str
    figures: Mapping[str, str]
    emulated: bool
    modelled: GpuModel | None = field(default=None, metadata=LATER)

    @property
    def mark(self) -> str:
        """What its times are, as in `Verdict.mark`."""
        return mark(emulated=self.emulated, modelled=self.modelled)
