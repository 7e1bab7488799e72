"""Holds counts of a traced build to what small kernels do by construction, worked out by hand."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from made_once import made_once
from traced_program import traced_program

from cudamaster.devices.cpu import flow, instructions
from cudamaster.devices.process import run_limited
from cudamaster.modelling import gpu
from cudamaster.modelling.counts import CallCounts, Launch, Other
from cudamaster.modelling.folding import usage_of
from cudamaster.modelling.tracing import NoTrace, recorded
from cudamaster.profiling.ptxas import Usage

CALLS = (
    "copy",
    "every second",
    "every 32nd",
    "shifted",
    "tail",
    "broadcast",
    "vectors",
    "shared",
    "shared, stride 2",
    "shared, stride 32",
    "transposed",
    "transposed, padded",
    "atomics on one address",
    "atomics on many addresses",
    "half a warp",
    "one of two paths",
    "rows of all lengths",
    "barriers",
    "barriers without the last thread",
    "shuffles",
    "product",
    "a product of fragments",
    "101 products of fragments",
    "bf16",
    "exp",
    "device variable",
    "functions of the library",
    "large copy",
    "prefix sums",
    "long threads",
    "cooperative",
    "several events",
    "host",
    "rows",
    "second group",
    "second group, sums",
    "second group, sums and questions",
    "waiting",
    "long cooperative",
    "waiting for the first",
    "fences, launched early",
    "passed by value",
    "sleeps",
    "turns",
    "sleeps behind questions",
    "work between sleeps",
    "sums between sleeps",
    "integers between sleeps",
    "behind a branch",
    "behind a store",
    "tickets",
    "additions",
    "ones",
    "twos",
    "ones with answers",
    "copies of known sizes",
    "a spin",
    "a spin with sleeps",
    "a spin that looks at memory",
    "a spin by clock()",
    "sums of long integers",
    "products of long integers",
    "a copy at a time",
    "a ring of three copies",
    "filled behind a branch",
    "a search",
    "a scan",
    "signed steps",
    "unsigned steps",
    "passes left alone",
    "pieces of two bytes",
    "pieces of four bytes",
    "a sector after the other",
    "work from a common counter",
    "waiting for left out",
)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """traced_kernels.cu, traced."""
    return traced_program(tmp_path_factory, "traced_kernels.cu")


def counted(program: Path, wanted: gpu.Gpu) -> Mapping[str, CallCounts | NoTrace]:
    """Counts of each call of a program."""
    found = recorded(
        lambda notes: run_limited(
            [str(program)], 120, environment={"CUDAMASTER_CPU_TRACE": str(notes.fileno())}, held=[notes.fileno()]
        ),
        program,
        CALLS,
        wanted,
    )
    return dict(zip(CALLS, found, strict=True))


@pytest.fixture(scope="session")
def calls(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CallCounts | NoTrace]:
    """Counts of each call of traced_kernels.cu."""

    def count(folder: Path) -> None:
        (folder / "counts").write_bytes(pickle.dumps(counted(program, gpu.load())))

    folder = made_once(tmp_path_factory, "traced-counts", count)
    return cast("Mapping[str, CallCounts | NoTrace]", pickle.loads((folder / "counts").read_bytes()))


def only(calls: Mapping[str, CallCounts | NoTrace], name: str) -> Launch:
    """The one launch of a call."""
    found = calls[name]
    assert isinstance(found, CallCounts), found
    (launch,) = found.events
    assert isinstance(launch, Launch)
    return launch


def traced(launch: Launch) -> int:
    """Blocks in the sample: so many touch what the last point of a footprint says."""
    return max(point.blocks for traffic in launch.traffic for point in traffic.footprints)


def loads(launch: Launch) -> tuple[float, float, float]:
    return (
        sum(traffic.load_requests for traffic in launch.traffic),
        sum(traffic.load_sectors for traffic in launch.traffic),
        sum(traffic.missed_sectors for traffic in launch.traffic),
    )


def stores(launch: Launch) -> tuple[float, float]:
    return (
        sum(traffic.store_requests for traffic in launch.traffic),
        sum(traffic.store_sectors for traffic in launch.traffic),
    )


def test_what_a_function_is_given_by_value_is_read(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Also where the text asks that it be not inlined, as the compiler makes no call-out for such a read."""
    assert loads(only(calls, "passed by value")) == loads(only(calls, "vectors"))


