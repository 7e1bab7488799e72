"""Prints how long a modelled profile takes here: the traced build, and the count of a call at the heaviest case.

    python benchmarks/modelled_profile.py [TASK-PRECISION ...] [--all]

It profiles the baseline, after everything that an evaluation builds anyway is built. A count is to take no more than
3 s for spmv_csr and 20 s for any task on two cores; what takes longer is marked, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from cudamaster.build.building import Builder
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.ncu import NoProfile
from cudamaster.modelling.verdicts import Modeller, counter
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region

_USUAL = ("spmv_csr-fp32", "softmax-fp32", "matrix_mul-fp32")
_MOST_S = {"spmv_csr": 3.0}
_MOST_OF_ANY_S = 20.0


def profiled(card: TaskCard, precision: Precision) -> tuple[float, float, str]:
    """Seconds of build and count, and what came of it."""
    device = CpuDevice()
    builder = Builder(card, precision, device)
    baseline = Candidate(card.name, precision, baseline_region(card, precision), device.default_command)
    builder.build_shared()
    builder.forget(baseline)
    started = monotonic()
    builder.traced_worker(baseline)
    built = monotonic()
    heaviest = max((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    found = Modeller(builder, counter(builder, device), seed=1).profile(baseline, heaviest.label)
    what = found.reason if isinstance(found, NoProfile) else f"{found.breakdown['whole call']:.4g} µs modelled"
    return built - started, monotonic() - built, f"{heaviest.label}: {what}"


def main() -> None:
    """Measure the tasks that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="TASK-PRECISION")
    parser.add_argument("--all", action="store_true", help="all tasks in both precisions")
    given = parser.parse_args()
    everything = [f"{name}-{precision}" for name in cards.names() for precision in BENCHMARK_PRECISIONS]
    slow = []
    print(f"{'':32} build s  count s")
    for wanted in everything if given.all else given.tasks or _USUAL:
        name, _, precision = wanted.rpartition("-")
        build_s, count_s, what = profiled(cards.load(name), Precision(precision))
        too_long = count_s > _MOST_S.get(name, _MOST_OF_ANY_S)
        slow += [wanted] if too_long else []
        print(f"{wanted:32} {build_s:7.1f}  {count_s:7.1f}{' !' if too_long else '  '} {what}", flush=True)
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
