"""What may be chosen in the family of matrix products: how the work of a product is cut up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cudamaster.tasks.hgemm import Accumulate, Layout, Shape


class Schedule(StrEnum):
    """How the warps of a block divide the work.

    - cooperative: all warpgroups make one tile together.
    - pingpong: two warpgroups have tiles of their own, and one multiplies while the other stores.
    - through_l2: cooperative, and the blocks that share a tile's K add up through the L2 cache; all of them run at once
      (a cooperative launch).
    - warps: each warp takes slices of K straight into registers, without stages or copy engine.
    """

    COOPERATIVE = "cooperative"
    PINGPONG = "pingpong"
    THROUGH_L2 = "through_l2"
    WARPS = "warps"


@dataclass(frozen=True)
class Config:
    """A member of our family of kernels.

    A block makes a tile of C, `tile_m` x `tile_n`, from K in `stages` that are loaded ahead; `cluster_m` x `cluster_n`
    blocks share what they load. K is divided among `split` blocks that add up. `band` is the number of tiles side by
    side that are made before those below them: the swizzle; below 0, of tiles one below the other. With the schedule
    "warps", `stages` is the number of warps that a tile's K is divided among.
    """

    layout: Layout
    accumulate: Accumulate
    schedule: Schedule
    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int
    cluster_n: int
    split: int
    band: int

    def __str__(self) -> str:
        if self.schedule is Schedule.WARPS:
            return f"{self.tile_m}x{self.tile_n} tiles, {self.stages} warps that share K"
        through_l2 = self.schedule is Schedule.THROUGH_L2
        parts = [f"{self.tile_m}x{self.tile_n} tiles", f"{self.stages} stages"]
        parts += [] if through_l2 else [self.schedule.value]
        parts += [f"cluster {self.cluster_m}x{self.cluster_n}"] if self.cluster_m * self.cluster_n > 1 else []
        parts += [f"K split in {self.split}{' through L2' if through_l2 else ''}"] if self.split > 1 else []
        return ", ".join([*parts, f"band {self.band}"])

    def tiles(self, of: Shape) -> int:
        """Tiles of C, the last ones in part outside of it."""
        return math.ceil(of.m / self.tile_m) * math.ceil(of.n / self.tile_n)
