"""What a table says over all its shapes: the paper's statistics, and ours beside them.

A shape's speedup is the mean over iterations of t_ref / t - 1, as in the paper (section 2.4, equation 2). Of it the
paper gives mean, median, standard deviation and wins (table 1), the same for whoever takes the faster of ours and the
library (table 2), and the mean by size (figure 3). The mean of ratios exceeds 1 where two equal kernels are noisy, so
the geometric mean stands beside it with an interval over shapes, and how many shapes are decided by their own interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cudamaster.hgemm.table import AUTHORITIES, CONFIDENCE, Entry, Mode, Ratio
from cudamaster.tasks.hgemm import Accumulate, Layout

RESAMPLES = 10_000
SEED = 251202551  # the paper's number: the same table gives the same interval
BIN_OCTAVES = 2  # of M N K, as in the paper's figure 3
_AT_ONCE = 1000  # resamples in memory: of a thousand shapes 8 MB


@dataclass(frozen=True)
class Contest:
    """Ours in one layout beside an authority, in one mode and accumulation."""

    mode: Mode
    accumulate: Accumulate
    layout: Layout
    authority: str

    def ratios(self, entries: Sequence[Entry]) -> list[tuple[Entry, Ratio]]:
        """The entries in which both were measured, with their ratios."""
        mine = [entry for entry in entries if entry.accumulate is self.accumulate]
        found = [(entry, entry.ratio(self.mode, self.authority, self.layout)) for entry in mine]
        return [(entry, ratio) for entry, ratio in found if ratio is not None]


@dataclass(frozen=True)
class Spread:
    """Mean, median and sample standard deviation of speedups t_ref / t - 1 over shapes; NaN for one shape's last."""

    mean: float
    median: float
    deviation: float


@dataclass(frozen=True)
class Statistic:
    """A contest over all its `shapes`.

    `speedup` and `wins` (speedup above 0) are the paper's table 1, `best` its table 2: the faster of ours and the
    authority, so no shape is below 0. `geometric` is the geometric mean of the ratios, `low` to `high` its 95 %
    interval if the shapes were drawn at random from many like them (bootstrap, percentiles). `faster`, `slower` and
    `undecided` count shapes by their own 95 % intervals.
    """

    contest: Contest
    shapes: int
    speedup: Spread
    wins: int
    best: Spread
    geometric: float
    low: float
    high: float
    faster: int
    slower: int
    undecided: int


@dataclass(frozen=True)
class Share:
    """Geometric means of the offline ratio and of the device mode's, over the shapes that have both.

    The device mode's is the gain on the GPU; what the offline
    one has beyond that comes from a shorter way to the launch.
    Each is against the library's faster layout in that mode.
    """

    accumulate: Accumulate
    layout: Layout
    shapes: int
    offline: float
    kernel: float

    @property
    def launch(self) -> float:
        """What is left of the offline ratio without the device mode's."""
        return self.offline / self.kernel


@dataclass(frozen=True)
class Bin:
    """Shapes with low <= log2(M N K) < high; the mean and median ratio, and the geometric mean (paper, figure 3).

    `centre` is the mean log2(M N K) of its shapes.
    """

    low: int
    high: int
    centre: float
    shapes: int
    mean: float
    median: float
    geometric: float
    wins: int


def contests(entries: Sequence[Entry]) -> Iterator[Contest]:
    """All that anything was measured of, in the order of the tables."""
    there = {
        Contest(mode, entry.accumulate, layout, authority)
        for entry in entries
        for mode, of_mode in entry.ratios.items()
        for authority, of_authority in of_mode.items()
        for layout in of_authority
    }
    every = (
        Contest(mode, accumulate, layout, authority)
        for mode in Mode
        for accumulate in Accumulate
        for layout in Layout
        for authority in AUTHORITIES
    )
    return (contest for contest in every if contest in there)


