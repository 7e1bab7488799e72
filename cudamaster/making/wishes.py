"""What a user says of a kernel that its text does not tell: options of `cudamaster new`, read and checked."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cudamaster.core.errors import UsageError
from cudamaster.core.expressions import ExpressionError, Number, evaluate, parse
from cudamaster.core.values import Precision

Case = Mapping[str, Number]


@dataclass(frozen=True)
class Wishes:
    """The options. Lengths and ranges are texts by the parameter's name; cases are sizes by name."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inouts: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    check_cases: tuple[Case, ...] = ()
    fixed: tuple[str, ...] = ()
    multiples: Mapping[str, int] = field(default_factory=dict)
    weight: str | None = None
    operations: str | None = None
    bytes_read: str | None = None
    precision: Precision | None = None

    @property
    def names(self) -> list[str]:
        """Every parameter that an option names, in the options' order."""
        cases = [name for case in (*self.cases, *self.check_cases) for name in case]
        return [*self.inputs, *self.outputs, *self.inouts, *self.scratch, *self.lengths, *self.ranges, *cases,
                *self.fixed, *self.multiples]  # fmt: skip


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE of a repeatable option. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name.isidentifier() and equals and value):
            raise UsageError(f"{option} {text!r} is not of the form NAME=VALUE.", f"Write {option} x=..., say.")
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} says two things of {name}.", "Leave one out.")
    return found


def case(option: str, text: str) -> dict[str, Number]:
    """The sizes of `N=1024,C=2**9`. Raises UsageError."""
    try:
        return {name: evaluate(value, {}) for name, value in pairs(option, text.split(",")).items()}
    except ExpressionError as error:
        raise UsageError(f"{option} {text!r}: {error}.", "Give each size a number: N=1024,C=512.") from error


def whole_numbers(option: str, given: Iterable[str]) -> dict[str, int]:
    """NAME=K with whole numbers from 2 on. Raises UsageError."""
    found = pairs(option, given)
    if wrong := next((name for name, value in found.items() if not value.isdecimal() or int(value) < 2), None):
        raise UsageError(
            f"{option} {wrong}={found[wrong]} is no whole number from 2 on.", f"Write {option} {wrong}=16."
        )
    return {name: int(value) for name, value in found.items()}


def bounds(option: str, text: str) -> tuple[bool, str, str]:
    """Of `low:high` or `ints:low:high`: whether it says ints, and the bounds, which are expressions. Raises
    UsageError."""
    parts = [part.strip() for part in text.split(":")]
    ints = parts[0] == "ints" and len(parts) == 3
    if ints:
        parts = parts[1:]
    try:
        if len(parts) == 2 and all(parse(part) for part in parts):
            return ints, parts[0], parts[1]
    except ExpressionError:
        pass
    raise UsageError(f"{option}={text} is no range.", "Write low:high, or ints:low:high for whole numbers.")


def factors(option: str, text: str) -> tuple[str, ...] | str:
    """A length, an expression as it stands; of `[N, C]` the extents of a shape. Raises UsageError."""
    fix = "Write an expression over the int parameters, such as N*C, or a shape, such as [N, C]."
    try:
        tree = parse(text)
    except ExpressionError as error:
        raise UsageError(f"{option}={text}: {error}.", fix) from error
    if isinstance(tree, ast.List):
        return tuple(ast.unparse(each) for each in tree.elts)
    return ast.unparse(tree)


def named_in(text: str) -> list[str]:
    """Names in an expression, in its order, without functions."""
    tree = parse(text)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions]
    return list(dict.fromkeys(found))


def product(extents: Sequence[str]) -> str:
    """The product of expressions, as an expression."""
    return " * ".join(each if _is_factor(each) else f"({each})" for each in extents) or "1"


def total(terms: Sequence[tuple[str, str]]) -> str:
    """The sum of products of a length and a unit, equal ones counted: "2 * N * C * element_bytes + 4 * N"."""
    counted: dict[tuple[str, str], int] = {}
    for term in terms:
        counted[term] = counted.get(term, 0) + 1
    written = []
    for (length, unit), count in counted.items():
        number = count * int(unit) if unit.isdecimal() else count
        rest = [] if unit.isdecimal() else [unit]
        parts = [length for length in (length,) if length != "1"] + rest
        written.append(product([*([str(number)] if number > 1 or not parts else []), *parts]))
    return " + ".join(written) or "0"


def _is_factor(text: str) -> bool:
    match parse(text):
        case ast.Constant() | ast.Name() | ast.Call() | ast.BinOp(op=ast.Mult() | ast.Pow()):
            return True
    return False
