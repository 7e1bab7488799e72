"""The small integer expressions of task cards: evaluated here, and translated to C for the harness.

Allowed: numbers, names, + - * // **, max(), min(), log2(), isqrt() (the root of an integer, rounded down). `//` rounds
down and takes no negative numbers, a power is a small constant.
Nothing else parses, so a card cannot run code. Every intermediate value fits C's long long or is a finite double, so
the result here is the one that the harness computes.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce

Number = int | float
_Computation = Callable[[Mapping[str, Number]], Number]

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Number, Number], Number]]] = {
    ast.Add: ("+", lambda a, b: a + b),
    ast.Sub: ("-", lambda a, b: a - b),
    ast.Mult: ("*", lambda a, b: a * b),
    ast.FloorDiv: ("/", lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else float(math.floor(a / b))),
}
_CALLS: dict[str, tuple[str, Callable[..., Number]]] = {
    "max": ("std::max", max),
    "min": ("std::min", min),
    "log2": ("std::log2", math.log2),
    "isqrt": ("mskb::isqrt", math.isqrt),
}
# Words of Python alone: in C they are names as any other, and `in` is a common one.
_OF_PYTHON = re.compile(
    r"\b(as|assert|async|await|def|del|elif|except|finally|from|global|import|in|is|lambda|nonlocal|pass|raise|with|yield)\b"
)
_MARK = "_of_python"
_LONGEST = 400  # characters of an expression; a formula of a card has half of that
_DEEPEST = 40
_LARGEST_POWER = 63
_LONG_LONG = 2**63


class ExpressionError(ValueError):
    """An expression that does not parse, uses something that is not allowed, or uses an unknown name.

    `text` is the expression. `unknown` is the name that is unknown, and `known` are those that it could be.
    """

    def __init__(self, text: str, problem: str, unknown: str | None = None, known: Iterable[str] = ()) -> None:
        super().__init__(f"{text[:_LONGEST]!r} {problem}")
        self.text, self.unknown, self.known = text, unknown, tuple(sorted(known))


@lru_cache(maxsize=4096)  # a card evaluates the same few expressions for every case
def parse(text: str) -> ast.expr:
    """Parse one expression; raises ExpressionError naming the offending part."""
    if len(text) > _LONGEST:
        raise ExpressionError(text[:40], f"... has {len(text)} characters, an expression has at most {_LONGEST}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python finds odd, `1if 2else 3` say, is refused later
            tree = _parsed(text)
    except SyntaxError as error:
        raise ExpressionError(text, f"is not an expression: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(text, f"is not an expression: {error}") from error
    if _depth(tree) > _DEEPEST:
        raise ExpressionError(text, f"is nested more than {_DEEPEST} deep")
    return tree


def _parsed(text: str) -> ast.expr:
    """The expression as Python reads it, but for words that are none of Python's here."""
    tree = ast.parse(_OF_PYTHON.sub(rf"\1{_MARK}", text), mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removesuffix(_MARK)
    return tree


def evaluate(text: str, names: Mapping[str, Number]) -> Number:
    """Value of the expression with `names` bound; a number that C can hold, or ExpressionError."""
    try:
        return _computation(text)(names)
    except (ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(text, f"has no value: {error}") from error


@lru_cache(maxsize=4096)
def _computation(text: str) -> _Computation:
    """The expression as a function of the names' values. What is wrong with a part is raised when that is computed."""

    def value(node: ast.expr) -> _Computation:
        compute = computed(node)

        def held(names: Mapping[str, Number]) -> Number:
            found = compute(names)
            if not _held_by_c(found):
                raise ExpressionError(text, "exceeds the numbers that the harness computes with")
            return found

        return held

    def computed(node: ast.expr) -> _Computation:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return lambda _names: number
            case ast.Name(id=name):
                return partial(_named, text, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = value(operand)
                return lambda names: -negated(names)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if _open(power):
                base = value(left)
                return lambda names: base(names) ** power
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return partial(_divided, text, value(left), value(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                first, second, combine = value(left), value(right), _BINARY[type(op)][1]
                return lambda names: combine(first(names), second(names))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
                return partial(_called, _CALLS[name][1], tuple(map(value, arguments)))
        return partial(_refused, text, node)

    return value(parse(text))


def _named(text: str, name: str, names: Mapping[str, Number]) -> Number:
    if name in names:
        return names[name]
    raise _unknown(text, name, names)


def _divided(text: str, left: _Computation, right: _Computation, names: Mapping[str, Number]) -> Number:
    first, second = left(names), right(names)
    if min(first, second) < 0:
        raise ExpressionError(text, "divides a negative number, which C rounds the other way")
    return _BINARY[ast.FloorDiv][1](first, second)


def _called(function: Callable[..., Number], arguments: Sequence[_Computation], names: Mapping[str, Number]) -> Number:
    values = [argument(names) for argument in arguments]
    if any(isinstance(one, float) for one in values):  # in C, all become doubles
        values = [float(one) for one in values]
    return function(*values)


def _refused(text: str, node: ast.expr, _names: Mapping[str, Number]) -> Number:
    raise ExpressionError(text, f"has {ast.unparse(node)!r}, which is not allowed in a card's expression")


def to_c(text: str, prefix: Mapping[str, str], real: Collection[str] = ()) -> str:
    """The expression as C.

    `prefix` maps each name to the C expression that holds it, as a double if the name is in `real`, otherwise as long
    long. Raises ExpressionError if it is not an expression of a card.
    """

    def whole(node: ast.expr) -> bool:
        return not any(
            (isinstance(part, ast.Name) and (part.id in real or part.id == "log2"))
            or (isinstance(part, ast.Constant) and isinstance(part.value, float))
            for part in ast.walk(node)
        )

    def written(node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and _held_by_c(number):
                return repr(number)
            case ast.Name(id=name) if name in prefix:
                return prefix[name]
            case ast.Name(id=name) if name not in _CALLS:
                raise _unknown(text, name, prefix)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = written(operand)
                return f"-({negated})" if negated.startswith("-") else f"-{negated}"
            case ast.BinOp() if whole(node) and not any(isinstance(part, ast.Name) for part in ast.walk(node)):
                return repr(evaluate(ast.unparse(node), {}))  # C would compute it in int
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if _open(power):
                base = written(left)
                if len(base) * power > 10 * _LONGEST:
                    raise ExpressionError(text, "has powers of powers that are too long to write out")
                return "(" + " * ".join([base] * power) + ")"
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) if not whole(node):
                return f"std::floor({written(left)} / static_cast<double>({written(right)}))"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return f"({written(left)} {_BINARY[type(op)][0]} {written(right)})"
            case ast.Call(func=ast.Name(id="max" | "min" as name), args=arguments, keywords=[]) if arguments:
                function = f"{_CALLS[name][0]}<{'long long' if whole(node) else 'double'}>"
                return reduce(lambda first, second: f"{function}({first}, {second})", map(written, arguments))
            case ast.Call(func=ast.Name(id="log2" | "isqrt" as name), args=[argument], keywords=[]):
                return f"{_CALLS[name][0]}({written(argument)})"
        raise ExpressionError(text, f"has {ast.unparse(node)!r}, which cannot be written as C")

    text_in_c = written(parse(text))
    return text_in_c[1:-1] if text_in_c.startswith("(") and _wraps(text_in_c) else text_in_c


@lru_cache(maxsize=4096)
def call(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `name(argument, ...)` into the name and its arguments' texts; for input generators."""
    match parse(text):
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name, tuple(ast.unparse(argument) for argument in arguments)
    raise ExpressionError(text, "is not of the form generator(argument, ...)")


def _unknown(text: str, name: str, known: Iterable[str]) -> ExpressionError:
    return ExpressionError(text, f"names {name!r}; known are {', '.join(sorted(known)) or 'none'}", name, known)


def _open(power: int) -> bool:
    return not isinstance(power, bool) and 0 < power <= _LARGEST_POWER


def _held_by_c(number: Number) -> bool:
    return abs(number) < _LONG_LONG if isinstance(number, int) else math.isfinite(number)


def _depth(node: ast.AST) -> int:
    depth, level = 0, [node]
    while level:
        depth, level = depth + 1, [child for parent in level for child in ast.iter_child_nodes(parent)]
    return depth


def _wraps(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False
