"""Reads a kernel that a person gives, as a file or as text. Other modules judge it."""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudamaster.tasks.cards import TaskCard

_PIPE_LIMIT_S = 10
MARKERS = ("// >>> CANDIDATE REGION", "// <<< CANDIDATE REGION")  # of templates/test_harness.cu.j2


def read_kernel(file: Path, card: TaskCard, precision: str) -> str:
    """The text of the region in `file`, which is a filled-in harness or the region alone.

    A harness's region keeps its line numbers; `-` is standard input. Raises UsageError for one that cannot be read, or
    that is the task's kernel in the other precision.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.guards.text import SIZE_LIMIT

    try:
        raw = _read(file, 4 * SIZE_LIMIT)  # not all of it: a device file has no end
    except OSError as error:
        raise UsageError(
            f"The kernel {file} cannot be read: {error.strerror}.", "Give the path of a .cu file."
        ) from error
    return region_of(raw, card, precision, str(file))


def region_of(raw: bytes, card: TaskCard, precision: str, name: str) -> str:
    """The text of the region in a kernel's text, called `name` in errors. Raises UsageError as `read_kernel`."""
    from cudamaster.core.errors import UsageError
    from cudamaster.guards.refusal import Refusal
    from cudamaster.guards.text import SIZE_LIMIT, read_region

    if len(raw) >= 4 * SIZE_LIMIT:
        raise UsageError(f"The kernel {name} is larger than {SIZE_LIMIT // 1024} KiB.", "Give the region alone.")
    text = read_region(raw)
    if isinstance(text, Refusal):
        raise UsageError(f"The kernel {name} cannot be used: {text.reason}.", text.fix)
    region = _between_markers(text)
    _must_be_of(precision, region, card, name)
    return region


def _read(file: Path, most: int) -> bytes:
    """At most that many bytes of a file. Raises OSError, also for a pipe that nobody writes to."""
    if str(file) == "-":
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        return sys.stdin.buffer.read(most)
    if not file.is_fifo():
        with file.open("rb") as opened:
            return opened.read(most)
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        if not select.select([opened], [], [], _PIPE_LIMIT_S)[0]:
            raise OSError(errno.ETIMEDOUT, f"nobody wrote to this pipe within {_PIPE_LIMIT_S} seconds")
        os.set_blocking(opened.fileno(), True)
        return opened.read(most)


def _must_be_of(precision: str, region: str, card: TaskCard, name: str) -> None:
    """Raises UsageError if the region has another precision's wrapper instead of this one's."""
    from cudamaster.core.errors import UsageError

    wrappers = {each.value: card.wrapper(each, optimized=True) for each in card.precisions}
    there = [kind for kind, wrapper in wrappers.items() if re.search(rf"\b{wrapper}\s*\(", region)]
    if there and precision not in there:
        raise UsageError(
            f"The kernel {name} is a {there[0]} one of {card.name}, not one of {precision}: it has "
            f"{wrappers[there[0]]}.",
            f"Add --precision {there[0]}.",
        )


def _between_markers(text: str) -> str:
    """The text between the markers of a harness. A text without exactly these two is used as it is."""
    lines = text.split("\n")
    places = [[at for at, line in enumerate(lines) if line.strip() == marker] for marker in MARKERS]
    if [len(found) for found in places] != [1, 1] or places[0] > places[1]:
        return text
    (begin,), (end,) = places
    return "\n" * (begin + 1) + "\n".join(lines[begin + 1 : end]) + "\n"
