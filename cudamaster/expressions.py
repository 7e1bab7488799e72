"""The small integer expressions of task cards: evaluated here, and written out as C for the harness.

Allowed: numbers, names, + - * // **, max(), min(), log2(), isqrt() (the root of an integer, rounded down). `//` is
floor division of non-negative integers.
Nothing else parses, so a card cannot run code.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from functools import lru_cache

Number = int | float

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Number, Number], Number]]] = {
    ast.Add: ("+", lambda a, b: a + b),
    ast.Sub: ("-", lambda a, b: a - b),
    ast.Mult: ("*", lambda a, b: a * b),
    ast.FloorDiv: ("/", lambda a, b: a // b),
}
_CALLS: dict[str, tuple[str, Callable[..., Number]]] = {
    "max": ("std::max<long long>", max),
    "min": ("std::min<long long>", min),
    "log2": ("std::log2", math.log2),
    "isqrt": ("mskb::isqrt", math.isqrt),
}


class ExpressionError(ValueError):
    """An expression that does not parse, uses what is not allowed, or names what is not there."""


@lru_cache(maxsize=4096)  # a card evaluates the same few expressions for every case
def parse(text: str) -> ast.expr:
    """Parse one expression; raises ExpressionError naming the offending part."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is no expression: {error.msg}") from error


def evaluate(text: str, names: Mapping[str, Number]) -> Number:
    """Value of the expression with `names` bound."""

    def value(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Name(id=name):
                raise ExpressionError(f"{text!r} names {name!r}; known are {', '.join(sorted(names))}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power < 64:
                result: Number = value(left) ** power
                return result
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)][1](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
                return _CALLS[name][1](*(value(argument) for argument in arguments))
        raise ExpressionError(f"{text!r}: {ast.unparse(node)!r} is not allowed in a card's expression")

    try:
        return value(parse(text))
    except (ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"{text!r} has no value: {error}") from error


def to_c(text: str, prefix: Mapping[str, str]) -> str:
    """The expression as C; `prefix` maps each name to the C expression that holds it (as long long)."""

    def written(node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int() | float() as number):
                return repr(number)
            case ast.Name(id=name) if name in prefix:
                return prefix[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"-{written(operand)}"
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
                return "(" + " * ".join([written(left)] * power) + ")"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return f"({written(left)} {_BINARY[type(op)][0]} {written(right)})"
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in _CALLS:
                return f"{_CALLS[name][0]}({', '.join(written(argument) for argument in arguments)})"
        raise ExpressionError(f"{text!r}: {ast.unparse(node)!r} cannot be written as C")

    text_in_c = written(parse(text))
    return text_in_c[1:-1] if text_in_c.startswith("(") and _wraps(text_in_c) else text_in_c


def call(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `name(argument, ...)` into the name and its arguments' texts; for input generators."""
    match parse(text):
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name, tuple(ast.unparse(argument) for argument in arguments)
    raise ExpressionError(f"{text!r} is not of the form generator(argument, ...)")


def _wraps(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False
