"""What the paper's own protocol says about a kernel, beside our verdict (paper section 3.3).

After warm-up calls, which leave the caches warm, calls follow each other on the same inputs, first the baseline's, then
the candidate's. S is the ratio of their means, and outputs within 1e-5 of the baseline's are right. None of this is
part of a verdict: here a result kept from the previous call is as good as a computed one, and 1e-5 is less than the
rounding of a large sum and more than many a small value.

Kernels that were published for the listed sizes run only at those. Whether our own checks find them right there is
reported beside our verdict, which includes odd and held-out sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.core.values import Status
from cudamaster.judging.report_lines import Line, Paper, first
from cudamaster.tasks.cards import Case

ALLOWED = 1e-5  # absolute


@dataclass(frozen=True)
class PaperCase:
    """One timed size: means of whole calls, in microseconds, and how far an output is from the baseline's at most."""

    label: str
    weight: float
    baseline_us: float
    candidate_us: float
    largest_difference: float

    @property
    def speedup(self) -> float:
        """S."""
        return self.baseline_us / self.candidate_us


@dataclass(frozen=True)
class PaperScore:
    """A candidate's result; `cases` are those that were timed.

    `status` and `detail` are what our own checks say about it at the listed sizes alone.
    """

    status: Status
    detail: str
    cases: tuple[PaperCase, ...] = ()

    @property
    def correct(self) -> bool:
        """Whether it is right at every listed size that was run."""
        return self.status is Status.CORRECT

    @property
    def score(self) -> float | None:
        """P of paper eq. 2; None if the kernel failed or nothing was timed."""
        weight = sum(case.weight for case in self.cases)
        if not self.correct or weight == 0:
            return None
        return sum(case.weight * case.speedup for case in self.cases) / weight

    @property
    def within(self) -> bool:
        """Whether all outputs were within `ALLOWED` of the baseline's; False if there is no score."""
        return self.score is not None and all(case.largest_difference <= ALLOWED for case in self.cases)


def case(case: Case, lines: Sequence[Line]) -> PaperCase | None:
    """What a report's lines on a case have of it."""
    means = first(Paper, lines)
    if means is None:
        return None
    return PaperCase(case.label, case.weight, means.baseline_us, means.candidate_us, means.largest_difference)
