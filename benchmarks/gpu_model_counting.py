"""What one kernel does, printed: the `counts` command of benchmarks/gpu_model.py."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

from gpu_model_data import SEED

from cudamaster import cards
from cudamaster.building import Builder
from cudamaster.devices.cpu import CpuDevice
from cudamaster.evaluation import Workbench
from cudamaster.modelling.tracing import NoTrace, trace
from cudamaster.values import Candidate, Precision


def show(named: str, file: Path | None, case: str) -> None:
    """Count a kernel of TASK-PRECISION at a case and print counts as JSON, seconds to stderr."""
    task, _, precision = named.rpartition("-")
    card, device = cards.load(task), CpuDevice()
    bench = Workbench(card, Precision(precision), device)
    candidate = bench.baseline
    if file is not None:
        candidate = Candidate(task, Precision(precision), file.read_text(), device.default_command)
    timed = sorted((each for each in card.cases if each.sweep), key=lambda each: each.weight)
    labels = [each.label for each in timed] if case == "all" else [timed[-1].label if case == "heaviest" else case]
    builder = Builder(card, Precision(precision), device)
    begun = monotonic()
    judge, build = builder.judge(), builder.traced_worker(candidate)
    if build.worker is None:
        sys.exit(f"{named} cannot be traced: {build.detail}\n{build.log}")
    built = monotonic()
    found = trace(device, judge, build.worker, labels, seed=SEED)
    for label, counts in zip(labels, found, strict=True):
        if isinstance(counts, NoTrace):
            print(f"{label}: {counts.reason}", file=sys.stderr)
        else:
            print(counts.model_dump_json(indent=1, exclude_defaults=True))
    print(f"built in {built - begun:.1f} s, counted in {monotonic() - built:.2f} s", file=sys.stderr)
