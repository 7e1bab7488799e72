"""The model: laws that hold for any constants, times calculated by hand, and what it says bounds a launch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from counted_by_hand import PLAIN, WARPS, call, footprints, launch, spread
from hypothesis import given, settings
from hypothesis import strategies as st

from cudamaster.modelling import gpu as gpus
from cudamaster.modelling.constants import Constants
from cudamaster.modelling.counts import Contention, Instructions, Launch, Other, Products, Shared, Traffic, Way
from cudamaster.modelling.launch_time import Part, launch_time, refused
from cudamaster.modelling.memory import L2, L1s, moved
from cudamaster.modelling.model import ModelledCall, breakdown, modelled

# Round numbers, so that times can be worked out by hand.
_AS_IT_IS = gpus.load()
H200 = replace(
    _AS_IT_IS, figures=replace(_AS_IT_IS.figures, barrier_cycles=30.0, barrier_warp_cycles=0.0, start_cycles=0.0)
)
SMS = int(H200.figures.sms)
ROUND = PLAIN.model_copy(update={"first_cycles": 500.0, "wavefront_cycles": 0.5})


def price(*events: Launch | Other) -> ModelledCall:
    return modelled(call(*events), H200, ROUND)


def device_us(one: Launch, constants: Constants = ROUND) -> float:
    return launch_time(one, H200, constants, L2(H200.figures.l2_bytes)).device_us


def parts(one: Launch) -> dict[Part, float]:
    return dict(launch_time(one, H200, ROUND, L2(H200.figures.l2_bytes)).parts_us)


def test_an_empty_kernel_takes_what_an_empty_call_takes() -> None:
    """9.8 us by the host's clock, to which a warp's way adds little; 4.45 of them on the device."""
    found = price(launch(1, per_warp=0))
    us = ROUND.block_cycles / H200.figures.clock_mhz
    assert found.whole_us == pytest.approx(H200.figures.empty_call_us + us)
    assert found.device_us == pytest.approx(H200.figures.empty_device_us + us)
    assert found.bound == "launch overhead"


def test_a_large_read_takes_its_bytes_over_the_bandwidth() -> None:
    """2^20 blocks read 4 bytes a thread: 1.07 GB at 4.58 TB/s, with eight loads of a thread on their way together."""
    one = launch(2**20, loads=8, waits=1)
    expected = 2**20 * 256 * 8 * 4 / H200.figures.read_bytes_per_s * 1e6
    assert parts(one)[Part.DRAM] == pytest.approx(expected)
    assert device_us(one) == pytest.approx(expected, rel=0.01)
    assert price(one).bound == "DRAM"


def test_one_load_a_thread_is_bound_by_latency() -> None:
    """2048 threads an SM with 4 bytes each in flight: rounds of blocks, each as long as one wait for DRAM."""
    blocks = 2**19
    one = launch(blocks, loads=1, stores=1)
    rounds = math.ceil(blocks / (SMS * 8))
    way = ROUND.block_cycles + (10 + 2) * ROUND.cycles_per_instruction + H200.figures.memory_latency_cycles
    expected = rounds * way
    assert parts(one)[Part.LATENCY] == pytest.approx(expected / H200.figures.clock_mhz)
    assert price(one).bound == "latency"


def test_arithmetic_by_hand() -> None:
    """A thousand multiply-adds a warp: four warps of them a cycle and SM."""
    blocks, each = SMS * 80, 100_000
    one = launch(blocks, instructions=Instructions(fma=each * blocks * WARPS), per_warp=each)
    assert parts(one)[Part.ARITHMETIC] == pytest.approx(each * WARPS * 80 / 4 / H200.figures.clock_mhz)
    fp32_per_s = 2 * 32 * each * blocks * WARPS / (device_us(one) * 1e-6)
    assert fp32_per_s == pytest.approx(66.4e12, rel=0.01)  # 64.9 TFLOP/s were measured


def test_special_functions_take_a_sixteenth_of_the_lanes() -> None:
    blocks = SMS * 80
    plain = parts(launch(blocks, instructions=Instructions(fma=1e6)))[Part.ARITHMETIC]
    assert parts(launch(blocks, instructions=Instructions(special=1e6)))[Part.SPECIAL] == pytest.approx(8 * plain)


def test_a_stride_of_32_is_slower_than_neighbours() -> None:
    near, far = (price(launch(2**16, loads=1, stores=1, stride=stride)) for stride in (1, 32))
    assert far.device_us > 3 * near.device_us
    assert far.parts_us[Part.L1] > 2 * near.parts_us[Part.L1]


def test_bank_conflicts_cost() -> None:
    blocks = SMS * 80
    warps = blocks * WARPS

    def with_ways(ways: int) -> float:
        shared = Shared(load_requests=100 * warps, load_wavefronts=100 * ways * warps)
        return device_us(launch(blocks, shared=shared))

    assert with_ways(32) > 10 * with_ways(2) > 10 * with_ways(1) / 2


def test_products_of_warpgroups_take_the_tensor_cores() -> None:
    """A product of 4096 x 4096 x 4096 at 975 TFLOP/s, which were measured; half of that in TF32, twice in 8 bits."""
    operations = 2.0 * 4096**3
    blocks = SMS * 8
    busy = parts(launch(blocks).model_copy(update={"products": Products(f16=operations)}))
    assert busy[Part.MATRIX] == pytest.approx(operations / 975e12 * 1e6, rel=0.001)
    for product in (Products(tf32=operations / 2), Products(f8=2 * operations), Products(integer=2 * operations)):
        assert parts(launch(blocks).model_copy(update={"products": product})) == busy


def test_factors_and_copies_in_bulk_take_shared_memory() -> None:
    """128 bytes are a wavefront, as a request without conflicts is."""
    blocks = SMS * 8
    by_threads = parts(launch(blocks, shared=Shared(load_wavefronts=3e6)))
    assert parts(launch(blocks, shared=Shared(factor_bytes=128e6, bulk_bytes=256e6)))[Part.L1] == by_threads[Part.L1]


def test_copies_in_bulk_move_what_loads_move() -> None:
    """Past L1, and without instructions: the same bytes of L2 and DRAM."""
    loads = launch(2**14, loads=8, stores=4)
    traffic = [
        Traffic(
            buffer=each.buffer,
            bytes=each.bytes,
            bulk_read_sectors=each.missed_sectors,
            bulk_written_sectors=each.store_sectors,
            footprints=each.footprints,
        )
        for each in loads.traffic
    ]
    bulk = loads.model_copy(update={"traffic": tuple(traffic)})
    for part in (Part.L2, Part.DRAM):
        assert parts(bulk)[part] == parts(loads)[part] > 0
    assert parts(bulk)[Part.L1] == 0 < parts(loads)[Part.L1]
    assert parts(bulk)[Part.ISSUE] < parts(loads)[Part.ISSUE]


def test_reductions_in_bulk_are_atomics_of_l2() -> None:
    traffic = Traffic(buffer=0, bytes=2**30, bulk_reduced_sectors=1e6)
    one = launch(SMS * 8).model_copy(update={"traffic": (traffic,)})
    cycles = 1e6 / H200.figures.atomic_sectors_per_clock
    assert parts(one)[Part.ATOMICS] == pytest.approx(cycles / H200.figures.clock_mhz, rel=0.001)


def test_atomics_on_few_lines_wait_for_each_other() -> None:
    """A million on 8 KB, which is 64 lines: 10 a cycle were measured, 50 on larger tables."""
    sectors = footprints(1.0)[0].model_copy(update={"blocks": 64, "read": 256, "written": 256})
    traffic = Traffic(buffer=0, bytes=8192, atomic_requests=1e5, atomic_sectors=1e6, footprints=(sectors,))
    cycles = parts(launch(4096).model_copy(update={"traffic": (traffic,)}))[Part.ATOMICS] * H200.figures.clock_mhz
    assert 1e6 / cycles == pytest.approx(10, rel=0.05)
    merged = launch(4096, contention=Contention(same_address=4)).model_copy(update={"traffic": (traffic,)})
    assert parts(merged)[Part.ATOMICS] * H200.figures.clock_mhz == pytest.approx(4 * cycles)


def test_nobody_waits_for_atomics_and_starts_that_take_less_than_the_rest() -> None:
    shared = ROUND.model_copy(update={"overlap": 2})
    plain = launch(2**16, loads=8)
    traffic = Traffic(buffer=7, bytes=2**26, atomic_requests=1e5, atomic_sectors=1e5)
    atomic = plain.model_copy(update={"traffic": (*plain.traffic, traffic)})
    found = launch_time(atomic, H200, shared, L2(H200.figures.l2_bytes))
    assert 0 < found.parts_us[Part.ATOMICS] < found.parts_us[Part.DRAM]
    without = launch_time(plain, H200, shared, L2(H200.figures.l2_bytes))
    assert found.device_us == pytest.approx(without.device_us, rel=0.05)


def test_blocks_of_a_cluster_are_there_together() -> None:
    """With a block an SM, 132 hold 16 clusters of eight: what fills them four times takes five rounds of clusters."""
    alone = launch(4 * SMS, loads=1, shared_bytes=200_000)
    together = alone.model_copy(update={"cluster": (8, 1, 1)})
    assert device_us(together) == pytest.approx(5 / 4 * device_us(alone))
    assert refused(together, H200) is None


def test_a_cluster_for_which_there_is_no_room_is_refused() -> None:
    small = replace(H200, figures=replace(H200.figures, sms=4))
    one = launch(16, shared_bytes=200_000).model_copy(update={"cluster": (4, 2, 1)})
    reason = refused(one, small)
    assert reason is not None
    assert "a cluster of 8 blocks, of which an NVIDIA H200 holds 4" in reason


def test_one_block_cannot_saturate_memory() -> None:
    """The same bytes by one block and by many: one block has few loads in flight."""
    one = launch(1, loads=4096)
    many = launch(4096, loads=1)
    assert price(one).kernels_us > 20 * price(many).kernels_us
    assert one.traffic[0].bytes == many.traffic[0].bytes
    assert one.traffic[0].bytes / (price(one).kernels_us * 1e-6) < 0.05 * H200.figures.read_bytes_per_s


def test_one_block_more_than_a_round_takes_a_round_more() -> None:
    full = SMS * 8
    few, one, two = (parts(launch(blocks, loads=1))[Part.LATENCY] for blocks in (SMS, full, full + 1))
    assert one == pytest.approx(few)
    assert two == pytest.approx(2 * one)
    assert device_us(launch(full + 1, loads=1)) > 1.4 * device_us(launch(full, loads=1))


def test_registers_and_shared_memory_take_warps_away() -> None:
    """Fewer blocks at a time are more rounds, where latency bounds."""
    blocks = SMS * 64
    free = device_us(launch(blocks, loads=1))
    assert device_us(launch(blocks, loads=1, registers=128)) == pytest.approx(4 * free, rel=0.05)
    assert device_us(launch(blocks, loads=1, shared_bytes=100_000)) == pytest.approx(4 * free, rel=0.05)


def test_atomics_on_one_address_wait_for_each_other() -> None:
    def with_hottest(hottest: float) -> float:
        one = launch(4096, contention=Contention(hottest=hottest, all=32768))
        traffic = Traffic(buffer=0, bytes=1 << 20, atomic_requests=32768, atomic_sectors=32768)
        return parts(one.model_copy(update={"traffic": (traffic,)}))[Part.ATOMICS]

    alone, spread_out = with_hottest(32768), with_hottest(1)
    assert alone == pytest.approx(32768 / H200.figures.same_address_per_clock / H200.figures.clock_mhz)
    assert alone > 10 * spread_out


def test_nothing_overlaps_with_the_filling_of_the_gpu() -> None:
    """A block's start and the first wait for DRAM come before what the bytes take."""
    one = launch(2**16, loads=8, waits=1)
    filling = (ROUND.block_cycles + H200.figures.memory_latency_cycles) / H200.figures.clock_mhz
    assert device_us(one) == pytest.approx(filling + parts(one)[Part.DRAM], rel=0.001)


