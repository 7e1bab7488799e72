"""Tables of products that nobody measured, with known ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cudamaster.families.config import Config, Schedule
from cudamaster.hgemm.table import (
    AUTHORITIES,
    Check,
    Entry,
    Form,
    Header,
    Mode,
    Table,
    Writer,
    contestant,
    entry_from_samples,
    header,
    read,
)
from cudamaster.tasks.hgemm import SIZES, Accumulate, Layout, Shape

H200 = header(
    form=Form.CLOSED, gpu="NVIDIA H200", driver="570.124", cuda="12.9",
    libraries={"cublas": "12.9.1", "cublaslt": "12.9.1", "torch": "2.9.0"},
)  # fmt: skip
NAMES = [contestant(name, layout) for name in ("ours", *AUTHORITIES) for layout in Layout]


def config(layout: Layout, accumulate: Accumulate, shape: Shape) -> Config:
    """A plausible choice."""
    wide = math.log2(shape.m * shape.n)
    tile = 64 if wide < 16 else 128
    tile_n = 64 if wide < 18 else 128 if wide < 22 else 256
    tiles = math.ceil(shape.m / tile) * math.ceil(shape.n / tile_n)
    split = max(1, min(16, int(2 ** round(math.log2(max(1, 132 / tiles)))), shape.k // 256))
    schedule = Schedule.PINGPONG if wide > 20 else Schedule.COOPERATIVE if wide > 16 else Schedule.WARPS
    return Config(
        layout, accumulate, schedule, tile, tile_n,
        min(7, 2 + int(math.log2(shape.k) - 5) // 2), 2 if wide > 22 else 1, 1, split, 1 if wide < 22 else 8,
    )  # fmt: skip


def entry(
    shape: Shape,
    accumulate: Accumulate = Accumulate.FP32,
    ratios: Mapping[str, float] | None = None,
    *,
    ours_us: float = 10.0,
    noise: float = 0.0,
    iterations: int = 40,
    date: str = "2026-11-26T12:00:00+00:00",
    seed: int = 1,
) -> Entry:
    """An entry in which an authority's faster layout, tn, takes `ratios[authority]` times as long as ours in nn.

    Ours in tn takes 1.25 times as long as in nn, an authority in nn 1.5 times as long as in tn. Noise is that of the
    logarithm, drawn for each call.
    """
    of = dict.fromkeys(AUTHORITIES, 1.1) | dict(ratios or {})
    means = {"ours_nn": ours_us, "ours_tn": 1.25 * ours_us}
    for name in AUTHORITIES:
        means |= {f"{name}_tn": of[name] * ours_us, f"{name}_nn": 1.5 * of[name] * ours_us}
    drawn = np.random.default_rng(seed)
    us = {
        mode: np.array([means[name] for name in NAMES])
        * np.exp(noise * drawn.standard_normal((iterations, len(NAMES))))
        for mode in Mode
    }
    checks = (
        Check("ours_nn", "all elements", shape.m * shape.n, 0.01, 0.02, 0, 3),
        Check("ours_tn", "all elements", shape.m * shape.n, 0.01, 0.02, 0, 3),
    )
    return entry_from_samples(
        shape, accumulate, date=date, contestants=NAMES, us=us,
        chosen={layout: config(layout, accumulate, shape) for layout in Layout},
        tried=dict.fromkeys(Layout, 60), algorithms=dict.fromkeys(Layout, 100),
        seconds={"tuning": 4.0, "autotuning": 2.0, "checks": 0.5, "offline": 3.0, "server": 6.0}, checks=checks,
    )  # fmt: skip


def written(path: Path, *entries: Entry, about: Header = H200) -> Table:
    """The table of entries, by way of its file."""
    with Writer(path, about) as writer:
        for each in entries:
            writer.append(each)
    return read(path)


def grid(sizes: tuple[int, ...] = SIZES, *, missing: int = 0, seed: int = 7) -> list[Entry]:
    """Entries of a grid in both accumulations, with ratios as in the paper's figure 3: ahead where products are small.

    Every `missing`-th shape was not measured.
    """
    drawn = np.random.default_rng(seed)
    made = []
    for accumulate in Accumulate:
        for number, shape in enumerate(Shape(m, n, k) for m in sizes for n in sizes for k in sizes):
            if missing and number % missing == missing - 1:
                continue
            size = math.log2(shape.products)
            middle = 1 + 0.35 * max(0.0, (34 - size) / 16) + drawn.normal(0, 0.05)
            least = max(3.0, shape.operations / 700e6, shape.bytes / 3.5e6)
            ahead = (0.12, 0.09, 0.05, 0.0)
            ratios = {name: max(0.6, middle + extra) for name, extra in zip(AUTHORITIES, ahead, strict=True)}
            made.append(entry(shape, accumulate, ratios, ours_us=least, noise=0.02, iterations=60, seed=number))
    return made
