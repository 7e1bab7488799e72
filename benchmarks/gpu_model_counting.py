"""What one kernel does, printed: the `counts` command of benchmarks/gpu_model.py."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

from gpu_model_data import SEED

from cudamaster.build.building import Builder
from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import gpu
from cudamaster.modelling.tracing import NoTrace, trace
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench


def show(named: str, file: Path | None, case: str) -> None:
    """Count a kernel of TASK-PRECISION at a case and print counts as JSON, seconds to stderr. Raises UsageError."""
    card, precision = _named(named)
    labels, device = _labels(card, case), CpuDevice()
    candidate = Workbench(card, precision, device).baseline
    if file is not None:
        candidate = Candidate(card.name, precision, _text(file), device.default_command)
    builder = Builder(card, precision, device)
    begun = monotonic()
    judge, build = builder.judge(), builder.traced_worker(candidate)
    if build.worker is None:
        sys.exit(f"{named} cannot be traced: {build.detail}\n{build.log}")
    built = monotonic()
    found = trace(device, judge, build.worker, labels, wanted=gpu.load(), seed=SEED)
    for label, counts in zip(labels, found, strict=True):
        if isinstance(counts, NoTrace):
            print(f"{label}: {counts.reason}", file=sys.stderr)
        else:
            print(counts.model_dump_json(indent=1, exclude_defaults=True))
    print(f"built in {built - begun:.1f} s, counted in {monotonic() - built:.2f} s", file=sys.stderr)


def _named(name: str) -> tuple[cards.TaskCard, Precision]:
    task, dash, precision = name.rpartition("-")
    if not dash or precision not in list(BENCHMARK_PRECISIONS):
        wanted = " or ".join(f"{task if dash else name}-{each}" for each in BENCHMARK_PRECISIONS)
        raise UsageError(f"{name!r} names no precision of a task.", f"Give TASK-PRECISION: {wanted}.")
    return cards.load(task), Precision(precision)


def _labels(card: cards.TaskCard, case: str) -> list[str]:
    timed = [each.label for each in sorted((each for each in card.cases if each.sweep), key=lambda each: each.weight)]
    if case == "all":
        return timed
    if case == "heaviest":
        return timed[-1:]
    if case not in {each.label for each in card.cases}:
        raise UsageError(
            f"{card.name} has no case {case!r}.", f"Choose heaviest, all or, as timed cases, one of: {' '.join(timed)}."
        )
    return [case]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The kernel {file} cannot be read: {error}.", "Give a file with the text of a region."
        ) from error
