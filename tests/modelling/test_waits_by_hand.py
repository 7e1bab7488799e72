"""What a launch waits for beside memory, each by hand: barriers, other blocks, fences, atomics; and warps that spin."""

from __future__ import annotations

import pytest
from counted_by_hand import PLAIN, WARPS, footprints, launch, spread

from cudamaster.modelling import gpu as gpus
from cudamaster.modelling.constants import Constants
from cudamaster.modelling.counts import Footprint, Launch, Shared, Traffic, Way
from cudamaster.modelling.launch_time import Part, launch_time
from cudamaster.modelling.memory import L2, moved

H200 = gpus.load()
FIGURES = H200.figures
SMS = int(FIGURES.sms)
ONE = launch(SMS, loads=1)


def cycles(part: Part, constants: Constants = PLAIN, like: Launch = ONE, **changes: object) -> float:
    """Of a part of a launch that differs in something from another one."""
    found = launch_time(like.model_copy(update=changes), H200, constants, L2(FIGURES.l2_bytes))
    return found.parts_us[part] * FIGURES.clock_mhz


def more(part: Part, **changes: object) -> float:
    """Cycles that it takes longer for these."""
    return cycles(part, **changes) - cycles(part)


def test_barriers_of_clusters_and_grids_have_times_of_their_own() -> None:
    of_block = FIGURES.barrier_cycles + WARPS * FIGURES.barrier_warp_cycles
    of_cluster = FIGURES.cluster_barrier_cycles + WARPS * FIGURES.cluster_barrier_warp_cycles
    assert more(Part.LATENCY, barriers=spread(3)) == pytest.approx(3 * of_block)
    kinds = {"barriers": spread(6), "cluster_barriers": spread(2), "grid_barriers": spread(1)}
    expected = 3 * of_block + 2 * of_cluster + FIGURES.grid_barrier_cycles
    assert more(Part.LATENCY, **kinds) == pytest.approx(expected)


def test_waits_for_other_blocks_and_fences_take_their_latencies() -> None:
    assert more(Part.LATENCY, remote_waits_of_warp=spread(5)) == pytest.approx(5 * FIGURES.remote_latency_cycles)
    assert more(Part.LATENCY, fences=spread(2)) == pytest.approx(2 * FIGURES.fence_cycles)
    assert more(Part.LATENCY, tickets=spread(2)) == pytest.approx(2 * FIGURES.ticket_cycles)


def test_requests_to_other_blocks_pass_one_after_another() -> None:
    """Of each SM, that is: it has a block with 100 of them."""
    remote = Shared(remote_load_requests=80 * SMS, remote_store_requests=10 * SMS, remote_atomic_requests=10 * SMS)
    assert more(Part.L1, shared=remote) == pytest.approx(100 * FIGURES.remote_cycles)


def test_a_launch_is_over_when_its_atomics_are() -> None:
    """Or, of a barrier of the grid, which is made of them; others wait for no answer."""
    late = PLAIN.model_copy(update={"answer_cycles": 750})
    atomic = Traffic(buffer=7, bytes=4096, atomic_requests=1, atomic_sectors=1)
    for changes, answer in (
        ({}, 0),
        ({"traffic": (*ONE.traffic, atomic)}, 750),
        ({"grid_barriers": spread(1), "barriers": spread(1)}, 750),
    ):
        found = cycles(Part.LATENCY, late, **changes) - cycles(Part.LATENCY, **changes)
        assert found == pytest.approx(answer, abs=1e-6), changes


def test_a_copy_in_bulk_takes_a_part_of_what_l2_takes_for_loads() -> None:
    cheap = PLAIN.model_copy(update={"bulk_share": 0.25})
    bulk = (Traffic(buffer=0, bytes=2**20, bulk_read_sectors=2**15),)
    assert cycles(Part.L2, cheap, traffic=bulk) == pytest.approx(cycles(Part.L2, traffic=bulk) / 4)
    assert cycles(Part.L2, cheap) == cycles(Part.L2)


def test_what_warps_execute_beside_is_for_the_integer_pipe_too() -> None:
    """17 instructions of each of eight warps an SM, of which 192 lanes of two pipes take six a cycle."""
    beside = PLAIN.model_copy(update={"instructions_beside": 17})
    lanes = (FIGURES.fp32_lanes + FIGURES.integer_lanes) / 32
    assert cycles(Part.ARITHMETIC, beside) - cycles(Part.ARITHMETIC) == pytest.approx(17 * WARPS / lanes)


def test_atomics_are_a_queue_and_not_one_of_the_parts_that_are_joined() -> None:
    """Even where all others add up: what takes two fifths of the time makes a launch no longer."""
    sums = PLAIN.model_copy(update={"overlap": 1})
    plain = launch(2**14, loads=8)
    atomic = Traffic(buffer=7, bytes=2**26, atomic_requests=1, atomic_sectors=4e6)
    queued = plain.model_copy(update={"traffic": (*plain.traffic, atomic)})
    without, found = (launch_time(one, H200, sums, L2(FIGURES.l2_bytes)) for one in (plain, queued))
    assert 0.2 * found.device_us < found.parts_us[Part.ATOMICS] < found.device_us
    assert found.device_us == pytest.approx(without.device_us, rel=0.02)


def test_lanes_that_read_their_sectors_one_after_another_find_each_second_in_l2() -> None:
    """DRAM gives two sectors at once: of 32 waits for a sector of a line 16 are for DRAM, and a single one is."""
    chained, together = (cycles(Part.LATENCY, like=launch(SMS, loads=32, waits=waits, stride=32)) for waits in (32, 1))
    beyond = FIGURES.memory_latency_cycles - FIGURES.l2_latency_cycles
    assert chained - together == pytest.approx(31 * FIGURES.l2_latency_cycles + 15 * beyond)