def test_blocks_of_one_warp_are_started_one_after_another() -> None:
    """The same warps in blocks of one and of eight, where an SM takes 100 cycles to start a block."""
    slow = replace(H200, figures=replace(H200.figures, start_cycles=100.0))
    many = launch(2**17).model_copy(update={"block": (32, 1, 1)})
    found, eighth = (
        launch_time(each, slow, ROUND, L2(H200.figures.l2_bytes)).parts_us[Part.STARTS]
        for each in (many, launch(2**14))
    )
    assert found == pytest.approx(100 * math.ceil(2**17 / SMS) / H200.figures.clock_mhz)
    assert found == pytest.approx(8 * eighth, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "cycles"),
    [
        ({}, 16),
        ({"lookups": 40}, 40),
        ({"missed_lines": 32}, 32),
        ({"missed_lines": 20, "sends": 12}, 22),
        ({"lookups": 12, "missed_lines": 12, "sends": 4}, 16),
    ],
)
def test_l1_takes_as_long_as_the_slowest_of_what_works_side_by_side_there(
    changed: dict[str, int], cycles: float
) -> None:
    """Wavefronts (32 of half a cycle), banks of tags, lines asked of L2, and the way there for what is stored."""
    one = launch(4096, loads=1, stride=32)
    warps = 4096 * WARPS
    (traffic,) = one.traffic
    changes = {name: count * warps for name, count in changed.items()}
    busy = parts(one.model_copy(update={"traffic": (traffic.model_copy(update=changes),)}))[Part.L1]
    of_busiest = math.ceil(4096 / SMS) * WARPS
    assert busy == pytest.approx(H200.microseconds(cycles * of_busiest))


