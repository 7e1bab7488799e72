"""The tables of a report as text: configurations against thresholds, spreads, costs, tasks, classes.

A terminal and a page show the same ones. Each GPU has tables of its own, and so has the CPU device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from cudamaster.core.speed import Interval
from cudamaster.core.values import Bottleneck, Precision, Status
from cudamaster.report import at_floor
from cudamaster.report.agreement import MAY_DIFFER
from cudamaster.report.comparing import Held, Steps
from cudamaster.report.data import HardwareView, Report, TaskResult
from cudamaster.report.headline import figure
from cudamaster.report.numbers import (
    FAST_P,
    MEANINGFUL,
    TAUS,
    Average,
    Group,
    Point,
    by_task,
    groups,
    suite_of,
    typical,
)
from cudamaster.runs.summary import SHOWN_IN_PERCENT, change

UNKNOWN = "unknown"
NONE = "-"


@dataclass(frozen=True)
class Table:
    """Rows of cells; those in the columns of `right` are numbers. `note` says how to read it."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


def overview(report: Report) -> tuple[Table, ...]:
    """For each GPU: thresholds, spread and cost, one line a configuration; for the CPU device what is correct.

    A modelled P is in no threshold and no spread either: those are of measured times alone.
    """
    made: list[Table] = []
    for hardware, here in _by_hardware(report):
        emulated = here[0].emulated
        made.append(_success(hardware, here, emulated=emulated))
        if not emulated:
            made.append(_spreads(hardware, here))
        made.append(_costs(hardware, here, emulated=emulated))
    return tuple(made)


def classes(report: Report) -> tuple[Table, ...]:
    """For each search whose kernels have classes: by category, the migrations, and what became of the metrics.

    Modelled classes are left out.
    """
    made: list[Table] = []
    for group in groups(report, pooled=True):
        if group.emulated:
            continue
        if group.classes.by_category:
            made.append(_by_category(group))
        if group.classes.migrations:
            made.append(_migrations(group))
        if group.classes.metrics:
            made.append(_metrics(group))
    return tuple(made)


def tasks(report: Report) -> tuple[Table, ...]:
    """For each GPU and for the CPU device a line a task, precision and search, the largest P first."""

    def place(run: TaskResult) -> tuple[bool, str, str]:
        return run.emulated, run.hardware.name, suite_of(run)

    return tuple(_tasks(list(here)) for _, here in groupby(sorted(report.results, key=place), place))


def _tasks(results: Sequence[TaskResult]) -> Table:
    emulated = results[0].emulated
    several = len(_searches(results)) > 1
    runs = [typical(same) for group in _searches(results) for same in by_task(group).values()]
    counted = {id(typical(same)): len(same) for group in _searches(results) for same in by_task(group).values()}
    in_order = sorted(runs, key=lambda run: (not run.correct, -(run.score or 0.0), run.name))
    model = results[0].hardware.modelled
    p = f"P ({results[0].mark})" if emulated else "P"
    columns = ["task", p, "interval", "status", "best idea", "class", "of floor", *(["made by"] if several else [])]
    rows = []
    for run in in_order:
        name = run.name if counted[id(run)] == 1 else f"{run.name} ({counted[id(run)]} runs)"
        row = [name, score(run), _interval(run.speed.interval if run.speed else None), _status(run), run.idea or NONE]
        row += [_class(run.before, run.before if run.kept_baseline else run.after), _over_floor(run)]
        rows.append((*row, *([f"{run.model}; {run.configuration.described}"] if several else [])))
    note = "Emulated times choose between kernels there, and say nothing about a GPU" if emulated else ""
    if model is not None:
        note = f"P is modelled, no GPU measured it, and nine of ten would be in the interval: {model.described}"
    if any(at_floor.at_floor(run) for run in runs):
        note = at_floor.MEANING
    where = _where(results[0].hardware.name, suite_of(results[0]))
    return Table(f"Tasks on {where}", note, tuple(columns), tuple(rows), (p, "interval", "of floor"))


