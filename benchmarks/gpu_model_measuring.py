"""Times of playbook kernels measured on the spot, for tasks that allocate in a call: part of benchmarks/gpu_model.py.

How long the driver takes to allocate depends on what else the machine does, so times of a suite on several GPUs are
of no use for it. Kernels with a time in the table are not measured again, and the table is written after each.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpu_model_data as data
import gpu_model_times as times

from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Verdict
from cudamaster.devices.cuda import CudaDevice, find_gpus
from cudamaster.modelling import measured
from cudamaster.modelling.measured import Time
from cudamaster.models.playbook import merged, read_step
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

_Missing = tuple[Workbench, str, Candidate]


def measure(table: Path, jobs: int) -> None:
    """Add to `table` what it lacks of the playbook. Raises UsageError where there are more GPUs."""
    if len(find_gpus()) > 1:
        raise UsageError("There are several GPUs here.", "Measure on a machine of one, where nothing else allocates.")
    known = {(time.task, time.precision, time.kernel) for time in (measured.read(table) if table.is_file() else ())}
    device = CudaDevice()
    wanted = [
        each
        for task in cards.names()
        for precision in BENCHMARK_PRECISIONS
        for each in missing(Workbench(cards.load(task), precision, device), known)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        built = [pool.submit(bench.profiler.build, candidate) for bench, _, candidate in wanted]
        for (bench, name, candidate), building in zip(wanted, built, strict=True):
            building.result()
            add(table, bench, name, bench.evaluate(candidate))


def missing(bench: Workbench, known: set[tuple[str, str, str]]) -> list[_Missing]:
    """Playbook kernels of a task that are not among the `known` ones, by task, precision and name."""
    found = []
    for path in data.playbook_files(bench.card.name, bench.precision.value):
        if (bench.card.name, bench.precision.value, path.stem) not in known:
            step = read_step(path)
            command = merged(bench.device.default_command, step.flags)
            found.append((bench, path.stem, Candidate(bench.card.name, bench.precision, step.code, command)))
    return found


def add(table: Path, bench: Workbench, name: str, verdict: Verdict) -> None:
    """Write a kernel's times, and those of the baseline beside it where the table has none of the task."""
    task, precision = bench.card.name, bench.precision.value
    if not verdict.correct:
        print(f"left out {task}-{precision} {name}: {verdict.status}, {verdict.detail}", flush=True)
        return
    kept: dict[tuple[str, str, str], list[Time]] = defaultdict(list)
    for time in measured.read(table) if table.is_file() else ():
        kept[time.task, time.precision, time.kernel].append(time)
    for kernel in ((task, precision, name), (task, precision, times.BASELINE)):
        if kernel not in kept:
            kept[kernel] = times.of_kernel(kernel, [verdict])
    times.write(table, [time for of_kernel in kept.values() for time in of_kernel])
    print(f"added {task}-{precision} {name}: {len(kept[task, precision, name])} cases", flush=True)
