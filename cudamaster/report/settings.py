"""Titles for groups of results: what distinguishes groups that share all but the precision, and a title for all."""

from __future__ import annotations

from collections.abc import Sequence

from cudamaster.report.data import Report
from cudamaster.report.headline import certainly_faster, figure, nothing
from cudamaster.report.numbers import Group, by_task, groups


def names(settings: Sequence[Group]) -> list[str]:
    """Each group's model, configuration and GPU, as far as these differ; empty if nothing differs."""
    parts = [(group.model, group.configuration.described, group.hardware.name, group.suite) for group in settings]
    differ = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    return [", ".join(part for part, differs in zip(one, differ, strict=True) if differs and part) for one in parts]


def key(group: Group) -> tuple[str, str, str, str]:
    """What groups of one setting have in common."""
    return group.hardware.name, group.model, group.configuration.described, group.suite


def halves(report: Report) -> list[list[Group]]:
    """The measured groups of each precision, by setting; FP32 first."""
    found: dict[tuple[str, str, str, str], list[Group]] = {}
    for group in groups(report):
        if not group.emulated:
            found.setdefault(key(group), []).append(group)
    return [sorted(setting, key=lambda group: str(group.precision), reverse=True) for setting in found.values()]


def title(report: Report) -> str:
    """The report in one sentence; with several settings, the one with the most speedups."""
    if measured := halves(report):
        best = max(measured, key=lambda setting: sum(group.success[1].exceeding for group in setting))
        sentence = _measured(best)
        return sentence if len(measured) == 1 else f"{sentence} That is the best of {len(measured)} settings."
    if not report.emulated:
        return nothing(report)
    tasks = by_task(report.emulated).values()
    correct = sum(any(run.correct for run in runs) for runs in tasks)
    of = f"{correct} of {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    return f"{of} got a kernel that is correct on the CPU device; nothing was timed on a GPU."


def _measured(setting: Sequence[Group]) -> str:
    counts = [_of(certainly_faster(one), one) for one in setting]
    sentence = f"{' and '.join(counts)} certainly got faster on {setting[0].hardware.name}"
    medians = [
        figure(one.spread.median) + (f" ({_kind(one)})" if len(setting) > 1 else "") for one in setting if one.spread
    ]
    return f"{sentence}; the median speedup is {' and '.join(medians)}." if medians else f"{sentence}."


def _of(number: int, group: Group) -> str:
    tasks = f"task{'' if group.tasks == 1 else 's'}"
    words = f"{tasks} of the suite {group.suite}" if group.suite else f"{_kind(group)} {tasks}"
    return f"{number} of {group.tasks} {words}"


def _kind(group: Group) -> str:
    if group.suite:
        return group.suite
    return group.precision.value.upper() if group.precision else "FP32 and BF16"
