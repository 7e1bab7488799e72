"""Replies of a model, each on the disk before it is used: a process that was killed asks nothing again.

The file has one JSON object a line: `key` (the hash of model and request), `model`, `path` (of the source that was
asked about), `at` and `reply`. A line without its end was being written when the process was killed, and is dropped.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

from cudamaster.core.errors import BudgetSpent, RunFolderError
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import content_hash
from cudamaster.models.protocol import AnsweredBy, Model, Reply, Request
from cudamaster.runs.budget import Budget, Limits, Spent, cost
from cudamaster.runs.record import request_hash
from cudamaster.runs.recording import kept


class Replies:
    """The file of replies, under a budget; threads may share it."""

    def __init__(self, path: Path, limits: Limits, most_calls: int | None = None) -> None:
        """`most_calls` counts the calls of all sessions, as `limits` count what they cost. Raises RunFolderError."""
        self._path = path
        self._most_calls = most_calls
        self._lock = Lock()
        self._replies = dict(_read(path))
        before = sum((cost(reply.usage) for reply in self._replies.values()), Spent())
        self.budget = Budget(limits, before)
        self._begun = len(self._replies)
        self.asked = 0

    def model(self, inner: Model, identity: str) -> Model:
        """The same model, which answers from the file if it can. `identity` is its name with its settings."""
        return AnsweredBy(inner.name, partial(self._ask, inner, identity))

    def has(self, identity: str, request: Request) -> bool:
        """Whether the file answers a request."""
        return _key(identity, request) in self._replies

    def _ask(self, inner: Model, identity: str, request: Request) -> Reply:
        """Raises BudgetSpent when nothing more may be asked, and what the model raises."""
        key = _key(identity, request)
        if (known := self._replies.get(key)) is not None:
            return known
        self._begin()
        try:
            reply = kept(inner.ask(request))
        except BaseException:
            with self._lock:
                self._begun -= 1
            raise
        line = {
            "key": key,
            "model": inner.name,
            "path": request.facts.get("path", ""),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "reply": to_json(reply),
        }
        with self._lock:
            _append(self._path, (json.dumps(line) + "\n").encode())
            self._replies[key] = reply
            self.asked += 1
        self.budget.asked(reply.usage)
        return reply

    def _begin(self) -> None:
        try:
            self.budget.check()
        except BudgetSpent as spent:
            fix = spent.fix.replace("Continue with --resume,", "Give the same command again with").replace(
                "It goes on with --resume and a larger", "The same command goes on with a larger"
            )
            raise BudgetSpent(spent.reason, fix) from None
        with self._lock:
            if self._most_calls is not None and self._begun >= self._most_calls:
                raise BudgetSpent(
                    f"The budget of {self._most_calls:,} calls is spent: {self._begun:,}.",
                    "The same command goes on with a larger --max-calls.",
                )
            self._begun += 1


def _key(identity: str, request: Request) -> str:
    return content_hash(identity, request_hash(request))


def _append(path: Path, line: bytes) -> None:
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    before = os.fstat(place).st_size
    try:
        while line:
            line = line[os.write(place, line) :]
        os.fsync(place)
    except OSError:
        os.ftruncate(place, before)  # a full disk; half a line would spoil the next one
        raise
    finally:
        os.close(place)


def _read(path: Path) -> list[tuple[str, Reply]]:
    """What the file holds; a torn last line is cut off. Raises RunFolderError for any other damage."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole = raw.rfind(b"\n") + 1
    if whole < len(raw):
        os.truncate(path, whole)
    found = []
    for number, line in enumerate(raw[:whole].splitlines(), start=1):
        try:
            data = json.loads(line)
            found.append((str(data["key"]), from_json(Reply, data["reply"])))
        except (ValueError, KeyError, TypeError, RecordError) as error:
            raise RunFolderError(
                f"{path}:{number} is damaged: {error}.",
                "Take the line out: that one is asked again. Or restore the file.",
            ) from error
    return found
