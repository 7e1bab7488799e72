"""Numbers over many results: cumulative success, spreads of P, costs, classes and their changes. Values in, values out.

Results make a group where model, configuration, GPU and precision are the same; nothing is ever computed over two GPUs,
or over emulated and measured results. Within a group a task is one task however often it was run: its runs share its
vote, and of its scores the middle one stands for it.

Cumulative success at tau is the share of tasks whose P exceeds tau, strictly (CUDAMaster paper, section 5.1.3). A task
without a correct kernel of the run's own counts against every tau; at 0 being correct is enough.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from cudamaster.core.values import Bottleneck, Hardware, Precision
from cudamaster.report.data import Configuration, MetricChange, Missing, Report, RunProgress, TaskResult

TAUS = (0.0, 1.0, 2.0, 4.0, 8.0)  # of the paper's tables 3 and 4; all of them strict here, the last one too
FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)  # of KernelBench
MEANINGFUL = 1.01  # CUDA-L1 counts nothing below as a speedup


@dataclass(frozen=True)
class Point:
    """Cumulative success at one tau. `share` is of `tasks`, `exceeding` their number, a fraction where runs differ.

    `low` and `high` are the least and the largest share of a single repetition; None where nothing was repeated.
    """

    tau: float
    share: float
    exceeding: float
    tasks: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Spread:
    """How P is spread over the tasks that have one. `meaningful` is the share of all `tasks` above MEANINGFUL.

    `fast_p` is KernelBench's: the share of all tasks that are correct and more than p times as fast, by p.
    """

    tasks: int
    scored: int
    mean: float
    geometric_mean: float
    maximum: float
    upper_quartile: float
    median: float
    lower_quartile: float
    minimum: float
    meaningful: float
    fast_p: Mapping[float, float]


@dataclass(frozen=True)
class Average:
    """A cost per run: mean and sum over the `known` of `of` runs. Both are None if it is known for no run."""

    mean: float | None
    total: float | None
    known: int
    of: int


@dataclass(frozen=True)
class Costs:
    """What the runs of a group cost on average (table 5). GPU-seconds are the CPU device's where that is the device."""

    dollars: Average
    tokens: Average
    minutes: Average
    gpu_seconds: Average
    calls: Average


@dataclass(frozen=True)
class MetricSummary:
    """Relative changes of one metric over tasks of one class before (figure 9): 0.5 is half as much again."""

    bottleneck: Bottleneck
    metric: str
    tasks: int
    mean: float
    deviation: float | None
    lower_quartile: float
    median: float
    upper_quartile: float


@dataclass(frozen=True)
class Classes:
    """Classes of tasks before and after (figures 7 and 8). A task whose baseline stayed the best keeps its class.

    `migrations` counts tasks by (before, after), `by_category` those before by class and category. `unknown` tasks have
    no class on one side.
    """

    migrations: Mapping[tuple[Bottleneck, Bottleneck], int]
    by_category: Mapping[Bottleneck, Mapping[str, int]]
    unknown: int
    metrics: tuple[MetricSummary, ...]


# Whose tasks have its name for a category, by which older records show them.
_SUITES = ("hgemm", "hgemm_open")


@dataclass(frozen=True)
class Group:
    """Results of one model, configuration, GPU, suite and precision (None for both together), with numbers over them.

    `missing` are expected tasks without a result; `of_benchmark` is how many the benchmark has in these precisions, of
    tasks that are none of it how many there are.
    `partial` counts tasks whose runs did not finish, which stand as far as they got, `incomplete` those of which a size
    was skipped. An emulated group has success at 0 alone, and no curve and no spread: its times say nothing of a GPU.
    """

    hardware: Hardware
    model: str
    configuration: Configuration
    precision: Precision | None
    results: tuple[TaskResult, ...]
    missing: tuple[Missing, ...]
    of_benchmark: int
    tasks: int
    repetitions: int
    partial: int
    incomplete: int
    success: tuple[Point, ...]
    curve: tuple[Point, ...]
    spread: Spread | None
    costs: Costs
    classes: Classes

    @property
    def suite(self) -> str:
        """The suite that its tasks are of; empty for the benchmark, and where records do not say it."""
        return suite_of(self.results[0])

    @property
    def emulated(self) -> bool:
        """Whether it is of the CPU device."""
        return self.hardware.emulated


