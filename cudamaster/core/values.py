"""The values that run through the system, each frozen and tied by hash to what it came from.

    TaskCard --> Candidate --> Verdict --> Findings --> Plan --> Candidate ...

A candidate's `id` is the hash of its task, precision, code and command; verdicts, profiles and findings carry
that id, so a figure can never be shown beside another kernel's code. `TaskCard` lives in `cards`.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from cudamaster.core.speed import Comparison

# For a field that was added later: core/records.py leaves it out if it has its default, so older records stay readable.
LATER: Mapping[str, bool] = {"later": True}


class Precision(StrEnum):
    """Element type of a task: float, or __nv_bfloat16 with fp32 accumulation."""

    FP32 = "fp32"
    BF16 = "bf16"


def wrapper_name(task: str, precision: Precision, *, optimized: bool = False) -> str:
    """Name of a task's extern "C" wrapper: the baseline's, or the candidate's."""
    return f"{task}{'_bf16' if precision is Precision.BF16 else ''}{'_optimized' if optimized else ''}"


class Role(StrEnum):
    """Who is asked. A strategy names those that it needs; a role that is not here cannot be asked."""

    PLANNER = "planner"
    CODER = "coder"
    COMPILER = "compiler"
    DEBUG = "debug"
    JUDGE = "judge"  # CudaForge's
    REVIEWER = "reviewer"  # examines a score that is too good


class Status(StrEnum):
    """What became of a candidate. The list is closed."""

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
    """The text of the demarcated region, and the compile command that the agent chose for it."""

    task: str
    precision: Precision
    code: str
    command: str

    @property
    def id(self) -> str:
        """Content hash: same task, precision, code and command, same id."""
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
    """What the check of one output buffer of one case found.

    Errors and bound are in units of the element's scale, the sum of the absolute terms that made it;
    for exactly compared outputs the bound is 0. `pattern` says which elements are wrong and what their values have
    in common; `width` is the length of a row if the output is a matrix.
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

    `..._device_us` are a few more calls, timed on the device from the start of the first kernel to the end of the last:
    a call without launching and waiting. They enter no score.
    """

    baseline_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    baseline_device_us: tuple[float, ...] = ()
    candidate_device_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class GpuModel:
    """The model of a GPU that gave the times: its version, the GPU, and the seed of the inputs that were counted.

    Nine of ten modelled speedups of one kernel over another of the same task are within the factor `ratio_error` of
    the measured ones; None where that was never measured. `order_share` of such pairs it puts in the right order.
    """

    version: str
    gpu: str
    ratio_error: float | None = None
    order_share: float | None = None
    seed: int | None = None

    @property
    def described(self) -> str:
        """Version, GPU and known error, as in every table of modelled times."""
        if self.ratio_error is None:
            return f"gpu-model {self.version} of an {self.gpu}; its error is not known"
        return f"gpu-model {self.version} of an {self.gpu}; 9 of 10 speedups within a factor of {self.ratio_error:.2f}"


@dataclass(frozen=True)
class Modelled:
    """Times of one call at one case by the model of a GPU, in microseconds, and what bounds the candidate's there.

    They are not measurements, and never appear in a `Timing`. Whole calls include launches and waiting, as in P; device
    times are those of the kernels and the gaps between them.
    """

    baseline_us: float
    candidate_us: float
    baseline_device_us: float
    candidate_device_us: float
    bound: str


# Begins the reason why a case has no modelled time, if the candidate alone is not to blame.
OF_BASELINE, OF_BOTH = "the baseline: ", "both: "


@dataclass(frozen=True)
class CaseVerdict:
    """One case: the sizes, what the check said, and the timing where the case is part of the sweep.

    `skipped` is a reason (memory, too long on this device), and then nothing was run. `floor_us` is the least time of
    a call on the GPU found (floors.py), an empty launch included. On a device without times of its own `modelled` has
    those of the model, also of a case too long to be run; where it has none, `not_modelled` says why, and begins with
    OF_BASELINE or OF_BOTH where it is not for the candidate alone.
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
        """Whether one of the two compared kernels, and not the baseline, is why the case has no modelled time."""
        return self.sweep and bool(self.not_modelled) and not self.not_modelled.startswith((OF_BASELINE, OF_BOTH))

    @property
    def times_us(self) -> tuple[float, float] | None:
        """A whole call of the baseline and one of the candidate: medians of samples, or the model's.

        The verdict's `mark` says which. None where the case has neither.
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
    """The word beside every score that no GPU measured; empty for a measured one."""
    if modelled is not None:
        return "modelled"
    return "emulated" if emulated else ""


