"""How many bytes of a launch reach DRAM, from the footprints of its blocks and what L2 holds already.

Blocks that are in flight together, a wave, read what they share once. Over the waves, what a wave reads is there still
if what all buffers were asked for since then fits in L2; to the degree that it does not, it is read anew. What a launch
left in L2 the next one finds. Left out: sets and replacement, sectors that are fetched for a neighbour.

Blocks that gather from one stretch of memory find part of it in the L1 of their SM, where others have brought it. The
counts know of each block with its share of an L1 alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cudamaster.modelling.constants import Constants, shipped
from cudamaster.modelling.counts import Footprint, Traffic

SECTOR_BYTES = 32
_HALVINGS = 40  # of the logarithm of a stretch, until its length is as exact as numbers are
_LONGEST = 1e4  # of stretches, over what several blocks touch


@dataclass(frozen=True)
class Moved:
    """Bytes of a launch: through L2 from and to the SMs, and of these from and to DRAM."""

    l2_read: float
    l2_written: float
    dram_read: float
    dram_written: float
    missed_sectors: float = 0.0  # of loads, in L1
    bulk_read: float = 0.0  # of those through L2, what copies in bulk read

    @property
    def missed_share(self) -> float:
        """Part of what the SMs read from L2 that comes from DRAM, 0 to 1."""
        return min(1.0, self.dram_read / self.l2_read) if self.l2_read > 0 else 0.0


@dataclass(frozen=True)
class L1s:
    """The L1 caches of a GPU: how many, and the bytes of one that a launch's shared memory leaves."""

    sms: int
    capacity: float


@dataclass
class L2:
    """What L2 holds of which buffer, in bytes, the least recently used first. Empty at the beginning of a call."""

    capacity: float
    held: dict[int, float] = field(default_factory=dict)

    def holds(self, buffer: int) -> float:
        """Bytes of a buffer."""
        return self.held.get(buffer, 0.0)

    def touch(self, buffer: int, touched: float) -> None:
        """Bytes of a buffer were read or written; the oldest go."""
        self.held[buffer] = min(self.capacity, max(touched, self.held.pop(buffer, 0.0)))
        excess = sum(self.held.values()) - self.capacity
        for name in list(self.held):
            if excess <= 0:
                return
            gone = min(excess, self.held[name])
            self.held[name] -= gone
            excess -= gone


def moved(
    traffic: Sequence[Traffic],
    blocks: int,
    in_flight: int,
    l2: L2,
    l1s: L1s | None = None,
    constants: Constants | None = None,
) -> Moved:
    """Bytes that a launch of `blocks` moves, `in_flight` of them at a time; L2 is left as the launch leaves it.

    Without `l1s`, no block finds in L1 what another one has asked for, but for what the counts know of that. The
    constants are those that ship unless others are given.
    """
    constants = shipped().constants if constants is None else constants
    gathers = {each.buffer: _gather(each, blocks, constants) for each in traffic}
    missed = {
        each.buffer: each.missed_sectors * (1 - _found_in_l1(gathers[each.buffer], each, l1s, constants))
        for each in traffic
    }
    waves = max(1.0, blocks / in_flight)
    sizes = {each.buffer: _touched(each, blocks, _both) for each in traffic}
    waves_of = {each.buffer: _wave(each, min(in_flight, blocks), gathers[each.buffer]) for each in traffic}
    of_wave = {
        each.buffer: _touched(each, min(in_flight, blocks), _both)
        if gathers[each.buffer] is None
        else waves_of[each.buffer]
        for each in traffic
    }
    read = written = evicted = 0.0
    for each in traffic:
        once = _touched(each, blocks, _read)
        missing = max(0.0, 1.0 - l2.holds(each.buffer) / max(sizes[each.buffer], 1.0))
        wave = waves_of[each.buffer]
        # Until the buffer's turn comes again, so many waves go by, and all buffers go on in the meantime. Where waves
        # go through it once, what two of them share are the edges of neighbours.
        cycle = max(1.0, once / wave) if wave > 0 else 1.0
        cycle = cycle if waves >= constants.sweeps * cycle else 1.0
        between = sum(min(sizes[buffer], cycle * touched) for buffer, touched in of_wave.items())
        again = _gone(between, l2.capacity, constants)
        asked = (missed[each.buffer] + each.bulk_read_sectors) * SECTOR_BYTES
        read += min(asked, once * missing + max(0.0, waves * wave - once) * again)
        # What is written anew in a later wave has been in DRAM meanwhile, to the same degree.
        stored, of_one = (_touched(each, n, _written) for n in (blocks, min(in_flight, blocks)))
        written += stored
        evicted += max(0.0, waves * of_one - stored) * again
    for each in traffic:
        l2.touch(each.buffer, sizes[each.buffer])
    return Moved(
        l2_read=sum(missed[each.buffer] + each.bulk_read_sectors for each in traffic) * SECTOR_BYTES,
        l2_written=sum(each.store_sectors + each.bulk_written_sectors for each in traffic) * SECTOR_BYTES,
        dram_read=read,
        # Some of it need not have been written when the launch is over.
        dram_written=max(0.0, written + evicted - constants.left_in_l2 * l2.capacity),
        missed_sectors=sum(missed.values()),
        bulk_read=sum(each.bulk_read_sectors for each in traffic) * SECTOR_BYTES,
    )


