"""Modelled speedups with their intervals: of a case, of P, and of one verdict's kernel over another's.

All are by the errors that a verdict's model brings along, so that a record says the same whenever it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cudamaster.core import speed
from cudamaster.core.likelihood import Errors, Makeup
from cudamaster.core.speed import Comparison
from cudamaster.core.values import CaseVerdict, GpuModel, Modelled, Verdict

_Part = tuple[float, float, float]  # weight, speedup, reach


def of_case(times: Modelled, model: GpuModel) -> Comparison:
    """The speedup of the candidate over the baseline at one case."""
    return of_cases([(1.0, times)], model)


def of_cases(cases: Sequence[tuple[float, Modelled]], model: GpuModel) -> Comparison:
    """P over cases of a weight and the model's times. Without known errors, by the one that holds for all kernels."""
    score = _mean([(weight, each.baseline_us / each.candidate_us) for weight, each in cases])
    parts = [_part(weight, each, model.errors) for weight, each in cases]
    known = [part for part in parts if part is not None]
    if model.errors is None or len(known) < len(parts):
        return speed.modelled(score, model.ratio_error)
    return model.errors.speed(score, _joined(known))


def against(before: Verdict, after: Verdict) -> Comparison | None:
    """The speedup of the kernel of `after` over that of `before`, the ratio of their P; None where it is not known.

    Both were judged against one baseline, whose own error is in both and counts for nothing here.
    """
    model = after.modelled
    if before.score is None or after.score is None or model is None or before.modelled is None:
        return None
    errors, earlier = model.errors, {case.label: case for case in before.cases}
    if errors is None or not before.score > 0 or not after.score > 0:
        return None
    parts = []
    for case in after.cases:
        if case.sweep and case.modelled is not None:
            one, other = _makeup(earlier.get(case.label)), case.modelled.candidate_makeup
            if one is None or other is None:
                return None
            ratio = case.modelled.baseline_us / case.modelled.candidate_us
            parts.append((case.weight, ratio, errors.reach(one, other)))
    return errors.speed(after.score / before.score, _joined(parts)) if parts else None


def _makeup(case: CaseVerdict | None) -> Makeup | None:
    return None if case is None or case.modelled is None else case.modelled.candidate_makeup


def _part(weight: float, times: Modelled, errors: Errors | None) -> _Part | None:
    if errors is None or times.baseline_makeup is None or times.candidate_makeup is None:
        return None
    reach = errors.reach(times.baseline_makeup, times.candidate_makeup)
    return weight, times.baseline_us / times.candidate_us, reach


def _mean(parts: Sequence[tuple[float, float]]) -> float:
    return math.fsum(weight * ratio for weight, ratio in parts) / math.fsum(weight for weight, _ in parts)


def _joined(parts: Sequence[_Part]) -> float:
    """The reach of P: cases are off in the same direction, so theirs are averaged by what each contributes to P."""
    total = math.fsum(weight * ratio for weight, ratio, _ in parts)
    return math.fsum(weight * ratio / total * reach for weight, ratio, reach in parts)
