"""How figures look: colours, sizes, axes, legends. On paper as in a page.

Colours are near those of Okabe and Ito, which people distinguish however they see colour; whatever has a colour has a
marker, a line style or a name of its own too. A figure is as wide as a column of a paper, which is as wide as a phone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudamaster.core.values import Bottleneck, Precision
from cudamaster.report.size_plots import FEWEST_TICKS, fine_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 3.5  # inches
INK, QUIET, LINE, PAPER = "#1c2128", "#59626e", "#c9ced6", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072b2", "#c35500", "#008563", "#b05c8e", "#b67d00", "#3f95cc"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
PRECISIONS = {Precision.FP32: (BLUE, "o"), Precision.BF16: (ORANGE, "s"), Precision.FP16: (GREEN, "^")}
CLASSES = {Bottleneck.COMPUTE: (ORANGE, "s"), Bottleneck.LATENCY: (BLUE, "o"), Bottleneck.BANDWIDTH: (GREEN, "^")}
SHORT = {Bottleneck.COMPUTE: "compute", Bottleneck.LATENCY: "latency", Bottleneck.BANDWIDTH: "bandwidth"}

Mark = tuple[str, str, str]  # name, colour, marker


@contextmanager
def style() -> Iterator[None]:
    """The settings under which figures are made and saved. The same data give the same files; texts stay texts."""
    import matplotlib

    settings = matplotlib.rc_context(
        {
            "font.family": "sans-serif", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7,
            "xtick.labelsize": 7, "ytick.labelsize": 7, "text.color": INK, "axes.labelcolor": INK,
            "axes.edgecolor": QUIET, "xtick.color": QUIET, "ytick.color": QUIET, "xtick.labelcolor": INK,
            "ytick.labelcolor": INK, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
            "grid.color": LINE, "grid.linewidth": 0.5, "axes.axisbelow": True, "legend.frameon": False,
            "legend.labelcolor": INK, "legend.handletextpad": 0.5, "legend.handlelength": 1.4,
            "legend.columnspacing": 1.0, "lines.linewidth": 1.4, "lines.markersize": 4, "svg.hashsalt": "cudamaster",
            "svg.fonttype": "none", "pdf.fonttype": 42,
            # A dollar sign in a name is a dollar sign.
            "text.parse_math": False,
        }
    )  # fmt: skip
    with settings, warnings.catch_warnings():
        # On paper, a name in a script that the font lacks shows as boxes; an SVG's reader has other fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def blank(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def label(text: str, longest: int = 40) -> str:
    """A name as a figure can show it: on one line, without what no font draws, not too long."""
    plain = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def logarithmic(axes: Axes, side: str, values: Iterable[float]) -> None:
    """A logarithmic axis over values with 1 on it. Ticks are powers of two, of more or of less, as there is room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    seen = [1.0, *(value for value in values if 0 < value < math.inf)]
    low, high = min(seen), max(seen)
    octaves = math.log2(high / low)
    base = 2.0 if octaves < 7 else 4.0 if octaves < 14 else 10.0
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    room = (high / low) ** 0.04 * 1.03
    if side == "x":
        axes.set(xscale="log", xlim=(low / room, high * room))
    else:
        axes.set(yscale="log", ylim=(low / room, high * room))
    axis = axes.xaxis if side == "x" else axes.yaxis
    ticks = [base**power for power in range(first, last + 1) if low / room <= base**power <= high * room]
    fine = len(ticks) < FEWEST_TICKS
    axis.set_major_locator(FixedLocator(fine_ticks(low / room, high * room) if fine else ticks))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if fine or value >= 1 else f"1/{1 / value:g}"))


def without_ticks(axes: Axes) -> None:
    """A logarithmic x axis that shows order and distance alone."""
    from matplotlib.ticker import FixedLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([]))
    axes.xaxis.set_minor_locator(FixedLocator([]))


def legend(figure: Figure, marks: Sequence[Mark], *, hollow: str | None = None, full: str | None = None) -> None:
    """A legend above the figure; it also says what hollow and full markers are."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, marker=marker, linestyle="", label=name) for name, colour, marker in marks]
    for name, face in ((hollow, PAPER), (full, QUIET)):
        if name is not None:
            handles.append(Line2D([], [], color=QUIET, marker="o", markerfacecolor=face, linestyle="", label=name))
    figure.legend(handles=handles, loc="outside upper center", ncols=5)
