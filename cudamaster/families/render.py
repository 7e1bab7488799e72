"""Our family of kernels for half-precision matrix products on Hopper: the source of a member.

A `Config` says which member: the layout of B, the type of the sums, and how the work is cut up. `render` gives its
source, a region as any candidate's. `hgemm.cu.j2` is the one template of all, and says how they work.
"""

from __future__ import annotations

from functools import lru_cache

import jinja2

from cudamaster.core import resources
from cudamaster.families.config import Config, Schedule
from cudamaster.tasks.hgemm import Accumulate, Layout

FLAGS = (
    "-O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 "
    "-gencode=arch=compute_80,code=compute_80"
)
SHARED_BYTES = 227 * 1024  # that a block can have on sm_90
STEP = 64  # of K: what a stage holds
_BOX_OF_C = 16 * 128  # bytes
# Of sums, in a thread. Few leave enough for the rest in the 168 that 288 threads can have; with more, the warpgroup
# that copies hands over registers.
_FEW_REGISTERS, _MOST_REGISTERS = 128, 192


class Misfit(ValueError):
    """A configuration that no kernel can have; the message says why."""


def details(config: Config) -> dict[str, int | bool | str]:
    """What the template derives from a configuration. Raises Misfit for one that no kernel can have."""
    fp32, tn = config.accumulate is Accumulate.FP32, config.layout is Layout.TN
    if config.schedule is Schedule.WARPS:
        return {"tn": tn, "warps": config.stages}
    turns = config.schedule is Schedule.PINGPONG
    if config.tile_m % 64 or not 64 <= config.tile_m <= 256:
        raise Misfit(f"tiles of {config.tile_m} rows: a warpgroup makes 64 at a time, a block at most 256")
    if config.tile_n % 16 or not 16 <= config.tile_n <= 256:
        raise Misfit(f"tiles of {config.tile_n} columns: 16 to 256, in steps of 16")
    if turns:
        consumers, heights = 2, config.tile_m // 64
    else:
        consumers = {64: 1, 128: 2, 192: 3, 256: 2}[config.tile_m]
        heights = config.tile_m // 64 // consumers
    registers = config.tile_n // (2 if fp32 else 4)
    if heights * registers > _MOST_REGISTERS:
        raise Misfit(f"{heights * registers} registers of sums in a thread, and {_MOST_REGISTERS} is the most")
    many = heights * registers > _FEW_REGISTERS
    if many and consumers != 2:
        raise Misfit("more than two warpgroups leave too few registers for so many sums")
    box_n = next(width for width in (64, 32, 16) if config.tile_n % width == 0)
    through_l2 = config.schedule is Schedule.THROUGH_L2
    cluster = config.cluster_m * config.cluster_n * (1 if through_l2 else config.split)
    if cluster > 16:
        raise Misfit(f"a cluster of {cluster} blocks, and 16 is the most")
    if config.split > 1 and (turns or (cluster > config.split and not through_l2)):
        raise Misfit("the blocks of a cluster share one tile's products, or copies, not both")
    if through_l2 and config.split == 1:
        raise Misfit("nothing meets in L2 where K is not split")
    if config.tile_m // config.cluster_n % 8 or (tn and config.tile_n // config.cluster_m % 8):
        raise Misfit("a block's part of a shared tile has fewer than eight rows")
    stage = (config.tile_m + config.tile_n) * 2 * STEP
    left = SHARED_BYTES - config.stages * stage - 16 * (config.stages + 1)
    pairs = heights * config.tile_n // 16  # of eight columns: what a thread stores at a time
    reducers = max(part for part in range(1, config.split + 1) if pairs % part == 0)
    if config.split > 1:
        patches = 0
        if not through_l2 and 512 * consumers * heights * registers // reducers * config.split > config.stages * stage:
            raise Misfit("the sums of a split product do not fit where the stages were")
    elif config.tile_n % 64:
        patches = 0
    else:
        patches = min(config.tile_n // 64, left // (4 * consumers * _BOX_OF_C))
        if patches < 1:
            raise Misfit("no room in shared memory for results on their way out")
    if left < 0:
        raise Misfit(f"{config.stages} stages of {stage} bytes do not fit into shared memory")
    return {
        "fp32": fp32,
        "tn": tn,
        "turns": turns,
        "consumers": consumers,
        "heights": heights,
        "registers": registers,
        "box_n": box_n,
        "swizzle": {64: 1, 32: 2, 16: 3}[box_n],
        "swizzle_bytes": box_n * 2,
        "patches": patches,
        "reducers": reducers,
        # Slices whose sums are fetched at once: a thread has some 128 registers for them.
        "at_once": max(min(config.split, 128 * reducers // (heights * registers)), 1),
        "through_l2": through_l2,
        "registers_each": 232 if many else 0,
        "registers_left": 40,
        # Of a launch with the end of the one before it; both would use the same scratch memory in L2.
        "overlap": not through_l2,
        "multicast": config.cluster_m * config.cluster_n > 1,
        "row_mask": sum(1 << n * config.cluster_m for n in range(config.cluster_n)),
    }


def render(config: Config, *, tuning: bool = False) -> str:
    """Source of a member of the family. `tuning`: with an entry that takes the band as an argument.

    Raises Misfit for a configuration that no kernel can have.
    """
    return _template().render(**vars(config), **details(config), tuning=tuning)


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    folder = resources.package() / "families"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<[",
        variable_end_string="]>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    return environment.get_template("hgemm.cu.j2")
