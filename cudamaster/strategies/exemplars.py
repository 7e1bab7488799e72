"""Chooses the earlier kernels that a model sees: section 2.4.3 of the CUDA-L1 paper, and its islands (section 4.4).

Kernels are in buckets by score. N distinct buckets are drawn without replacement, with probability proportional to
exp((s_b - mean) / tau), and one kernel uniformly from each; s_b is a bucket's mean score, `mean` that of all s_b.

What the paper leaves open is decided here:
- It cuts scores into intervals and says no width. Here a bucket is a factor wide, not a step: from 2.0 to 2.2 is as
  much of a gain as from 1.0 to 1.1.
- It says no tau.
- With fewer buckets than N, one kernel of each is shown. Two kernels of one bucket never stand side by side: the
  difference between their scores would be noise.

Only `Random.random` is used, because Python promises the same numbers for a seed there, but not for `choice` and
`sample`. So a run that is resumed under a newer Python repeats its draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from cudamaster.agents.contrast import Exemplar

T = TypeVar("T")


@dataclass(frozen=True)
class Selection:
    """N, tau in units of score, and the factor between the lower edges of neighbouring buckets."""

    exemplars: int = 2
    temperature: float = 1.0
    bucket_ratio: float = 1.1


class Pool:
    """The correct kernels of a search, or of one of its islands, in the order of arrival."""

    def __init__(self, members: Sequence[Exemplar] = ()) -> None:
        self.members: tuple[Exemplar, ...] = ()
        for member in members:
            self.add(member)

    def add(self, exemplar: Exemplar) -> bool:
        """Add an exemplar; returns whether it was added. A wrong one, one without a usable score or a copy is not.

        A second copy of a kernel would make it twice as likely to be drawn.
        """
        usable = exemplar.verdict.correct and math.isfinite(exemplar.score) and exemplar.score > 0
        if not usable or any(member.candidate.id == exemplar.candidate.id for member in self.members):
            return False
        self.members += (exemplar,)
        return True

    @property
    def best_score(self) -> float:
        """The highest score in it."""
        return max(member.score for member in self.members)

    def draw(self, selection: Selection, random: Random) -> tuple[Exemplar, ...]:
        """Up to N exemplars of distinct buckets, the slowest first."""
        left = list(buckets(self.members, selection.bucket_ratio).values())
        drawn: list[Exemplar] = []
        while left and len(drawn) < selection.exemplars:
            scores = [_mean([member.score for member in bucket]) for bucket in left]
            bucket = left.pop(_index(probabilities(scores, selection.temperature), random))
            drawn.append(_evenly(bucket, random))
        return tuple(sorted(drawn, key=lambda exemplar: exemplar.score))


class Islands:
    """Pools that grow separately: a round's exemplars come from one island, and its kernel goes back there.

    The paper says that after a fixed number of iterations the inferior half of the islands loses its examples and gets
    copies of those of superior ones. Here islands take turns, are ranked by their best score (among equals the first is
    the better), and each inferior one takes over all that one superior island, drawn evenly, holds. Of an odd number
    of islands the middle one stays. One island is the bucket method itself.
    """

    def __init__(self, baseline: Exemplar, count: int, interval: int) -> None:
        """`count` islands with the baseline alone; exemplars are copied after every `interval` rounds."""
        self.pools = [Pool([baseline]) for _ in range(count)]
        self._interval = interval

    def of_round(self, number: int) -> Pool:
        """The island whose turn it is in a round, counted from 1."""
        return self.pools[(number - 1) % len(self.pools)]

    def end_round(self, number: int, random: Random) -> None:
        """Replace the inferior half by copies, when the round ends an interval."""
        if len(self.pools) == 1 or number % self._interval:
            return
        ranked = sorted(range(len(self.pools)), key=lambda island: -self.pools[island].best_score)
        half = len(ranked) // 2
        superior, inferior = ranked[: len(ranked) - half], ranked[len(ranked) - half :]
        for island in inferior:
            self.pools[island] = Pool(self.pools[_evenly(superior, random)].members)


def buckets(exemplars: Sequence[Exemplar], ratio: float) -> dict[int, list[Exemplar]]:
    """The exemplars by bucket: number i holds scores from ratio**i to below ratio**(i + 1). None is empty."""
    found: dict[int, list[Exemplar]] = {}
    for exemplar in exemplars:
        found.setdefault(math.floor(math.log(exemplar.score) / math.log(ratio)), []).append(exemplar)
    return found


def probabilities(scores: Sequence[float], temperature: float) -> list[float]:
    """Equation 1 of the paper for the scores s_b of the given buckets.

    It subtracts the highest score where the equation subtracts the mean. The distribution is the same, since what is
    subtracted from all exponents cancels, and no exponential can overflow.
    """
    highest = max(scores)
    weights = [math.exp((score - highest) / temperature) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def _index(probabilities: Sequence[float], random: Random) -> int:
    """An index, drawn with the probabilities given."""
    point, reached = random.random(), 0.0
    for index, probability in enumerate(probabilities):
        reached += probability
        if point < reached:
            return index
    return max(range(len(probabilities)), key=probabilities.__getitem__)  # the sum can fall short of 1 by rounding


def _evenly(items: Sequence[T], random: Random) -> T:
    return items[int(random.random() * len(items))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