def launch_and_kernel(authority: str, entries: Sequence[Entry]) -> tuple[Share, ...]:
    """What of the gain over an authority is made on the GPU, for each accumulation and layout that has both modes."""
    found = []
    for accumulate in Accumulate:
        for layout in Layout:
            offline, device = (
                {entry.shape: ratio.geometric for entry, ratio in contest.ratios(entries)}
                for contest in (Contest(mode, accumulate, layout, authority) for mode in (Mode.OFFLINE, Mode.DEVICE))
            )
            if shapes := sorted(offline.keys() & device.keys()):
                whole, kernel = (_geometric(np.array([of[shape] for shape in shapes])) for of in (offline, device))
                found.append(Share(accumulate, layout, len(shapes), whole, kernel))
    return tuple(found)


def strongest(entries: Sequence[Entry]) -> str | None:
    """The strongest authority that was measured, the last one of AUTHORITIES; None where none was."""
    there = {contest.authority for contest in contests(entries)}
    return next((authority for authority in reversed(AUTHORITIES) if authority in there), None)


def statistics(entries: Sequence[Entry]) -> tuple[Statistic, ...]:
    """One for each contest that anything was measured of."""
    return tuple(statistic(contest, entries) for contest in contests(entries))


def statistic(contest: Contest, entries: Sequence[Entry]) -> Statistic:
    """A contest over the entries. Raises ValueError where nothing of it was measured."""
    ratios = [ratio for _, ratio in contest.ratios(entries)]
    if not ratios:
        raise ValueError(f"nothing was measured of {contest}")
    speedups = np.array([ratio.mean for ratio in ratios]) - 1
    geometric = np.array([ratio.geometric for ratio in ratios])
    low, high = bootstrap(geometric)
    verdicts = [ratio.verdict for ratio in ratios]
    return Statistic(
        contest=contest,
        shapes=len(ratios),
        speedup=_spread(speedups),
        wins=int((speedups > 0).sum()),
        best=_spread(np.maximum(speedups, 0)),
        geometric=_geometric(geometric),
        low=low,
        high=high,
        faster=verdicts.count(1),
        slower=verdicts.count(-1),
        undecided=verdicts.count(0),
    )


def _spread(speedups: np.ndarray) -> Spread:
    deviation = float(speedups.std(ddof=1)) if len(speedups) > 1 else math.nan
    return Spread(float(speedups.mean()), float(np.median(speedups)), deviation)


def _geometric(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def bootstrap(ratios: np.ndarray) -> tuple[float, float]:
    """The interval at CONFIDENCE of the geometric mean of ratios: percentiles of RESAMPLES draws with a fixed seed.

    0 to infinity for a single ratio, which says nothing about others.
    """
    if len(ratios) < 2:
        return 0.0, math.inf
    drawing = np.random.default_rng(SEED)
    logarithms = np.log(ratios)
    means = np.concatenate(
        [
            logarithms[drawing.integers(len(logarithms), size=(_AT_ONCE, len(logarithms)))].mean(axis=1)
            for _ in range(RESAMPLES // _AT_ONCE)
        ]
    )
    outside = 100 * (1 - CONFIDENCE) / 2
    low, high = np.exp(np.percentile(means, [outside, 100 - outside]))
    return float(low), float(high)


def by_size(contest: Contest, entries: Sequence[Entry]) -> tuple[Bin, ...]:
    """The contest by problem size, in bins that hold shapes, the smallest first."""
    bins: dict[int, list[tuple[float, Ratio]]] = {}
    for entry, ratio in contest.ratios(entries):
        size = math.log2(entry.shape.products)
        bins.setdefault(BIN_OCTAVES * int(size // BIN_OCTAVES), []).append((size, ratio))
    return tuple(_bin(low, *zip(*those, strict=True)) for low, those in sorted(bins.items()))


def _bin(low: int, sizes: tuple[float, ...], ratios: tuple[Ratio, ...]) -> Bin:
    means = [ratio.mean for ratio in ratios]
    return Bin(
        low=low,
        high=low + BIN_OCTAVES,
        centre=float(np.mean(sizes)),
        shapes=len(ratios),
        mean=float(np.mean(means)),
        median=float(np.median(means)),
        geometric=_geometric(np.array([ratio.geometric for ratio in ratios])),
        wins=sum(mean > 1 for mean in means),
    )


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None where one side has a single value."""
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    return float(np.corrcoef(_ranks(xs), _ranks(ys))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, places, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: np.ndarray = (ends - (counts - 1) / 2)[places]
    return means
