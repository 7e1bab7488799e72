"""Files that a command writes: complete, or not at all. An older file in their place stays until then."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cudamaster.core.errors import unwritable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_THERE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would keep us waiting
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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


@contextmanager
def opened_in(folder: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of a file, opened, and the file's own name there: "name", or "inside/name".

    No link is followed on the way, for a folder in which a program with fewer rights than ours may put anything. With
    `make`, the inner folder is made if it is missing. Raises OSError, as for a link in the place of a folder.
    """
    inside, _, last = name.rpartition("/")
    opened = [os.open(folder, _FOLDER)]
    try:
        if inside:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(inside, dir_fd=opened[0])
            opened.append(os.open(inside, _FOLDER, dir_fd=opened[0]))
        yield opened[-1], last
    finally:
        for each in opened:
            os.close(each)


def write_in(folder: Path, name: str, text: str, *, mode: int = 0o644) -> None:
    """Write a file that `opened_in` means: whole, and through no link. Raises OSError."""
    with opened_in(folder, name, make=True) as (place, last):
        staged = f".{last}.{os.getpid()}.new"
        with suppress(FileNotFoundError):
            os.unlink(staged, dir_fd=place)
        with os.fdopen(os.open(staged, _NEW, mode, dir_fd=place), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(staged, last, src_dir_fd=place, dst_dir_fd=place)


def read_in(folder: Path, name: str, most: int = -1) -> bytes:
    """What a file that `opened_in` means holds, at most so many bytes. Raises OSError, as for a link or a pipe."""
    with opened_in(folder, name) as (place, last), os.fdopen(os.open(last, _THERE, dir_fd=place), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return file.read(most)
