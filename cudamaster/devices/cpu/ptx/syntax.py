"""The syntax of PTX as it stands in an asm template: its text to instructions, declarations, labels and operands."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from cudamaster.devices.cpu.ptx.statements import PtxError, Statement


@dataclass(frozen=True)
class Name:
    """A register, a label, a special register or a keyword, as written; special registers with their component."""

    text: str


@dataclass(frozen=True)
class Given:
    """An operand of the asm statement, by its number."""

    number: int


@dataclass(frozen=True)
class Integer:
    """An integer constant."""

    value: int


@dataclass(frozen=True)
class Real:
    """A constant of floating point: its value, and its bits where it was written as them (32 or 64)."""

    value: float
    bits: int | None = None
    width: int = 0

    def as_bits(self, width: int) -> int:
        """Its pattern in a format of 32 or 64 bits."""
        if self.bits is not None and self.width == width:
            return self.bits
        return int.from_bytes(struct.pack("<f" if width == 32 else "<d", self.value), "little")


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    elements: tuple[Term, ...]


@dataclass(frozen=True)
class Address:
    """A place in memory: the sum of some terms, of which at most one is a register; for tensors coordinates too."""

    terms: tuple[tuple[int, Term], ...]  # sign and term
    coordinates: Vector | None = None


@dataclass(frozen=True)
class Pair:
    """Two destinations of one instruction, `d|p`."""

    first: Term
    second: Term


@dataclass(frozen=True)
class Not:
    """A predicate, inverted."""

    term: Term


Term = Name | Given | Integer | Real | Vector | Address | Pair | Not


@dataclass(frozen=True)
class Guard:
    """`@p` or `@!p`."""

    predicate: Term
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """An instruction: its name with all modifiers, cut at the dots."""

    words: tuple[str, ...]
    operands: tuple[Term, ...]
    guard: Guard | None
    line: int

    @property
    def opcode(self) -> str:
        """The name as it was written."""
        return ".".join(self.words)


@dataclass(frozen=True)
class Declaration:
    """`.reg .type names`, a range `r<4>` already written out."""

    type: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Label:
    """`name:`"""

    name: str
    line: int


@dataclass(frozen=True)
class Block:
    """What stands in braces: names declared there are its own."""

    items: tuple[Item, ...]


Item = Instruction | Declaration | Label | Block

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_IDENTIFIER = re.compile(r"[a-zA-Z][\w$]*|[_$%][\w$]+")
_OPCODE = re.compile(r"[a-zA-Z]\w*(?:\s*\.\s*\w+(?:::\w+)*)*")
_LABEL = re.compile(r"([a-zA-Z_$%][\w$]*)\s*:(?!:)")
_DIRECTIVE = re.compile(r"\.(\w+)")
_REAL = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})|(\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)")
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*(?![\d.])|[1-9]\d*)U?")
_GIVEN = re.compile("\x01(\\d+)\x02")
_PERCENT = re.compile(r"%(?:(?P<number>\d+)|\[(?P<name>\w+)\]|(?P<percent>%)|(?P<unique>=))")
_SINK = re.compile(r"_(?![\w$])")


def parse(statement: Statement) -> tuple[Item, ...]:
    """The items of a template. PtxError where it is no PTX."""
    return _Parser(statement).items()


class _Parser:
    """One template on its way: `at` is the place that was reached."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.at = 0
        self.places: list[tuple[int, int]] = []  # of the text that is read, and of the template
        self.text = self._with_operands(statement.template)

    def _with_operands(self, template: str) -> str:
        """The template with `%0` and `%[name]` marked as operands of the statement, and `%%` as `%`."""
        numbers = {operand.name: number for number, operand in enumerate(self.statement.operands) if operand.name}
        parts, end, length = [], 0, 0
        for found in _PERCENT.finditer(template):
            if found["number"] is None and found["name"] is None:
                marked = "%" if found["percent"] else "0"
            else:
                number = numbers.get(found["name"]) if found["number"] is None else int(found["number"])
                if number is None or number >= len(self.statement.operands):
                    line = self.statement.line_at(found.start())
                    raise PtxError(f"asm string names the operand {found[0]}, which is not there", line)
                marked = f"\x01{number}\x02"
            parts += [template[end : found.start()], marked]
            length += found.start() - end + len(marked)
            end = found.end()
            self.places.append((length, end))
        return "".join([*parts, template[end:]])

    def line(self) -> int:
        """The source's line of the place that was reached."""
        before = [place for place in self.places if place[0] <= self.at]
        base, origin = before[-1] if before else (0, 0)
        return self.statement.line_at(origin + self.at - base)

    def error(self, message: str) -> PtxError:
        return PtxError(f"ptxas: {message}", self.line())

    def _near(self) -> str:
        rest = self.text[self.at :].split("\n", 1)[0][:20].strip()
        return re.sub("\x01(\\d+)\x02", r"%\1", rest) or "the end"

    def _skip(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _is(self, sign: str) -> bool:
        self._skip()
        return self.text.startswith(sign, self.at)

    def _take(self, sign: str) -> bool:
        if not self._is(sign):
            return False
        self.at += len(sign)
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self.error(f"Parsing error near '{self._near()}': syntax error, expected '{sign}'")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def items(self, *, inside: bool = False) -> tuple[Item, ...]:
        found: list[Item] = []
        while True:
            self._skip()
            if self.at == len(self.text):
                if inside:
                    raise self.error("Parsing error: a '}' is missing")
                return tuple(found)
            if self._is("}"):
                if not inside:
                    raise self.error("Parsing error near '}': syntax error")
                self.at += 1
                return tuple(found)
            if self._take("{"):
                found.append(Block(self.items(inside=True)))
            elif not self._take(";"):
                found.append(self._item())

    def _item(self) -> Item:
        line = self.line()
        directive = self._match(_DIRECTIVE)
        if directive is not None:
            if directive[1] != "reg":
                raise self.error(f"the directive .{directive[1]} is not known in inline PTX here")
            return self._declaration(line)
        label = self._match(_LABEL)
        if label is not None:
            return Label(label[1], line)
        guard = None
        if self._take("@"):
            negated = self._take("!")
            guard = Guard(self._term(), negated)
        opcode = self._match(_OPCODE)
        if opcode is None:
            raise self.error(f"Parsing error near '{self._near()}': syntax error")
        operands: list[Term] = []
        if not self._is(";"):
            operands.append(self._operand())
            while self._take(","):
                operands.append(self._operand())
        self._expect(";")
        return Instruction(tuple(re.sub(r"\s", "", opcode[0]).split(".")), tuple(operands), guard, line)

    def _declaration(self, line: int) -> Declaration:
        kind = self._match(_DIRECTIVE)
        if kind is None:
            raise self.error(f"Parsing error near '{self._near()}': syntax error, expected a type")
        names: list[str] = []
        while True:
            name = self._match(_IDENTIFIER)
            if name is None:
                raise self.error(f"Parsing error near '{self._near()}': syntax error, expected a name")
            if self._take("<"):
                count = self._integer()
                self._expect(">")
                names += [f"{name[0]}{number}" for number in range(count)]
            else:
                names.append(name[0])
            if not self._take(","):
                break
        self._expect(";")
        return Declaration(kind[1], tuple(names), line)

    def _integer(self) -> int:
        found = self._match(_INTEGER)
        if found is None:
            raise self.error(f"Parsing error near '{self._near()}': syntax error, expected an integer")
        return _value(found[1])

    def _operand(self) -> Term:
        first = self._term()
        return Pair(first, self._term()) if self._take("|") else first

    def _term(self) -> Term:
        if self._take("{"):
            elements = [self._term()]
            while self._take(","):
                elements.append(self._term())
            self._expect("}")
            return Vector(tuple(elements))
        if self._take("["):
            return self._address()
        if self._take("!"):
            return Not(self._term())
        if self._take("("):
            inner = self._term()
            self._expect(")")
            return inner
        if self._take("-"):
            return self._negative()
        given = self._match(_GIVEN)
        if given is not None:
            return Given(int(given[1]))
        return self._constant_or_name()

    def _negative(self) -> Term:
        term = self._term()
        if isinstance(term, Integer):
            return Integer(-term.value)
        if isinstance(term, Real):
            return Real(-term.value)
        raise self.error("a '-' stands before what is no constant")

    def _constant_or_name(self) -> Term:
        real = self._match(_REAL)
        if real is not None:
            return _real(real)
        integer = self._match(_INTEGER)
        if integer is not None:
            return Integer(_value(integer[1]))
        if self._match(_SINK) is not None:
            return Name("_")
        name = self._match(_IDENTIFIER)
        if name is None:
            raise self.error(f"Parsing error near '{self._near()}': syntax error")
        text = name[0]
        if text.startswith("%"):
            component = re.compile(r"\.[xyzw]\b").match(self.text, self.at)
            if component is not None:
                text += component[0]
                self.at = component.end()
        return Name(text)

    def _address(self) -> Address:
        terms = [(1, self._term())]
        coordinates = None
        while not self._take("]"):
            if self._take(","):
                inner = self._term()
                if not isinstance(inner, Vector):
                    raise self.error("coordinates of a tensor stand in braces")
                coordinates = inner
            elif self._take("+"):
                sign = -1 if self._take("-") else 1
                terms.append((sign, self._term()))
            elif self._take("-"):
                terms.append((-1, self._term()))
            else:
                raise self.error(f"Parsing error near '{self._near()}': syntax error, expected ']'")
        return Address(tuple(terms), coordinates)


def _value(text: str) -> int:
    if text[:2] in ("0x", "0X", "0b", "0B"):
        return int(text, 0)
    return int(text, 8) if text.startswith("0") and text != "0" else int(text)


def _real(found: re.Match[str]) -> Real:
    if found[1] is not None:
        bits = int(found[1], 16)
        return Real(struct.unpack("<f", bits.to_bytes(4, "little"))[0], bits, 32)
    if found[2] is not None:
        bits = int(found[2], 16)
        return Real(struct.unpack("<d", bits.to_bytes(8, "little"))[0], bits, 64)
    return Real(float(found[3]))
