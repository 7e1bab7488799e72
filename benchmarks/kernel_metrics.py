"""Tables for `cudamaster metrics select`: many kernels of a task, each with its time and all that ncu measures.

    python benchmarks/kernel_metrics.py FOLDER [TASK-PRECISION...]    writes FOLDER/TASK-PRECISION.csv, a line a kernel

The kernels are the baseline and the playbook's, each with several sizes of its blocks and of the group of lanes that
shares a row, at the task's heaviest case; kernels that are not correct are left out and named. What a table
already holds is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudamaster.core.values import Candidate, Precision
from cudamaster.devices.cuda import CudaDevice
from cudamaster.devices.ncu import NoProfile
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.profiling.metric_sets import METRIC_NAME
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

TASKS = "spmv_csr-fp32 matrix_vector_mul-fp32 elu-fp32 relu-fp32"
# What is varied: a constant of the text, and the values that it gets in turn.
VARIED = {
    r"\b(?:int threads|kThreads) = (\d+)": (32, 64, 128, 256, 512, 1024),
    r"\bkLanes = (\d+)": (2, 4, 8, 16, 32),
}
MACHINE = ("device__", "numa__", "nvlink__", "pcie__", "profiler__")
CALLS = 20


def variants(bench: Workbench) -> Iterator[tuple[str, Candidate]]:
    """Every kernel as it is, and with one constant changed."""
    device = bench.device
    texts = [("baseline", bench.baseline.code, device.default_command)]
    for step in PlaybookModel().steps(bench.card.name, bench.precision.value):
        texts.append((step.idea, step.code, merged(device.default_command, step.flags)))
    for name, code, command in texts:
        yield name, Candidate(bench.card.name, bench.precision, code, command)
        for pattern, values in VARIED.items():
            found = re.search(pattern, code)
            for value in values if found is not None else ():
                assert found is not None
                if int(found[1]) != value:
                    changed = code[: found.start(1)] + str(value) + code[found.end(1) :]
                    label = f"{name}, {found[0].removesuffix(found[1])}{value}"
                    yield label, Candidate(bench.card.name, bench.precision, changed, command)


def measure(bench: Workbench, path: Path) -> None:
    """Write the task's table."""
    rows = read(path)
    candidates = [(name, candidate) for name, candidate in variants(bench) if name not in rows]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: bench.profiler.build(pair[1]), candidates))
    for name, candidate in candidates:
        verdict = bench.evaluate(candidate)
        timed = [case for case in verdict.cases if case.timing is not None]
        if not verdict.correct or not timed:
            print(f"  {name}: {verdict.status}, {verdict.detail}", flush=True)
            continue
        profile = bench.profiler.profile(candidate, timed[0].label, None)
        if isinstance(profile, NoProfile):
            print(f"  {name}: no profile, {profile.reason}", flush=True)
            continue
        assert timed[0].timing is not None
        time_us = statistics.median(timed[0].timing.candidate_us)
        metrics = profile.kernels[0].metrics.items()
        figures = {metric: f"{value:.5g}" for metric, value in metrics if of_kernels(metric)}
        rows[name] = {"time_us": f"{time_us:.2f}", **figures}
        print(f"  {name}: {time_us:.1f} us, {len(figures)} metrics", flush=True)
        write(path, rows)


def of_kernels(metric: str) -> bool:
    """Whether a name is that of a kernel's metric, neither of the machine nor of samples in the course of a kernel."""
    return re.match(METRIC_NAME, metric) is not None and not metric.startswith(MACHINE)


def read(path: Path) -> dict[str, dict[str, str]]:
    """What a table holds, by kernel."""
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {row.pop("kernel"): row for row in csv.DictReader(file)}


def write(path: Path, rows: Mapping[str, Mapping[str, str]]) -> None:
    """Write the table in one step, so that an interruption leaves it whole."""
    columns = sorted({metric for row in rows.values() for metric in row} - {"time_us"})
    with path.with_suffix(".new").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["kernel", "time_us", *columns], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({"kernel": kernel, **row} for kernel, row in rows.items())
    path.with_suffix(".new").replace(path)


def heaviest(card: cards.TaskCard) -> cards.TaskCard:
    """The card with its heaviest timed case alone."""
    case = max((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    return cards.TaskCard.model_validate({**card.model_dump(), "sweep": [dict(case.values)]})


def main() -> None:
    """Measure the tasks given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tasks", nargs="*", default=TASKS.split())
    given = parser.parse_args()
    device = CudaDevice()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.tasks:
        task, precision = name.rsplit("-", 1)
        print(name, flush=True)
        bench = Workbench(heaviest(cards.load(task)), Precision(precision), device, calls=CALLS)
        measure(bench, given.folder / f"{name}.csv")


if __name__ == "__main__":
    main()
