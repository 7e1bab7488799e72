"""Thresholds of the profile filter from data: Otsu's method on the throughputs of all baselines (paper, appendix A.2).

Every baseline gives one point: its dominating kernel at the heaviest timed case. The data are kept as CSV, a line as
soon as it is measured, so that none is lost; thresholds and plots can be made from them again anywhere.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Bottleneck, Profile
from cudamaster.core.writing import whole, write_text
from cudamaster.profiling.filter import classify
from cudamaster.profiling.thresholds import Cutoffs, Thresholds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = ("compute", "dram", "memory")
_FEWEST = 10  # kernels, below which a histogram says nothing
_BINS = 256
_WRITTEN = "Give a file that `cudamaster calibrate` wrote."


@dataclass(frozen=True)
class Point:
    """Throughputs of one baseline's dominating kernel, in percent of peak; what the chip does not give is None."""

    task: str
    precision: str
    candidate: str  # id of the baseline
    case: str
    kernel: str
    time_us: float  # of that kernel in a call
    share: float  # of the time of all kernels of the call
    compute: float | None
    dram: float | None
    memory: float | None

    @property
    def name(self) -> str:
        """Task and precision."""
        return f"{self.task}-{self.precision}"


_COLUMNS = tuple(field.name for field in dataclasses.fields(Point))


def point(task: str, precision: str, profile: Profile, thresholds: Thresholds) -> Point:
    """The dominating kernel of a profile. ValueError for a profile without kernels."""
    main = max(profile.kernels, key=lambda kernel: kernel.duration_us)
    total_us = sum(kernel.duration_us for kernel in profile.kernels)
    throughput = {axis: main.metrics.get(name) for axis, name in thresholds.throughputs.items()}
    return Point(
        task, precision, profile.candidate, profile.case, main.kernel,
        main.duration_us, main.duration_us / total_us, **throughput,
    )  # fmt: skip


def otsu(values: Iterable[float]) -> float:
    """The threshold between low and high values by Otsu's method.

    Any threshold between the largest low and the smallest high value separates alike; theirs is the middle. Raises
    ValueError for values that are all the same.
    """
    from skimage.filters import threshold_otsu  # takes a second

    data = np.sort(np.fromiter(values, dtype=float))
    if data.size == 0 or data[0] == data[-1]:
        raise ValueError("values that are all the same have no low and high ones")
    half_a_bin = (data[-1] - data[0]) / _BINS / 2
    threshold: float = threshold_otsu(data, nbins=_BINS)  # type: ignore[no-untyped-call]
    low = data <= threshold + half_a_bin
    return float((data[low][-1] + data[~low][0]) / 2)


def limits(points: Sequence[Point]) -> Cutoffs:
    """Otsu's threshold of each axis, to a tenth of a percent. Raises UsageError for too few points."""
    found = {}
    for axis in AXES:
        values = [value for one in points if (value := getattr(one, axis)) is not None]
        if len(values) < _FEWEST or len(set(values)) < 2:
            raise UsageError(
                f"{len(values)} kernels have a {axis} throughput, which is too little for a threshold.",
                f"Profile at least {_FEWEST} different baselines; without arguments all of them are.",
            )
        found[axis] = round(otsu(values), 1)
        if found[axis] > 100:  # counters of several passes may add up to a little more than all
            raise UsageError(f"The {axis} throughputs are no percentages: they divide at {found[axis]:g} %.", _WRITTEN)
    return Cutoffs(**found)


def classes(points: Sequence[Point], thresholds: Thresholds) -> Mapping[str, Bottleneck | None]:
    """Class of every point by its name."""
    found = {}
    for one in points:
        values = {name: getattr(one, axis) for axis, name in thresholds.throughputs.items()}
        metrics = {name: value for name, value in values.items() if value is not None}
        found[one.name] = classify(metrics, thresholds)
    return found


def moves(
    before: Mapping[str, Bottleneck | None], after: Mapping[str, Bottleneck | None]
) -> Counter[tuple[Bottleneck | None, Bottleneck | None]]:
    """How many kernels go from one class to another, those that stay left out."""
    return Counter((old, after[name]) for name, old in before.items() if after[name] is not old)


