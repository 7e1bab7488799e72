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
class _Report:
    """What a judge writes, how much of that was read, and how many cases were done before it began."""

    path: Path
    before: int = 0
    started: bool = False
    begun: int = 0
    ended: bool = False
    place: int = 0
    rest: bytes = b""

    @property
    def done(self) -> int:
        return self.before + (self.begun if self.ended else max(0, self.begun - 1))

    def read_on(self) -> None:
        """Count what was written since."""
        with suppress(OSError), self.path.open("rb") as file:  # it does not exist yet, or no longer
            self.started = True
            file.seek(self.place)
            text = file.read()
            self.place += len(text)
            *lines, self.rest = (self.rest + text).split(b"\n")
            self.begun += sum(line.startswith(_BEGUN) for line in lines)
            self.ended = self.ended or any(line.startswith(_ENDED) for line in lines)


@dataclass(eq=False)
class Judges:
    """What is at work on some cases: one judge, or one for each share of them."""

    doing: str
    total: int
    wanted: Callable[[], bool] = lambda: True
    of: tuple[threading.Event, ...] = field(default_factory=work.whose)
    reports: dict[int, _Report] = field(default_factory=dict)

    def __str__(self) -> str:
        if not any(each.started or each.before for each in self.reports.values()):
            return f"{self.doing}, waiting for the device"
        done = sum(each.done for each in self.reports.values())
        return f"{self.doing}, {min(done, self.total)} of {self.total} cases done"

    def read(self, share: int, report: Path, before: int = 0) -> None:
        """From now on a share's judge writes `report`; so many of its cases were done `before`."""
        with _board.lock:
            self.reports[share] = _Report(report, before)


@dataclass
class _Board:
    judges: list[Judges] = field(default_factory=list)
    shown: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_board = _Board()


@contextmanager
def judging(doing: str, report: Path, total: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Inside the block a judge writes `report`, on that many cases. It is not shown until it is `wanted`."""
    judge = Judges(doing, total, wanted)
    judge.read(0, report)
    with at_work(judge):
        yield


@contextmanager
def at_work(judges: Judges) -> Iterator[Judges]:
    """Inside the block they count as running."""
    with _board.lock:
        _board.judges.append(judges)
    try:
        yield judges
    finally:
        with _board.lock:
            _board.judges.remove(judges)


def progress(of: tuple[threading.Event, ...] = ()) -> str | None:
    """What the judges of this process do, and how far they are; None if none is running.

    Only judges that work for `of` count (work.whose), by default all.
    """
    with _board.lock:
        running = [judges for judges in _board.judges if judges.of[: len(of)] == of and judges.wanted()]
        for judges in running:
            for report in judges.reports.values():
                report.read_on()
        return "; ".join(map(str, running)) or None


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
