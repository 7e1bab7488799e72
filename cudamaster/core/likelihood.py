"""How sure a modelled speedup is: an interval, and the chance that it is one. Numbers in, values out.

A model has no noise that averages out. What it gets wrong of two kernels of one task is much the same in both, so the
error of their ratio depends on what differs between them. `Makeup` says what a call is made of, `Errors` how far ratios
were off on a GPU that measured them (benchmarks/gpu_model_intervals.py, docs/gpu_model.md):

    d = part of the longer call's time that differs
    reach = floor + of_difference x d / (1 + d / half) + of_means where one uses other means + more of some of these

The measured ratio was within exp(reach) of the modelled one for nine of ten pairs. One rule says what is likely: a
kernel is FASTER if the chance that a GPU would find it faster is at least LIKELY, SLOWER if it is at most 1 - LIKELY.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cudamaster.core.speed import Change, Comparison, Interval

LEVEL = 0.9  # how many of the intervals hold what a GPU measures
_MOST_REACH = 700.0  # beyond it exp overflows
LIKELY = 0.9  # the chance from which on a kernel counts as faster


def in_percent(chance: float) -> str:
    """A chance for people, rounded towards 50 %: 89.8 % does not read as the 90 % that it lacks."""
    exact = round(100 * chance, 9)
    return f"{math.floor(exact) if chance >= 0.5 else math.ceil(exact)}%"


@dataclass(frozen=True)
class Makeup:
    """What a modelled call is made of: the microseconds that go to each part, which add up to the call's time, and what
    it uses that not every kernel does (tensor cores, atomics, several launches)."""

    parts_us: Mapping[str, float]
    means: tuple[str, ...] = ()

    @property
    def whole_us(self) -> float:
        """The call's time."""
        return math.fsum(self.parts_us.values())


@dataclass(frozen=True)
class Errors:
    """How far modelled ratios of two kernels of one task are off, as logarithms: see the head of this file.

    `reaches` are the errors within which `shares` of the pairs are, as multiples of the reach of nine of ten.
    `known_means` are those of the kernels that this was fitted on; the reach is `unlike` times as long for others.
    `more` is what the reach is longer where one of the two uses a means and the other does not, the most of all such.
    `half` is the part that differs at which the middle term is half of what it would be without the bend.
    `assumed_of` is the GPU that was measured, where the figures of the modelled one were not held against any times.
    """

    floor: float
    of_difference: float
    of_means: float
    shares: tuple[float, ...]
    reaches: tuple[float, ...]
    known_means: tuple[str, ...] = ()
    unlike: float = 1.0
    assumed_of: str = ""
    half: float = math.inf
    more: Mapping[str, float] = field(default_factory=dict)

    def reach(self, first: Makeup, second: Makeup) -> float:
        """How far the logarithm of the ratio of two calls' times may be off, in nine of ten."""
        names = {*first.parts_us, *second.parts_us}
        apart = math.fsum(abs(first.parts_us.get(name, 0.0) - second.parts_us.get(name, 0.0)) for name in names)
        longer = max(first.whole_us, second.whole_us)
        means, part = {*first.means} ^ {*second.means}, apart / longer if longer > 0 else 0.0
        found = self.floor + self.of_difference * part / (1 + part / self.half) + self.of_means * bool(means)
        found += max((self.more.get(name, 0.0) for name in means), default=0.0)
        new = {*first.means, *second.means} - {*self.known_means}
        return found * (self.unlike if new else 1.0)

    def chance(self, speedup: float, reach: float) -> float:
        """The chance that a GPU measures more than 1 where the model says `speedup`; one half of what is no number."""
        if not (0 < speedup < math.inf and 0 <= reach < _MOST_REACH):  # a record may be damaged
            return 0.5
        if reach == 0:
            return 0.5 if speedup == 1 else float(speedup > 1)
        within = _share_within(abs(math.log(speedup)) / reach, self.shares, self.reaches)
        return 0.5 + math.copysign(within / 2, math.log(speedup))

    def speed(self, speedup: float, reach: float) -> Comparison:
        """A modelled speedup with its interval, and whether it is likely to be one."""
        chance = self.chance(speedup, reach)
        interval = Interval(0.0, math.inf)
        if 0 < speedup < math.inf and 0 <= reach < _MOST_REACH:
            interval = Interval(speedup * math.exp(-reach), speedup * math.exp(reach))
        change = Change.FASTER if chance >= LIKELY else Change.SLOWER if chance <= 1 - LIKELY else Change.UNSURE
        return Comparison(speedup, interval, speedup, interval, change, chance)


def _share_within(multiple: float, shares: Sequence[float], reaches: Sequence[float]) -> float:
    """Which share of the errors is at most `multiple` reaches: linear between those known, never all of them."""
    below, start = 0.0, 0.0
    for share, reach in zip(shares, reaches, strict=False):  # a record may be damaged
        if multiple < reach:
            return below + (share - below) * (multiple - start) / (reach - start)
        below, start = share, reach
    return below
