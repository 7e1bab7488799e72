"""The pictures of a table: ratios over the grid of shapes, over size, and what was chosen over the shape.

After the paper's figure 3 and its section 6. Ratios are geometric means of the library's time over ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudamaster.families import model
from cudamaster.families.config import Config, Schedule
from cudamaster.hgemm.statistics import Contest, by_size, rank_correlation
from cudamaster.hgemm.table import Entry
from cudamaster.report.drawing import BLUE, INK, ORANGE, PAPER, QUIET, WIDTH_IN, blank, legend, logarithmic
from cudamaster.tasks.hgemm import SIZES, Layout, Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

MARKS = {Layout.NN: (BLUE, "o"), Layout.TN: (ORANGE, "s")}
WIDE_IN = 2 * WIDTH_IN
# Near the page's colours but not the same, which a dark page would exchange: white is 1 there too.
_AHEAD, _EVEN, _BEHIND, _UNKNOWN, _BETWEEN = "#005f9e", "#fefefe", "#b84e00", "#a9afb8", "#dfe3e8"
_COLUMNS = 5
_FILLED = 0.94  # of a cell's sides
_STEPS = 11  # of the scale
_NARROWEST, _WIDEST = math.log2(1.05), 1.0  # reach of the scale, in octaves
_WITHIN = 98  # percent of the ratios that the scale holds
_FINE = 4.0  # axes of ratios that span less have these ticks
_TICKS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)
_LARGEST_AREA = 42.0  # of a bubble, in square points
_SCHEDULES = {
    Schedule.COOPERATIVE: "cooperative",
    Schedule.PINGPONG: "pingpong",
    Schedule.THROUGH_L2: "cooperative,\nK through L2",
    Schedule.WARPS: "warps share K",
}


def cells(k: int) -> str:
    """The id of a panel's cells in a heat map, which are in the order of `shapes_of`."""
    return f"cells_{k}"


def shapes_of(k: int) -> list[Shape]:
    """The grid's shapes of one K, row after row of their panel."""
    return [Shape(m, n, k) for m in SIZES for n in SIZES]


def reach(contests: Sequence[Contest], entries: Sequence[Entry]) -> float:
    """How many octaves the scale of heat maps reaches to either side of 1: the same one for all on a page."""
    import numpy as np

    found = [abs(math.log2(ratio.geometric)) for contest in contests for _, ratio in contest.ratios(entries)]
    return min(_WIDEST, max(_NARROWEST, float(np.percentile(found, _WITHIN)))) if found else _NARROWEST


