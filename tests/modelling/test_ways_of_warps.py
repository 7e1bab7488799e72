"""Terms of the model one at a time, by hand: the way of a warp, what fills the GPU, and what L2 no longer holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from counted_by_hand import WARPS, launch, spread
from test_gpu_model import H200, ROUND, SMS, device_us, gather, parts, replace_read

from cudamaster.modelling import launch_time as times
from cudamaster.modelling import memory
from cudamaster.modelling.counts import Contention, Footprint, Instructions, Launch, Shared, Traffic, Way
from cudamaster.modelling.launch_time import Part, launch_time
from cudamaster.modelling.memory import L2, L1s, Moved, moved

MHZ = H200.figures.clock_mhz
ATOMIC = Traffic(buffer=7, bytes=2**26, atomic_requests=1, atomic_sectors=1)


def with_(one: Launch, **changes: object) -> Launch:
    return one.model_copy(update=changes)


def latency_cycles(one: Launch, **figures: float) -> float:
    """Cycles of the part latency."""
    gpu = replace(H200, figures=replace(H200.figures, **figures))
    return launch_time(one, gpu, ROUND, L2(H200.figures.l2_bytes)).parts_us[Part.LATENCY] * MHZ


def test_a_launch_with_atomics_ends_with_the_last_of_them() -> None:
    """So does one with a barrier of the grid. Clusters and cooperative launches start as soon as others do."""
    dear = ROUND.model_copy(update={"answer_cycles": 10_000})
    plain = launch(SMS * 2)
    assert device_us(plain, dear) == device_us(plain)
    for changes in ({"traffic": (ATOMIC,)}, {"cooperative": True, "grid_barriers": spread(1), "barriers": spread(1)}):
        special = with_(plain, **changes)
        assert device_us(special, dear) - device_us(special) == pytest.approx((10_000 - ROUND.answer_cycles) / MHZ)
    assert device_us(with_(plain, cluster=(2, 1, 1), cooperative=True)) == device_us(plain)


def test_a_barrier_costs_more_with_more_warps() -> None:
    one = launch(SMS, barriers=10)
    more = latency_cycles(one, barrier_warp_cycles=5) - latency_cycles(launch(SMS))
    assert more == pytest.approx(10 * (30 + 5 * WARPS))


def test_barriers_of_clusters_and_of_the_grid_cost_what_they_cost() -> None:
    """Of ten barriers three are the cluster's, whose warps come one after another too, and two the grid's."""
    one = with_(launch(SMS, barriers=10), cluster_barriers=spread(3), grid_barriers=spread(2))
    figures = {"cluster_barrier_cycles": 300.0, "cluster_barrier_warp_cycles": 10.0, "grid_barrier_cycles": 2000.0}
    more = latency_cycles(one, **figures) - latency_cycles(launch(SMS))
    answers = ROUND.answer_cycles  # the grid's are atomics
    assert more == pytest.approx(5 * 30 + 3 * (300 + 10 * WARPS) + 2 * 2000 + answers)


def test_another_blocks_shared_memory_is_waited_for_and_takes_its_turns() -> None:
    """Four waits of the longest warp; a warp's request there takes as long as eight and a half to the own."""
    plain = launch(SMS)
    waits = with_(plain, remote_waits_of_warp=spread(2, 4))
    assert latency_cycles(waits) - latency_cycles(plain) == pytest.approx(4 * H200.figures.remote_latency_cycles)
    way = Way(
        instructions=spread(10), waits=spread(0), cold_waits=spread(0), far_waits=spread(0), remote_waits=spread(3, 7)
    )
    assert latency_cycles(with_(plain, way_of_block=way)) - latency_cycles(plain) == pytest.approx(
        7 * H200.figures.remote_latency_cycles
    )
    asked = Shared(remote_load_requests=1e6, remote_store_requests=2e6, remote_atomic_requests=3e6)
    cycles = 6e6 * H200.figures.remote_cycles / SMS
    assert parts(with_(plain, shared=asked))[Part.L1] * MHZ == pytest.approx(cycles)


def test_a_fence_holds_a_warp_up() -> None:
    fenced = with_(launch(SMS), fences=spread(1, 10))
    assert latency_cycles(fenced, fence_cycles=500) - latency_cycles(launch(SMS)) == pytest.approx(5000)


