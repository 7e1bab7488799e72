"""Conversions between types."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache

from .formats import (
    FORMATS,
    NAN,
    WIDTHS,
    Real,
    clamp,
    cut,
    finish,
    from_float,
    is_integer,
    mode_of,
    number,
    rounded,
    signed,
)


def converted(words: tuple[str, ...], operands: list[int]) -> int | str:
    to, origin = words[-2], words[-1]
    bits = operands[0]
    if len(operands) > 1 and to in ("f16x2", "bf16x2"):
        return limited(words, to[:-2], operands[0]) << 16 | limited(words, to[:-2], operands[1])
    if to in ("e4m3x2", "e5m2x2"):
        if origin == "f32":
            parts = [Real(one, "f32") for one in operands]
        else:
            parts = [Real(bits >> 16, "f16"), Real(bits & 0xFFFF, "f16")]
        return eight(parts[0], to, words) << 8 | eight(parts[1], to, words)
    if origin in ("e4m3x2", "e5m2x2"):
        return from_eight(bits >> 8 & 255, origin, words) << 16 | from_eight(bits & 255, origin, words)
    if to in ("tf32", "bf16", "f16") and ("relu" in words or to == "tf32" or "satfinite" in words):
        return limited(words, to, bits)
    rounding = next((word for word in words if word in ("rni", "rzi", "rmi", "rpi")), "")
    if is_integer(origin):
        value = number(bits, origin)
        if is_integer(to):
            return wide(cut(clamp(value, to) if "sat" in words else value, to), to)
        return finish(rounded(Fraction(value), to, mode_of(words)), to, words)
    real = Real(bits, origin, ftz="ftz" in words and origin == "f32")
    if is_integer(to):
        if real.nan:
            return 1 << 63 if WIDTHS[to] == 64 else 1 << 31 if (origin, WIDTHS[to]) == ("f64", 32) else 0
        if real.inf:
            return wide(cut(clamp(-(1 << 70) if real.negative else 1 << 70, to), to), to)
        return wide(cut(clamp(int(integer_part(real, rounding)), to), to), to)
    if real.nan and "sat" not in words and (origin, to) != ("f64", "f64"):
        kept = kept_nan(bits, origin, to, ftz="ftz" in words)
        if kept is not None:
            return kept
    if real.nan or real.inf:
        return finish(from_float(real.float(), to), to, words)
    exact = integer_part(real, rounding) if rounding else real.value
    return finish(rounded(exact, to, mode_of(words), negative=real.negative), to, words)


def integer_part(value: Real, mode: str) -> Fraction:
    exact = value.value
    floor = exact.numerator // exact.denominator
    rest = exact - floor
    if mode in ("rmi", "rm"):
        return Fraction(floor)
    if mode in ("rpi", "rp"):
        return Fraction(floor + (rest > 0))
    if mode in ("rzi", "rz"):
        return Fraction(floor + (rest > 0 and exact < 0))
    return Fraction(floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1)))


def kept_nan(bits: int, origin: str, to: str, *, ftz: bool) -> int | None:
    """A NaN after a conversion, where an H200 keeps its sign and its upper bits; quiet, but for one of bf16."""
    if (origin, to) == ("bf16", "f32"):
        return bits << 16
    if "f64" not in (origin, to):
        return None
    if ftz and origin == "f32":
        bits = 0x7FFFFFFF  # a step of its own, before
    (places, width), (to_places, to_width) = ((FORMATS[kind][0] - 1, WIDTHS[kind]) for kind in (origin, to))
    fraction = bits & ((1 << places) - 1) | 1 << (places - 1)
    moved = fraction << (to_places - places) if to_places > places else fraction >> (places - to_places)
    ones = (1 << (to_width - 1)) - (1 << to_places)
    return (bits >> (width - 1)) << (to_width - 1) | ones | moved


def wide(bits: int, kind: str) -> int:
    """An 8-bit result in a register of 16 bits."""
    return signed(bits, 8) & 0xFFFF if kind == "s8" else bits


def limited(words: tuple[str, ...], to: str, bits: int) -> int:
    real = Real(bits, "f32")
    if real.nan and to == "tf32":
        # With .rna an H200 rounds and limits NaN as if it were a number, otherwise it gives one pattern: the manual has
        # 0x7fffffff, of which TF32 leaves the lower bits open.
        number = (bits & 0x7FFFFFFF) + 0x1000 & 0xFFFFE000
        number -= 0x2000 if "satfinite" in words else 0
        return bits & 0x80000000 | number if "rna" in words else 0x7FFFE000
    if real.nan:
        return NAN[to]
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000}[to]
    last = {"f16": 1, "bf16": 1, "tf32": 1 << 13}[to]
    sign = 1 << (WIDTHS[to] - 1)
    result = infinity if real.inf else rounded(abs(real.value), to, mode_of(words))
    if "satfinite" in words and result == infinity:
        result -= last
    if real.negative:
        return 0 if "relu" in words else sign | result
    return result


def eight(real: Real, to: str, words: tuple[str, ...]) -> int:
    if real.nan:
        return 0x7F
    if real.negative and "relu" in words:
        return 0
    table = sizes(to)
    size = min(abs(real.value), table[-1])
    pattern = bisect_left(table, size)
    if table[pattern] != size:
        low, high = size - table[pattern - 1], table[pattern] - size
        pattern -= low < high or (low == high and pattern % 2 == 1)
    return (0x80 if real.negative else 0) | pattern


@cache
def sizes(kind: str) -> list[Fraction]:
    """What the finite patterns of 8 bits stand for, in their order."""
    bits, bias, patterns = (3, 7, 0x7F) if kind == "e4m3x2" else (2, 15, 0x7C)
    table = []
    for pattern in range(patterns):
        exponent, fraction = pattern >> bits, pattern & ((1 << bits) - 1)
        whole = fraction + (1 << bits) if exponent else fraction
        table.append(Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - bits))
    return table


def from_eight(pattern: int, origin: str, words: tuple[str, ...]) -> int:
    size = pattern & 0x7F
    if size == 0x7F or (origin == "e5m2x2" and size > 0x7C):
        return 0x7FFF
    if pattern & 0x80 and "relu" in words:
        return 0
    sign = 0x8000 if pattern & 0x80 else 0
    if origin == "e5m2x2" and size == 0x7C:
        return sign | 0x7C00
    return sign | rounded(sizes(origin)[size], "f16", "rn")


def packed(words: tuple[str, ...], operands: list[int]) -> int:
    kind = words[2]
    parts = [cut(clamp(signed(bits, 32), kind), kind) for bits in operands[:2]]
    width = WIDTHS[kind]
    both = parts[0] << width | parts[1]
    return (operands[2] << 16 | both) & 0xFFFFFFFF if width == 8 else both
