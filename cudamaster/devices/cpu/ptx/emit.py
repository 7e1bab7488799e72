"""Inline PTX as C++: an asm statement becomes a block, a variable for each register, a call for each instruction.

Registers hold bits: unsigned integers of their width, predicates bool. Functions and types are those of
include/cudamaster_cpu/ptx/, reached by an alias of their namespace: none of theirs hides a name of the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cudamaster.devices.cpu.ptx import syntax
from cudamaster.devices.cpu.ptx.forms import WIDTHS, Form, Slot, computing, forms
from cudamaster.devices.cpu.ptx.statements import PtxError, Statement
from cudamaster.devices.cpu.ptx.syntax import (
    Address,
    Block,
    Declaration,
    Given,
    Instruction,
    Integer,
    Item,
    Label,
    Name,
    Not,
    Pair,
    Real,
    Term,
    Vector,
)
from cudamaster.devices.cpu.unsupported import Unsupported

NAMESPACE = "::cudamaster_cpu::ptx"
_OPERAND_WIDTHS = {"h": 16, "r": 32, "l": 64, "q": 128, "f": 32, "d": 64}
_CPP_WORDS = {"and", "or", "xor", "not"}
_FLOATS = {"f32": 32, "f64": 64}
_REGISTERS_32 = (
    *(f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    *("laneid", "warpid", "nwarpid", "smid", "nsmid", "clock", "clock_hi", "dynamic_smem_size", "total_smem_size"),
    *("lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "globaltimer_lo", "globaltimer_hi"),
    *(f"{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    *("cluster_ctarank", "cluster_nctarank"),
)
_OTHER_REGISTERS = {"%is_explicit_cluster": 1, "%clock64": 64, "%globaltimer": 64, "%gridid": 64}
_SPECIAL = {f"%{name}": 32 for name in _REGISTERS_32} | _OTHER_REGISTERS


@dataclass(frozen=True)
class _Variable:
    """A register as the C++ has it: its name and its width; of a constant operand no width."""

    name: str
    width: int | None


class _Mismatch(Exception):
    """The operands do not fit this form of the instruction: why, where that can be said."""


@dataclass
class _Emitter:
    """One statement on its way."""

    statement: Statement
    declared: list[str] = field(default_factory=list)  # declarations of registers
    labels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    numbers: int = 0
    carry: bool = False

    def run(self) -> str:
        items = syntax.parse(self.statement)
        self._block(items, {})
        head, tail = self._operands()
        labels = "".join(f"__label__ {name}; " for name in self.labels)
        carry = "bool cm_cc = false; " if self.carry else ""
        if any(line.startswith("cm_here.") for line in self.lines):
            self.declared.insert(0, "cm_ptx::Here cm_here;")
        body = " ".join([*head, *self.declared, *self.lines, *tail])
        return f"do {{ {labels}namespace cm_ptx = {NAMESPACE}; {carry}{body} }} while (0)"

    def _operands(self) -> tuple[list[str], list[str]]:
        """What is read of the operands before the first instruction, and written behind the last."""
        head, tail = [], []
        for number, operand in enumerate(self.statement.operands):
            name, letter = f"cm_{number}", operand.constraint
            if letter == "n":
                head.append(f"constexpr long long {name} = (long long)({operand.expression});")
                continue
            value = f"({operand.expression})"
            if operand.written:
                head.append(f"auto& cm_out_{number} = {value};")
                value = f"cm_out_{number}"
                tail.append(f"cm_ptx::write<'{letter}'>(cm_out_{number}, {name});")
            value = f"cm_ptx::read<'{letter}'>({value})" if operand.read else "cm_ptx::unset"
            head.append(f"cm_ptx::B{_OPERAND_WIDTHS[letter]} {name} = {value};")
        return head, tail

    def _fresh(self, width: int) -> _Variable:
        name = f"cm_r{self.numbers}"
        self.numbers += 1
        kind = "bool" if width == 1 else f"cm_ptx::B{width}"
        self.declared.append(f"{kind} {name} = {'false' if width == 1 else 'cm_ptx::unset'};")
        return _Variable(name, width)

    def _block(self, items: tuple[Item, ...], outer: Mapping[str, _Variable | str]) -> None:
        known = dict(outer)
        for item in items:
            if isinstance(item, Label):
                self.labels.append(f"cm_l{len(self.labels)}")
                known[item.name] = self.labels[-1]
        for item in items:
            if isinstance(item, Block):
                self._block(item.items, known)
            elif isinstance(item, Declaration):
                for name in item.names:
                    known[name] = self._fresh(self._width_of(item))
            elif isinstance(item, Label):
                self.lines.append(f"{known[item.name]}:;")
            else:
                if item.words[0] not in computing():
                    self.lines.append(f"cm_here.at({item.line});")
                self.lines.append(_Call(self, known, item).text())

    @staticmethod
    def _width_of(declaration: Declaration) -> int:
        width = WIDTHS.get(declaration.type)
        if width is None:
            raise Unsupported(f"PTX register of type .{declaration.type}", declaration.line)
        return max(width, 16) if width > 1 else 1


@dataclass
class _Call:
    """One instruction on its way to a statement of C++."""

    emitter: _Emitter
    known: Mapping[str, _Variable | str]
    instruction: Instruction

    def text(self) -> str:
        guard = self.instruction.guard
        if guard is None:
            return self._statement()
        condition = self._predicate(guard.predicate)
        return f"if ({'!' if guard.negated else ''}{condition}) {{ {self._statement()} }}"

    def _statement(self) -> str:
        words = self.instruction.words
        if words[0] == "bra":
            return self._branch()
        if words[0] == "mov" and any(isinstance(term, Vector) for term in self.instruction.operands):
            return self._packing()
        return self._call()

    def _error(self, message: str) -> PtxError:
        return PtxError(f"ptxas: {message}", self.instruction.line)

    def _mismatch(self, why: str = "") -> PtxError:
        """ptxas's words, and what does not fit, which it leaves to the reader."""
        name = ".".join(self.instruction.words)
        return self._error(f"Arguments mismatch for instruction '{name}'{': ' if why else ''}{why}")

    def _unknown(self) -> Unsupported:
        """Names what no form has, since a slip of the pen looks like an instruction that is not known."""
        first, *modifiers = self.instruction.words
        those = forms().get(first, ())
        strange = [f".{word}" for word in modifiers if those and not any(form.has(word) for form in those)]
        lacking = None if strange else self._lacking(those)
        what = f"{first} with {' and '.join(strange)}" if strange else "it" if those else first
        slip = f"it lacks .{lacking}, or is" if lacking else f"{what} is misspelt, or"
        construct = f"PTX instruction {self.instruction.opcode} ({slip} missing from docs/ptx.md)"
        return Unsupported(construct, self.instruction.line)

    def _lacking(self, those: tuple[Form, ...]) -> str | None:
        """The one modifier with which it would be known."""
        words = self.instruction.words
        for form in those:
            for word, at in itertools.product(form.modifiers, range(1, len(words) + 1)):
                if form.pattern.fullmatch(".".join((*words[:at], word, *words[at:]))):
                    return word
        return None

    def _branch(self) -> str:
        operands = self.instruction.operands
        if self.instruction.words[1:] not in ((), ("uni",)):
            raise self._unknown()
        if len(operands) != 1 or not isinstance(operands[0], Name):
            raise self._mismatch()
        label = self.known.get(operands[0].text)
        if not isinstance(label, str):
            raise self._error(f"Unknown symbol '{operands[0].text}'")
        return f"goto {label};"

    def _packing(self) -> str:
        """`mov` of a vector to a register or back."""
        if len(self.instruction.operands) != 2 or len(self.instruction.words) != 2:
            raise self._mismatch()
        to, origin = self.instruction.operands
        width = WIDTHS.get(self.instruction.words[1], 0)
        try:
            if isinstance(origin, Vector):
                part = width // max(len(origin.elements), 1)
                values = ", ".join(self._value(term, part) for term in origin.elements)
                return f"{self._register(to, width)} = cm_ptx::pack<{width}>({values});"
            assert isinstance(to, Vector)
            part = width // len(to.elements)
            targets = ", ".join(self._target(term, part) for term in to.elements)
            return f"cm_ptx::unpack({self._value(origin, width)}, {targets});"
        except _Mismatch:
            raise self._mismatch() from None

    def _call(self) -> str:
        modifiers = "".join(f".{word}" for word in self.instruction.words[1:])
        name = self.instruction.words[0] + modifiers
        fitting = [
            (form, found)
            for form in forms().get(self.instruction.words[0], ())
            if (found := form.pattern.fullmatch(name)) is not None
        ]
        if not fitting:
            raise self._unknown()
        reasons: set[str] = set()
        for form, found in fitting:
            try:
                return self._of_form(form, found.groupdict())
            except _Mismatch as mismatch:
                reasons.add(str(mismatch))
        raise self._mismatch(reasons.pop() if len(reasons) == 1 else "")

    def _of_form(self, form: Form, choices: Mapping[str, str | None]) -> str:
        written: list[str] = []
        read: list[str] = []
        operands = list(self.instruction.operands)
        for at, slot in enumerate(form.slots):
            if slot.type == "cc":
                self.emitter.carry = True
                read.append("cm_cc")
                continue
            if not operands:
                if not slot.optional:
                    raise self._miscounted(form)
                continue
            left = sum(not other.optional and other.type != "cc" for other in form.slots[at + 1 :])
            if slot.optional and len(operands) <= left:
                continue
            term = operands.pop(0)
            if slot.placed:
                read += self._places(term, slot, choices)
            elif slot.written:
                written += self._targets(term, slot, choices)
            elif slot.type != "policy":
                read += self._values(term, slot, choices)
            else:
                self._value(term, 64)
        if operands:
            raise self._miscounted(form)
        if len(written) != 1:
            return self._named(form, [*read, *(self._not_sink(target) for target in written)]) + ";"
        call = self._named(form, read)
        if written[0] == "_":
            return f"(void){call};"
        return f"{written[0]} = static_cast<decltype({written[0]})>({call});"

    def _miscounted(self, form: Form) -> _Mismatch:
        due = [slot for slot in form.slots if slot.type != "cc"]
        least = sum(not slot.optional for slot in due)
        counts = f"{least}" if least == len(due) else f"{least} to {len(due)}"
        return _Mismatch(f"operands: {counts} due, {len(self.instruction.operands)} given")

    def _named(self, form: Form, arguments: list[str]) -> str:
        tags = [f"cm_ptx::t_{_identifier(word)}" for word in self.instruction.words[form.words :]]
        function = f"{form.function}_" if form.function in _CPP_WORDS else form.function
        return f"cm_ptx::{function}<{', '.join(tags)}>({', '.join(arguments)})"

    def _targets(self, term: Term, slot: Slot, choices: Mapping[str, str | None]) -> list[str]:
        if isinstance(term, Pair):
            if not slot.second:
                raise _Mismatch
            return [
                self._not_sink(self._target(term.first, _width(slot, choices))),
                self._not_sink(self._target(term.second, WIDTHS[slot.second])),
            ]
        if slot.second and not slot.second_optional:
            raise _Mismatch
        terms = _elements(term, slot, choices)
        width = _width(slot, choices)
        return [self._target(one, width, wider=slot.wider) for one in terms]

    def _places(self, term: Term, slot: Slot, choices: Mapping[str, str | None]) -> list[str]:
        """Accumulators that an instruction writes after it: variables of the source, that live on."""
        found = []
        for one in _elements(term, slot, choices):
            if not isinstance(one, Given):
                raise Unsupported("wgmma with accumulators that are no asm operands", self.instruction.line)
            operand = self.emitter.statement.operands[one.number]
            if not operand.written or _OPERAND_WIDTHS[operand.constraint] != 32:
                raise _Mismatch
            found.append(f"cm_ptx::place_of(cm_out_{one.number})")
        return found

    def _values(self, term: Term, slot: Slot, choices: Mapping[str, str | None]) -> list[str]:
        if slot.type == "[]":
            if not isinstance(term, Address) or (term.coordinates is None) != (not slot.count):
                raise _Mismatch
            return [self._address(term), *self._coordinates(term, slot, choices)]
        if slot.type == "imm":
            if isinstance(term, Integer):
                return [str(term.value)]
            if isinstance(term, Given) and self._given(term).width is None:
                return [self._given(term).name]
            raise _Mismatch
        kind = _type(slot, choices)
        width = _width(slot, choices)
        return [self._value(one, width, kind=kind, wider=slot.wider) for one in _elements(term, slot, choices)]

    def _coordinates(self, address: Address, slot: Slot, choices: Mapping[str, str | None]) -> list[str]:
        if address.coordinates is None:
            return []
        elements = address.coordinates.elements
        if f".{len(elements)}d" != choices[slot.count]:
            raise _Mismatch(f"{choices[slot.count]} and {len(elements)} coordinates")
        return [f"cm_ptx::Coordinates{{{{{', '.join(self._value(one, 32, kind='s32') for one in elements)}}}}}"]

    def _given(self, term: Given) -> _Variable:
        operand = self.emitter.statement.operands[term.number]
        return _Variable(f"cm_{term.number}", _OPERAND_WIDTHS.get(operand.constraint))

    def _variable(self, term: Term) -> _Variable | None:
        if isinstance(term, Given):
            return self._given(term)
        if isinstance(term, Name):
            known = self.known.get(term.text)
            if isinstance(known, _Variable):
                return known
            if term.text in _SPECIAL:
                return None
            raise self._error(f"Unknown symbol '{term.text}'")
        return None

    def _register(self, term: Term, width: int, *, wider: bool = False) -> str:
        variable = self._variable(term)
        if variable is None or variable.width is None:
            raise _Mismatch
        if variable.width != width and not (wider and variable.width > max(width, 1)):
            raise _Mismatch(f"{_shown(term)} is {_kind(variable.width)}, where {_kind(width)} is due")
        return variable.name

    def _target(self, term: Term, width: int, *, wider: bool = False) -> str:
        if isinstance(term, Name) and term.text == "_":
            return "_"
        return self._register(term, max(width, 16) if wider and width > 1 else width, wider=wider)

    def _not_sink(self, target: str) -> str:
        return "cm_ptx::Sink{}" if target == "_" else target

    def _value(self, term: Term, width: int, *, kind: str = "", wider: bool = False) -> str:
        if isinstance(term, Not):
            if width != 1:
                raise _Mismatch
            return "!" + self._predicate(term.term)
        if isinstance(term, Integer):
            return self._constant(term.value, width, kind)
        if isinstance(term, Real):
            if kind not in _FLOATS and width not in (32, 64):
                raise _Mismatch
            return f"cm_ptx::B{width}(0x{term.as_bits(width):x}ull)"
        if isinstance(term, Name) and term.text in _SPECIAL and term.text not in self.known:
            if _SPECIAL[term.text] != width:
                raise _Mismatch
            return f"cm_ptx::special_{term.text[1:].replace('.', '_')}()"
        variable = self._variable(term) if isinstance(term, Given | Name) else None
        if variable is None:
            raise _Mismatch
        if variable.width is None:
            return f"cm_ptx::B{width}({variable.name})" if width > 1 else f"({variable.name} != 0)"
        name = self._register(term, width, wider=wider)
        return name if variable.width == width else f"cm_ptx::B{width}({name})"

    @staticmethod
    def _constant(value: int, width: int, kind: str) -> str:
        if width == 1:
            return "true" if value else "false"
        if kind in _FLOATS:
            raise _Mismatch
        return f"cm_ptx::B{width}(0x{value % (1 << min(width, 64)):x}ull)"

    def _predicate(self, term: Term) -> str:
        try:
            return self._register(term, 1)
        except _Mismatch:
            raise self._error("a predicate register is expected here") from None

    def _address(self, address: Address) -> str:
        """The sum as 64 bits, computed in the width of its register."""
        parts: list[str] = []
        width = 64
        for sign, term in address.terms:
            if isinstance(term, Integer):
                value = f"cm_ptx::B64(0x{sign * term.value % (1 << 64):x}ull)"
            else:
                variable = self._variable(term)
                if variable is None or variable.width not in (None, 32, 64):
                    raise _Mismatch
                if variable.width == 32:
                    width = 32
                value = f"{'-' if sign < 0 else ''}cm_ptx::B64({variable.name})"
            parts.append(value)
        total = " + ".join(parts)
        return f"cm_ptx::B64(cm_ptx::B32({total}))" if width == 32 else f"({total})"


