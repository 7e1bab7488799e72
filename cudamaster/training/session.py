"""What the stages share while they run: folder, model, judges, turns, and who hears how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from cudamaster.core.errors import BudgetSpent, UsageError
from cudamaster.core.values import Candidate, Verdict
from cudamaster.models.protocol import Message
from cudamaster.training import prompts
from cudamaster.training.benches import Gpus
from cudamaster.training.policy import Policy
from cudamaster.training.problems import Problem
from cudamaster.training.scoring import Scoring
from cudamaster.training.settings import Stage
from cudamaster.training.state import TrainingFolder
from cudamaster.training.turns import Turns, must_have_room


class Observer:
    """Gets what happens in a stage, and does nothing with it. Inherit from it to do more."""

    def said(self, line: str) -> None:
        """A sentence for people."""

    def doing(self, what: str, done: int, total: int | None) -> None:
        """So much of something is done: samples of a round, say."""

    def step(self, row: Mapping[str, Any], total: int | None) -> None:
        """A step has ended; `row` is its line in steps.jsonl."""

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """The model was tried on a task; `row` is its line in evaluations.jsonl."""


@dataclass(frozen=True)
class Sample:
    """A completion of the model: its text, and the candidate and verdict to come; neither if it has no code."""

    problem: Problem
    text: str
    tokens: tuple[int, ...]
    candidate: Candidate | None
    verdict: Future[Verdict] | None


@dataclass
class Seconds:
    """Seconds of a step by what they went into. `judging` is only what was waited for."""

    generation: float = 0.0
    judging: float = 0.0
    training: float = 0.0


@dataclass
class Session:
    """A stage at work. `scoring` is None where nothing is judged."""

    settings: Stage
    folder: TrainingFolder
    policy: Policy
    turns: Turns
    observer: Observer
    scoring: Scoring | None = None
    problems: Sequence[Problem] = ()
    tried: Sequence[Problem] = ()  # in evaluations
    seconds: Seconds = field(default_factory=Seconds)

    def write(self, asked: Sequence[tuple[Problem, Sequence[Message]]], number: int, seed: str) -> list[list[Sample]]:
        """`number` samples of each prompt, the judging of each begun as soon as its micro-batch is there.

        A micro-batch may have samples of several prompts. Raises UsageError for a prompt that leaves no room for a
        completion.
        """
        generation, policy = self.settings.generation, self.policy
        waiting: list[tuple[int, Problem, list[int]]] = []
        for place, (problem, messages) in enumerate(asked):
            ids = policy.ids(messages)
            if not policy.fits(ids, generation):
                context = self.settings.model.context
                raise UsageError(
                    f"A prompt for {problem.name} has {len(ids)} tokens; with {generation.max_tokens} more for the "
                    f"kernel they exceed model.context, which is {context}.",
                    "Raise model.context, lower generation.max_tokens, or show fewer exemplars.",
                )
            waiting += [(place, problem, ids)] * number
        samples: list[list[Sample]] = [[] for _ in asked]
        for first in range(0, len(waiting), generation.batch):
            began = monotonic()
            some = waiting[first : first + generation.batch]
            completions = policy.sample([ids for _, _, ids in some], generation, f"{seed} {first}")
            self.seconds.generation += monotonic() - began
            for (place, problem, _), tokens in zip(some, completions, strict=True):
                samples[place].append(self.sample(problem, self.policy.text(tokens), tokens))
            if len(waiting) > generation.batch:
                self.observer.doing("sampling", first + len(some), len(waiting))
        return samples

    def sample(self, problem: Problem, text: str, tokens: Sequence[int] = ()) -> Sample:
        """A completion, whose judging begins if it has code."""
        code = prompts.code_of(self.settings.form, problem.brief, text)
        candidate = None if code is None else problem.candidate(code)
        assert self.scoring is not None
        verdict = None if candidate is None else self.scoring.submit(problem, candidate)
        return Sample(problem, text, tuple(tokens), candidate, verdict)

    def verdicts(self, samples: Sequence[Sample]) -> list[Verdict | None]:
        """The verdicts of samples, once they are all there: while the model has lent its turn to the judges."""
        began = monotonic()
        with self.turns.of_judges():
            found = [None if sample.verdict is None else sample.verdict.result() for sample in samples]
        self.seconds.judging += monotonic() - began
        assert self.scoring is not None
        benches = self.scoring.benches
        judges = benches.gpus if isinstance(benches, Gpus) else ()
        for verdict in found:
            if verdict is not None:
                must_have_room(verdict, self.turns, judges)
        return found

    def must_afford(self, evaluations: int) -> None:
        """Raise BudgetSpent unless the budget has time left, and so many evaluations."""
        budget = self.settings.budget
        self.folder.must_go_on(budget)
        if budget.evaluations is not None and self.scoring is not None:
            left = budget.evaluations - self.scoring.verdicts.paid
            if left < evaluations:
                spent = f"{self.scoring.verdicts.paid} of {budget.evaluations} evaluations are spent"
                raise BudgetSpent(
                    f"{spent}, and the next step may need {evaluations}.", "Raise budget.evaluations to go on."
                )

    def taken_seconds(self) -> dict[str, float]:
        """The seconds since this was last asked, rounded for a line."""
        seconds, self.seconds = self.seconds, Seconds()
        return {name: round(value, 3) for name, value in vars(seconds).items()}
