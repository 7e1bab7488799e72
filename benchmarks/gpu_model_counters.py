"""Counts of the CPU device against Nsight Compute's counters on an H200, kernel by kernel: `counters` of gpu_model.py.

The counters are results/h200/metrics/*.csv, which benchmarks/kernel_metrics.py measured at the heaviest case, of one
kernel of the call: calls of several kernels are left out.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from kernel_metrics import variants

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import gpu
from cudamaster.modelling.counts import Launch
from cudamaster.modelling.tracing import NoTrace, trace
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

_METRICS = resources.bench().parent / "results" / "h200" / "metrics"
_SEED = 1


def _traffic(name: str) -> Callable[[Launch], float]:
    return lambda launch: sum(getattr(traffic, name) for traffic in launch.traffic)


def _instructions(launch: Launch) -> float:
    kinds = launch.instructions.model_dump(exclude={"active_share"})
    memory = sum(traffic.load_requests + traffic.store_requests + traffic.atomic_requests for traffic in launch.traffic)
    shared = launch.shared.load_requests + launch.shared.store_requests + launch.shared.atomic_requests
    return sum(kinds.values()) + memory + shared


def _wavefronts(launch: Launch) -> float:
    return _traffic("wavefronts")(launch) + launch.shared.wavefronts


def _counter(name: str) -> Callable[[Mapping[str, str]], float]:
    return lambda row: float(row.get(name) or 0)


def _busy_cycles(row: Mapping[str, str]) -> float:
    """Cycles in which L1's data pipe served a wavefront: Nsight Compute gives their share alone."""
    share = _counter("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed")(row)
    return share / 100 * _counter("l1tex__cycles_elapsed.sum")(row)


# What is compared, the counter, what the CPU device counts.
COMPARED: tuple[tuple[str, Callable[[Mapping[str, str]], float], Callable[[Launch], float]], ...] = (
    ("load requests", _counter("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"), _traffic("load_requests")),
    ("load sectors", _counter("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"), _traffic("load_sectors")),
    (
        "missed sectors",
        _counter("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum"),
        _traffic("missed_sectors"),
    ),
    ("store sectors", _counter("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"), _traffic("store_sectors")),
    ("wavefronts", _busy_cycles, _wavefronts),
    ("instructions", _counter("smsp__inst_executed.sum"), _instructions),
)


def compare(target: Path) -> None:
    """Write the table to a file, as Markdown."""
    rows: list[tuple[str, str, list[float | None]]] = []
    for file in sorted(_METRICS.glob("*.csv")):
        task, _, precision = file.stem.rpartition("-")
        with file.open() as lines:
            measured = {row["kernel"]: row for row in csv.DictReader(lines)}
        card, device = cards.load(task), CpuDevice()
        bench = Workbench(card, Precision(precision), device)
        builder = Builder(card, Precision(precision), device)
        label = max((case for case in card.cases if case.sweep), key=lambda case: case.weight).label
        for name, candidate in variants(bench):
            if name not in measured:
                continue
            build = builder.traced_worker(candidate)
            if build.worker is None:
                print(f"{task} {name}: {build.detail}", flush=True)
                continue
            (found,) = trace(device, builder.judge(), build.worker, [label], wanted=gpu.load(), seed=_SEED)
            if isinstance(found, NoTrace):
                print(f"{task} {name}: {found.reason}", flush=True)
                continue
            launches = [event for event in found.events if isinstance(event, Launch)]
            if len(launches) != 1 or launches[0].count != 1:
                print(f"{task} {name}: several launches", flush=True)
                continue
            ratios = [_ratio(count(launches[0]), counter(measured[name])) for _, counter, count in COMPARED]
            rows.append((file.stem, name, ratios))
            print(f"{file.stem} {name}: {ratios}", flush=True)
    target.write_text(_table(rows))


def _ratio(counted: float, measured: float) -> float | None:
    """None where there is no such counter, or nothing to compare."""
    return counted / measured if measured > 0 else None


def _table(rows: list[tuple[str, str, list[float | None]]]) -> str:
    names = [name for name, _, _ in COMPARED]
    head = [
        "# Counts against counters",
        "",
        "What the CPU device counts over what Nsight Compute counted on an H200, at each task's heaviest case, by",
        "`python benchmarks/gpu_model.py counters`. 1 is the same. Loads and stores are of global memory; sectors are",
        "missed in L1; wavefronts are those of L1 and shared memory; instructions are those of all kinds and the",
        "requests to memory.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for title, pick in (("least", min), ("median", statistics.median), ("largest", max)):
        columns = [[ratios[i] for _, _, ratios in rows if ratios[i] is not None] for i in range(len(names))]
        head.append(f"| {title} of {len(rows)} | " + " | ".join(f"{pick(column):.2f}" for column in columns) + " |")
    body = ["", "| task | kernel | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for task, name, ratios in rows:
        shown = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        body.append(f"| {task} | {name} | " + " | ".join(shown) + " |")
    return "\n".join([*head, *body]) + "\n"
