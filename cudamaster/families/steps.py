"""The playbook's steps for a product of the suite hgemm: the members of the family that the model finds most promising.

task -> model.ranked -> one member of each schedule and tile -> Step, as if it stood in a file of the playbook
"""

from __future__ import annotations

import textwrap
from functools import lru_cache

from cudamaster.families import model
from cudamaster.families.config import Config, Schedule
from cudamaster.families.model import Bound
from cudamaster.families.render import FLAGS, STEP, details, render
from cudamaster.models.playbook import Step
from cudamaster.tasks import hgemm
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

STEPS = 3
_GROUPS = {2: "Two", 3: "Three"}
_WIDTH = 116
_NAMES = {
    Schedule.COOPERATIVE: "Warpgroups that share tiles",
    Schedule.PINGPONG: "Warpgroups that take turns on tiles",
    Schedule.THROUGH_L2: "Slices of K that meet in L2, tiles",
    Schedule.WARPS: "Warps that share K, tiles",
}
_BOUND = {
    Bound.TENSOR: "the tensor cores",
    Bound.SHARED: "what the tensor cores read from shared memory",
    Bound.L2: "copies from L2",
    Bound.STEP: "the latency of the steps along K",
    Bound.MEMORY: "memory, which the three matrices cross once",
    Bound.AROUND: "the launch, the first copies and the way out of the results",
}


@lru_cache(maxsize=64)  # a search asks for them again and again
def steps(task: str) -> tuple[Step, ...]:
    """The steps for a task of the suite hgemm. Raises UsageError for no such task."""
    found = hgemm.parse_name(task)
    return tuple(_step(config, found.shape) for config in promising(found.layout, found.accumulate, found.shape))


def promising(layout: Layout, accumulate: Accumulate, shape: Shape, number: int = STEPS) -> tuple[Config, ...]:
    """The members with the shortest modelled times, no two of the same schedule and tile."""
    kept: dict[tuple[Schedule, int, int], Config] = {}
    for config in model.ranked(layout, accumulate, shape):
        kept.setdefault((config.schedule, config.tile_m, config.tile_n), config)
    return tuple(kept.values())[:number]


def _step(config: Config, shape: Shape) -> Step:
    # A member is named once for each schedule and tile, so no two titles are the same.
    idea = f"{_NAMES[config.schedule]} of {config.tile_m} x {config.tile_n}"
    why = why_of(config, shape)
    begun = textwrap.wrap(why, _WIDTH, initial_indent="// why: ", subsequent_indent="//      ")
    header = "\n".join([f"// idea: {idea}", *begun, f"// flags: {FLAGS}"])
    return Step(idea, why, FLAGS, f"{header}\n{render(config)}")


def why_of(config: Config, shape: Shape) -> str:
    """Why a member may be fast at a shape, in a few sentences."""
    made = _by_warps(config, shape) if config.schedule is Schedule.WARPS else _by_stages(config, shape)
    found = model.modelled(config, shape)
    waves = "one wave" if found.waves == 1 else f"{found.waves} waves"
    return (
        f"{made} On an H100 the model expects {found.microseconds:.1f} µs for {shape}, with {found.blocks} blocks at "
        f"once in {waves}; most of that goes into {_BOUND[found.bound]}."
    )


def _by_warps(config: Config, shape: Shape) -> str:
    number = model.steps_of_a_warp(config, shape)
    return (
        f"{config.stages} warps share the K of a tile of {config.tile_m} x {config.tile_n}: each loads its steps of 32 "
        f"products straight into registers, {_counted(number, 'step')} at most, and multiplies them on its tensor "
        "core. Their sums meet in shared memory, so that there is no pipeline to fill before the first product."
    )


def _by_stages(config: Config, shape: Shape) -> str:
    groups = int(details(config)["consumers"])
    if config.schedule is Schedule.PINGPONG:
        who = "Two warpgroups make tiles in turn, so that one multiplies while the other stores"
    else:
        who = (
            "One warpgroup makes each tile" if groups == 1 else f"{_GROUPS[groups]} warpgroups make each tile together"
        )
    memory = config.stages * (config.tile_m + config.tile_n) * STEP * 2 >> 10
    parts = [
        f"{who}: {config.tile_m} x {config.tile_n} elements on Hopper's tensor cores (wgmma), while the copy engine "
        f"loads ahead {config.stages} stages of {STEP} products ({memory} KiB of shared memory)."
    ]
    tiles = config.tiles(shape)
    if config.split > 1:
        where = "in L2" if config.schedule is Schedule.THROUGH_L2 else "in the shared memory of their cluster"
        parts.append(
            f"With {_counted(tiles, 'tile')} for {model.BLOCKS} multiprocessors, each tile's K is split among "
            f"{config.split} blocks, whose sums meet {where}."
        )
    elif config.cluster_m * config.cluster_n > 1:
        shared = "B" if config.cluster_m > 1 else "A"
        parts.append(
            f"Clusters of {config.cluster_m} x {config.cluster_n} blocks load each tile of {shared} once for both, "
            "which takes load off L2."
        )
    if tiles > model.BLOCKS and config.split == 1:
        parts.append(
            f"The {tiles} tiles are made in bands of {config.band} side by side, so that L2 keeps what they share."
        )
    return " ".join(parts)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
