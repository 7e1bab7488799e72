"""Algorithm 1 of the CUDAMaster paper: R rounds of Planner, Coder and Compiler, each with up to D debug
tries.

Line numbers in comments are those of the paper's listing. It departs from the listing in one place: where
line 10 hands the Debug agent C* and its profile, the paper's text (section 4.3, appendix B.4) hands it the
failing kernel with its log, and so does this; a second try starts from the first try's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.agents import coder, compiler, debug, planner
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.debug import Diagnosis
from cudamaster.errors import DeviceError, UsageError
from cudamaster.models.metered import Meter
from cudamaster.models.protocol import Model
from cudamaster.strategies.protocol import Observer, Silent, Workbench
from cudamaster.strategies.result import Attempt, Result, Round
from cudamaster.values import Candidate, Findings, Outcome, Plan, Role, Status, Verdict

NAME = "cudamaster"
NO_PLAN = Plan("(no plan)", "The Planner gave no usable reply.")


@dataclass(frozen=True)
class _Best:
    """C*, S* (one candidate), pi* (verdict and findings) and P*."""

    candidate: Candidate
    verdict: Verdict
    findings: Findings
    score: float


def optimize(
    workbench: Workbench,
    models: Mapping[Role, Model],
    rounds: int,
    debug_tries: int,
    observer: Observer | None = None,
) -> Result:
    """Run algorithm 1 with R = `rounds` and D = `debug_tries`, one model per role.

    Raises UsageError for R < 1 or D < 0, DeviceError when the baseline itself does not pass, and ModelError
    when a model cannot be reached. Given the same replies and verdicts it does the same, which is what resume
    rests on.
    """
    if rounds < 1 or debug_tries < 0:
        raise UsageError(
            f"R = {rounds} and D = {debug_tries} make no search.",
            "Give at least one round, and no fewer than 0 debug tries.",
        )
    return _Search(workbench, models, debug_tries, observer or Silent()).run(rounds)


class _Search:
    def __init__(
        self, workbench: Workbench, models: Mapping[Role, Model], debug_tries: int, observer: Observer
    ) -> None:
        self.workbench = workbench
        self.debug_tries = debug_tries
        self.observer = observer
        self.meter = Meter(observer.asking)
        self.models = {role: self.meter.model(models[role]) for role in Role}
        self.brief = brief_of(workbench)
        self.best_score = 1.0

    def run(self, rounds: int) -> Result:
        baseline = self._measured_baseline()  # lines 1 and 2
        best = baseline
        done: list[Round] = []
        note = None
        for number in range(1, rounds + 1):  # line 3
            self.observer.round_started(number, rounds)
            history = [earlier.outcome for earlier in done]
            plan = NO_PLAN
            attempts: list[Attempt] = []
            winner: _Best | None = None
            try:
                proposed = planner.propose(  # line 4
                    self.models[Role.PLANNER],
                    self.brief,
                    best.candidate,
                    best.verdict,
                    best.findings,
                    history,
                )
                if proposed is None:
                    note = f"The planner has no further idea after {len(done)} of {rounds} rounds."
                    self.observer.stopped(note)
                    break
                plan = proposed
                self.observer.planned(number, plan)
                candidate, verdict = self._write_and_debug(number, plan, best.candidate.code, attempts)
            except ReplyMisfit as misfit:
                outcome = Outcome(number, plan, Status.REJECTED, None, False, str(misfit))
            else:
                # line 20; written so that a score of NaN is refused
                if verdict.correct and verdict.score is not None and verdict.score > best.score:
                    findings = self.workbench.findings(candidate, verdict)
                    winner = _Best(candidate, verdict, findings, verdict.score)
                outcome = _outcome(number, plan, verdict, best.score, accepted=winner is not None)
            if winner is not None:  # lines 21 and 22
                best = winner
                self.best_score = best.score
                self.observer.improved(best.candidate, best.verdict, best.findings, best.score)
            # Line 24: a scheme that was not accepted stays in the history as failed, where the Planner sees
            # it.
            done.append(Round(outcome, tuple(attempts), best.score, best.candidate.id))
            self.observer.round_ended(done[-1])
        return Result(  # line 27
            baseline.candidate,
            baseline.verdict,
            best.candidate,
            best.verdict,
            best.findings,
            best.score,
            tuple(done),
            dict(self.meter.usage),
            note,
        )

    def _measured_baseline(self) -> _Best:
        candidate = self.workbench.baseline
        self.observer.evaluating(candidate)
        verdict = self.workbench.evaluate(candidate)
        if not verdict.correct:
            raise DeviceError(
                f"The baseline of {candidate.task} ({candidate.precision}) does not pass on "
                f"{self.brief.hardware.name}: {verdict.status}, {verdict.detail}",
                "Run `cudamaster doctor`; if that finds nothing, report this as a fault of the benchmark.",
            )
        findings = self.workbench.findings(candidate, verdict)
        self.observer.baseline(candidate, verdict, findings)
        return _Best(candidate, verdict, findings, 1.0)

    def _write_and_debug(
        self, number: int, plan: Plan, code: str, attempts: list[Attempt]
    ) -> tuple[Candidate, Verdict]:
        """Lines 5 to 19; candidates are added to `attempts` as they are judged, so that a misfit loses none."""
        written = coder.implement(self.models[Role.CODER], self.brief, plan, code)  # line 5
        candidate, verdict = self._judge(number, 0, plan, written, None, attempts)  # lines 6 and 7
        tried: list[Diagnosis] = []
        for debug_try in range(1, self.debug_tries + 1):  # lines 8 and 9
            if verdict.correct:
                break
            fix = debug.diagnose(self.models[Role.DEBUG], self.brief, plan, candidate, verdict, tried)  # line 10
            if fix is None:
                break
            tried.append(fix)
            self.observer.diagnosed(number, debug_try, fix)
            written = coder.repair(self.models[Role.CODER], self.brief, plan, fix, candidate.code)  # line 11
            candidate, verdict = self._judge(number, debug_try, plan, written, fix, attempts)  # lines 12 and 13
        return candidate, verdict

    def _judge(
        self,
        number: int,
        debug_try: int,
        plan: Plan,
        code: str,
        diagnosis: Diagnosis | None,
        attempts: list[Attempt],
    ) -> tuple[Candidate, Verdict]:
        command = compiler.choose_command(self.models[Role.COMPILER], self.brief, plan, code)
        candidate = Candidate(self.brief.task, self.brief.precision, code, command)
        self.observer.written(number, debug_try, candidate)
        self.observer.evaluating(candidate)
        verdict = self.workbench.evaluate(candidate, to_beat=self.best_score)
        attempts.append(Attempt(debug_try, candidate.id, verdict.status, verdict.score, verdict.detail, diagnosis))
        self.observer.judged(number, debug_try, candidate, verdict)
        return candidate, verdict


def brief_of(workbench: Workbench) -> Brief:
    """What the agents are told about the task and the device of a workbench."""
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
    )


def _outcome(number: int, plan: Plan, verdict: Verdict, best_score: float, *, accepted: bool) -> Outcome:
    detail = verdict.detail
    if verdict.correct and not accepted:
        score = "no score" if verdict.score is None else f"speedup {verdict.score:.3f}"
        detail = f"{score}, where the best so far has {best_score:.3f}"
    return Outcome(number, plan, verdict.status, verdict.score, accepted, detail)
