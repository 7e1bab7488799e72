"""Chooses a few metrics out of many by their correlation with run time (CudaForge, section 2.2, algorithms 1 and 2).

In each task: the five fastest and the five slowest correct kernels; Pearson's r of every metric with the run time over
these ten; metrics that repeat another are dropped; the 20 of highest |r| stay. Across tasks: the metrics that are among
these 20 in enough tasks, and with one sign in all of these.

The paper leaves open, and this is how it is here:

- "Strongly collinear" has no figure in it: two metrics are when their |r| exceeds `COLLINEAR_ABOVE`. Its tables do not
  tell either: they hold pairs that are proportional.
- Of two metrics that repeat each other the one of higher |r| with the run time stays, on equal |r| the first by name.
  That is the mean |r| over all tasks, a task without r counting as 0: by a task's own |r| noise would pick another one
  of a family of near copies in each task, and the whole family would be lost as recurring nowhere.
- Algorithm 2 intersects the lists of all tasks, which cannot give the paper's 24 metrics out of the text's lists of 20,
  and the text asks for those that appear consistently: here more than half of the tasks are enough by default.
- A metric that one of the ten kernels lacks has no r, nor has one that is the same for all: in this task it is out.
- The duration is the run time itself, and no metric that could explain it. Cycle counts stay, as in the paper.

Pure functions; nothing is measured here. Times are in microseconds, metrics in whatever unit they came in.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cudamaster.core.errors import UsageError
from cudamaster.profiling.metric_sets import METRIC_NAME, base_name

FASTEST = SLOWEST = 5
TOP = 20
COLLINEAR_ABOVE = 0.99  # 98 % of the variance of one is the other's

_SAME = 1e-9  # what rounding may do to r, and to a value relative to the largest
_RUN_TIME = frozenset({"gpu__time_duration"})
_TABLE = "Give a CSV with the columns kernel, time_us and one per metric, and one row per correct kernel."


@dataclass(frozen=True)
class Kernel:
    """A correct kernel as it was measured: run time and metrics by Nsight Compute's names."""

    name: str
    time_us: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Task:
    """All measured kernels of a task that are correct."""

    name: str
    kernels: tuple[Kernel, ...]


class Fate(StrEnum):
    """What happened to a metric in one task."""

    TOP = "top"
    BELOW = "below the top"
    ALIAS = "alias"
    COLLINEAR = "collinear"
    CONSTANT = "constant"
    MISSING = "missing"
    RUN_TIME = "the run time itself"


@dataclass(frozen=True)
class Judged:
    """One metric in one task. A dropped one has the twin that stays in its place, and its r with that twin."""

    metric: str
    fate: Fate
    r: float | None = None
    twin: str | None = None
    r_with_twin: float | None = None


@dataclass(frozen=True)
class Sampled:
    """A kernel of the sample."""

    kernel: str
    time_us: float


@dataclass(frozen=True)
class TaskChoice:
    """What a task has to say: how many kernels it has, those of the sample from fast to slow, and every metric.

    Metrics are in falling order of |r|, those without r last.
    """

    task: str
    kernels: int
    sample: tuple[Sampled, ...]
    metrics: tuple[Judged, ...]

    @property
    def top(self) -> tuple[Judged, ...]:
        """The metrics of highest |r| that repeat no other."""
        return tuple(judged for judged in self.metrics if judged.fate is Fate.TOP)

    @property
    def counts(self) -> Mapping[Fate, int]:
        """How many metrics met which fate."""
        return Counter(judged.fate for judged in self.metrics)


class MetricOutcome(StrEnum):
    """What happened to a metric across tasks."""

    CHOSEN = "chosen"
    TOO_FEW = "in too few tasks"
    SIGNS_DIFFER = "signs differ"


@dataclass(frozen=True)
class Recurrence:
    """A metric across tasks: r by task where it is in the top, the mean of |r| over these, and what became of it.

    `twins` has, by task, the metric that stays in its place where it was dropped.
    """

    metric: str
    outcome: MetricOutcome
    r: Mapping[str, float]
    mean_abs_r: float
    twins: Mapping[str, str]


@dataclass(frozen=True)
class Selection:
    """The chosen metrics, highest mean |r| first, and the others that were at the top in some task, with the reason."""

    tasks_at_least: int
    top: int
    collinear_above: float
    chosen: tuple[Recurrence, ...]
    others: tuple[Recurrence, ...]
    tasks: tuple[TaskChoice, ...]