def _shown(term: Term) -> str:
    return f"%{term.number}" if isinstance(term, Given) else term.text if isinstance(term, Name) else "an operand"


def _kind(width: int) -> str:
    return "a predicate" if width == 1 else f"a register of {width} bits"


def _identifier(word: str) -> str:
    return word.replace("::", "_")


def _type(slot: Slot, choices: Mapping[str, str | None]) -> str:
    return slot.type if slot.type in WIDTHS else (choices[slot.type] or "").lstrip(".")


def _width(slot: Slot, choices: Mapping[str, str | None]) -> int:
    return WIDTHS[_type(slot, choices)] * (2 if slot.twice else 1)


def _elements(term: Term, slot: Slot, choices: Mapping[str, str | None]) -> tuple[Term, ...]:
    """The registers of an operand: those of its vector, or the one that it is."""
    wanted = 1
    if slot.count:
        count = slot.count if slot.count.isdigit() else (choices[slot.count] or "1").lstrip(".vx")
        wanted = _accumulators(count, _type(slot, choices)) if slot.placed else int(count)
    terms = term.elements if isinstance(term, Vector) else (term,)
    if len(terms) != wanted or (isinstance(term, Vector) and not slot.count):
        raise _Mismatch(f"registers of an operand: {wanted} due, {len(terms)} given")
    return terms


def _accumulators(shape: str, kind: str) -> int:
    """How many registers of a thread the accumulators of a warpgroup's product are."""
    columns = int(shape.split("n")[1].split("k")[0])
    return columns // 4 if kind == "f16" else columns // 2


def emitted(statement: Statement) -> str:
    """The C++ of a statement, on one line, without a semicolon."""
    return _Emitter(statement).run()


def names_of_tags() -> Iterator[str]:
    """All modifiers that a form may have, as C++ names them."""
    seen: set[str] = set()
    for those in forms().values():
        for form in those:
            for word in form.modifiers:
                if word not in seen:
                    seen.add(word)
                    yield _identifier(word)
