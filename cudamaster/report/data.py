"""What a report knows: the results of tasks, and what was wrong with those that could not be read.

Numbers made of several results are in `numbers`. What a folder does not have is None; an unknown cost is never 0.
Results of the CPU device are `emulated`: they say whether a kernel is correct, but no GPU measured their times. These
are `modelled`, and P has a mark and its interval beside it, or they say nothing about a GPU. So every table
and figure keeps them apart from measured results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cudamaster.core.speed import Comparison, Interval
from cudamaster.core.values import LATER, Bottleneck, Hardware, Precision, ProfileMode, Role, Status


class RunProgress(StrEnum):
    """How far a run had come when it was read. There are no other states."""

    FINISHED = "finished"
    RUNNING = "running"  # a process works on it
    STOPPED = "stopped"  # killed, interrupted or out of budget: what it has so far is reported, and marked


@dataclass(frozen=True)
class Configuration:
    """How a run searched. Results of the same configuration, models and GPU make one line of a table.

    `rounds` is R and `debug_tries` D of the paper. `settings` has whatever else differs from the defaults, in the
    strategy's own terms. `described` is all of it in words.
    """

    strategy: str
    rounds: int
    debug_tries: int
    profile: ProfileMode
    described: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """One case of the sweep as reports save it: times of whole calls are medians of measurements, in microseconds.

    `sizes` are the numbers in `label`; `weight` is T, the complexity of the case. `speedup` is S of the best kernel,
    with its interval at level speed.CONFIDENCE. `skipped` says why the case was not run. `floor_us` is the shortest
    possible time, `empty_us` that of an empty wrapper.
    """

    label: str
    sizes: Mapping[str, float]
    weight: float
    status: Status | None
    skipped: str | None = None
    baseline_us: float | None = None
    candidate_us: float | None = None
    speedup: float | None = None
    interval: Interval | None = None
    floor_us: float | None = None
    empty_us: float | None = None

    @property
    def over_floor(self) -> float | None:
        """The best kernel's time as a multiple of the floor."""
        return self.candidate_us / self.floor_us if self.candidate_us is not None and self.floor_us else None


@dataclass(frozen=True)
class Throughputs:
    """The three throughputs that decide the class (figure 6), in percent of their peaks."""

    compute: float
    dram: float
    memory: float


@dataclass(frozen=True)
class ClassLimits:
    """The percentages above which a throughput counts as high, and where they come from."""

    compute: float
    dram: float
    memory: float
    source: str


@dataclass(frozen=True)
class HardwareView:
    """The profile of one kernel, the baseline or the best: its class, and the figures that decide it.

    `metrics` is everything measured of the CUDA kernel that takes most time, by the paper's names, in `units`. Without
    a profile, `bottleneck` is None and `note` says why. `modelled` says that a model gave it, on the CPU device.
    """

    note: str
    bottleneck: Bottleneck | None = None
    kernel: str | None = None
    time_share: float | None = None
    throughputs: Throughputs | None = None
    limits: ClassLimits | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    modelled: bool = field(default=False, metadata=LATER)


@dataclass(frozen=True)
class MetricChange:
    """One metric of the baseline's class, before and after. Figure 9 is made of these.

    `relative` is (after - before) / before; None if `before` is 0.
    """

    name: str
    before: float
    after: float
    relative: float | None


@dataclass(frozen=True)
class Cost:
    """What a result cost in all sessions of its run. None is unknown, and an unknown part makes a sum unknown.

    `minutes` is how long the sessions lasted, `gpu_seconds` how long they held the device, even if that is the CPU.
    """

    calls: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    dollars: float | None = None
    minutes: float | None = None
    gpu_seconds: float | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of prompts and replies together."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class RoundResult:
    """One round: the idea, the result of its last candidate, and P of the best after it (1 for the baseline)."""

    number: int
    idea: str | None
    status: Status | None
    score: float | None
    accepted: bool
    best_score: float | None


@dataclass(frozen=True)
class Kernel:
    """The text of a kernel and the compile command that it was built with."""

    candidate: str
    code: str
    command: str


