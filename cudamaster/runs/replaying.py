"""A run folder as a record: its replies without a model, and its verdicts without a device.

A full replay takes everything from the record, and needs no key, no network, no GPU and no compiler. It reaches the
same result, or says where the search asks for something else than it did then; the replay of a stopped run stops at the
same place. A replay of the models alone returns each role's replies in their order, whatever the prompt, while kernels
are measured again; so a prompt with other figures in it gets the old reply.

Nothing is written here. A replay is a run with a run folder of its own (optimization), and can be recorded and resumed.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cudamaster.core.errors import BudgetSpent, RunFolderError, UsageError
from cudamaster.core.values import Candidate, Precision, Role
from cudamaster.models.protocol import AnsweredBy, Model, Reply, Request
from cudamaster.runs.record import Exchange, RunRecord, request_hash
from cudamaster.runs.recording import difference
from cudamaster.runs.stored import Gap, StoredWorkbench
from cudamaster.strategies.result import Result
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region

_OTHER = "Replay it with the version that wrote it (run.json names that), or start a fresh run."


def folder_name(task: str, precision: Precision) -> str:
    """Name of a run's folder among the records of several runs."""
    return f"{task}_{precision.value}"


def find(folder: Path, task: str | None = None, precision: Precision | None = None) -> Path:
    """The record meant by `folder`: the run folder itself, or the one for the task among its folders.

    Without a task it has to be the only one. Raises UsageError if there is none or another, naming what is there.
    """
    if (folder / "run.json").is_file():
        return folder
    found = sorted(path.parent for path in folder.glob("*/run.json"))
    if task is not None:
        wanted = folder_name(task, precision or Precision.FP32)
        found = [path for path in found if path.name == wanted] or found
        if [path.name for path in found] != [wanted]:
            raise UsageError(f"There is no record {wanted} in {folder}.", _what_is_there(found))
    if len(found) != 1:
        raise UsageError(f"{folder} is not the record of one run.", _what_is_there(found))
    return found[0]


def _what_is_there(found: list[Path]) -> str:
    if not found:
        return "Give a run folder (it has a file run.json), or a folder of such."
    return f"Name one of {', '.join(path.name for path in found)}, by task and --precision."


def answered(run: RunRecord) -> Counter[Role]:
    """How many replies of each role a run holds; a resumed replay continues after them."""
    return Counter(exchange.request.role for exchange in _exchanges(run))


def models(
    record: RunRecord,
    done: Mapping[Role, int] | None = None,
    *,
    same_requests: bool,
    real_time: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[Role, Model]:
    """The models of a record. Each returns its role's replies in their order, starting after the first `done`.

    With `same_requests`, a reply only answers the request that it answered then. With `real_time`, each takes as long
    as it took then, by `sleep`.
    """
    replies = _Replies(record, done or {}, same_requests=same_requests, sleep=sleep if real_time else None)
    return {role: AnsweredBy(name, replies.next) for role, name in record.manifest.settings.models.items()}


def _exchanges(run: RunRecord) -> list[Exchange]:
    found: list[Exchange] = []
    while (exchange := run.exchange(len(found) + 1)) is not None:
        found.append(exchange)
    return found


class _Replies:
    """What a record still holds of each role's replies."""

    def __init__(
        self,
        record: RunRecord,
        done: Mapping[Role, int],
        *,
        same_requests: bool,
        sleep: Callable[[float], None] | None,
    ) -> None:
        self._record = record
        self._left: dict[Role, deque[Exchange]] = {role: deque() for role in Role}
        for exchange in _exchanges(record):
            self._left[exchange.request.role].append(exchange)
        for role, number in done.items():
            for _ in range(min(number, len(self._left[role]))):
                self._left[role].popleft()
        self._same_requests = same_requests
        self._sleep = sleep

    def next(self, request: Request) -> Reply:
        """The next reply of the role that is asked.

        Raises RunFolderError if the search asks something else than it did then. Raises BudgetSpent, which ends it with
        the best so far, where the recorded run stopped, or if only replies are replayed and the role has none left.
        """
        left = self._left[request.role]
        if not left:
            if self._same_requests and not any(self._left.values()):
                _must_be_finished(self._record)
            reason = f"The record {self._record.path} holds no further reply of {request.role.in_words}."
            goes_on = "The search goes on where the recorded one did not; "
            if self._same_requests:
                raise RunFolderError(reason, goes_on + _OTHER)
            # Kernels that are measured again may get another verdict, so the record is not at fault.
            raise BudgetSpent(reason, goes_on + "use a model to search further.")
        stored = left.popleft()
        if self._same_requests and stored.request_hash != request_hash(request):
            raise RunFolderError(
                f"Exchange {stored.number} of the record {self._record.path} answers another request: "
                f"{difference(stored, request)}.",
                _OTHER,
            )
        if self._sleep is not None:
            self._sleep(stored.reply.usage.seconds)
        return stored.reply


def workbench(record: RunRecord, card: TaskCard) -> StoredWorkbench:
    """The workbench of a record.

    Raises RunFolderError when card or baseline are not those of the record. The workbench raises BudgetSpent where the
    recorded run stopped, and RunFolderError for what it never did.
    """
    run = record.manifest
    if card.name != run.task or card.hash != run.card_hash:
        raise _differs(record, "task card", f"{run.task} {run.card_hash}", f"{card.name} {card.hash}")
    stored = record.candidate(run.baseline)
    if stored is None:
        raise RunFolderError(f"The record {record.path} holds no baseline: it ended before that.", _OTHER)
    # The default command is that of the recorded device; the text is today's.
    baseline = Candidate(card.name, run.precision, baseline_region(card, run.precision), stored.command)
    if baseline.id != stored.id:
        raise _differs(record, "baseline kernel", stored.id, baseline.id)
    return StoredWorkbench(record, card, baseline, partial(_lacks, record))


def _lacks(record: RunRecord, gap: Gap) -> RunFolderError:
    if record.candidate(gap.candidate) is not None:
        _must_be_finished(record)
    return RunFolderError(
        f"The record {record.path} holds no {gap.what}.", f"The search goes on where the recorded one did not; {_OTHER}"
    )


def must_agree(record: RunRecord, result: Result) -> None:
    """Check that a full replay has the result of its record. Raises RunFolderError if not."""
    summary = record.summary
    if summary is not None and (summary.get("best"), summary.get("score")) != (result.best.id, result.score):
        raise RunFolderError(
            f"The record {record.path} came to {summary.get('best')} with {summary.get('score')}, "
            f"its replay to {result.best.id} with {result.score}.",
            _OTHER,
        )


def _must_be_finished(record: RunRecord) -> None:
    """Raises BudgetSpent, which ends a search with the best so far, if the recorded run is unfinished."""
    if not record.finished:
        ended = next((session.ended for session in reversed(record.sessions) if session.ended), "it was stopped")
        raise BudgetSpent(
            f"The record {record.path} ends here: {ended.rstrip('.')}.", "Resume that run, and replay it."
        )


def _differs(record: RunRecord, what: str, then: str, now: str) -> RunFolderError:
    return RunFolderError(f"The record {record.path} was made with another {what}: {then}, here {now}.", _OTHER)
