"""Where kernels of an outside agent lie until the search takes them, and from where their verdicts go back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace as changed

from cudamaster.agents.submitter import Submission
from cudamaster.core.errors import BudgetSpent, CudaMasterError
from cudamaster.core.values import Candidate, Findings, Verdict
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Round


class Desk(Observer):
    """Submissions in their order, and the verdicts on all that was judged, by code and command.

    It observes the search, also while a resumed one goes through what it did before: so it knows those verdicts too.
    Programs submit from threads of their own.
    """

    def __init__(self, before_answer: Callable[[], None] = lambda: None) -> None:
        """`before_answer` is called when a round is over, before its verdict goes back."""
        self._before_answer = before_answer
        self.rounds: list[Round] = []
        self.codes: list[str] = []  # of the rounds
        self.total = 0  # how many submissions are judged in all
        self.original: Candidate | None = None  # the baseline
        self.device = ""
        self.best: Candidate | None = None
        self.findings: Findings | None = None
        self._known: dict[tuple[str, str], Verdict] = {}
        self._waiting: deque[tuple[Submission, Future[Verdict]]] = deque()
        self._taken: Future[Verdict] | None = None
        self._judged: tuple[Candidate, Verdict] | None = None
        self._closed: CudaMasterError | None = None
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)

    # ---- for those who submit

    def submit(self, submission: Submission) -> Future[Verdict]:
        """The verdict to come. One that is known comes at once, and costs no submission."""
        future: Future[Verdict] = Future()
        with self._lock:
            known = self._known.get((submission.code, submission.command or self._default_command))
            if known is not None:
                future.set_result(changed(known, notes=(*known.notes, "judged before: this cost no submission")))
            elif self._closed is not None:
                future.set_exception(self._closed)
            else:
                self._waiting.append((submission, future))
                self._came.notify()
        return future

    # ---- for the search

    def next(self, wait_s: float) -> Submission | None:
        """The next submission that was not withdrawn, or None if none comes within `wait_s` seconds."""
        with self._lock:
            if not self._waiting:
                self._came.wait(wait_s)
            while self._waiting:
                submission, future = self._waiting.popleft()
                key = (submission.code, submission.command or self._default_command)
                if not future.set_running_or_notify_cancel():
                    continue
                if key in self._known:  # two submitted the same, one after the other
                    future.set_result(self._known[key])
                    continue
                self._taken = future
                return submission
        return None

    def is_known(self, code: str) -> bool:
        """Whether that code was judged, with whatever command."""
        with self._lock:
            return any(code == judged for judged, _ in self._known)

    def close(self, why: CudaMasterError) -> None:
        """Judge nothing more, and say why to those who wait and to those who still come."""
        with self._lock:
            self._closed = self._closed or why
            left = [future for _, future in self._waiting if future.set_running_or_notify_cancel()]
            self._waiting.clear()
            left += [self._taken] if self._taken is not None else []
            self._taken = None
        for future in left:
            future.set_exception(why)

    @property
    def _default_command(self) -> str:
        return self.original.command if self.original is not None else ""

    # ---- events of the search

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """Remember it as the best so far."""
        self.original = self.best = candidate
        self.device, self.findings = verdict.device, findings
        self._remember(candidate, _shown(verdict, "this is the baseline"))

    def round_started(self, number: int, rounds: int) -> None:
        """Remember how many there are."""
        self.total = rounds

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        """Keep it until it is known whether it is the best."""
        self._judged = candidate, verdict

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """Remember the best so far."""
        self.best, self.findings = candidate, findings

    def round_ended(self, finished: Round) -> None:
        """Give the verdict back."""
        self.rounds.append(finished)
        self.codes.append(self._judged[0].code if self._judged is not None and finished.attempts else "")
        if self._judged is None or not finished.attempts:
            return
        candidate, verdict = self._judged
        self._judged = None
        number = finished.outcome.round
        where = f"submission {number} of {self.total}"
        if finished.outcome.accepted:
            said = f"{where}: a new best"
            if self.findings is not None and self.findings.bottleneck is not None:
                said += f", {self.findings.bottleneck.value} (findings.md)"
        else:
            said = f"{where}: not kept; the best so far has P = {finished.best_score:.3f} (best.cu)"
        shown = _shown(verdict, said)
        self._remember(candidate, shown)
        self._before_answer()
        with self._lock:
            taken, self._taken = self._taken, None
            if number == self.total:
                self._closed = self._closed or BudgetSpent(
                    f"All {self.total} submissions of this search are judged.", "The best so far is its result."
                )
        if taken is not None:
            taken.set_result(shown)

    def _remember(self, candidate: Candidate, shown: Verdict) -> None:
        with self._lock:
            self._known[candidate.code, candidate.command] = shown


def _shown(verdict: Verdict, note: str) -> Verdict:
    """A verdict as the agent gets it. The seed of its inputs stays here."""
    return changed(verdict, seed=None, notes=(*verdict.notes, note))
