"""Verdicts with the times that a test gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudamaster.core.speed import overall
from cudamaster.core.values import CaseVerdict, GpuModel, Modelled, OutputCheck, Status, Timing, Verdict

MODEL = GpuModel("v0", "H200", ratio_error=1.5)


def rounds(ratios: Sequence[float], candidate_us: float = 10.0) -> Timing:
    """Times of rounds with these speedups."""
    return Timing(tuple(ratio * candidate_us for ratio in ratios), (candidate_us,) * len(ratios))


def check(worst_error: float = 0.001, mismatches: int = 0) -> OutputCheck:
    """A check of an output."""
    return OutputCheck("out", 8, 8, mismatches, worst_error, 0.0, 0.01, "")


def case(ratios: Sequence[float], label: str = "N=8", weight: float = 1.0, **more: Any) -> CaseVerdict:
    """A timed case with these speedups in its rounds."""
    return replace(CaseVerdict(label, True, weight, Status.CORRECT, outputs=(check(),), timing=rounds(ratios)), **more)


def modelled_case(ratio: float, label: str = "N=8", weight: float = 1.0, **more: Any) -> CaseVerdict:
    """A case whose times are a model's."""
    times = Modelled(ratio * 10.0, 10.0, ratio * 8.0, 8.0, "memory")
    return replace(case([], label, weight, timing=None, modelled=times), **more)


def verdict(*cases: CaseVerdict, candidate: str = "c", **more: Any) -> Verdict:
    """A correct verdict on these cases, as a GPU gives it; P is that of the cases where they have times."""
    timed = [(each.weight, each.timing.baseline_us, each.timing.candidate_us) for each in cases if each.timing]
    speed = overall(timed) if timed and all(base for _, base, _ in timed) else None
    score = speed.speedup if speed is not None else 1.0
    made = Verdict(candidate, "cuda", False, Status.CORRECT, "all right", score=score, speed=speed, cases=cases)
    return replace(made, **more)


def modelled_verdict(*cases: CaseVerdict, **more: Any) -> Verdict:
    """A correct verdict of the CPU device with modelled times."""
    return verdict(*cases, **{"device": "cpu", "emulated": True, "modelled": MODEL, **more})