def test_multiply_adds_are_issued_one_a_cycle_and_others_at_their_pace() -> None:
    kinds = {"fma": 1, "fp32": 1, "integer": 4, "special": 4}
    for kind, pace in kinds.items():
        one = launch(SMS, instructions=Instructions(**{kind: 1000 * SMS * WARPS}), per_warp=1000)
        assert latency_cycles(one) - latency_cycles(launch(SMS, per_warp=0)) == pytest.approx(1000 * pace), kind


def test_instructions_that_wait_for_each_other_take_their_chain() -> None:
    """As long as it is longer than issuing them: ten instructions of four cycles."""
    one = launch(SMS, per_warp=10)
    chained = with_(one, chained_cycles=1000 * SMS * WARPS)
    assert latency_cycles(chained) - latency_cycles(one) == pytest.approx(1000 - 10 * 4)
    assert latency_cycles(with_(one, chained_cycles=30 * SMS * WARPS)) == latency_cycles(one)


def test_warps_of_a_block_come_to_tensor_cores_together() -> None:
    """Ten products and 30 wavefronts of factors a warp, on four tensor cores."""
    warps, barriers, together = SMS * WARPS, 2, WARPS
    plain = launch(SMS, barriers=barriers, instructions=Instructions(integer=10 * warps))
    one = with_(
        plain,
        instructions=Instructions(integer=10 * warps, matrix=10 * warps),
        shared=Shared(load_wavefronts=30 * warps),
    )
    of_core = 2 * 16**3 / (H200.figures.matrix_operations / 4)
    expected = 30 * together + 10 * of_core * max(1, together / 4)
    assert latency_cycles(one) - latency_cycles(plain) == pytest.approx(expected)


def test_a_warp_that_spins_is_not_waited_for() -> None:
    """It asks 10,000 times for what it has had; one that asks for something else each time is waited for."""
    one = with_(launch(SMS), waits_of_warp=spread(10, 10_000), cold_waits_of_warp=spread(1, 1))
    even = with_(one, waits_of_warp=spread(10))
    assert latency_cycles(one) == latency_cycles(even)
    way = Way(instructions=spread(5000, 9000), waits=spread(5000, 10_000), cold_waits=spread(1), far_waits=spread(1))
    assert latency_cycles(with_(one, way_of_block=way)) == latency_cycles(even)
    busy = with_(one, cold_waits_of_warp=spread(1, 100))
    assert latency_cycles(busy) > latency_cycles(even) + 9000 * H200.figures.l1_latency_cycles


def test_a_wait_for_many_lines_ends_with_the_last_of_them() -> None:
    """Half of the lines come from DRAM: of waits for one line half wait for it, of those for two three quarters."""
    near, far = H200.figures.l2_latency_cycles, H200.figures.memory_latency_cycles
    one = launch(SMS, loads=1, waits=1)
    sectors = 4 * SMS * WARPS
    half = Moved(l2_read=32 * sectors, l2_written=0, dram_read=16 * sectors, dram_written=0, missed_sectors=sectors)
    assert times._cold_latency(one, H200, half) == pytest.approx((near + far) / 2)
    two = with_(one, traffic=tuple(with_lines(each, 2 * each.lines) for each in one.traffic))
    assert times._cold_latency(two, H200, half) == pytest.approx(near + 3 / 4 * (far - near))


def with_lines(traffic: Traffic, lines: float) -> Traffic:
    return traffic.model_copy(update={"lines": lines})


def test_one_warp_of_an_sm_has_one_scheduler() -> None:
    one = with_(launch(SMS, per_warp=1000), block=(32, 1, 1))
    assert parts(one)[Part.ISSUE] == pytest.approx(4 * parts(launch(SMS, per_warp=1000))[Part.ISSUE])


def test_requests_to_global_memory_count_with_their_addresses() -> None:
    dear = ROUND.model_copy(update={"instructions_of_request": 3})
    one = launch(SMS, loads=4, stores=1)
    found = launch_time(one, H200, dear, L2(H200.figures.l2_bytes)).instructions
    assert found - 10 * SMS * WARPS == pytest.approx(3 * 5 * SMS * WARPS)


def test_crowded_lines_of_atomics_are_at_most_two_and_a_half_times_as_slow() -> None:
    """A million on 1024 lines."""
    sectors = Footprint(blocks=64, read=4096, written=4096)
    traffic = Traffic(buffer=0, bytes=2**17, atomic_requests=1e5, atomic_sectors=1e6, footprints=(sectors,))
    one = with_(launch(4096, contention=Contention()), traffic=(traffic,))
    figures = H200.figures
    expected = 1e6 * (1 / figures.atomic_sectors_per_clock + 2.5 / 1024 / figures.same_address_per_clock)
    assert parts(one)[Part.ATOMICS] * MHZ == pytest.approx(expected)


