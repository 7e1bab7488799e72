"""Figures of how fast kernels became: cumulative success, speedup over size, time over the floor, the authorities."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudamaster.core.values import Precision
from cudamaster.report.data import Authority, CaseResult, TaskResult
from cudamaster.report.drawing import (
    BLUE,
    INK,
    MARKERS,
    ORANGE,
    PAPER,
    PRECISIONS,
    QUIET,
    SERIES,
    WIDTH_IN,
    blank,
    label,
    legend,
    logarithmic,
    without_ticks,
)
from cudamaster.report.numbers import Group, point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BESIDE = 24  # letters of a legend's lines, of which two have room beside each other
_CONTENDERS = {"ours": (BLUE, "o", "-"), "library": (ORANGE, "s", "-"), "floor": (QUIET, "", "--")}


def cumulative_success(groups: Sequence[tuple[str, Group]]) -> Figure | None:
    """Share of tasks whose P exceeds tau, over tau, for groups of one GPU with the names of their settings (figure 4).

    A logarithmic axis has no 0, so success at 0 stands apart, at its left end.
    """
    scores = [one.tau for _, group in groups for one in group.curve if one.tau > 0]
    if not scores:
        return None
    low, high = min(0.5, *scores), max(8.0, *scores)
    texts = [_series(name, group) for name, group in groups]
    figure = blank(2.55 + 0.14 * sum(text.count("\n") + 1 for text in texts))
    axes = figure.subplots()
    # Before the groups are drawn: where 0 is depends on the axis.
    logarithmic(axes, "x", [low, high * 1.3])
    zero = low / (high / low) ** 0.11
    settings = list(dict.fromkeys(name for name, _ in groups))
    for (name, group), text in zip(groups, texts, strict=True):
        _success(axes, text, group, zero, settings.index(name) if len(settings) > 1 else None)
    axes.set_xlim(zero / 1.12, axes.get_xlim()[1])
    ticks = _powers(low, high * 1.3)
    ticks = ticks if len(ticks) < 9 else [tick for tick in ticks if math.log2(tick) % 2 == 0]
    axes.set_xticks([zero, *ticks], ["0", *(f"{tick:g}" for tick in ticks)])
    axes.axvline(1, color=QUIET, linewidth=0.6)
    axes.set_ylim(-3, 103)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y")
    axes.set_xlabel("speedup threshold τ (at 0: correct)")
    axes.set_ylabel("tasks with P > τ, %")
    beside = len(texts) == 2 and max(map(len, texts)) <= _BESIDE
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2 if beside else 1)
    return figure


def _series(name: str, group: Group) -> str:
    """A group's text in a legend, on as many lines as it needs: settings may differ in their last word."""
    text = f"{str(group.precision or 'both').upper()} {name}".strip() + f" ({group.tasks} tasks)"
    return "\n".join(textwrap.wrap(text, 52))


