"""Files that a command writes: complete, or not at all. An older file in their place stays until then."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudamaster.core.errors import unwritable


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, with its suffix; it is renamed at the end, or removed.

    A path that is not a file, such as a pipe or /dev/stdout, is written to directly. Raises whatever writing raises,
    OSError for a full disk.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()  # a link stays one
    staged = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield staged
        if path.exists():
            shutil.copymode(path, staged)
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def must_be_writable(path: Path, fix: str) -> None:
    """Raise UsageError or DeviceError if a file cannot be written: now, and not after hours of work for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.open("wb").close()
        else:
            tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise unwritable(path, error, fix) from error


def write_text(path: Path, text: str, *, errors: str = "strict") -> None:
    """Write a text as UTF-8, its line ends as they are."""
    content = text.encode("utf-8", errors)
    with whole(path) as staged:
        staged.write_bytes(content)
