"""What is chosen for a half-precision matrix product: the layout of B, the type of the sums, and how work is cut up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["nn", "tn"]  # B row-major, B column-major
Accumulate = Literal["fp32", "fp16"]
Schedule = Literal["cooperative", "pingpong", "through_l2", "warps"]


@dataclass(frozen=True)
class Config:
    """A member of the kernel family.

    schedule: "cooperative" is warpgroups that share a tile, "pingpong" warpgroups that take tiles in turn, "through_l2"
    the first, where the slices of a tile's products meet in L2 instead of in a cluster, "warps"
    warps that load straight into registers (there tile_m and tile_n are 16 and 32, and `stages` the number of warps).
    tile_m, tile_n: elements of C that a block makes at a time. stages: tiles of A and B, 64 products wide, on their way
    or in use. cluster_m, cluster_n: blocks that share their tiles of B, and of A. split: blocks that take slices of K
    of the same tile. band: tiles side by side that are made before those below them; negative: below and beside.
    """

    layout: Layout
    accumulate: Accumulate
    schedule: Schedule
    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int = 1
    cluster_n: int = 1
    split: int = 1
    band: int = 8