def disagreements(report: Report) -> Table | None:
    """Kernels that tables beside each other have different times of; None where there are none."""
    if not report.disagreements:
        return None
    columns = ("kernel", "case", "µs", "by", "µs, another", "by another", "ratio", "cases")
    rows = [
        (
            f"{one.task}_{one.precision.value} {one.kernel}",
            one.case,
            f"{one.us:.1f}",
            one.source,
            f"{one.other_us:.1f}",
            one.other_source,
            f"{one.ratio:.2f}",
            str(one.cases),
        )
        for one in report.disagreements
    ]
    note = (
        f"Two tables have times of the same kernel and GPU further apart than {MAY_DIFFER}. A line has the "
        "case where they are furthest apart, and at how many cases there are such two"
    )
    return Table("Times that disagree", note, columns, tuple(rows), ("µs", "µs, another", "ratio", "cases"))


def authorities(report: Report) -> Table | None:
    """What vendors' libraries do, and our kernels beside them; None where nothing was measured."""
    if not report.authorities:
        return None
    rows = []
    note = "Both over the baseline in one measurement; the last is our kernel over the library"
    for one in sorted(report.authorities, key=lambda one: (one.hardware, one.task, one.precision.value, one.library)):
        status = one.status.value.replace("_", " ") if one.status else "skipped"
        if one.status is not Status.CORRECT:
            note += f". {one.task}_{one.precision.value} by {one.library} {status}: {one.note}"
        duel = f"{figure(one.duel.speedup)}, {one.duel.change.value.upper()}" if one.duel else NONE
        cells = [figure(speed.speedup) if speed else NONE for speed in (one.speed, one.ours)]
        interval = _interval(one.duel.interval if one.duel else None)
        rows.append((f"{one.task}_{one.precision.value}", one.library, one.hardware, status, *cells, duel, interval))
    columns = ("task", "library", "GPU", "status", "P of the library", "P of ours", "ours is", "interval")
    return Table("Against the authorities", note, columns, tuple(rows), ("P of the library", "P of ours", "interval"))


def steps(compared: Steps) -> Table:
    """A comparison, task by task: what got worse first."""
    order = ["slower", "faster", "unsure", "same"]
    shared = Counter((step.task, step.precision) for step in compared.steps)
    rows = [
        (
            f"{step.task}_{step.precision.value}"
            + (f" of {step.suite}" if shared[step.task, step.precision] > 1 else ""),
            step.change.value.upper(),
            _held(step.first),
            _held(step.second),
            figure(step.ratio) if step.ratio is not None else NONE,
            _interval(step.interval),
            step.why,
        )
        for step in sorted(
            compared.steps, key=lambda step: (order.index(step.change.value), step.ratio or 1.0, step.task)
        )
    ]
    columns = ("task", "B is", "P of A", "P of B", "B/A", "interval", "")
    return Table("Tasks", "", columns, tuple(rows), ("P of A", "P of B", "B/A", "interval"))


def score(run: TaskResult) -> str:
    """P of a result; of a kernel without one that counts a question mark."""
    if not run.correct:
        return NONE
    return "?" if run.score is None else figure(run.score)


def _by_hardware(report: Report) -> list[tuple[str, list[Group]]]:
    """Groups of each GPU, the pooled one after those of both precisions."""
    each = groups(report)
    both = [group for group in groups(report, pooled=True) if len({run.precision for run in group.results}) > 1]

    def place(group: Group) -> tuple[bool, str, str]:
        return group.emulated, group.hardware.name, group.suite

    def line(group: Group) -> tuple[str, str, int]:
        order = [*Precision, None]
        return group.model, group.configuration.described, order.index(group.precision)

    every = sorted([*each, *both], key=lambda group: (place(group), line(group)))
    return [(_where(name, suite), list(here)) for (_, name, suite), here in groupby(every, place)]


def _where(hardware: str, suite: str) -> str:
    """What a table is of: a GPU, and a suite beside the benchmark."""
    return f"{hardware}, {suite}" if suite else hardware


def _searches(results: Sequence[TaskResult]) -> list[list[TaskResult]]:
    def search(run: TaskResult) -> tuple[str, str]:
        return run.model, run.configuration.described

    return [list(same) for _, same in groupby(sorted(results, key=search), search)]


