"""Exemplars by their scores alone, for tests of how they are drawn and kept."""

from __future__ import annotations

from collections.abc import Sequence

from search_stand_ins import COMMAND, kernel

from cudamaster.agents.contrast import Exemplar
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.strategies.exemplars import Pool


def exemplar(score: float, tag: str = "", status: Status = Status.CORRECT) -> Exemplar:
    candidate = Candidate("double_it", Precision.FP32, kernel(status, score, tag), COMMAND)
    return Exemplar(candidate, Verdict(candidate.id, "stand-in", True, status, "", score=score), score)


def pool(*scores: float) -> Pool:
    return Pool([exemplar(score, str(number)) for number, score in enumerate(scores)])


def scores_of(exemplars: Sequence[Exemplar]) -> tuple[float, ...]:
    return tuple(member.score for member in exemplars)
