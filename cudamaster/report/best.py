"""The fastest kernels that results hold."""

from __future__ import annotations

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Precision
from cudamaster.report.data import Report


def best_kernels(report: Report) -> dict[tuple[str, Precision], Candidate]:
    """The fastest correct kernel of each task and precision that was measured on a GPU.

    Raises UsageError where a kernel is not the one that its result is about.
    """
    found: dict[tuple[str, Precision], tuple[float, Candidate]] = {}
    for result in report.results:
        if result.hardware.emulated or result.best is None or result.score is None:
            continue
        candidate = Candidate(result.task, result.precision, result.best.code, result.best.command)
        if candidate.id != result.best.candidate:
            raise UsageError(
                f"The kernel of {result.name} in {result.origin} is not the one that was measured.",
                "Restore it, or leave it out.",
            )
        key = (result.task, result.precision)
        if key not in found or result.score > found[key][0]:
            found[key] = (result.score, candidate)
    return {key: candidate for key, (_, candidate) in found.items()}
