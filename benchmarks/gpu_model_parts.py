"""Each part of the model against Nsight Compute's counters, launch by launch: `parts` of benchmarks/gpu_model.py.

The counters are results/gpu_model/counters.csv.gz, at the heaviest case of each kernel. For every figure the table has

    off       modelled over counted: the median, and the factor that nine of ten launches are within
    weight    by how much the mean error of a launch's time shrinks if the counter takes the place of what was modelled,
              in percentage points: what this part's error costs. Below zero, the error made up for another one.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cudamaster.modelling import launch_time, metrics
from cudamaster.modelling.constants import Constants
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import LaunchTime
from cudamaster.modelling.memory import L2
from cudamaster.modelling.model import modelled

_Row = Mapping[str, float]
_DURATION = "gpu__time_duration.sum"
_LD, _ST = (f"l1tex__t_{{}}_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_ATOMIC = ("l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum")
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"


@dataclass(frozen=True)
class Compared:
    """A launch: what was counted and modelled, and what Nsight Compute says."""

    task: str
    launch: Launch
    time: LaunchTime
    row: _Row


@dataclass(frozen=True)
class Figure:
    """A figure of a launch: modelled, counted, and the launch with the counter in its place, if that changes a time."""

    name: str
    modelled: Callable[[Compared], float]
    counted: Callable[[_Row], float]
    put: Callable[[Launch, float], Launch] | None = None


def _traffic(name: str) -> Callable[[Compared], float]:
    return lambda one: sum(getattr(each, name) for each in one.launch.traffic)


def _put_traffic(*names: str) -> Callable[[Launch, float], Launch]:
    """The figures of all buffers, changed by the same factor."""

    def put(launch: Launch, factor: float) -> Launch:
        changed = (
            each.model_copy(update={name: factor * getattr(each, name) for name in names}) for each in launch.traffic
        )
        return launch.model_copy(update={"traffic": tuple(changed)})

    return put


def _put_instructions(launch: Launch, factor: float) -> Launch:
    kinds = {name: factor * value for name, value in launch.instructions.model_dump().items()}
    kinds["active_share"] = launch.instructions.active_share
    return launch.model_copy(update={"instructions": launch.instructions.model_copy(update=kinds)})


def _put_shared(launch: Launch, factor: float) -> Launch:
    names = ("load_wavefronts", "store_wavefronts", "atomic_wavefronts")
    changed = {name: factor * getattr(launch.shared, name) for name in names}
    return launch.model_copy(update={"shared": launch.shared.model_copy(update=changed)})


def _put_footprints(launch: Launch, factor: float) -> Launch:
    """What reaches DRAM follows from the distinct sectors that are read."""
    changed = []
    for each in launch.traffic:
        points = (point.model_copy(update={"read": factor * point.read}) for point in each.footprints)
        changed.append(each.model_copy(update={"footprints": tuple(points)}))
    return launch.model_copy(update={"traffic": tuple(changed)})


def _named(*names: str) -> Callable[[_Row], float]:
    return lambda row: sum(row.get(name, 0.0) for name in names)


FIGURES = (
    Figure(
        "load requests",
        _traffic("load_requests"),
        _named(_LD.format("requests")),
        _put_traffic("load_requests"),
    ),
    Figure("load sectors", _traffic("load_sectors"), _named(_LD.format("sectors"))),
    Figure(
        "load sectors that L1 misses",
        lambda one: one.time.moved.missed_sectors,
        _named("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum"),
        _put_traffic("missed_sectors"),
    ),
    Figure("store sectors", _traffic("store_sectors"), _named(_ST.format("sectors")), _put_traffic("store_sectors")),
    Figure("sectors of atomics", _traffic("atomic_sectors"), _named(*_ATOMIC), _put_traffic("atomic_sectors")),
    Figure(
        "wavefronts of shared memory and shuffles",
        lambda one: one.launch.shared.wavefronts + one.launch.instructions.shuffle,
        _named(_SHARED),
        _put_shared,
    ),
    Figure(
        "bytes read from DRAM",
        lambda one: one.time.moved.dram_read,
        _named("dram__bytes_read.sum"),
        _put_footprints,
    ),
    Figure("bytes written to DRAM", lambda one: one.time.moved.dram_written, _named("dram__bytes_write.sum")),
    Figure("instructions", lambda one: one.time.instructions, _named("smsp__inst_executed.sum"), _put_instructions),
    Figure(
        "warps resident",
        lambda one: 100.0 * one.time.occupancy.share,
        lambda row: row.get("sm__warps_active.avg.pct_of_peak_sustained_active", 0.0),
    ),
)


def read(path: Path) -> dict[tuple[str, str, str, str], list[_Row]]:
    """Counters of the launches of each kernel in their order, by task, precision, hash of the text and case."""
    found: dict[tuple[str, str, str, str], list[_Row]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            figures = {name: value for name, cell in row.items() if (value := _number(cell)) is not None}
            found[row["task"], row["precision"], row["code"], row["case"]].append(figures)
    return found


def _number(cell: str | None) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return None


def launches(counts: CallCounts, rows: Sequence[_Row], task: str, gpu: Gpu, constants: Constants) -> Iterator[Compared]:
    """Counted launches beside Nsight Compute's; none where they are not as many."""
    own = [event for event in counts.events if isinstance(event, Launch)]
    if sum(each.count for each in own) != len(rows):
        return
    l2, number = L2(gpu.figures.l2_bytes), 0
    for each in own:
        time = launch_time.launch_time(each, gpu, constants, l2)
        if number == 0:  # later ones find in L2 what a profiler has flushed
            yield Compared(task, each, time, rows[number])
        number += each.count


