"""What a search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.agents.debug import Diagnosis
from cudamaster.core.speed import Comparison
from cudamaster.core.values import Candidate, Findings, Outcome, Role, Status, Verdict
from cudamaster.models.metered import RoleUsage


@dataclass(frozen=True)
class Attempt:
    """One candidate of a round: the first (`debug_try` 0), or what a debug try made of the one before it."""

    debug_try: int
    candidate: str
    status: Status
    score: float | None
    detail: str
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Round:
    """One round: its outcome, its candidates, and the best score and candidate after it."""

    outcome: Outcome
    attempts: tuple[Attempt, ...]
    best_score: float
    best: str

    @property
    def why(self) -> str:
        """The outcome's detail, without the detail of the last candidate's verdict that it may begin with."""
        said = self.attempts[-1].detail if self.attempts else ""
        return self.outcome.detail.removeprefix(f"{said}; ")

    @property
    def untimed(self) -> str | None:
        """The round's last candidate if it is right and has no P, so that nobody knows whether it is faster."""
        last = self.attempts[-1] if self.attempts else None
        return last.candidate if last and last.status is Status.CORRECT and last.score is None else None


@dataclass(frozen=True)
class Contender:
    """A kernel that the model cannot tell from the best: its speedup over the baseline, and `against` the best."""

    round: int
    candidate: Candidate
    speed: Comparison
    against: Comparison


@dataclass(frozen=True)
class Result:
    """The best candidate of a search with its evidence.

    `score` is P of `best`, and 1.0 by definition while that is the baseline (algorithm 1, line 2). `note`
    says why the search ended before its last round, `stopped` that a budget ended it: it goes on with --resume.
    `contenders` are kernels that may be faster than `best`; with modelled times only a GPU can tell.
    """

    baseline: Candidate
    baseline_verdict: Verdict
    best: Candidate
    verdict: Verdict
    findings: Findings
    score: float
    rounds: tuple[Round, ...]
    usage: Mapping[Role, RoleUsage]
    note: str | None = None
    stopped: bool = False
    contenders: tuple[Contender, ...] = ()

    @property
    def improved(self) -> bool:
        """Whether anything better than the baseline was found."""
        return self.best.id != self.baseline.id

    @property
    def senseless(self) -> str | None:
        """If the search ended and no round produced a kernel, why the last one did not: no reply could be used."""
        if self.stopped or not self.rounds or any(done.attempts for done in self.rounds):
            return None
        return self.rounds[-1].outcome.detail
