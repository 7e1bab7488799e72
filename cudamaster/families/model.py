"""Which members of the family are worth measuring for a product: a model of their times, good for ranking alone.

A block's step of 64 products takes what its tensor cores or its copies from L2 take, whichever is longer; tiles go over
the GPU in waves; results leave at a rate of their own. All constants are of Hopper: measured on an H100 for this family
or counted from its instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from cudamaster.families.config import Config, Schedule
from cudamaster.families.render import STEP, Misfit, details
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

BLOCKS = 132  # multiprocessors; one block each
# Clusters that find room at once, by their blocks, each of which fills a multiprocessor (an H100 says so).
_CLUSTERS = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15, 12: 7, 16: 7}
_CLOCK = 1.7e3  # of a multiprocessor under load, clocks in a microsecond
_PRODUCTS = 1024 * 2  # multiply-adds of a multiprocessor's tensor cores in a clock
_L2 = 11000.0  # bytes that all multiprocessors together get from L2 in a clock
_L2_OF_ONE = 96.0  # and one alone
_SHARED = 128.0  # bytes that tensor cores read from shared memory in a clock
_MEMORY = 2.9e6  # bytes in a microsecond
_OUT = 32.0  # bytes of results that leave a multiprocessor in a clock
_OUT_AT_LEAST, _FILL, _STEP_AT_LEAST = 600, 1500, 70  # clocks
_LAUNCH, _MEET_IN_CLUSTER, _MEET_IN_L2 = 2.0, 1.0, 3.0  # microseconds
_STAGES = (12, 10, 8, 7, 6, 5, 4, 3)

_TILES = {
    Schedule.COOPERATIVE: [
        (64, 16), (64, 32), (64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256),
        (256, 64), (256, 128), (192, 192), (256, 192), (256, 256),
    ],
    Schedule.PINGPONG: [
        (64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 192), (192, 128), (128, 256), (256, 128),
    ],
}  # fmt: skip
_SHARED_TILES = [(64, 256), (128, 128), (128, 192), (192, 128), (128, 256), (256, 128), (256, 192), (256, 256)]
_CLUSTER_SPLITS = [
    (tile, split)
    for tile in [(64, 16), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128)]
    for split in (2, 3, 4, 8, 16)
]
_L2_SPLITS = [
    (tile, split)
    for tile in [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)]
    for split in (2, 3, 4, 6, 7, 8, 12, 16, 32)
]


def family(layout: Layout, accumulate: Accumulate) -> Iterator[Config]:
    """All members that may be tried, each with as many stages as fit."""

    def fitting(schedule: Schedule, tile: tuple[int, int], m: int = 1, n: int = 1, split: int = 1) -> Iterator[Config]:
        for stages in _STAGES:
            config = Config(layout, accumulate, schedule, *tile, stages, m, n, split, 8)
            try:
                details(config)
            except Misfit:
                continue
            yield config
            return

    for schedule, tiles in _TILES.items():
        for tile in tiles:
            yield from fitting(schedule, tile)
            if tile in _SHARED_TILES:
                yield from fitting(schedule, tile, 2, 1)
                yield from fitting(schedule, tile, 1, 2)
    for tile, split in _CLUSTER_SPLITS:
        yield from fitting(Schedule.COOPERATIVE, tile, split=split)
    for tile, split in _L2_SPLITS:
        yield from fitting(Schedule.THROUGH_L2, tile, split=split)
    if accumulate is Accumulate.FP32:  # warps that share K have no other sums
        for warps in (4, 8, 16):
            yield Config(layout, accumulate, Schedule.WARPS, 16, 32, warps, 1, 1, 1, 8)


class Bound(StrEnum):
    """What takes the most of a member's modelled time."""

    TENSOR = "tensor cores"
    SHARED = "shared memory"  # which the tensor cores read
    L2 = "copies from L2"
    STEP = "latency of steps"
    MEMORY = "memory"
    AROUND = "launch and ends"  # with the first copies and the way out of the results


@dataclass(frozen=True)
class Modelled:
    """A call by the model: its time, the waves that tiles come in, the blocks at work in a full one, its bound.

    The time is infinity for a member that cannot make the product.
    """

    microseconds: float
    waves: int
    blocks: int
    bound: Bound


def microseconds(config: Config, shape: Shape) -> float:
    """Modelled time of a call on the device; infinity for a member that cannot make this product."""
    return modelled(config, shape).microseconds


