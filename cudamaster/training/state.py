"""The folder of a training run: what it was started with, what it did, and where it goes on.

    manifest.json        stage, settings, hashes of the data, what measures, why it ended; the versions of the program
                         and of its libraries, and those of each session
    lock                 held by the one process that trains here
    steps.jsonl          a line for each step
    samples.jsonl        a line for each sample, with its reward
    evaluations.jsonl    a line for each task and evaluation of the model
    canaries.jsonl       a line for each task and check of the canaries
    leaps.jsonl          what was found at leaps of the reward (training/watching.py)
    verdicts.jsonl       every verdict, the moment it is there (training/verdicts.py)
    checkpoints/         weights, optimizer and random numbers every few steps
    model/               the result, whole

Lines are appended. A run that goes on from a checkpoint moves the lines of later steps to `abandoned.jsonl`, so that
the other files say what the weights have seen. Verdicts stay: the steps are done again, and no kernel is judged twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudamaster.core.errors import BudgetSpent, RunFolderError, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.version import program
from cudamaster.core.writing import write_text
from cudamaster.training import libraries
from cudamaster.training.settings import Budget, Stage

FORMAT = 1
STEPS, SAMPLES, EVALUATIONS = "steps.jsonl", "samples.jsonl", "evaluations.jsonl"
LEAPS, CANARIES = "leaps.jsonl", "canaries.jsonl"
OF_STEPS = (STEPS, SAMPLES, EVALUATIONS, CANARIES)
_MANIFEST, _ABANDONED, _COMPLETE = "manifest.json", "abandoned.jsonl", "complete"
_PIECE_BYTES = 1 << 20


class TrainingFolder:
    """An open folder of a training run, locked against other processes until it is closed."""

    def __init__(self, path: Path, manifest: dict[str, Any], lock: int, versions: Mapping[str, str]) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._began = time.monotonic()
        self._before_s: float = sum(session["seconds"] for session in manifest["sessions"])
        manifest["sessions"].append({"started": _now(), "seconds": 0.0, "versions": versions})

    @property
    def spent_s(self) -> float:
        """Seconds of all sessions."""
        return self._before_s + time.monotonic() - self._began

    @property
    def changed_versions(self) -> tuple[str, ...]:
        """What is of another version than in the session before: "trl 1.16.0 -> 1.17.0"."""
        sessions = self.manifest["sessions"]
        # The first sessions of older folders have no versions.
        before = sessions[-2].get("versions") if len(sessions) > 1 else None
        if before is None:
            return ()
        now = sessions[-1]["versions"]
        pairs = [(name, before.get(name, "none"), now.get(name, "none")) for name in sorted({*before, *now})]
        return tuple(f"{name} {one} -> {other}" for name, one, other in pairs if one != other)

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The folder of the result, which is there once the stage has ended."""
        return self.path / "model"

    @property
    def ended(self) -> str | None:
        """Why it ended; None if it has not."""
        return self.manifest["ended"]  # type: ignore[no-any-return]

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a line to one of the files. Raises UsageError or DeviceError where nothing can be written."""
        try:
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise unwritable(self.path / name, error, "Make room, and run the same command again.") from error

    def rows(self, name: str) -> list[Any]:
        """The lines of one of the files."""
        return rows(self.path / name)

    def save(self) -> None:
        """Write down how long this session has been at work."""
        self.manifest["sessions"][-1]["seconds"] = time.monotonic() - self._began
        _write(self.path / _MANIFEST, json.dumps(self.manifest, indent=1) + "\n")

    def end(self, why: str) -> None:
        """Write down that it has ended, and why."""
        self.manifest["ended"] = why
        self.save()

    def must_go_on(self, budget: Budget) -> None:
        """Raise BudgetSpent when the minutes are over."""
        if budget.minutes is not None and self.spent_s >= 60 * budget.minutes:
            raise BudgetSpent(f"{budget.minutes:g} minutes are spent.", "Raise budget.minutes to go on.")

    def checkpoint(self, folder: Path | None = None) -> tuple[Path | None, int]:
        """The last whole checkpoint and its number of updates, or None and 0. Those cut short by a kill are removed."""
        found: list[tuple[int, Path]] = []
        for path in (folder or self.checkpoints).glob("checkpoint-*"):
            if (path / _COMPLETE).exists():
                found.append((int(path.name.rpartition("-")[2]), path))
            else:
                shutil.rmtree(path)
        if not found:
            return None, 0
        number, last = max(found)
        return last, number

    @staticmethod
    def completed(checkpoint: Path) -> None:
        """Mark a checkpoint as whole: everything in it is written."""
        (checkpoint / _COMPLETE).touch()

    def go_back_to(self, step: int) -> None:
        """Keep of the lines those of steps up to this one; later ones are moved to abandoned.jsonl."""
        for name in OF_STEPS:
            all_rows = self.rows(name)
            kept = [row for row in all_rows if row["step"] <= step]
            if len(kept) == len(all_rows) and _is_whole(self.path / name):
                continue
            for row in all_rows:
                if row["step"] > step:
                    self.append(_ABANDONED, {"file": name, **row})
            _write(self.path / name, "".join(json.dumps(row) + "\n" for row in kept))

    def close(self) -> None:
        """Free the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextmanager
