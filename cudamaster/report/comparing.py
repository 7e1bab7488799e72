"""What got better from results A to results B, task by task. Values in, values out.

What a person holds after a run is its best kernel, or the baseline where that stayed the best; P is 1 then, exactly.
A and B were timed at different times, in different processes, each against the baseline in turn. So what is compared is
P against P: what slows both calls of a turn down is in neither. Two intervals of independent measurements make one of
their ratio (Zou and Donner, Statistics in Medicine 27, 2008: each end is as far off as the two ends that make it, added
in squares). To ask that the two intervals do not meet would be stricter than the level says, and miss differences.

What differs from one process to the next is in no interval, and is there twice here: a difference counts from about
sqrt(2) times what `speed` asks for of one pair of processes, and SAME may be as much wider. Of repeated runs the
middle P is taken, within all their intervals together, so that a difference has to be larger than that between
repetitions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial

from cudamaster.core.errors import UsageError
from cudamaster.core.speed import BETWEEN_PROCESSES_US, MARGIN, WIDEST_SAME, Change, Interval
from cudamaster.core.values import Precision
from cudamaster.report.data import Report, TaskResult
from cudamaster.report.numbers import by_task, typical
from cudamaster.report.one_suite import suite_in
from cudamaster.tasks import cards

_Key = tuple[str, str]  # a suite, and a task with its precision


@dataclass(frozen=True)
class Held:
    """What a person holds of a task on one side: `score` is P, 1 for the baseline, None where it is not known.

    `runs` are how many; `kernel` is the id of the one that stands for them, None for the baseline. An `emulated`
    score was measured on no GPU; `mark` says whether it is modelled.
    """

    score: float | None
    interval: Interval | None
    correct: bool
    runs: int
    kernel: str | None
    emulated: bool
    mark: str = ""


@dataclass(frozen=True)
class Step:
    """A task on both sides. `suite` is the one that it is of on both, empty where no record says it.

    `ratio` is P of B over P of A with its interval, None if it is unknown.
    """

    task: str
    precision: Precision
    first: Held
    second: Held
    ratio: float | None
    interval: Interval | None
    change: Change
    why: str
    suite: str = ""


@dataclass(frozen=True)
class Steps:
    """From A to B. `only_first` and `only_second` are tasks that the other side has no result of, with their suites
    where a task of another one has the same name.

    `change` is that of all together: SLOWER where one task is, else UNSURE where B lost a task, else FASTER where one
    is, else UNSURE where one is, else SAME. `geometric_mean` is that of the ratios that are known.
    """

    first: str
    second: str
    steps: tuple[Step, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    geometric_mean: float | None
    change: Change
    notes: tuple[str, ...]

    def count(self, change: Change) -> int:
        """How many tasks have that result."""
        return sum(step.change is change for step in self.steps)


def compare(first: Report, second: Report) -> Steps:
    """What B changed. Raises UsageError where a side holds several searches, or the sides have no task in common."""
    one, other = _one_search(first), _one_search(second)
    suites = _suites(first, second)
    before, after = _by_suite(one, suites(first)), _by_suite(other, suites(second))
    common = [(key, there) for key in before if (there := _same(key, after)) is not None]
    if not common:
        raise UsageError(
            f"{_named(first)} and {_named(second)} have no task in common.",
            "Compare results of the same tasks and precisions.",
        )
    steps = tuple(changed(_step(before[key], after[there]), suite=key[0] or there[0]) for key, there in common)
    shared = Counter(name for _, name in {*before, *after})

    def alone(keys: Collection[_Key], found: Collection[_Key]) -> tuple[str, ...]:
        left = [key for key in keys if key not in found]
        return tuple(f"{name} of {suite}" if shared[name] > 1 and suite else name for suite, name in left)

    only_first = alone(before, [key for key, _ in common])
    ratios = [step.ratio for step in steps if step.ratio is not None]
    return Steps(
        first=_named(first),
        second=_named(second),
        steps=steps,
        only_first=only_first,
        only_second=alone(after, [key for _, key in common]),
        geometric_mean=math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None,
        change=_overall([step.change for step in steps], lost=bool(only_first)),
        notes=_notes(one, other),
    )


def _suites(*sides: Report) -> Callable[[Report], Callable[[TaskResult], str]]:
    """What names the suite of a result of a side: with its folder too, where a side has several suites of that name."""

    def named(report: Report, result: TaskResult) -> str:
        return suite_in(report, result).removesuffix(f" in {result.folder}")

    several: set[str] = set()
    for side in sides:
        folders: dict[str, set[str]] = {}
        for result in side.results:
            folders.setdefault(named(side, result), set()).add(result.folder)
        several |= {name for name, found in folders.items() if len(found - {""}) > 1}

    def of(report: Report, result: TaskResult) -> str:
        name = named(report, result)
        return f"{name} in {result.folder}" if name in several and result.folder else name

    return lambda report: partial(of, report)


def _by_suite(results: Sequence[TaskResult], suite: Callable[[TaskResult], str]) -> dict[_Key, tuple[TaskResult, ...]]:
    """Runs of each task and precision of each suite."""
    found: dict[str, list[TaskResult]] = {}
    for result in results:
        found.setdefault(suite(result), []).append(result)
    return {(name, task): runs for name, each in found.items() for task, runs in by_task(each).items()}


def _same(key: _Key, there: Collection[_Key]) -> _Key | None:
    """The same task on the other side; where one record says no suite, the one of its name."""
    if key in there:
        return key
    alike = [other for other in there if other[1] == key[1] and "" in (other[0], key[0])]
    return alike[0] if len(alike) == 1 else None


def _one_search(report: Report) -> tuple[TaskResult, ...]:
    """The results of a side: measured ones, where it has any."""
    results = report.measured or report.emulated
    searches = {(run.hardware.name, run.model, run.configuration.described) for run in results}
    if len(searches) > 1:
        names = "; ".join(sorted(" ".join(search) for search in searches))
        raise UsageError(
            f"{_named(report)} holds results of {len(searches)} searches: {names}.",
            "Give each side the results of one GPU, one model and one configuration.",
        )
    return results


def _step(first: Sequence[TaskResult], second: Sequence[TaskResult]) -> Step:
    one, other = _held(first), _held(second)
    run, run_after = typical(first), typical(second)
    ratio: float | None = None
    interval: Interval | None = None
    if reason := _incomparable(run, run_after):
        change, why = Change.UNSURE, reason + _alone(one, other)
    elif _very_same(run, run_after):
        change, why = Change.SAME, "the very same run"
    elif one.kernel is None and other.kernel is None:
        change, why = Change.SAME, "the baseline stayed the best on both sides" + _alone(one, other)
    elif one.score is None or other.score is None:
        change, why = Change.UNSURE, "a kernel without a score that counts"
    else:
        ratio = other.score / one.score
        interval = _of_ratio(one, other)
        change = _change(ratio, interval, _margin(run, run_after))
        detail = (
            "" if cards.same_measure(run.task, run.card_hash, run_after.card_hash) else "another task card",
            _said(one, other),
        )
        why = "; ".join(part for part in detail if part)
    return Step(run.task, run.precision, one, other, ratio, interval, change, why)


def _very_same(first: TaskResult, second: TaskResult) -> bool:
    """Whether both sides hold one measurement: a folder of one name may be another run, or have gone on since."""
    best, best_after = (run.best.candidate if run.best else None for run in (first, second))
    return (first.origin, first.started, best, first.speed) == (second.origin, second.started, best_after, second.speed)


def _held(runs: Sequence[TaskResult]) -> Held:
    chosen = typical(runs)
    correct = any(run.correct for run in runs)
    if chosen.kept_baseline or chosen.best is None:
        return Held(1.0, _hull(runs), correct, len(runs), None, chosen.emulated, chosen.mark)
    return Held(chosen.score, _hull(runs), correct, len(runs), chosen.best.candidate, chosen.emulated, chosen.mark)


def _hull(runs: Sequence[TaskResult]) -> Interval | None:
    """All intervals together; None where one is not known. The baseline is 1 for sure."""
    ends = []
    for run in runs:
        if run.kept_baseline:
            ends.append(Interval(1.0, 1.0))
        elif run.speed is None:
            return None
        else:
            ends.append(run.speed.interval)
    return Interval(min(end.low for end in ends), max(end.high for end in ends))


def _incomparable(first: TaskResult, second: TaskResult) -> str | None:
    """Why the two P say nothing about each other, if so."""
    if marks := sorted({run.mark for run in (first, second) if run.mark}):
        what = {"emulated": "say nothing about a GPU", "modelled": "are no measurement of a GPU"}
        return "; ".join(f"{mark} times {what[mark]}" for mark in marks)
    if first.hardware.name != second.hardware.name:
        return f"measured on another GPU: {first.hardware.name} and {second.hardware.name}"
    if first.baseline and second.baseline and first.baseline.candidate != second.baseline.candidate:
        return "measured against another baseline"
    if _sizes(first) != _sizes(second) and not first.kept_baseline and not second.kept_baseline:
        return "not the same sizes and weights were timed"
    return None


def _sizes(run: TaskResult) -> set[tuple[str, float]]:
    return {(case.label, case.weight) for case in run.cases if case.speedup is not None}


def _of_ratio(first: Held, second: Held) -> Interval:
    """Interval of P of B over P of A; nothing known where one of theirs is not."""
    one, other = first.interval, second.interval
    if one is None or other is None or first.score is None or second.score is None:
        return Interval(0.0, math.inf)
    if one.low <= 0 or other.low <= 0 or math.isinf(one.high) or math.isinf(other.high):
        return Interval(0.0, math.inf)
    middle = math.log(second.score / first.score)
    down = math.hypot(math.log(second.score / other.low), math.log(one.high / first.score))
    up = math.hypot(math.log(other.high / second.score), math.log(first.score / one.low))
    return Interval(math.exp(middle - down), math.exp(middle + up))


def _margin(first: TaskResult, second: TaskResult) -> float:
    """How large a difference has to be to count, as a part: both sides' margins, added in squares."""
    return math.hypot(_between_processes(first), _between_processes(second))


