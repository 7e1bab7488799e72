"""The run folder: everything a run made, on disk the moment it exists. The only module that writes one.

    run.json                     what is run: task, settings, device, versions; there before anything else
    lock                         held by the one process that works on the run
    exchanges/0001_planner.json  request, reply and cost of each model call, in order
    candidates/<id>.cu           text of the region; the command is beside it in <id>.command
    builds/<id>.log              what compiler and linker said
    verdicts/<id>.json           status, checks and raw timings of a candidate
    confirmations/<id>.json      the same of a second judgement, where the first had a score too good to be trusted
    findings/<id>.json           what the profile filter kept for a new best
    sessions.json                who worked on it: for how long, under which budget, and when it held a device
    best.cu, best.json           the best so far; the baseline at first
    summary.json                 the result; there only when the run is finished

Each file is written beside its place, flushed to the disk and renamed, so a reader sees all of it or nothing,
and a kill leaves at most a hidden temporary file, which the next opening removes. A folder appears whole,
with its run.json. What is read back carries a hash of itself (candidates: their id), so that a figure that changed
since is damage and never a result.

Resume is replay: strategies do the same given the same replies and verdicts, so they run again from the start
while `recording` hands out what is stored here. `RunRecord` is the way for those who look alone: it changes nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from cudamaster.budget import Session
from cudamaster.errors import RunFolderError
from cudamaster.models.protocol import Reply, Request, Sampling
from cudamaster.records import RecordError, from_json, to_json
from cudamaster.values import Candidate, Findings, Hardware, Precision, ProfileMode, Role, Verdict, content_hash

FORMAT = 5
T = TypeVar("T")
_FOLDERS = ("exchanges", "candidates", "builds", "verdicts", "confirmations", "findings")
_AFRESH = "Restore the folder from a copy, or start a fresh run."


@dataclass(frozen=True)
class Replay:
    """The record that a run takes its replies from: `record` is an absolute path.

    Verdicts and findings come from there too, unless `models_only`. With `real_time` a reply takes as long as then.
    """

    record: str
    models_only: bool = False
    real_time: bool = False


@dataclass(frozen=True)
class Settings:
    """What the user chose for a run; a resumed run keeps it.

    `models` holds the roles that are asked. `profile` is a mode of values.ProfileMode, `thresholds` what the classes
    are told by (profiling.thresholds.choose). `options` are the strategy's own, all of them; `search_seed` is the seed
    of its draws, while `seed` is that of the inputs, None where each evaluation draws its own. `jump_factor` and
    `jump_above` say which score is too good to be taken on trust (strategies/scrutiny.py). `examples` is how many
    kernels of other tasks the Coder is shown (worked_examples).
    """

    strategy: str
    rounds: int
    debug_tries: int
    device: str
    models: Mapping[Role, str]
    base_url: str | None = None
    seed: int | None = None
    profile: ProfileMode = ProfileMode.FILTERED
    thresholds: str = "paper"
    options: Mapping[str, str | bool | int | float] = field(default_factory=dict)
    search_seed: int = 0
    examples: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    replay: Replay | None = None
    jump_factor: float = 2.0
    jump_above: float = 8.0


@dataclass(frozen=True)
class Manifest:
    """run.json: what the run is about, and what it must find again when it is resumed."""

    format: int
    started: str
    versions: Mapping[str, str]
    task: str
    precision: Precision
    card_hash: str
    baseline: str
    hardware: Hardware
    settings: Settings


@dataclass(frozen=True)
class Exchange:
    """One model call. `request_hash` is over the whole request."""

    number: int
    request_hash: str
    request: Request
    reply: Reply


@dataclass(frozen=True)
class _Sessions:
    """sessions.json."""

    sessions: tuple[Session, ...]


def request_hash(request: Request) -> str:
    """Content hash of role, messages and facts."""
    return content_hash(json.dumps(to_json(request), sort_keys=True))


def fresh_path(parent: Path, task: str, precision: Precision) -> Path:
    """A path under `parent` for a new run, named after task, precision and time; nothing is created."""
    name = f"{task}_{precision.value}_{datetime.now():%Y%m%d-%H%M%S}"
    path = parent / name
    number = 2
    while path.exists():
        path = parent / f"{name}-{number}"
        number += 1
    return path


def read_manifest(path: Path) -> Manifest:
    """What a run folder says it is; nothing is locked or changed. Raises RunFolderError."""
    if not (path / "run.json").is_file():
        raise RunFolderError(f"There is no run in {path}.", "Check the path; a run folder has a file run.json.")
    raw = read_json(path / "run.json")
    if isinstance(raw, dict) and raw.get("format") != FORMAT:
        raise RunFolderError(
            f"{path / 'run.json'} has format {raw.get('format')}, this version reads format {FORMAT}.",
            "Resume it with the version that wrote it, or start a fresh run.",
        )
    return decoded(Manifest, path / "run.json")


def read_record(path: Path) -> RunRecord:
    """What a run folder holds, every file checked; nothing is locked or changed, also where a process works on it.

    Raises RunFolderError when there is no run or a file is damaged; it names the file.
    """
    record = RunRecord(path, read_manifest(path))
    try:
        record.check()
    except OSError as error:
        raise _unusable(error.filename or path, error) from error
    return record


class RunRecord:
    """What a run folder holds, to be read."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def exchange(self, number: int) -> Exchange | None:
        """The stored exchange with that number, from 1."""
        found = sorted((self.path / "exchanges").glob(f"{number:04d}_*.json"))
        return decoded(Exchange, found[0]) if found else None

    def candidate(self, candidate: str) -> Candidate | None:
        """The stored candidate of that id; None unless code and command are both there."""
        code = self.path / "candidates" / f"{candidate}.cu"
        command = code.with_suffix(".command")
        if not (code.exists() and command.exists()):
            return None
        return Candidate(self.manifest.task, self.manifest.precision, _read_text(code), _read_text(command))

    def build_log(self, candidate: str) -> str | None:
        """What compiler and linker said of a candidate."""
        path = self.path / "builds" / f"{candidate}.log"
        return _read_text(path) if path.exists() else None

    def verdict(self, candidate: str) -> Verdict | None:
        """The stored verdict of a candidate."""
        path = self.path / "verdicts" / f"{candidate}.json"
        return _tied(decoded(Verdict, path), candidate, path) if path.exists() else None

    def confirmation(self, candidate: str) -> Verdict | None:
        """The stored second verdict of a candidate."""
        path = self.path / "confirmations" / f"{candidate}.json"
        return _tied(decoded(Verdict, path), candidate, path) if path.exists() else None

    def findings(self, candidate: str) -> Findings | None:
        """The stored findings of a candidate."""
        path = self.path / "findings" / f"{candidate}.json"
        return _tied(decoded(Findings, path), candidate, path) if path.exists() else None

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those that worked on the run, the earliest first."""
        path = self.path / "sessions.json"
        return decoded(_Sessions, path).sessions if path.exists() else ()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").exists()

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """summary.json as it is written, without a hash; None until the run is finished."""
        path = self.path / "summary.json"
        if not path.exists():
            return None
        raw = read_json(path)
        if not isinstance(raw, dict):
            raise RunFolderError(f"{path} is damaged: it holds no object.", _AFRESH)
        return raw

    @property
    def in_use(self) -> bool:
        """Whether a process works on the run.

        Asked of the lock by a shared one that is freed at once; the file stays as it is.
        """
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def check(self) -> None:
        """Check every file. Raises RunFolderError, and OSError where one cannot be read."""
        for name in _FOLDERS:
            if not (self.path / name).is_dir():
                raise RunFolderError(f"{self.path / name} is missing.", _AFRESH)
        exchanges = (self.path / "exchanges").glob("*.json")
        in_order = sorted(exchanges, key=lambda path: (len(path.name.partition("_")[0]), path))  # 9999 before 10000
        for expected, path in enumerate(in_order, start=1):
            if decoded(Exchange, path).number != expected or not path.name.startswith(f"{expected:04d}_"):
                raise RunFolderError(f"Exchange {expected} is missing before {path}.", _AFRESH)
        for path in sorted((self.path / "verdicts").glob("*.json")):
            self.verdict(path.stem)
            code = self.path / "candidates" / f"{path.stem}.cu"
            for part in (code, code.with_suffix(".command")):
                if not part.exists():
                    raise RunFolderError(f"{part} is missing, though it has a verdict.", _AFRESH)
        for path in sorted((self.path / "confirmations").glob("*.json")):
            self.confirmation(path.stem)
        for path in sorted((self.path / "findings").glob("*.json")):
            self.findings(path.stem)
        _ = self.sessions
        for path in sorted((self.path / "candidates").glob("*.command")):
            self._check_candidate(path.with_suffix(".cu"))

    def _check_candidate(self, code: Path) -> None:
        if not code.exists():
            return
        text, command = _read_text(code), _read_text(code.with_suffix(".command"))
        if Candidate(self.manifest.task, self.manifest.precision, text, command).id != code.stem:
            raise RunFolderError(f"{code} or its command was changed: they do not have its id.", _AFRESH)


class RunFolder(RunRecord):
    """An open run folder, locked against other processes until it is closed."""

    def __init__(self, path: Path, manifest: Manifest, lock: int) -> None:
        super().__init__(path, manifest)
        self._lock = lock

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunFolder:
        """Make the folder of a fresh run.

        Raises RunFolderError when something is there already (an empty folder is not), or nothing can be
        written there.
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
            for name in _FOLDERS:
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

        Raises RunFolderError when there is no run, another process works on it, or a file is damaged; it
        names the file.
        """
        manifest = read_manifest(path)
        try:
            lock = locked(path)
        except OSError as error:
            raise _unusable(path / "lock", error) from error
        folder = cls(path, manifest, lock)
        try:
            folder._remove_half_written()
            folder.check()
        except OSError as error:
            folder.close()
            raise _unusable(error.filename or path, error) from error
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

    def save_exchange(self, number: int, request: Request, reply: Reply) -> None:
        """Store one answered call."""
        exchange = Exchange(number, request_hash(request), request, reply)
        write_record(self.path / "exchanges" / f"{number:04d}_{request.role.value}.json", exchange)

    def save_candidate(self, candidate: Candidate) -> None:
        """Store a candidate's text and command."""
        code = self.path / "candidates" / f"{candidate.id}.cu"
        _write(code, candidate.code)
        _write(code.with_suffix(".command"), candidate.command)

    def save_build_log(self, candidate: str, log: str) -> None:
        """Store what compiler and linker said of a candidate."""
        _write(self.path / "builds" / f"{candidate}.log", log)

    def save_verdict(self, verdict: Verdict) -> None:
        """Store a verdict under the id of its candidate."""
        write_record(self.path / "verdicts" / f"{verdict.candidate}.json", verdict)

    def save_confirmation(self, verdict: Verdict) -> None:
        """Store a second verdict under the id of its candidate."""
        write_record(self.path / "confirmations" / f"{verdict.candidate}.json", verdict)

    def save_findings(self, findings: Findings) -> None:
        """Store findings under the id of their candidate."""
        write_record(self.path / "findings" / f"{findings.candidate}.json", findings)

    def save_sessions(self, sessions: tuple[Session, ...]) -> None:
        """Replace what is known of those who worked on the run."""
        write_record(self.path / "sessions.json", _Sessions(sessions))

    def save_best(self, candidate: Candidate, verdict: Verdict, score: float) -> None:
        """Replace best.cu and best.json by a new best. best.json names the candidate that it speaks of."""
        _write(self.path / "best.cu", candidate.code)
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
        _write_json(self.path / "best.json", to_json(best))

    def save_summary(self, summary: Mapping[str, object]) -> None:
        """Store the result of a finished run."""
        _write_json(self.path / "summary.json", to_json(summary))

    def _remove_half_written(self) -> None:
        for folder in (self.path, *(self.path / name for name in _FOLDERS)):
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()


