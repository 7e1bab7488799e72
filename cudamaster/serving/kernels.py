"""Reads a kernel's file in the folder that a server was started for.

It is opened step by step from the folder's descriptor and no link is followed, so nothing outside is read, whoever
changes the folder meanwhile.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from cudamaster.core.errors import UsageError
from cudamaster.guards.text import SIZE_LIMIT

ENDINGS = (".cu", ".cuh")


def in_folder(folder: Path, name: str) -> bytes:
    """What a file in a folder holds, at most what a kernel may. Raises UsageError for one that may not be read."""
    fix = f"Name a {' or '.join(ENDINGS)} file in {folder}, or give the kernel's text."
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(folder):
        path = path.relative_to(folder)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise UsageError(f"The file {name[:200]!r} is not in the folder that this server was started for.", fix)
    if path.suffix not in ENDINGS:
        raise UsageError(f"The file {name[:200]!r} is no kernel by its name.", fix)
    opened: list[int] = []
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for part in path.parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened.append(os.open(path.parts[-1], flags, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise UsageError(f"{name[:200]!r} is no file.", fix)
        with os.fdopen(opened.pop(), "rb") as file:
            return file.read(4 * SIZE_LIMIT)
    except OSError as error:
        what = f"The file {name[:200]!r} cannot be read: {error.strerror}."
        raise UsageError(what, f"Links are not followed. {fix}") from error
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)
