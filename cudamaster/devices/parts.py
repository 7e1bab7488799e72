"""Builds what is needed once and kept in the cache, and reports progress: the first build takes a while.

Callers pass the parts that they need. Missing ones are built side by side. `progress` says which, how many of how
many are done, and how long it has taken so far.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cudamaster.devices import work

FIRST_S, EVERY_S = 2.0, 10.0  # when a log gets its first line of a build, and how often one after that
_LOOKED_S = 0.1
_ELF = struct.Struct("<40sQ10xHH2x")  # the header of a 64-bit file: where its table of sections is, and how long
_MOST_AT_ONCE = 8  # a compiler takes up to 400 MB


@dataclass(frozen=True)
class Part:
    """One thing that is built once, with its name in a sentence. `make` does nothing if it exists."""

    name: str
    there: Callable[[], bool]
    make: Callable[[], object]


@dataclass(frozen=True)
class BuildProgress:
    """How far this process's builds of parts are.

    `now` names the parts being built here, `elsewhere` those that another run builds and we wait for. These may not be
    among our parts, so there is no `total` for them.
    """

    done: int
    total: int
    now: tuple[str, ...]
    elsewhere: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        waits = f"waiting for another run, which builds {', '.join(self.elsewhere)}" if self.elsewhere else ""
        if not self.total:
            return f"{waits or 'building'}, {self.seconds:.0f} s so far"
        at_work = "; ".join(part for part in (", ".join(self.now), waits) if part)
        return (
            f"first build, {self.done} of {self.total} parts done, {self.seconds:.0f} s so far"
            f"{f': {at_work}' if at_work else ''} (kept in the cache: later runs need none)"
        )


@dataclass
class _Board:
    """The builds of this process, reported as one because the tasks of a suite build at the same time.

    Parts of the same name are one part, which several tasks may need.
    """

    builds: list[tuple[threading.Event, ...]] = field(default_factory=list)  # whom each works for
    wanted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    now: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    began: float = 0.0
    next_line: float = 0.0
    reported: bool = False
    shown: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def progress(self, of: tuple[threading.Event, ...]) -> BuildProgress | None:
        with self.lock:
            if not any(each[: len(of)] == of for each in self.builds):
                return None
            elsewhere = dict.fromkeys(self.elsewhere)
            now = [name for name in dict.fromkeys(self.now) if name not in elsewhere]
            seconds = time.monotonic() - self.began
            return BuildProgress(len(self.done), len(self.wanted), tuple(now), tuple(elsewhere), seconds)


_board = _Board()
_at_work = threading.local()  # `part` is the name of the part that a thread makes
_locks: dict[Path, threading.Lock] = defaultdict(threading.Lock)
# Gets a line about a running build now and then, while no spinner shows `progress`.
report: Callable[[str], None] | None = None


def progress(of: tuple[threading.Event, ...] = ()) -> BuildProgress | None:
    """How far the builds of this process are; None where nothing is built for `of` (work.whose), if it is given."""
    return _board.progress(of)


def shown() -> None:
    """Note that a spinner shows `progress` and will do so again in a moment, so no lines are needed."""
    _board.shown = time.monotonic()


def build(parts: Sequence[Part]) -> None:
    """Build the missing parts side by side, beginning with the first, which takes longest.

    After an error no further part begins, and the error is raised when the others have ended.
    """
    from concurrent.futures import FIRST_COMPLETED, wait  # a command that builds nothing starts sooner

    from cudamaster.devices.process import threads

    missing = [part for part in parts if not part.there()]
    if not missing:
        return
    with _on_the_board(part.name for part in missing), threads(_at_once()) as pool:
        all_of_them = [pool.submit(_make, part) for part in missing]
        left = set(all_of_them)
        while left:
            ended, left = wait(left, timeout=_LOOKED_S, return_when=FIRST_COMPLETED)
            if any(one.exception() is not None for one in ended if not one.cancelled()):
                for one in left:
                    one.cancel()
            _report_now_and_then()
        for one in all_of_them:
            if not one.cancelled():
                one.result()


@contextmanager
def alone(lock: Path, what: str) -> Iterator[None]:
    """Holds a lock file of the cache: what takes seconds to build is built once, and others wait for it.

    A process that waits for another one reports it, by the name of the part that it makes or else by `what`. The system
    frees the locks of a process that dies.
    """
    with _one_of_us(_locks[lock]), lock.open("w") as file:
        if not _taken(file):
            with _waiting_for(getattr(_at_work, "part", None) or what):
                while not _taken(file):
                    time.sleep(_LOOKED_S)
                    work.check()
                    _report_now_and_then()
        yield


def whole(built: Path) -> bool:
    """Whether an object file or executable is as long as its header says.

    A power cut, a full disk or a person may leave only the start of one, or nothing. A linker may take that for a file
    without symbols, and kernels would be blamed for it.
    """
    try:
        with built.open("rb") as file:
            header = file.read(_ELF.size)
            if len(header) < _ELF.size or not header.startswith(b"\x7fELF"):
                return False
            _, sections, size, count = _ELF.unpack(header)
            return bool(sections + size * count <= file.seek(0, os.SEEK_END))
    except OSError:
        return False


@contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """A folder beside `target` to make it in, for the holder of its lock. Removes what a killed process left there."""
    prefix = f"{target.name}-making-"
    for left in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as folder:
        yield Path(folder)


@contextmanager
def _one_of_us(lock: threading.Lock) -> Iterator[None]:
    """Holds a lock against this process's other threads."""
    while not lock.acquire(timeout=_LOOKED_S):
        work.check()
    try:
        yield
    finally:
        lock.release()


def _taken(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _waiting_for(what: str) -> Iterator[None]:
    with _on_the_board(()):
        with _board.lock:
            _board.elsewhere.append(what)
        try:
            yield
        finally:
            with _board.lock:
                _board.elsewhere.remove(what)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _at_once() -> int:
    """One more than the number of cores, because now and then a build waits for another."""
    return min(cores() + 1, _MOST_AT_ONCE)


def _make(part: Part) -> None:
    _at_work.part = part.name
    with _board.lock:
        _board.now.append(part.name)
    try:
        part.make()
        with _board.lock:
            _board.done.add(part.name)
    finally:
        _at_work.part = None
        with _board.lock:
            _board.now.remove(part.name)


@contextmanager
def _on_the_board(parts: Iterable[str]) -> Iterator[None]:
    with _board.lock:
        if not _board.builds:
            _board.began = time.monotonic()
            _board.next_line = _board.began + FIRST_S
            _board.reported = False
            _board.wanted.clear()
            _board.done.clear()
        _board.builds.append(work.whose())
        _board.wanted.update(parts)
    try:
        yield
    finally:
        with _board.lock:
            _board.builds.remove(work.whose())
            ended = _board.reported and not _board.builds and _board.done == _board.wanted
            what = (
                f"first build, all {len(_board.wanted)} parts done in"
                if _board.wanted
                else "the other run is done after"
            )
            last = f"{what} {time.monotonic() - _board.began:.0f} s"
        if ended and report is not None:
            report(last)


def _report_now_and_then() -> None:
    with _board.lock:
        now = time.monotonic()
        if report is None or now < max(_board.next_line, _board.shown + 1.0):
            return
        _board.next_line = now + EVERY_S
        _board.reported = True
    if (so_far := progress()) is not None:
        report(str(so_far))