def modelled(config: Config, shape: Shape) -> Modelled:
    """A call on the device."""
    if config.schedule is Schedule.WARPS:
        return _by_warps(config, shape)
    sharing = config.cluster_m * config.cluster_n
    through_l2 = config.schedule is Schedule.THROUGH_L2
    tiles = math.ceil(shape.m / (config.tile_m * config.cluster_m))
    tiles *= math.ceil(shape.n / (config.tile_n * config.cluster_n))
    room = _CLUSTERS[sharing if through_l2 or config.split == 1 else config.split]
    if through_l2 and tiles * config.split > room:  # all have to run at once
        return Modelled(math.inf, 0, 0, Bound.AROUND)
    waves = math.ceil(tiles / room)
    busy = min(tiles, room) * sharing * config.split
    steps = max(math.ceil(math.ceil(shape.k / STEP) / config.split), 1)
    copied = (config.tile_m / config.cluster_n + config.tile_n / config.cluster_m) * STEP * 2
    read = (64 + config.tile_n) * STEP * 2 * (config.tile_m / 64)
    limits = {
        Bound.TENSOR: config.tile_m * config.tile_n * STEP / _PRODUCTS,
        Bound.SHARED: read / _SHARED,
        Bound.L2: copied / min(_L2 / busy, _L2_OF_ONE),
        Bound.STEP: _STEP_AT_LEAST,
    }
    bound = max(limits, key=lambda limit: limits[limit])
    out = config.tile_m * config.tile_n * 2 / _OUT + _OUT_AT_LEAST
    products = steps * limits[bound]
    if config.schedule is Schedule.PINGPONG:
        clocks = waves * max(products, (products + out) / 2) + out
    else:
        clocks = waves * (products + out)
    extra = _LAUNCH
    if config.split > 1:
        extra += _MEET_IN_L2 if through_l2 else _MEET_IN_CLUSTER
        clocks += config.tile_m * config.tile_n * 8 / _L2_OF_ONE
    memory = shape.bytes / _MEMORY if shape.bytes > 30e6 else 0.0
    on_device = (clocks + _FILL) / _CLOCK
    if memory > on_device:
        bound = Bound.MEMORY
    elif 2 * waves * products / _CLOCK < on_device + extra:
        bound = Bound.AROUND
    return Modelled(max(on_device, memory) + extra, waves, busy, bound)


def _by_warps(config: Config, shape: Shape) -> Modelled:
    warps = config.stages
    tiles = math.ceil(shape.m / 16) * math.ceil(shape.n / 32)
    at_once = BLOCKS * max(24 // warps, 1)
    waves = math.ceil(tiles / at_once)
    steps = steps_of_a_warp(config, shape)
    traffic = tiles * (16 + 32) * 2 * shape.k / (_L2 * _CLOCK / 2)
    work = max(waves * (0.4 + 0.7 * steps), traffic)
    time = _LAUNCH + work + warps / 40
    bound = Bound.AROUND if 2 * work < time else Bound.L2 if work == traffic else Bound.STEP
    return Modelled(time, waves, min(tiles, at_once), bound)


def steps_of_a_warp(config: Config, shape: Shape) -> int:
    """Steps of 32 products that a warp takes of K, with the schedule "warps"."""
    return math.ceil(shape.k / (32 * config.stages))


def ranked(layout: Layout, accumulate: Accumulate, shape: Shape) -> list[Config]:
    """The members that can make a product, the most promising first.

    Where sums may be in fp16, those with sums in fp32 are among them: they are more exact, and may be as fast.
    """
    ways = [accumulate] if accumulate is Accumulate.FP32 else [Accumulate.FP16, Accumulate.FP32]
    made = [(microseconds(config, shape), config) for way in ways for config in family(layout, way)]
    made.sort(key=lambda pair: pair[0])
    return [config for time, config in made if math.isfinite(time)]


def bands(config: Config, shape: Shape) -> list[int]:
    """Bands worth trying for a configuration: all where tiles outnumber the blocks that make them."""
    if config.schedule in (Schedule.WARPS, Schedule.THROUGH_L2) or config.split > 1 or config.tiles(shape) <= BLOCKS:
        return [config.band]
    return [1, 2, 4, 8, 16, 32, -1, -2, -4, -8, -16]