def test_blocks_that_take_work_from_a_counter_share_it(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """The first block runs before the others and takes all 528 units; on a GPU each of 264 has two."""
    launch = only(calls, "work from a common counter")
    units, sectors = 528, 1024 * 4 / 32
    assert loads(launch)[1] == units * sectors
    assert stores(launch)[1] == units * sectors
    whole = launch.instructions_of_warp.mean * 2 * 264
    # Those of a basic block are rounded up there.
    assert whole == pytest.approx(sum(launch.instructions.model_dump(exclude={"active_share"}).values()), rel=0.15)
    written = next(each for each in launch.traffic if each.store_sectors)
    assert [(point.blocks, point.written) for point in written.footprints] == [(1, 2 * sectors), (264, 528 * sectors)]


@pytest.mark.parametrize(
    ("name", "instructions", "cycles"), [("sums of long integers", 4, 15), ("products of long integers", 4, 15)]
)
def test_arithmetic_of_64_bits_costs_what_a_gpu_makes_of_it(
    calls: Mapping[str, CallCounts | NoTrace], name: str, instructions: int, cycles: int
) -> None:
    """A thousand times a sum and a mask of two instructions each, or a product of four; one needs the other."""
    launch = only(calls, name)
    assert instructions * 1000 <= launch.instructions.integer <= (instructions + 1) * 1000
    assert launch.chained_cycles >= cycles * 1000


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("filled behind a branch", 16 / 4),
        ("a search", 10),
        ("a scan", 13),
        ("signed steps", 3),
        ("unsigned steps", 12),
        ("passes left alone", 12),
        ("pieces of two bytes", 2),
        ("pieces of four bytes", 1),
    ],
)
def test_loads_are_on_their_way_together_where_a_gpus_compiler_has_them_so(
    calls: Mapping[str, CallCounts | NoTrace], name: str, waits: float
) -> None:
    """Predicates leave a loop one block, which is unrolled, and shared memory is not where it loads from. But a search
    has its addresses from what it loads, a scan does not know whether it goes on, unsigned numbers may wrap around, and
    a text may ask for passes as they are. Where pieces of registers meet whole ones, these are split at once."""
    waits_of_warp = only(calls, name).waits_of_warp
    assert waits_of_warp is not None
    assert waits_of_warp.mean == waits


@pytest.mark.parametrize(("name", "waits"), [("a copy at a time", 12), ("a ring of three copies", 4)])
def test_copies_that_are_on_their_way_together_are_waited_for_once(
    calls: Mapping[str, CallCounts | NoTrace], name: str, waits: int
) -> None:
    """Twelve steps: of a ring of three stages each is begun three waits before its own."""
    launch = only(calls, name)
    assert launch.way_of_block is not None
    assert loads(launch)[0] == 4 * 2 * 12
    assert launch.waits_of_warp.mean == launch.cold_waits_of_warp.mean == waits
    assert launch.way_of_block.waits.largest == launch.way_of_block.cold_waits.largest == waits


