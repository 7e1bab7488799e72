"""Measures one product: the libraries, the most promising members of the family, checks, and the times that count.

A process of its own does it, so that a member that breaks the GPU's context takes nothing else with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from cudamaster.families import model
from cudamaster.families.config import Config
from cudamaster.hgemm.bench import Bench, BenchError, Deviation
from cudamaster.hgemm.table import (
    AUTHORITIES,
    OURS,
    Check,
    Entry,
    Mode,
    contestant,
    entry_from_samples,
    error_of_mean,
)
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

_FIRST, _SECOND, _LAST = 3, 9, 15  # iterations of a tournament's rounds
_SECOND_ROUND, _BANDED = 5, 2  # members that come into it, and those of them whose bands are tried
_CHUNK, _FEWEST = 20, 100  # iterations of the times that count; fewer where `seconds` are over
_ENOUGH = 0.005  # relative standard error of the ratio to the strongest library
# Our own bound beside the paper's: errors from sums in double, on the scale of the absolute terms.
_AS_EXACT, _ROUNDED = 2.0, 2.0**-20
_BELOW, _BEYOND = 1400.0, 3000.0  # sums of zeros and ones on average: below 2048 for certain, and well beyond


@dataclass(frozen=True)
class Job:
    """A product to measure. `candidates` are members and their libraries by layout, the most promising first."""

    shape: Shape
    accumulate: Accumulate
    candidates: Mapping[Layout, Sequence[tuple[Config, Path]]]
    seconds: float  # that the times of one mode may take
    warm_up: float  # seconds of calls before them
    whole: bool  # use the seconds up, however certain the ratios are
    seed: int


class _Clock:
    """Seconds that the parts of a job take."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, part: str) -> None:
        now = time.monotonic()
        self.spent[part] = self.spent.get(part, 0.0) + now - self._since
        self._since = now


def serve(pipe: Connection, bench: Path, torch: Path | None) -> None:
    """The process: jobs come in; what is tried next, and then an entry or an error, go out."""
    made = Bench(bench, torch)
    pipe.send(("ready", made.versions()))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("entry", measure(made, job, lambda config: pipe.send(("trying", config)))))
        except BenchError as error:
            pipe.send(("error", str(error)))
            return  # the context may be broken


def measure(bench: Bench, job: Job, trying: Callable[[Config], None]) -> Entry:
    """Measure a product. Raises BenchError where a library or every member fails."""
    clock = _Clock()
    fp32 = job.accumulate is Accumulate.FP32
    bench.shape((job.shape.m, job.shape.n, job.shape.k), fp32=fp32, seed=job.seed)
    indexes: dict[str, int] = {}
    algorithms: dict[Layout, int] = {}
    for library in AUTHORITIES:
        for layout in Layout:
            if library == "torch" and not bench.has_torch:
                continue
            index, measured = bench.add_library(library, tn=layout is Layout.TN)
            indexes[contestant(library, layout)] = index
            if measured:
                algorithms[layout] = measured
    clock.lap("autotuning")
    deviations = {name: bench.check(index, library=True) for name, index in indexes.items()}
    spread, libraries = bench.spread(), list(deviations.values())
    for name, each in deviations.items():
        if not (math.isfinite(each.furthest) and math.isfinite(each.scaled)):
            raise BenchError(f"results of {name} are no numbers, so there is nothing to hold ours against")
    clock.lap("checks")
    chosen: dict[Layout, Config] = {}
    tried: dict[Layout, int] = {}
    for layout, candidates in job.candidates.items():
        config, index, tried[layout] = _best(bench, job.shape, candidates, spread, libraries, trying)
        chosen[layout] = config
        indexes[contestant(OURS, layout)] = index
        deviations[contestant(OURS, layout)] = bench.check(index)
    clock.lap("tuning")
    checks = _checks(bench, job, indexes, deviations, spread, max(each.furthest for each in libraries))
    clock.lap("checks")
    for check in checks:
        if check.contestant.startswith(f"{OURS}_") and (not check.passed or check.wrong_from_2048):
            raise BenchError(f"{chosen[Layout(check.contestant[-2:])]} is not as exact as it has to be: {check}")
    names = list(indexes)
    samples: dict[Mode, np.ndarray] = {}
    for mode in Mode:
        samples[mode] = _times(bench, names, [indexes[name] for name in names], mode, job)
        clock.lap(mode.value)
    return entry_from_samples(
        job.shape,
        job.accumulate,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        contestants=names,
        us=samples,
        chosen=chosen,
        tried=tried,
        algorithms=algorithms,
        seconds=clock.spent,
        checks=checks,
    )


