"""Figures of bottlenecks: the classes' plane, classes by category, migration, and changes of the metrics."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cudamaster.core.values import Bottleneck
from cudamaster.report.data import ClassLimits, HardwareView, TaskResult, Throughputs
from cudamaster.report.drawing import BLUE, CLASSES, INK, LINE, PAPER, QUIET, SHORT, blank, label, legend, logarithmic
from cudamaster.report.numbers import Group, by_task, quartiles, typical

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 64.0  # a metric that changed by more than this factor is drawn at the edge
_FEWEST = 3  # values, below which quartiles say nothing


def plane(results: Sequence[TaskResult]) -> Figure | None:
    """Compute against DRAM and memory throughput of baselines and best kernels, with the limits of the classes."""
    pairs = [(one.before, one.after) for one in _typical(results)]
    before = [view for view, _ in pairs if view is not None and view.throughputs is not None]
    after = [view for _, view in pairs if view is not None and view.throughputs is not None]
    if not before + after:
        return None
    figure = blank(2.4)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, axis in zip(panels, ("dram", "memory"), strict=True):
        for one, other in pairs:
            if one is not None and one.throughputs is not None and other is not None and other.throughputs is not None:
                panel.plot(
                    *zip(_place(one.throughputs, axis), _place(other.throughputs, axis), strict=True),
                    color=LINE,
                    linewidth=0.5,
                    zorder=1,
                )
        _points(panel, before, axis, full=False)
        _points(panel, after, axis, full=True)
        _limits(panel, [view.limits for view in before + after if view.limits is not None], axis)
        panel.set(xlim=(-2, 102), ylim=(-2, 102), xticks=range(0, 101, 20), yticks=range(0, 101, 20))
        panel.set_xlabel({"dram": "DRAM", "memory": "memory"}[axis] + " throughput, %")
    panels[0].set_ylabel("compute throughput, %")
    legend(figure, [(SHORT[kind], *CLASSES[kind]) for kind in Bottleneck], hollow="baseline", full="best")
    return figure


def _typical(results: Sequence[TaskResult]) -> list[TaskResult]:
    return [typical(runs) for runs in by_task(results).values()]


def _place(found: Throughputs, axis: str) -> tuple[float, float]:
    return (found.dram if axis == "dram" else found.memory), found.compute


def _points(panel: Axes, views: Sequence[HardwareView], axis: str, *, full: bool) -> None:
    for kind, (colour, marker) in CLASSES.items():
        places = [_place(view.throughputs, axis) for view in views if view.throughputs and view.bottleneck is kind]
        if places:
            face = colour if full else PAPER
            panel.plot(
                *zip(*places, strict=True),
                marker,
                markersize=3,
                color=colour,
                markerfacecolor=face,
                markeredgewidth=0.6,
            )


def _limits(panel: Axes, limits: Iterable[ClassLimits], axis: str) -> None:
    for one in dict.fromkeys(limits):
        panel.axhline(one.compute, color=INK, linewidth=0.7, linestyle="--")
        panel.axvline(one.dram if axis == "dram" else one.memory, color=INK, linewidth=0.7, linestyle="--")


def by_category(group: Group) -> Figure | None:
    """How many baselines of each category have which class (figure 7)."""
    counts: dict[str, Counter[Bottleneck]] = {}
    for kind, categories in group.classes.by_category.items():
        for category, count in categories.items():
            counts.setdefault(category, Counter())[kind] += count
    if not counts:
        return None
    ordered = sorted(counts, key=lambda name: (sum(counts[name].values()), name))
    figure = blank(0.85 + 0.2 * len(ordered))
    axes = figure.subplots()
    left = [0] * len(ordered)
    for kind in Bottleneck:
        widths = [counts[name][kind] for name in ordered]
        axes.barh(range(len(ordered)), widths, left=left, height=0.72, color=CLASSES[kind][0], edgecolor=PAPER)
        for place, (width, start) in enumerate(zip(widths, left, strict=True)):
            if width:
                axes.text(start + width / 2, place, str(width), color=PAPER, fontsize=6, ha="center", va="center")
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(ordered)), [label(name) for name in ordered])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("baselines")
    legend(figure, [(SHORT[kind], CLASSES[kind][0], "s") for kind in Bottleneck])
    return figure


def migration(groups: Sequence[Group]) -> Figure | None:
    """From which class to which the kernels went (figure 8), a matrix for each group, which is of one precision."""
    moved = [(group, Counter(group.classes.migrations)) for group in groups if group.classes.migrations]
    if not moved:
        return None
    figure = blank(2.1)
    panels = list(figure.subplots(1, 2, sharey=True))
    most = max(max(counts.values()) for _, counts in moved)
    kinds = list(Bottleneck)
    for panel, (group, counts) in zip(panels, moved, strict=False):
        for row, before in enumerate(kinds):
            for column, after in enumerate(kinds):
                _cell(panel, column, row, counts[before, after], counts[before, after] / most)
        panel.set(xlim=(-0.5, 2.5), ylim=(2.5, -0.5), aspect="equal")
        panel.set_xticks(range(3), [SHORT[kind] for kind in kinds], fontsize=6)
        panel.set_yticks(range(3), [SHORT[kind] for kind in kinds], fontsize=6)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        precision = "" if group.precision is None else f"{group.precision.value.upper()}, "
        panel.set_title(f"{precision}{counts.total()} tasks")
        panel.set_xlabel("class after")
    for panel in panels[len(moved) :]:
        panel.set_axis_off()
    panels[0].set_ylabel("class before")
    return figure


def _cell(panel: Axes, x: int, y: int, count: int, part: float) -> None:
    from matplotlib.patches import Rectangle

    # Ink on a shade of blue can be read on a light page and on a dark one, whatever the shade.
    panel.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=BLUE, alpha=0.06 + 0.4 * part, linewidth=0))
    weight = "bold" if x == y else "normal"
    panel.text(x, y, str(count) if count else "·", ha="center", va="center", color=INK, fontsize=9, fontweight=weight)


def metric_changes(results: Sequence[TaskResult]) -> Figure | None:
    """By which factor each metric of the class before has changed: every task, quartiles and median (figure 9)."""
    found: dict[Bottleneck, dict[str, list[float]]] = {}
    for result in _typical(results):
        if result.before is None or result.before.bottleneck is None:
            continue
        for change in result.changes:
            if change.relative is not None:
                factors = found.setdefault(result.before.bottleneck, {}).setdefault(change.name, [])
                factors.append(min(MOST, max(1 / MOST, 1 + change.relative)))
    if not found:
        return None
    kinds = [kind for kind in Bottleneck if kind in found]
    rows = [len(found[kind]) for kind in kinds]
    figure = blank(0.45 + 0.4 * len(kinds) + 0.2 * sum(rows))
    panels = list(figure.subplots(len(kinds), 1, sharex=True, squeeze=False, height_ratios=rows).flat)
    for panel, kind in zip(panels, kinds, strict=True):
        _spread(panel, found[kind], *CLASSES[kind])
        panel.set_title(f"{kind.value} before", loc="left", fontsize=7, pad=2)
        logarithmic(panel, "x", [value for each in found.values() for values in each.values() for value in values])
    panels[-1].set_xlabel("after / before")
    return figure


def _spread(panel: Axes, factors: Mapping[str, Sequence[float]], colour: str, marker: str) -> None:
    for place, values in enumerate(factors.values()):
        panel.plot(values, [place] * len(values), marker=marker, markersize=2.5, color=colour, alpha=0.4, linestyle="")
        if len(values) >= _FEWEST:
            low, _, high = quartiles(values)
            panel.plot([low, high], [place] * 2, color=INK, linewidth=1.6, solid_capstyle="butt")
        middle = statistics.median(values)
        panel.plot(middle, place, marker="|", markersize=8, markeredgewidth=1.6, color=INK, linestyle="")
    panel.axvline(1, color=QUIET, linewidth=0.7)
    names = ["\n".join(textwrap.wrap(f"{label(name, 60)} ({len(values)})", 28)) for name, values in factors.items()]
    panel.set_yticks(range(len(names)), names, fontsize=6)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="x")
