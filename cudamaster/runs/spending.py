"""What a run spends: a budget allows it before it begins, and the run folder records it the moment it is spent.

A run's exchanges hold its dollars and tokens; sessions.json holds how long it was worked on, and when it held a device.
Both together are what a resumed run, or its suite, has already spent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace as changed
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType

from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Hold
from cudamaster.models.protocol import Usage
from cudamaster.runs.budget import Budget, Session, Spent, cost
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.record import RunRecord


def spent(record: RunRecord) -> Spent:
    """What a run has spent in all its sessions. Raises RunFolderError for a damaged file."""
    total = Spent()
    number = 1
    while (exchange := record.exchange(number)) is not None:
        total += cost(exchange.reply.usage)
        number += 1
    for session in record.sessions:
        held = sum(hold.seconds for hold in session.holds)
        total += Spent(seconds=session.seconds, gpu_seconds=held)
    return total


def last_unit(sessions: Sequence[Session]) -> str | None:
    """The device that a run held last; its other candidates were measured there too."""
    held = [hold for session in sessions for hold in session.holds]
    return held[-1].unit if held else None


class Spending:
    """One session of a run: what it may begin, and what it spent. It ends with the `with` block."""

    def __init__(self, folder: RunFolder, budget: Budget) -> None:
        self._folder = folder
        self._budget = budget
        self._earlier = folder.sessions
        self._session = Session(datetime.now(UTC).isoformat(timespec="seconds"), budget.limits)
        self._since = time.monotonic()
        self._lock = Lock()

    def __enter__(self) -> Spending:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.end(_said(error))
        elif self._session.ended is None:
            self.end("finished")

    def allow(self) -> None:
        """Call before a model is asked or a candidate judged anew. Raises BudgetSpent when nothing more may begin."""
        self._budget.check()
        self._write()

    def allow_pause(self, pause_s: float) -> None:
        """Call before a pause for a failing model. Raises BudgetSpent if the pause would use up the budget."""
        self._budget.check_pause(pause_s)
        self._write()

    def allow_waiting(self) -> None:
        """Call while waiting for a model. Raises BudgetSpent when the time is up."""
        self._budget.check_time()

    def asked(self, usage: Usage) -> None:
        """Count a call that was answered and is in the folder."""
        self._budget.asked(usage)
        self._write()

    def held(self, hold: Hold) -> None:
        """Count and keep a time in which the device was held."""
        self._budget.held(hold)
        self._write(hold)

    def end(self, why: str) -> None:
        """Write down why the session ends."""
        self._session = changed(self._session, ended=why)
        self._write()

    def _write(self, *holds: Hold) -> None:
        with self._lock:
            self._session = changed(
                self._session,
                seconds=round(time.monotonic() - self._since, 3),
                holds=(*self._session.holds, *holds),
            )
            self._folder.save_sessions((*self._earlier, self._session))


def _said(error: BaseException) -> str:
    if isinstance(error, CudaMasterError):
        return error.reason
    return "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