def write(place: Path, gpu: str, found: Cutoffs, about: Mapping[str, object], data: Path) -> None:
    """Write the limits as a file that `thresholds.calibrated` reads, with what they were measured on."""
    content = {"gpu": gpu, **about, "data": data.name, "thresholds": found.model_dump()}
    head = "# Thresholds of the profile filter by Otsu's method, from `cudamaster calibrate`.\n"
    write_text(place, head + yaml.safe_dump(content, sort_keys=False))


class Table:
    """The points of a GPU as a CSV file, a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Point]:
        """All points; of several with one name the last counts. Empty without a file. Raises UsageError."""
        if not self.path.exists():
            return []
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path} cannot be read: {error}.", _WRITTEN) from error
        found: dict[str, Point] = {}
        if not (whole := _whole_lines(text)):
            return []
        reader = csv.DictReader(io.StringIO(whole))
        try:
            if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
                raise UsageError(f"{self.path} has no column {missing[0]}.", _WRITTEN)
            for row in reader:
                one = _point(row)
                found[one.name] = one
        except (csv.Error, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.path}, line {reader.reader.line_num}, is no point of a calibration: {error}.", _WRITTEN
            ) from error
        return list(found.values())

    def add(self, one: Point) -> None:
        """Append a point; it is on disk when this returns. What a kill cut short before it is removed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+", encoding="utf-8", newline="") as file:
            file.seek(0)
            whole = _whole_lines(file.read())
            file.truncate(len(whole.encode()))
            writer = csv.writer(file, lineterminator="\n")
            if not whole:
                writer.writerow(_COLUMNS)
            writer.writerow(_cell(value) for value in dataclasses.astuple(one))


def _whole_lines(text: str) -> str:
    """Without a last line that has no end: a figure that was cut in two looks like another one."""
    return text[: text.rfind("\n") + 1]


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _point(row: Mapping[str, str]) -> Point:
    def figure(name: str) -> float:
        value = float(row[name])
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {row[name]}")
        return value

    def throughput(axis: str) -> float | None:
        return figure(axis) if row[axis] else None

    return Point(
        task=row["task"],
        precision=row["precision"],
        candidate=row["candidate"],
        case=row["case"],
        kernel=row["kernel"],
        time_us=figure("time_us"),
        share=figure("share"),
        compute=throughput("compute"),
        dram=throughput("dram"),
        memory=throughput("memory"),
    )


def draw(points: Sequence[Point], found: Cutoffs, default: Cutoffs, title: str, path: Path) -> None:
    """Draw the paper's figure 6: the three throughputs of every kernel, with both thresholds; the suffix says how."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    names = {"compute": "Compute (SM) throughput", "dram": "DRAM throughput", "memory": "Memory throughput"}
    for axis, panel in zip(AXES, panels, strict=True):
        _panel(panel, points, axis, getattr(found, axis), getattr(default, axis))
        panel.set_title(names[axis])
    panels[0].set_ylabel("% of peak")
    figure.suptitle(title)
    # The same data give the same file; texts stay texts.
    with matplotlib.rc_context({"svg.hashsalt": "cudamaster", "svg.fonttype": "none"}), whole(path) as staged:
        figure.savefig(staged, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(panel: Axes, points: Sequence[Point], axis: str, found: float, default: float) -> None:
    colours = {"fp32": "#1f6fb4", "bf16": "#d9731a"}
    # In order of size, so that the two groups that the line divides can be seen.
    ordered = sorted((value, one.precision) for one in points if (value := getattr(one, axis)) is not None)
    for precision, colour in colours.items():
        places = [(i, value) for i, (value, kind) in enumerate(ordered) if kind == precision]
        panel.scatter([i for i, _ in places], [value for _, value in places], s=12, color=colour, label=precision)
    panel.axhline(found, color="#b22222", label=f"Otsu {found:.1f} %")
    panel.axhline(default, color="#777777", linestyle="--", label=f"default {default:g} %")
    panel.set_ylim(0, 100)
    panel.set_xlabel("kernels, by throughput")
    panel.legend(loc="upper left", fontsize=8)