def _best(
    bench: Bench,
    shape: Shape,
    candidates: Sequence[tuple[Config, Path]],
    spread: float,
    libraries: Sequence[Deviation],
    trying: Callable[[Config], None],
) -> tuple[Config, int, int]:
    """The fastest member that is as exact as the libraries, its index, and how many were measured."""
    furthest = max(spread, *(each.furthest for each in libraries))
    scaled = _AS_EXACT * max(each.scaled for each in libraries) + _ROUNDED
    added: list[tuple[Config, Path, int]] = []
    for config, path in candidates:
        trying(config)
        try:
            index = bench.add_kernel("ours", path, tn=config.layout is Layout.TN, band=config.band)
        except BenchError as error:
            if "refuses" not in str(error):
                raise
            continue
        found = bench.check(index)
        if found.furthest <= furthest and found.scaled <= scaled:
            added.append((config, path, index))
    if not added:
        raise BenchError(f"no member of the family makes {shape} as exactly as the libraries")
    second = _fastest(bench, added, _FIRST, _SECOND_ROUND)
    last = _fastest(bench, second, _SECOND, _BANDED)
    banded = list(last)
    for config, path, _ in last:
        for band in model.bands(config, shape):
            if band != config.band:
                index = bench.add_kernel("ours", path, tn=config.layout is Layout.TN, band=band)
                banded.append((replace(config, band=band), path, index))
    with_bands = len(banded) - len(last)
    if with_bands:
        last = _fastest(bench, banded, _SECOND, _SECOND_ROUND)
    config, _, index = _fastest(bench, last, _LAST, 1)[0]
    return config, index, len(added) + with_bands


def _fastest(
    bench: Bench, those: Sequence[tuple[Config, Path, int]], iterations: int, keep: int
) -> list[tuple[Config, Path, int]]:
    """The `keep` fastest by the median of times on the device."""
    if len(those) <= 1:
        return list(those)
    times = np.median(bench.time([index for _, _, index in those], iterations, "device"), axis=0)
    return [those[at] for at in np.argsort(times, kind="stable")[:keep]]


def _checks(
    bench: Bench,
    job: Job,
    indexes: Mapping[str, int],
    deviations: Mapping[str, Deviation],
    spread: float,
    libraries: float,
) -> list[Check]:
    """Ours and every library against the references, on general inputs and on zeros and ones."""
    below: dict[str, int] = {}
    above: dict[str, int | None] = dict.fromkeys(indexes)
    what = "general inputs, zeros and ones"
    bench.fill(min(0.5, math.sqrt(_BELOW / job.shape.k)), job.seed + 1)
    for name, index in indexes.items():
        below[name] = bench.check_whole(index).wrong_below
    if job.accumulate is Accumulate.FP32 and job.shape.k > _BEYOND:
        what += ", sums beyond 2048 too"
        bench.fill(math.sqrt(_BEYOND / job.shape.k), job.seed + 2)
        for name, index in indexes.items():
            whole = bench.check_whole(index)
            above[name] = whole.wrong_above if whole.above else None  # None: there was nothing to be wrong
            below[name] += whole.wrong_below
    bench.fill(-1.0, job.seed)
    elements = job.shape.m * job.shape.n
    return [
        Check(name, what, elements, deviations[name].furthest, spread, below[name], above[name], libraries)
        for name in indexes
    ]


def _times(bench: Bench, names: Sequence[str], indexes: Sequence[int], mode: Mode, job: Job) -> np.ndarray:
    """Times of a mode, [iteration, contestant], until the ratios are certain enough or the seconds are over."""
    until = time.monotonic() + job.warm_up
    bench.time(indexes, 1, mode.value)
    while time.monotonic() < until:
        bench.time(indexes, 2, mode.value)
    until = time.monotonic() + job.seconds
    chunks: list[np.ndarray] = []
    while time.monotonic() < until:
        chunks.append(bench.time(indexes, _CHUNK, mode.value))
        if not job.whole and len(chunks) * _CHUNK >= _FEWEST and _certain(names, np.concatenate(chunks)):
            break
    return np.concatenate(chunks)


def _certain(names: Sequence[str], samples: np.ndarray) -> bool:
    """Whether the standard error of ours against the strongest library is small enough, in both layouts."""
    rivals = [at for at, name in enumerate(names) if name.startswith(AUTHORITIES[-1])]
    ours = [at for at, name in enumerate(names) if name.startswith(f"{OURS}_")]
    rival = min(rivals, key=lambda at: float(np.median(samples[:, at])))
    return all(error_of_mean(np.log(samples[:, rival] / samples[:, at]))[0] <= _ENOUGH for at in ours)
