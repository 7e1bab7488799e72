"""The verdicts and findings of a record, as a workbench: for those who read a run, replay it or show its prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cudamaster.core.values import Candidate, Findings, Verdict
from cudamaster.runs.record import RunRecord
from cudamaster.strategies.protocol import Card

_T = TypeVar("_T")


@dataclass(frozen=True)
class Gap:
    """What a record does not hold: its file, what that would be, and what a run does before it writes that."""

    file: str
    what: str
    doing: str
    candidate: str


class StoredWorkbench:
    """The workbench of a record, on the recorded device. For a gap it raises what `error` makes of it."""

    def __init__(self, record: RunRecord, card: Card, baseline: Candidate, error: Callable[[Gap], Exception]) -> None:
        self.card = card
        self.precision = baseline.precision
        self.baseline = baseline
        self.hardware = record.manifest.hardware
        # Called with each build log, so that the run folder of a replay holds it too.
        self.on_build: Callable[[str, str], None] | None = None
        self._record = record
        self._error = error

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The recorded verdict."""
        doing = f"building, checking and timing the candidate {candidate.id}"
        verdict = self._held(self._record.verdict(candidate.id), candidate, "verdicts", "verdict", doing)
        log = self._record.build_log(candidate.id)
        if self.on_build is not None and log is not None:
            self.on_build(candidate.id, log)
        return verdict

    def measure_again(self, candidate: Candidate) -> Verdict:
        """The recorded second verdict."""
        found, doing = self._record.confirmation(candidate.id), f"measuring the candidate {candidate.id} again"
        return self._held(found, candidate, "confirmations", "second verdict", doing)

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """The recorded findings."""
        found, doing = self._record.findings(candidate.id), f"profiling the candidate {candidate.id}"
        return self._held(found, candidate, "findings", "findings", doing)

    def _held(self, found: _T | None, candidate: Candidate, folder: str, what: str, doing: str) -> _T:
        if found is None:
            whole = f"{what} on the candidate {candidate.id}"
            raise self._error(Gap(f"{folder}/{candidate.id}.json", whole, doing, candidate.id))
        return found
