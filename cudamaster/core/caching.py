"""The limit of the build cache: what was used longest ago is removed first, and nothing that is in use.

    <cache>/<device>/<fingerprint>/candidates/<key>/   what was built of one candidate
    <cache>/<device>/<fingerprint>/harnesses/          objects and executables that candidates are judged with
    <cache>/cpu-runtime/                               the CPU device's executors and compiled headers (20 MB each)

A process that builds or runs a candidate holds a shared lock in the candidate's folder; the lock is freed when the
process dies. The other files are shared by many runs and have no such lock, so those used within a day stay. Everything
else in the cache, some kilobytes, is counted and stays too. So does what we did not make, since a user's home can be
named as the cache: a fingerprint has 16 hexadecimal digits, and a candidate's folder holds the file that is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core import configuration
from cudamaster.core.errors import UsageError

LIMIT = "CUDAMASTER_CACHE_LIMIT"
DEFAULT_BYTES = 10 * 10**9
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_KEPT_PART = 0.9  # of the limit, so that not every build has to make room
_LOOKED_AT_EVERY_S = 120.0
_CANDIDATE_FRESH_S = 600.0
_SHARED_FRESH_S = 86400.0
_FINGERPRINT = "[0-9a-f]" * 16
_SHARED = (
    f"*/{_FINGERPRINT}/harnesses/*",
    f"cpu-runtime/{_FINGERPRINT}*.o",
    f"cpu-runtime/prelude-{_FINGERPRINT}.h.gch",
)
_IN_USE = "in-use"
_GONE = ".gone-"
_MOST_TRIES = 1000  # to take a folder that others keep removing; each use of it allows one removal


def limit_bytes() -> int | None:
    """The limit: $CUDAMASTER_CACHE_LIMIT or the configuration's, e.g. 20GB, else 10 GB; None for "none".

    Raises UsageError.
    """
    chosen = (configuration.setting("cache-limit", LIMIT) or "").strip()
    if not chosen:
        return DEFAULT_BYTES
    if chosen.lower() == "none":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MGT]B)", chosen, re.IGNORECASE)
    if found is None:
        raise UsageError(f"{LIMIT} is {chosen!r}, which is not a size.", "Write it as 500MB, 20GB or 1TB, or none.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


@contextmanager
def using(folder: Path) -> Iterator[None]:
    """Keeps a candidate's folder from being removed; makes it if it does not exist."""
    lock = _shared(folder)
    try:
        os.utime(lock)
        yield
    finally:
        os.utime(lock)
        os.close(lock)


def _shared(folder: Path) -> int:
    path = folder / _IN_USE
    for tries_left in reversed(range(_MOST_TRIES)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except (FileExistsError, FileNotFoundError):
            if not tries_left:
                raise
            continue  # another process just removed the folder
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)
    raise FileNotFoundError(errno.ENOENT, "Others remove it as soon as it is made", str(folder))


def kept(file: Path) -> bool:
    """Whether a shared file exists; if so, marks it as used now."""
    try:
        os.utime(file)
    except FileNotFoundError:
        return False
    return True


def trim_now_and_then(cache: Path) -> None:
    """Hold the cache to its limit, unless a process did so in the last two minutes. Raises UsageError."""
    limit = limit_bytes()
    if limit is None:
        return
    cache.mkdir(parents=True, exist_ok=True)
    stamp = cache / "trimmed"
    try:
        if time.time() - stamp.stat().st_mtime < _LOOKED_AT_EVERY_S:
            return
    except FileNotFoundError:
        stamp.touch()
    with stamp.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        os.utime(stamp)
        trim(cache, limit)


@dataclass(frozen=True)
class _Entry:
    """What is removed as one: a candidate's folder, or a shared file."""

    path: Path
    size: int
    last_use: float


def trim(cache: Path, limit: int, now: float | None = None) -> int:
    """Remove what was used longest ago until less than the limit is left; returns the number of bytes freed.

    What is in use or fresh stays, so more than the limit may remain.
    """
    now = time.time() if now is None else now
    total = _size(cache)
    if total <= limit:
        return 0
    freed = 0
    for entry in sorted(_entries(cache, now), key=lambda entry: entry.last_use):
        if total - freed <= limit * _KEPT_PART:
            break
        if remove_unused(entry.path) if entry.path.is_dir() else _remove_file(entry.path):
            freed += entry.size
    return freed


def _entries(cache: Path, now: float) -> Iterator[_Entry]:
    for folder in cache.glob(f"*/{_FINGERPRINT}/candidates/*"):
        last_use = _last_use(folder / _IN_USE)
        if not last_use and folder.name.startswith(_GONE):  # whoever removed it was stopped
            last_use = _last_use(folder)
        if last_use and now - last_use > _CANDIDATE_FRESH_S:
            yield _Entry(folder, _size(folder), last_use)
    for file in (file for places in _SHARED for file in cache.glob(places)):
        last_use = _last_use(file)
        # Lock files are empty, and two processes that build the same thing have to find the same one.
        if not file.name.endswith("lock") and now - last_use > _SHARED_FRESH_S:
            yield _Entry(file, _size(file), last_use)


def _last_use(file: Path) -> float:
    """0 where there is no such file."""
    try:
        return file.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0


def remove_unused(folder: Path) -> bool:
    """Remove a candidate's folder unless it is in use. A process that waits for it finds it gone and makes it again."""
    try:
        lock = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = folder.with_name(f"{_GONE}{os.getpid()}-{folder.name}")
        folder.rename(gone)
    except OSError:  # in use, or removed by another process
        return False
    finally:
        os.close(lock)
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _remove_file(file: Path) -> bool:
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def _size(path: Path) -> int:
    """Bytes on disk of a file, or of all files below a folder."""
    if not path.is_dir():
        return _file_size(path)
    return sum(_file_size(Path(folder) / name) for folder, _, files in os.walk(path) for name in files)


def _file_size(file: Path) -> int:
    try:
        return file.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0