def select(
    tasks: Sequence[Task], tasks_at_least: int | None = None, collinear_above: float = COLLINEAR_ABOVE
) -> Selection:
    """The metrics that correlate with the run time in at least this many tasks, by default in more than half of them.

    Raises UsageError for tasks that do not suffice, and for more tasks asked for than there are.
    """
    counted = Counter(task.name for task in tasks)
    if twice := [name for name, count in counted.items() if count > 1]:
        raise UsageError(f"The task {twice[0]} is there twice.", "Give each task once; the file's name is the task's.")
    needed = len(tasks) // 2 + 1 if tasks_at_least is None else tasks_at_least
    if not 1 <= needed <= len(tasks):
        raise UsageError(
            f"A metric cannot be in the top of {needed} of {len(tasks)} tasks.",
            "Give more tasks, or ask for fewer: --tasks-at-least.",
        )
    samples = {task.name: sample(task) for task in tasks}
    correlated = {name: _correlated(name, sampled) for name, sampled in samples.items()}
    standing: dict[str, float] = {}
    for r in correlated.values():
        for metric, value in r.items():
            standing[metric] = standing.get(metric, 0.0) + abs(value) / len(tasks)
    choices = tuple(
        TaskChoice(
            task=task.name,
            kernels=len(task.kernels),
            sample=tuple(Sampled(kernel.name, kernel.time_us) for kernel in samples[task.name]),
            metrics=judge(samples[task.name], correlated[task.name], standing, collinear_above),
        )
        for task in tasks
    )
    names = dict.fromkeys(judged.metric for choice in choices for judged in choice.top)
    all_of = sorted((_recurrence(name, choices, needed) for name in names), key=_by_mean)
    return Selection(
        tasks_at_least=needed,
        top=TOP,
        collinear_above=collinear_above,
        chosen=tuple(each for each in all_of if each.outcome is MetricOutcome.CHOSEN),
        others=tuple(each for each in all_of if each.outcome is not MetricOutcome.CHOSEN),
        tasks=choices,
    )


def sample(task: Task) -> tuple[Kernel, ...]:
    """The five fastest and the five slowest kernels, from fast to slow (algorithm 1). On equal times, by name."""
    counted = Counter(kernel.name for kernel in task.kernels)
    if twice := [name for name, count in counted.items() if count > 1]:
        raise UsageError(f"The kernel {twice[0]} of {task.name} is there twice.", "Give one row per kernel.")
    if len(counted) < FASTEST + SLOWEST:
        raise UsageError(
            f"{task.name} has {len(counted)} kernels, and {FASTEST + SLOWEST} are needed.",
            "Measure more correct kernels of it, or leave the task out.",
        )
    ranked = sorted(task.kernels, key=lambda kernel: (kernel.time_us, kernel.name))
    return (*ranked[:FASTEST], *ranked[-SLOWEST:])