def test_a_wait_for_several_lines_is_for_dram_if_one_of_them_is() -> None:
    """Four lines together, and all blocks want the same 128 sectors: DRAM gives them once, and L2 to the others."""
    plain = launch(4, loads=4, waits=1)
    common = tuple(Footprint(blocks=n, read=128, written=0) for n in (1, 8, 64))
    (traffic,) = plain.traffic
    shared = plain.model_copy(update={"traffic": (traffic.model_copy(update={"footprints": common}),)})
    two, three = (
        cycles(Part.LATENCY, like=shared, far_waits_of_warp=spread(1, far), cold_waits_of_warp=spread(1, 3))
        for far in (2, 3)
    )
    assert moved(shared.traffic, 4, 4, L2(FIGURES.l2_bytes)).dram_read == 128 * 32
    part = 1 - (1 - 1 / 4) ** 4
    assert three - two == pytest.approx(part * (FIGURES.memory_latency_cycles - FIGURES.l2_latency_cycles))


def test_warps_of_a_block_wait_for_a_part_of_what_l1_does_for_all_of_them() -> None:
    """A block a SM: 32 cycles for each of its warps' requests to 32 lines."""
    together = PLAIN.model_copy(update={"in_step": 0.5})
    one = launch(SMS, loads=8, waits=2, stride=32)
    (traffic,) = one.traffic
    looked_up = {"traffic": (traffic.model_copy(update={"lookups": 32.0 * 8 * SMS * WARPS}),)}
    found = cycles(Part.LATENCY, together, like=one, **looked_up) - cycles(Part.LATENCY, like=one, **looked_up)
    assert found == pytest.approx(0.5 * 32 * 8 * WARPS)


def test_what_is_new_to_no_block_comes_from_l2() -> None:
    """Two of four waits ask for a pair of sectors of which the block has had nothing, and all of that is in DRAM."""
    one = launch(SMS, loads=4, waits=4)
    halves = cycles(Part.LATENCY, like=one, far_waits_of_warp=spread(2))
    whole = cycles(Part.LATENCY, like=one, far_waits_of_warp=spread(4))
    assert whole - halves == pytest.approx(2 * (FIGURES.memory_latency_cycles - FIGURES.l2_latency_cycles))


def test_a_warp_that_spins_waits_for_one_whose_way_is_counted() -> None:
    """It asks thousands of times for what it has had. Fifteen times as many waits as the mean are no such thing."""
    spinning = spread(1, 5000)
    assert more(Part.LATENCY, waits_of_warp=spinning) == 0
    once = spread(1)
    way = Way(instructions=spread(10), waits=spread(300, 5000), cold_waits=once, far_waits=once)
    assert more(Part.LATENCY, waits_of_warp=spinning, way_of_block=way) == 0
    found = more(Part.LATENCY, waits_of_warp=spread(1, 15))
    assert found == pytest.approx(14 * FIGURES.l1_latency_cycles)
    # Each of so many may ask for something new: a long way, and no spinning.
    assert more(Part.LATENCY, waits_of_warp=spinning, cold_waits_of_warp=spread(1, 50)) > 0


def test_waves_that_sweep_a_buffer_three_times_read_it_anew_each_time() -> None:
    """Eight waves are a sweep of twice L2. Sixteen of them share edges alone; 64 find nothing of the last sweep."""
    sectors = 2 * 2**20 / 32 / 64

    def sweeps_read(blocks: int) -> float:
        one = Traffic(
            buffer=0,
            bytes=2 * 2**20,
            load_sectors=blocks * sectors,
            missed_sectors=blocks * sectors,
            footprints=footprints(sectors),
        )
        return moved([one], blocks, 8, L2(2**20)).dram_read / 2**21

    assert sweeps_read(128) == pytest.approx(1)
    assert sweeps_read(512) == pytest.approx(8)


def test_l2_keeps_less_and_less_of_what_does_not_fit() -> None:
    """Waves that come to one buffer again and again: all of it stays where it fits, half where a quarter more does not,
    nothing from half as much more on."""

    def read_again(times_l2: float) -> float:
        blocks, in_flight = 8192, 1024
        sectors = times_l2 * 2**20 / 32  # of a buffer that each block walks through
        one = Traffic(
            buffer=0,
            bytes=int(sectors * 32),
            load_sectors=blocks * sectors,
            missed_sectors=blocks * sectors,
            footprints=tuple(
                ONE.traffic[0].footprints[0].model_copy(update={"blocks": n, "read": sectors}) for n in (1, 8)
            ),
        )
        found = moved([one], blocks, in_flight, L2(2**20))
        return (found.dram_read / (sectors * 32) - 1) / (blocks / in_flight - 1)

    assert read_again(0.9) == pytest.approx(0, abs=1e-6)
    assert read_again(1.25) == pytest.approx(0.5)
    assert read_again(1.5) == pytest.approx(1)


def test_what_is_written_in_each_wave_goes_to_dram_each_time_if_l2_has_no_room() -> None:
    def written(size: int) -> float:
        one = Traffic(
            buffer=0,
            bytes=size,
            store_sectors=8 * size / 32,
            footprints=tuple(
                ONE.traffic[0].footprints[0].model_copy(update={"blocks": n, "read": 0, "written": size / 32})
                for n in (1, 8)
            ),
        )
        return moved([one], 8192, 1024, L2(2**20)).dram_written + 0.3 * 2**20

    assert written(2**19) == pytest.approx(max(2**19, 0.3 * 2**20))
    assert written(2**21) == pytest.approx(8 * 2**21)
