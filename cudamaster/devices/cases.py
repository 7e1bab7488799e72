"""The progress of this process's judges, read from the reports that they write while they run.

A slow kernel takes minutes on the CPU device, so progress shows how many of how many cases each judge has done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cudamaster.devices import parts, work

EVERY_S = 10.0  # how often a log gets a line
_BEGUN = b'{"event":"case"'  # what a line of a report that opens a case begins with (mskb/case_run.h)
_ENDED = b'{"event":"end"'
_SHOWN_S = 1.0


@dataclass(eq=False)
class _Judge:
    """A judge at work: what it does, the report that it writes, and how much of that was read."""

    doing: str
    report: Path
    total: int
    wanted: Callable[[], bool]
    of: tuple[threading.Event, ...] = field(default_factory=work.whose)
    started: bool = False
    begun: int = 0
    ended: bool = False
    place: int = 0
    rest: bytes = b""

    def __str__(self) -> str:
        if not self.started:
            return f"{self.doing}, waiting for the device"
        done = self.begun if self.ended else max(0, self.begun - 1)
        return f"{self.doing}, {min(done, self.total)} of {self.total} cases done"

    def read_on(self) -> None:
        """Count what was written since."""
        with suppress(OSError), self.report.open("rb") as file:  # it does not exist yet, or no longer
            self.started = True
            file.seek(self.place)
            text = file.read()
            self.place += len(text)
            *lines, self.rest = (self.rest + text).split(b"\n")
            self.begun += sum(line.startswith(_BEGUN) for line in lines)
            self.ended = self.ended or any(line.startswith(_ENDED) for line in lines)


@dataclass
class _Board:
    judges: list[_Judge] = field(default_factory=list)
    shown: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_board = _Board()


@contextmanager
def judging(doing: str, report: Path, total: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Inside the block a judge writes `report`, on that many cases. It is not shown until it is `wanted`."""
    judge = _Judge(doing, report, total, wanted)
    with _board.lock:
        _board.judges.append(judge)
    try:
        yield
    finally:
        with _board.lock:
            _board.judges.remove(judge)


def progress(of: tuple[threading.Event, ...] = ()) -> str | None:
    """What the judges of this process do, and how far they are; None if none is running.

    Only judges that work for `of` count (work.whose), by default all.
    """
    with _board.lock:
        at_work = [judge for judge in _board.judges if judge.of[: len(of)] == of and judge.wanted()]
        for judge in at_work:
            judge.read_on()
        return "; ".join(map(str, at_work)) or None


def shown() -> None:
    """Note that a spinner shows `progress` and will do so again in a moment, so no lines are needed."""
    _board.shown = time.monotonic()


@contextmanager
def reporting(what: str, report: Callable[[str], None], every_s: float | None = None) -> Iterator[None]:
    """Inside the block `report` gets a line every `every_s` seconds (EVERY_S) on how far `what` is.

    While a first build runs, the line is about that, unless builds have a report of their own. Builds and judges of
    what the block's thread does not work for are left out.
    """
    began, over, of = time.monotonic(), threading.Event(), work.whose()

    def now_and_then() -> None:
        while not over.wait(EVERY_S if every_s is None else every_s):
            building = parts.progress(of)
            if building is not None and parts.report is None:
                report(f"{what}: {building}")
            elif building is None and time.monotonic() > _board.shown + _SHOWN_S:
                done = progress(of)
                report(f"{what}{f': {done}' if done else ''}, {time.monotonic() - began:.0f} s so far")

    reporter = threading.Thread(target=now_and_then, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join(_SHOWN_S)
