"""The reading of a file in which the grammar stumbles least: macros and branches of an `#if` can stand in its way."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudamaster.guards.grammar import Parsed, parse
from cudamaster.guards.lexer import Directive
from cudamaster.guards.preprocess import Region

# A macro in front of a declaration or on a line of its own: CUTLASS_HOST_DEVICE, C10_LAUNCH_BOUNDS_1(512).
_WORD = r"_{0,2}[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+_{0,2}(?:\([^()\n;]*\))?"
_MACRO = re.compile(
    rf"""(?<![\w.#>]){_WORD}(?=\s+[A-Za-z_~])|^[ \t]*{_WORD}[ \t]*(?://[^\n]*)?$|_Pragma\("[^"\n]*"\)""", re.M
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\[ \t]*\n)*[^\n]*", re.M)


@dataclass(frozen=True)
class _Branch:
    """A branch of an #if: the line before it, whether it is kept, and whether it or one before it is."""

    line: int
    kept: bool
    one_was: bool


def best_reading(text: str, directives: Sequence[Directive]) -> Parsed:
    """The reading with the fewest errors: as it is, without macros before declarations, without else-branches."""
    best: Parsed | None = None
    fewest = 0
    other = _without_else(text, directives)
    readings = {text: None, _without_macros(text): None, other: None, _without_macros(other): None}
    for reading in readings:
        parsed = parse(Region(reading, tuple(range(1, reading.count("\n") + 2)), ()))
        errors = _errors(parsed.root)
        if best is None or errors < fewest:
            best, fewest = parsed, errors
        if fewest == 0:
            break
    assert best is not None
    return best


def _errors(root: Node) -> int:
    if not root.has_error:
        return 0
    number, stack = 0, [root]
    while stack:
        node = stack.pop()
        number += node.is_error or node.is_missing
        stack.extend(child for child in node.children if child.has_error)
    return number


def _without_macros(text: str) -> str:
    """The text with macros in front of declarations blanked, but in directives, which go on behind a backslash."""
    directives = [found.span() for found in _DIRECTIVE.finditer(text)]
    starts = [start for start, _ in directives]

    def blanked(found: re.Match[str]) -> str:
        at = bisect_right(starts, found.start()) - 1
        inside = at >= 0 and found.start() < directives[at][1]
        return found[0] if inside else " " * len(found[0])

    return _MACRO.sub(blanked, text)


def _without_else(text: str, directives: Sequence[Directive]) -> str:
    """The text with empty lines for all branches of each #if but one: the first, or the second of an `#if 0`."""
    lines = text.split("\n")
    stack: list[_Branch] = []
    for directive in directives:
        if directive.name in ("if", "ifdef", "ifndef"):
            dead = directive.name == "if" and [token.text for token in directive.rest] == ["0"]
            stack.append(_Branch(directive.line, not dead, not dead))
        elif directive.name in ("elif", "else", "endif") and stack:
            branch = stack.pop()
            if not branch.kept:
                number = directive.line - branch.line - 1
                lines[branch.line : directive.line - 1] = [""] * number
            if directive.name != "endif":
                stack.append(_Branch(directive.line, not branch.one_was, True))
    return "\n".join(lines)
