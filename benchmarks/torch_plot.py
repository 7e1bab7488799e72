"""Times over a size, from what benchmarks/torch_operators.py saved: a panel for each task, precision and other size."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter

from cudamaster.report import drawing

WIDTH_IN = 3.4  # of a panel
HEIGHT_IN = 2.1


def times(case: dict[str, Any], kind: str) -> float | None:
    """The shortest time on the device of the contenders of a kind, in µs."""
    timed = (one for one in case["contenders"].values() if one["kind"] == kind and "device_us" in one)
    return min((one["device_us"]["median"] for one in timed), default=None)


def plot(saved: Path, figure_file: Path, size: str = "N") -> None:
    """Draw times of ours, of the library and of PyTorch's fastest operator over `size`.

    Cases that differ in another size have panels of their own. Ends with a message if a case has no such size.
    """
    panels: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for case in json.loads(saved.read_text("utf-8"))["cases"]:
        sizes = dict(part.split("=") for part in case["case"].split(","))
        if size not in sizes:
            raise SystemExit(f"{saved}: {case['task']} has no size {size}. Time tasks that have one: sorting, fft.")
        title = ", ".join([case["task"], case["precision"], *(f"{k}={v}" for k, v in sizes.items() if k != size)])
        panels.setdefault(title, []).append((float(sizes[size]), case))
    marks = [(name, drawing.SERIES[i], drawing.MARKERS[i]) for i, name in enumerate(("ours", "library", "PyTorch"))]
    rows = (len(panels) + 1) // 2
    with drawing.style():
        figure = drawing.blank(HEIGHT_IN * rows + 0.4, 2 * WIDTH_IN)
        for place, (title, cases) in enumerate(panels.items()):
            axes = figure.add_subplot(rows, 2, place + 1)
            for (_, colour, marker), kind in zip(marks, ("ours", "library", "torch"), strict=True):
                points = [(at, us) for at, case in sorted(cases, key=lambda one: one[0]) if (us := times(case, kind))]
                axes.plot([at for at, _ in points], [us for _, us in points], color=colour, marker=marker, markersize=3)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(FixedLocator([4.0**power for power in range(16)]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"2^{math.log2(value):.0f}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set(title=title, xlabel=size, ylabel="µs on the device")
            axes.grid(visible=True, which="major")
        drawing.legend(figure, marks)
        figure.savefig(figure_file)
