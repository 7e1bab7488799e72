"""How good modelled times are against measured ones: ranks, pairs of kernels of one task, spread of the ratio."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cudamaster.modelling.measured import Time

# Pairs whose measured times differ by less say nothing about the order.
APART = 1.2
_NINE_OF_TEN = 0.9


@dataclass(frozen=True)
class Compared:
    """A measured time, and the modelled one of the same call, in microseconds."""

    measured: Time
    modelled_us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """Modelled over measured."""
        return self.modelled_us / self.measured_us


@dataclass(frozen=True)
class Accuracy:
    """Of `times` calls: the correlation of ranks, and quantiles of modelled over measured time by their share.

    `pairs` are of two kernels of one task at one case whose measured times are more than 20 % apart; `ordered` of them
    the model orders correctly, and nine of ten of their ratios are within `ratios_within` of the measured one. None
    if there is nothing to calculate it from.
    """

    times: int
    rank_correlation: float | None
    quantiles: Mapping[float, float]
    times_within: float | None
    pairs: int
    ordered: int
    ratios_within: float | None

    @property
    def ordered_share(self) -> float | None:
        """Share of the pairs that are ordered correctly."""
        return self.ordered / self.pairs if self.pairs else None


@dataclass(frozen=True)
class Pair:
    """Two kernels of one task at one case, the one that measures faster first."""

    faster: Compared
    slower: Compared

    @property
    def measured_ratio(self) -> float:
        """How much faster it is: more than 1."""
        return self.slower.measured_us / self.faster.measured_us

    @property
    def modelled_ratio(self) -> float:
        """The same by the model: below 1 where it orders them wrongly."""
        return self.slower.modelled_us / self.faster.modelled_us

    @property
    def ordered(self) -> bool:
        """Whether the model has the same one faster."""
        return self.modelled_ratio > 1


def pairs(compared: Sequence[Compared]) -> list[Pair]:
    """All pairs that are far enough apart."""
    alike: dict[tuple[str, str, str], list[Compared]] = defaultdict(list)
    for each in compared:
        alike[each.measured.of_task].append(each)
    found = []
    for group in alike.values():
        for one, other in itertools.combinations(sorted(group, key=lambda each: each.measured_us), 2):
            if other.measured_us > APART * one.measured_us:
                found.append(Pair(one, other))
    return found


def accuracy(compared: Sequence[Compared]) -> Accuracy:
    """All figures of a set of calls."""
    ratios = np.array([each.ratio for each in compared])
    paired = pairs(compared)
    off = [abs(np.log(pair.modelled_ratio / pair.measured_ratio)) for pair in paired]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    return Accuracy(
        times=len(compared),
        rank_correlation=rank_correlation(
            [each.modelled_us for each in compared], [each.measured_us for each in compared]
        ),
        quantiles={share: float(np.quantile(ratios, share)) for share in shares} if len(ratios) else {},
        times_within=_within([float(each) for each in np.abs(np.log(ratios))]),
        pairs=len(paired),
        ordered=sum(pair.ordered for pair in paired),
        ratios_within=_within([float(each) for each in off]),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's: Pearson's correlation of the ranks, equal values having the mean of theirs. None below two values."""
    if len(one) < 2:
        return None
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else None


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, place, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(last - (counts - 1) / 2)[place]


def _within(logs: Sequence[float]) -> float | None:
    """The factor that nine of ten are within, from the absolute logarithms of theirs."""
    return float(np.exp(np.quantile(logs, _NINE_OF_TEN))) if len(logs) else None
