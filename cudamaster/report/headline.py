"""The results in a few sentences, which a person reads first."""

from __future__ import annotations

from cudamaster.core.speed import Change
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, Status
from cudamaster.report.at_floor import at_floor
from cudamaster.report.data import Report
from cudamaster.report.numbers import Group, by_task, exceeds, groups, typical


def headline(report: Report) -> tuple[str, ...]:
    """A sentence or two for each group, measured ones first."""
    order = list(Precision)
    found = sorted(groups(report), key=lambda group: (group.emulated, order.index(group.results[0].precision)))
    sentences = [_measured(group) if not group.emulated else _emulated(group) for group in found]
    if not sentences:
        return (nothing(report),)
    sentences += _without_results(report)
    if any("playbook" in result.models.values() for result in report.results):
        sentences.append("The playbook is a library of hand-written kernels; it is no language model.")
    return tuple(sentences)


def _without_results(report: Report) -> list[str]:
    """A sentence for each precision of which a search lacks every task: no group's sentence counts those."""
    found: dict[str, None] = {}
    for group in groups(report, pooled=True):
        if group.suite:
            continue
        there = {run.precision for run in group.results}
        for precision in BENCHMARK_PRECISIONS:
            lost = sum(one.precision is precision for one in group.missing)
            if lost and precision not in there:
                tasks = "1 task is" if lost == 1 else f"{lost} tasks are"
                found[f"In {precision.value.upper()} {tasks} missing, and there is no result."] = None
    return list(found)


def nothing(report: Report) -> str:
    """A sentence where no search has a result."""
    if not report.authorities:
        return "There are no results."
    tried = [one.status for one in report.authorities if one.status is not None]
    right = tried.count(Status.CORRECT)
    return f"No results of a search, vendors' libraries alone: {right} of {len(tried)} calls are right."


def _measured(group: Group) -> str:
    above, sure = above_one(group), certainly_faster(group)
    words = [f"{_of(sure, group)} certainly got faster on {group.hardware.name} ({group.model}; "]
    words.append(f"{group.configuration.described})")
    if sure < above:
        words.append(f", {above} {'has' if above == 1 else 'have'} a P above 1")
    words.append(".")
    if group.spread is not None:
        spread = group.spread
        words.append(f" P is {figure(spread.median)} in the median, {figure(spread.geometric_mean)} in the geometric ")
        words.append(f"mean, {figure(spread.maximum)} at most.")
    if there := sum(at_floor(run) for run in map(typical, by_task(group.results).values())):
        words.append(
            f" {there} {'is' if there == 1 else 'are'} at the floor, where no kernel could have a P much above 1."
        )
    return "".join(words) + _also(group)


def above_one(group: Group) -> int:
    """Tasks with a P above 1, the paper's success, however little above."""
    return sum(exceeds(run, 1.0) for run in map(typical, by_task(group.results).values()))


def certainly_faster(group: Group) -> int:
    """Tasks of these whose interval of P leaves no doubt."""
    runs = [run for run in map(typical, by_task(group.results).values()) if exceeds(run, 1.0)]
    return sum(run.speed is not None and run.speed.change is Change.FASTER for run in runs)


def _emulated(group: Group) -> str:
    correct = sum(typical(runs).correct for runs in by_task(group.results).values())
    return (
        f"{_of(correct, group)} got a correct kernel on the CPU device ({group.model}; "
        f"{group.configuration.described}). {_why_no_speedups(group)}"
    ) + _also(group)


def _why_no_speedups(group: Group) -> str:
    model = group.hardware.modelled
    if model is None:
        return "Times are emulated there and say nothing about a GPU: there are no speedups."
    return f"No GPU timed them: P is modelled ({model.described})."


def _of(number: int, group: Group) -> str:
    kind = f"{group.precision.value.upper()} " if group.precision and not group.suite else ""
    suite = f" of the suite {group.suite}" if group.suite else ""
    return f"{number} of {group.tasks} {kind}task{'s' if group.tasks != 1 else ''}{suite}"


def _also(group: Group) -> str:
    """What qualifies a group's numbers."""
    more = []
    wrong = sum(not typical(runs).correct for runs in by_task(group.results).values())
    if wrong and not group.emulated:
        more.append(f"{wrong} without a correct kernel")
    if group.missing:
        more.append(f"{len(group.missing)} missing")
    elif group.tasks < group.of_benchmark:
        more.append(f"the benchmark has {group.of_benchmark}")
    if group.partial:
        more.append(f"{group.partial} partial")
    if group.incomplete:
        more.append(f"{group.incomplete} without all sizes")
    if group.repetitions > 1:
        more.append(f"up to {group.repetitions} runs a task")
    if not more:
        return ""
    text = ", ".join(more)
    return f" {text[0].upper()}{text[1:]}."


def figure(value: float) -> str:
    """A speedup to three digits, without an exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