def test_a_wait_for_the_other_half_of_a_pair_is_not_for_dram(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Four sectors of each lane's line are two pairs. Each of the loads misses in all 32 lines, and waits."""
    launch = only(calls, "a sector after the other")
    assert launch.way_of_block is not None
    assert launch.far_waits_of_warp is not None
    assert launch.way_of_block.far_waits is not None
    assert launch.waits_of_warp.mean == launch.cold_waits_of_warp.mean == launch.way_of_block.cold_waits.mean == 4
    assert launch.far_waits_of_warp.mean == launch.way_of_block.far_waits.largest == 2
    (read,) = (each for each in launch.traffic if each.load_requests)
    assert read.missed_lines == read.missed_sectors == read.lines == 4 * 2 * 4 * 32


@pytest.mark.parametrize(
    ("name", "lines", "lookups", "sends"),
    [("copy", 1, 1, 4), ("vectors", 4, 1, 16), ("every 32nd", 32, 8, 4), ("broadcast", 1, 1, 4)],
)
def test_lines_are_looked_up_four_at_once_and_sectors_leave_one_by_one(
    calls: Mapping[str, CallCounts | NoTrace], name: str, lines: int, lookups: int, sends: int
) -> None:
    """Each of 32 warps loads from so many lines and stores to as many as neighbours do."""
    launch = only(calls, name)
    stored = 4 if name == "vectors" else 1
    assert sum(each.lines for each in launch.traffic) == 32 * (lines + stored)
    assert sum(each.store_lines for each in launch.traffic) == 32 * stored
    assert sum(each.lookups for each in launch.traffic) == 32 * (lookups + 1)
    assert sum(each.sends for each in launch.traffic) == 32 * sends


def test_what_is_written_in_part_leaves_with_a_mask(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """The last four lanes of 900 write half of a sector. An addition to one word of a line leaves at once."""
    assert sum(each.sends for each in only(calls, "tail").traffic) == 28 * 4 + 1 + 1
    launch = only(calls, "atomics on many addresses")
    assert sum(each.sends for each in launch.traffic) == 64 * 4 * 5


def test_sleeps_count(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Each by itself and a millisecond at most; who sleeps until another thread has written does so once."""
    slept = only(calls, "sleeps").slept_ns_of_warp
    assert (slept.largest, slept.mean) == (1e6, (1e6 + 4 * 1500) / 8)
    assert only(calls, "waiting").slept_ns_of_warp.largest <= 100
    assert only(calls, "copy").slept_ns_of_warp.largest == 0
    assert only(calls, "sleeps behind questions").slept_ns_of_warp.largest == 300 + 500 + 200
    assert loads(only(calls, "sleeps behind questions"))[0] <= 2 + 3
    work = only(calls, "work between sleeps")
    assert work.instructions_of_warp.largest > 200 * 100
    assert sum(traffic.atomic_requests for traffic in work.traffic) == 200
    # Of its passes a few count: it asks again for as long as this host lets it.
    assert only(calls, "waiting for the first").traffic[1].load_requests < 10 * 2**14
    assert only(calls, "sleeps behind questions").instructions_of_warp.largest < 50
    # A loop may also work in each pass.
    assert only(calls, "sums between sleeps").instructions.fma == 100 * 64
    assert only(calls, "integers between sleeps").instructions.integer >= 100 * 64


@pytest.mark.slow(but=["every second-256"])
@pytest.mark.parametrize(
    ("name", "sectors"),
    [("copy", 128), ("every second", 256), ("every 32nd", 1024), ("shifted", 160), ("broadcast", 32), ("vectors", 512)],
)
def test_sectors_of_requests(calls: Mapping[str, CallCounts | NoTrace], name: str, sectors: int) -> None:
    """32 warps with a load each: 4 sectors next to each other, 8 at every second float, one a lane at every 32nd."""
    launch = only(calls, name)
    assert loads(launch)[:2] == (32, sectors)
    assert stores(launch) == (32, 512 if name == "vectors" else 128)


@pytest.mark.parametrize(
    ("name", "wavefronts"),
    [("copy", 1), ("every second", 2), ("every 32nd", 32), ("shifted", 1), ("broadcast", 1), ("vectors", 4)],
)
def test_wavefronts_of_requests(calls: Mapping[str, CallCounts | NoTrace], name: str, wavefronts: int) -> None:
    """A load of each warp and a store side by side: words of one bank come one after the other."""
    launch = only(calls, name)
    stored = 4 if name == "vectors" else 1
    assert sum(traffic.wavefronts for traffic in launch.traffic) == 32 * (wavefronts + stored)


def test_an_l1_catches_what_a_block_reads_again(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Each of 8 blocks fetches one sector for its four warps. Shifted by a float, it shares sectors between warps."""
    assert loads(only(calls, "broadcast"))[2] == 8
    assert loads(only(calls, "copy"))[2] == 128
    assert loads(only(calls, "shifted"))[2] == 8 * 17


@pytest.mark.slow
def test_caches_are_those_of_the_gpu(program: Path, calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """A block of an SM with little L1 beside what it holds of others fetches again what it reads again."""
    h200 = gpu.load()
    small = replace(h200, figures=replace(h200.figures, l1_bytes=2048))
    missed = [loads(only(found, "product"))[2] for found in (calls, counted(program, small))]
    assert missed[1] > 1.5 * missed[0]


def test_a_tail_is_not_counted_as_whole(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """900 elements are 28 whole warps and 4 lanes, whose 16 bytes are in one sector."""
    launch = only(calls, "tail")
    assert loads(launch)[:2] == stores(launch) == (29, 28 * 4 + 1)
    assert launch.instructions.active_share < 1


@pytest.mark.parametrize(("name", "wavefronts"), [("shared", 1), ("shared, stride 2", 2), ("shared, stride 32", 32)])
def test_bank_conflicts(calls: Mapping[str, CallCounts | NoTrace], name: str, wavefronts: int) -> None:
    shared = only(calls, name).shared
    assert (shared.load_requests, shared.load_wavefronts) == (1, wavefronts)
    assert (shared.store_requests, shared.store_wavefronts) == (1, wavefronts)


@pytest.mark.parametrize(("name", "wavefronts"), [("ones", 1), ("twos", 32), ("ones with answers", 32)])
def test_additions_of_one_to_one_counter_are_one(
    calls: Mapping[str, CallCounts | NoTrace], name: str, wavefronts: int
) -> None:
    """If nobody takes the answer."""
    assert only(calls, name).shared.atomic_wavefronts == wavefronts


def test_padding_takes_conflicts_away(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """32 rows are written along and read across: 32 banks deep without padding."""
    plain, padded = only(calls, "transposed").shared, only(calls, "transposed, padded").shared
    assert (plain.store_requests, plain.store_wavefronts) == (32, 32)
    assert (plain.load_requests, plain.load_wavefronts) == (32, 32 * 32)
    assert (padded.load_requests, padded.load_wavefronts) == (32, 32)


def test_atomics_and_who_meets(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    one, many = only(calls, "atomics on one address"), only(calls, "atomics on many addresses")
    for launch, same, hottest, sectors in ((one, 32, 64 * 128, 256), (many, 1, 1, 1024)):
        assert launch.contention.all == 64 * 128
        assert launch.contention.hottest == hottest
        assert launch.contention.same_address == same
        assert sum(traffic.atomic_requests for traffic in launch.traffic) == 256
        assert sum(traffic.atomic_sectors for traffic in launch.traffic) == sectors
        assert loads(launch)[0] == 0


def test_divergence_shows_in_active_lanes(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Half of the lanes load and store two sectors; the product and the sum are one instruction of each warp."""
    launch = only(calls, "half a warp")
    assert loads(launch)[:2] == stores(launch) == (2, 4)
    assert launch.instructions.fma == 2
    assert 0.5 < launch.instructions.active_share < 1


def test_threads_meet_behind_two_paths(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Odd and even lanes take a path each, and store what they found together."""
    launch = only(calls, "one of two paths")
    assert loads(launch)[:2] == (2, 8)
    assert stores(launch) == (2, 8)
    assert launch.instructions.special == 2


def test_threads_that_left_a_loop_wait(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Of rows with 1 to 32 entries the longest counts for the warp, and half of its lanes have something to do."""
    launch = only(calls, "rows of all lengths")
    assert loads(launch)[0] == 32
    assert stores(launch) == (1, 4)
    assert 32 <= launch.instructions.fp32 <= 34
    assert 0.5 < launch.instructions.active_share < 0.6
    assert launch.waits_of_warp is not None
    # A GPU's compiler has four passes together, and those beyond a multiple of four one at a time.
    assert launch.waits_of_warp.mean == 32 / 4 + 3


def test_barriers_are_counted_per_warp(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    launch = only(calls, "barriers")
    assert launch.barriers.mean == launch.barriers.largest == 10
    assert launch.shared.load_requests == 8 * 10
    assert launch.shared.store_requests == 8 * 11


def test_the_way_of_a_block_is_that_of_the_slowest_warp_between_barriers(
    calls: Mapping[str, CallCounts | NoTrace],
) -> None:
    """Four warps take turns: each waits twice, and the block eight times. Without turns the way is a warp's."""
    launch = only(calls, "turns")
    assert launch.way_of_block is not None
    assert launch.waits_of_warp.mean == 2
    assert launch.way_of_block.waits.mean == launch.way_of_block.waits.largest == 8
    assert launch.way_of_block.instructions.mean > launch.instructions_of_warp.largest
    alike = only(calls, "barriers")
    assert alike.way_of_block is not None
    assert alike.way_of_block.instructions.mean == alike.instructions_of_warp.mean


def test_a_barrier_counts_where_the_last_thread_of_a_warp_has_left(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    launch = only(calls, "barriers without the last thread")
    assert launch.barriers.mean == launch.barriers.largest == 10


def test_warp_collectives_are_shuffles(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    launch = only(calls, "shuffles")
    assert launch.instructions.shuffle == 2 * 5
    assert launch.instructions.fp32 == 2 * 5
    assert launch.barriers.mean == 0
    assert launch.instructions.active_share == 1


def test_a_product_of_matrices(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """128 x 128 x 128 in blocks of 16 x 16: a warp is two rows of 16: a sector of `a` each a step, and two of `b`.

    Each block fetches what it reads just once: 16 rows of `a` and 128 rows of `b`, of 64 bytes each.
    """
    launch = only(calls, "product")
    steps = 64 * 8 * 128
    assert launch.instructions.fma == steps
    requests, sectors, missed = loads(launch)
    assert requests == 2 * steps
    assert sectors == steps * (2 + 2)
    assert missed == 64 * (16 * 16 + 128 * 2)
    assert stores(launch) == (64 * 8, 64 * 8 * 4)
    footprints = launch.traffic[0].footprints
    assert [print_.blocks for print_ in footprints] == [1, 8, 64]
    # Eight blocks in a row share their rows of `a`, and need all of `b`; all blocks need all of both.
    assert [print_.read for print_ in footprints] == [512, 16 * 16 + 128 * 16, 2 * 128 * 16]


def test_a_product_of_fragments_is_one_instruction(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """What the host computes for it is not the warp's: a hundred more are as many instructions, and their loop's."""
    one, more = (only(calls, f"{name} of fragments").instructions for name in ("a product", "101 products"))
    assert (one.matrix, more.matrix) == (1, 101)
    kinds = [name for name in type(one).model_fields if name not in ("matrix", "active_share")]
    assert sum(getattr(more, kind) - getattr(one, kind) for kind in kinds) <= 8 * 100


def test_conversions_and_special_functions(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    narrow = only(calls, "bf16")
    assert narrow.instructions.conversion == 2 * 16
    assert narrow.instructions.fma == 16
    assert loads(narrow)[:2] == (16, 32)
    special = only(calls, "exp")
    assert special.instructions.special == 16
    assert special.instructions.slow == 0


def test_variables_of_the_device_are_global_memory(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    launch = only(calls, "device variable")
    assert stores(launch) == (32, 128)
    assert [traffic.buffer for traffic in launch.traffic] == [0]


def test_what_functions_of_the_library_move_is_asked_of_memory(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """A kernel that is one memcpy is no faster for it: 32 threads move 256 bytes each, 16 at a time, and clear them."""
    launch = only(calls, "functions of the library")
    assert loads(launch)[:2] == (16, 16 * 32)
    assert stores(launch) == (2 * 16, 2 * 16 * 32)
    assert launch.waits_of_warp.mean == 16


def test_copies_of_sizes_that_the_compiler_knows_are_asked_of_memory(
    calls: Mapping[str, CallCounts | NoTrace],
) -> None:
    """24 bytes in two pieces, 64 in four, and 48 cleared in three."""
    launch = only(calls, "copies of known sizes")
    assert loads(launch)[0] == 2 + 4
    assert stores(launch)[0] == 2 + 4 + 3


@pytest.mark.parametrize("name", ["a spin", "a spin with sleeps", "a spin by clock()"])
def test_who_waits_until_a_time_has_come_waits_as_long(calls: Mapping[str, CallCounts | NoTrace], name: str) -> None:
    """A million cycles of an SM, not as long as this host needs for some number of passes."""
    launch = only(calls, name)
    clock_mhz = gpu.load().figures.clock_mhz
    assert 1e6 <= launch.slept_ns_of_warp.mean * clock_mhz / 1000 <= 1.07e6
    assert launch.instructions_of_warp.largest < 20_000


def test_who_looks_at_memory_until_a_time_has_come_waits_for_another_thread(
    calls: Mapping[str, CallCounts | NoTrace],
) -> None:
    assert only(calls, "a spin that looks at memory").slept_ns_of_warp.largest < 50


def test_a_sample_stands_for_the_whole(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """64 blocks of 16384 are traced; what they do, times 256, is what all do."""
    launch = only(calls, "large copy")
    warps = (1 << 22) / 32
    assert traced(launch) == 64
    assert loads(launch) == (warps, 4 * warps, 4 * warps)
    assert stores(launch) == (warps, 4 * warps)
    read = {print_.blocks: print_.read for traffic in launch.traffic for print_ in traffic.footprints if print_.read}
    assert read == {1: 32, 8: 256, 64: 2048}


def test_blocks_that_cost_more_and_more(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """The first block says little of the others: what three say is near, and the launch is not run as a whole."""
    launch = only(calls, "prefix sums")
    threads = 1024 * 128
    assert loads(launch)[0] == pytest.approx(threads * threads / 2 / 32, rel=0.1)
    assert traced(launch) < 64
    # The last thread does twice as much as the mean, and less of it is recorded.
    assert launch.instructions_of_warp.largest == pytest.approx(2 * launch.instructions_of_warp.mean, rel=0.06)
    assert launch.way_of_block is not None
    assert launch.way_of_block.waits.largest == pytest.approx(2 * launch.way_of_block.waits.mean, rel=0.06)


def test_what_is_counted_behind_a_cut_off_record_is_not_scaled(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """A thread makes 200,000 passes, of which it records a part, and meets the others once."""
    launch = only(calls, "long threads")
    assert loads(launch)[0] == pytest.approx(2 * 200_000, rel=0.01)
    assert launch.barriers.mean == launch.barriers.largest == 1


def test_a_block_may_wait_for_the_one_before(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """A trial of the last block, which waits for all others, is given up: they run in their order, and are traced."""
    launch = only(calls, "waiting")
    assert traced(launch) == 64
    assert stores(launch)[0] == pytest.approx(300 * 11, rel=0.05)


def test_blocks_of_a_cooperative_launch_run_together(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    launch = only(calls, "cooperative")
    assert launch.cooperative
    assert launch.barriers.mean == launch.grid_barriers.mean == 1
    assert stores(launch)[0] == 2 * 12


def test_fences_behind_stores_and_early_launches_are_counted(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Of two warps one stores; of a fence behind a fence nobody waits."""
    launch = only(calls, "fences, launched early")
    assert (launch.fences.mean, launch.fences.largest) == (1.5, 3)
    assert launch.early
    assert launch.grid_barriers.largest == 0
    assert not only(calls, "barriers").early


def test_no_load_is_asked_for_before_a_store_that_comes_first(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    assert only(calls, "behind a branch").waits_of_warp.mean == 1
    assert only(calls, "behind a store").waits_of_warp.mean == 2


def test_fences_behind_questions_are_not_waited_for(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Of 15 fences six come behind stores, additions and a load; the answers of three atomics right behind them. Of 400
    half come behind additions, which are no tickets, the others behind atomics that change nothing, one a ticket."""
    launch = only(calls, "tickets")
    assert launch.fences.largest == 6
    assert launch.tickets.largest == 3
    launch = only(calls, "additions")
    assert (launch.fences.largest, launch.tickets.largest) == (200, 1)


def test_a_cooperative_launch_too_long_to_be_run_whole_has_counts(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Blocks that are not in the sample are ended, and of those that are all but three; no barrier waits for them."""
    launch = only(calls, "long cooperative")
    assert traced(launch) == 13
    assert launch.barriers.mean == 1
    assert stores(launch)[0] == pytest.approx(264 * 32 * (1 + 1 / 13))
    assert launch.instructions_of_warp.largest > 40_000


def test_where_blocks_wait_more_of_them_are_run(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """After its first block the launch is too long for others; if blocks wait for each other, none can be left out."""
    assert traced(only(calls, "waiting for the first")) == 64


def test_events_come_in_their_order(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Launches that do the same are one entry with their number; the first of them is no different."""
    found = calls["several events"]
    assert isinstance(found, CallCounts)
    told = [(event.event, event.count, event.bytes if isinstance(event, Other) else 0) for event in found.events]
    assert told == [
        ("alloc", 1, 4096),
        ("memset", 1, 4096),
        ("launch", 5, 0),
        ("launch", 1, 0),
        ("copy", 1, 2048),
        ("synchronise", 1, 0),
        ("free", 1, 0),
    ]
    assert found.note == ""


def test_what_the_host_does_itself_is_counted(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """A call that computes on the host is no faster for it: its copies cross a link, its loops are instructions."""
    found = calls["host"]
    assert isinstance(found, CallCounts)
    others = [event for event in found.events if isinstance(event, Other)]
    assert [(event.event, event.bytes, event.host) for event in others] == [
        ("copy", 8192, True),
        ("host", 0, False),
        ("copy", 8192, True),
        ("copy", 8192, False),
    ]
    assert 2 * 20_470 < others[1].instructions < 10 * 20_470


def test_rows_are_copied_and_cleared_at_once(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Each is one thing that is enqueued, however many rows there are."""
    found = calls["rows"]
    assert isinstance(found, CallCounts)
    assert found.events == (Other(event="memset", bytes=65536), Other(event="copy", bytes=65536))


def test_memory_from_the_heap_has_no_trace(program: Path) -> None:
    """It lies in no buffer: a kernel that worked in it would ask nothing of memory."""
    (found,) = recorded(
        lambda notes: run_limited(
            [str(program), "heap"],
            60,
            environment={"CUDAMASTER_CPU_TRACE": str(notes.fileno())},
            held=[notes.fileno()],
        ),
        program,
        ["heap"],
        gpu.load(),
    )
    assert isinstance(found, NoTrace)
    assert "the device's heap is not counted" in found.reason
    assert "fault" not in found.reason


def test_work_beside_the_sample_has_no_trace(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    """Blocks 0 to 7 are in the sample and 8 to 15 are not: a kernel that knows so could do all of its work there."""
    for name, kernel in (
        ("second group", "second_group_kernel"),
        ("second group, sums", "second_group_sums_kernel<false>"),
        ("second group, sums and questions", "second_group_sums_kernel<true>"),
    ):
        found = calls[name]
        assert isinstance(found, NoTrace)
        assert f"{kernel} that are not in the sample" in found.reason


def test_a_block_that_waits_for_one_left_out_has_no_trace(calls: Mapping[str, CallCounts | NoTrace]) -> None:
    found = calls["waiting for left out"]
    assert isinstance(found, NoTrace)
    assert "waits for one that is left out" in found.reason


LISTING = """
0000000000001000 <_Z3sumPf>:
    1000:\tcall   2000 <__tsan_func_entry>
    1003:\tcall   3000 <__sanitizer_cov_trace_pc>
    1004:\timul   %esi,%ecx
    1005:\tadd    $0x1,%ecx
    1008:\tcall   3000 <__sanitizer_cov_trace_pc>
    100a:\tlea    0x4(%rbx),%rdi
    100e:\tlea    (%rdi,%rax,4),%rdi
    1012:\tcall   2010 <__tsan_read4>
    1017:\tmulss  (%rbx),%xmm0
    101b:\taddss  %xmm0,%xmm1
    101f:\taddss  %xmm1,%xmm2
    1023:\txor    %eax,%eax
    1028:\tcmp    %ecx,%edx
    102a:\tjne    1005 <_Z3sumPf+0x5>
    102c:\tcall   3000 <__sanitizer_cov_trace_pc>
    1031:\tcall   4000 <_ZN14cudamaster_cpu9bf16_bitsEfNS_8RoundingE>
    1036:\tcall   4010 <expf@plt>
    103b:\tcall   4020 <erff@plt>
    1040:\tmovss  %xmm0,(%rbx)
    1044:\tret
0000000000001100 <main>:
    1100:\taddss  %xmm1,%xmm2
"""


def test_instructions_of_blocks() -> None:
    """An index is one instruction, an offset none; a loop begins where it is jumped to, and its counting is shared."""
    code = instructions.code_in(LISTING)
    assert code.blocks == {
        0x1004: {"integer": 1},
        0x100A: {"integer": 1 + 2 / 4, "fma": 1, "fp32": 1, "control": 1 / 4},
        0x1031: {"conversion": 1, "special": 1, "fma": 4, "slow": 1},
    }
    assert code.order == [0x1003, 0x1004, 0x100A, 0x1017, 0x1031, 0x1036, 0x103B, 0x1040]


def test_a_shift_by_one_is_the_same_however_objdump_writes_it() -> None:
    """Binutils 2.40 give it one operand, those from 2.41 on two; a shift of one by a register stays what it is."""
    halved = LISTING.replace("1005:\tadd    $0x1,%ecx", "1005:\tsar    %ecx").replace("jne", "jl")
    assert halved.count("sar") == 1
    code = instructions.code_in(halved)
    assert instructions.code_in(halved.replace("sar    %ecx", "sar    $1,%ecx")) == code
    assert [lines[3] for lines in instructions._functions(halved)] == [(0x1005, "sar", "%ecx")]
    for name in ("shll", "shrq", "rorw", "rcl"):
        (lines,) = instructions._functions(halved.replace("sar    %ecx", f"{name} $1,0x8(%rsp)"))
        assert lines[3] == (0x1005, name, "0x8(%rsp)")


def test_paths_come_before_the_place_where_they_meet() -> None:
    """Wherever the compiler put them, 2 is behind the paths over 3 and 4; a loop's blocks are before what follows."""
    assert flow.in_order([1, 2, 3, 4], {1: [4, 3], 4: [2], 3: [2], 2: []}) == [1, 3, 4, 2]
    assert flow.in_order([1, 2, 3, 4], {1: [2], 2: [4, 1], 4: [3, 4], 3: [1]}) == [1, 2, 4, 3]
    # Out of a loop, 2, one comes to 5 before 3, though 3 is between them.
    assert flow.in_order([1, 2, 3, 5], {1: [2, 5], 2: [2, 3], 5: [3], 3: []}) == [1, 2, 5, 3]
    # A loop that is entered at 2 and 4 begins where all of its passes come by.
    entered = {1: [2, 4], 2: [3], 3: [4, 5], 4: [3], 5: []}
    assert flow.in_order([1, 2, 3, 4, 5], {**entered, 3: [4, 2, 5], 4: [3]}) == [1, 3, 2, 4, 5]


def test_loops_that_can_be_unrolled() -> None:
    """They have no other loop in them, and are left from one place."""
    branch = {1: [2], 2: [3, 4], 3: [4], 4: [2, 5], 5: []}
    assert flow.simple_loops(list(branch), branch) == {2: frozenset({2, 3, 4})}
    assert flow.simple_loops(list(branch), {**branch, 3: [4, 5]}) == {}
    assert flow.simple_loops(list(branch), {**branch, 3: [3, 4]}) == {3: frozenset({3})}
    # A compiler may have made two of the jump back.
    assert flow.simple_loops(list(branch), {**branch, 2: [3, 4], 3: [2, 5]}) == {2: frozenset({2, 3, 4})}


def test_registers_are_those_of_the_instance_that_was_launched() -> None:
    many, few = (Usage(f"_Z21tile_kernel_optimizedILi{n}EEvPf", "sm_90", registers=n) for n in (128, 40))
    assert usage_of("tile_kernel_optimized<40>", 1024, [many, few], 65536) == few
    assert usage_of("tile_kernel_optimized<40>", 256, [many, few], 65536) == many
    assert usage_of("tile_kernel_optimized", 1024, [many], 65536) == many
    assert usage_of("other_kernel_optimized", 1024, [many], 65536) is None
    assert usage_of("kernel", 256, [many, few], 65536, "_Z21tile_kernel_optimizedILi40EEvPf") == few
    assert usage_of("tile_kernel_optimized<40>", 256, [many, few], 65536, "_Z9something") == many
    of_file = replace(few, symbol="_ZN23_GLOBAL__N__1a2b3c4d_my5tilesEPf")
    assert usage_of("kernel", 256, [many, of_file], 65536, "_ZN12_GLOBAL__N_15tilesEPf") == of_file
    long = Usage("_Z11kernel_of_1kPf", "sm_90", registers=40)
    assert usage_of("k", 1024, [long], 65536) is None
    assert usage_of("mine::k", 1024, [long, replace(few, symbol="_ZN4mine1kEPf")], 65536) is not None
