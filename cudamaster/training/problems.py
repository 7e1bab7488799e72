"""What a model is asked for in training: the tasks, each in a precision, with what a prompt says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cudamaster.agents.brief import Brief
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Hardware, Precision
from cudamaster.strategies.frame import brief_of
from cudamaster.strategies.protocol import Workbench
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard


@dataclass(frozen=True)
class Problem:
    """A task in one precision, as a model is asked for it. `cases` are the labels of its timed cases."""

    card: TaskCard
    precision: Precision
    brief: Brief
    baseline: Candidate

    @property
    def name(self) -> str:
        """The task and its precision, as in the files of a run."""
        return name_of(self.card.name, self.precision)

    @property
    def hardware(self) -> Hardware:
        """What measures it."""
        return self.brief.hardware

    @property
    def cases(self) -> tuple[str, ...]:
        """Labels of the timed cases."""
        return tuple(case.label for case in self.card.cases if case.sweep)

    def candidate(self, code: str) -> Candidate:
        """A model's code as a candidate, with the device's own compile command."""
        return Candidate(self.card.name, self.precision, code, self.baseline.command)


def name_of(task: str, precision: Precision) -> str:
    """The name of a problem."""
    return f"{task}/{precision.value}"


def loaded(
    tasks: Sequence[str], precisions: Sequence[Precision], bench: Callable[[TaskCard, Precision], Workbench]
) -> tuple[Problem, ...]:
    """The problems of some tasks, each in those of the precisions that it has, none twice.

    `bench` gives the workbench of one. Raises UsageError for a task without any of the precisions, and CardError.
    """
    found: dict[str, Problem] = {}
    for task in tasks:
        card = cards.load(task)
        wanted = [precision for precision in precisions if precision in card.precisions]
        if not wanted:
            there = ", ".join(card.precisions)
            raise UsageError(f"{card.name} has none of the precisions of the configuration.", f"It has {there}.")
        for precision in wanted:
            if name_of(card.name, precision) not in found:
                one = bench(card, precision)
                found[name_of(card.name, precision)] = Problem(card, precision, brief_of(one), one.baseline)
    return tuple(found.values())


def must_have_cases(problems: Sequence[Problem], labels: Sequence[str]) -> None:
    """Raise UsageError for a label that no problem's timed cases have, or for a problem that has none of them."""
    known = {label for problem in problems for label in problem.cases}
    if unknown := [label for label in labels if label not in known]:
        raise UsageError(f"No timed case is {unknown[0]}.", f"There are {', '.join(sorted(known))}.")
    for problem in problems:
        if labels and not set(labels) & set(problem.cases):
            raise UsageError(
                f"None of judge.cases is a timed case of {problem.name}, so nothing of it would count.",
                f"It has {', '.join(problem.cases)}.",
            )
