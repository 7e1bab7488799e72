"""Time of one launch on the device from its counts: what each part of the GPU needs for it, and these joined.

    issue, arithmetic, special, conversion, matrix   warp instructions of the busiest SM over the unit's rate
    L1                                               lines or wavefronts of requests, and shared memory's, of that SM
    L2, DRAM                                         bytes over bandwidth; sectors that are written in pieces cost more
    atomics                                          sectors over L2's rate, and the hottest address by itself
    starts                                           blocks that an SM starts, one after another
    latency                                          rounds of blocks, each as long as one warp's way through it

A launch first fills the GPU: nothing overlaps with a block's start and the first wait for memory. Behind that, parts
overlap, but not wholly: their p-mean is the time, to which an empty kernel's own is added (docs/gpu_model.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cudamaster.devices.kernel_names import plain_name
from cudamaster.modelling.constants import Constants, shipped
from cudamaster.modelling.counts import Launch, Spread, Traffic
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.memory import L2, SECTOR_BYTES, L1s, Moved, moved
from cudamaster.profiling import launches
from cudamaster.profiling.launches import Occupancy

WARP = 32
_LINE_BYTES = 128
# Of a tensor instruction as it is counted: 16 x 16 x 16 multiplications, each with an addition.
_MATRIX_OPERATIONS = 2 * 16 * 16 * 16
_HOPPER = (9, 0)
_US_OF_S = 1e6
_NS_OF_US = 1000


class Part(StrEnum):
    """What of a GPU can hold a launch up."""

    ISSUE = "issue"
    ARITHMETIC = "arithmetic"
    SPECIAL = "special functions"
    CONVERSION = "conversions"
    MATRIX = "tensor cores"
    L1 = "L1 and shared memory"
    L2 = "L2"
    DRAM = "DRAM"
    ATOMICS = "atomics"
    STARTS = "starts of blocks"
    LATENCY = "latency"


_QUEUES = (Part.STARTS, Part.ATOMICS)


@dataclass(frozen=True)
class LaunchTime:
    """One launch: its time on the device, and what each part would take were the others free, in microseconds.

    `count` launches in a row are alike. `instructions` are those of warps, as the GPU is taken to execute them.
    `assumed` names what the counts lacked.
    """

    kernel: str
    count: int
    device_us: float
    parts_us: Mapping[Part, float]
    occupancy: Occupancy
    blocks: int
    warps_of_block: int
    instructions: float
    moved: Moved
    assumed: tuple[str, ...] = ()

    @property
    def bound(self) -> Part:
        """The part that takes longest."""
        return max(self.parts_us, key=lambda part: self.parts_us[part])


@dataclass(frozen=True)
class _Shape:
    """How a launch lies on the GPU. `busiest` is the part of all its work that the busiest SM does."""

    blocks: int
    warps_of_block: int
    occupancy: Occupancy
    in_flight: int
    rounds: int
    busiest: float
    schedulers: float


@dataclass(frozen=True)
class Work:
    """What of a launch depends on no constant that is fitted: how it lies on the GPU, and what it moves."""

    shape: _Shape
    moved: Moved
    assumed: tuple[str, ...]


def work(launch: Launch, gpu: Gpu, constants: Constants, l2: L2) -> Work:
    """How a launch lies on the GPU, and what it moves; `l2` is left as it leaves it."""
    shape, assumed = _shape(launch, gpu, constants)
    l1s = _l1s(launch, gpu, shape)
    return Work(shape, moved(launch.traffic, shape.blocks, shape.in_flight, l2, l1s, constants), assumed)


def _l1s(launch: Launch, gpu: Gpu, shape: _Shape) -> L1s:
    figures = gpu.figures
    of_block = launch.dynamic_shared_bytes + (launch.static_shared_bytes or 0) + figures.reserved_shared_bytes
    resident = min(max(1, shape.occupancy.blocks), math.ceil(shape.blocks / figures.sms))
    return L1s(int(figures.sms), max(0.0, figures.l1_bytes - min(resident * of_block, figures.shared_bytes_per_sm)))


def launch_time(launch: Launch, gpu: Gpu, constants: Constants, l2: L2) -> LaunchTime:
    """Price a launch; `l2` is left as it leaves it."""
    return priced(launch, work(launch, gpu, constants, l2), gpu, constants)


def priced(launch: Launch, of: Work, gpu: Gpu, constants: Constants) -> LaunchTime:
    """The time of a launch whose work is known."""
    shape, bytes_moved = of.shape, of.moved
    filling = _filling(launch, gpu, constants, bytes_moved)
    cycles = {
        **_units(launch, gpu, constants, shape),
        Part.L1: _l1(launch, gpu, constants, bytes_moved) * shape.busiest,
        Part.ATOMICS: _atomics(launch, gpu),
        Part.STARTS: gpu.figures.start_cycles * shape.blocks * shape.busiest,
        Part.LATENCY: _latency(launch, gpu, constants, shape, bytes_moved),
    }
    parts = {part: gpu.microseconds(each) for part, each in cycles.items()} | _levels(
        launch, bytes_moved, gpu, constants
    )
    head = gpu.microseconds(filling)
    return LaunchTime(
        kernel=launch.kernel,
        count=launch.count,
        device_us=head + _overlapped(parts, constants.overlap),
        # What fills the GPU is latency, too.
        parts_us={**parts, Part.LATENCY: parts[Part.LATENCY] + head},
        occupancy=shape.occupancy,
        blocks=shape.blocks,
        warps_of_block=shape.warps_of_block,
        instructions=_instructions(launch, constants),
        moved=bytes_moved,
        assumed=of.assumed,
    )


def refused(launch: Launch, gpu: Gpu, constants: Constants | None = None) -> str | None:
    """Why the GPU would not launch this at all, a clause; else None. The constants are those that ship by default."""
    constants = shipped().constants if constants is None else constants
    if (lacking := _lacking(launch, gpu)) is not None:
        return lacking
    if (most := _shape(launch, gpu, constants)[0].occupancy.blocks * gpu.limits.sms) > 0:
        together = math.prod(launch.cluster)
        return None if together <= most else f"a cluster of {together} blocks, of which an {gpu.name} holds {most}"
    threads, shared = math.prod(launch.block), launch.dynamic_shared_bytes + (launch.static_shared_bytes or 0)
    needs = [f"{threads} threads"]
    needs += [] if launch.registers is None else [f"{threads} x {launch.registers} registers"]
    needs += [f"{shared} bytes of shared memory"] if shared else []
    return f"no SM of an {gpu.name} has room for a block of {plain_name(launch.kernel)}: {', '.join(needs)}"


def _lacking(launch: Launch, gpu: Gpu) -> str | None:
    """Which of a launch's instructions the GPU does not have, a clause; None where it has all of them."""
    kernel = plain_name(launch.kernel)
    if gpu.compute_capability < _HOPPER and (launch.shared.bulk_bytes or math.prod(launch.cluster) > 1):
        return f"{kernel} takes clusters or copies in bulk, which an {gpu.name} does not have"
    if launch.products.as_f16 and gpu.figures.warpgroup_operations is None:
        return f"{kernel} multiplies by wgmma, and the figures of an {gpu.name} have no warpgroup_operations"
    return None