def test_l2_takes_longer_for_single_sectors_and_for_what_is_stored() -> None:
    """A line of a load as long as two sectors of it; a stored one of four sectors as long as eight loaded ones."""
    dear = ROUND.model_copy(update={"line_sectors": 2, "stored_sectors": 1.5, "stored_line_sectors": 2})

    def l2(constants: Constants, **changes: float) -> float:
        one = launch(4096, loads=1)
        (traffic,) = one.traffic
        asked = one.model_copy(update={"traffic": (traffic.model_copy(update=changes),)})
        return launch_time(asked, H200, constants, L2(H200.figures.l2_bytes)).parts_us[Part.L2]

    lines = 4096 * WARPS
    whole = l2(ROUND, missed_lines=lines)
    assert l2(dear, missed_lines=lines) == pytest.approx(whole)
    assert l2(dear, missed_lines=4 * lines) == pytest.approx(2 * whole)
    written = {"store_sectors": 4.0 * lines, "store_lines": float(lines), "load_sectors": 0.0, "missed_sectors": 0.0}
    assert l2(dear, **written) == pytest.approx(2 * l2(ROUND, **written)) == pytest.approx(2 * whole)


def test_a_launch_that_may_start_early_waits_for_no_gap() -> None:
    """It begins when the one before it ends, and so does each of several in a row."""
    first, second = launch(2**14, loads=8), launch(2**14, loads=8, buffers=(2, 3))
    early = second.model_copy(update={"early": True})
    usual, overlapping = (price(first, each).device_us for each in (second, early))
    assert usual - overlapping == pytest.approx(H200.figures.gap_us)
    thrice = {"count": 3}
    usual, overlapping = (price(first, each.model_copy(update=thrice)).device_us for each in (second, early))
    assert usual - overlapping == pytest.approx(3 * H200.figures.gap_us)
    assert price(early).device_us == price(second).device_us


