"""The outcome of a kind of candidate on a task, and which check refused it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cudamaster.audit.corpus import Expect, Kind
from cudamaster.core.values import CaseVerdict, Precision, Status, Verdict

_OUTPUTS = "outputs, "  # how the checks of outputs begin
GAIN = 1.1  # a P above this is a gain; the same kernel against itself stays within a few percent


class Result(StrEnum):
    """What became of it. The list is closed."""

    REFUSED = "refused"
    PASSED = "passed"
    NO_CHEAT = "no cheat"  # for this task it is nothing wrong, or cannot be done
    UNSUPPORTED = "unsupported"  # this device cannot execute it


@dataclass(frozen=True)
class Outcome:
    """One kind on one task. `by` is the check that refused it, `score` its P where it was timed, `skipped` how many
    cases the device left out.

    `key` is the hash of all that the outcome depends on: the candidate, the harness, the device.
    """

    kind: str
    task: str
    precision: Precision
    device: str
    key: str
    result: Result
    by: str = ""
    detail: str = ""
    score: float | None = None
    skipped: int = 0
    seconds: float = 0.0

    def as_expected(self, expect: Expect) -> bool:
        """Whether such a kind has to have this outcome."""
        if self.result in (Result.NO_CHEAT, Result.UNSUPPORTED):
            return True
        if expect is Expect.HARMLESS:
            if self.result is Result.REFUSED:  # a check may know better than the corpus, but outputs have to be right
                return not self.by.startswith(_OUTPUTS)
            return self.score is None or self.score <= GAIN
        return self.result is (Result.REFUSED if expect is Expect.REFUSED else Result.PASSED)


def outcome(kind: Kind, precision: Precision, task: str, key: str, verdict: Verdict, seconds: float) -> Outcome:
    """The outcome of a verdict. Times on a device that only emulates do not count as a score."""
    result = {Status.CORRECT: Result.PASSED, Status.UNSUPPORTED: Result.UNSUPPORTED}.get(verdict.status, Result.REFUSED)
    return Outcome(
        kind=kind.name,
        task=task,
        precision=precision,
        device=verdict.device,
        key=key,
        result=result,
        by=_check(verdict) if result is Result.REFUSED else "",
        detail=verdict.detail,
        score=None if verdict.emulated else verdict.score,
        skipped=sum(case.skipped is not None for case in verdict.cases),
        seconds=seconds,
    )


_FAULTS = (
    ("was written", "guard zones"),
    ("was changed", "inputs unchanged"),
    ("left|freed memory", "ledger"),
    ("^Race |that nothing has written|outside of (?:the|an)|^Misaligned", "checker of threads"),
    ("AddressSanitizer|cuda device fault", "memory checker"),
    ("killed by signal|ended by itself", "process ended"),
    ("after the candidate ran", "baseline afterwards"),
    ("", "CUDA error"),
)


def _check(verdict: Verdict) -> str:
    if verdict.status is Status.REJECTED:
        return verdict.detail.partition(" guard")[0] + " guard"
    if verdict.status is Status.COMPILE_ERROR:
        return "compiler"
    if verdict.status is Status.TIMEOUT:
        return "time limit"
    if verdict.status is Status.FAULT:
        return next(name for pattern, name in _FAULTS if re.search(pattern, verdict.detail))
    failed = next(case for case in verdict.cases if case.status is Status.WRONG)
    return f"{_OUTPUTS}{_where(failed)}"


def _where(case: CaseVerdict) -> str:
    if "at a timed call" in case.detail:
        return "timed call"
    if case.label.startswith("held out"):
        return "held-out size"
    return "timed size" if case.sweep else "listed size"