def test_spilled_registers_take_wavefronts_of_l1() -> None:
    """200 bytes a thread, on all SMs side by side."""
    plain = launch(SMS * 64)
    spills = with_(plain, spill_store_bytes=100, spill_load_bytes=100)
    more = parts(spills)[Part.L1] - parts(plain)[Part.L1]
    assert more * MHZ == pytest.approx(ROUND.wavefront_cycles * 200 * 256 * 64 / 128)


def test_reading_and_writing_together_have_a_bandwidth_of_their_own() -> None:
    one = launch(2**18, loads=1, stores=1)
    found = launch_time(one, H200, ROUND, L2(H200.figures.l2_bytes))
    bytes_moved = found.moved.dram_read + found.moved.dram_written
    assert found.parts_us[Part.DRAM] == pytest.approx(bytes_moved / H200.figures.copy_bytes_per_s * 1e6)


def test_l1_is_what_the_shared_memory_of_all_blocks_of_an_sm_leaves() -> None:
    one = launch(SMS * 4, shared_bytes=20 * 1024)
    shape, _ = times._shape(one, H200, ROUND)
    reserved = H200.figures.reserved_shared_bytes
    assert times._l1s(one, H200, shape).capacity == H200.figures.l1_bytes - 4 * (20 * 1024 + reserved)


def sweeping(overlap: float, blocks: int, *, written: bool = False) -> Traffic:
    """Blocks touch `overlap` times as much as there is, neighbours the same, in 100 waves of all blocks."""
    of_one = 1000.0
    ends = ((1, of_one), (blocks, of_one * blocks * blocks_share(overlap, blocks)))
    return Traffic(
        buffer=0,
        bytes=2**40,
        load_requests=0 if written else blocks,
        load_sectors=0 if written else 100 * of_one * blocks,
        missed_sectors=0 if written else 100 * of_one * blocks,
        store_sectors=100 * of_one * blocks if written else 0,
        footprints=tuple(Footprint(blocks=n, read=0 if written else s, written=s if written else 0) for n, s in ends),
    )


def blocks_share(overlap: float, blocks: int) -> float:
    """Of what all blocks touch, the part that is distinct, by a power law that has `overlap` at 100 waves."""
    return float(overlap ** -(math.log(blocks) / math.log(100)))


def test_waves_that_come_again_and_again_read_what_l2_has_lost() -> None:
    """Of a buffer a quarter larger than L2 half is gone; edges of neighbouring waves are still there."""
    blocks, in_flight = 100 * 1000, 1000
    for overlap, again in ((2, 0.0), (5, 0.5)):
        traffic = sweeping(overlap, blocks)
        once = traffic.footprints[-1].read * 32
        found = moved((traffic,), blocks, in_flight, L2(once / 1.25))
        assert found.dram_read == pytest.approx(once + again * (overlap - 1) * once, rel=1e-6), overlap


def test_waves_that_write_again_and_again_write_what_l2_has_lost() -> None:
    blocks = 100 * 1000
    traffics = (sweeping(5, blocks), sweeping(5, blocks, written=True).model_copy(update={"buffer": 1}))
    once = traffics[0].footprints[-1].read * 32
    found = moved(traffics, blocks, 1000, L2(once / 100))
    assert found.dram_written == pytest.approx(5 * once - 0.3 * once / 100, rel=1e-6)


def test_blocks_that_load_much_of_it_again_gather_nothing() -> None:
    """The counts know what such a block finds in its L1, be it nothing."""
    blocks = 1000 * SMS
    traffic = gather(blocks)
    for missed in (1.0, 3.2):
        changes = {"load_sectors": 3.2 * traffic.load_sectors, "missed_sectors": missed * traffic.missed_sectors}
        again = traffic.model_copy(update=changes)
        found = moved((again,), blocks, 8 * SMS, L2(60e6), L1s(SMS, 256e3))
        assert found.missed_sectors == pytest.approx(again.missed_sectors)


