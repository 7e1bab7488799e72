"""Tables for `cudamaster metrics select`: many kernels of a task, each with its time and all that ncu measures.

    python benchmarks/kernel_metrics.py FOLDER [TASK-PRECISION...]    writes FOLDER/TASK-PRECISION.csv, a line a kernel

The kernels are the baseline and the playbook's, each with several sizes of its blocks and of the group of lanes that
shares a row; those that are not correct are left out and named.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudamaster import cards
from cudamaster.devices.cuda import CudaDevice
from cudamaster.evaluation import Workbench
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.profiling.ncu import NoProfile
from cudamaster.values import Candidate, Precision

TASKS = "spmv_csr-fp32 spmm_csr-fp32 matrix_vector_mul-fp32 elu-fp32"
# What is varied: a constant of the text, and the values that it gets in turn.
VARIED = {
    r"\b(?:int threads|kThreads) = (\d+)": (32, 64, 128, 256, 512, 1024),
    r"\bkLanes = (\d+)": (2, 4, 8, 16, 32),
}
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
    candidates = list(variants(bench))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: bench.profiler.build(pair[1]), candidates))
    rows: list[tuple[str, float, dict[str, float]]] = []
    for name, candidate in candidates:
        verdict = bench.evaluate(candidate)
        timed = [case for case in verdict.cases if case.timing is not None]
        if not verdict.correct or not timed:
            print(f"  {name}: {verdict.status}, {verdict.detail}", flush=True)
            continue
        heaviest = max(timed, key=lambda case: case.weight)
        profile = bench.profiler.profile(candidate, heaviest.label, None)
        if isinstance(profile, NoProfile):
            print(f"  {name}: no profile, {profile.reason}", flush=True)
            continue
        assert heaviest.timing is not None
        time_us = statistics.median(heaviest.timing.candidate_us)
        rows.append((name, time_us, dict(profile.kernels[0].metrics)))
        print(f"  {name}: {time_us:.1f} us, {len(rows[-1][2])} metrics", flush=True)
        columns = sorted({metric for _, _, metrics in rows for metric in metrics})
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["kernel", "time_us", *columns])
            for kernel, us, metrics in rows:
                writer.writerow([kernel, f"{us:.3f}", *(f"{metrics[c]:.8g}" if c in metrics else "" for c in columns)])


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
        bench = Workbench(cards.load(task), Precision(precision), device, calls=CALLS)
        measure(bench, given.folder / f"{name}.csv")


if __name__ == "__main__":
    main()
