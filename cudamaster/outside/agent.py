"""What a search asks in place of a model where an outside agent searches: each reply is one submission.

The agent's command is started when the first reply is wanted that no record holds, so a replay starts none, and a
resumed run starts it when all that was judged before is known again.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudamaster.agents.submitter import Ended, Submission, text_of
from cudamaster.core import keys
from cudamaster.core.errors import BudgetSpent, CudaMasterError, ModelError
from cudamaster.models.protocol import Reply, Request, Usage
from cudamaster.outside.client import About
from cudamaster.outside.desk import Desk
from cudamaster.outside.program import Program, name_of
from cudamaster.outside.referee import Referee
from cudamaster.outside.workspace import Workspace
from cudamaster.strategies.protocol import Observer

_LOOKED_EVERY_S = 0.1
_SAID = 400  # characters of what it printed last


@dataclass(frozen=True)
class _Work:
    referee: Referee
    program: Program


class OutsideAgent:
    """An agent's `command` at work for the run in `run`, for at most `minutes` a session.

    It has `grace_s` seconds to end by itself once its last submission is judged. `tasks` are folders of a user's own
    tasks.
    """

    def __init__(
        self, command: str, run: Path, *, minutes: float, tasks: tuple[Path, ...] = (), grace_s: float = 10.0
    ) -> None:
        self.name = name_of(command)
        self.while_asking: Callable[[], None] | None = None
        self._words = shlex.split(command)
        self._run = run
        self._minutes = minutes
        self._grace_s = grace_s
        self._desk = Desk(self._show)
        self._folder = Workspace(run / "agent", tasks)
        self._log = run / "agent.log"
        self._work: _Work | None = None
        self._out_of_time = False

    @property
    def observer(self) -> Observer:
        """What gets each step of the search."""
        return self._desk

    def ask(self, request: Request) -> Reply:
        """Wait for the next submission, or for the agent's end.

        Raises ModelError for an agent that fails or never submits anything, and what `while_asking` raises.
        """
        began = time.monotonic()
        work = self._work = self._work or self._begin(request)
        said = self._next(work)
        return Reply(text_of(said), self.name, Usage(None, None, None, round(time.monotonic() - began, 3), None))

    def at_work(self) -> AbstractContextManager[None]:
        """The time of the search; see strategies.protocol.Resident."""
        return self._at_work()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        grace_s, why = 0.0, BudgetSpent("The search has ended.", "Continue it with --resume.")
        try:
            yield
            grace_s = self._grace_s
        except CudaMasterError as error:
            why = BudgetSpent(f"The search has ended: {error.reason}", "Continue it with --resume.")
            raise
        finally:
            if self._work is not None:
                self._desk.close(why)
                self._work.program.end(grace_s)
                self._work.referee.stop()
                self._work = None

    def _begin(self, request: Request) -> _Work:
        original = self._desk.original
        assert original is not None, "the baseline is measured first"
        referee = Referee(About(original.task, original.precision, self._desk.device), self._desk)
        self._folder.prepare(request, self._desk, referee.address, minutes=self._minutes, grace_s=self._grace_s)
        referee.start()
        try:
            environment = self._folder.environment(referee.address)
            return _Work(referee, Program(self._words, self._folder.path, self._log, environment))
        except BaseException:
            referee.stop()
            raise

    def _next(self, work: _Work) -> Submission | Ended:
        while True:
            if self.while_asking is not None:
                self.while_asking()
            ended = work.program.exit_code is not None
            submission = self._desk.next(0.0 if ended else _LOOKED_EVERY_S)
            if submission is not None:
                return submission
            if ended:
                return self._left_behind() or self._conclusion(work.program)
            if work.program.seconds > 60 * self._minutes:
                self._out_of_time = True
                work.program.end()

    def _left_behind(self) -> Submission | None:
        """kernel.cu, if the agent left another one there than it submitted."""
        code = self._folder.kernel()
        return None if code is None or self._desk.is_known(code) else Submission(code)

    def _conclusion(self, program: Program) -> Ended:
        """Why there is no further submission. Raises ModelError for an agent that did not do its work."""
        code = program.exit_code
        again = f"See {self._log}; mend what it says, then continue with --resume {self._run}."
        if code and not self._out_of_time:
            raise ModelError(f"The agent ({self.name}) ended with exit code {code}{self._said()}.", again)
        how = f"The agent was ended after {self._minutes:g} minutes." if self._out_of_time else "The agent ended."
        if not self._desk.rounds:
            raise ModelError(f"{how} It submitted no kernel{self._said()}.", again)
        return Ended(how)

    def _said(self) -> str:
        """What it printed last, for a message."""
        try:
            with self._log.open("rb") as file:
                file.seek(-min(_SAID, file.seek(0, os.SEEK_END)), os.SEEK_END)
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        last = text.strip().rpartition("\n")[2].strip()
        return f": {keys.message_without_keys(last.rstrip('.'))}" if last else ""

    def _show(self) -> None:
        if self._work is not None:
            self._folder.show(self._desk)
