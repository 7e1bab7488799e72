"""The run folder: everything a run made, on disk the moment it exists. The only module that writes one.

    run.json                     what is run: task, settings, device, versions; there before anything else
    lock                         held by the one process that works on the run
    exchanges/0001_planner.json  request, reply and cost of each model call, in order; of a reply that is longer than
                                 LONGEST_REPLY (models/protocol.py) the head, length and digest
    candidates/<id>.cu           text of the region; the command is beside it in <id>.command
    builds/<id>.log              what compiler and linker said
    verdicts/<id>.json           status, checks and raw timings of a candidate
    confirmations/<id>.json      the same for a second judgement, after a first score that was too good to be trusted
    findings/<id>.json           what the profile filter kept for a new best
    sessions.json                who worked on it: for how long, under which budget, and when it held a device
    best.cu, best.json           the best so far; the baseline at first
    summary.json                 the result; exists only when the run is finished
    agent/, agent.log            the folder of an outside agent and what it printed, for the strategy `agent` alone;
                                 outside/ writes them

Each file is written under a temporary name, flushed to the disk and renamed. So a reader sees all of it or nothing, and
a kill leaves at most a hidden temporary file, which the next opening removes. A folder appears complete, with its
run.json.

Resuming is replaying: strategies do the same given the same replies and verdicts, so they run again from the start
while `recording` returns what is stored here. Use `record` to read a folder without changing it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from cudamaster.core.errors import CudaMasterError, RunFolderError, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.records import to_json
from cudamaster.core.values import Candidate, Findings, Precision, Verdict
from cudamaster.models.protocol import Reply, Request
from cudamaster.runs.budget import Session
from cudamaster.runs.record import (
    FOLDERS,
    Exchange,
    Manifest,
    RunRecord,
    Sessions,
    Settings,
    hash_of,
    read_manifest,
    request_hash,
    unusable,
)

_SUFFIXES = (".json", ".cu", ".command")  # a build log counts for nothing


def fresh_path(parent: Path, task: str, precision: Precision) -> Path:
    """A path under `parent` for a new run, named after task, precision and time; nothing is created."""
    name = f"{task}_{precision.value}_{datetime.now():%Y%m%d-%H%M%S}"
    path = parent / name
    number = 2
    try:
        while path.exists():
            path = parent / f"{name}-{number}"
            number += 1
    except OSError as error:  # no permission to look there
        raise unwritable(parent, error, "Choose another folder with --out.") from error
    return path


class RunFolder(RunRecord):
    """An open run folder, locked against other processes until it is closed."""

    def __init__(self, path: Path, manifest: Manifest, lock: int) -> None:
        super().__init__(path, manifest)
        self._lock = lock
        self._own: dict[Path, str] | None = None  # digests of its files, once it is guarded

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunFolder:
        """Make the folder of a fresh run.

        Raises RunFolderError if the path exists and is not an empty folder, and UsageError or DeviceError if nothing
        can be written there.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            staged = path.with_name(f".{path.name}.new-{os.getpid()}")
            staged.mkdir()
            lock = locked(staged)
        except OSError as error:
            raise _cannot_make(path, error) from error
        try:
            for name in FOLDERS:
                (staged / name).mkdir()
            write_record(staged / "run.json", manifest)
            staged.rename(path)
            _flush_folder(path.parent)
        except OSError as error:
            os.close(lock)
            shutil.rmtree(staged, ignore_errors=True)
            raise _cannot_make(path, error) from error
        except BaseException:
            os.close(lock)
            raise
        return cls(path, manifest, lock)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of an earlier run, remove what a kill left half-written, and check every file.

        Raises RunFolderError if there is no run, if another process works on it, or if a file is damaged, which it
        names.
        """
        manifest = read_manifest(path)
        try:
            lock = locked(path)
        except OSError as error:
            raise unusable(path / "lock", error) from error
        folder = cls(path, manifest, lock)
        try:
            folder._remove_half_written()
            folder.check()
            for name in FOLDERS:
                (path / name).mkdir(exist_ok=True)
        except OSError as error:
            folder.close()
            raise unusable(error.filename or path, error) from error
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Free the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def carry_on(self, settings: Settings) -> None:
        """Give the run settings with more to do. Removes the summary first: a kill in between leaves it unfinished."""
        (self.path / "summary.json").unlink(missing_ok=True)
        self.manifest = replace(self.manifest, settings=settings)
        self._put(self.path / "run.json", record_text(self.manifest))

    def save_exchange(self, number: int, request: Request, reply: Reply) -> None:
        """Store one answered call."""
        exchange = Exchange(number, request_hash(request), request, reply)
        self._put_record(self.path / "exchanges" / f"{number:04d}_{request.role.value}.json", exchange)

    def save_candidate(self, candidate: Candidate) -> None:
        """Store a candidate's text and command."""
        code = self.path / "candidates" / f"{candidate.id}.cu"
        self._put(code, candidate.code)
        self._put(code.with_suffix(".command"), candidate.command)

    def save_build_log(self, candidate: str, log: str) -> None:
        """Store what compiler and linker said of a candidate."""
        self._put(self.path / "builds" / f"{candidate}.log", log)

    def save_verdict(self, verdict: Verdict) -> None:
        """Store a verdict under the id of its candidate."""
        self._put_record(self.path / "verdicts" / f"{verdict.candidate}.json", verdict)

    def save_confirmation(self, verdict: Verdict) -> None:
        """Store a second verdict under the id of its candidate."""
        self._put_record(self.path / "confirmations" / f"{verdict.candidate}.json", verdict)

    def save_findings(self, findings: Findings) -> None:
        """Store findings under the id of their candidate."""
        self._put_record(self.path / "findings" / f"{findings.candidate}.json", findings)

    def save_sessions(self, sessions: tuple[Session, ...]) -> None:
        """Replace the sessions of the run."""
        self._put_record(self.path / "sessions.json", Sessions(sessions))

    def save_best(self, candidate: Candidate, verdict: Verdict, score: float) -> None:
        """Replace best.cu and best.json by a new best. best.json names its candidate."""
        self._put(self.path / "best.cu", candidate.code)
        best = {
            "candidate": candidate.id,
            "command": candidate.command,
            "score": score,
            "emulated": verdict.emulated,
            **({} if verdict.modelled is None else {"modelled": verdict.modelled}),
            "complete": verdict.complete,
            "verdict": f"verdicts/{candidate.id}.json",
        }
        if self.confirmation(candidate.id) is not None:
            best["confirmation"] = f"confirmations/{candidate.id}.json"
        self._put(self.path / "best.json", _json_text(to_json(best)))

    def save_summary(self, summary: Mapping[str, object]) -> None:
        """Store the result of a finished run."""
        self._put(self.path / "summary.json", _json_text(to_json(summary)))

    def guard(self) -> None:
        """From here on take no file for the run's that another program writes, as one could that is at work beside it.

        What is read back has to be as this process wrote it, or as it is now.
        """
        self._own = {path: _digest(path.read_bytes()) for path in self._files()}

    def must_be_own(self) -> None:
        """Raise RunFolderError, which names it, for a file that another program made, changed or removed meanwhile."""
        own = self._own or {}
        for path in sorted({*own, *self._files()}):
            if not path.is_file():
                raise _not_own(path)
            self._bytes(path)

    def _files(self) -> list[Path]:
        """The files that the run has by now, except the lock and what is half-written."""
        found = [each for place in (self.path, *map(self.path.joinpath, FOLDERS)) for each in place.glob("[!.]*.*")]
        return [each for each in found if each.is_file() and each.suffix in _SUFFIXES]

    def _bytes(self, path: Path) -> bytes:
        raw = super()._bytes(path)
        if self._own is not None and self._own.get(path) != _digest(raw):
            raise _not_own(path)
        return raw

    def _put_record(self, path: Path, record: object) -> None:
        self._put(path, record_text(record))

    def _put(self, path: Path, text: str) -> None:
        _write(path, text)
        if self._own is not None and path.suffix in _SUFFIXES:
            self._own[path] = _digest(text.encode())

    def _remove_half_written(self) -> None:
        for folder in (self.path, *(self.path / name for name in FOLDERS)):
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()