def test_a_sleep_takes_its_time() -> None:
    one = launch(SMS).model_copy(update={"slept_ns_of_warp": spread(25_000)})
    assert device_us(one) == pytest.approx(device_us(launch(SMS)) + 25, rel=0.001)


def test_shuffles_take_their_lanes() -> None:
    """On a GPU with half of the lanes they take twice as long."""
    one = launch(SMS)
    one = one.model_copy(update={"instructions": one.instructions.model_copy(update={"shuffle": 1e6})})
    slow = replace(H200, figures=replace(H200.figures, shuffle_lanes=H200.figures.shuffle_lanes / 2))
    usual, twice = (launch_time(one, gpu, ROUND, L2(H200.figures.l2_bytes)).parts_us[Part.L1] for gpu in (H200, slow))
    assert twice == pytest.approx(2 * usual, rel=0.01)


def test_a_longer_warp_is_waited_for() -> None:
    assert device_us(launch(SMS, per_warp=1000, longest=10)) > 5 * device_us(launch(SMS, per_warp=1000))


def test_a_chain_of_loads_takes_a_latency_each() -> None:
    """31 more of them are 31 more waits for DRAM, however long one is."""
    chained, together = (parts(launch(SMS, loads=32, waits=waits))[Part.LATENCY] for waits in (32, 1))
    assert chained - together == pytest.approx(31 * H200.figures.memory_latency_cycles / H200.figures.clock_mhz)
    assert device_us(launch(SMS, loads=32, waits=32)) > 5 * device_us(launch(SMS, loads=32, waits=1))


