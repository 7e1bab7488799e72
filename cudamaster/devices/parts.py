"""What is built once and kept in the cache, and how far that is: the first build of all takes a while.

Whoever needs such parts hands them over here. Those that are missing are built side by side, and whoever watches is
told which, how many of how many are done, and how long it has taken so far.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

FIRST_S, EVERY_S = 2.0, 10.0  # when a log gets its first line of a build, and how often one after that
_MOST_AT_ONCE = 8  # a compiler takes up to 400 MB


@dataclass(frozen=True)
class Part:
    """One thing that is built once, by its name in a sentence. `make` does nothing where it is there."""

    name: str
    there: Callable[[], bool]
    make: Callable[[], object]


@dataclass(frozen=True)
class Progress:
    """How far this process's builds of parts are: `now` are the names of those that are at work."""

    done: int
    total: int
    now: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        now = f": {', '.join(self.now)}" if self.now else ""
        return (
            f"first build, {self.done} of {self.total} parts done, {self.seconds:.0f} s so far{now} "
            "(kept in the cache: later runs need none)"
        )


@dataclass
class _Board:
    """The builds of this process, which are told of as one: a suite's tasks build at the same time."""

    builds: int = 0
    done: int = 0
    total: int = 0
    began: float = 0.0
    next_line: float = 0.0
    told: bool = False
    shown: float = 0.0
    now: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def progress(self) -> Progress | None:
        with self.lock:
            if not self.builds:
                return None
            return Progress(self.done, self.total, tuple(self.now), time.monotonic() - self.began)


_board = _Board()
# Told of a build that goes on, now and then, while nobody shows `progress` all the time.
tell: Callable[[str], None] | None = None


def progress() -> Progress | None:
    """How far the builds of this process are; None where nothing is being built."""
    return _board.progress()


def shown() -> None:
    """Note that somebody shows `progress`, and will again in a moment: no lines are needed."""
    _board.shown = time.monotonic()


def build(parts: Sequence[Part]) -> None:
    """Build those of the parts that are missing, side by side, and the first of them first: the longest, that is.

    Raises what making one raises, once all that was begun has ended.
    """
    from concurrent.futures import FIRST_COMPLETED, wait  # a command that builds nothing starts sooner

    from cudamaster.devices.process import threads

    missing = [part for part in parts if not part.there()]
    if not missing:
        return
    with _on_the_board(len(missing)), threads(_at_once()) as pool:
        waited_for = {pool.submit(_make, part) for part in missing}
        left = waited_for
        while left:
            _, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
            _tell_now_and_then()
        for made in waited_for:
            made.result()


def _at_once() -> int:
    """One more than there are cores: now and then one waits for what another builds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 1, _MOST_AT_ONCE)


def _make(part: Part) -> None:
    with _board.lock:
        _board.now.append(part.name)
    try:
        part.make()
    finally:
        with _board.lock:
            _board.now.remove(part.name)
            _board.done += 1


@contextmanager
def _on_the_board(parts: int) -> Iterator[None]:
    with _board.lock:
        if not _board.builds:
            _board.began = time.monotonic()
            _board.next_line = _board.began + FIRST_S
            _board.done = _board.total = 0
            _board.told = False
        _board.builds += 1
        _board.total += parts
    try:
        yield
    finally:
        with _board.lock:
            _board.builds -= 1
            last = f"first build, all {_board.total} parts done in {time.monotonic() - _board.began:.0f} s"
            ended = _board.told and not _board.builds and _board.done == _board.total
        if ended and tell is not None:
            tell(last)


def _tell_now_and_then() -> None:
    with _board.lock:
        now = time.monotonic()
        if tell is None or now < max(_board.next_line, _board.shown + 1.0):
            return
        _board.next_line = now + EVERY_S
        _board.told = True
    if (told := progress()) is not None:
        tell(str(told))