def _cannot_make(path: Path, error: OSError) -> CudaMasterError:
    if path.is_dir():
        return RunFolderError(
            f"{path} exists already; a fresh run overwrites nothing.",
            f"Continue it with --resume {path}, or choose another folder.",
        )
    return unwritable(f"The run folder {path}", error, "Choose another folder, with --out or --record.")


def _remove_abandoned(path: Path) -> None:
    """Remove staged folders that a kill left before they became `path`: those whose lock is free."""
    for staged in path.parent.glob(f".{path.name}.new-*"):
        try:
            lock = locked(staged)
        except RunFolderError:
            continue
        shutil.rmtree(staged)
        os.close(lock)


def write_record(path: Path, record: object) -> None:
    """Write a dataclass with the hash that `record.decoded` checks."""
    _write(path, record_text(record))


def record_text(record: object) -> str:
    """A dataclass as its file holds it."""
    content = to_json(record)
    return _json_text({**content, "hash": hash_of(content)})


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _not_own(path: Path) -> RunFolderError:
    return RunFolderError(
        f"{path} was made, changed or removed by another program while the run was at work.",
        "Do not trust what this run says; start a fresh one, with an agent that leaves run folders alone.",
    )


def _write(path: Path, text: str) -> None:
    """Write under a temporary name, flush, rename, flush the folder, so that the rename survives a power cut."""
    staged = path.with_name(f".{path.name}.tmp")
    try:
        with staged.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
        _flush_folder(path.parent)
    except IsADirectoryError as error:
        raise RunFolderError(
            f"{path} is a folder, the run has a file there.", "Remove it, then use --resume."
        ) from error
    except OSError as error:
        raise unwritable(path, error, "Make room or give access, then use --resume.") from error


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