def off(compared: Sequence[Compared], figure: Figure) -> list[float]:
    """Modelled over counted, of launches where there is enough of it to matter."""
    pairs = ((figure.modelled(one), figure.counted(one.row)) for one in compared)
    return [modelled / counted for modelled, counted in pairs if modelled > 0 and counted > 0]


def error(one: Compared, gpu: Gpu, constants: Constants, figure: Figure | None = None) -> float:
    """Logarithm of modelled over measured time of a launch, with a counter in place of what was modelled."""
    time = one.time
    if figure is not None and figure.put is not None:
        modelled, counted = figure.modelled(one), figure.counted(one.row)
        if modelled > 0 and counted > 0:
            changed = figure.put(one.launch, counted / modelled)
            time = launch_time.launch_time(changed, gpu, constants, L2(gpu.figures.l2_bytes))
    return math.log((time.device_us + _around(gpu)) / (one.row[_DURATION] / 1000))


def _around(gpu: Gpu) -> float:
    """What Nsight Compute's duration of a launch has beside it, as in metrics.py."""
    return gpu.figures.empty_device_us / 2


def table(compared: Sequence[Compared], gpu: Gpu, constants: Constants) -> list[str]:
    """Markdown: a row for each figure."""
    plain = float(np.mean([abs(error(one, gpu, constants)) for one in compared]))
    rows = [
        f"Of {len(compared)} launches, the time is off by {100 * plain:.1f} % in the mean (of logarithms).",
        "",
        "| figure | launches | modelled / counted | nine of ten within | weight |",
        "|---|--:|--:|--:|--:|",
    ]
    for figure in FIGURES:
        ratios = off(compared, figure)
        if not ratios:
            continue
        within = math.exp(float(np.quantile(np.abs(np.log(ratios)), 0.9)))
        weight = ""
        if figure.put is not None:
            put = float(np.mean([abs(error(one, gpu, constants, figure)) for one in compared]))
            weight = f"{100 * (plain - put):+.1f}"
        rows.append(f"| {figure.name} | {len(ratios)} | {np.median(ratios):.2f} | {within:.2f} | {weight} |")
    return rows


def longest(
    counts: CallCounts, rows: Sequence[_Row], gpu: Gpu, constants: Constants
) -> tuple[Mapping[str, float], _Row] | None:
    """Modelled and counted metrics of the launch that takes longest by its counters; None where launches differ."""
    own = [event for event in counts.events if isinstance(event, Launch)]
    each_of = [k for k, event in enumerate(own) for _ in range(event.count)]
    if len(each_of) != len(rows) or not rows:
        return None
    number = max(range(len(rows)), key=lambda k: rows[k][_DURATION])
    times = modelled(counts, gpu, constants).launches
    return metrics.metrics(own[each_of[number]], times[each_of[number]], gpu), rows[number]
