"""Preprocessing tokens of C++ text, with the line each one came from.

The guards need what no parser gives them: directives in branches that are not taken, tokens that a grammar does not
know, and strings and comments exactly where the compiler sees them. This module does not judge. A comment or raw string
without an end is one token of kind BAD, as it is for the compiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache


class Kind(Enum):
    """Kinds of tokens. Comments and blanks are dropped, line ends are kept."""

    NAME = auto()
    NUMBER = auto()
    STRING = auto()
    CHARACTER = auto()
    PUNCTUATION = auto()
    NEWLINE = auto()
    BAD = auto()


@dataclass(frozen=True)
class Token:
    """One token: its text, its line in the source, and where it lies in the spliced text.

    `spliced` says that a line continuation lies inside it.
    """

    kind: Kind
    text: str
    line: int
    start: int
    end: int
    spliced: bool = False


@dataclass(frozen=True)
class Directive:
    """A preprocessor directive: `# name rest`, and where it lies. `name` is empty for a lone `#`."""

    name: str
    rest: tuple[Token, ...]
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """C++ text with continued lines joined, and its tokens."""

    spliced: str
    tokens: tuple[Token, ...]


SPLICE = re.compile(r"\\[ \t]*\n")
_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\f\v]+|//[^\n]*|/\*.*?\*/)
  | (?P<newline>\n)
  | (?P<raw>(?:u8|u|U|L)?R"(?P<delimiter>[^\s()\\]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<bad>(?:/\*|(?:u8|u|U|L)?R").*)
  | (?P<string>(?:u8|u|U|L)?"(?:\\.|[^"\\\n])*")
  | (?P<character>(?:u8|u|U|L)?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
  | (?P<name>[A-Za-z_$\u0080-\U0010ffff][\w$]*)
  | (?P<punctuation>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "newline": Kind.NEWLINE,
    "raw": Kind.STRING,
    "string": Kind.STRING,
    "character": Kind.CHARACTER,
    "number": Kind.NUMBER,
    "name": Kind.NAME,
    "punctuation": Kind.PUNCTUATION,
    "bad": Kind.BAD,
}


def lex(source: str, lines: Sequence[int] | None = None) -> Text:
    """The tokens of `source`. `lines` gives the line number of each physical line where it is not its index.

    The guards ask for those of a region, as written and expanded, several times in a row: they are kept that long.
    """
    known = None if lines is None else tuple(lines)
    return _kept(source, known) if len(source) >= _KEPT_FROM else _lexed(source, known)


def _lexed(source: str, lines: tuple[int, ...] | None) -> Text:
    splices = list(SPLICE.finditer(source))
    joins: list[int] = []  # offsets in the spliced text at which lines were joined
    pieces: list[str] = []
    last = removed = 0
    for splice in splices:
        pieces.append(source[last : splice.start()])
        joins.append(splice.start() - removed)
        removed += splice.end() - splice.start()
        last = splice.end()
    pieces.append(source[last:])
    spliced = "".join(pieces)
    breaks = sorted([m.start() + 1 for m in re.finditer("\n", spliced)] + joins)

    def line_of(offset: int) -> int:
        index = bisect_right(breaks, offset)
        if lines is None:
            return index + 1
        return lines[min(index, len(lines) - 1)] if lines else 1

    tokens = []
    for match in _TOKEN.finditer(spliced):
        group = match.lastgroup or ""
        if group == "delimiter":
            group = "raw"
        if group == "blank":
            continue
        start, end = match.span()
        joined = bisect_right(joins, start) != bisect_right(joins, end - 1)
        tokens.append(Token(_KINDS[group], match.group(), line_of(start), start, end, joined))
    return Text(spliced, tuple(tokens))


_KEPT_FROM = 1000  # characters: shorter texts are quickly read, and would push out the others
_kept = lru_cache(maxsize=4)(_lexed)


def directives(tokens: Iterable[Token]) -> tuple[Directive, ...]:
    """All directives, of taken and of untaken branches alike."""
    return split(tokens)[0]


def split(tokens: Iterable[Token]) -> tuple[tuple[Directive, ...], tuple[Token, ...]]:
    """The directives, and all other tokens without line ends."""
    found: list[Directive] = []
    code: list[Token] = []
    line: list[Token] = []

    def flush() -> None:
        if line and line[0].text == "#":
            name = line[1].text if len(line) > 1 else ""
            found.append(Directive(name, tuple(line[2:]), line[0].line, line[0].start, line[-1].end))
        else:
            code.extend(line)
        line.clear()

    for token in tokens:
        if token.kind is Kind.NEWLINE:
            flush()
        else:
            line.append(token)
    flush()
    return tuple(found), tuple(code)


def words(table: str) -> frozenset[str]:
    """The words of a table that is written as text, to be read by eye."""
    return frozenset(table.split())


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at `opening`, or the last index when nothing does."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    wanted: list[str] = []
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if tokens[index].kind is not Kind.PUNCTUATION:
            continue
        if text in pairs:
            wanted.append(pairs[text])
        elif wanted and text == wanted[-1]:
            wanted.pop()
            if not wanted:
                return index
    return len(tokens) - 1