def _success(axes: Axes, text: str, group: Group, zero: float, setting: int | None) -> None:
    """Of several settings each has a colour and a marker, else each precision; hollow and dashed is BF16."""
    colour, marker = PRECISIONS[group.precision or Precision.FP32]
    if setting is not None:
        colour, marker = SERIES[setting % len(SERIES)], MARKERS[(setting + setting // len(SERIES)) % len(MARKERS)]
    dash, face = ("--", PAPER) if group.precision is Precision.BF16 else ("-", colour)
    right = axes.get_xlim()[1]
    taus = [axes.get_xlim()[0], *(one.tau for one in group.curve if one.tau > 0), right]
    shares = [point(group.results, tau) for tau in taus]
    percent = [100 * one.share for one in shares]
    axes.step(taus, percent, where="post", color=colour, linestyle=dash, linewidth=1.2)
    if group.repetitions > 1:
        lows = [100 * one.low for one in shares if one.low is not None]
        highs = [100 * one.high for one in shares if one.high is not None]
        axes.fill_between(taus, lows, highs, step="post", color=colour, alpha=0.12, linewidth=0)
    marked = _powers(taus[0], right)
    xs = [zero, *marked]
    ys = [100 * point(group.results, tau).share for tau in (0.0, *marked)]
    axes.plot(xs, ys, marker, color=colour, markersize=3.5, markerfacecolor=face)
    axes.plot([], [], marker, color=colour, markersize=3.5, markerfacecolor=face, linestyle=dash, label=text)


def _powers(low: float, high: float) -> list[float]:
    """Powers of two between two numbers."""
    return [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]


def speedup_over_size(results: Sequence[TaskResult]) -> Figure | None:
    """Speedup over size with its intervals, a panel for each task."""
    rows: dict[str, list[TaskResult]] = {}
    for result in sorted(results, key=lambda result: result.task):
        if any(case.speedup is not None for case in result.cases):
            rows.setdefault(result.task, []).append(result)
    if not rows:
        return None
    columns = min(5, len(rows))
    lines = math.ceil(len(rows) / columns)
    figure = blank(0.6 + 0.9 * lines, 2 * WIDTH_IN if columns > 2 else WIDTH_IN)
    panels = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    speedups = [case.speedup for row in rows.values() for one in row for case in one.cases if case.speedup is not None]
    for panel, (task, row) in zip(panels, rows.items(), strict=False):
        panel.axhline(1, color=QUIET, linewidth=0.6)
        for result in row:
            _sizes(panel, result)
        panel.set_title(label(task, 26), fontsize=6, pad=2)
        without_ticks(panel)
        logarithmic(panel, "y", speedups)
    for panel in panels[len(rows) :]:
        panel.set_axis_off()
    figure.supxlabel("size (complexity T of the case, logarithmic)", fontsize=8)
    figure.supylabel("speedup", fontsize=8)
    legend(figure, _precisions(results))
    return figure


def _sizes(panel: Axes, result: TaskResult) -> None:
    timed = sorted((case for case in result.cases if case.speedup is not None), key=lambda case: case.weight)
    colour, marker = PRECISIONS[result.precision]
    speedups = [case.speedup for case in timed if case.speedup is not None]
    panel.plot([case.weight for case in timed], speedups, color=colour, marker=marker, markersize=1.8, linewidth=0.8)
    known = [
        (case.weight, case.interval.low, case.interval.high)
        for case in timed
        if case.interval is not None and case.interval.low > 0 and math.isfinite(case.interval.high)
    ]
    if known:
        panel.vlines(*zip(*known, strict=True), color=colour, linewidth=0.6)


def heaviest(result: TaskResult) -> CaseResult | None:
    """The heaviest size with a time and a floor; None where there is none."""
    timed = [case for case in result.cases if case.over_floor is not None]
    return max(timed, key=lambda case: case.weight, default=None)


def over_floor(results: Sequence[TaskResult]) -> Figure | None:
    """Time over the floor at the heaviest size, baseline and best kernel of each task joined by a line."""
    rows: dict[str, list[tuple[Precision, float, float]]] = {}
    for result in results:
        case = heaviest(result)
        if case is not None and case.over_floor is not None and case.baseline_us is not None and case.floor_us:
            one = (result.precision, case.baseline_us / case.floor_us, case.over_floor)
            rows.setdefault(result.task, []).append(one)
    if not rows:
        return None
    ordered = sorted(rows, key=lambda task: min(best for _, _, best in rows[task]), reverse=True)
    figure = blank(0.85 + 0.155 * len(rows))
    axes = figure.subplots()
    for precision, (colour, marker) in PRECISIONS.items():
        lift = 0.18 if precision is Precision.FP32 else -0.18
        lines = [
            (place + lift, before, after)
            for place, task in enumerate(ordered)
            for kind, before, after in rows[task]
            if kind is precision
        ]
        if lines:
            heights, befores, afters = zip(*lines, strict=True)
            axes.hlines(heights, befores, afters, color=colour, linewidth=0.7)
            axes.plot(befores, heights, marker, markersize=2.6, color=colour, markerfacecolor=PAPER)
            axes.plot(afters, heights, marker, markersize=2.8, color=colour)
    logarithmic(axes, "x", [value for row in rows.values() for _, *pair in row for value in pair])
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(ordered)), [label(task, 24) for task in ordered], fontsize=6)
    axes.set_ylim(-0.7, len(ordered) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel("time of a call / least possible time")
    legend(figure, _precisions(results), hollow="baseline", full="best")
    return figure


def authorities(found: Sequence[Authority]) -> Figure | None:
    """Ours, the vendor library and the floor over size, as speedups over the baseline (figure 5)."""
    measured = [one for one in found if any(case.speedup is not None for case in one.cases)]
    if not measured:
        return None
    lines = math.ceil(len(measured) / 2)
    figure = blank(0.65 + 1.4 * lines)
    panels = list(figure.subplots(lines, 2, squeeze=False).flat)
    for panel, one in zip(panels, measured, strict=False):
        speedups = _contest(panel, one)
        panel.axhline(1, color=QUIET, linewidth=0.6)
        without_ticks(panel)
        logarithmic(panel, "y", speedups)
        # Two lines: beside it stands another one.
        title = f"{label(one.task, 18)} {one.precision.value}\n{label(one.library, 24)}"
        panel.set_title(title, fontsize=6.5, pad=4, linespacing=1.5)
    for panel in panels[len(measured) :]:
        panel.set_axis_off()
    figure.supxlabel("size (logarithmic)", fontsize=8)
    figure.supylabel("speedup over the baseline", fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _contest(panel: Axes, one: Authority) -> list[float]:
    """Draw the three lines, and give back all their speedups."""
    cases = sorted(one.cases, key=lambda case: case.weight)
    reached = {
        "ours": [case.ours_speedup for case in cases],
        "library": [case.speedup for case in cases],
        "floor": [case.baseline_us / case.floor_us if case.baseline_us and case.floor_us else None for case in cases],
    }
    drawn = []
    for (name, speedups), (colour, marker, dash) in zip(reached.items(), _CONTENDERS.values(), strict=True):
        known = [(case.weight, value) for case, value in zip(cases, speedups, strict=True) if value is not None]
        weights, values = [weight for weight, _ in known], [value for _, value in known]
        panel.plot(weights, values, color=colour, marker=marker, markersize=3, linestyle=dash, linewidth=1, label=name)
        drawn += values
    return drawn


def _precisions(results: Sequence[TaskResult]) -> list[tuple[str, str, str]]:
    seen = {result.precision for result in results}
    return [(one.value.upper(), *PRECISIONS[one]) for one in Precision if one in seen]
