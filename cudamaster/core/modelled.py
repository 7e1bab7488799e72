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
    score = weighted_mean([(weight, each.baseline_us / each.candidate_us) for weight, each in cases])
    parts = [_part(weight, each, model.errors) for weight, each in cases]
    known = [part for part in parts if part is not None]
    if model.errors is None or len(known) < len(parts):
        return speed.modelled(score, model.ratio_error)
    return model.errors.speed(score, joined_reach(known))


def against(before: Verdict, after: Verdict) -> Comparison | None:
    """The speedup of the kernel of `after` over that of `before`, the ratio of their P; None where it is not known.

    Both were judged against one baseline, whose own error is in both and counts for nothing here. The other way
    round it says the opposite: cases count by what they add to both P.
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
            first, second = _of(earlier.get(case.label)), _of(case)
            if first is None or second is None:
                return None
            (ratio, one), (other_ratio, other) = first, second
            share = ratio / before.score + other_ratio / after.score
            parts.append((case.weight, share, errors.reach(one, other)))
    return errors.speed(after.score / before.score, joined_reach(parts)) if parts else None


def _of(case: CaseVerdict | None) -> tuple[float, Makeup] | None:
    """The speedup of a kernel at a case, and what its call is made of."""
    times = None if case is None else case.modelled
    if times is None or times.candidate_makeup is None:
        return None
    return times.baseline_us / times.candidate_us, times.candidate_makeup


def _part(weight: float, times: Modelled, errors: Errors | None) -> _Part | None:
    if errors is None or times.baseline_makeup is None or times.candidate_makeup is None:
        return None
    reach = errors.reach(times.baseline_makeup, times.candidate_makeup)
    return weight, times.baseline_us / times.candidate_us, reach


def weighted_mean(parts: Sequence[tuple[float, float]]) -> float:
    """P, of the weights and the speedups of its cases."""
    return math.fsum(weight * ratio for weight, ratio in parts) / math.fsum(weight for weight, _ in parts)


def joined_reach(parts: Sequence[_Part]) -> float:
    """The reach of P: cases are off in the same direction, so theirs are averaged by what each contributes to P."""
    total = math.fsum(weight * ratio for weight, ratio, _ in parts)
    return math.fsum(weight * ratio / total * reach for weight, ratio, reach in parts)
