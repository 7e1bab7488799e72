"""Reads a kernel that a person gives as a file. What it says is judged elsewhere."""

from __future__ import annotations

from pathlib import Path

MARKERS = ("// >>> CANDIDATE REGION", "// <<< CANDIDATE REGION")  # of templates/test_harness.cu.j2


def read_kernel(file: Path) -> str:
    """The text of the region in `file`, a harness that was filled in or the region alone.

    A harness's region keeps its line numbers. Raises UsageError where there is none to read.
    """
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
    return _between_markers(text)


def _between_markers(text: str) -> str:
    """What stands between the markers of a harness; a text without just these two is taken as it is."""
    lines = text.split("\n")
    places = [[at for at, line in enumerate(lines) if line.strip() == marker] for marker in MARKERS]
    if [len(found) for found in places] != [1, 1] or places[0] > places[1]:
        return text
    (begin,), (end,) = places
    return "\n" * (begin + 1) + "\n".join(lines[begin + 1 : end]) + "\n"
