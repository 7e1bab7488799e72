"""CudaForge: Coder and Judge over N rounds, with hardware feedback (CudaForge paper, section 2.1 and appendix D).

    kernel = Coder(task, baseline)                                  round 1, appendix D.1
    each further round:
        fails:    Judge(log, baseline, kernel) -> one correction    appendix D.2, correction
                  kernel = Coder(log, kernel, correction)           appendix D.3, correction
        correct:  metrics = Nsight Compute(kernel)                  section 2.2, the 24 of appendix E
                  Judge(device, baseline, kernel, metrics) -> one optimisation
                  kernel = Coder(device, kernel, optimisation)      appendix D.3, optimisation

Every round continues from the latest kernel, not from the best one; after N rounds the fastest correct one is taken. No
agent sees earlier rounds or scores. The compile command is always the default one.

The ablations of section 3.2 remove the Judge's advice, completely or in one of the two cases; `judge` says where there
is advice. Without it the Coder still sees what appendix D.3 shows, including the log of a failure. Only without any
Judge (self-refinement) does the Coder get the metrics: "given hardware feedback", in the paper's words.

Here a Judge may say that nothing is left to gain, which ends the search, as an idle Planner does in algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudamaster.agents import judge, lone_coder
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Plan, ProfileMode, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies import other_agents
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy, options_of

NAME = "cudaforge"
ROLES = (Role.CODER, Role.JUDGE)
BOTH, CORRECTION, OPTIMIZATION, NONE = "both", "correction", "optimization", "none"
FIRST = Plan("First kernel", "A kernel from the task alone.")
NO_ADVICE = Plan("(no advice)", "The Judge gave no usable reply.")


@dataclass(frozen=True)
class Options:
    """`judge`: where the Judge speaks. "correction" is the paper's O3-10-C, "optimization" O3-10-O, "none" O3-10."""

    judge: str = BOTH

    def __post_init__(self) -> None:
        words = (BOTH, CORRECTION, OPTIMIZATION, NONE)
        if self.judge not in words:
            raise UsageError(f"judge is {self.judge!r}.", f"Take one of {', '.join(words)}.")


@dataclass(frozen=True)
class _Latest:
    """The latest kernel with its verdict."""

    candidate: Candidate
    verdict: Verdict


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """Run CudaForge with N = R of the settings, the first kernel included."""
    rounds, options = settings.rounds, options_of(STRATEGY, settings.options)
    baseline = frame.baseline.candidate
    latest: _Latest | None = None
    for number in range(1, rounds + 1):
        frame.observer.round_started(number, rounds)
        advised = _Advised(frame, number, options)
        attempts: list[Attempt] = []
        try:
            code = advised.first(baseline) if latest is None else advised.next(baseline, latest)
        except ReplyMisfit as misfit:
            # The next round continues from the same kernel.
            frame.lost(number, advised.plan, attempts, str(misfit))
            continue
        if code is None:
            return f"The judge sees nothing left to gain after {len(frame.rounds)} of {rounds} rounds."
        candidate = frame.candidate(code)
        verdict = frame.judge(number, candidate, attempts, source=latest.candidate if latest else baseline)
        frame.settle(number, advised.plan, attempts, candidate, verdict)
        latest = _Latest(candidate, verdict)
    return None


class _Advised:
    """One round up to its code. `plan` is what was advised, for the record, known before the Coder is asked."""

    def __init__(self, frame: Frame, number: int, options: Options) -> None:
        self._frame = frame
        self._number = number
        self._judge = options.judge
        self._coder = frame.models[Role.CODER]
        self.plan = NO_ADVICE

    def first(self, baseline: Candidate) -> str:
        """Code of the first kernel."""
        self._planned(FIRST)
        return lone_coder.write(self._coder, self._frame.brief, baseline.code)

    def next(self, baseline: Candidate, latest: _Latest) -> str | None:
        """Code of the next kernel, or None when the Judge sees nothing left to gain."""
        return self._optimized(baseline, latest) if latest.verdict.correct else self._corrected(baseline, latest)

    def _corrected(self, baseline: Candidate, latest: _Latest) -> str:
        frame, failing, verdict = self._frame, latest.candidate, latest.verdict
        correction = None
        if self._judge in (BOTH, CORRECTION):
            correction = judge.correct(frame.models[Role.JUDGE], frame.brief, baseline.code, failing, verdict)
            text = f"{correction.why_it_matters}\n{correction.minimal_fix_hint}".strip()
            self._planned(Plan(f"Correct: {correction.critical_issue}", text))
        else:
            self._planned(Plan("Correct it", "The Coder alone, from the log of the failure."))
        return lone_coder.correct(self._coder, frame.brief, failing, verdict, correction)

    def _optimized(self, baseline: Candidate, latest: _Latest) -> str | None:
        frame, previous, verdict = self._frame, latest.candidate, latest.verdict
        optimization = findings = None
        if self._judge in (BOTH, OPTIMIZATION):
            measured = frame.findings(previous, verdict)
            optimization = judge.optimize(frame.models[Role.JUDGE], frame.brief, baseline.code, previous, measured)
            if optimization is None:
                return None
            self._planned(Plan(optimization.method, f"{optimization.bottleneck}\n{optimization.plan}".strip()))
        elif self._judge == NONE:
            findings = frame.findings(previous, verdict)
            self._planned(Plan("Optimise it", "The Coder alone, from the metrics."))
        else:
            self._planned(Plan("Optimise it", "The Coder alone, without metrics."))
        return lone_coder.optimize(self._coder, frame.brief, previous, verdict, optimization, findings)

    def _planned(self, plan: Plan) -> None:
        self.plan = plan
        self._frame.observer.planned(self._number, plan)


def _ask_coder(model: Model, brief: Brief, baseline: Candidate, candidate: Candidate, verdict: Verdict) -> str:
    if candidate.id == baseline.id:
        return lone_coder.write(model, brief, baseline.code)
    if verdict.correct:
        return lone_coder.optimize(model, brief, candidate, verdict, other_agents.OPTIMIZATION, None)
    return lone_coder.correct(model, brief, candidate, verdict, other_agents.CORRECTION)


STRATEGY = Strategy(
    NAME,
    "CudaForge: Coder and Judge over R rounds, with 24 metrics",
    ROLES,
    search,
    rounds=10,
    profile=ProfileMode.CUDAFORGE24,
    shows_profile=lambda options: options.judge != CORRECTION,
    options=Options,
    coder=_ask_coder,
)
