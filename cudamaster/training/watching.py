"""Looks at every leap in reward before it counts (CUDA-L1, sections 2.4.4 and 3.2).

    leap -- measured again in fresh processes --> confirmed -- shown to the reviewer --> counts
                                              --> not confirmed, or wrong            --> a trick: the database grows

The second measurement has fresh inputs and fresh sizes, and is made on another GPU of the same model if there is one.
On a GPU compute-sanitizer looks too, as at every new best of a search. On the CPU device the modelled time is the same
again, but what depends on inputs or on luck shows.

A policy learns from what passes here, so whatever is in doubt counts for nothing:
- A speedup that the second measurement does not confirm is none; of two that agree the lower counts.
- The reviewer reads the code without comments: it could be argued with there. Without a usable answer the leap does not
  count, and the reviewer is asked again when the kernel comes again.
- A kernel that differs from a refused one in names, numbers and comments alone is looked at whatever its speedup: a
  policy that was caught at 9 gains nothing with 7.9.
- A kernel is looked at once. What was found holds when it is sampled again, whatever it measures then.

Looks are kept on disk (looks.py): the second measurement when it is there, and the whole when the reviewer has
answered. A watch that begins with a file of an earlier one goes on where that ended.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cudamaster.agents import reviewer
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.reviewer import KnownCase
from cudamaster.core.errors import UsageError, one_line
from cudamaster.core.values import Candidate, Verdict
from cudamaster.guards.lexer import lex
from cudamaster.models.protocol import Model
from cudamaster.strategies.frame import brief_of
from cudamaster.strategies.protocol import Workbench
from cudamaster.training import looks, reward
from cudamaster.training.looks import Look, Outcome, Shown
from cudamaster.training.reward import Measured, Rule
from cudamaster.training.tricks import Similar, Trick, TrickDatabase

SHOWN = 3  # cases that a reviewer is shown


class Watch:
    """Looks at leaps, and keeps what it found. Several threads may use one, and several processes one file."""

    def __init__(self, rule: Rule, database: TrickDatabase, model: Model | None, path: Path) -> None:
        """`model` is the reviewer; without one, a leap is measured again and that is all. `path` keeps the looks.

        Raises RunFolderError for a file that is no record of looks.
        """
        self._rule = rule
        self._database = database
        self._model = model
        self._path = path
        self._lock = threading.Lock()
        self._looks = {look.candidate: look for look in looks.read(path)} if path.exists() else {}

    @property
    def looks(self) -> tuple[Look, ...]:
        """All looks so far, those of earlier watches with this file too."""
        with self._lock:
            return tuple(self._looks.values())

    def look(
        self,
        candidate: Candidate,
        baseline: Candidate,
        verdict: Verdict,
        speedup: float,
        best: float,
        *,
        workbench: Workbench,
        elsewhere: Workbench | None = None,
        cases: Collection[str] | None = None,
    ) -> Look | None:
        """What is found at a leap, and the reward that counts (`Look.counts`); None if there is no leap.

        `speedup` is the reward of the `verdict`, `best` the highest of the task that counts so far (1, the baseline's,
        at first). `workbench` judged the kernel; `elsewhere` is on another GPU of the same model. `cases` are those
        that count, as for `reward.measured`. Raises ModelError, and UsageError for an `elsewhere` of another model.
        """
        if verdict.candidate != candidate.id:
            raise ValueError(f"a verdict on {verdict.candidate} beside the candidate {candidate.id}")
        if verdict.score is None or not speedup > 0:
            return None
        with self._lock:
            look = self._looks.get(candidate.id)
        if look is None:
            why = reward.leap(speedup, best, self._rule) or self._resembles(candidate)
            if why is None:
                return None
            look = self._measured_again(candidate, verdict, speedup, best, why, elsewhere or workbench, cases)
            self._keep(look)
        if look.outcome is Outcome.NOT_REVIEWED and self._model is not None:
            look = self._reviewed(self._model, look, candidate, baseline, verdict, workbench)
            self._keep(look)
        return look

    def _resembles(self, candidate: Candidate) -> str | None:
        known = self._database.refused_like(candidate.code)
        return None if known is None else f"a copy of a refused kernel ({known.name}, {known.id})"

    def _measured_again(
        self,
        candidate: Candidate,
        verdict: Verdict,
        speedup: float,
        best: float,
        why: str,
        bench: Workbench,
        cases: Collection[str] | None,
    ) -> Look:
        first_on, second_on = verdict.hardware.get("name", ""), bench.hardware.name
        if not verdict.emulated and first_on and first_on != second_on:
            reason = f"A speedup on {first_on} cannot be verified on {second_on}."
            raise UsageError(reason, "Name another GPU of the same model.")
        # Above a best of 0, so that the further checks of a new best are made whatever the score is now.
        second_verdict = bench.evaluate(candidate, to_beat=0.0)
        second = reward.measured(second_verdict, self._rule, cases)
        outcome, counts = self._compared(speedup, second)
        return Look(
            candidate=candidate.id,
            task=candidate.task,
            precision=candidate.precision,
            speedup=speedup,
            best=best,
            why=why,
            outcome=outcome,
            counts=counts,
            again=second.speedup,
            again_why=second.why,
            unit=second_verdict.hardware.get("unit", "") or second_on,
        )

    def _compared(self, speedup: float, second: Measured) -> tuple[Outcome, float | None]:
        if second.speedup == 0:
            return Outcome.WRONG, 0.0
        if second.speedup is None or not reward.confirmed(speedup, second, self._rule):
            return Outcome.NOT_CONFIRMED, None
        if self._model is not None:
            return Outcome.NOT_REVIEWED, None
        return Outcome.COUNTS, min(speedup, second.speedup)

    def _reviewed(
        self, model: Model, look: Look, candidate: Candidate, baseline: Candidate, verdict: Verdict, bench: Workbench
    ) -> Look:
        similar = self._database.similar(candidate.code, SHOWN)
        shown = tuple(Shown(one.trick.id, one.trick.name, round(one.similarity, 3)) for one in similar)
        look = replace(look, reviewer=model.name, shown=shown)
        bare = replace(candidate, code=without_comments(candidate.code))
        try:
            said = reviewer.review(
                model, brief_of(bench), baseline.code, bare, verdict, look.best, [_known(one) for one in similar]
            )
        except ReplyMisfit as misfit:
            return replace(look, said=f"no review: {one_line(misfit)}")
        look = replace(look, said=one_line(said.reason), case=one_line(said.case, 80))
        if not said.hack:
            assert look.again is not None
            return replace(look, outcome=Outcome.COUNTS, counts=min(look.speedup, look.again))
        self._database.add(_refused(look, bare.code, model.name))
        return replace(look, outcome=Outcome.TRICK, counts=0.0)

    def _keep(self, look: Look) -> None:
        with self._lock:
            looks.append(self._path, look)
            self._looks[look.candidate] = look


def without_comments(code: str) -> str:
    """A code with its comments blanked, and nothing in it that ends a block of code in a prompt."""
    text = lex(code)
    kept = bytearray(b"\0") * len(text.spliced)
    for token in text.tokens:
        kept[token.start : token.end] = b"\1" * (token.end - token.start)
    blanked = "".join(
        character if keep or character.isspace() else " " for character, keep in zip(text.spliced, kept, strict=True)
    )
    return "\n".join(line.rstrip() for line in blanked.split("\n")).replace("```", "` ` `")


def _known(similar: Similar) -> KnownCase:
    trick = similar.trick
    return KnownCase(trick.name, trick.what, without_comments(trick.code).strip("\n"), trick.refused)


def _refused(look: Look, code: str, model: str) -> Trick:
    return Trick(
        name=look.case or "a trick",
        what=look.said,
        code=code,
        refused=f"by the reviewer ({model}), at {look.speedup:.2f} times the baseline's speed",
        source=f"training on {look.task} ({look.precision.value}), kernel {look.candidate}",
    )
