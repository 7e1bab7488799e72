"""Numbers of integer and floating types, exact: from bits, and rounded to bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "s16x2": 32, "u16x2": 32, "tf32": 32}
WIDTHS |= {f"{kind}{width}": width for kind in "bsu" for width in (8, 16, 32, 64)}
WIDTHS |= {"e4m3x2": 16, "e5m2x2": 16}
# Bits of precision, least and greatest exponent.
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
FORMATS["tf32"] = (11, -126, 127)
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
INF, ANY_NAN = math.inf, "nan"


@dataclass(frozen=True)
class Near:
    """A result of floating point that may be off by so much, relative to it and at least to the smallest normal."""

    value: float
    kind: str
    relative: float
    absolute: float = 0.0


def signed(bits: int, width: int) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def number(bits: int, kind: str) -> int:
    """An integer operand as its type reads it."""
    width = WIDTHS[kind]
    return signed(bits, width) if kind[0] == "s" else bits & ((1 << width) - 1)


def cut(value: int, kind: str) -> int:
    return value & ((1 << WIDTHS[kind]) - 1)


def clamp(value: int, kind: str) -> int:
    width = WIDTHS[kind]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return max(low, min(high, value))


def is_integer(kind: str) -> bool:
    return kind[0] in "bsu" and kind[1].isdigit()


class Real:
    """A value of floating point: a fraction with a sign, an infinity, or NaN."""

    def __init__(self, bits: int, kind: str, *, ftz: bool = False) -> None:
        precision, least, greatest = FORMATS[kind]
        width = WIDTHS[kind]
        fraction_bits = precision - 1
        bits &= (1 << width) - 1
        self.negative = bool(bits >> (width - 1))
        exponent = bits >> fraction_bits & ((1 << (width - 1 - fraction_bits)) - 1)
        fraction = bits & ((1 << fraction_bits) - 1)
        self.subnormal = exponent == 0 and fraction != 0
        self.nan = exponent == greatest - least + 2 and fraction != 0
        self.inf = exponent == greatest - least + 2 and fraction == 0
        if exponent:
            fraction += 1 << fraction_bits
        elif ftz:
            fraction = 0
        size = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - 1 + least - fraction_bits)
        self.value = -size if self.negative else size
        self.zero = size == 0 and not self.nan and not self.inf

    def float(self) -> float:
        """As a double."""
        if self.nan:
            return math.nan
        if self.inf:
            return -INF if self.negative else INF
        if self.zero:
            return -0.0 if self.negative else 0.0
        return float(self.value)


def rounded(value: Fraction, kind: str, mode: str, *, negative: bool = False) -> int:
    """The pattern that a fraction rounds to; `negative` is the sign of a zero."""
    precision, least, greatest = FORMATS[kind]
    width = WIDTHS[kind]
    sign = 1 << (width - 1)
    if value == 0:
        return sign if negative else 0
    minus, size = value < 0, abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, least)
    scaled = size / Fraction(2) ** (exponent - precision + 1)
    kept = scaled.numerator // scaled.denominator
    rest = scaled - kept
    away = {"rp": not minus, "rm": minus}.get(mode, False)
    if mode == "rn":
        kept += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2 == 1)
    elif mode == "rna":
        kept += rest >= Fraction(1, 2)
    elif away and rest:
        kept += 1
    if kept >> precision:
        kept, exponent = kept >> 1, exponent + 1
    if exponent > greatest:
        infinity = (greatest - least + 2) << (precision - 1)
        bits = infinity if mode in ("rn", "rna") or away else infinity - 1
    elif kept >> (precision - 1):
        bits = kept - (1 << (precision - 1)) + ((exponent - least + 1) << (precision - 1))
    else:
        bits = kept
    if kind == "tf32":
        bits <<= 13
    return (sign if minus else 0) | bits


def from_float(value: float, kind: str) -> int | str:
    """A zero, an infinity or NaN as bits."""
    precision, least, greatest = FORMATS[kind]
    if math.isnan(value):
        return NAN.get(kind, ANY_NAN)
    if value == 0:
        return rounded(Fraction(0), kind, "rn", negative=math.copysign(1, value) < 0)
    infinity = (greatest - least + 2) << (precision - 1)
    return infinity | (1 << (WIDTHS[kind] - 1) if value < 0 else 0)


def from_one(kind: str) -> int:
    return rounded(Fraction(1), kind, "rn")


def finish(bits: int | str, kind: str, words: tuple[str, ...]) -> int | str:
    """.ftz, .sat and .relu of a result."""
    width = WIDTHS[kind]
    sign = 1 << (width - 1)
    precision = FORMATS[kind][0]
    one = from_one(kind)
    nan = bits == ANY_NAN or (isinstance(bits, int) and Real(bits, kind).nan)
    if nan:
        return 0 if "sat" in words else bits
    assert isinstance(bits, int)
    if "ftz" in words and not bits >> (precision - 1) & ((1 << (width - precision)) - 1):
        bits &= sign
    if ("relu" in words or "sat" in words) and bits & sign:
        return 0
    return min(bits, one) if "sat" in words else bits


def mode_of(words: tuple[str, ...]) -> str:
    return next((word for word in words if word in ("rn", "rz", "rm", "rp", "rna")), "rn")