def test_the_second_launch_finds_what_the_first_left_in_l2() -> None:
    blocks = 8192  # 8 MB
    first, second = price(launch(blocks, loads=1), launch(blocks, loads=1)).launches
    assert first.moved.dram_read == blocks * 1024
    assert second.moved.dram_read == 0
    assert second.device_us < first.device_us


def test_a_buffer_beyond_l2_is_read_again() -> None:
    blocks = 2**18  # 268 MB, of an L2 of 63
    _, second = price(launch(blocks, loads=1), launch(blocks, loads=1)).launches
    assert second.moved.dram_read > 0.7 * blocks * 1024


def test_what_every_block_reads_comes_from_dram_once() -> None:
    """A matrix of 4 MB that all blocks walk through: L1 misses it each time, L2 does not."""
    one = launch(8192)
    asked = 8192 * 131_072.0
    walk = Traffic(
        buffer=0,
        bytes=4 << 20,
        load_requests=asked / 4,
        load_sectors=asked,
        missed_sectors=asked,
        footprints=tuple(replace_read(n, 131_072) for n in (1, 8, 64)),
    )
    found = launch_time(one.model_copy(update={"traffic": (walk,)}), H200, ROUND, L2(H200.figures.l2_bytes))
    assert found.moved.dram_read == 4 << 20
    assert found.bound is Part.L2


def gather(blocks: int, stretches: int = 1) -> Traffic:
    """Each block loads 32 KB from places of its own of a stretch of 128 KB; neighbours have the same stretch."""
    one, stretch = 1024, 4096
    touched = [(n, stretch * (1 - (1 - one / stretch) ** n)) for n in (1, 8)]
    return Traffic(
        buffer=0,
        bytes=32 * stretch * stretches,
        load_requests=32.0 * blocks,
        load_sectors=one * blocks,
        missed_sectors=one * blocks,
        footprints=(*(replace_read(n, read) for n, read in touched), replace_read(64, 8 * touched[1][1])),
    )


def test_blocks_that_gather_from_one_stretch_find_half_of_it_in_l1() -> None:
    """What L1 does not hold already comes in, and half of the rest hits: of 1000 blocks an SM all comes in once."""
    l1s = L1s(SMS, 256e3)
    many = moved((gather(1000 * SMS),), 1000 * SMS, 8 * SMS, L2(60e6), l1s)
    assert many.missed_sectors == pytest.approx(1024 * 1000 * SMS / 2, rel=0.01)
    # Two blocks of an SM have a quarter of a quarter in common.
    two = moved((gather(2 * SMS),), 2 * SMS, 2 * SMS, L2(60e6), l1s)
    assert two.missed_sectors == pytest.approx(1024 * 2 * SMS * (1 + 3 / 4) / 2, rel=0.01)
    # A stretch for each block of an SM, and one that L1 holds a quarter of.
    alone = moved((gather(8 * SMS, 8),), 8 * SMS, 8 * SMS, L2(60e6), l1s)
    assert alone.missed_sectors == pytest.approx(1024 * 8 * SMS)
    small = moved((gather(1000 * SMS),), 1000 * SMS, 8 * SMS, L2(60e6), replace(l1s, capacity=32e3))
    assert small.missed_sectors == pytest.approx(1024 * 1000 * SMS * 7 / 8, rel=0.03)