def _unusable(path: Path | str, error: OSError) -> RunFolderError:
    return RunFolderError(f"{path} cannot be used: {error.strerror}.", _AFRESH)


def _cannot_make(path: Path, error: OSError) -> RunFolderError:
    if path.exists():
        return RunFolderError(
            f"{path} exists already; a fresh run overwrites nothing.",
            f"Continue it with --resume {path}, or choose another folder.",
        )
    return RunFolderError(
        f"The run folder {path} cannot be made: {error.strerror}.", "Choose another folder, with --out or --record."
    )


def locked(folder: Path) -> int:
    """The descriptor of a folder's lock, which nobody else holds until it is closed. Raises RunFolderError."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise RunFolderError(
            f"Another process is working on {folder}.", "Wait until it ends, or stop it, and try again."
        ) from error
    return lock


def _remove_abandoned(path: Path) -> None:
    """Remove staged folders that a kill left before they became `path`: those whose lock nobody holds."""
    for staged in path.parent.glob(f".{path.name}.new-*"):
        try:
            lock = locked(staged)
        except RunFolderError:
            continue
        shutil.rmtree(staged)
        os.close(lock)


def _tied(value: T, candidate: str, path: Path) -> T:
    if getattr(value, "candidate", None) != candidate:
        raise RunFolderError(f"{path} belongs to another candidate.", _AFRESH)
    return value


def decoded(kind: type[T], path: Path) -> T:
    """What `write_record` wrote. Raises RunFolderError, which names the file, where it is damaged."""
    raw = read_json(path)
    if isinstance(raw, dict) and raw.pop("hash", None) != _hash(raw):
        raise RunFolderError(f"{path} was changed: it does not have its hash.", _AFRESH)
    try:
        return from_json(kind, raw)
    except RecordError as error:
        raise RunFolderError(f"{path} is damaged: {error}.", _AFRESH) from error


def _hash(record: Mapping[str, Any]) -> str:
    return content_hash(json.dumps(record, sort_keys=True))


def _read_text(path: Path) -> str:
    # Bytes, not read_text: universal newlines would change what was hashed.
    return path.read_bytes().decode("utf-8", errors="replace")


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises RunFolderError, which names it."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}.", _AFRESH) from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {error}.", _AFRESH) from error


def write_record(path: Path, record: object) -> None:
    """Write a dataclass with the hash that `_decoded` holds it to."""
    content = to_json(record)
    _write_json(path, {**content, "hash": _hash(content)})


def _write_json(path: Path, value: Any) -> None:
    _write(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    """Write beside the place, flush, rename, flush the folder: the rename outlives a power cut too."""
    staged = path.with_name(f".{path.name}.tmp")
    try:
        with staged.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written: {error.strerror}.", "Make room or give access, then use --resume."
        ) from error


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
