"""Loops that a kernel's text has nvcc leave as they are, by `#pragma unroll 1`.

Of that g++'s code shows nothing, as it unrolls no loop by itself. So a traced build has a mark in such a loop's
condition: an instruction that does nothing, with a number that no compiler uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = "0x4d0ce"
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t(]+1[ \t)]*\n[ \t]*for[ \t]*\(", re.MULTILINE)
_MARK = f'__extension__({{ __asm__ volatile("nopl {_NUMBER}(%rax)"); }})'


def marked(text: str) -> str:
    """The text with a mark in the condition of each such loop."""
    pieces, done = [], 0
    for found in _PRAGMA.finditer(text):
        if condition := _condition(text, found.end()):
            start, end = condition
            pieces += [text[done:start], f" ({_MARK}, {text[start:end].strip()})"]
            done = end
    return "".join(pieces) + text[done:]


def is_marked(lines: Iterable[tuple[int, str, str]]) -> bool:
    """Whether a mark is among a loop's instructions."""
    return any(name.startswith("nop") and operands.startswith(f"{_NUMBER}(") for _, name, operands in lines)


def _condition(text: str, at: int) -> tuple[int, int] | None:
    """Where the condition of a loop is whose parenthesis is behind `at`; None if it has none."""
    depth, ends = 0, list[int]()
    for place in range(at, len(text)):
        letter = text[place]
        if letter in "\"'#":
            return None  # what may hold anything
        depth += (letter in "([{") - (letter in ")]}")
        if letter == ";" and not depth:
            ends.append(place)
        if depth < 0:
            break
    if len(ends) != 2 or not text[ends[0] + 1 : ends[1]].strip():
        return None
    return ends[0] + 1, ends[1]
