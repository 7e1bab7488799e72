"""Comments of a file, on which lines they are."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_PARTS = re.compile(
    r"""
    (?P<comment>//(?:[^\\\n]|\\.)*|/\*.*?(?:\*/|\Z))
  | (?:u8|u|U|L)?R"(?P<delimiter>[^\s()\\]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)
  | "(?:\\.|[^"\\\n])*"
  | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Comment:
    """A comment, or several // lines that follow each other.

    Its lines from 1, its text with the marks, and whether no code shares a line with it.
    """

    first: int
    last: int
    text: str
    alone: bool


def comments_of(text: str) -> tuple[Comment, ...]:
    """All comments of a file in their order."""
    breaks = [found.start() for found in re.finditer("\n", text)]
    lines = text.split("\n")
    found: list[Comment] = []
    for match in _PARTS.finditer(text):
        if match["comment"] is None:
            continue
        first, last = (bisect_right(breaks, at) + 1 for at in (match.start(), match.end() - 1))
        before = lines[first - 1][: match.start() - (breaks[first - 2] + 1 if first > 1 else 0)]
        after = lines[last - 1][match.end() - (breaks[last - 2] + 1 if last > 1 else 0) :]
        alone = not before.strip() and not after.strip()
        row = match["comment"].startswith("//")
        if row and alone and found and found[-1].alone and found[-1].last == first - 1 and _is_row(found[-1]):
            found[-1] = Comment(found[-1].first, last, f"{found[-1].text}\n{match['comment']}", True)
        else:
            found.append(Comment(first, last, match["comment"], alone))
    return tuple(found)


def _is_row(comment: Comment) -> bool:
    return comment.text.startswith("//")
