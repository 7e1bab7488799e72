"""What all strategies share: the baseline, judging, the best so far, and the record of rounds.

A strategy decides what to ask, and whom. How a candidate is judged, when it is the new best and what observers get is
here, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.agents import compiler
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.debug import Diagnosis
from cudamaster.core import modelled
from cudamaster.core.errors import DeviceError
from cudamaster.core.likelihood import LIKELY, in_percent
from cudamaster.core.speed import Change, Comparison
from cudamaster.core.values import Candidate, Findings, Outcome, Plan, Role, Status, Verdict
from cudamaster.models.metered import Meter
from cudamaster.models.protocol import Model
from cudamaster.strategies.large_gains import JumpCheck, JumpRule, RemeasuringWorkbench
from cudamaster.strategies.protocol import Observer, Workbench
from cudamaster.strategies.result import Attempt, Contender, Result, Round

MOST_CONTENDERS = 2  # beside the best: so many kernels a person may be asked to measure on a GPU


@dataclass(frozen=True)
class Best:
    """The fastest correct candidate so far with its evidence. `score` is its P, 1.0 for the baseline."""

    candidate: Candidate
    verdict: Verdict
    findings: Findings
    score: float


class Frame:
    """One search: its workbench, its models by role, the best so far and the rounds that are done."""

    def __init__(
        self,
        workbench: RemeasuringWorkbench,
        models: Mapping[Role, Model],
        roles: Sequence[Role],
        observer: Observer,
        *,
        rule: JumpRule,
        tie: float = 0.0,
    ) -> None:
        """`roles` are those that are asked, a reviewer among them if there is one; `models` has a model for each.

        A score that `rule` finds too good is checked again. A modelled kernel is a new best where it is likely to be
        faster than the best so far (core/likelihood.py). Where that is not known, its score has to exceed the best so
        far by more than the fraction `tie`.
        """
        self.workbench: Workbench = workbench
        self.observer = observer
        self._meter = Meter(observer.asking, roles)
        self.models = {role: self._meter.model(models[role]) for role in roles}
        self.brief = brief_of(workbench)
        self.rounds: list[Round] = []
        self._jumps = JumpCheck(workbench, rule, self.models.get(Role.REVIEWER), self.brief, observer)
        self._tie = tie
        self._findings: dict[str, Findings] = {}
        self._timed: dict[str, tuple[int, Candidate, Verdict]] = {}  # by the candidate's id, with its round
        self._baseline: Best | None = None
        self._best: Best | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the baseline is measured, so that there is a result."""
        return self._baseline is not None

    @property
    def baseline(self) -> Best:
        """The baseline, once it is measured."""
        assert self._baseline is not None, "the baseline is measured first"
        return self._baseline

    @property
    def best(self) -> Best:
        """The best so far; the baseline at first."""
        assert self._best is not None, "the baseline is measured first"
        return self._best

    @property
    def history(self) -> list[Outcome]:
        """The result of every round so far."""
        return [done.outcome for done in self.rounds]

    def measure_baseline(self) -> Best:
        """Judge the baseline, which is the best so far with P = 1. Raises DeviceError if it does not pass."""
        candidate = self.workbench.baseline
        self.observer.evaluating(candidate)
        verdict = self._jumps.evaluate(candidate)
        if not verdict.correct:
            raise DeviceError(
                f"The baseline of {candidate.task} ({candidate.precision}) does not pass on "
                f"{self.brief.hardware.name}: {verdict.status}, {verdict.detail}",
                "Run `cudamaster doctor`; if that finds nothing, report this as a fault of the benchmark.",
            )
        findings = self.findings(candidate, verdict)
        self.observer.baseline(candidate, verdict, findings)
        self._baseline = self._best = Best(candidate, verdict, findings, 1.0)
        return self._baseline

    def candidate(self, code: str, command: str | None = None) -> Candidate:
        """A candidate of this task, with the default command if no agent chose one."""
        return Candidate(self.brief.task, self.brief.precision, code, command or self.brief.default_command)

    def compile_command(self, number: int, plan: Plan, code: str) -> str:
        """The Compiler's command for the code of round `number`, or the default one if it gives no usable reply.

        The code is worth more than its flags, so the round continues.
        """
        try:
            return compiler.choose_command(self.models[Role.COMPILER], self.brief, plan, code)
        except ReplyMisfit as misfit:
            self.observer.without_command(number, misfit)
            return self.brief.default_command

    def judge(
        self,
        number: int,
        candidate: Candidate,
        attempts: list[Attempt],
        *,
        debug_try: int = 0,
        diagnosis: Diagnosis | None = None,
        source: Candidate | None = None,
    ) -> Verdict:
        """Judge a candidate of round `number`, and add it to the round's `attempts`, so that a later misfit loses none.

        `source` is the candidate that it was written from, unless that is the best so far or, in a debug try, the
        previous attempt.
        """
        self.observer.written(number, debug_try, candidate, source.id if source else None)
        self.observer.evaluating(candidate)
        verdict = self._jumps.evaluate(candidate, self.best.score)
        if verdict.correct and verdict.score is not None:
            self._timed.setdefault(candidate.id, (number, candidate, verdict))
        attempts.append(Attempt(debug_try, candidate.id, verdict.status, verdict.score, verdict.detail, diagnosis))
        self.observer.judged(number, debug_try, candidate, verdict)
        return verdict

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """Findings of a correct candidate, which is profiled when they are asked for first.

        A new best always has them. For any other kernel a profile is worth its time only if an agent sees it, or the
        strategy goes by it.
        """
        if candidate.id not in self._findings:
            self._findings[candidate.id] = self.workbench.findings(candidate, verdict)
        return self._findings[candidate.id]

    def settle(
        self, number: int, plan: Plan, attempts: Sequence[Attempt], candidate: Candidate, verdict: Verdict
    ) -> None:
        """End a round with its last candidate: the new best if it is correct and faster, otherwise a failure."""
        before = self.best
        against = modelled.against(before.verdict, verdict) if verdict.correct else None
        if against is not None and candidate.id != before.candidate.id:
            accepted = against.change is Change.FASTER
        else:
            # Written so that a score of NaN is refused. A model has no noise: it shows differences that mean nothing.
            to_beat = before.score if verdict.modelled is None else before.score * (1 + self._tie)
            accepted, against = verdict.correct and verdict.score is not None and verdict.score > to_beat, None
        if accepted:
            assert verdict.score is not None
            findings = self.findings(candidate, verdict)
            self._best = Best(candidate, verdict, findings, verdict.score)
            self.observer.improved(candidate, verdict, findings, verdict.score)
        detail = verdict.detail
        if verdict.correct and not accepted:
            score = f"{detail}; it has no P" if verdict.score is None else f"speedup {verdict.score:.3f}"
            detail = f"{score}, where the best so far has {before.score:.3f}"
            if against is not None:
                detail += f": {_not_likely(against)}"
            elif verdict.score is not None and verdict.score > before.score:
                detail += f": a tie, since the model cannot tell differences below {self._tie:.0%}"
        interval = verdict.speed.interval if against is not None and verdict.speed is not None else None
        outcome = Outcome(number, plan, verdict.status, verdict.score, accepted, detail, against, interval)
        self._end(outcome, attempts)

    def lost(self, number: int, plan: Plan, attempts: Sequence[Attempt], reason: str) -> None:
        """End a round without a result because a role gave no usable reply."""
        self._end(Outcome(number, plan, Status.REJECTED, None, False, reason), attempts)

    def _end(self, outcome: Outcome, attempts: Sequence[Attempt]) -> None:
        self.rounds.append(Round(outcome, tuple(attempts), self.best.score, self.best.candidate.id))
        self.observer.round_ended(self.rounds[-1])

    def result(self, note: str | None = None, *, stopped: bool = False) -> Result:
        """The search's result; `note` says why it ended before its last round, `stopped` that a budget ended it."""
        return Result(
            self.baseline.candidate,
            self.baseline.verdict,
            self.best.candidate,
            self.best.verdict,
            self.best.findings,
            self.best.score,
            tuple(self.rounds),
            dict(self._meter.usage),
            note,
            stopped,
            self._contenders(),
        )

    def _contenders(self) -> tuple[Contender, ...]:
        """The kernels that may be faster than the best, by the model, the likeliest first."""
        best, found = self.best, []
        for number, candidate, verdict in self._timed.values():
            against = None if candidate.id == best.candidate.id else modelled.against(best.verdict, verdict)
            if against is not None and against.change is not Change.SLOWER and verdict.speed is not None:
                found.append(Contender(number, candidate, verdict.speed, against))
        found.sort(key=lambda each: (-(each.against.chance or 0.0), each.round))
        return tuple(found[:MOST_CONTENDERS])


def _not_likely(against: Comparison) -> str:
    """Why a modelled kernel is no new best, as a clause."""
    low, high, ratio = against.interval.low, against.interval.high, against.speedup
    word = "UNSURE" if against.change is Change.UNSURE else "likely slower"
    said = f"{word}, {ratio:.2f} times as fast by the model ({low:.2f} to {high:.2f} in 9 of 10 cases)"
    if against.chance is not None and against.change is Change.UNSURE:
        said += f"; it is faster with a chance of {in_percent(against.chance)}, and a new best needs {LIKELY:.0%}"
    return said


def brief_of(workbench: Workbench) -> Brief:
    """What the agents know about the task and the device of a workbench."""
    card, precision = workbench.card, workbench.precision
    return Brief(
        task=card.name,
        precision=precision,
        title=card.title,
        description=card.describe(precision),
        wrapper=card.wrapper(precision, optimized=True),
        declaration=card.declaration(precision),
        default_command=workbench.baseline.command,
        hardware=workbench.hardware,
        headers=tuple(card.headers),
    )