def test_a_gather_reads_one_stretch_after_another_from_dram() -> None:
    """Each stretch once, though 64 blocks far from each other touch several."""
    blocks = 64 * SMS
    found = moved((gather(blocks, 16),), blocks, 8 * SMS, L2(60e6))
    assert found.dram_read == pytest.approx(16 * 128 * 1024)


def test_a_third_of_l2_is_still_to_be_written_when_a_launch_ends() -> None:
    small, large = (moved(launch(n, stores=1).traffic, n, n, L2(60e6)) for n in (2**14, 2**16))
    assert small.dram_written == 0
    assert large.dram_written == pytest.approx(2**16 * 1024 - 0.3 * 60e6)


def test_spilled_registers_go_through_l2() -> None:
    """100 bytes a thread that are stored, and loaded again."""
    plain = launch(2**14, loads=1)
    spills = plain.model_copy(update={"spill_store_bytes": 100, "spill_load_bytes": 100})
    more = parts(spills)[Part.L2] - parts(plain)[Part.L2]
    assert more == pytest.approx(200 * 256 * 2**14 / H200.figures.l2_bytes_per_s * 1e6)


def test_a_barrier_makes_warps_wait_for_the_slowest() -> None:
    """Each warp has its turn at ten loads that wait for each other, and seven barriers are between the turns."""
    free = launch(SMS, loads=10, waits=10)
    instructions, waits = spread(80), spread(80)
    bound = free.model_copy(
        update={"way_of_block": Way(instructions=instructions, waits=waits, cold_waits=waits, far_waits=waits)}
    )
    more = parts(bound)[Part.LATENCY] - parts(free)[Part.LATENCY]
    expected = 70 * H200.figures.memory_latency_cycles + 7 * (10 + 10) * ROUND.cycles_per_instruction
    assert more == pytest.approx(expected / H200.figures.clock_mhz, rel=0.01)


def replace_read(blocks: int, sectors: float):  # type: ignore[no-untyped-def]
    return footprints(1.0)[0].model_copy(update={"blocks": blocks, "read": sectors})


def test_launches_that_are_shorter_than_their_enqueueing_wait_for_the_host() -> None:
    """A hundred empty kernels: the host's pace; a hundred long ones: the device's."""
    many = price(launch(1, per_warp=0).model_copy(update={"count": 100}))
    figures = H200.figures
    each = max(figures.launch_host_us, many.launches[0].device_us + figures.gap_us)
    assert many.whole_us == pytest.approx(figures.empty_call_us + 99 * each, rel=0.02)
    long = price(launch(2**18, loads=1).model_copy(update={"count": 100}))
    assert long.whole_us == pytest.approx(100 * (long.launches[0].device_us + figures.gap_us) + 8, rel=0.01)


def test_allocations_copies_and_memsets_cost_what_they_cost() -> None:
    figures = H200.figures
    bare = price(launch(1, per_warp=0)).whole_us
    large = price(Other(event="alloc", bytes=1 << 24), launch(1, per_warp=0), Other(event="free", bytes=1 << 24))
    small = price(Other(event="alloc", bytes=4), launch(1, per_warp=0), Other(event="free", bytes=4))
    assert large.whole_us == pytest.approx(bare + 2 * figures.alloc_us, abs=figures.empty_call_us)
    assert bare < small.whole_us < large.whole_us
    cleared = price(Other(event="memset", bytes=1 << 30), launch(1, per_warp=0))
    assert cleared.whole_us == pytest.approx(bare + (1 << 30) / figures.write_bytes_per_s * 1e6, rel=0.05)
    copied = price(Other(event="copy", bytes=1 << 30), launch(1, per_warp=0))
    assert copied.whole_us == pytest.approx(bare + (2 << 30) / figures.copy_bytes_per_s * 1e6, rel=0.05)