def _between_processes(run: TaskResult) -> float:
    """A run's margin, weighed over its sizes as `speed` does; 0 for a kept baseline, whose P is exactly 1."""
    parts = [
        (case.weight * case.speedup, MARGIN + BETWEEN_PROCESSES_US / min(case.baseline_us, case.candidate_us))
        for case in run.cases
        if case.speedup is not None and case.baseline_us and case.candidate_us and case.weight > 0
    ]
    if run.kept_baseline or not parts:
        return 0.0
    return math.fsum(part * margin for part, margin in parts) / math.fsum(part for part, _ in parts)


def _change(ratio: float, interval: Interval, margin: float) -> Change:
    # Written so that what is no number is unsure.
    if not interval.low <= 1 <= interval.high and abs(math.log(ratio)) > math.log1p(margin):
        return Change.FASTER if ratio > 1 else Change.SLOWER
    widest = math.sqrt(2) * WIDEST_SAME
    if interval.high <= 1 + widest and interval.low >= 1 / (1 + widest):
        return Change.SAME
    return Change.UNSURE


def _overall(changes: Sequence[Change], *, lost: bool) -> Change:
    if lost and Change.SLOWER not in changes:  # what got faster does not make up for it
        return Change.UNSURE
    return next((one for one in (Change.SLOWER, Change.FASTER, Change.UNSURE) if one in changes), Change.SAME)


def _alone(first: Held, second: Held) -> str:
    if first.correct == second.correct:
        return ""
    return f"; {'B' if second.correct else 'A'} alone made a correct kernel"


def _said(first: Held, second: Held) -> str:
    if first.kernel == second.kernel:
        return "the very same kernel: what differs is the measurement"
    if first.kernel is None:
        return "A kept the baseline"
    if second.kernel is None:
        return f"B kept the baseline{'' if second.correct else ', and made no correct kernel'}"
    return ""


def _notes(first: Sequence[TaskResult], second: Sequence[TaskResult]) -> tuple[str, ...]:
    notes = []
    for what, one, other in (
        ("Model", first[0].model, second[0].model),
        ("Configuration", first[0].configuration.described, second[0].configuration.described),
        ("GPU", first[0].hardware.name, second[0].hardware.name),
        *(
            (figure, first[0].hardware.figures.get(figure, ""), second[0].hardware.figures.get(figure, ""))
            for figure in ("driver", "CUDA toolkit")
        ),
    ):
        if one != other:
            notes.append(f"{what}: {one or 'unknown'} in A, {other or 'unknown'} in B.")
    return tuple(notes)


def _named(report: Report) -> str:
    return ", ".join(report.sources)
