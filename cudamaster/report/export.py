"""A report for programs: everything as JSON values, and one CSV line for each task and precision of each search."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any

from cudamaster.core.records import to_json
from cudamaster.report.at_floor import at_floor
from cudamaster.report.data import Missing, Report, TaskResult
from cudamaster.report.numbers import Group, groups, suite_of

FORMAT = 1  # of both; it changes when a name or a meaning does

COLUMNS = (
    "task",
    "precision",
    "category",
    "gpu",
    "emulated",
    "model",
    "strategy",
    "configuration",
    "rounds",
    "debug_tries",
    "profile",
    "repetition",
    "progress",
    "status",
    "correct",
    "improved",
    "p",
    "p_low",
    "p_high",
    "p_of_means",
    "change",
    "p_emulated",
    "p_modelled",
    "gpu_model",
    "complete",
    "best_round",
    "best_idea",
    "author",
    "kernel",
    "command",
    "class_before",
    "class_after",
    "over_floor",
    "dollars",
    "tokens",
    "minutes",
    "gpu_seconds",
    "calls",
    "started",
    "origin",
    "remarks",
    "suite",
    "at_floor",
)
# A spreadsheet takes such a cell for a formula, and models write some of them.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_json(report: Report) -> dict[str, Any]:
    """Everything that is known and every number made of it, as JSON values; groups name their results by index."""
    place = {id(result): index for index, result in enumerate(report.results)}
    every = [*groups(report), *(group for group in groups(report, pooled=True) if _of_both(group))]
    return {
        "format": FORMAT,
        **to_json(report),
        "groups": [_group(group, [place[id(result)] for result in group.results]) for group in every],
    }


def as_csv(report: Report) -> str:
    """One line for each result, and one for each task that is missing."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for result in report.results:
        writer.writerow({name: _cell(value) for name, value in _line(result).items()})
    for missing in report.missing:
        writer.writerow({name: _cell(value) for name, value in _missing(missing).items()})
    return file.getvalue()


def _of_both(group: Group) -> bool:
    return len({result.precision for result in group.results}) > 1


def _group(group: Group, results: list[int]) -> dict[str, Any]:
    """A group without what is elsewhere in the JSON."""
    names = [one.name for one in dataclasses.fields(group) if one.name not in ("results", "classes", "missing")]
    classes = group.classes
    return {
        **{name: to_json(getattr(group, name)) for name in names},
        "suite": group.suite,
        "results": results,
        "missing": [one.name for one in group.missing],
        "at_floor": [result.name for result in group.results if at_floor(result)],
        "classes": {
            "migrations": [
                {"before": before.value, "after": after.value, "tasks": tasks}
                for (before, after), tasks in classes.migrations.items()
            ],
            "by_category": to_json(classes.by_category),
            "unknown": classes.unknown,
            "metrics": to_json(classes.metrics),
        },
    }


def _line(result: TaskResult) -> dict[str, object]:
    """A result as one flat row of the exported table. `p` and its interval are empty unless a GPU measured them."""
    speed, cost = (None, result.cost) if result.emulated else (result.speed, result.cost)
    heaviest = max(
        (case for case in result.cases if case.over_floor is not None), key=lambda case: case.weight, default=None
    )
    kept = result.before if result.kept_baseline else result.after
    return {
        "task": result.task,
        "precision": result.precision.value,
        "category": result.category,
        "gpu": result.hardware.name,
        "emulated": result.emulated,
        "model": result.model,
        "strategy": result.configuration.strategy,
        "configuration": result.configuration.described,
        "rounds": result.configuration.rounds,
        "debug_tries": result.configuration.debug_tries,
        "profile": result.configuration.profile.value,
        "repetition": result.repetition,
        "progress": result.progress.value,
        "status": result.status.value if result.status else None,
        "correct": result.correct,
        "improved": result.improved,
        "p": None if result.emulated else result.score,
        "p_low": speed.interval.low if speed else None,
        "p_high": speed.interval.high if speed else None,
        "p_of_means": speed.mean_ratio if speed else None,
        "change": speed.change.value if speed else None,
        "p_emulated": result.score if result.mark == "emulated" else None,
        "p_modelled": result.score if result.mark == "modelled" else None,
        "gpu_model": result.hardware.modelled.described if result.hardware.modelled is not None else None,
        "complete": result.complete,
        "best_round": result.round,
        "best_idea": result.idea,
        "author": result.author,
        "kernel": result.best.candidate if result.best else None,
        "command": result.best.command if result.best else None,
        "class_before": result.before.bottleneck if result.before else None,
        "class_after": kept.bottleneck if kept else None,
        "over_floor": heaviest.over_floor if heaviest else None,
        "dollars": cost.dollars,
        "tokens": cost.tokens,
        "minutes": cost.minutes,
        "gpu_seconds": cost.gpu_seconds,
        "calls": cost.calls,
        "started": result.started,
        "origin": result.origin,
        "remarks": "; ".join((*result.notes, *result.remarks)),
        "suite": suite_of(result),
        "at_floor": at_floor(result),
    }


def _missing(one: Missing) -> dict[str, object]:
    return {
        "task": one.task,
        "precision": one.precision.value,
        "category": one.category,
        "progress": "missing",
        "remarks": one.why,
        "suite": suite_of(one),
    }


def _cell(value: object) -> object:
    """A CSV cell: empty if unknown, a word for a truth value, and never a formula for text from models."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
