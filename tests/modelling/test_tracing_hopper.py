"""Holds counts of wgmma, copies in bulk, mbarriers and clusters to what small kernels do by construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from traced_program import traced_program

from cudamaster.devices.process import run_limited
from cudamaster.modelling import gpu, model
from cudamaster.modelling.counts import CallCounts, Launch, Products
from cudamaster.modelling.tracing import NoTrace, recorded

CALLS = (
    "three products of bf16",
    "three products of TF32",
    "three products of e4m3",
    "three products of integers",
    "three products of bf16, one factor in registers",
    "six products of bf16",
    "tiles one at a time",
    "tiles four at a time",
    "tiles across sectors",
    "stores in bulk",
    "reductions in bulk",
    "a box",
    "a box and back",
    "multicast",
    "copies between blocks",
    "words between blocks",
    "numbered barriers",
    "phases of an mbarrier",
    "barriers of a cluster",
    "arrivals with the scope of the cluster",
)
Calls = Mapping[str, "CallCounts | NoTrace"]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """Counts of each call of traced_hopper_kernels.cu."""
    program = traced_program(tmp_path_factory, "traced_hopper_kernels.cu")
    found = recorded(
        lambda notes: run_limited(
            [str(program)], 120, environment={"CUDAMASTER_CPU_TRACE": str(notes.fileno())}, held=[notes.fileno()]
        ),
        program,
        CALLS,
        gpu.load(),
    )
    return dict(zip(CALLS, found, strict=True))


def only(calls: Calls, name: str) -> Launch:
    """The one launch of a call."""
    found = calls[name]
    assert isinstance(found, CallCounts), found
    (launch,) = found.events
    assert isinstance(launch, Launch)
    return launch


def in_bulk(launch: Launch) -> tuple[float, float, float]:
    """Sectors that the copy engine reads, writes and does operations on."""
    return (
        sum(traffic.bulk_read_sectors for traffic in launch.traffic),
        sum(traffic.bulk_written_sectors for traffic in launch.traffic),
        sum(traffic.bulk_reduced_sectors for traffic in launch.traffic),
    )


def of_threads(launch: Launch) -> float:
    """Requests of warps to global memory that load."""
    return sum(traffic.load_requests + traffic.load_sectors + traffic.missed_sectors for traffic in launch.traffic)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("three products of bf16", Products(f16=2 * 3 * 2 * 64 * 8 * 16)),
        ("three products of TF32", Products(tf32=2 * 3 * 2 * 64 * 8 * 8)),
        ("three products of e4m3", Products(f8=2 * 3 * 2 * 64 * 8 * 32)),
        ("three products of integers", Products(integer=2 * 3 * 2 * 64 * 8 * 32)),
    ],
)
def test_products_of_a_warpgroup_by_type(calls: Calls, name: str, products: Products) -> None:
    """Two blocks make 64 x 8 sums three times, of 32 bytes of k: all take as long. Factors are 72 rows of that."""
    launch = only(calls, name)
    assert launch.products == products
    assert launch.products.as_f16 == 2 * 3 * 2 * 64 * 8 * 16
    assert launch.shared.factor_bytes == 2 * 3 * 72 * 32
    assert (launch.shared.load_requests, of_threads(launch)) == (0, 0)
    # What the threads clear, and nothing else.
    assert launch.shared.store_requests == 2 * 2048 / 32


def test_a_factor_in_registers_is_not_read_from_shared_memory(calls: Calls) -> None:
    launch = only(calls, "three products of bf16, one factor in registers")
    assert launch.products.f16 == 2 * 3 * 2 * 64 * 8 * 16
    assert launch.shared.factor_bytes == 2 * 3 * 8 * 32


def test_what_the_host_computes_for_a_product_is_not_the_warps(calls: Calls) -> None:
    """Three more are three instructions each warp, and some for their loop and their arguments."""
    three, six = (only(calls, f"{count} products of bf16").instructions for count in ("three", "six"))
    kinds = [name for name in type(three).model_fields if name != "active_share"]
    assert three.matrix == six.matrix == 0
    assert 0 < sum(getattr(six, kind) - getattr(three, kind) for kind in kinds) <= 6 * 3 * 2 * 4


@pytest.mark.parametrize(
    ("name", "waits", "barriers"),
    [("tiles one at a time", 8, 8 + 9), ("tiles four at a time", 2, 8 + 3)],
)
def test_tiles_that_come_in_bulk(calls: Calls, name: str, waits: int, barriers: int) -> None:
    """Four blocks of two warps wait for eight tiles of 1 KB each: one after another, or four together."""
    launch = only(calls, name)
    assert in_bulk(launch) == (4 * 8 * 32, 0, 0)
    assert launch.shared.bulk_bytes == 4 * 8 * 1024
    assert of_threads(launch) == 0
    assert launch.waits_of_warp.mean == launch.waits_of_warp.largest == waits
    assert launch.cold_waits_of_warp.mean == waits
    # A wait for each tile, a block's barrier before the first and one behind all that come together.
    assert launch.barriers.mean == launch.barriers.largest == barriers
    footprint = {each.blocks: each.read for traffic in launch.traffic for each in traffic.footprints if each.read}
    assert footprint == {1: 256, 4: 1024}


def test_a_copy_counts_a_sector_that_it_shares_with_another_one(calls: Calls) -> None:
    """Tiles that begin in the middle of a sector read 33 each; of these a block's tiles touch 257."""
    launch = only(calls, "tiles across sectors")
    assert in_bulk(launch)[0] == 4 * 8 * 33
    footprint = {each.blocks: each.read for traffic in launch.traffic for each in traffic.footprints if each.read}
    assert footprint == {1: 257, 4: 1025}


