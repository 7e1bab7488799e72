"""What a model would be asked: the messages of a role, overheard from the agents themselves and never written twice.

Either of a kernel at hand, or of a recorded run, where the search runs again on the record, with the prompts as they
are now. No model is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudamaster.agents import coder, compiler, contrast, debug, judge, lone_coder, planner, reviewer
from cudamaster.agents.brief import Brief
from cudamaster.agents.contrast import Exemplar
from cudamaster.agents.debug import Diagnosis
from cudamaster.agents.judge import Correction, Optimization
from cudamaster.core.errors import BudgetSpent, RunFolderError, UsageError
from cudamaster.core.values import Candidate, Findings, Plan, Role, Verdict
from cudamaster.models.protocol import Model, Reply, Request
from cudamaster.runs import replaying, worked_examples
from cudamaster.runs.record import RunRecord
from cudamaster.strategies import contrastive, cudaforge, cudamaster, registry, sample
from cudamaster.strategies.protocol import Silent
from cudamaster.tasks.cards import TaskCard

CHARACTERS_PER_TOKEN = 4  # of code and English, roughly; tokenizers differ by a fifth

# What another agent would have said.
_PLAN = Plan("<title of the Planner's idea>", "<the Planner's scheme>")
_DIAGNOSIS = Diagnosis("<what the Debug agent found>", "<what the Debug agent says to change>")
_CORRECTION = Correction("<the problem that the Judge names>", "<why it matters>", "<the smallest fix>")
_OPTIMIZATION = Optimization("<the bottleneck that the Judge names>", "<its method>", "<its plan>")


@dataclass(frozen=True)
class Overheard:
    """One request of a recorded run: the round that it was made in, and its number in the run, both from 1."""

    round: int
    number: int
    request: Request


def tokens(text: str) -> int:
    """An estimate of the tokens of a prompt."""
    return round(len(text) / CHARACTERS_PER_TOKEN)


def of_kernel(
    role: Role,
    brief: Brief,
    baseline: Candidate,
    candidate: Candidate,
    verdict: Verdict,
    findings: Findings,
    strategy: str = cudamaster.NAME,
) -> Request:
    """What `role` would be asked about a candidate with that verdict, the first after the baseline or that itself.

    The Coder is that of `strategy`; the other roles are asked the same wherever they are asked.
    Raises UsageError where the role is not asked about a candidate of that status.
    """
    if role is Role.PLANNER:
        if not verdict.correct:
            raise UsageError(
                f"The Planner sees correct kernels alone, and this one is not: {verdict.status}, {verdict.detail}",
                "Take --role debug, or another kernel.",
            )
        return _overhear(lambda model: planner.propose(model, brief, candidate, verdict, findings, []))
    if role is Role.CODER:
        return _overhear(lambda model: _ask_coder(model, strategy, brief, baseline, candidate, verdict))
    if role is Role.COMPILER:
        return _overhear(lambda model: compiler.choose_command(model, brief, _PLAN, candidate.code))
    if role is Role.DEBUG:
        if verdict.correct:
            raise UsageError("The Debug agent sees failing kernels alone.", "Give one with --candidate FILE.")
        return _overhear(lambda model: debug.diagnose(model, brief, _PLAN, candidate, verdict, []))
    if role is Role.JUDGE:
        if verdict.correct:
            return _overhear(lambda model: judge.optimize(model, brief, baseline.code, candidate, findings))
        return _overhear(lambda model: judge.correct(model, brief, baseline.code, candidate, verdict))
    if not verdict.correct or verdict.score is None:
        raise UsageError(
            "The Reviewer sees kernels that are right and have a score alone.", "Give one with --candidate FILE."
        )
    return _overhear(lambda model: reviewer.review(model, brief, baseline.code, candidate, verdict, 1.0))


def _ask_coder(
    model: Model, strategy: str, brief: Brief, baseline: Candidate, candidate: Candidate, verdict: Verdict
) -> object:
    if strategy == contrastive.NAME:
        shown = [Exemplar(baseline, verdict, 1.0, is_baseline=True)]
        if candidate.id != baseline.id:
            if not verdict.correct or verdict.score is None:
                raise UsageError(f"The strategy {strategy} shows no kernel without a score.", "Take another kernel.")
            shown.append(Exemplar(candidate, verdict, verdict.score))
        return contrast.improve(model, brief, sorted(shown, key=lambda exemplar: exemplar.score), [])
    if strategy == sample.NAME or (strategy == cudaforge.NAME and candidate.id == baseline.id):
        return lone_coder.write(model, brief, baseline.code)
    if strategy == cudaforge.NAME:
        if verdict.correct:
            return lone_coder.optimize(model, brief, candidate, verdict, _OPTIMIZATION, None)
        return lone_coder.correct(model, brief, candidate, verdict, _CORRECTION)
    if verdict.correct:
        return coder.implement(model, brief, _PLAN, candidate.code)
    return coder.repair(model, brief, _PLAN, _DIAGNOSIS, candidate.code)


def of_run(record: RunRecord, card: TaskCard) -> tuple[list[Overheard], str | None]:
    """Every request of a recorded run in order, the one that has no reply yet too; and why they end, where they
    end before the search did.

    Raises RunFolderError when the task card or the baseline are not those of the run.
    """
    listener = _Listener()
    bench = replaying.ReplayedWorkbench(record, card)
    models = replaying.models(record, same_requests=False)
    overheard = {role: _Passing(model, listener) for role, model in models.items()}
    run = record.manifest
    examples = worked_examples.choose(run.task, run.precision, run.settings.examples)
    try:
        registry.run(bench, worked_examples.shown(overheard, examples), run.settings, listener)
    except (RunFolderError, BudgetSpent) as end:
        return listener.heard, end.reason
    return listener.heard, None


class _Listener(Silent):
    def __init__(self) -> None:
        self.heard: list[Overheard] = []
        self._round = 1

    def round_started(self, number: int, rounds: int) -> None:
        """Requests from here on are of this round."""
        self._round = number

    def hear(self, request: Request) -> None:
        """Keep a request."""
        self.heard.append(Overheard(self._round, len(self.heard) + 1, request))


class _Passing:
    """A model whose requests are heard before they are answered."""

    def __init__(self, inner: Model, listener: _Listener) -> None:
        self._inner = inner
        self._listener = listener

    @property
    def name(self) -> str:
        return self._inner.name

    def ask(self, request: Request) -> Reply:
        self._listener.hear(request)
        return self._inner.ask(request)


class _Heard(Exception):
    """Carries a request out of an agent that waits for its reply."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


class _Ear:
    name = "none"

    def ask(self, request: Request) -> Reply:
        raise _Heard(request)


def _overhear(agent: Callable[[Model], object]) -> Request:
    try:
        agent(_Ear())
    except _Heard as heard:
        return heard.request
    raise AssertionError("the agent asked nobody")
