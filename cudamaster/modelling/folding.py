"""Counts of a call: of each launch those of the whole, from what the observer wrote of its traced blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby

from cudamaster.devices.cpu.counting import shipped
from cudamaster.devices.cpu.instructions import Code
from cudamaster.devices.kernel_names import plain_name
from cudamaster.modelling import units
from cudamaster.modelling.counts import (
    CallCounts,
    Contention,
    Footprint,
    Instructions,
    Launch,
    Other,
    Products,
    Shared,
    Spread,
    Traffic,
    Way,
)
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import WARP
from cudamaster.modelling.memory import SECTOR_BYTES
from cudamaster.modelling.observed import (
    CUT_SPREADS,
    SPREADS,
    WHOLE_SPREADS,
    EventLine,
    LaunchLine,
    Sums,
    TrafficLine,
)
from cudamaster.profiling.ptxas import Usage

VERSION = 6  # of what is counted, and how
_KINDS = tuple(name for name in Instructions.model_fields if name != "active_share")
_OF_FILE = re.compile(r"(?<!\d)(\d+)(?=_GLOBAL__N_|_INTERNAL_)")


def counts_of(
    lines: Sequence[LaunchLine | EventLine],
    label: str,
    code: Code,
    usage: Sequence[Usage],
    wanted: Gpu,
) -> CallCounts:
    """Those of a call at the case `label`, from the observer's lines of it."""
    events: list[Launch | Other] = []
    notes: list[str] = []
    left_out = False
    for line in lines:
        if isinstance(line, LaunchLine):
            events.append(_launch(line, code, usage, wanted))
            if left_out and not line.unsteered:
                notes.append(f"{line.kernel} was traced after launches of which most blocks were left out")
            left_out = left_out or line.left_out
            if line.dropped:
                notes.append("of long threads the first part was traced")
        else:
            events.append(Other(event=line.event, bytes=line.bytes, host=line.host, instructions=line.instructions))
    merged = [
        first.model_copy(update={"count": sum(1 for _ in same) + 1})
        for _, same in groupby(events)
        if (first := next(same))
    ]
    return CallCounts(
        version=VERSION,
        case=label,
        events=tuple(merged),
        note="; ".join(dict.fromkeys(notes)),
    )


def _as_if_all_cut(line: LaunchLine) -> LaunchLine:
    """A launch of which long threads recorded a first part, with all its spreads as far as that went: so all of its
    figures are to be multiplied by the same."""
    if not line.dropped or not line.events:
        return line
    cut = 1 + line.dropped / line.events
    spreads = {}
    for name in (*WHOLE_SPREADS, *CUT_SPREADS):
        total, count, largest = getattr(line, name)
        spreads[name] = total / cut if name in WHOLE_SPREADS else total, count, largest / cut
    return line.model_copy(update=spreads)


def _took_all(line: LaunchLine) -> bool:
    """Whether one block did what all blocks share out among them by atomics: it runs before the others do."""
    if line.units is not None:
        return True
    total, blocks, largest = line.block_instructions
    return blocks > 1 and largest > shipped().alone_share * total and line.atomics[0] > 0 and line.traced < line.blocks


def _shared_out(line: LaunchLine) -> LaunchLine:
    """A launch whose work one traced block took, as if all its blocks had been traced and each had done its share."""
    blocks = line.blocks
    more = blocks / line.traced
    longer = units.longer(line) if line.units is not None else 1.0  # which the sums are yet to be multiplied by

    def shares(sums: Sums) -> Sums:
        total, count, largest = sums
        return total, round(count * more), math.ceil(longer * largest / blocks) / longer

    spreads = {name: shares(getattr(line, name)) for name in SPREADS}
    traffic = [_shared_traffic(each, line) for each in line.traffic]
    return line.model_copy(update={**spreads, "traced": blocks, "traffic": traffic})