@dataclass(frozen=True)
class TaskResult:
    """The result of one run: one task in one precision. `repetition` counts runs of the same task and setting, from 1.

    `correct` says whether the run made a correct kernel of its own; the baseline is none. `score` is P of the best
    such kernel: below 1 if none was faster than the baseline, None if none is correct or its time is not to be trusted.
    `speed` is P with its interval. `status` is that of the best kernel; of the last one if none was correct; None if
    none was judged. `complete` is False if a case of the sweep was skipped.

    `best` is that kernel, None if none is correct; `improved` says whether the run took it. `idea`, `round` and
    `author` (the models that wrote it) are its own. `diff` is from the baseline to it; `flags_added` and
    `flags_removed` are words of the two commands. `notes` are what a reader of the times has to know.

    `origin` is the folder, and `source` its kind ("run", "suite" or "kept"). `stopped_at` says what an unfinished run
    was doing, `ended_early` why a search ended before its last round. `remarks` say what is unusual about the record,
    each a short name and what it means ("older: of format 1 ..."). `card_hash` is that of the task card: P by two cards
    is not the same measure. `suite` is the task's suite, empty for MSKernelBench and where a record does not say it;
    `folder` is where one's own suite was, as far as the record says it. `baseline_by` is "pytorch" where P is over
    eager PyTorch, else "kernel".
    """

    origin: str
    source: str
    task: str
    title: str
    category: str
    precision: Precision
    hardware: Hardware
    versions: Mapping[str, str]
    started: str
    models: Mapping[Role, str]
    configuration: Configuration
    progress: RunProgress
    correct: bool
    improved: bool
    status: Status | None
    score: float | None
    speed: Comparison | None
    complete: bool
    cases: tuple[CaseResult, ...]
    cost: Cost
    repetition: int = 1
    rounds: tuple[RoundResult, ...] = ()
    stopped_at: str | None = None
    ended_early: str | None = None
    idea: str | None = None
    round: int | None = None
    author: str | None = None
    baseline: Kernel | None = None
    best: Kernel | None = None
    diff: str = ""
    flags_added: tuple[str, ...] = ()
    flags_removed: tuple[str, ...] = ()
    before: HardwareView | None = None
    after: HardwareView | None = None
    changes: tuple[MetricChange, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    sanitizers: Mapping[str, str] = field(default_factory=dict)
    card_hash: str | None = None
    suite: str = field(default="", metadata=LATER)
    folder: str = field(default="", metadata=LATER)
    baseline_by: str = field(default="kernel", metadata=LATER)

    @property
    def emulated(self) -> bool:
        """Whether its times are those of the CPU device, not measured on a GPU."""
        return self.hardware.emulated

    @property
    def kept_baseline(self) -> bool:
        """Whether the baseline stayed the best; False if a run was stopped before it took a kernel judged faster."""
        before_its_end = self.progress is not RunProgress.FINISHED and self.score is not None and self.score > 1
        return not self.improved and not before_its_end

    @property
    def mark(self) -> str:
        """The word beside its P: "modelled" or "emulated" on the CPU device, else empty."""
        return self.hardware.mark

    @property
    def model(self) -> str:
        """The models in one line: a single name if all roles have the same."""
        names = list(dict.fromkeys(self.models.values()))
        if len(names) <= 1:
            return "".join(names) or "unknown"
        return ", ".join(f"{role.value} {name}" for role, name in self.models.items())

    @property
    def name(self) -> str:
        """Task and precision, e.g. spmv_csr_bf16."""
        return f"{self.task}_{self.precision.value}"


@dataclass(frozen=True)
class AuthorityCase:
    """One case of an authority's measurement. Times are medians of whole calls, in microseconds."""

    label: str
    weight: float
    baseline_us: float | None
    library_us: float | None
    floor_us: float | None
    speedup: float | None
    interval: Interval | None
    ours_us: float | None = None
    ours_speedup: float | None = None


@dataclass(frozen=True)
class Authority:
    """A vendor's library in place of the kernel (figure 5). `note` says why it was skipped or is wrong.

    `score` and `speed` are the library's P over the baseline, `ours` that of our kernel in the same measurement. `duel`
    is our kernel over the library. `status` is None if nothing ran.
    """

    task: str
    precision: Precision
    library: str
    hardware: str
    status: Status | None
    note: str
    score: float | None = None
    speed: Comparison | None = None
    cases: tuple[AuthorityCase, ...] = ()
    ours: Comparison | None = None
    duel: Comparison | None = None
    kernel: str | None = None


@dataclass(frozen=True)
class Missing:
    """A task without its result: the suite did not get to it, or the result is damaged.

    `emulated` says on which kind of device it is expected; None if that is unknown.
    """

    task: str
    precision: Precision
    category: str
    why: str
    emulated: bool | None = None
    suite: str = field(default="", metadata=LATER)
    folder: str = field(default="", metadata=LATER)

    @property
    def name(self) -> str:
        """Task and precision, e.g. spmv_csr_bf16."""
        return f"{self.task}_{self.precision.value}"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a path, and what to do about it.

    If it is `serious`, a result is left out; otherwise the problem is shown beside the results.
    """

    path: str
    what: str
    fix: str
    serious: bool = True


@dataclass(frozen=True)
class Disagreement:
    """Two times of one kernel, in two tables of one folder, that differ by more than two measurements do.

    `kernel` is "baseline", the name of a playbook file or an idea. `case` is where the two differ most, and `cases` is
    the number of cases with such a pair.
    """

    task: str
    precision: Precision
    kernel: str
    case: str
    us: float
    source: str
    other_us: float
    other_source: str
    cases: int

    @property
    def ratio(self) -> float:
        """The second time over the first."""
        return self.other_us / self.us


@dataclass(frozen=True)
class Report:
    """Everything that was read. `results` are sorted by hardware, model, configuration, precision, task, repetition.

    `benchmark` has the names of all tasks of the benchmark, with their categories.
    """

    made: str
    versions: Mapping[str, str]
    sources: tuple[str, ...]
    results: tuple[TaskResult, ...]
    missing: tuple[Missing, ...] = ()
    problems: tuple[Problem, ...] = ()
    authorities: tuple[Authority, ...] = ()
    benchmark: Mapping[str, str] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = field(default=(), metadata=LATER)

    @property
    def measured(self) -> tuple[TaskResult, ...]:
        """Results that were timed on a GPU."""
        return tuple(result for result in self.results if not result.emulated)

    @property
    def emulated(self) -> tuple[TaskResult, ...]:
        """Results of the CPU device."""
        return tuple(result for result in self.results if result.emulated)
