"""Reads a kernel that a person gives as a file. What it says is judged elsewhere."""

from __future__ import annotations

from pathlib import Path


def read_kernel(file: Path) -> str:
    """The text of the region in `file`. Raises UsageError where there is none to read."""
    from cudamaster.errors import UsageError
    from cudamaster.guards.refusal import Refusal
    from cudamaster.guards.text import SIZE_LIMIT, read_region

    try:
        with file.open("rb") as opened:
            raw = opened.read(4 * SIZE_LIMIT)  # not all of it: a device file has no end
    except OSError as error:
        raise UsageError(
            f"The kernel {file} cannot be read: {error.strerror}.", "Give the path of a .cu file."
        ) from error
    if len(raw) == 4 * SIZE_LIMIT:
        raise UsageError(f"The kernel {file} is larger than {SIZE_LIMIT // 1024} KiB.", "Give the region alone.")
    text = read_region(raw)
    if isinstance(text, Refusal):
        raise UsageError(f"The kernel {file} cannot be used: {text.reason}.", text.fix)
    return text
