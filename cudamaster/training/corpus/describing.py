"""Has a model describe many pieces, several at a time, until all are described or nothing more may be spent."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.describer import Description, describe
from cudamaster.core.errors import BudgetSpent, ModelError
from cudamaster.models.protocol import Model, TriesAgain, Waits
from cudamaster.training.corpus.cutting import Piece
from cudamaster.training.corpus.replies import Replies

_IN_A_ROW = 5  # calls without an answer, after which no more are made: the server is at fault, not a piece
_LOOKED_EVERY_S = 0.2
_GRACE_S = 5.0  # for calls in progress, after an interruption

Shown = Callable[[int, int], None]


@dataclass
class Described:
    """What came of it, by the pieces' places: descriptions, and why others have none; `stopped` if a budget ended it.

    Of a piece in neither, the model was not asked.
    """

    descriptions: dict[int, Description] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    stopped: BudgetSpent | None = None


def describe_all(
    pieces: Sequence[Piece],
    model: Model,
    identity: str,
    replies: Replies,
    jobs: int = 1,
    show: Shown = lambda done, number: None,
    say: Callable[[str], None] = lambda note: None,
) -> Described:
    """Describe each piece; `show` often gets how many are done, of how many, and `say` a note for people.

    A piece whose call fails, or whose reply fits no form twice, is counted and left out. After five failures in a row
    it ends with their ModelError. Replies are kept whatever ends it.
    """
    work = _Work(pieces, model, identity, replies, say)
    threads = [threading.Thread(target=work.run, daemon=True) for _ in range(max(1, min(jobs, len(pieces))))]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            show(work.done, len(pieces))
            next(thread for thread in threads if thread.is_alive() or thread is threads[-1]).join(_LOOKED_EVERY_S)
    except BaseException:
        work.stop()
        until = time.monotonic() + _GRACE_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        work.abandon()
        raise
    show(work.done, len(pieces))
    if work.error is not None:
        raise work.error
    return work.result


class _Work:
    def __init__(
        self, pieces: Sequence[Piece], model: Model, identity: str, replies: Replies, say: Callable[[str], None]
    ) -> None:
        self.result = Described()
        self.error: BaseException | None = None
        self.done = 0
        self._pieces = pieces
        self._left = deque(range(len(pieces)))
        self._replies = replies
        self._say = say
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._stopped = self._abandoned = False
        if isinstance(model, TriesAgain):
            model.before_pause = self._pausing
        if isinstance(model, Waits):
            model.while_asking = self._waiting
        self._model = replies.model(model, identity)

    def stop(self) -> None:
        """Let nothing more begin; calls in progress may end."""
        self._stopped = True

    def abandon(self) -> None:
        """End the calls in progress."""
        self._abandoned = True

    def run(self) -> None:
        """What one thread does."""
        while not self._stopped:
            try:
                place = self._left.popleft()
            except IndexError:
                return
            try:
                found = describe(self._model, self._pieces[place].path, self._pieces[place].code)
            except BudgetSpent as spent:
                self._left.appendleft(place)
                self.result.stopped = self.result.stopped or spent
                self._stopped = True
                return
            except (ReplyMisfit, ModelError) as error:
                self._failed(place, error)
            except BaseException as error:  # a thread that ended here would take its turns with it, unseen
                self.error, self._stopped = error, True
                return
            else:
                with self._lock:
                    self._in_a_row = 0
                    self.result.descriptions[place] = found
                    self.done += 1

    def _failed(self, place: int, error: ReplyMisfit | ModelError) -> None:
        with self._lock:
            self.done += 1
            self.result.failed[place] = error.reason
            if isinstance(error, ReplyMisfit):
                return
            self._in_a_row += 1
            if self._in_a_row >= _IN_A_ROW and not self._stopped:
                self._stopped = True
                fix = "Give the same command again when that is mended: what was answered is kept."
                self.error = ModelError(f"{_IN_A_ROW} calls in a row had no answer. {error.reason}", fix)

    def _waiting(self) -> None:
        if self._abandoned:
            raise BudgetSpent("It was interrupted.", "The same command goes on.")

    def _pausing(self, pause_s: float, why: str) -> None:
        self._replies.budget.check_pause(pause_s)
        if self._stopped:
            raise BudgetSpent("Nothing more may begin.", "The same command goes on.")
        self._say(f"{why}; asked again in {pause_s:.0f} s")
