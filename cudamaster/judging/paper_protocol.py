"""What the paper's own protocol says of a kernel, to be read beside our verdict (paper section 3.3).

After warm-ups, which leave the caches hot, calls are made one behind the other on the same inputs, first of the
baseline, then of the candidate; S is the ratio of their means, and outputs within 1e-5 of the baseline's are right.
None of it is part of a verdict: a result that is kept from the call before is as good as a computed one here, and 1e-5
is less than a large sum rounds by and more than many a small value is.

Kernels that were published for the listed sizes are asked at those alone: whether they are right there, by our own
checks, is told beside our verdict, which odd sizes and held-out ones are part of.
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
    """What became of a candidate; `cases` are those that were timed.

    `status` and `detail` are what our own checks say of it by the listed sizes alone.
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
        """P of paper eq. 2; None where the kernel failed or nothing was timed."""
        weight = sum(case.weight for case in self.cases)
        if not self.correct or weight == 0:
            return None
        return sum(case.weight * case.speedup for case in self.cases) / weight

    @property
    def within(self) -> bool:
        """Whether all outputs were seen to be within `ALLOWED` of the baseline's; where there is no score, none was."""
        return self.score is not None and all(case.largest_difference <= ALLOWED for case in self.cases)


def case(case: Case, lines: Sequence[Line]) -> PaperCase | None:
    """What a report's lines on a case have of it."""
    told = first(Paper, lines)
    if told is None:
        return None
    return PaperCase(case.label, case.weight, told.baseline_us, told.candidate_us, told.largest_difference)