class Lines:
    """What the lines of a table begin with: model and configuration if they differ; otherwise they are shown once."""

    def __init__(self, here: Sequence[Group]) -> None:
        self._models = len({group.model for group in here}) > 1
        self._configurations = len({group.configuration.described for group in here}) > 1
        differing = (("model", self._models), ("configuration", self._configurations), ("precision", True))
        self.columns = tuple(name for name, differs in differing if differs)
        same = [] if self._models else [here[0].model]
        same += [] if self._configurations else [here[0].configuration.described]
        self.note = f"{'; '.join(same)}. " if same else ""

    def of(self, group: Group) -> tuple[str, ...]:
        """The first cells of a group's line."""
        cells = [group.model] if self._models else []
        cells += [group.configuration.described] if self._configurations else []
        return (*cells, group.precision.value if group.precision else "both")


def _success(hardware: str, here: Sequence[Group], *, emulated: bool) -> Table:
    lines = Lines(here)
    columns = ("tasks", *(f"P > {tau:g}" if tau else "correct" for tau in (TAUS[:1] if emulated else TAUS)))
    rows = [
        (
            *lines.of(group),
            f"{group.tasks} of {group.of_benchmark}",
            *(_share(point) for point in group.success),
            _incomplete(group),
        )
        for group in here
    ]
    if emulated:
        note = f"Share of tasks with a correct kernel of the run's own; {here[0].hardware.mark} times make no speedup"
    else:
        note = "Share of tasks whose P exceeds the threshold, strictly; one without a correct kernel counts against all"
    if any(group.repetitions > 1 for group in here):
        note += "; in brackets the least and the largest of one repetition, where they differ"
    return Table(
        f"Success on {hardware}", lines.note + note, (*lines.columns, *columns, "incomplete"), tuple(rows), columns
    )


def _spreads(hardware: str, here: Sequence[Group]) -> Table:
    lines = Lines(here)
    fast = [p for p in FAST_P if p > 1 and p not in TAUS]
    spread_over = ("scored", "mean", "geomean", "max", "75 %", "50 %", "25 %")
    columns = (*spread_over, f"> {MEANINGFUL:g}", *(f"fast_{p:g}" for p in fast))
    rows = []
    for group in here:
        spread = group.spread
        if spread is None:
            rows.append((*lines.of(group), "0", *([NONE] * (len(columns) - 1))))
            continue
        values = [spread.mean, spread.geometric_mean, spread.maximum]
        values += [spread.upper_quartile, spread.median, spread.lower_quartile]
        shares = (spread.meaningful, *(spread.fast_p[p] for p in fast))
        cells = (str(spread.scored), *(figure(value) for value in values), *(f"{share:.0%}" for share in shares))
        rows.append((*lines.of(group), *cells))
    note = (
        "Over tasks with a P; shares are of all tasks. fast_p is the share of tasks that are correct and more than p "
        "times as fast (KernelBench): fast_0, fast_1 and fast_2 are the shares above"
    )
    return Table(f"P on {hardware}", lines.note + note, (*lines.columns, *columns), tuple(rows), columns)


def _costs(hardware: str, here: Sequence[Group], *, emulated: bool) -> Table:
    lines = Lines(here)
    columns = ("runs", "dollars", "tokens", "minutes", "device seconds" if emulated else "GPU seconds", "calls")
    rows = []
    for group in here:
        costs = group.costs
        cells = (
            str(len(group.results)),
            _average(costs.dollars, 4),
            _average(costs.tokens, 0),
            _average(costs.minutes, 1),
            _average(costs.gpu_seconds, 1),
            _average(costs.calls, 1),
        )
        rows.append((*lines.of(group), *cells))
    note = "Averages over runs; minutes are of wall time"
    return Table(f"Cost per task on {hardware}", lines.note + note, (*lines.columns, *columns), tuple(rows), columns)


def _by_category(group: Group) -> Table:
    counts = group.classes.by_category
    categories = sorted({category for by in counts.values() for category in by})
    rows = [
        (kind.value, str(sum(by.values())), *(str(by.get(category, 0)) for category in categories))
        for kind in Bottleneck
        for by in [counts.get(kind, {})]
    ]
    columns = ("baseline is", "tasks", *categories)
    return Table(f"Classes of the baselines, {_described(group)}", "", columns, tuple(rows), columns[1:])