def suite_of(one: TaskResult | Missing) -> str:
    """The suite beside the benchmark that a task is of; empty if it is of none. Results of suites are never pooled."""
    return one.suite or (one.category if one.category in _SUITES else "")


def groups(report: Report, *, pooled: bool = False) -> tuple[Group, ...]:
    """One group for each model, configuration, GPU, suite and precision; `pooled` takes both precisions together."""

    def key(result: TaskResult) -> tuple[bool, str, str, str, str, str]:
        precision, where = "" if pooled else result.precision.value, (result.emulated, result.hardware.name)
        return (*where, result.model, result.configuration.described, suite_of(result), precision)

    made = []
    for _, same in groupby(sorted(report.results, key=key), key):
        results = tuple(sorted(same, key=lambda result: (result.precision.value, result.task, result.repetition)))
        made.append(_group(report, results, None if pooled else results[0].precision))
    return tuple(made)


def typical(runs: Sequence[TaskResult]) -> TaskResult:
    """The run that stands for a task that was run repeatedly: that of the middle score, the lower of two."""
    in_order = sorted(runs, key=lambda run: (run.correct, -math.inf if run.score is None else run.score))
    return in_order[(len(in_order) - 1) // 2]


def by_task(results: Sequence[TaskResult]) -> dict[str, tuple[TaskResult, ...]]:
    """Runs of each task and precision, by its name."""
    found: dict[str, list[TaskResult]] = {}
    for result in results:
        found.setdefault(result.name, []).append(result)
    return {name: tuple(sorted(runs, key=lambda run: run.repetition)) for name, runs in found.items()}


def exceeds(result: TaskResult, tau: float) -> bool:
    """Whether a result counts as a success at tau. Written so that a NaN score does not."""
    if not result.correct:
        return False
    return tau <= 0 or (result.score is not None and result.score > tau)


def point(results: Sequence[TaskResult], tau: float) -> Point:
    """Cumulative success over results, which are of one group."""
    tasks = list(by_task(results).values())
    shares = [sum(exceeds(run, tau) for run in runs) / len(runs) for runs in tasks]
    repetitions = max((len(runs) for runs in tasks), default=0)
    low = high = None
    if repetitions > 1:
        # A task with fewer runs than others is in every repetition with the runs it has.
        each = [sum(exceeds(runs[k % len(runs)], tau) for runs in tasks) / len(tasks) for k in range(repetitions)]
        low, high = min(each), max(each)
    exceeding = math.fsum(shares)
    return Point(tau, exceeding / len(tasks) if tasks else 0.0, exceeding, len(tasks), low, high)


def curve(results: Sequence[TaskResult]) -> tuple[Point, ...]:
    """Cumulative success at 0 and at every score: the share holds from its tau up to the next one."""
    scores = {run.score for run in results if run.correct and run.score is not None and math.isfinite(run.score)}
    return tuple(point(results, tau) for tau in sorted({0.0, *scores}))


def spread(results: Sequence[TaskResult]) -> Spread | None:
    """How P is spread over tasks; None where none has one."""
    tasks = [typical(runs) for runs in by_task(results).values()]
    scores = [run.score for run in tasks if run.correct and run.score is not None and 0 < run.score < math.inf]
    if not scores:
        return None
    lower, middle, upper = quartiles(scores)
    return Spread(
        tasks=len(tasks),
        scored=len(scores),
        mean=statistics.fmean(scores),
        geometric_mean=statistics.geometric_mean(scores),
        maximum=max(scores),
        upper_quartile=upper,
        median=middle,
        lower_quartile=lower,
        minimum=min(scores),
        meaningful=sum(score > MEANINGFUL for score in scores) / len(tasks),
        fast_p={p: point(results, p).share for p in FAST_P},
    )


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, linear between neighbours; a single value is all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def costs(results: Sequence[TaskResult]) -> Costs:
    """Average costs of runs."""

    def average(cost: Callable[[TaskResult], float | None]) -> Average:
        known = [value for value in map(cost, results) if value is not None]
        if not known:
            return Average(None, None, 0, len(results))
        return Average(statistics.fmean(known), math.fsum(known), len(known), len(results))

    return Costs(
        dollars=average(lambda run: run.cost.dollars),
        tokens=average(lambda run: run.cost.tokens),
        minutes=average(lambda run: run.cost.minutes),
        gpu_seconds=average(lambda run: run.cost.gpu_seconds),
        calls=average(lambda run: run.cost.calls),
    )


def classes(results: Sequence[TaskResult]) -> Classes:
    """Classes before and after over tasks, and the changes of the metrics that matter for the class before."""
    tasks = [typical(runs) for runs in by_task(results).values()]
    migrations: Counter[tuple[Bottleneck, Bottleneck]] = Counter()
    by_category: dict[Bottleneck, Counter[str]] = {}
    changes: dict[tuple[Bottleneck, str], list[MetricChange]] = {}
    unknown = 0
    for run in tasks:
        before = run.before.bottleneck if run.before else None
        kept = run.before if run.kept_baseline else run.after
        after = kept.bottleneck if kept else None
        if before is not None:
            by_category.setdefault(before, Counter())[run.category] += 1
        if before is None or after is None:
            unknown += 1
            continue
        migrations[before, after] += 1
        for change in run.changes:
            changes.setdefault((before, change.name), []).append(change)
    summaries = [_summary(kind, metric, values) for (kind, metric), values in changes.items()]
    return Classes(
        migrations=dict(migrations),
        by_category={kind: dict(counts) for kind, counts in by_category.items()},
        unknown=unknown,
        metrics=tuple(summary for summary in summaries if summary is not None),
    )


def _summary(kind: Bottleneck, metric: str, changes: Sequence[MetricChange]) -> MetricSummary | None:
    values = [change.relative for change in changes if change.relative is not None]
    if not values:
        return None
    lower, middle, upper = quartiles(values)
    return MetricSummary(
        bottleneck=kind,
        metric=metric,
        tasks=len(values),
        mean=statistics.fmean(values),
        deviation=statistics.stdev(values) if len(values) > 1 else None,
        lower_quartile=lower,
        median=middle,
        upper_quartile=upper,
    )


def _group(report: Report, results: tuple[TaskResult, ...], precision: Precision | None) -> Group:
    first = results[0]
    tasks = by_task(results)
    suite = suite_of(first)
    own = bool(suite) or _is_own(report, first.task)

    def same_set(one: TaskResult | Missing) -> bool:
        return suite_of(one) == suite and (bool(suite) or _is_own(report, one.task) == own)

    expected = {one.name: one for one in report.missing if one.emulated in (None, first.emulated) and same_set(one)}
    for other in report.results:
        if other.emulated == first.emulated and same_set(other):
            why = "not run with this model and configuration"
            expected.setdefault(
                other.name, Missing(other.task, other.precision, other.category, why, suite=other.suite)
            )
    wanted = {result.precision for result in report.results if suite_of(result) == suite}
    wanted |= {one.precision for one in report.missing if suite_of(one) == suite}
    wanted = {precision} if precision else wanted
    missing = [one for name, one in sorted(expected.items()) if name not in tasks and one.precision in wanted]
    return Group(
        hardware=first.hardware,
        model=first.model,
        configuration=first.configuration,
        precision=precision,
        results=results,
        missing=tuple(missing),
        of_benchmark=len(tasks) if own else len(report.benchmark) * len(wanted),
        tasks=len(tasks),
        repetitions=max(len(runs) for runs in tasks.values()),
        partial=sum(any(run.progress is not RunProgress.FINISHED for run in runs) for runs in tasks.values()),
        incomplete=sum(any(not run.complete for run in runs) for runs in tasks.values()),
        success=tuple(point(results, tau) for tau in (TAUS[:1] if first.emulated else TAUS)),
        curve=() if first.emulated else curve(results),
        spread=None if first.emulated else spread(results),
        costs=costs(results),
        classes=classes(results),
    )


def _is_own(report: Report, task: str) -> bool:
    """Whether a task is a user's own. A report without a benchmark does not know."""
    return bool(report.benchmark) and task not in report.benchmark
