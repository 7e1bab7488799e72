"""Each step of a search in a line, for a caller's function."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cudamaster.library.progress import Progress, telling
from cudamaster.strategies.protocol import Observer, asked_again

if TYPE_CHECKING:
    from cudamaster.agents.asking import ReplyMisfit
    from cudamaster.agents.debug import Diagnosis
    from cudamaster.core.values import Candidate, Findings, Plan, Role, Verdict
    from cudamaster.strategies.result import Round


class Lines(Observer):
    """Tells each step of a search in a line, and how far a judge is while it works."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._judging = contextlib.ExitStack()

    def close(self) -> None:
        """Tell no more of a judge."""
        self._judging.close()

    def asking(self, role: Role, model: str) -> None:
        """Who is asked."""
        self.close()
        self._progress(f"asking the {role.value} ({model})")

    def trying_again(self, role: Role, pause_s: float, why: str) -> None:
        """Why there is a pause."""
        self._progress(asked_again(role, pause_s, why))

    def moved(self, why: str) -> None:
        """What is done again on another machine."""
        self._progress(why)

    def evaluating(self, candidate: Candidate) -> None:
        """What is judged."""
        self.close()
        self._judging.enter_context(telling(self._progress, f"kernel {candidate.id}", "building and running"))

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """What the baseline's verdict is."""
        self.close()
        self._progress(f"baseline: {verdict.detail}")

    def round_started(self, number: int, rounds: int) -> None:
        """Which round begins."""
        self._progress(f"round {number} of {rounds}")

    def planned(self, number: int, plan: Plan) -> None:
        """What the plan is."""
        self._progress(f"plan: {plan.idea}")

    def without_command(self, number: int, misfit: ReplyMisfit) -> None:
        """Why the default command is taken."""
        self._progress(f"note: {misfit} The default command is taken.")

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        """What the verdict is."""
        self.close()
        score = "" if verdict.score is None else f", P = {verdict.score:.2f}"
        marked = f" ({verdict.mark})" if score and verdict.mark else ""
        marked += verdict.speed.reach if score and verdict.speed is not None else ""
        self._progress(f"{verdict.status}{score}{marked}: {verdict.detail}")

    def diagnosed(self, number: int, debug_try: int, diagnosis: Diagnosis) -> None:
        """What is to be mended."""
        self._progress(f"debug try {debug_try}: {diagnosis.diagnosis}")

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """Which kernel is the new best."""
        reach = "" if verdict.speed is None else verdict.speed.reach
        self._progress(f"new best: {candidate.id}, P = {score:.2f}{reach}")

    def round_ended(self, finished: Round) -> None:
        """Why a round has no result."""
        self.close()
        if not finished.outcome.accepted:
            self._progress(f"not kept: {finished.why}")

    def stopped(self, note: str) -> None:
        """Why the search ends early."""
        self._progress(note)