def _shape(launch: Launch, gpu: Gpu, constants: Constants) -> tuple[_Shape, tuple[str, ...]]:
    assumed, registers = [], launch.registers
    if registers is None:
        registers = int(constants.assumed_registers)
        assumed.append(f"{registers} registers per thread")
    if launch.static_shared_bytes is None:
        assumed.append("no static shared memory")
    asked = launches.Launch(
        symbol=None,
        count=launch.count,
        grid=launch.grid,
        block=launch.block,
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        registers=registers,
        static_shared_bytes=launch.static_shared_bytes or 0,
        limits=gpu.limits,
    )
    occupancy = launches.occupancy(asked)
    assert occupancy is not None  # everything that it needs is there
    sms, blocks = int(gpu.figures.sms), asked.blocks
    warps = math.ceil(asked.threads / WARP)
    # A block that does not fit is priced as if one did; `refused` says so.
    of_sm = max(1, occupancy.blocks)
    # Blocks of a cluster are there together.
    together = math.prod(launch.cluster)
    room = max(1, of_sm * sms // together) * together
    in_flight = min(blocks, room)
    resident = min(of_sm, math.ceil(blocks / sms)) * warps
    shape = _Shape(
        blocks=blocks,
        warps_of_block=warps,
        occupancy=occupancy,
        in_flight=in_flight,
        rounds=math.ceil(blocks / room),
        busiest=math.ceil(blocks / sms) / blocks,
        schedulers=min(gpu.figures.schedulers, resident),
    )
    return shape, tuple(assumed)


def _instructions(launch: Launch, constants: Constants) -> float:
    """Warp instructions of the GPU in the launch: arithmetic and requests as counted, what leads to them scaled."""
    mix = launch.instructions
    leading = constants.instruction_scale * mix.integer + mix.control + mix.other
    arithmetic = mix.fma + mix.fp32 + mix.fp64 + mix.conversion
    kept = mix.special + mix.matrix + mix.shuffle + constants.slow_instructions * mix.slow
    return leading + arithmetic + _memory_instructions(launch, constants) + kept + _beside(launch, constants)


def _beside(launch: Launch, constants: Constants) -> float:
    """Instructions that every warp executes beside those counted."""
    return constants.instructions_beside * math.prod(launch.grid) * math.ceil(math.prod(launch.block) / WARP)


def _global_requests(launch: Launch) -> float:
    return sum(each.load_requests + each.store_requests + each.atomic_requests for each in launch.traffic)


def _memory_instructions(launch: Launch, constants: Constants) -> float:
    """Requests to memory; those to global memory with what makes their addresses."""
    shared = launch.shared
    of_shared = shared.load_requests + shared.store_requests + shared.atomic_requests
    return constants.instructions_of_request * _global_requests(launch) + of_shared


def _units(launch: Launch, gpu: Gpu, constants: Constants, shape: _Shape) -> dict[Part, float]:
    """Cycles of the busiest SM for the instructions of each kind."""
    figures, mix = gpu.figures, launch.instructions
    # An SM with fewer warps than schedulers leaves some of each unit idle.
    usable = shape.schedulers / figures.schedulers

    def cycles(warp_instructions: float, lanes: float) -> float:
        return warp_instructions * WARP / (lanes * usable) * shape.busiest

    # Pipes work beside each other, and that for fp32 takes integers too (as multiply-adds).
    single = mix.fma + mix.fp32 + constants.slow_instructions * mix.slow
    integer = mix.integer * constants.instruction_scale + _beside(launch, constants)
    arithmetic = max(
        cycles(single, figures.fp32_lanes),
        cycles(mix.fp64, figures.fp64_lanes),
        cycles(single + integer, figures.fp32_lanes + figures.integer_lanes),
    )
    operations = mix.matrix * _MATRIX_OPERATIONS
    products = launch.products.as_f16 / figures.warpgroup_operations if figures.warpgroup_operations else 0.0
    return {
        Part.ISSUE: _instructions(launch, constants) / shape.schedulers * shape.busiest,
        Part.ARITHMETIC: arithmetic,
        Part.SPECIAL: cycles(mix.special, figures.special_lanes),
        Part.CONVERSION: cycles(mix.conversion, figures.conversion_lanes),
        Part.MATRIX: (operations / (figures.matrix_operations * usable) + products / usable) * shape.busiest,
    }


def _l1(launch: Launch, gpu: Gpu, constants: Constants, bytes_moved: Moved) -> float:
    """Cycles that L1 and shared memory take on all SMs together. Shared memory and shuffles go through L1's banks."""
    shared = launch.shared
    remote = shared.remote_load_requests + shared.remote_store_requests + shared.remote_atomic_requests
    shuffles = launch.instructions.shuffle * WARP / gpu.figures.shuffle_lanes
    beside = shuffles + shared.wavefronts
    return _of_requests(launch, gpu, constants, bytes_moved, beside) + remote * gpu.figures.remote_cycles


def _of_requests(launch: Launch, gpu: Gpu, constants: Constants, bytes_moved: Moved, beside: float = 0.0) -> float:
    """Cycles that L1 takes for requests to global memory: the longest of what works side by side there, banks of data
    (with what goes through them beside), banks of tags, lines that are asked of L2, and the way there."""
    traffic = launch.traffic
    wavefronts = sum(each.wavefronts for each in traffic) + _spilled_bytes(launch) / _LINE_BYTES
    missed = _missed_lines(launch, bytes_moved)
    sent = sum(each.sends for each in traffic) + gpu.figures.missed_line_cycles * missed
    lookups = sum(each.lookups for each in traffic)
    return max(constants.wavefront_cycles * wavefronts + beside, lookups, missed, sent)


def _missed_lines(launch: Launch, bytes_moved: Moved) -> float:
    """Lines of loads that are asked of L2: those that a block misses, but for what it finds in its SM's L1."""
    alone = sum(each.missed_sectors for each in launch.traffic)
    every = sum(each.missed_lines for each in launch.traffic)
    return every * bytes_moved.missed_sectors / alone if alone > 0 else 0.0


def _spilled_bytes(launch: Launch) -> float:
    """What threads store for want of registers and load again, each instruction once."""
    of_thread = launch.spill_store_bytes + launch.spill_load_bytes
    return of_thread * math.prod(launch.grid) * math.prod(launch.block)


def _levels(launch: Launch, bytes_moved: Moved, gpu: Gpu, constants: Constants) -> dict[Part, float]:
    """Microseconds that L2 and DRAM take. What threads spill goes through L2, as no L1 keeps that of all of them."""
    figures = gpu.figures
    missed = _missed_lines(launch, bytes_moved)
    stored = sum(each.store_lines for each in launch.traffic)
    loaded = max(bytes_moved.l2_read - bytes_moved.bulk_read, SECTOR_BYTES * constants.line_sectors * missed)
    through = loaded + constants.bulk_share * bytes_moved.bulk_read + _spilled_bytes(launch)
    through += constants.stored_sectors * bytes_moved.l2_written + constants.stored_line_sectors * SECTOR_BYTES * stored
    dram = bytes_moved.dram_read / figures.read_bytes_per_s + bytes_moved.dram_written / figures.write_bytes_per_s
    if bytes_moved.dram_read > 0 and bytes_moved.dram_written > 0:
        dram = max(dram, (bytes_moved.dram_read + bytes_moved.dram_written) / figures.copy_bytes_per_s)
    return {Part.L2: through / figures.l2_bytes_per_s * _US_OF_S, Part.DRAM: dram * _US_OF_S}


def sectors_of_atomics(launch: Launch) -> float:
    """Sectors on which L2 does operations."""
    return sum(each.atomic_sectors + each.bulk_reduced_sectors for each in launch.traffic)


def _atomics(launch: Launch, gpu: Gpu) -> float:
    """Cycles of L2: operations on one line wait for each other, and lanes of a warp at one address count each. Of many
    lines some share a slice of L2."""
    figures, same = gpu.figures, max(1.0, launch.contention.same_address)
    cycles, of_one = 0.0, 1 / figures.same_address_per_clock
    for each in launch.traffic:
        if operations := each.atomic_sectors * same + each.bulk_reduced_sectors:
            touched = max((found.written for found in each.footprints), default=each.bytes / SECTOR_BYTES)
            lines = max(1.0, touched * SECTOR_BYTES / _LINE_BYTES)
            crowded = min(figures.crowded_atomics, max(1.0, (lines / WARP) ** figures.crowding_exponent))
            cycles += operations * (1 / figures.atomic_sectors_per_clock + of_one * crowded / lines)
    return max(cycles, launch.contention.hottest * of_one)


def _filling(launch: Launch, gpu: Gpu, constants: Constants, bytes_moved: Moved) -> float:
    """Cycles until the first blocks have something to work on."""
    waits = launch.cold_waits_of_warp.largest > 0
    cycles = constants.first_cycles + (_cold_latency(launch, gpu, bytes_moved) if waits else 0.0)
    # A launch is over when its last atomics are. (Clusters and cooperative launches start as soon as others.)
    atomics = launch.grid_barriers.largest > 0 or any(each.atomic_requests for each in launch.traffic)
    return cycles + (constants.answer_cycles if atomics else 0.0)


def _cold_latency(launch: Launch, gpu: Gpu, bytes_moved: Moved) -> float:
    """Of a wait for what a block has not had: L2's, or DRAM's if one of the lines that it waits for is not in L2."""
    near, far = gpu.figures.l2_latency_cycles, gpu.figures.memory_latency_cycles
    return near + _from_dram(launch, bytes_moved) * (far - near)


def _from_dram(launch: Launch, bytes_moved: Moved) -> float:
    """Part of the waits for what is new to a block, for which some of that comes from DRAM."""
    blocks = math.prod(launch.grid)
    new = blocks * sum(found.read for each in launch.traffic for found in each.footprints if found.blocks == 1)
    share = min(1.0, bytes_moved.dram_read / (SECTOR_BYTES * new)) if new > 0 else bytes_moved.missed_share
    lines = max(1.0, _lines_of_wait(launch, new, launch.far_waits_of_warp))
    return 1 - math.pow(1 - share, lines)


def _sectors(traffic: Traffic) -> float:
    return traffic.load_sectors + traffic.store_sectors + traffic.atomic_sectors


def _lines_of_wait(launch: Launch, of_all: float, waits: Spread) -> float:
    """Lines that a warp waits for together, of so many sectors that all wait for."""
    sectors = sum(_sectors(each) for each in launch.traffic)
    lines = sum(each.lines for each in launch.traffic)
    every = waits.mean * math.prod(launch.grid) * math.ceil(math.prod(launch.block) / WARP)
    return of_all * lines / (sectors * every) if sectors * every > 0 else 1.0


def _latency(launch: Launch, gpu: Gpu, constants: Constants, shape: _Shape, bytes_moved: Moved) -> float:
    """Cycles of the rounds of blocks: each is as long as the way of a mean warp, and all are no shorter than the
    longest, since the next block starts where one has ended.

    The start of the first block and its first wait are those that fill the GPU.
    """
    mean = _way(launch, gpu, constants, shape, bytes_moved, largest=False)
    longest = _way(launch, gpu, constants, shape, bytes_moved, largest=True)
    first = constants.block_cycles
    if launch.cold_waits_of_warp.largest > 0:
        first += _cold_latency(launch, gpu, bytes_moved)
    return max(0.0, max(longest, shape.rounds * mean) - first)


def _way(launch: Launch, gpu: Gpu, constants: Constants, shape: _Shape, bytes_moved: Moved, *, largest: bool) -> float:
    """Cycles of one warp from its block's start to its end, alone on the GPU: what it waits for, one after another.

    The warps of a block begin together and come to their waits together, so each waits for a part of what L1 does for
    all of them.
    """
    figures, warps = gpu.figures, shape.blocks * shape.warps_of_block
    # A warp that spins waits for another one, whose way is counted.
    largest = largest and not _spins(launch, constants)
    longer, waits, cold, far, remote = _done(launch, constants, largest=largest)
    shared = (launch.shared.load_requests + launch.shared.atomic_requests) / warps * longer
    each = (launch.fences, launch.tickets, launch.slept_ns_of_warp)
    fences, tickets, slept_ns = (of.largest if largest else of.mean for of in each)
    return (
        constants.block_cycles
        + (_issuing(launch, constants) + _of_products(launch, gpu, shape)) / warps * longer
        + cold * figures.l2_latency_cycles
        + far * _from_dram(launch, bytes_moved) * (figures.memory_latency_cycles - figures.l2_latency_cycles)
        + (waits - cold) * figures.l1_latency_cycles
        + constants.in_step * _of_requests(launch, gpu, constants, bytes_moved) / shape.blocks * longer
        + remote * figures.remote_latency_cycles
        + shared / constants.loads_in_flight * figures.shared_latency_cycles
        + _barriers(launch, gpu, shape, largest=largest)
        + fences * figures.fence_cycles
        + tickets * figures.ticket_cycles
        + slept_ns * figures.clock_mhz / _NS_OF_US
    )


def _barriers(launch: Launch, gpu: Gpu, shape: _Shape, *, largest: bool) -> float:
    """Cycles of a warp's barriers. To one of a block or a cluster, all warps of the block come one after another."""
    figures = gpu.figures
    every, of_cluster, of_grid = (
        of.largest if largest else of.mean for of in (launch.barriers, launch.cluster_barriers, launch.grid_barriers)
    )
    of_block = figures.barrier_cycles + figures.barrier_warp_cycles * shape.warps_of_block
    clusters = figures.cluster_barrier_cycles + figures.cluster_barrier_warp_cycles * shape.warps_of_block
    others = max(0.0, every - of_cluster - of_grid)
    return others * of_block + of_cluster * clusters + of_grid * figures.grid_barrier_cycles


def _issuing(launch: Launch, constants: Constants) -> float:
    """Cycles of all warps for their instructions, one warp alone: as long as those that wait for each other take, or
    for one to be issued after another, multiply-adds one a cycle."""
    mix = launch.instructions
    multiply_adds = mix.fma + mix.fp32
    others = _instructions(launch, constants) - multiply_adds - mix.matrix
    return max(others * constants.cycles_per_instruction + multiply_adds, launch.chained_cycles)


def _of_products(launch: Launch, gpu: Gpu, shape: _Shape) -> float:
    """Cycles of all warps for products in tensor cores, whose factors come from shared memory: one after the other.

    Warps of a block come to both together, so each waits for all of its block. (Multiply-adds are issued while the next
    factors come.)
    """
    figures, products = gpu.figures, launch.instructions.matrix
    if not products > 0:
        return 0.0
    together = shape.warps_of_block
    of_core = _MATRIX_OPERATIONS / (figures.matrix_operations / figures.schedulers)
    return launch.shared.wavefronts * together + products * of_core * max(1.0, together / figures.schedulers)


def _done(launch: Launch, constants: Constants, *, largest: bool) -> tuple[float, float, float, float, float]:
    """Instructions as multiples of a mean warp's, waits, those of them that L1 does not end, those for what is new to
    the block, and those for other blocks: of the mean block or the longest. At each barrier the block's warps wait for
    the one that had most to do since the last."""
    way, of_warp = launch.way_of_block, launch.instructions_of_warp
    if way is None or _spins(launch, constants):
        longer = _ratio(of_warp) if largest else 1.0
        waits = (
            launch.waits_of_warp,
            launch.cold_waits_of_warp,
            launch.far_waits_of_warp,
            launch.remote_waits_of_warp,
        )
    else:
        instructions = way.instructions.largest if largest else way.instructions.mean
        longer = instructions / of_warp.mean if of_warp.mean > 0 else 1.0
        waits = way.waits, way.cold_waits, way.far_waits, way.remote_waits
    every, cold, far, remote = (of.largest if largest else of.mean for of in waits)
    return longer, every, cold, far, remote


def _spins(launch: Launch, constants: Constants) -> bool:
    """Whether the longest warp asks again and again for what it has had, until another one writes that."""
    waits, cold = launch.waits_of_warp, launch.cold_waits_of_warp
    often, again = constants.spinning_waits * max(1.0, waits.mean), constants.spinning_again * max(1.0, cold.largest)
    return waits.largest > often and waits.largest > again


def _ratio(of: Spread) -> float:
    return max(1.0, of.largest / of.mean) if of.mean > 0 else 1.0


def _overlapped(parts: Mapping[Part, float], power: float) -> float:
    """What parts take side by side. Starts of blocks and atomics are queues in front of the others and behind them:
    while one of these is long, nobody waits for anything else. What DRAM reads and writes goes through L2 meanwhile."""
    memory = max(parts[Part.L2], parts[Part.DRAM])
    alone = (*_QUEUES, Part.L2, Part.DRAM)
    others = tuple(us for part, us in parts.items() if part not in alone)
    return max(_joined((*others, memory), power), *(parts[part] for part in _QUEUES))


def _joined(parts: tuple[float, ...], power: float) -> float:
    """The p-mean of the parts without its denominator: the sum for 1, the largest for infinity."""
    largest = max(parts)
    if not largest > 0:
        return 0.0
    return float(largest * sum((part / largest) ** power for part in parts) ** (1 / power))
