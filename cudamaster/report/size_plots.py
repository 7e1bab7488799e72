"""Speedup over size as plots so small that a page can hold hundreds: coordinates alone, which a template draws.

The plotting library takes a tenth of a second and ten kilobytes for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudamaster.core.values import Precision
from cudamaster.report.data import CaseResult, TaskResult

FEWEST_TICKS = 3  # of an axis that shows how far apart two heights are
_OUTERMOST = 0.02  # of all speedups, on either side


@dataclass(frozen=True)
class Reach:
    """Speedups from `low` to `high` that an axis shows; 1 is among them."""

    low: float
    high: float

    def part(self, speedup: float) -> float:
        """How far up a speedup lies on a logarithmic axis: 0 at `low`, 1 at `high`."""
        inside = min(self.high, max(self.low, speedup))
        return math.log(inside / self.low) / math.log(self.high / self.low)

    def leaves_out(self, result: TaskResult) -> bool:
        """Whether a speedup lies beyond, and is drawn at the edge."""
        return any(not self.low <= speedup <= self.high for speedup in _speedups([result]))


@dataclass(frozen=True)
class Dot:
    """One size: where it is, how far up its interval reaches, and what it says."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True)
class Line:
    """The sizes of one run."""

    precision: Precision
    dots: tuple[Dot, ...]

    @property
    def points(self) -> str:
        """Of an SVG polyline."""
        return " ".join(f"{dot.x:.0f},{dot.y:.0f}" for dot in self.dots)


@dataclass(frozen=True)
class Plot:
    """A plot in units of an SVG: `one` is the height of speedup 1, `ticks` are heights with what stands there."""

    width: int
    height: int
    one: float
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    first: str
    last: str


def reach(result: TaskResult) -> Reach:
    """From the least to the largest speedup, 1 in between and room for a factor of 2 at least."""
    seen = _speedups([result])
    return Reach(min([2**-0.5, *seen]) * 0.95, max([2**0.5, *seen]) * 1.05)


def common_reach(results: Iterable[TaskResult]) -> Reach:
    """For many tasks beside each other: without the outermost speedups, for which all others would be flat lines."""
    seen = sorted(_speedups(results))
    spare = int(_OUTERMOST * len(seen))
    inner = seen[spare : len(seen) - spare]
    return Reach(min([2**-0.5, *inner]) * 0.95, max([2**0.5, *inner]) * 1.05)


def _speedups(results: Iterable[TaskResult]) -> list[float]:
    return [case.speedup for result in results for case in _timed(result) if case.speedup is not None]


def small(results: Sequence[TaskResult], shown: Reach) -> Plot | None:
    """Runs of a task beside each other, without words; None where nothing was timed."""
    return _plot(results, shown, 120, 48, left=3, right=3, top=3, bottom=3, ticks=False)


def large(result: TaskResult) -> Plot | None:
    """One run, with intervals and a scale of its own."""
    return _plot([result], reach(result), 340, 150, left=34, right=10, top=8, bottom=20, ticks=True)


def _timed(result: TaskResult) -> list[CaseResult]:
    known = [case for case in result.cases if case.speedup is not None and 0 < case.speedup < math.inf]
    return sorted(known, key=lambda case: case.weight)


def _plot(
    results: Sequence[TaskResult],
    shown: Reach,
    width: int,
    height: int,
    *,
    left: int,
    right: int,
    top: int,
    bottom: int,
    ticks: bool,
) -> Plot | None:
    drawn = [(result, timed) for result in results if (timed := _timed(result))]
    if not drawn:
        return None
    # A weight of 0 has no logarithm; it stands with the least one.
    weights = [case.weight for _, timed in drawn for case in timed if case.weight > 0] or [1.0]
    least, most = min(weights), max(weights)

    def x(case: CaseResult) -> float:
        part = math.log(max(case.weight, least) / least) / math.log(most / least) if most > least else 0.5
        return left + part * (width - left - right)

    def y(speedup: float) -> float:
        return height - bottom - shown.part(speedup) * (height - top - bottom)

    def dot(case: CaseResult) -> Dot:
        assert case.speedup is not None
        known = case.interval is not None and case.interval.low > 0 and math.isfinite(case.interval.high)
        label = f"{case.label}: {case.speedup:.2f}"
        if case.interval is None or not known:
            return Dot(x(case), y(case.speedup), None, None, label)
        label += f" ({case.interval.low:.2f} to {case.interval.high:.2f})"
        return Dot(x(case), y(case.speedup), y(case.interval.low), y(case.interval.high), label)

    lines = tuple(Line(result.precision, tuple(dot(case) for case in timed)) for result, timed in drawn)
    _, heaviest = drawn[0]
    marks = tuple((y(value), text) for value, text in tick_marks(shown)) if ticks else ()
    return Plot(width, height, y(1.0), lines, marks, heaviest[0].label, heaviest[-1].label)


def tick_marks(shown: Reach) -> list[tuple[float, str]]:
    """Powers of two, of four or of more, at most six of them; finer ones where there would be one or two."""
    octaves = math.log2(shown.high / shown.low)
    step = max(1, math.ceil(octaves / 5))
    powers = range(math.floor(math.log2(shown.low)), math.ceil(math.log2(shown.high)) + 1)
    inside = [power for power in powers if power % step == 0 and shown.low <= 2.0**power <= shown.high]
    if len(inside) < FEWEST_TICKS:
        return [(tick, f"{tick:g}") for tick in fine_ticks(shown.low, shown.high)]
    return [(2.0**power, f"{2**power:g}" if power >= 0 else f"1/{2**-power:g}") for power in inside]


def fine_ticks(low: float, high: float) -> list[float]:
    """Three ticks or more where powers of two are too far apart: half as far, or else at even steps. 1 is one."""
    halves = [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0]
    even = [[step * place for place in range(1, round(4 / step))] for step in (0.2, 0.1, 0.05, 0.02, 0.01)]
    found = [[round(tick, 2) for tick in ticks if low <= tick <= high] for ticks in (halves, *even)]
    return next((ticks for ticks in found if len(ticks) >= FEWEST_TICKS), [1.0])
