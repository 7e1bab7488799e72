"""What strategies share that keep several kernels: the kernels, how each came about, and a round from any of them.

A round is one plan of the Planner for one kernel, carried out as in algorithm 1 (lines 5 to 19). A kernel is profiled
when the Planner is to see it, or the strategy goes by its findings, and not before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from cudamaster.agents import planner
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.planner import Place
from cudamaster.core.values import Candidate, Findings, Outcome, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.cudamaster import NO_PLAN, write_and_debug
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Kernel:
    """A correct kernel with its verdict and P, 1.0 for the baseline. `made` is the number of its round, 0 for it."""

    candidate: Candidate
    verdict: Verdict
    score: float
    made: int

    @property
    def id(self) -> str:
        """The candidate's."""
        return self.candidate.id


@dataclass(frozen=True)
class _Step:
    """A round that is over: from which kernel, and with which outcome. Accepted means faster than that kernel."""

    start: Kernel
    outcome: Outcome


class Search:
    """One search that keeps several kernels. Which of them a round starts from is for the strategy to say."""

    def __init__(self, frame: Frame, settings: SearchSettings) -> None:
        """The baseline of `frame` is measured, and is the first kernel."""
        baseline = frame.baseline
        self.first = Kernel(baseline.candidate, baseline.verdict, baseline.score, 0)
        self._frame = frame
        self._settings = settings
        self._known = {self.first.id}
        self._steps: list[_Step] = []
        self._spent: set[str] = set()

    def findings(self, kernel: Kernel) -> Findings:
        """Its findings; it is profiled at the first call."""
        return self._frame.findings(kernel.candidate, kernel.verdict)

    def unspent(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Those for which the Planner has not said that it has no further idea."""
        return [kernel for kernel in kernels if kernel.id not in self._spent]

    def idea_of(self, kernel: Kernel) -> str:
        """The title of the plan that it was made by."""
        return self._steps[kernel.made - 1].outcome.plan.idea if kernel.made else "the baseline"

    def grow(
        self,
        number: int,
        start: Callable[[], Kernel | None],
        kept: Callable[[Kernel], Sequence[str]] = lambda kernel: (),
    ) -> Kernel | None:
        """Round `number`, from the kernel that `start` gives: the new correct kernel that came of it, or None.

        A kernel for which the Planner has no further idea is spent, and `start` is asked for another one. Raises Spent
        when it has none. `kept` says what the search keeps beside a kernel, for the Planner, a line each.
        """
        while (kernel := start()) is not None:
            plan, attempts = NO_PLAN, list[Attempt]()
            try:
                proposed = planner.propose(
                    self._frame.models[Role.PLANNER],
                    self._frame.brief,
                    kernel.candidate,
                    kernel.verdict,
                    self.findings(kernel),
                    self._tried(kernel),
                    place=self._place(kernel, tuple(kept(kernel))),
                )
                if proposed is None:
                    self._spent.add(kernel.id)
                    continue
                plan = proposed
                self._frame.observer.planned(number, plan)
                tries = self._settings.tries_in(number)
                candidate, verdict = write_and_debug(self._frame, number, plan, kernel.candidate, tries, attempts)
            except ReplyMisfit as misfit:
                self._frame.lost(number, plan, attempts, str(misfit))
                self._ended(kernel)
                return None
            self._frame.settle(number, plan, attempts, candidate, verdict)
            self._ended(kernel)
            return self._added(number, candidate, verdict)
        done, rounds = len(self._frame.rounds), self._settings.rounds
        raise Spent(f"The planner has no further idea for any kernel that is kept after {done} of {rounds} rounds.")

    def _added(self, number: int, candidate: Candidate, verdict: Verdict) -> Kernel | None:
        """The candidate as a kernel if it is right, has a score and is no copy of one that was there before."""
        if not verdict.correct or verdict.score is None or not verdict.score > 0 or candidate.id in self._known:
            return None
        self._known.add(candidate.id)
        return Kernel(candidate, verdict, verdict.score, number)

    def _ended(self, start: Kernel) -> None:
        outcome = self._frame.rounds[-1].outcome
        faster = outcome.score is not None and outcome.score > start.score
        self._steps.append(_Step(start, changed(outcome, accepted=faster)))

    def _tried(self, kernel: Kernel) -> list[Outcome]:
        return [step.outcome for step in self._steps if step.start.id == kernel.id]

    def _place(self, kernel: Kernel, kept: tuple[str, ...]) -> Place:
        line: list[int] = []
        made = kernel.made
        while made:
            line.append(made)
            made = self._steps[made - 1].start.made
        elsewhere = [
            step.outcome
            for number, step in enumerate(self._steps, start=1)
            if step.start.id != kernel.id and number not in line
        ]
        steps = tuple(self._steps[number - 1].outcome for number in reversed(line))
        return Place(self._frame.best.score, steps, tuple(elsewhere), kept)


class Spent(Exception):
    """The Planner has no idea left for any kernel. The text is the reason for which the search ends."""


def without_comments(code: str) -> str:
    """The code with a blank for each comment."""
    return _COMMENT.sub(" ", code)


def likeness(one: Candidate, other: Candidate) -> float:
    """The share of lines that two kernels have in common, from 0 to 1, whatever their comments, blanks and order."""
    first, second = _lines(one.code), _lines(other.code)
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def _lines(code: str) -> Counter[str]:
    lines = ("".join(line.split()) for line in without_comments(code).split("\n"))
    return Counter(line for line in lines if line)


def ask_planner(model: Model, brief: Brief, candidate: Candidate, verdict: Verdict, findings: Findings) -> object:
    """What the Planner is asked about a kernel alone, in a search that has no other but the baseline."""
    place = Place(max(1.0, verdict.score or 1.0))
    return planner.propose(model, brief, candidate, verdict, findings, [], place=place)