def _shared_traffic(line: TrafficLine, launch: LaunchLine) -> TrafficLine:
    """Of a block's share no more is known than what it asks for."""
    _, read, written = line.footprints[0]  # a mean of the traced blocks, of which one touched all
    read, written = read * launch.traced, written * launch.traced
    if launch.earlier is not None:
        before = launch.earlier[3].get(line.buffer, (0, 0))
        most = math.ceil(line.bytes / SECTOR_BYTES)
        read, written = (min(units.grown(*each, launch), most) for each in zip(before, (read, written), strict=True))
    longer = units.longer(launch) if launch.units is not None else 1.0
    asked = longer * (line.load[1] + line.atomic[1] + line.bulk[0] + line.bulk[2])
    stored = longer * (line.store[1] + line.atomic[1] + line.bulk[1] + line.bulk[2])
    share = min(read, asked / launch.blocks), min(written, stored / launch.blocks)
    return line.model_copy(update={"footprints": [(1, *share), (launch.blocks, read, written)]})


def _launch(line: LaunchLine, code: Code, usage: Sequence[Usage], wanted: Gpu) -> Launch:
    """Counts of the whole launch, of those of the traced blocks."""
    line = _as_if_all_cut(line)
    if _took_all(line):
        line = _shared_out(line)
    # Threads of which only a part was kept stand for the whole, and so do units of work.
    longer = units.longer(line)
    far_longer = way_far_longer = longer
    if line.earlier is not None:
        _, far, way_far, _ = line.earlier
        far_longer = units.grown(far, line.far_waits[0], line) / (line.far_waits[0] or 1)
        way_far_longer = units.grown(way_far, line.way_far_waits[0], line) / (line.way_far_waits[0] or 1)
    scale = line.blocks / line.traced * longer
    kinds = dict.fromkeys(_KINDS, 0.0)
    warps = lanes = 0.0
    for place, by_warps, by_lanes in line.executed:
        block = code.blocks.get(place, {})
        size = sum(block.values())
        warps += size * by_warps
        lanes += size * by_lanes
        for kind, count in block.items():
            kinds[kind] += count * by_warps * scale
    kinds = {
        kind: max(0.0, count) for kind, count in kinds.items()
    }  # some stand for less than nothing (instructions.py)
    (loads, load_waves), (stores, store_waves), (atomics, atomic_waves) = line.shared
    remote_loads, remote_stores, remote_atomics, remote_bytes = line.remote
    _, atomic_lanes, addresses, of_one, of_many = line.atomics
    f16, tf32, f8, integer = (each * scale for each in line.products)
    symbol = code.functions.get(line.function)
    found = usage_of(line.kernel, math.prod(line.block), usage, wanted.limits.registers, symbol)
    return Launch(
        kernel=line.kernel,
        symbol=symbol or "",
        grid=line.grid,
        block=line.block,
        cluster=line.cluster,
        dynamic_shared_bytes=line.dynamic_shared_bytes,
        static_shared_bytes=None if found is None else found.shared_bytes,
        registers=None if found is None else found.registers,
        spill_store_bytes=(found and found.spill_store_bytes) or 0,
        spill_load_bytes=(found and found.spill_load_bytes) or 0,
        cooperative=line.cooperative,
        early=line.early,
        chained_cycles=scale * sum(code.chains.get(place, 0.0) * by_warps for place, by_warps, _ in line.executed),
        instructions=Instructions(**kinds, active_share=min(lanes / (WARP * warps), 1.0) if warps else 1.0),
        traffic=tuple(_traffic(traffic, scale, line, wanted) for traffic in line.traffic),
        shared=Shared(
            load_requests=loads * scale,
            load_wavefronts=load_waves * scale,
            store_requests=stores * scale,
            store_wavefronts=store_waves * scale,
            atomic_requests=atomics * scale,
            atomic_wavefronts=atomic_waves * scale,
            remote_load_requests=remote_loads * scale,
            remote_store_requests=remote_stores * scale,
            remote_atomic_requests=remote_atomics * scale,
            remote_bytes=remote_bytes * scale,
            bulk_bytes=line.bulk_bytes * scale,
            factor_bytes=line.factor_bytes * scale,
        ),
        products=Products(f16=f16, tf32=tf32, f8=f8, integer=integer),
        contention=Contention(
            # The hottest address of one block is its counter, if units of work were left out.
            hottest=max(of_many * scale, of_one if line.units is None else of_one * longer),
            all=atomic_lanes * scale,
            same_address=atomic_lanes / addresses if addresses else 1,
        ),
        barriers=_spread(line.barriers, longer),
        cluster_barriers=_spread(line.cluster_barriers, longer),
        grid_barriers=_spread(line.grid_barriers, longer),
        fences=_spread(line.fences, longer),
        tickets=_spread(line.tickets, longer),
        cluster_fences=_spread(line.cluster_fences, longer),
        slept_ns_of_warp=_spread(line.slept_ns, longer),
        waits_of_warp=_spread(line.waits, longer),
        cold_waits_of_warp=_spread(line.cold_waits, longer),
        far_waits_of_warp=_spread(line.far_waits, far_longer),
        remote_waits_of_warp=_spread(line.remote_waits, longer),
        instructions_of_warp=_spread(line.warp_instructions, longer),
        way_of_block=Way(
            instructions=_spread(line.way_instructions, longer),
            waits=_spread(line.way_waits, longer),
            cold_waits=_spread(line.way_cold_waits, longer),
            far_waits=_spread(line.way_far_waits, way_far_longer),
            remote_waits=_spread(line.way_remote_waits, longer),
        ),
    )


