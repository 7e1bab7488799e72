"""Finds `asm` statements in C++ text, and takes them apart: template, operands, and where their lines came from.

The text is not preprocessed. A statement in a macro is found like any other, its operands may name the macro's
parameters; a template that a macro puts together is written out before (macros.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from cudamaster.devices.cpu.ptx.scanning import closing, split
from cudamaster.devices.cpu.unsupported import Unsupported, code_only

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b(?:\s|\\\n|volatile\b|__volatile__\b|__volatile\b|inline\b)*\(")
_OPERAND = re.compile(
    r'\s*(?:\[\s*(?P<name>\w+)\s*\]\s*)?(?P<constraint>"[^"]*"(?:\s*"[^"]*")*)\s*\((?P<expression>.*)\)\s*', re.DOTALL
)
_LITERAL = re.compile(
    r'R"(?P<mark>[^(\s]{0,16})\((?P<raw>.*?)\)(?P=mark)"|"(?P<plain>(?:\\.|[^"\\\n])*)"'
    r"|(?P<gap>(?:\s|\\\n|//[^\n]*|/\*.*?\*/)+)",
    re.DOTALL,
)
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]+)|\n|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "v": "\v", "f": "\f", "a": "\a", "b": "\b"}


class PtxError(Exception):
    """Inline PTX that nvcc or ptxas would refuse, and its line in the source, counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True)
class Operand:
    """One operand of an asm statement: its constraint without modifiers, and the C++ expression."""

    constraint: str
    expression: str
    name: str | None
    read: bool
    written: bool


@dataclass(frozen=True)
class Statement:
    """An asm statement: [start, end) of the text without its semicolon, template and operands.

    `starts` and `lines` tell the source's line of each place in the template.
    """

    start: int
    end: int
    line: int
    template: str
    operands: tuple[Operand, ...]
    starts: tuple[int, ...]
    lines: tuple[int, ...]

    def line_at(self, offset: int) -> int:
        """The source's line of a place in the template."""
        at = bisect_right(self.starts, offset) - 1
        return self.lines[at] if at >= 0 else self.line


def statements_in(source: str) -> Iterator[Statement]:
    """All asm statements of a text, in their order."""
    code = code_only(source)
    for found in _ASM.finditer(code):
        close = closing(code, found.end() - 1)
        line = source.count("\n", 0, found.start()) + 1
        if close is None:
            raise PtxError("expected a ')' behind asm", line)
        yield _statement(source, code, found.start(), found.end(), close)


def _statement(source: str, code: str, start: int, inside: int, close: int) -> Statement:
    line = source.count("\n", 0, start) + 1
    parts = split(code, inside, close, ":")
    if len(parts) > 4:
        raise Unsupported("asm goto", line)
    template, starts, lines = _template(source, *parts[0])
    operands: list[Operand] = []
    for number, (begin, end) in enumerate(parts[1:3]):
        for first, last in split(code, begin, end, ","):
            text = _without_comments(source[first:last])
            if text.strip():
                operands.append(_operand(text, source.count("\n", 0, first) + 1, output=number == 0))
    return Statement(start, close + 1, line, template, tuple(operands), tuple(starts), tuple(lines))


def _template(source: str, start: int, end: int) -> tuple[str, list[int], list[int]]:
    text, starts, lines, at = "", [], [], start
    while at < end:
        piece = _LITERAL.match(source, at, end)
        line = source.count("\n", 0, at) + 1
        if piece is None:
            raise Unsupported("inline assembly whose text is put together by a macro", line)
        if piece["gap"] is None:
            value = piece["raw"] if piece["plain"] is None else _unescaped(piece["plain"])
            starts.append(len(text))
            lines.append(line)
            if piece["raw"] is not None:
                for offset in (found.start() for found in re.finditer("\n", value)):
                    line += 1
                    starts.append(len(text) + offset + 1)
                    lines.append(line)
            text += value
        at = piece.end()
    return text, starts, lines


def _unescaped(literal: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 8))
        if found[2] is not None:
            return chr(int(found[2], 16))
        return "" if found[3] is None else _ESCAPES.get(found[3], found[3])

    return _ESCAPE.sub(value, literal)


def _without_comments(text: str) -> str:
    """Code on one line: comments and spliced lines become blanks."""
    plain = _COMMENT.sub(lambda found: " " if found["comment"] else found[0], text)
    return re.sub(r"\\?\n", " ", plain)


def _operand(text: str, line: int, *, output: bool) -> Operand:
    found = _OPERAND.fullmatch(text)
    if found is None:
        raise PtxError(f'asm operand {text.strip()!r} is not of the form "constraint"(expression)', line)
    constraint = re.sub(r'"\s*"|"', "", found["constraint"])
    letter = constraint.lstrip("=+&")
    if output != constraint.startswith(("=", "+")):
        kind = "an output" if output else "an input"
        raise PtxError(f'asm constraint "{constraint}" does not fit {kind} operand', line)
    if letter == "C" or (letter.isdigit() and not output):
        raise Unsupported(f'asm constraint "{constraint}"', line)
    if letter not in {"h", "r", "l", "q", "f", "d"} and not (letter == "n" and not output):
        raise PtxError(f"an asm operand may not have the constraint letter '{letter}'", line)
    read = not output or constraint.startswith("+")
    return Operand(letter, found["expression"].strip(), found["name"], read, output)
