"""Counts of kernels that can be counted by hand, for the tests of the model."""

from __future__ import annotations

import math

from cudamaster.modelling.constants import shipped
from cudamaster.modelling.counts import (
    CallCounts,
    Contention,
    Footprint,
    Instructions,
    Launch,
    Other,
    Shared,
    Spread,
    Traffic,
)

# The constants that ship, but for what is priced beside the units: nothing here is scaled, or comes on top.
PLAIN = shipped().constants.model_copy(
    update={
        **dict.fromkeys(("instruction_scale", "instructions_of_request", "line_sectors", "stored_sectors"), 1.0),
        **dict.fromkeys(("instructions_beside", "first_cycles", "answer_cycles", "wavefront_cycles"), 0.0),
        **{"in_step": 0.0, "stored_line_sectors": 0.0, "bulk_share": 1.0},
        # Round numbers, and the largest part alone.
        **{"cycles_per_instruction": 4.0, "block_cycles": 500.0, "overlap": 200.0},
    }
)
THREADS = 256
WARPS = THREADS // 32


def spread(mean: float, largest: float | None = None) -> Spread:
    """A figure of warps or blocks, all equal unless the largest is given."""
    return Spread(mean=mean, largest=mean if largest is None else largest)


def call(*events: Launch | Other) -> CallCounts:
    return CallCounts(version=1, case="N=1", events=events)


def footprints(of_block: float, *, written: bool = False) -> tuple[Footprint, ...]:
    """Blocks that share nothing: each touches sectors of its own."""
    return tuple(
        Footprint(blocks=n, read=0 if written else n * of_block, written=n * of_block if written else 0)
        for n in (1, 8, 64)
    )


def launch(
    blocks: int,
    *,
    loads: float = 0,
    stores: float = 0,
    stride: int = 1,
    instructions: Instructions | None = None,
    per_warp: float = 10,
    shared: Shared | None = None,
    contention: Contention | None = None,
    barriers: float = 0,
    waits: float | None = None,
    registers: int = 32,
    shared_bytes: int = 0,
    buffers: tuple[int, int] = (0, 1),
    longest: float = 1,
) -> Launch:
    """Blocks of 256 threads whose warps load and store so many 4-byte elements per thread, `stride` elements apart.

    Four loads are on their way together unless `waits` says otherwise, and no cache has what they ask for.
    `instructions` are those of the launch, by default `per_warp` integer ones; the longest warp does `longest` times
    as much as the mean. Every wait is for what is new, but where lanes ask for a sector each of different lines: they
    walk through them, so each second one is the other half of a pair.
    """
    warps = blocks * WARPS
    waits = max(loads / 4, min(1, loads)) if waits is None else waits
    sectors = min(32, 4 * stride)
    far = math.ceil(waits / 2) if sectors == min(32, stride) else waits
    size = blocks * THREADS * 4 * stride
    traffic = []
    for buffer, count, store in ((buffers[0], loads, False), (buffers[1], stores, True)):
        if count:
            traffic.append(
                Traffic(
                    buffer=buffer,
                    bytes=int(size * count),
                    load_requests=0 if store else count * warps,
                    load_sectors=0 if store else count * warps * sectors,
                    missed_sectors=0 if store else count * warps * sectors,
                    store_requests=count * warps if store else 0,
                    store_sectors=count * warps * sectors if store else 0,
                    lines=count * warps * min(32, stride),
                    wavefronts=count * warps * max(math.gcd(32, stride), -(-min(32, stride) // 4)),
                    footprints=footprints(count * WARPS * sectors, written=store),
                )
            )
    return Launch(
        kernel="copy_kernel_optimized",
        grid=(blocks, 1, 1),
        block=(THREADS, 1, 1),
        dynamic_shared_bytes=shared_bytes,
        static_shared_bytes=0,
        registers=registers,
        instructions=instructions or Instructions(integer=per_warp * warps),
        traffic=tuple(traffic),
        shared=shared or Shared(),
        contention=contention or Contention(),
        barriers=spread(barriers),
        waits_of_warp=spread(waits, waits * longest),
        cold_waits_of_warp=spread(waits, waits * longest),
        far_waits_of_warp=spread(far, far * longest),
        instructions_of_warp=spread(per_warp, per_warp * longest),
    )
