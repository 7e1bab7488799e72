"""What a server's calls spent and found, in a folder, so that budgets and the best kernels outlast the server.

    ledger.jsonl          one line when a call begins, when it has held the device, and when it ends
    verdicts/NUMBER.json  the whole result of a call, with the text of the kernel
    kernels/ID.json       each kernel, written before it is judged

Lines are only added, under a lock, so several servers may share a folder; each reads what the others wrote. No link in
the folder is followed: an agent that may write there, and nowhere else, gains no other file by it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cudamaster.core.errors import BudgetSpent, CudaMasterError, RunFolderError, UsageError, unwritable
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import Candidate, Hold
from cudamaster.core.writing import read_in, write_in

_FORMAT = 1
_DISQUALIFIES = ("wrong", "fault", "rejected")  # a busy machine may cause the others


@dataclass(frozen=True)
class Limits:
    """The most that all calls together may spend; None for no limit. A call that has begun is finished.

    An evaluation is one kernel that is built and run, so a comparison has two. Minutes are those that calls took.
    """

    evaluations: int | None = None
    minutes: float | None = None
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class Spent:
    """What all calls together spent, also those of earlier servers."""

    evaluations: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True)
class Found:
    """What a call found of one kernel. Scores of the same `task`, `precision`, `card` (a hash) and `where` compare.

    `where` says what gave the times: the GPU, or the model of one.
    """

    task: str
    precision: str
    card: str
    where: str
    kernel: str
    status: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    change: str | None = None


@dataclass(frozen=True)
class Best:
    """The best kernel of a task: its lowest score, and the number of the call that gave it."""

    found: Found
    call: int
    measured: int


@dataclass
class _State:
    """What the lines say that were read so far."""

    place: int = 0
    spent: Spent = field(default_factory=Spent)
    calls: int = 0
    found: list[tuple[int, Found]] = field(default_factory=list)


class Ledger:
    """The record of a folder. Its methods may be called from any thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        """Makes the folder if it is missing. Raises RunFolderError for one of another kind, UsageError or DeviceError
        for one that cannot be written."""
        self.folder = folder.resolve()
        self.limits = limits
        self._file = folder / "ledger.jsonl"
        self._state = _State()
        self._running: dict[int, float] = {}
        self._lock = threading.Lock()
        try:
            if folder.is_dir() and not self._file.exists() and any(folder.iterdir()):
                raise RunFolderError(f"{folder} is no record of a server.", "Name another folder with --record.")
            for part in (folder, folder / "verdicts", folder / "kernels"):
                part.mkdir(parents=True, exist_ok=True)
            with self._held() as file:
                if not self._file.stat().st_size:
                    self._add(file, {"format": _FORMAT})
        except OSError as error:
            raise unwritable(folder, error, "Name another folder with --record.") from error

    @property
    def spent(self) -> Spent:
        """What was spent until now, calls that are under way included."""
        with self._held():
            return self._spent()

    @property
    def left(self) -> dict[str, float]:
        """What may still be spent, of what is limited."""
        return self._left(self.spent)

    def begin(self, tool: str, task: str, evaluations: int) -> int:
        """The number of a call that begins. Raises BudgetSpent when nothing more may begin."""
        with self._held() as file:
            spent = self._spent()
            for option, limit, used, unit in (
                ("--max-evaluations", self.limits.evaluations, spent.evaluations, "evaluations"),
                ("--max-minutes", self.limits.minutes, spent.seconds / 60, "minutes"),
                ("--max-gpu-seconds", self.limits.gpu_seconds, spent.gpu_seconds, "GPU seconds"),
            ):
                # Written so that a sum that is NaN stops it.
                if limit is not None and not used < limit:
                    raise BudgetSpent(
                        f"The budget of {limit:g} {unit} is spent: {used:.4g}.",
                        "Nothing more is measured: report the best so far (best_so_far). Whoever started the server "
                        f"can start it again with a larger {option}.",
                    )
            left = self._left(spent).get("evaluations")
            if left is not None and evaluations > left:
                raise BudgetSpent(
                    f"This takes {evaluations} evaluations, and {left:g} is left.", "Ask for what takes one."
                )
            number = self._state.calls + 1
            self._add(file, {"began": number, "tool": tool, "task": task, "evaluations": evaluations, "at": _now()})
            self._running[number] = time.monotonic()
            return number

    def held(self, hold: Hold) -> None:
        """Count a time in which the device was held."""
        with self._held() as file:
            self._add(file, {"held": hold.seconds, "unit": hold.unit, "alone": hold.alone})

    def keep(self, candidate: Candidate) -> None:
        """Keep a kernel."""
        name = f"kernels/{candidate.id}.json"
        with self._lock:
            if not os.path.lexists(self.folder / name):
                self._write(name, to_json(candidate))

    def kernel(self, identifier: str) -> Candidate:
        """A kernel that was kept. Raises UsageError for an unknown one."""
        fix = "Take the `kernel` of an earlier result."
        text = self._there(f"kernels/{identifier}.json") if identifier.isalnum() else None
        if text is None:
            raise UsageError(f"No kernel {identifier[:40]!r} was kept.", fix)
        try:
            return from_json(Candidate, json.loads(text))
        except (ValueError, RecursionError, RecordError) as error:
            raise RunFolderError(f"The record of kernel {identifier[:40]} is damaged: {error}.", fix) from error

    def end(
        self,
        number: int,
        outcome: str,
        result: Mapping[str, Any] | None = None,
        found: Sequence[Found] = (),
        *,
        given_back: int = 0,
    ) -> None:
        """Keep what a call found, the whole result first. `given_back` are evaluations that came to nothing."""
        seconds = time.monotonic() - self._running.pop(number)
        if result is not None:
            with self._lock:
                self._write(f"verdicts/{number}.json", {"call": number, "at": _now(), **result})
        line = {"ended": number, "outcome": outcome, "seconds": round(seconds, 3), "given_back": given_back}
        with self._held() as file:
            self._add(file, {**line, "found": [to_json(one) for one in found]})

    def verdict(self, number: str) -> str:
        """The whole result of a call, as JSON. Raises UsageError if there is none."""
        text = self._there(f"verdicts/{number}.json") if number.isascii() and number.isdecimal() else None
        if text is None:
            raise UsageError(f"There is no verdict {number[:40]!r}.", "Take the link of an earlier result.")
        return text.decode()

    def best(self, where: str | None = None, **wanted: str) -> list[Best]:
        """The best kernel of each task, precision, card and place, of those that are `wanted`, by fields of Found.

        It is better than the baseline. A kernel that was ever found wrong or faulty is none, and of several scores of
        one kernel the lowest counts: measuring again and again until it looks good gains nothing.
        """
        with self._held():
            every = [*self._state.found]
        bad = {found.kernel for _, found in every if found.status in _DISQUALIFIES}
        lowest: dict[tuple[str, str], Best] = {}
        for call, found in every:
            if found.score is None or found.kernel in bad or where not in (None, found.where):
                continue
            if any(getattr(found, name) != value for name, value in wanted.items()):
                continue
            key = (found.kernel, f"{found.card} {found.where}")
            known = lowest.get(key)
            least = known if known is not None and (known.found.score or 0) <= found.score else Best(found, call, 0)
            lowest[key] = replace(least, measured=(known.measured if known else 0) + 1)
        top: dict[tuple[str, ...], Best] = {}
        for one in lowest.values():
            of = (one.found.task, one.found.precision, one.found.card, one.found.where)
            score = one.found.score or 0.0
            if score > 1 and (of not in top or score > (top[of].found.score or 0.0)):
                top[of] = one
        return list(top.values())

    def _write(self, name: str, value: object) -> None:
        write_in(self.folder, name, json.dumps(value, indent=1))

    def _there(self, name: str) -> bytes | None:
        """What a file of the record holds; None if there is none."""
        try:
            return read_in(self.folder, name)
        except OSError:
            return None

    def _spent(self) -> Spent:
        now = time.monotonic()
        running = sum(now - began for began in self._running.values())
        return replace(self._state.spent, seconds=self._state.spent.seconds + running)

    def _left(self, spent: Spent) -> dict[str, float]:
        most = {
            "evaluations": (self.limits.evaluations, spent.evaluations),
            "minutes": (self.limits.minutes, spent.seconds / 60),
            "gpu_seconds": (self.limits.gpu_seconds, spent.gpu_seconds),
        }
        return {name: round(max(0.0, limit - used), 2) for name, (limit, used) in most.items() if limit is not None}

    @contextmanager
    def _held(self) -> Iterator[int]:
        """The file, locked, after what others added was read."""
        with self._lock:
            file = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._read(file)
                yield file
            finally:
                os.close(file)

    def _read(self, file: int) -> None:
        size, text = os.fstat(file).st_size, b""
        while self._state.place + len(text) < size:
            text += os.pread(file, size, self._state.place + len(text))
        for line in text.splitlines():
            self._take(line)
        self._state.place += len(text)

    def _take(self, line: bytes) -> None:
        """Count what a line says. One that is cut, since its writer was killed, says nothing."""
        try:
            said = json.loads(line)
            state, spent = self._state, self._state.spent
            if "began" in said:
                state.calls = max(state.calls, said["began"])
                state.spent = replace(spent, evaluations=spent.evaluations + said["evaluations"])
            elif "held" in said:
                state.spent = replace(spent, gpu_seconds=spent.gpu_seconds + said["held"])
            elif "ended" in said:
                state.found += [(said["ended"], from_json(Found, one)) for one in said["found"]]
                evaluations = spent.evaluations - said["given_back"]
                state.spent = replace(spent, seconds=spent.seconds + said["seconds"], evaluations=evaluations)
            elif said.get("format") != _FORMAT:
                raise RunFolderError(f"{self._file} is of another version.", "Name another folder with --record.")
        except CudaMasterError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            return

    def _add(self, file: int, line: Mapping[str, Any]) -> None:
        size = os.fstat(file).st_size
        cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, (b"\n" if cut else b"") + json.dumps(line).encode() + b"\n")
        os.fsync(file)
        self._read(file)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
