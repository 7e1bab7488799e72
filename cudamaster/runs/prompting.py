"""What a model would be asked: the messages of a role, captured from the agents and never written twice.

They are about a given kernel, or from a recorded run. For the latter the search runs again on the record with today's
prompts. No model is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cudamaster.agents import compiler, debug, judge, reviewer
from cudamaster.agents.brief import Brief
from cudamaster.core.errors import BudgetSpent, RunFolderError, UsageError
from cudamaster.core.values import Candidate, Findings, Role, Verdict
from cudamaster.models.protocol import AnsweredBy, Model, Reply, Request
from cudamaster.runs import replaying, worked_examples
from cudamaster.runs.record import RunRecord
from cudamaster.strategies import other_agents, registry
from cudamaster.strategies.protocol import Observer
from cudamaster.tasks.cards import TaskCard

CHARACTERS_PER_TOKEN = 4  # of code and English, roughly; tokenizers differ by a fifth


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
    strategy: str = "cudamaster",
) -> Request:
    """What `role` would be asked about a candidate with that verdict: the baseline, or the first one after it.

    Planner and Coder are those of `strategy`; other roles get the same prompts in every strategy. Raises UsageError if
    the role is not asked about a candidate of that status.
    """
    if role is Role.PLANNER:
        if not verdict.correct:
            raise UsageError(
                f"The Planner sees correct kernels alone, and this one is not: {verdict.status}, {verdict.detail}",
                "Take --role debug, or another kernel.",
            )
        ask_planner = registry.find(strategy).planner
        return _overhear(lambda model: ask_planner(model, brief, candidate, verdict, findings))
    if role is Role.CODER:
        ask_coder = registry.find(strategy).coder
        if ask_coder is None:
            raise UsageError(
                f"What the strategy {strategy} asks its Coder depends on more than a kernel.",
                "Take a run of it with --run RUN.",
            )
        return _overhear(lambda model: ask_coder(model, brief, baseline, candidate, verdict))
    if role is Role.COMPILER:
        return _overhear(lambda model: compiler.choose_command(model, brief, other_agents.PLAN, candidate.code))
    if role is Role.DEBUG:
        if verdict.correct:
            raise UsageError("The Debug agent sees failing kernels alone.", "Give one with --candidate FILE.")
        return _overhear(lambda model: debug.diagnose(model, brief, other_agents.PLAN, candidate, verdict, []))
    if role is Role.JUDGE:
        if verdict.correct:
            return _overhear(lambda model: judge.optimize(model, brief, baseline.code, candidate, findings))
        return _overhear(lambda model: judge.correct(model, brief, baseline.code, candidate, verdict))
    if role is not Role.REVIEWER:
        raise UsageError(f"What {role.in_words} is asked depends on more than a kernel.", "Take a run with --run RUN.")
    if not verdict.correct or verdict.score is None:
        raise UsageError(
            "The Reviewer sees kernels that are right and have a score alone.", "Give one with --candidate FILE."
        )
    return _overhear(lambda model: reviewer.review(model, brief, baseline.code, candidate, verdict, 1.0))


def of_run(record: RunRecord, card: TaskCard) -> tuple[list[Overheard], str | None]:
    """Every request of a recorded run in order, and the reason if they end before the search does.

    The last one may have no reply yet.

    Raises RunFolderError when the task card or the baseline are not those of the run.
    """
    listener = _Listener()
    bench = replaying.workbench(record, card)
    models = replaying.models(record, same_requests=False)
    overheard = {role: AnsweredBy(model.name, partial(listener.hear, model)) for role, model in models.items()}
    run = record.manifest
    examples = worked_examples.choose(run.task, run.precision, run.settings.examples)
    try:
        shown = worked_examples.shown(overheard, examples)
        registry.run(registry.begin(bench, shown, run.settings, listener), run.settings)
    except (RunFolderError, BudgetSpent) as end:
        return listener.heard, end.reason
    return listener.heard, None


class _Listener(Observer):
    def __init__(self) -> None:
        self.heard: list[Overheard] = []
        self._round = 1

    def round_started(self, number: int, rounds: int) -> None:
        """Requests from here on are of this round."""
        self._round = number

    def hear(self, model: Model, request: Request) -> Reply:
        """Keep a request, and have the model answer it."""
        self.heard.append(Overheard(self._round, len(self.heard) + 1, request))
        return model.ask(request)


class _Heard(Exception):
    """Raised to carry a request out of an agent that waits for its reply."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


def _overhear(agent: Callable[[Model], object]) -> Request:
    def hear(request: Request) -> Reply:
        raise _Heard(request)

    try:
        agent(AnsweredBy("none", hear))
    except _Heard as heard:
        return heard.request
    raise AssertionError("the agent asked nobody")