def heat_map(contest: Contest, entries: Sequence[Entry], octaves: float) -> Figure | None:
    """The ratio at each shape of the grid (SIZES): a panel for each K, M down, N across.

    None where no shape of the grid was measured; shapes beside the grid are left out.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    ratios = {entry.shape: ratio.geometric for entry, ratio in contest.ratios(entries)}
    if not any({shape.m, shape.n, shape.k} <= set(SIZES) for shape in ratios):
        return None
    rows = math.ceil(len(SIZES) / _COLUMNS)
    figure = blank(0.75 + 1.35 * rows, WIDE_IN)
    grid = figure.add_gridspec(rows + 1, _COLUMNS, height_ratios=[*[1.0] * rows, 0.06])
    colours = _colours()
    corners = ((0, 0), (_FILLED, 0), (_FILLED, _FILLED), (0, _FILLED))
    places = [(across, down) for down in range(len(SIZES)) for across in range(len(SIZES))]
    squares = [[(across + x, down + y) for x, y in corners] for across, down in places]
    for number, k in enumerate(SIZES):
        panel = figure.add_subplot(grid[number // _COLUMNS, number % _COLUMNS])
        panel.add_artist(Rectangle((-0.06, -0.06), len(SIZES) + 0.06, len(SIZES) + 0.06, color=_BETWEEN, linewidth=0))
        found = [ratios.get(shape) for shape in shapes_of(k)]
        faces = [_UNKNOWN if ratio is None else colours(_place(ratio, octaves)) for ratio in found]
        # One artist: a thousand of them would take seconds.
        panel.add_collection(PolyCollection(squares, facecolors=faces, linewidths=0, gid=cells(k)), autolim=False)
        panel.set(xlim=(-0.06, len(SIZES)), ylim=(len(SIZES), -0.06), aspect="equal")
        panel.set_title(f"K = {k}", fontsize=7, pad=2)
        first, last = number % _COLUMNS == 0, number + _COLUMNS >= len(SIZES)
        middles = [at + 0.5 for at in range(len(SIZES))]
        panel.set_xticks(middles, [_short(n) if last else "" for n in SIZES])
        panel.set_yticks(middles, [_short(m) if first else "" for m in SIZES])
        panel.tick_params(length=0, labelsize=5, pad=1)
        panel.tick_params(axis="x", rotation=90)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
        if first:
            panel.set_ylabel("M", fontsize=7, labelpad=1)
        if last:
            panel.set_xlabel("N", fontsize=7, labelpad=1)
    _scale(figure.add_subplot(grid[rows, :]), colours, octaves)
    return figure


def _colours() -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ratio", [_BEHIND, _EVEN, _AHEAD])


def _place(ratio: float, octaves: float) -> float:
    """From 0 (slower by `octaves` or more) by 0.5 (equal) to 1."""
    return min(1.0, max(0.0, 0.5 + 0.5 * math.log2(ratio) / octaves))


def _scale(axes: Axes, colours: Colormap, octaves: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((-0.04, -0.1), _STEPS + 0.04, 1.2, color=_BETWEEN, linewidth=0))
    for step in range(_STEPS):
        colour = colours(step / (_STEPS - 1))
        axes.add_patch(Rectangle((step, 0), 0.96, 1, color=colour, linewidth=0))
    axes.add_patch(Rectangle((_STEPS + 1, 0), 0.96, 1, color=_UNKNOWN, linewidth=0))
    values = [2 ** (octaves * (2 * step / (_STEPS - 1) - 1)) for step in range(_STEPS)]
    texts = [f"{value:.2f}" for value in values]
    texts[0], texts[-1] = f"≤ {texts[0]}", f"≥ {texts[-1]}"
    axes.set(xlim=(-0.3, _STEPS + 2.3), ylim=(-0.1, 1.1))
    axes.set_xticks([*[step + 0.48 for step in range(_STEPS)], _STEPS + 1.48], [*texts, "not measured"])
    axes.tick_params(axis="x", length=0, labelsize=6)
    axes.set_yticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("library's time / our time: orange the library is faster, blue ours", fontsize=7)


def _short(size: int) -> str:
    return f"{size // 1024}k" if size >= 1024 and size % 1024 == 0 else str(size)


def over_size(contests: Sequence[Contest], entries: Sequence[Entry]) -> Figure | None:
    """The ratio over log2(M N K): every shape as a pale mark, the geometric mean of each bin as a line (figure 3)."""
    drawn = [(contest, ratios) for contest in contests if (ratios := contest.ratios(entries))]
    if not drawn:
        return None
    figure = blank(2.5)
    axes = figure.subplots()
    values = [ratio.geometric for _, ratios in drawn for _, ratio in ratios]
    logarithmic(axes, "y", values)
    low, high = axes.get_ylim()
    if high / low < _FINE:
        axes.set_yticks([tick for tick in _TICKS if low <= tick <= high])
    axes.axhline(1, color=INK, linewidth=0.8)
    for contest, ratios in drawn:
        colour, marker = MARKS[contest.layout]
        aside = -0.12 if contest.layout is Layout.NN else 0.12  # many shapes have the same size
        xs = [math.log2(entry.shape.products) + aside for entry, _ in ratios]
        ys = [ratio.geometric for _, ratio in ratios]
        axes.plot(xs, ys, marker, color=colour, markersize=1.6, markeredgewidth=0, alpha=0.3)
        bins = by_size(contest, entries)
        middles = [each.centre for each in bins]
        axes.plot(
            middles, [each.geometric for each in bins], marker=marker, color=colour, markersize=4,
            markeredgecolor=PAPER, markeredgewidth=0.5, linewidth=1.2,
        )  # fmt: skip
    axes.grid(axis="y")
    axes.set_xlabel("log2(M N K)")
    axes.set_ylabel("library's time / our time")
    legend(figure, [(f"ours, {contest.layout.value}", *MARKS[contest.layout]) for contest, _ in drawn])
    return figure


def choices(entries: Sequence[Entry]) -> Figure | None:
    """The hyperparameters that were chosen, over the shape (section 6): bubbles as large as their number of shapes.

    With Spearman's rank correlation of each with what it is drawn over. Entries of one accumulation.
    """
    chosen = {
        layout: [(entry.shape, entry.chosen[layout]) for entry in entries if layout in entry.chosen]
        for layout in Layout
    }
    if not any(chosen.values()):
        return None
    figure = blank(4.4, WIDE_IN)
    panels = list(figure.subplots(2, 3).flat)
    for panel, (what, over, x, y) in zip(panels, _panels(), strict=False):
        _bubbles(panel, chosen, x, y)
        panel.set_xlabel(over)
        panel.set_ylabel(what)
    _schedules(panels[-1], chosen)
    legend(figure, [(f"ours, {layout.value}", *MARKS[layout]) for layout in Layout if chosen[layout]])
    return figure


_Chosen = dict[Layout, list[tuple[Shape, Config]]]


def _panels() -> Iterator[tuple[str, str, Callable[[Shape, Config], float], Callable[[Shape, Config], int | None]]]:
    """What is drawn over what; None for a member that has no such thing, or had no choice."""

    def area(shape: Shape, _: Config) -> float:
        return math.log2(shape.m * shape.n)

    def stages(_: Shape, config: Config) -> int | None:
        return None if config.schedule is Schedule.WARPS else config.stages

    def band(shape: Shape, config: Config) -> int | None:
        return config.band if len(model.bands(config, shape)) > 1 else None

    yield "tile M", "log2(M N)", area, lambda _, config: config.tile_m
    yield "tile N", "log2(M N)", area, lambda _, config: config.tile_n
    yield "stages", "log2(K)", lambda shape, _: math.log2(shape.k), stages
    yield "band of tiles", "log2(M N K)", lambda shape, _: math.log2(shape.products), band
    yield (
        "slices of K", "log2(K / tiles)", lambda shape, config: math.log2(shape.k / config.tiles(shape)),
        lambda _, config: config.split,
    )  # fmt: skip


def _bubbles(
    panel: Axes, chosen: _Chosen, x: Callable[[Shape, Config], float], y: Callable[[Shape, Config], int | None]
) -> None:
    found = {
        layout: [(x(shape, config), value) for shape, config in those if (value := y(shape, config)) is not None]
        for layout, those in chosen.items()
    }
    if not any(found.values()):
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_title("no member that was chosen has any", fontsize=7, color=QUIET)
        return
    values = sorted({value for those in found.values() for _, value in those})
    counts = {layout: Counter((round(across), value) for across, value in those) for layout, those in found.items()}
    most = max(count for of in counts.values() for count in of.values())
    said = []
    for layout, of in counts.items():
        colour, marker = MARKS[layout]
        lift = 0.17 if layout is Layout.NN else -0.17
        places = [(across, values.index(value) + lift) for across, value in of]
        if places:
            sizes = [_LARGEST_AREA * count / most for count in of.values()]
            xs, ys = zip(*places, strict=True)
            panel.scatter(xs, ys, s=sizes, color=colour, marker=marker, alpha=0.65, linewidths=0)
            rank = rank_correlation(*zip(*[(across, float(value)) for across, value in found[layout]], strict=True))
            said.append(f"{layout.value} {'–' if rank is None else f'{rank:.2f}'}")
    panel.set_yticks(range(len(values)), [str(value) for value in values])
    panel.set_ylim(-0.7, len(values) - 0.3)
    panel.grid(axis="y")
    panel.set_title(f"rank correlation: {', '.join(said)}", fontsize=7, color=QUIET)


def _schedules(panel: Axes, chosen: _Chosen) -> None:
    def words(config: Config) -> str:
        if config.schedule is Schedule.COOPERATIVE and config.split > 1:
            return "cooperative,\nK in a cluster"
        single = config.cluster_m * config.cluster_n == 1
        return _SCHEDULES[config.schedule] + ("" if single else f"\n{config.cluster_m}x{config.cluster_n} cluster")

    counts = {layout: Counter(words(config) for _, config in those) for layout, those in chosen.items()}
    names = sorted({name for of in counts.values() for name in of}, reverse=True)
    for layout, of in counts.items():
        lift = 0.19 if layout is Layout.NN else -0.19
        heights = [at + lift for at in range(len(names))]
        panel.barh(heights, [of[name] for name in names], 0.36, color=MARKS[layout][0])
        for height, name in zip(heights, names, strict=True):
            if of[name]:
                panel.annotate(
                    str(of[name]), (of[name], height), (2, 0), textcoords="offset points", va="center", fontsize=6
                )
    panel.set_yticks(range(len(names)), names, fontsize=6)
    panel.tick_params(axis="y", length=0)
    panel.margins(x=0.12)
    panel.set_xlabel("shapes")
