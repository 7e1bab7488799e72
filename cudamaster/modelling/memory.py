"""How many bytes of a launch reach DRAM, from the footprints of its blocks and what L2 holds already.

Blocks that are in flight together, a wave, read what they share once. Over the waves, what a wave reads is there still
if what all buffers were asked for since then fits in L2; to the degree that it does not, it is read anew. What a launch
left in L2 the next one finds. Left out: sets and replacement, sectors that are fetched for a neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cudamaster.modelling.counts import Footprint, Traffic

SECTOR_BYTES = 32
# Part of L2 that holds what is written but not yet in DRAM when a launch ends: dram__bytes_write of 24 launches on an
# H200 that write 27 MB and more, 0.17 to 0.40; slow ones, which write less than 100 GB/s, leave nothing.
_LEFT_IN_L2 = 0.3


@dataclass(frozen=True)
class Moved:
    """Bytes of a launch: through L2 from and to the SMs, and of these from and to DRAM."""

    l2_read: float
    l2_written: float
    dram_read: float
    dram_written: float
    written_once: float = 0.0  # what is left of those written if each sector counts once

    @property
    def missed_share(self) -> float:
        """Part of what the SMs read from L2 that comes from DRAM, 0 to 1."""
        return min(1.0, self.dram_read / self.l2_read) if self.l2_read > 0 else 0.0


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


def moved(traffic: Sequence[Traffic], blocks: int, in_flight: int, l2: L2) -> Moved:
    """Bytes that a launch of `blocks` moves, `in_flight` of them at a time; L2 is left as the launch leaves it."""
    waves = max(1.0, blocks / in_flight)
    sizes = {each.buffer: _touched(each, blocks, _both) for each in traffic}
    of_wave = {each.buffer: _touched(each, min(in_flight, blocks), _both) for each in traffic}
    read = written = evicted = 0.0
    for each in traffic:
        once = _touched(each, blocks, _read)
        missing = max(0.0, 1.0 - l2.holds(each.buffer) / max(sizes[each.buffer], 1.0))
        wave = _touched(each, min(in_flight, blocks), _read)
        # Until the buffer's turn comes again, so many waves go by, and all buffers go on in the meantime.
        cycle = max(1.0, once / wave) if wave > 0 else 1.0
        between = sum(min(sizes[buffer], cycle * touched) for buffer, touched in of_wave.items())
        again = max(0.0, 1.0 - l2.capacity / between) if between > 0 else 0.0
        asked = (each.missed_sectors + each.bulk_read_sectors) * SECTOR_BYTES
        read += min(asked, once * missing + max(0.0, waves * wave - once) * again)
        # What is written anew in a later wave has been in DRAM meanwhile, to the same degree.
        stored, of_one = (_touched(each, n, _written) for n in (blocks, min(in_flight, blocks)))
        written += stored
        evicted += max(0.0, waves * of_one - stored) * again
    for each in traffic:
        l2.touch(each.buffer, sizes[each.buffer])
    return Moved(
        l2_read=sum(each.missed_sectors + each.bulk_read_sectors for each in traffic) * SECTOR_BYTES,
        l2_written=sum(each.store_sectors + each.bulk_written_sectors for each in traffic) * SECTOR_BYTES,
        dram_read=read,
        # Some of it need not have been written when the launch is over.
        dram_written=max(0.0, written + evicted - _LEFT_IN_L2 * l2.capacity),
        written_once=written,
    )


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