@pytest.mark.parametrize("times", [2, 20, 1000])
def test_the_stretch_of_a_gather_follows_from_what_one_and_eight_blocks_touch(times: int) -> None:
    """A stretch that is so many times as long as what eight blocks touch; after its blocks the next one comes."""
    one, blocks = 16.0, 10_000
    stretch = times * 8 * one
    touched = {n: stretch * (1 - (1 - one / stretch) ** n) for n in (1, 8)}
    traffic = Traffic(
        buffer=0,
        bytes=2**40,
        load_sectors=one * blocks,
        missed_sectors=one * blocks,
        footprints=(*(Footprint(blocks=n, read=each, written=0) for n, each in touched.items()),
                    Footprint(blocks=blocks, read=5 * stretch, written=0)),
    )  # fmt: skip
    found = memory._gather(traffic, blocks, ROUND)
    assert found is not None
    assert found.stretch == pytest.approx(stretch, rel=1e-3)
    assert found.blocks == pytest.approx(blocks / 5, rel=1e-3)
    assert found.touched(3 * found.blocks) == pytest.approx(3 * found.touched(found.blocks))


def test_where_no_sm_has_two_blocks_of_a_gather_nobody_finds_anything_of_another_one() -> None:
    traffic = gather(SMS // 2)
    found = moved((traffic,), SMS // 2, SMS // 2, L2(60e6), L1s(SMS, 256e3))
    assert found.missed_sectors == traffic.missed_sectors


def test_no_more_comes_from_dram_than_is_asked_for() -> None:
    """A footprint between those that were counted is an estimate."""
    traffic = gather(64).model_copy(update={"missed_sectors": 100.0})
    assert moved((traffic,), 64, 64, L2(60e6)).dram_read == 100 * 32


def test_what_a_block_finds_itself_is_not_found_once_more_of_others() -> None:
    """Half of the loads hit in all, and a fifth of them without the others."""
    blocks = 1000 * SMS
    traffic = gather(blocks)
    own = traffic.model_copy(update={"missed_sectors": 0.8 * traffic.load_sectors})
    found = moved((own,), blocks, 8 * SMS, L2(60e6), L1s(SMS, 256e3))
    assert found.missed_sectors == pytest.approx(0.5 * traffic.load_sectors, rel=1e-3)


def test_a_wave_of_a_gather_reads_no_more_than_was_counted() -> None:
    one, counted = gather(64), 3000.0
    few = one.model_copy(update={"footprints": (*one.footprints[:2], replace_read(64, counted))})
    found = memory._gather(few, 64, ROUND)
    assert found is not None
    assert 32 * found.touched(64) > 32 * counted
    assert memory._wave(few, 64, found) == 32 * counted


def test_no_power_law_is_steeper_than_that_of_blocks_that_share_nothing() -> None:
    traffic = Traffic(buffer=0, bytes=2**30, footprints=(replace_read(1, 10), replace_read(8, 160)))
    assert memory._touched(traffic, 64, memory._read) == 32 * 8 * 160
    fewer = Traffic(buffer=0, bytes=2**30, footprints=(replace_read(1, 10), replace_read(8, 5)))
    assert memory._touched(fewer, 64, memory._read) == 32 * 5


def test_l2_loses_the_oldest_first_and_no_more_than_it_has_to() -> None:
    l2 = L2(100)
    for buffer, touched in ((0, 50), (1, 40), (2, 60)):
        l2.touch(buffer, touched)
    assert [l2.holds(buffer) for buffer in range(3)] == [0, 40, 60]
    l2.touch(1, 10)  # it is still there as a whole
    assert l2.holds(1) == 40
    l2.touch(3, 20)
    assert [l2.holds(buffer) for buffer in (1, 2, 3)] == [40, 40, 20]


def test_no_more_than_all_comes_from_dram() -> None:
    assert Moved(l2_read=10, l2_written=0, dram_read=20, dram_written=0).missed_share == 1
    assert Moved(l2_read=0, l2_written=0, dram_read=20, dram_written=0).missed_share == 0


def test_loads_from_shared_memory_are_on_their_way_together() -> None:
    """Ten of each warp, four at a time; each is an instruction, too."""
    loads = with_(launch(SMS), shared=Shared(load_requests=10 * WARPS * SMS))
    assert (ROUND.loads_in_flight, ROUND.cycles_per_instruction) == (4, 4)
    expected = 10 / 4 * H200.figures.shared_latency_cycles + 10 * 4
    assert latency_cycles(loads) - latency_cycles(launch(SMS)) == pytest.approx(expected)
