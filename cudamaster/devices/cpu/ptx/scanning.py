"""Brackets and separators in C++ text whose comments and literals are blanked."""

from __future__ import annotations

_OPENING, _CLOSING = "([{", ")]}"


def closing(code: str, opening: int) -> int | None:
    """Where the bracket at `opening` ends."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] in _OPENING) - (code[at] in _CLOSING)
        if depth == 0:
            return at
    return None


def split(code: str, start: int, end: int, separator: str) -> list[tuple[int, int]]:
    """The stretches between separators that no bracket encloses."""
    parts, depth, begin = [], 0, start
    for at in range(start, end):
        depth += (code[at] in _OPENING) - (code[at] in _CLOSING)
        if depth == 0 and code[at] == separator:
            parts.append((begin, at))
            begin = at + 1
    return [*parts, (begin, end)]
