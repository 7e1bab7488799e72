"""Judged kernels for tests of training sets: those of two kept runs on an H200, and changes of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from cudamaster.core.speed import Change, Comparison, Interval
from cudamaster.core.values import Candidate, Status
from cudamaster.training.collecting import Collected, gather
from cudamaster.training.kernels import JudgedKernel

RESULTS = Path(__file__).parents[2] / "results" / "h200"
RUN = RESULTS / "spmv_csr_fp32"


@cache
def kept() -> Collected:
    """What the kept run of spmv_csr in FP32 holds: the baseline and three kernels, each faster than the one before."""
    return gather([RUN])


def baseline() -> JudgedKernel:
    """Its baseline."""
    return next(one for one in kept().kernels if one.provenance.is_baseline)


def kernel(number: int) -> JudgedKernel:
    """Its kernels, in the order in which they were judged, from 0."""
    return [one for one in kept().kernels if not one.provenance.is_baseline][number]


def other_code(of: JudgedKernel, code: str, **about: object) -> JudgedKernel:
    """The same verdict on another text, with other words in its provenance."""
    candidate = replace(of.candidate, code=code)
    return JudgedKernel(candidate, replace(of.verdict, candidate=candidate.id), replace(of.provenance, **about))


def of_task(of: JudgedKernel, task: str, code: str, category: str = "activation") -> JudgedKernel:
    """The same verdict on a kernel of another task."""
    candidate = Candidate(task, of.candidate.precision, code, of.candidate.command)
    about = replace(of.provenance, category=category)
    return JudgedKernel(candidate, replace(of.verdict, candidate=candidate.id), about)


def with_verdict(of: JudgedKernel, **changes: object) -> JudgedKernel:
    """The kernel with another verdict."""
    return replace(of, verdict=replace(of.verdict, **changes))


def refused(of: JudgedKernel, status: Status = Status.WRONG) -> JudgedKernel:
    """The kernel, which failed."""
    return with_verdict(of, status=status, score=None, speed=None, detail="1 of 17 cases is wrong", log="y[3] is off")


def scored(of: JudgedKernel, score: float, reach: float) -> JudgedKernel:
    """The kernel with another P, whose interval reaches so far (a part of 1) to each side."""
    interval = Interval(score * (1 - reach), score * (1 + reach))
    change = Change.FASTER if interval.low > 1 else Change.SLOWER if interval.high < 1 else Change.SAME
    return with_verdict(of, score=score, speed=Comparison(score, interval, score, interval, change))
