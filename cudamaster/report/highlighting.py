"""Code and differences with syntax colours, as lines of HTML that a style sheet colours.

Colours stand in one-letter elements, and only where they help: a report holds a hundred kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_LONGEST = 200_000  # characters; a longer text stays without colours
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def code(text: str) -> Markup:
    """A kernel's text."""
    return Markup("\n").join(lines(text))


def difference(diff: str, before: str, after: str) -> Markup:
    """A unified diff between two texts: each line has its colours from the text that it is of.

    Lines that are not what the texts have there, or are of no hunk, stay without colours.
    """
    old, new = _Text(before), _Text(after)
    coloured: list[Markup] = []
    for line in shown(diff).split("\n"):
        if hunk := _HUNK.match(line):
            old.at, new.at = int(hunk[1]) - 1, int(hunk[2]) - 1
            coloured.append(Markup('<b class="at">{}</b>').format(line))
        elif line.startswith("-"):
            coloured.append(Markup('<b class="del">-{}</b>').format(old.next(line[1:])))
        elif line.startswith("+"):
            coloured.append(Markup('<b class="add">+{}</b>').format(new.next(line[1:])))
        else:
            old.next(line[1:])
            coloured.append(Markup("<b>{}{}</b>").format(line[:1], new.next(line[1:])))
    return Markup().join(coloured)


def shown(text: str) -> str:
    """Text as a page can hold it: what cannot be seen is spelt out, and so is half of a surrogate pair."""
    return visible(text).encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=256)
def lines(text: str) -> tuple[Markup, ...]:
    """The lines of a text with their colours. A kernel's are asked for twice, a baseline's in each run of its task."""
    plain = shown(text)
    if len(plain) > _LONGEST:
        return tuple(escape(line) for line in plain.split("\n"))
    found: list[list[str]] = [[]]
    for kind, value in _tokens(plain):
        for number, part in enumerate(value.split("\n")):
            if number:
                found.append([])
            if part:
                found[-1].append(f"<i class={kind}>{escape(part)}</i>" if kind else escape(part))
    return tuple(Markup("".join(line)) for line in found)


class _Text:
    """A text that a diff walks through; `at` is the next line, from 0."""

    def __init__(self, text: str) -> None:
        self._plain: Sequence[str] = shown(text).split("\n")
        self._coloured = lines(text)
        self.at = 0

    def next(self, line: str) -> Markup:
        at, self.at = self.at, self.at + 1
        known = at < len(self._plain) and self._plain[at] == line
        return self._coloured[at] if known else escape(line)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Class and text of each token; neighbours of one class are one."""
    kind, value = "", ""
    for token, part in _lexer().get_tokens(text):
        if part.isspace():  # has any colour
            value += part
            continue
        found = _class(token)
        if found != kind:
            yield kind, value
            kind, value = found, ""
        value += part
    yield kind, value


@cache
def _lexer() -> Lexer:
    from pygments.lexers.c_like import CudaLexer

    lexer: Lexer = CudaLexer(stripnl=False, ensurenl=False)
    return lexer


@cache
def _class(token: object) -> str:
    """One letter for each kind of token: comments, directives, words of the language, types, numbers, texts."""
    kinds = {
        "Token.Comment.Preproc": "p",
        "Token.Comment": "c",
        "Token.Keyword.Type": "t",
        "Token.Keyword": "k",
        "Token.Literal.Number": "n",
        "Token.Literal.String": "s",
        "Token.Name.Function": "f",
        "Token.Name.Builtin": "t",
    }
    return next((letter for prefix, letter in kinds.items() if str(token).startswith(prefix)), "")