def test_copies_to_the_host_wait_for_the_device_and_cross_the_link() -> None:
    """Neither they nor what the host computes are free: a call that leaves the GPU pays for it."""
    figures = H200.figures
    bare = price(launch(1, per_warp=0)).whole_us
    back = price(launch(1, per_warp=0), Other(event="copy", bytes=4, host=True), launch(1, per_warp=0)).whole_us
    there = price(launch(1, per_warp=0), Other(event="copy", bytes=4), launch(1, per_warp=0)).whole_us
    assert there < back < 3.5 * bare
    large = price(Other(event="copy", bytes=1 << 30, host=True, count=2))
    assert large.whole_us == pytest.approx((2 << 30) / figures.host_bytes_per_s * 1e6, rel=0.01)
    busy = price(launch(1, per_warp=0), Other(event="host", instructions=3_000_000), launch(1, per_warp=0))
    assert busy.whole_us == pytest.approx(bare + 3e6 / figures.host_instructions_per_us, rel=0.02)


def test_a_call_without_a_launch_has_a_time() -> None:
    found = price(Other(event="memset", bytes=1024))
    assert found.dominating is None
    assert found.whole_us > 5


def test_the_breakdown_adds_up() -> None:
    found = price(launch(2**16, loads=2, stores=1, barriers=3))
    told = breakdown(found)
    assert told["kernels"] + told["launches, waiting and other work"] == pytest.approx(told["whole call"])
    assert max(us for name, us in told.items() if name.endswith("alone")) == pytest.approx(told["kernels"], rel=0.05)


GROWING = st.sampled_from(["loads", "stores", "instructions", "barriers", "wavefronts", "hottest", "blocks", "longest"])


@settings(deadline=None, max_examples=60)
@given(
    what=GROWING,
    blocks=st.integers(1, 20_000),
    loads=st.integers(0, 40),
    stores=st.integers(1, 8),
    overlap=st.floats(1, 8),
)
def test_more_of_anything_is_never_faster(what: str, blocks: int, loads: int, stores: int, overlap: float) -> None:
    """Twice the sectors, instructions, barriers, conflicts, contention, blocks: no constants make it pay."""
    constants = ROUND.model_copy(update={"overlap": overlap})

    def with_factor(factor: int) -> float:
        grown = dict.fromkeys(GROWING_NAMES, 1) | {what: factor}
        all_warps = blocks * grown["blocks"] * WARPS
        one = launch(
            blocks * grown["blocks"],
            loads=loads * grown["loads"],
            stores=stores * grown["stores"],
            instructions=Instructions(fma=20.0 * all_warps * grown["instructions"]),
            per_warp=20.0 * grown["instructions"],
            barriers=2 * grown["barriers"],
            shared=Shared(load_requests=all_warps, load_wavefronts=all_warps * grown["wavefronts"]),
            contention=Contention(hottest=100 * grown["hottest"], all=1000),
            longest=grown["longest"],
        )
        return device_us(one, constants)

    assert with_factor(2) >= with_factor(1) * (1 - 1e-9)


GROWING_NAMES = ("loads", "stores", "instructions", "barriers", "wavefronts", "hottest", "blocks", "longest")


@pytest.mark.parametrize("key", gpus.known())
def test_every_gpu_that_ships_can_be_modelled(key: str) -> None:
    """A copy of 1 GB reaches between a tenth and all of each one's bandwidth, not counting what stays in L2."""
    gpu = gpus.load(key)
    found = modelled(call(launch(2**19, loads=1, stores=1)), gpu, ROUND)
    rate = 2**19 * 2048 / (found.device_us * 1e-6)
    assert 0.1 * gpu.figures.copy_bytes_per_s < rate < 1.1 * gpu.figures.copy_bytes_per_s


def test_a_gpu_of_half_the_bandwidth_takes_twice_the_time() -> None:
    half = replace(H200, figures=replace(H200.figures, read_bytes_per_s=H200.figures.read_bytes_per_s / 2))
    one = call(launch(2**20, loads=8, waits=1))
    assert modelled(one, half, ROUND).device_us == pytest.approx(2 * modelled(one, H200, ROUND).device_us, rel=0.02)


def test_what_no_compiler_said_is_assumed_and_named() -> None:
    one = launch(64).model_copy(update={"registers": None, "static_shared_bytes": None})
    found = launch_time(one, H200, ROUND, L2(H200.figures.l2_bytes))
    assert found.assumed == ("32 registers per thread", "no static shared memory")
    assert spread(1).largest == 1