def correlations(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Pearson's r with the run time by metric: none for the run time itself, what a kernel lacks, and what is constant.

    The kernels' times must differ.
    """
    times = np.array([kernel.time_us for kernel in kernels])
    found = {}
    for name in sorted({name for kernel in kernels for name in kernel.metrics}):
        values = _column(kernels, name)
        if base_name(name) not in _RUN_TIME and np.isfinite(values).all() and not _constant(values):
            found[name] = pearson(values, times)
    return found


def judge(
    kernels: Sequence[Kernel],
    r: Mapping[str, float],
    standing: Mapping[str, float],
    collinear_above: float = COLLINEAR_ABOVE,
) -> tuple[Judged, ...]:
    """What becomes of every metric in one task, from its correlations; those with r first, in falling order of |r|.

    Of metrics that repeat each other the one of highest `standing` stays.
    """
    columns = {metric: _column(kernels, metric) for metric in r}
    twins = _twins(columns, sorted(r, key=lambda metric: (-round(standing[metric], 9), metric)), collinear_above)
    result = []
    kept = 0
    for metric in sorted(r, key=lambda metric: (-round(abs(r[metric]), 9), metric)):
        if twin := twins.get(metric):
            result.append(Judged(metric, twin.fate, r[metric], twin.metric, twin.r))
        else:
            kept += 1
            result.append(Judged(metric, Fate.TOP if kept <= TOP else Fate.BELOW, r[metric]))
    without_r = sorted({name for kernel in kernels for name in kernel.metrics} - r.keys())
    return (*result, *(Judged(name, _why_no_r(kernels, name)) for name in without_r))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation coefficient of two series, neither of them constant."""
    return float(np.clip(_direction(x) @ _direction(y), -1.0, 1.0))


def parse(task: str, text: str) -> Task:
    """The task in a CSV: columns kernel, time_us in microseconds, and one per metric. Rows are correct kernels.

    An empty cell, n/a, and what is not finite, is a metric that this kernel lacks. Raises UsageError naming the task
    and the place.
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise UsageError(f"The table of {task} is no CSV: {error}.", _TABLE) from error
    if not rows:
        raise UsageError(f"The table of {task} is empty.", _TABLE)
    header = [column.strip() for column in rows[0]]
    for needed in ("kernel", "time_us"):
        if needed not in header:
            raise UsageError(f"The table of {task} has no column {needed}.", _TABLE)
    if twice := [column for column, count in Counter(header).items() if count > 1]:
        raise UsageError(f"The table of {task} has the column {twice[0] or '(no name)'} twice.", _TABLE)
    metrics = [column for column in header if column not in ("kernel", "time_us")]
    if not metrics:
        raise UsageError(f"The table of {task} has no metrics.", _TABLE)
    if wrong := [column for column in metrics if not re.match(METRIC_NAME, column)]:
        raise UsageError(
            f"The table of {task} has a column {wrong[0]!r}, which is no metric of Nsight Compute.", _TABLE
        )
    return Task(task, tuple(_kernel(task, k, header, row) for k, row in enumerate(rows[1:], start=1)))


def _kernel(task: str, k: int, header: Sequence[str], row: Sequence[str]) -> Kernel:
    if len(row) != len(header):
        raise UsageError(
            f"Kernel {k} in the table of {task} has {len(row)} cells, and there are {len(header)} columns.", _TABLE
        )
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=True)}
    name = cells.pop("kernel")
    if not name:
        raise UsageError(f"Kernel {k} in the table of {task} has no name.", _TABLE)
    figures = {column: _figure(f"{column} of {name} in the table of {task}", cell) for column, cell in cells.items()}
    time_us = figures.pop("time_us")
    if time_us is None or not time_us > 0:
        raise UsageError(
            f"time_us of {name} in the table of {task} is {cells['time_us']!r}.",
            "Give the kernel's measured time in microseconds, or leave the kernel out.",
        )
    return Kernel(name, time_us, {column: value for column, value in figures.items() if value is not None})


def _figure(what: str, cell: str) -> float | None:
    if cell.lower() in ("", "n/a"):
        return None
    try:
        value = float(cell)
    except ValueError:
        raise UsageError(
            f"{what} is no number: {cell!r}.", "Write numbers as 1234.5, and leave empty what was not measured."
        ) from None
    return value if math.isfinite(value) else None


def _column(kernels: Sequence[Kernel], metric: str) -> np.ndarray:
    """A metric over all kernels, NaN where one lacks it."""
    return np.array([kernel.metrics.get(metric, math.nan) for kernel in kernels])


def _why_no_r(kernels: Sequence[Kernel], metric: str) -> Fate:
    if base_name(metric) in _RUN_TIME:
        return Fate.RUN_TIME
    return Fate.CONSTANT if np.isfinite(_column(kernels, metric)).all() else Fate.MISSING


def _constant(values: np.ndarray) -> bool:
    return bool(np.ptp(values) <= _SAME * np.abs(values).max())


def _direction(values: np.ndarray) -> np.ndarray:
    """Deviations from the mean, as a vector of length 1. Scaled first: byte counts squared lose digits."""
    centred = values / np.abs(values).max()
    centred = centred - centred.mean()
    return np.asarray(centred / np.linalg.norm(centred))


def _proportional(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether one is a multiple of the other, up to rounding."""
    at = np.abs(x).argmax()
    if y[at] == 0:
        return False
    return bool(np.abs(x / x[at] - y / y[at]).max() <= _SAME)


@dataclass(frozen=True)
class _Twin:
    """The metric that stays in the place of another, what makes them twins, and their r."""

    metric: str
    fate: Fate
    r: float


def _twins(columns: Mapping[str, np.ndarray], ranked: Sequence[str], collinear_above: float) -> dict[str, _Twin]:
    """Of the metrics in order of preference, those that repeat one before them that stays: the one nearest to them."""
    found = {}
    kept: list[str] = []
    directions: list[np.ndarray] = []
    for metric in ranked:
        direction = _direction(columns[metric])
        if kept:
            with_kept = np.clip(np.array(directions) @ direction, -1.0, 1.0)
            nearest = int(np.abs(with_kept).argmax())
            twin, r = kept[nearest], float(with_kept[nearest])
            alias = abs(r) >= 1 - _SAME and _proportional(columns[metric], columns[twin])
            if alias or abs(r) > collinear_above:
                found[metric] = _Twin(twin, Fate.ALIAS if alias else Fate.COLLINEAR, r)
                continue
        kept.append(metric)
        directions.append(direction)
    return found


def _correlated(task: str, sampled: Sequence[Kernel]) -> dict[str, float]:
    if _constant(np.array([kernel.time_us for kernel in sampled])):
        raise UsageError(
            f"All kernels of {task} take the same time, with which nothing can go together.",
            "Give kernels of different speed.",
        )
    return correlations(sampled)


def _recurrence(metric: str, choices: Sequence[TaskChoice], needed: int) -> Recurrence:
    seen = {choice.task: judged for choice in choices for judged in choice.metrics if judged.metric == metric}
    r = {task: judged.r for task, judged in seen.items() if judged.fate is Fate.TOP and judged.r is not None}
    if len(r) < needed:
        outcome = MetricOutcome.TOO_FEW
    elif len({value > 0 for value in r.values()}) > 1:
        outcome = MetricOutcome.SIGNS_DIFFER
    else:
        outcome = MetricOutcome.CHOSEN
    return Recurrence(
        metric=metric,
        outcome=outcome,
        r=r,
        mean_abs_r=sum(abs(value) for value in r.values()) / len(r),
        twins={task: judged.twin for task, judged in seen.items() if judged.twin is not None},
    )


def _by_mean(recurrence: Recurrence) -> tuple[float, str]:
    """Falling mean |r|, then the name; rounded, so that rounding does not decide between copies."""
    return (-round(recurrence.mean_abs_r, 9), recurrence.metric)
