"""Seconds from candidate to verdict, split into build, start of processes, check and timing, per task and precision.

    python benchmarks/verdict.py [--device cpu|cuda]

Each row is the baseline evaluated as a candidate, with the harness built before (as in every round after the
first); the first row of a task also names what building the harness took. `waiting` and `rest` are the time that no
other column has; `total` is wall time.

    python benchmarks/verdict.py --command [TASK...] [--device cpu|cuda]

Each row is `cudamaster evaluate` of the playbook's last kernel as a process of its own: `command` is Python loading its
modules before it looks at the candidate, and `total` the wall time of the process. `unnamed` is what the columns leave
out of that.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import fields

from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Seconds
from cudamaster.devices.choose import choose
from cudamaster.devices.protocol import Device
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

COLUMNS = [part.name for part in fields(Seconds)]


def main() -> None:
    """Evaluate once for each row and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    parser.add_argument("--command", action="store_true")
    options = parser.parse_args()
    device = choose(options.device)
    print(f"candidate to verdict on {device.hardware().name}, wall seconds")
    names = ["harness", *COLUMNS, *(["unnamed"] if options.command else []), "total"]
    print(f"{'task':24}{''.join(f'{name:>10}' for name in names)}  status")
    totals = []
    for name in options.tasks or cards.names():
        for precision in BENCHMARK_PRECISIONS:
            bench = Workbench(cards.load(name), precision, device)
            started = time.monotonic()
            bench.build_shared()
            harness = time.monotonic() - started
            measure = command if options.command else evaluation
            seconds, total, status = measure(bench, device)
            split = [harness, *seconds]
            split += [total - sum(seconds)] if options.command else []
            print(f"{name + ' ' + precision:24}{''.join(f'{each:10.2f}' for each in (*split, total))}  {status}")
            totals.append(total)
    print(f"median {statistics.median(totals):.2f} s, longest {max(totals):.2f} s")


def evaluation(bench: Workbench, device: Device) -> tuple[list[float], float, str]:
    """The baseline as a candidate: seconds of each column, wall seconds, status."""
    # A comment of its own makes it a candidate that no cache knows.
    fresh = f"// {time.time_ns()}\n{bench.baseline.code}"
    started = time.monotonic()
    verdict = bench.evaluate(Candidate(bench.card.name, bench.precision, fresh, device.default_command))
    total = time.monotonic() - started
    return [getattr(verdict.seconds, name) for name in COLUMNS], total, verdict.status


def command(bench: Workbench, device: Device) -> tuple[list[float], float, str]:
    """The same of `cudamaster evaluate` and the playbook's last kernel."""
    kernels = sorted((resources.package() / "playbook" / bench.card.name / bench.precision).glob("*.cu"))
    code = kernels[-1].read_text() if kernels else bench.baseline.code
    with tempfile.NamedTemporaryFile("w", suffix=".cu") as file:
        file.write(f"// {time.time_ns()}\n{code}")
        file.flush()
        words = ["evaluate", bench.card.name, file.name, "--precision", bench.precision, "--device", device.name]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cudamaster", *words, "--json"], capture_output=True, text=True, check=False
        )
        total = time.monotonic() - started
    verdict = json.loads(done.stdout)
    return [float(verdict["seconds"].get(name, 0.0)) for name in COLUMNS], total, str(verdict["status"])


if __name__ == "__main__":
    main()