def test_copies_out_of_shared_memory(calls: Calls) -> None:
    """Four blocks take 4 KB each out of shared memory, or add it to what is there."""
    written, added = only(calls, "stores in bulk"), only(calls, "reductions in bulk")
    assert in_bulk(written) == (0, 4 * 128, 0)
    assert in_bulk(added) == (0, 0, 4 * 128)
    for launch in (written, added):
        assert launch.shared.bulk_bytes == 4 * 4096
        assert sum(traffic.store_requests + traffic.atomic_requests for traffic in launch.traffic) == 0
    assert [each.written for each in written.traffic[0].footprints] == [128, 512]
    assert [each.read for each in written.traffic[0].footprints] == [0, 0]
    assert [each.read for each in added.traffic[0].footprints] == [128, 512]


def test_boxes_of_tensors(calls: Calls) -> None:
    """12 of 16 rows of 128 bytes are the tensor's: four sectors each. Zeros for the others come into shared memory."""
    there, back = only(calls, "a box"), only(calls, "a box and back")
    assert in_bulk(there) == (12 * 4, 0, 0)
    assert there.shared.bulk_bytes == 16 * 128
    assert in_bulk(back) == (12 * 4, 12 * 4, 0)
    assert back.shared.bulk_bytes == 16 * 128 + 12 * 128


def test_multicast_reads_once_and_writes_in_each_block(calls: Calls) -> None:
    """32 clusters of four blocks, one below the other, with a tile of 4 KB each. Half of them are in the sample."""
    launch = only(calls, "multicast")
    assert launch.cluster == (1, 4, 1)
    assert in_bulk(launch) == (32 * 128, 0, 0)
    assert launch.shared.bulk_bytes == 128 * 4096
    read = {each.blocks: each.read for traffic in launch.traffic for each in traffic.footprints}
    assert read == {1: 32, 8: 256, 64: 2048}
    assert launch.waits_of_warp.mean == 1


def test_what_is_moved_within_a_cluster_is_shared_memory_alone(calls: Calls) -> None:
    """Eight blocks copy 256 bytes into their neighbours, and each of their two warps loads from there."""
    launch = only(calls, "copies between blocks")
    assert in_bulk(launch) == (0, 0, 0)
    assert of_threads(launch) == 0
    assert launch.shared.bulk_bytes == 8 * 2 * 256
    assert (launch.shared.load_requests, launch.shared.load_wavefronts) == (16, 16)
    assert (launch.shared.remote_load_requests, launch.shared.remote_bytes) == (16, 8 * 256)
    assert launch.remote_waits_of_warp.mean == 1
    assert launch.cluster_barriers.mean == 2


def test_words_for_other_blocks_are_stores_of_warps(calls: Calls) -> None:
    """Eight blocks of two warps store three times, and wait for what comes: not for memory."""
    launch = only(calls, "words between blocks")
    assert in_bulk(launch) == (0, 0, 0)
    assert launch.shared.bulk_bytes == 0
    assert (launch.shared.store_requests, launch.shared.store_wavefronts) == (8 * 2 * 3, 8 * 2 * 3)
    assert launch.shared.remote_store_requests == launch.shared.store_requests
    assert launch.shared.remote_bytes == 8 * 64 * 4 * 3
    assert launch.waits_of_warp.largest == 0
    assert launch.way_of_block is not None
    assert launch.remote_waits_of_warp.mean == launch.way_of_block.remote_waits.mean == 3
    assert (launch.barriers.mean, launch.cluster_barriers.mean) == (3 + 4, 4)


def test_barriers_of_some_threads_count_for_those_who_wait(calls: Calls) -> None:
    launch = only(calls, "numbered barriers")
    assert (launch.barriers.mean, launch.barriers.largest) == (5, 10)


@pytest.mark.parametrize(("name", "barriers"), [("phases of an mbarrier", 11), ("barriers of a cluster", 10)])
def test_waits_count_as_barriers(calls: Calls, name: str, barriers: int) -> None:
    """Ten of each warp, and before an mbarrier's phases one of the block. No copy is waited for."""
    launch = only(calls, name)
    assert launch.barriers.mean == launch.barriers.largest == barriers
    assert launch.waits_of_warp.largest == launch.remote_waits_of_warp.largest == 0
    assert launch.cluster_barriers.mean == (10 if name == "barriers of a cluster" else 0)


def test_fences_of_the_cluster_are_counted(calls: Calls) -> None:
    """Ten arrivals and ten waits of each warp are a fence each."""
    name = "arrivals with the scope of the cluster"
    launch = only(calls, name)
    assert launch.cluster_fences.mean == launch.cluster_fences.largest == 20
    found = calls[name]
    assert isinstance(found, CallCounts)
    assert model.refused(found, gpu.load()) is None
    assert only(calls, "phases of an mbarrier").cluster_fences.largest == 0


def test_a_gpu_has_to_have_what_a_kernel_takes(calls: Calls) -> None:
    h200 = gpu.load()
    before = gpu.load("a100")
    unknown = replace(h200, figures=replace(h200.figures, warpgroup_operations=None))
    for name, wanted, reason in (
        ("multicast", before, "clusters or copies in bulk"),
        ("a box", before, "clusters or copies in bulk"),
        ("three products of bf16", unknown, "no warpgroup_operations"),
        ("three products of bf16", h200, None),
        ("multicast", h200, None),
        ("phases of an mbarrier", before, None),
    ):
        found = calls[name]
        assert isinstance(found, CallCounts)
        why = model.refused(found, wanted)
        assert why is None if reason is None else why is not None and reason in why
