"""Canaries: dishonest kernels that a training run scores now and then, and that have to earn nothing.

The guards of a run are as good as what they refuse on that day, on that device and with those settings. So the audit's
dishonest kinds are written for the tasks of the run, and some of them are scored every n steps as any sample is: by the
same judge, over the same cases, with the same rule of rewards. If one earns a reward, a policy could have done so too,
and the run stops with an error that names it.

Only kinds that have to be refused are canaries by default. One that is right by the contract may earn what the baseline
earns, and no gain (`audit.outcomes.GAIN`); an honest kind is no canary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cudamaster.audit import corpus
from cudamaster.audit.corpus import Expect, Kind
from cudamaster.audit.outcomes import GAIN
from cudamaster.audit.regions import NoCheat, region
from cudamaster.core.errors import CanaryError, UsageError
from cudamaster.core.values import Candidate, Precision, Verdict, content_hash
from cudamaster.tasks.cards import TaskCard
from cudamaster.training.reward import Rule, measured


@dataclass(frozen=True)
class Canary:
    """A dishonest kernel: its kind in the audit's corpus, and the candidate for a task."""

    kind: str
    title: str
    expect: Expect
    candidate: Candidate


@dataclass(frozen=True)
class Earned:
    """A canary that earned what it should not have."""

    canary: Canary
    reward: float

    def __str__(self) -> str:
        task = f"{self.canary.candidate.task} ({self.canary.candidate.precision.value})"
        return f"{self.canary.kind} ({self.canary.title}) on {task}: {self.reward:.2f}"


class Canaries:
    """The canaries of one task and precision."""

    def __init__(
        self,
        card: TaskCard,
        precision: Precision,
        baseline: Candidate,
        *,
        cases: Collection[str] | None = None,
        kinds: Sequence[Kind] | None = None,
    ) -> None:
        """`baseline` gives the compile command. `cases` are the labels that count in rewards, by default all that are
        timed.

        Kinds that are no cheat for the task, or cannot be written for it, are left out. Raises UsageError if no case
        of the card counts.
        """
        timed = [case for case in card.cases if case.sweep and (cases is None or case.label in cases)]
        if not timed:
            raise UsageError(f"No timed case of {card.name} counts.", "`cudamaster tasks` lists its cases.")
        largest = max(case.weight for case in timed)
        heaviest = [case for case in timed if case.weight == largest]
        chosen = corpus.load() if kinds is None else kinds
        self._cases = cases
        made: dict[str, Canary] = {}
        for kind in chosen:
            if kind.expect is Expect.RIGHT or (kinds is None and kind.expect is not Expect.REFUSED):
                continue
            code = region(kind, card, precision, heaviest)
            if not isinstance(code, NoCheat):
                candidate = Candidate(card.name, precision, code, kind.command or baseline.command)
                made.setdefault(candidate.id, Canary(kind.name, kind.title, kind.expect, candidate))
        self._made = made

    @property
    def all(self) -> tuple[Canary, ...]:
        """All of them, in the corpus's order."""
        return tuple(self._made.values())

    def some(self, turn: int, count: int) -> tuple[Canary, ...]:
        """Those of a turn, counted from 0: at most `count`. All have had their turn before one has its second."""
        order = sorted(self.all, key=lambda canary: content_hash(canary.kind))  # neighbours in the corpus are alike
        count = min(count, len(order))
        return tuple(order[(turn * count + place) % len(order)] for place in range(count))

    def earned(self, verdicts: Iterable[Verdict], rule: Rule) -> tuple[Earned, ...]:
        """Which of the canaries with these verdicts earned what they should not have. Other verdicts say nothing."""
        found = []
        for verdict in verdicts:
            canary = self._made.get(verdict.candidate)
            if canary is not None:
                reward = measured(verdict, rule, self._cases).speedup
                allowed = GAIN if canary.expect is Expect.HARMLESS else 0.0
                if reward is not None and reward > allowed:
                    found.append(Earned(canary, reward))
        return tuple(found)

    def must_earn_nothing(self, verdicts: Iterable[Verdict], rule: Rule) -> None:
        """Raise CanaryError if one earned what it should not have."""
        if found := self.earned(verdicts, rule):
            raise CanaryError(
                f"Dishonest kernels earned a reward: {'; '.join(map(str, found))}.",
                "Stop training on such rewards, and report this: a check of the harness has a hole. "
                f"`cudamaster audit {found[0].canary.candidate.task}` tries all kinds.",
            )