def _gone(between: float, capacity: float, constants: Constants) -> float:
    """Part of what was touched that L2 no longer holds after so many bytes of others."""
    return min(1.0, max(0.0, (between / capacity - 1) / constants.fading))


@dataclass(frozen=True)
class _Gather:
    """Blocks that touch places of their own of a stretch of memory, at random: so many sectors `one` of them, of the
    stretch's, and so many blocks before the next stretch comes. If they have nothing in common, it has no end."""

    one: float
    stretch: float
    blocks: float

    def touched(self, blocks: float) -> float:
        """Distinct sectors that so many neighbouring blocks touch."""
        if self.stretch == math.inf:
            return blocks * self.one
        together = min(blocks, self.blocks)
        of_stretch = self.stretch * (1 - (1 - self.one / self.stretch) ** together)
        return float(of_stretch * max(1.0, blocks / self.blocks))


def _gather(traffic: Traffic, blocks: int, constants: Constants) -> _Gather | None:
    """How blocks gather from a buffer, if they do: neighbours touch something of their own.

    How long the stretch is follows from what one and several of them touch, and how many blocks gather from it from the
    stretches that there are.
    """
    points = sorted({each.blocks: each.read for each in traffic.footprints if each.read > 0}.items())
    if len(points) < 2 or points[0][0] != 1:
        return None
    (_, one), (together, several) = points[:2]
    if traffic.load_sectors / blocks > constants.gathered_again * one or not one < several <= together * one:
        return None
    if several == together * one:
        return _Gather(one, math.inf, blocks)
    low, high = several, _LONGEST * several
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        touched = middle * (1 - (1 - one / middle) ** together)
        low, high = (middle, high) if touched < several else (low, middle)
    stretches = max(1.0, _touched(traffic, blocks, _read) / SECTOR_BYTES / low)
    return _Gather(one, low, blocks / stretches)


def _found_in_l1(gather: _Gather | None, traffic: Traffic, l1s: L1s | None, constants: Constants) -> float:
    """Part of the loads that a block with an L1 to itself misses, and finds there as others of its SM asked for it."""
    if l1s is None or gather is None or gather.blocks <= l1s.sms:
        return 0.0
    of_sm = gather.blocks / l1s.sms
    fresh = gather.touched(of_sm) / (of_sm * gather.one)
    # With others or without, no more of its loads hit than L1 holds of the stretch.
    hits = constants.kept_in_l1 * min(1.0, l1s.capacity / (gather.stretch * SECTOR_BYTES))
    own = traffic.missed_sectors / traffic.load_sectors if traffic.load_sectors > 0 else 0.0
    kept = max(0.0, 1 - (1 - hits) / own) if own > 0 else 0.0
    return min(1 - fresh, kept)


def _wave(traffic: Traffic, blocks: int, gather: _Gather | None) -> float:
    """Bytes that so many blocks read together."""
    found = _touched(traffic, blocks, _read)
    return found if gather is None else min(found, SECTOR_BYTES * gather.touched(blocks))


def _read(footprint: Footprint) -> float:
    return footprint.read


def _written(footprint: Footprint) -> float:
    return footprint.written


def _both(footprint: Footprint) -> float:
    """A sum counts twice what is both; no buffer is touched beyond its size."""
    return footprint.read + footprint.written


def _touched(traffic: Traffic, blocks: int, which: Callable[[Footprint], float]) -> float:
    """Distinct bytes of a buffer that so many neighbouring blocks touch: a power law through the footprints known."""
    points = sorted({each.blocks: sectors for each in traffic.footprints if (sectors := which(each)) > 0}.items())
    if not points:
        return 0.0
    if len(points) == 1:
        (n, sectors) = points[0]
        found = sectors * blocks / n
    else:
        right = next((k for k, (n, _) in enumerate(points) if n >= blocks), len(points) - 1)
        (n0, s0), (n1, s1) = points[max(0, right - 1)], points[max(1, right)]
        power = min(1.0, max(0.0, math.log(s1 / s0) / math.log(n1 / n0)))
        found = s1 * (blocks / n1) ** power
    return min(found * SECTOR_BYTES, float(traffic.bytes))
