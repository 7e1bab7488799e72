"""What a run folder holds, read back: its formats, and reading without changing anything.

`folder`, which writes the files, describes them. Each file carries a hash of its content (candidates: their id), so a
figure that changed since is reported as damage and never taken for a result.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cudamaster.core.errors import RunFolderError
from cudamaster.core.folderlock import is_locked
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import (
    LATER,
    Candidate,
    Findings,
    Hardware,
    Precision,
    ProfileMode,
    Role,
    Verdict,
    content_hash,
)
from cudamaster.models.protocol import Reply, Request, Sampling
from cudamaster.runs.budget import Session

FORMAT = 5
FOLDERS = ("exchanges", "candidates", "builds", "verdicts", "confirmations", "findings")
_OFTEN_EMPTY = ("confirmations", "findings")  # which git does not keep
T = TypeVar("T")
_AFRESH = "Restore the folder from a copy, or start a fresh run."


@dataclass(frozen=True)
class Replay:
    """The record that a run takes its replies from: `record` is an absolute path.

    Verdicts and findings come from there too, unless `models_only`. With `real_time` a reply takes as long as it took
    then.
    """

    record: str
    models_only: bool = False
    real_time: bool = False


@dataclass(frozen=True)
class Stage:
    """What a run had at one time before it was continued: its `rounds`, of which `ended` were over, and their tries."""

    at: str
    ended: int
    rounds: int
    debug_tries: int


@dataclass(frozen=True)
class Settings:
    """What the user chose for a run. A resumed run keeps it, except for more rounds and tries (carrying).

    `models` holds the roles that are asked. `profile` is a mode of values.ProfileMode; `thresholds` decide the classes
    (profiling.thresholds.choose). `options` are the strategy's own, all of them; `search_seed` is the seed of its
    draws, while `seed` is that of the inputs, None where each evaluation draws its own. `jump_factor` and `jump_above`
    say which score is too good to be taken on trust (strategies/large_gains.py). `examples` is how many kernels of
    other tasks the Coder is shown (worked_examples). A modelled score is a new best above the best so far by more than
    `tie`, a part of 1; older runs have none. `earlier` is what it had each time it was carried on.
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
    tie: float = field(default=0.0, metadata=LATER)
    earlier: tuple[Stage, ...] = field(default=(), metadata=LATER)

    def tries_in(self, number: int) -> int:
        """D of that round. Rounds that were over before the run got more keep what they had."""
        return next((stage.debug_tries for stage in self.earlier if number <= stage.ended), self.debug_tries)


@dataclass(frozen=True)
class Manifest:
    """run.json: what the run is about, and what has to be the same when it is resumed.

    `suite` is the name of the task's suite. `card` is the path of the card of a user's own task, where it is looked for
    first. Both are empty in records of before. `baseline_by` is the card's: "kernel", or "pytorch" for a module that
    eager PyTorch runs.
    """

    format: int
    started: str
    versions: Mapping[str, str]
    task: str
    precision: Precision
    card_hash: str
    baseline: str
    hardware: Hardware
    settings: Settings
    suite: str = field(default="", metadata=LATER)
    card: str = field(default="", metadata=LATER)
    baseline_by: str = field(default="kernel", metadata=LATER)


@dataclass(frozen=True)
class Exchange:
    """One model call. `request_hash` is over the whole request."""

    number: int
    request_hash: str
    request: Request
    reply: Reply


@dataclass(frozen=True)
class Sessions:
    """sessions.json."""

    sessions: tuple[Session, ...]


def request_hash(request: Request) -> str:
    """Content hash of role, messages and facts."""
    return content_hash(json.dumps(to_json(request), sort_keys=True))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a run folder; nothing is locked or changed. Raises RunFolderError."""
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
    """What a run folder holds, with every file checked. Nothing is locked or changed, even if a process works on it.

    Raises RunFolderError if there is no run, or if a file is damaged, which it names.
    """
    record = RunRecord(path, read_manifest(path))
    try:
        record.check()
    except OSError as error:
        raise unusable(error.filename or path, error) from error
    return record


class RunRecord:
    """What a run folder holds, to be read."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def _bytes(self, path: Path) -> bytes:
        """What a file holds."""
        return path.read_bytes()

    def exchange(self, number: int) -> Exchange | None:
        """The stored exchange with that number, from 1."""
        found = sorted((self.path / "exchanges").glob(f"{number:04d}_*.json"))
        return decoded(Exchange, found[0], self._bytes) if found else None

    def candidate(self, candidate: str) -> Candidate | None:
        """The stored candidate with that id; None unless code and command both exist."""
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
        return _tied(decoded(Verdict, path, self._bytes), candidate, path) if path.exists() else None

    def confirmation(self, candidate: str) -> Verdict | None:
        """The stored second verdict of a candidate."""
        path = self.path / "confirmations" / f"{candidate}.json"
        return _tied(decoded(Verdict, path, self._bytes), candidate, path) if path.exists() else None

    def findings(self, candidate: str) -> Findings | None:
        """The stored findings of a candidate."""
        path = self.path / "findings" / f"{candidate}.json"
        return _tied(decoded(Findings, path, self._bytes), candidate, path) if path.exists() else None

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the run, earliest first."""
        path = self.path / "sessions.json"
        return decoded(Sessions, path, self._bytes).sessions if path.exists() else ()

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
        """Whether a process works on the run."""
        return is_locked(self.path)

    def check(self) -> None:
        """Check every file. Raises RunFolderError, and OSError where one cannot be read."""
        for name in FOLDERS:
            if name not in _OFTEN_EMPTY and not (self.path / name).is_dir():
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
            raise RunFolderError(f"{code} or its command was changed: their hash is not its id.", _AFRESH)


def _tied(value: T, candidate: str, path: Path) -> T:
    if getattr(value, "candidate", None) != candidate:
        raise RunFolderError(f"{path} belongs to another candidate.", _AFRESH)
    return value


def decoded(kind: type[T], path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> T:
    """What `folder.write_record` wrote. Raises RunFolderError, which names the file, where it is damaged."""
    raw = read_json(path, read)
    if isinstance(raw, dict) and raw.pop("hash", None) != hash_of(raw):
        raise RunFolderError(f"{path} was changed: it does not have its hash.", _AFRESH)
    try:
        return from_json(kind, raw)
    except RecordError as error:
        raise RunFolderError(f"{path} is damaged: {error}.", _AFRESH) from error


def hash_of(record: Mapping[str, Any]) -> str:
    """The hash that a file carries, over everything else in it."""
    return content_hash(json.dumps(record, sort_keys=True))


def _read_text(path: Path) -> str:
    # Bytes, not read_text: universal newlines would change what was hashed.
    return path.read_bytes().decode("utf-8", errors="replace")


def read_json(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> Any:
    """What a JSON file holds. Raises RunFolderError, which names it."""
    try:
        return json.loads(read(path))
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}.", _AFRESH) from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {error}.", _AFRESH) from error


def unusable(path: Path | str, error: OSError) -> RunFolderError:
    """The error for a file of a run that the system does not let us use."""
    denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC)  # nothing is damaged
    fix = "Make room or give access, and try again." if denied else _AFRESH
    return RunFolderError(f"{path} cannot be used: {error.strerror}.", fix)
