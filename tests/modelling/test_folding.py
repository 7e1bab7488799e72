"""Counts of a launch from those of its traced blocks, which the observer writes: each figure is scaled, none taken for
another."""

from __future__ import annotations

from cudamaster.devices.cpu.instructions import Code
from cudamaster.modelling import folding, gpu, observed
from cudamaster.modelling.counts import Launch

# Ten blocks of one warp, of which five were traced. The basic block at 16 was executed 20 times.
WRITTEN: dict[str, object] = {
    "event": "launch",
    "kernel": "k",
    "function": 0,
    "grid": (10, 1, 1),
    "block": (32, 1, 1),
    "cluster": (1, 1, 1),
    "dynamic_shared_bytes": 0,
    "cooperative": False,
    "blocks": 10,
    "traced": 5,
    "left_out": False,
    "events": 100,
    "dropped": 0,
    "accesses": (50, 0, 0),
    "executed": [(16, 20, 640)],
    "traffic": [],
    "shared": ((0, 0), (0, 0), (0, 0)),
    "remote": (0, 0, 0, 0),
    "bulk_bytes": 0,
    "factor_bytes": 0,
    "products": (0, 0, 0, 0),
    "atomics": (0, 0, 0, 0, 0),
    **{name: (5 * (number + 1), 5, 100 + number) for number, name in enumerate(observed.SPREADS)},
}
CODE = Code({16: {"fma": 3.0}}, [16], chains={16: 12.0})


def folded(**changes: object) -> Launch:
    """The launch, where the observer wrote something else."""
    return folding._launch(observed.LaunchLine.model_validate({**WRITTEN, **changes}), CODE, (), gpu.load())


def test_instructions_and_chains_are_those_of_all_blocks() -> None:
    found = folded()
    assert found.instructions.fma == 3 * 20 * 2
    assert found.chained_cycles == 12 * 20 * 2
    assert folded(dropped=100).chained_cycles == 2 * found.chained_cycles


def test_no_figure_of_a_warp_is_another_one() -> None:
    """Means are 1, 2, 3 ... as the figures' names are numbered, the largest 100, 101 ..."""
    found = folded()
    assert found.way_of_block is not None
    figures = {
        "barriers": found.barriers,
        "cluster_fences": found.cluster_fences,
        "cluster_barriers": found.cluster_barriers,
        "grid_barriers": found.grid_barriers,
        "fences": found.fences,
        "tickets": found.tickets,
        "slept_ns": found.slept_ns_of_warp,
        "waits": found.waits_of_warp,
        "cold_waits": found.cold_waits_of_warp,
        "far_waits": found.far_waits_of_warp,
        "remote_waits": found.remote_waits_of_warp,
        "warp_instructions": found.instructions_of_warp,
        "way_instructions": found.way_of_block.instructions,
        "way_waits": found.way_of_block.waits,
        "way_cold_waits": found.way_of_block.cold_waits,
        "way_far_waits": found.way_of_block.far_waits,
        "way_remote_waits": found.way_of_block.remote_waits,
    }
    numbers = {name: number for number, name in enumerate(observed.SPREADS)}
    del numbers["block_instructions"]  # of which no figure is made
    assert {name: each and (each.mean, each.largest) for name, each in figures.items()} == {
        name: (number + 1, 100 + number) for name, number in numbers.items()
    }


def test_a_block_takes_all_only_from_a_common_counter() -> None:
    """One of five did 98 % of the work: without atomics nothing is shared out, and neither with 90 %."""
    all_in_one = {"block_instructions": (1000, 5, 980), "warp_instructions": (1000, 5, 980)}
    counter = {"atomics": (1, 1, 1, 1, 1)}
    assert folded(**all_in_one).instructions_of_warp.largest == 980
    assert folded(**all_in_one, **counter).instructions_of_warp.largest == 98
    most = {"block_instructions": (1000, 5, 900), "warp_instructions": (1000, 5, 900)}
    assert folded(**most, **counter).instructions_of_warp.largest == 900


def test_lines_that_another_block_has_left_in_l1_are_not_missed() -> None:
    """As sectors are not: half of those that a block misses, blocks before it on its SM had, of which there are two."""
    wanted = gpu.load()
    blocks = int(2 * wanted.limits.sms)
    traffic = {
        **{"buffer": 0, "bytes": 4096, "load": (5, 80, 80, 40), "store": (0, 0), "atomic": (0, 0), "lines": 20},
        **{"missed_lines": 20, "wavefronts": 5, "bulk": (0, 0, 0), "footprints": []},
    }
    (found,) = folded(blocks=blocks, grid=(blocks, 1, 1), traffic=[traffic]).traffic
    assert found.missed_sectors == (80 - 40 / 2) * blocks / 5
    assert found.missed_lines == 20 * (60 / 80) * blocks / 5
