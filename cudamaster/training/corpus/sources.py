"""The files of a folder that hold CUDA code, and why others do not count.

Taken are `.cu`, `.cuh`, `.h`, `.hpp` and `.cpp` with CUDA in them. Links are not followed, hidden folders not entered.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cudamaster.core.errors import UsageError

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".cpp")
LARGEST = 1 << 20  # bytes; what people write by hand is smaller
LONGEST_LINE = 1000  # characters; beyond are tables of numbers and minified code
_CUDA = re.compile(r"__global__|__device__|__shared__|<<<|\b[A-Z_]*DEVICE(?:_INLINE)?\b")
_GENERATED = re.compile(
    r"@generated\b|\bauto(?:matically)?[- ]?generated\b|\bdo not (?:edit|modify)\b|\bgenerated (?:file|code)\b"
    r"|\b(?:file|code|header|source) (?:is|was|has been) generated\b",
    re.I,
)
_HEAD_LINES = 40  # in which a generated file says so
# Folders with other people's code: of two copies theirs is the one to leave out.
_VENDORED = re.compile(r"(?:^|/)(?:third[-_]?party|vendor(?:ed)?|extern(?:al)?s?|deps|submodules|contrib)/", re.I)


@dataclass(frozen=True)
class SourceFile:
    """A file: its path below the folder, its text, and the SHA-256 of its bytes."""

    path: str
    text: str
    sha256: str


@dataclass(frozen=True)
class LeftOut:
    """What is not in the corpus: the path, its lines if it is a part of a file, and why, in words that are counted.

    `note` says more about this one, such as what it is a copy of.
    """

    path: str
    why: str
    note: str = ""
    first: int | None = None
    last: int | None = None


def find(folder: Path, besides: Path | None = None) -> tuple[list[SourceFile], list[LeftOut]]:
    """The files with CUDA in a folder, their own before vendored ones, then by path; and what was left out.

    `besides` is a folder that is not entered: the one written to. Raises UsageError if `folder` is none.
    """
    must_be_there(folder)
    found: list[SourceFile] = []
    left: list[LeftOut] = []
    first_of: dict[str, str] = {}
    for path in sorted(_files(folder, besides), key=lambda path: (bool(_VENDORED.search(f"{path.parent}/")), path)):
        name = str(path).encode("utf-8", "backslashreplace").decode()  # a name can be any bytes
        read = _read(folder / path, name)
        if isinstance(read, LeftOut):
            left.append(read)
            continue
        words = hashlib.sha256(" ".join(read.text.split()).encode()).hexdigest()
        if words in first_of:
            left.append(LeftOut(name, "copy of another file", first_of[words]))
            continue
        first_of[words] = name
        found.append(read)
    return found, left


def must_be_there(folder: Path) -> None:
    """Raise UsageError for a folder of sources that is none."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name a folder with CUDA sources.")


def _files(folder: Path, besides: Path | None) -> Iterator[PurePosixPath]:
    barred = besides.resolve() if besides is not None else None
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != barred]
        for name in names:
            if name.lower().endswith(SUFFIXES) and not (here / name).is_symlink() and (here / name).is_file():
                yield PurePosixPath((here / name).relative_to(folder).as_posix())


def _read(path: Path, name: str) -> SourceFile | LeftOut:
    try:
        if path.stat().st_size > LARGEST:
            return LeftOut(name, "larger than 1 MiB")
        raw = path.read_bytes()
    except OSError as error:
        return LeftOut(name, "cannot be read", error.strerror or str(error))
    if b"\0" in raw:
        return LeftOut(name, "binary")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return LeftOut(name, "not UTF-8")
    if not _CUDA.search(text):
        return LeftOut(name, "no CUDA in it")
    lines = text.split("\n")
    if _GENERATED.search("\n".join(lines[:_HEAD_LINES])):
        return LeftOut(name, "generated")
    if any(len(line) > LONGEST_LINE for line in lines):
        return LeftOut(name, f"a line of more than {LONGEST_LINE} characters")
    return SourceFile(name, text, hashlib.sha256(raw).hexdigest())