def _migrations(group: Group) -> Table:
    kinds = list(Bottleneck)
    counts = group.classes.migrations
    rows = [(before.value, *(str(counts.get((before, after), 0)) for after in kinds)) for before in kinds]
    note = "A task whose baseline stayed the best keeps its class"
    if group.classes.unknown:
        note += f"; {group.classes.unknown} tasks have no class on one side"
    columns = ("before \\ after", *(kind.value for kind in kinds))
    return Table(f"Classes before and after, {_described(group)}", note, columns, tuple(rows), columns[1:])


def _metrics(group: Group) -> Table:
    rows = []
    for metric in sorted(group.classes.metrics, key=lambda metric: (metric.bottleneck.value, -metric.mean)):
        # A spread of what is beyond any percentage is none either.
        wide = metric.deviation is None or metric.mean > SHOWN_IN_PERCENT or metric.deviation > SHOWN_IN_PERCENT
        deviation = NONE if wide else f"{metric.deviation:.0%}"
        quartiles = f"{change(metric.lower_quartile)} to {change(metric.upper_quartile)}"
        row = (metric.bottleneck.value, metric.metric, str(metric.tasks), change(metric.mean), deviation)
        rows.append((*row, change(metric.median), quartiles))
    columns = ("class before", "metric", "tasks", "mean", "deviation", "median", "quartiles")
    title = f"Relative changes of metrics, {_described(group)}"
    beyond = any(metric.mean > SHOWN_IN_PERCENT for metric in group.classes.metrics)
    note = "Above tenfold, the value before was close to nothing, so no percentage is given" if beyond else ""
    return Table(title, note, columns, tuple(rows), columns[2:])


def _described(group: Group) -> str:
    return f"{_where(group.hardware.name, group.suite)}, {group.model}, {group.configuration.described}"


def _share(point: Point) -> str:
    if point.low is None or point.high is None or point.low == point.high:
        return f"{point.share:.0%}"
    return f"{point.share:.0%} ({point.low:.0%} to {point.high:.0%})"


def _incomplete(group: Group) -> str:
    parts = []
    if group.missing:
        parts.append(f"{len(group.missing)} missing")
    if group.partial:
        parts.append(f"{group.partial} partial")
    if group.incomplete:
        parts.append(f"{group.incomplete} without all sizes")
    return ", ".join(parts) or NONE


def _average(cost: Average, digits: int) -> str:
    if cost.mean is None:
        return UNKNOWN
    mean = f"{cost.mean:,.{digits}f}"
    return mean if cost.known == cost.of else f"{mean} (of {cost.known}, {UNKNOWN} of {cost.of - cost.known})"


def _interval(interval: Interval | None) -> str:
    if interval is None or math.isinf(interval.high):
        return UNKNOWN if interval is not None else NONE
    return f"{figure(interval.low)} to {figure(interval.high)}"


def _status(run: TaskResult) -> str:
    if run.status is None:
        return "no kernel"
    status = run.status.value.replace("_", " ")
    if run.correct and not run.improved and run.progress.value == "finished":
        status += ", baseline kept"
    if not run.complete:
        status += ", incomplete"
    if at_floor.at_floor(run):
        status += f", {at_floor.WORDS}"
    status = ", ".join([status, *(remark.partition(":")[0] for remark in run.remarks)])
    return status if run.progress.value == "finished" else f"{status}, {run.progress.value}"


def _class(before: HardwareView | None, after: HardwareView | None) -> str:
    old, new = (
        view.bottleneck.value.removesuffix(" bound") if view and view.bottleneck else None for view in (before, after)
    )
    if old is None and new is None:
        return NONE
    return old or "?" if old == new else f"{old or '?'} → {new or '?'}"


def _over_floor(run: TaskResult) -> str:
    """At the heaviest size."""
    timed = [case for case in run.cases if case.over_floor is not None]
    over = max(timed, key=lambda case: case.weight).over_floor if timed else None
    return f"{over:.1f} x" if over is not None else NONE


def _held(held: Held) -> str:
    if held.kernel is None:
        return "1 (baseline)"
    if held.score is None:
        return "?"
    return f"{figure(held.score)} ({held.mark})" if held.mark else figure(held.score)