def _traffic(line: TrafficLine, scale: float, launch: LaunchLine, wanted: Gpu) -> Traffic:
    # Blocks that an SM runs after or beside another one find what all of them read, as far as its L1 keeps it.
    common = line.load[3]
    kept = SECTOR_BYTES * common / launch.traced <= shipped().kept_of_l1 * wanted.figures.l1_bytes
    others = 1 - 1 / max(launch.blocks / wanted.limits.sms, 1) if kept else 0.0
    missed = line.load[2] - others * common
    return Traffic(
        buffer=line.buffer,
        bytes=line.bytes,
        load_requests=line.load[0] * scale,
        load_sectors=line.load[1] * scale,
        missed_sectors=missed * scale,
        store_requests=line.store[0] * scale,
        store_sectors=line.store[1] * scale,
        atomic_requests=line.atomic[0] * scale,
        atomic_sectors=line.atomic[1] * scale,
        lines=line.lines * scale,
        missed_lines=line.missed_lines * (missed / line.load[2] if line.load[2] else 0.0) * scale,
        store_lines=line.store_lines * scale,
        wavefronts=line.wavefronts * scale,
        lookups=line.lookups * scale,
        sends=line.sends * scale,
        bulk_read_sectors=line.bulk[0] * scale,
        bulk_written_sectors=line.bulk[1] * scale,
        bulk_reduced_sectors=line.bulk[2] * scale,
        footprints=tuple(Footprint(blocks=n, read=read, written=written) for n, read, written in line.footprints),
    )


def _spread(sums: Sums, longer: float) -> Spread:
    total, count, largest = sums
    return Spread(mean=longer * total / count if count else 0, largest=longer * largest)


def usage_of(kernel: str, threads: int, usage: Sequence[Usage], of_sm: int, symbol: str | None = None) -> Usage | None:
    """What ptxas says of a kernel that was launched with blocks of so many threads; None if it does not name it. An SM
    has `of_sm` registers.

    `symbol` is the mangled name of the function that was launched, which tells a template's kernels apart, and what
    was launched where `kernel` is only the name of a parameter. Without one that ptxas knows, plain names are compared,
    and of a template's kernels the first whose registers suffice for such a block stands for all.
    """
    if symbol is not None:
        same = (found for found in usage if _without_file(found.symbol) == _without_file(symbol))
        if (launched := next(same, None)) is not None:
            return launched
    name = kernel.split("<")[0].split("::")[-1].strip()
    named = [found for found in usage if plain_name(found.symbol) == name]
    fitting = (found for found in named if (found.registers or 0) * threads <= of_sm)
    return next(fitting, named[0] if named else None)


def _without_file(symbol: str) -> str:
    """A mangled name without what g++ and nvcc mangle in their own ways: that it is its file's alone."""
    name, at = "", 0
    while found := _OF_FILE.search(symbol, at):
        name += symbol[at : found.start()]
        at = found.end(1) + int(found[1])
    return (name + symbol[at:]).replace("_ZL", "_Z")