@dataclass(frozen=True)
class Seconds:
    """Wall seconds from candidate to verdict, split.

    `start` is for processes to start and to end, on a GPU with a context each, except while a build runs. `waiting` is
    for a device that others hold. `command` is for what a command does before it looks at the candidate (Python, its
    modules, looking for a GPU), and `rest` for everything else.
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
        """What both took, kind by kind."""
        return Seconds(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    @property
    def total(self) -> float:
        """All of them."""
        return math.fsum(getattr(self, part.name) for part in fields(self))


@dataclass(frozen=True)
class Hold:
    """A period in which a device was held: which one (a GPU's UUID), from when in seconds since 1970, for how long.

    A measurement holds it `alone`; checks may share it.
    """

    unit: str
    started: float
    seconds: float
    alone: bool


@dataclass(frozen=True)
class Verdict:
    """What is known of one candidate on one device.

    `score` is P = sum(T*S)/sum(T) over the sweep cases that ran (paper eq. 2); None unless correct. `speed` says how
    sure it is. `notes` are what a reader of the times has to know: who else used the GPU, what slowed it down.
    `sanitizers` holds the result of each of compute-sanitizer's tools that ran, by its name. `complete` is False when a
    sweep case was skipped or has no time. `log` is what a Debug agent needs: compiler errors with the region's own
    lines, the fault report, or the mismatch with its pattern. Where the score is of modelled times, `modelled` is the
    model, and `complete` says whether it has a time for each case; where the candidate alone lacks one there is no
    score.
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

    @property
    def mark(self) -> str:
        """Whether its times are "modelled" or "emulated"; empty if a GPU measured them."""
        return mark(emulated=self.emulated, modelled=self.modelled)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Timed cases with a modelled time for the baseline and none for the candidate: it may hide slow calls there.

        A P over the other cases does not count. Runs from before this rule have one all the same.
        """
        return tuple(case.label for case in self.cases if case.lacks_model)

    @property
    def correct(self) -> bool:
        """Whether every case that ran was right (CheckValid of algorithm 1)."""
        return self.status is Status.CORRECT


class ProfileMode(StrEnum):
    """What agents see of the hardware: the CUDAMaster paper's three configurations (table 5), and CudaForge's."""

    FILTERED = "filtered"  # the metrics that matter for the class
    FULL = "full"  # all of table 6
    CUDAFORGE24 = "cudaforge24"  # the 24 metrics of CudaForge's Judge, without a class
    NONE = "none"


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a candidate under the profiler: time per wrapper call and metrics in base units."""

    kernel: str
    launches: int
    duration_us: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Profile:
    """All kernels of a candidate at one case, the dominant one first. `source` says what measured it.

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
    """Every metric of one kernel at one case, by the paper's names; time and launches are those of a wrapper call."""

    case: str
    kernel: str
    launches: int
    duration_us: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Findings:
    """What the filter kept of a profile, for one candidate (paper table 2).

    Without a profile `bottleneck` is None and `note` says why; `metrics` then holds what needs no counters, with its
    units, if anything. A missing metric is absent, never zero. An agent sees `metrics`; `measured` is everything
    measured about that kernel, by the paper's names, and `thresholds` are those that decided the class. `units` and
    `meanings` are for metrics whose names do not say them. If the filter is off, agents see `reports` instead: all
    kernels, at every profiled case. For a modelled profile, `modelled` is the model, and `breakdown` says where the
    time of a call goes, in microseconds.
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
    """The result of a plan: the scheme as the next Planner call sees it (algorithm 1, lines 20 to 25)."""

    round: int
    plan: Plan
    status: Status
    score: float | None
    accepted: bool
    detail: str = ""


@dataclass(frozen=True)
class Hardware:
    """The device in words and figures, as prompts and `doctor` show it; `modelled` is the model of its times."""

    name: str
    figures: Mapping[str, str]
    emulated: bool
    modelled: GpuModel | None = field(default=None, metadata=LATER)

    @property
    def mark(self) -> str:
        """As of a verdict: "modelled", "emulated" or empty."""
        return mark(emulated=self.emulated, modelled=self.modelled)
