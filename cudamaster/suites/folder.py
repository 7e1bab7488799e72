"""The folder of a suite: suite.json, and a run folder for each task and precision beside it.

    suite.json                   what runs, how far each task is, and how much of the time each device was measuring
    lock                         held by the one process that works on the suite
    <task>_<precision>/          a run folder (runs/folder.py), which can be shown, resumed and replayed by itself

Each run keeps what it spent in its own folder. suite.json keeps the wall time of the whole suite, in which runs
overlap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from cudamaster.core.errors import CudaMasterError, RunFolderError, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.speed import Interval
from cudamaster.core.values import LATER, GpuModel, Precision, mark
from cudamaster.runs.budget import Limits
from cudamaster.runs.folder import write_record
from cudamaster.runs.record import Settings, decoded, read_json, unusable

FORMAT = 1
_NAME = "suite.json"


class State(StrEnum):
    """How far a task of a suite is. The list is closed."""

    WAITING = "waiting"
    RUNNING = "running"  # or killed while it was
    STOPPED = "stopped"  # by a budget or an interruption, with the best so far
    FAILED = "failed"  # by an error, which is named
    DONE = "done"


@dataclass(frozen=True)
class Entry:
    """One task of a suite: how far it is, and its result as far as that is known.

    `unit` is the device that measures it. `score` is P of the best so far, 1 for the baseline. `seconds` are those in
    which a process worked on it. `error` is what made it fail, with the traceback if the bug is ours. `modelled` is the
    model behind a modelled P, and `interval` holds what a GPU would measure in nine of ten. `card` is the path of the
    card of a user's own task.
    """

    task: str
    precision: Precision
    state: State = State.WAITING
    unit: str | None = None
    score: float | None = None
    emulated: bool = False
    rounds: int = 0
    seconds: float = 0.0
    note: str | None = None
    error: str | None = None
    trace: str | None = None
    modelled: GpuModel | None = field(default=None, metadata=LATER)
    card: str = field(default="", metadata=LATER)
    interval: Interval | None = field(default=None, metadata=LATER)

    @property
    def mark(self) -> str:
        """As of a verdict: "modelled", "emulated" or empty."""
        return mark(emulated=self.emulated, modelled=self.modelled)

    @property
    def name(self) -> str:
        """Name of its run folder."""
        return f"{self.task}_{self.precision.value}"


@dataclass(frozen=True)
class UnitUse:
    """For how many seconds of a session the suite's processes held a device, and for how many it measured."""

    unit: str
    held_s: float
    measuring_s: float


@dataclass(frozen=True)
class SuiteSession:
    """One process's work on a suite: `seconds` of wall time until it last wrote to disk."""

    started: str
    limits: Limits
    jobs: int
    seconds: float = 0.0
    use: tuple[UnitUse, ...] = ()
    ended: str | None = None


@dataclass(frozen=True)
class Suite:
    """suite.json. `settings` are those of every run; a replay's record in them is the folder of all records."""

    format: int
    started: str
    versions: Mapping[str, str]
    settings: Settings
    entries: tuple[Entry, ...]
    sessions: tuple[SuiteSession, ...] = ()

    @property
    def use(self) -> tuple[UnitUse, ...]:
        """For how long each device was held in all sessions together."""
        total: dict[str, UnitUse] = {}
        for one in (one for session in self.sessions for one in session.use):
            before = total.get(one.unit, UnitUse(one.unit, 0.0, 0.0))
            total[one.unit] = UnitUse(one.unit, before.held_s + one.held_s, before.measuring_s + one.measuring_s)
        return tuple(total.values())


def fresh_path(parent: Path) -> Path:
    """A path under `parent` for a new suite, named after the time; nothing is created."""
    name = f"suite_{datetime.now():%Y%m%d-%H%M%S}"
    path, number = parent / name, 2
    try:
        while path.exists():
            path, number = parent / f"{name}-{number}", number + 1
    except OSError as error:  # nobody may look there
        raise unwritable(parent, error, "Choose another folder with --out.") from error
    return path


def read(path: Path) -> Suite:
    """What a suite's folder says; nothing is locked or changed. Raises RunFolderError."""
    if not (path / _NAME).is_file():
        what = "a single run" if (path / "run.json").is_file() else "no suite"
        raise RunFolderError(
            f"There is {what} in {path}.",
            "A suite's folder has a file suite.json; `cudamaster optimize --resume` carries on a single run.",
        )
    raw = read_json(path / _NAME)
    if isinstance(raw, dict) and raw.get("format") != FORMAT:
        raise RunFolderError(
            f"{path / _NAME} has format {raw.get('format')}, this version reads format {FORMAT}.",
            "Resume it with the version that wrote it, or start a fresh suite.",
        )
    return decoded(Suite, path / _NAME)


class SuiteFolder:
    """The open folder of a suite, locked against other processes until it is closed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: Path, suite: Suite) -> SuiteFolder:
        """Make the folder of a fresh suite.

        Raises RunFolderError where there is one, or a run of one of its tasks, and UsageError or DeviceError where
        nothing can be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_make(path, error) from error
        if (path / _NAME).exists():
            raise RunFolderError(
                f"{path} holds a suite already; a fresh one overwrites nothing.",
                f"Continue it with --resume {path}, or choose another folder.",
            )
        # A task's run folder is resumed with what it was started with: a run of before would pass for the suite's own.
        if runs := [entry.name for entry in suite.entries if (path / entry.name).exists()]:
            raise RunFolderError(
                f"{path} holds {', '.join(runs)} already; a fresh suite overwrites nothing and takes over no run.",
                "Choose another folder.",
            )
        try:
            folder = cls(path, locked(path))
        except OSError as error:
            raise _cannot_make(path, error) from error
        folder.save(suite)
        return folder

    @classmethod
    def open(cls, path: Path) -> SuiteFolder:
        """Open the folder of an earlier suite. Raises RunFolderError where another process works on it, or denied."""
        read(path)
        try:
            return cls(path, locked(path))
        except OSError as error:
            raise unusable(path / "lock", error) from error

    def save(self, suite: Suite) -> None:
        """Replace suite.json."""
        write_record(self.path / _NAME, suite)

    def close(self) -> None:
        """Free the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> SuiteFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cannot_make(path: Path, error: OSError) -> CudaMasterError:
    return unwritable(f"The suite's folder {path}", error, "Choose another one with --out or --record.")