def opened(path: Path, settings: Stage, data: Sequence[Path], judge: Mapping[str, str]) -> Iterator[TrainingFolder]:
    """The folder of a run with these settings: a new one, or that of an earlier command, which goes on.

    `data` are the files that it learns from, and `judge` is what measures, in words. Raises RunFolderError where the
    folder is of other settings, data or judge, naming the difference; where another process works on it; and where
    there is something else.
    """
    known = {
        "format": FORMAT,
        "stage": settings.stage,
        "settings": settings.model_dump(mode="json"),
        "data": {file.name: digest(file) for file in data},
        "judge": dict(judge),
    }
    versions = {**program(), **libraries.versions()}
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = locked(path)
    except OSError as error:
        raise unwritable(path, error, "Choose another folder with --out.") from error
    try:
        if (path / _MANIFEST).exists():
            manifest = read_manifest(path)
            _must_be_same(path, manifest, known, settings.free)
            manifest |= {"settings": known["settings"], "versions": versions}
        elif others := [found.name for found in path.iterdir() if found.name != "lock"]:
            what = f"{path} holds {others[0]} and no training run."
            raise RunFolderError(what, "Choose another folder with --out.")
        else:
            manifest = {
                **known,
                "run": secrets.token_hex(8),
                "versions": versions,
                "started": _now(),
                "sessions": [],
                "ended": None,
            }
        folder = TrainingFolder(path, manifest, lock, versions)
    except BaseException:
        os.close(lock)
        raise
    try:
        folder.save()
        yield folder
    finally:
        folder.save()
        folder.close()


def read_manifest(path: Path) -> dict[str, Any]:
    """What a training run was started with. Raises RunFolderError for a folder that is none, or is damaged."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        fix = "Name one that `cudamaster train` made; it has a file manifest.json."
        raise RunFolderError(f"{path} is no folder of a training run.", fix) from None
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{path / _MANIFEST} cannot be read: {error}.", "Begin again in another folder."
        ) from error
    needed = {"format", "stage", "settings", "data", "judge", "run", "versions", "sessions", "ended"}
    if not isinstance(manifest, dict) or not needed <= set(manifest):
        raise RunFolderError(f"{path / _MANIFEST} is of no training run.", "Choose another folder.")
    if manifest["format"] != FORMAT:
        what = f"{path} has format {manifest['format']}, this version reads format {FORMAT}."
        raise RunFolderError(what, "Read it with the version that wrote it.")
    return manifest


def rows(path: Path) -> list[Any]:
    """The lines of a file; none if it is not there. A last line that was cut short by a kill is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    # Bytes: a text has more line ends, which may stand in a kernel's comment.
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            what = f"Line {number} of {path} is no JSON."
            raise RunFolderError(what, "Remove the line, or begin again in another folder.") from error
    return found


def digest(path: Path) -> str:
    """The first 16 hex digits of a file's SHA-256. Raises RunFolderError for one that is not there."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                found.update(piece)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}."
        raise RunFolderError(what, "Name a folder that `cudamaster export` wrote as data.") from error
    return found.hexdigest()[:16]


def differences(there: Any, here: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys in which two values of JSON differ, with dots between their parts, and both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            inner = f"{place}.{key}" if place else str(key)
            yield from differences(there.get(key), here.get(key), inner)
    elif there != here:
        yield place, there, here


def _must_be_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any], free: Sequence[str]) -> None:
    """Raise RunFolderError for a folder that was started with something else."""
    for part in ("stage", "settings", "data", "judge"):
        for place, before, now in differences(there[part], here[part]):
            if part == "settings" and any(place == key or place.startswith(f"{key}.") for key in free):
                continue
            name = place or part
            name = name if part == "settings" else f"{part} {name}" if place else part
            raise RunFolderError(
                f"{path} was started with another configuration: {name} is {_shown(before)} there and {_shown(now)} "
                "here.",
                "Give another folder with --out, or the configuration of before.",
            )


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(value)


def _is_whole(path: Path) -> bool:
    """Whether a file ends with a whole line."""
    try:
        return path.read_bytes()[-1:] in (b"", b"\n")
    except FileNotFoundError:
        return True


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise unwritable(path, error, "Make room, and run the same command again.") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
