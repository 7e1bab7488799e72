"""The lock of a folder: its file `lock`, held by the one process that works there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from cudamaster.core.errors import RunFolderError


def locked(folder: Path) -> int:
    """Take a folder's lock; returns its descriptor, which holds the lock until it is closed. Raises RunFolderError."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise RunFolderError(
            f"Another process is working on {folder}.", "Wait until it ends, or stop it, and try again."
        ) from error
    return lock


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder's lock.

    Tests this with a shared lock that is freed at once; the file does not change.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
