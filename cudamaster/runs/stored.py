"""The verdicts and findings of a record, as a workbench: for those who read a run, replay it or show its prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudamaster.core.values import Candidate, Findings, Verdict
from cudamaster.runs.record import RunRecord
from cudamaster.strategies.protocol import Card


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
        name = candidate.id
        verdict = self._record.verdict(name)
        if verdict is None:
            doing = f"building, checking and timing the candidate {name}"
            raise self._error(Gap(f"verdicts/{name}.json", f"verdict on the candidate {name}", doing, name))
        log = self._record.build_log(name)
        if self.on_build is not None and log is not None:
            self.on_build(name, log)
        return verdict

    def measure_again(self, candidate: Candidate) -> Verdict:
        """The recorded second verdict."""
        name = candidate.id
        verdict = self._record.confirmation(name)
        if verdict is None:
            what, doing = f"second verdict on the candidate {name}", f"measuring the candidate {name} again"
            raise self._error(Gap(f"confirmations/{name}.json", what, doing, name))
        return verdict

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """The recorded findings."""
        name = candidate.id
        findings = self._record.findings(name)
        if findings is None:
            what, doing = f"findings on the candidate {name}", f"profiling the candidate {name}"
            raise self._error(Gap(f"findings/{name}.json", what, doing, name))
        return findings
