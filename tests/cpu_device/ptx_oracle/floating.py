"""Arithmetic on floating types: what is rounded once, and what may be approximate."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from .formats import INF, NAN, WIDTHS, Near, Real, finish, from_float, from_one, mode_of, rounded


def arithmetic(name: str, words: tuple[str, ...], kind: str, operands: list[int]) -> int | str:
    """add, sub, mul, fma, div, rcp and sqrt, rounded once."""
    ftz = "ftz" in words and kind != "bf16"
    values = [Real(bits, kind, ftz=ftz) for bits in operands]
    if name == "sub":
        values[1].negative, values[1].value = not values[1].negative, -values[1].value
    if name == "rcp":
        values = [Real(from_one(kind), kind), *values]
    mode = mode_of(words)
    if any(value.nan or value.inf for value in values) or (name in ("div", "rcp") and values[1].zero):
        return finish(from_float(special(name, [value.float() for value in values]), kind), kind, words)
    if name == "sqrt":
        return finish(square_root(values[0], kind, mode), kind, words)
    a, b = values[0], values[1]
    if name in ("add", "sub"):
        exact, same = a.value + b.value, a.negative == b.negative
        negative = a.negative if same else mode == "rm"
    elif name in ("mul", "div", "rcp"):
        exact = a.value * b.value if name == "mul" else a.value / b.value
        negative = a.negative != b.negative
    else:
        c = values[2]
        product, sign = a.value * b.value, a.negative != b.negative
        exact = product + c.value
        negative = sign if sign == c.negative else mode == "rm"
        if exact == 0 and product != 0:
            negative = mode == "rm"
    return finish(rounded(exact, kind, mode, negative=negative), kind, words)


def special(name: str, values: list[float]) -> float:
    """Of infinities, NaN and divisions by zero: the sign and kind of the result."""
    if any(math.isnan(value) for value in values):
        return math.nan
    signs = [math.copysign(1, value) for value in values]
    # What is finite counts by its sign and whether it is zero alone: nothing overflows meanwhile.
    small = [value if math.isinf(value) or value == 0 else sign for value, sign in zip(values, signs, strict=True)]
    if name == "sqrt":
        return small[0] if small[0] > 0 else math.nan
    if name in ("add", "sub"):
        return small[0] + small[1]
    if name == "mul":
        return small[0] * small[1]
    if name in ("div", "rcp"):
        if small[1] == 0:
            return math.nan if small[0] == 0 else signs[0] * signs[1] * INF
        return small[0] / small[1]
    return small[0] * small[1] + small[2]


def square_root(value: Real, kind: str, mode: str) -> int | str:
    if value.zero:
        return rounded(Fraction(0), kind, "rn", negative=value.negative)
    if value.negative:
        return from_float(math.nan, kind)
    # So many bits that the rest can only tell on which side of a tie it lies.
    shift = 200 + (value.value.denominator.bit_length() // 2) * 2
    scaled = value.value * Fraction(4) ** shift
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(whole, 2**shift)
    if exact * exact != value.value:
        exact += Fraction(1, 2 ** (shift + 1))
    return rounded(exact, kind, mode)


APPROXIMATE = {
    "rcp": (lambda x: 1 / x if x else math.copysign(INF, x), 2**-22),
    "sqrt": (lambda x: math.sqrt(x) if x >= 0 else math.nan, 2**-22),
    "rsqrt": (lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(INF, x) if x == 0 else math.nan, 2**-21),
    "lg2": (lambda x: math.log2(x) if x > 0 else -INF if x == 0 else math.nan, 2**-21),
    "ex2": (lambda x: 2.0**x if x < 1000 else INF, 2**-21),
    "sin": (math.sin, 0.0),
    "cos": (math.cos, 0.0),
    "tanh": (math.tanh, 2**-10),
}


def approximate(name: str, words: tuple[str, ...], kind: str, bits: int) -> Near | int | str:
    value = Real(bits, kind, ftz="ftz" in words).float()
    if math.isnan(value) or (math.isinf(value) and name in ("sin", "cos")):
        return NAN[kind]
    function, relative = APPROXIMATE[name]
    if name in ("sin", "cos"):
        # Beyond 100 pi the manual gives no bound.
        bound = 2**-20.5 if abs(value) <= 2 * math.pi else 2**-14.7 if abs(value) <= 100 * math.pi else 2.0
        return Near(function(value), kind, relative, bound)
    if math.isinf(value):
        negative = {"rcp": -0.0, "ex2": 0.0, "tanh": -1.0}.get(name, math.nan)
        positive = {"rcp": 0.0, "rsqrt": 0.0, "tanh": 1.0}.get(name, INF)
        result = positive if value > 0 else negative
    else:
        result = function(value)
    return Near(result, kind, relative if kind == "f32" else 2**-7 if kind == "bf16" else 2**-9)


def quotient(words: tuple[str, ...], operands: list[int]) -> Near | int | None:
    b = Real(operands[1], "f32")
    exact = arithmetic("div", ("rn",), "f32", operands)
    if abs(b.value) > Fraction(2) ** 126 and not b.inf:
        return None  # .approx gives zero there
    result = struct.unpack("<f", struct.pack("<I", exact))[0]
    return exact if math.isnan(result) else Near(result, "f32", 2**-21)


def signs(name: str, words: tuple[str, ...], kind: str, bits: int) -> int | str:
    sign = 1 << (WIDTHS[kind] - 1)
    real = Real(bits, kind)
    if real.nan:
        return from_float(math.nan, kind)
    if "ftz" in words and real.subnormal:
        bits &= sign
    return bits & (sign - 1) if name == "abs" else bits ^ sign
