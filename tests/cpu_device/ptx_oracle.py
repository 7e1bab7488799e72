"""What the PTX manual says that instructions on registers give: computed with exact integers and fractions.

`expected` takes a case of benchmarks/ptx_cases.py and the bits of its operands. It gives the bits, or a `Near` where
the manual allows an approximation, or None where it leaves the result open. Where the manual is silent it follows what
an H200 gave (h200_ptx.npz); if an H200 contradicts the manual, a comment says so.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "s16x2": 32, "u16x2": 32, "tf32": 32}
WIDTHS |= {f"{kind}{width}": width for kind in "bsu" for width in (8, 16, 32, 64)}
WIDTHS |= {"e4m3x2": 16, "e5m2x2": 16}
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
    if kind == "tf32":
        sign >>= 0
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
    """An infinity or NaN as bits."""
    precision, least, greatest = FORMATS[kind]
    if math.isnan(value):
        return NAN.get(kind, ANY_NAN)
    infinity = (greatest - least + 2) << (precision - 1)
    return infinity | (1 << (WIDTHS[kind] - 1) if value < 0 else 0)


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


def from_one(kind: str) -> int:
    return rounded(Fraction(1), kind, "rn")


def mode_of(words: tuple[str, ...]) -> str:
    return next((word for word in words if word in ("rn", "rz", "rm", "rp", "rna")), "rn")


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
        return finish(from_float_or_zero(special(name, [value.float() for value in values]), kind), kind, words)
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


def from_float_or_zero(value: float, kind: str) -> int | str:
    if value == 0:
        return rounded(Fraction(0), kind, "rn", negative=math.copysign(1, value) < 0)
    return from_float(value, kind)


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


def halves(kind: str, operands: list[int], apply: object) -> int:
    low = apply([bits & 0xFFFF for bits in operands])  # type: ignore[operator]
    high = apply([bits >> 16 & 0xFFFF for bits in operands])  # type: ignore[operator]
    return high << 16 | low


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


def is_integer(kind: str) -> bool:
    return kind[0] in "bsu" and kind[1].isdigit()


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
    bits, bias, most, top = (3, 7, 448, 0x7E) if to == "e4m3x2" else (2, 15, 57344, 0x7B)
    if real.nan:
        return 0x7F
    if real.negative and "relu" in words:
        return 0
    sign = 0x80 if real.negative else 0
    if real.inf:
        return sign | top
    size = abs(real.value)
    table = sizes(to, bits, bias)
    if size >= most:
        return sign | top
    above = bisect_left(table, size)
    if above == len(table):
        return sign | top
    if table[above] == size:
        return sign | above
    low, high = size - table[above - 1], table[above] - size
    below = low < high or (low == high and (above - 1) % 2 == 0)
    return sign | (above - 1 if below else above)


@cache
def sizes(to: str, bits: int, bias: int) -> list[Fraction]:
    """What the patterns of 8 bits stand for, in their order."""
    table = []
    for pattern in range(0x7F if to == "e4m3x2" else 0x7C):
        exponent, fraction = pattern >> bits, pattern & ((1 << bits) - 1)
        whole = fraction + (1 << bits) if exponent else fraction
        table.append(Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - bits))
    return table


def from_eight(pattern: int, origin: str, words: tuple[str, ...]) -> int:
    bits, bias = (3, 7) if origin == "e4m3x2" else (2, 15)
    size = pattern & 0x7F
    if size == 0x7F or (origin == "e5m2x2" and size > 0x7C):
        return 0x7FFF
    if pattern & 0x80 and "relu" in words:
        return 0
    sign = 0x8000 if pattern & 0x80 else 0
    if origin == "e5m2x2" and size == 0x7C:
        return sign | 0x7C00
    exponent, fraction = size >> bits, size & ((1 << bits) - 1)
    whole = fraction + (1 << bits) if exponent else fraction
    return sign | rounded(Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - bits), "f16", "rn")


def extreme(name: str, words: tuple[str, ...], kind: str, operands: list[int]) -> int | str:
    greater = name == "max"
    if is_integer(kind):
        values = [number(bits, kind) for bits in operands]
        chosen = max(values) if greater else min(values)
        return cut(max(chosen, 0) if "relu" in words else chosen, kind)
    width = WIDTHS[kind]
    sign = 1 << (width - 1)
    flip = (operands[0] ^ operands[1]) & sign
    ftz = "ftz" in words and kind != "bf16"
    patterns = []
    for bits in operands:
        if ftz and Real(bits, kind).subnormal:
            bits &= sign
        patterns.append(bits & (sign - 1) if "xorsign" in words else bits)
    a, b = (Real(bits, kind) for bits in patterns)
    if a.nan or b.nan:
        if (a.nan and b.nan) or "NaN" in words:
            return from_float(math.nan, kind)
        chosen = 1 if a.nan else 0
    else:
        keys = [(value.float(), not value.negative) for value in (a, b)]
        chosen = keys.index(max(keys) if greater else min(keys))
    return patterns[chosen] | (flip if "xorsign" in words else 0)


def compare(operator: str, kind: str, operands: list[int], *, ftz: bool) -> bool:
    if is_integer(kind):
        a, b = (number(bits, kind) for bits in operands)
        unordered = False
    else:
        reals = [Real(bits, kind, ftz=ftz) for bits in operands]
        a, b = (value.float() for value in reals)
        unordered = any(value.nan for value in reals)
    plain = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(operator, operator)
    if plain in ("num", "nan"):
        return unordered == (plain == "nan")
    if unordered:
        return plain.endswith("u")
    return {
        "eq": a == b,
        "ne": a != b,
        "lt": a < b,
        "le": a <= b,
        "gt": a > b,
        "ge": a >= b,
    }[plain[:2]]


def integer(name: str, words: tuple[str, ...], kind: str, operands: list[int]) -> int:
    """Integer arithmetic."""
    width = WIDTHS[kind]
    if name in ("mul", "mad") and "wide" in words:
        product = number(operands[0], kind) * number(operands[1], kind)
        return (product + (operands[2] if name == "mad" else 0)) & ((1 << 2 * width) - 1)
    values = [number(bits, kind) for bits in operands]
    if name in ("mul24", "mad24"):
        a, b = (signed(v, 24) if kind[0] == "s" else v & 0xFFFFFF for v in operands[:2])
        part = a * b >> 16 if "hi" in words else a * b
        return cut(part + (operands[2] if name == "mad24" else 0), kind)
    if name in ("mul", "mad"):
        part = values[0] * values[1] >> (width if "hi" in words else 0)
        if name == "mul":
            return cut(part, kind)
        # The manual says that mad.hi.sat.s32 limits the sum. An H200 does not.
        return cut(part + values[2], kind)
    if name in ("add", "sub"):
        total = values[0] + values[1] if name == "add" else values[0] - values[1]
        return cut(clamp(total, kind) if "sat" in words else total, kind)
    if name == "sad":
        return cut(operands[2] + abs(values[0] - values[1]), kind)
    if name in ("div", "rem"):
        a, b = values
        if b == 0:
            return cut(-1, kind)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return cut(quotient if name == "div" else a - quotient * b, kind)
    return cut(abs(values[0]) if name == "abs" else -values[0], kind)


def within_field(operand: int, width: int) -> int:
    """A position or a length, which the manual wants below 256: for 32 bits eight of it count, for 64 bits all."""
    return operand & 255 if width == 32 else min(operand, 255)


def bit_operation(name: str, words: tuple[str, ...], operands: list[int]) -> int:
    kind = words[-1]
    width = WIDTHS.get(kind, 32)
    mask = (1 << width) - 1
    a = operands[0]
    if name in ("and", "or", "xor"):
        return {"and": a & operands[1], "or": a | operands[1], "xor": a ^ operands[1]}[name]
    if name == "not":
        return ~a & mask
    if name == "cnot":
        return int(a == 0)
    if name == "lop3":
        result = 0
        for bit in range(32):
            index = (a >> bit & 1) << 2 | (operands[1] >> bit & 1) << 1 | operands[2] >> bit & 1
            result |= (operands[3] >> index & 1) << bit
        return result
    if name == "shl":
        return a << min(operands[1], 64) & mask
    if name == "shr":
        return number(a, kind) >> min(operands[1], width) & mask
    if name == "shf":
        count = operands[2] & 31 if "wrap" in words else min(operands[2], 32)
        both = operands[1] << 32 | a
        return (both << count >> 32 if "l" in words else both >> count) & mask
    if name == "popc":
        return a.bit_count()
    if name == "clz":
        return width - a.bit_length()
    if name == "brev":
        return int(f"{a:0{width}b}"[::-1], 2)
    if name == "bfind":
        value = ~a & mask if kind[0] == "s" and a >> (width - 1) else a
        if not value:
            return 0xFFFFFFFF
        return width - value.bit_length() if "shiftamt" in words else value.bit_length() - 1
    if name == "fns":
        base, offset = operands[1], operands[2]
        found = [i for i in (range(base, 32) if offset >= 0 else range(base, -1, -1)) if a >> i & 1]
        if offset == 0:
            return base if a >> base & 1 else 0xFFFFFFFF
        return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF
    if name == "bfe":
        position, length = (within_field(operand, width) for operand in operands[1:])
        fill = a >> min(position + length - 1, width - 1) & 1 if kind[0] == "s" and length else 0
        field = "".join(
            str(a >> (position + i) & 1 if i < length and position + i < width else fill) for i in range(width)
        )
        return int(field[::-1], 2)
    if name == "bfi":
        position, length = (within_field(operand, width) for operand in operands[2:])
        field = ((1 << length) - 1) << position & mask
        return (operands[1] & ~field) | (a << position & field)
    if name == "szext":
        count = operands[1] & 31 if "wrap" in words else min(operands[1], 32)
        low = a & ((1 << count) - 1)
        return low | (mask << count & mask) if kind == "s32" and count and low >> (count - 1) & 1 else low
    if name == "bmsk":
        start, count = operands[0], operands[1]
        if "wrap" in words:
            start, count = start & 31, count & 31
        return ((1 << min(count, 32)) - 1) << start & mask if start < 32 else 0
    raise AssertionError(name)


def permuted(words: tuple[str, ...], a: int, b: int, c: int) -> int:
    source = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    mode, i = words[-1], c & 3
    picks = {
        "f4e": [i, i + 1, i + 2, i + 3],
        "b4e": [i, (i - 1) % 8, (i - 2) % 8, (i - 3) % 8],
        "rc8": [i] * 4,
        "ecl": [max(i, k) for k in range(4)],
        "ecr": [min(i, k) for k in range(4)],
        "rc16": [2 * (i & 1), 2 * (i & 1) + 1] * 2,
    }.get(mode)
    if picks is not None:
        return sum(source[pick] << 8 * k for k, pick in enumerate(picks))
    result = 0
    for k in range(4):
        selector = c >> 4 * k & 15
        byte = source[selector & 7]
        result |= ((255 if byte & 128 else 0) if selector & 8 else byte) << 8 * k
    return result


def small_products(name: str, words: tuple[str, ...], a: int, b: int, c: int) -> int:
    kinds = words[-2:]

    def part(bits: int, at: int, width: int, kind: str) -> int:
        value = bits >> at & ((1 << width) - 1)
        return signed(value, width) if kind[0] == "s" else value

    if name == "dp4a":
        total = sum(part(a, at, 8, kinds[0]) * part(b, at, 8, kinds[1]) for at in range(0, 32, 8))
    else:
        first = 16 if "hi" in words else 0
        total = sum(part(a, 16 * i, 16, kinds[0]) * part(b, first + 8 * i, 8, kinds[1]) for i in range(2))
    return (c + total) & 0xFFFFFFFF


def signs(name: str, words: tuple[str, ...], kind: str, bits: int) -> int | str:
    sign = 1 << (WIDTHS[kind] - 1)
    real = Real(bits, kind)
    if real.nan:
        return from_float(math.nan, kind)
    if "ftz" in words and real.subnormal:
        bits &= sign
    return bits & (sign - 1) if name == "abs" else bits ^ sign


def tested(word: str, bits: int, kind: str) -> bool:
    real = Real(bits, kind)
    return {
        "finite": not real.nan and not real.inf,
        "infinite": real.inf,
        "number": not real.nan,
        "notanumber": real.nan,
        "normal": not (real.nan or real.inf or real.subnormal),  # zero counts as normal
        "subnormal": real.subnormal,
    }[word]


def packed(words: tuple[str, ...], operands: list[int]) -> int:
    kind = words[2]
    parts = [cut(clamp(signed(bits, 32), kind), kind) for bits in operands[:2]]
    width = WIDTHS[kind]
    both = parts[0] << width | parts[1]
    return (operands[2] << 16 | both) & 0xFFFFFFFF if width == 8 else both


def expected(opcode: str, operands: list[int]) -> int | str | Near | None:
    """What an instruction gives."""
    words = tuple(opcode.split("."))
    name, kind = words[0], words[-1]
    if opcode.startswith("cvt.pack"):
        return packed(words[1:], operands)
    if name == "cvt":
        return converted(words, operands)
    if name == "prmt":
        return permuted(words, *operands)
    if name in ("dp4a", "dp2a"):
        return small_products(name, words, *operands)
    if name == "setp":
        return int(compare(words[1], kind, operands, ftz="ftz" in words))
    if name == "set":
        to = words[-2]
        if kind in ("f16x2", "bf16x2"):
            one = from_one(kind[:-2])
            return halves(kind, operands, lambda parts: one * compare(words[1], kind[:-2], parts, ftz=False))
        true = compare(words[1], kind, operands, ftz="ftz" in words)
        return (from_one("f32") if to == "f32" else 0xFFFFFFFF) if true else 0
    if name == "slct":
        third = operands[2]
        chosen = signed(third, 32) >= 0 if kind == "s32" else Real(third, "f32", ftz="ftz" in words).float() >= 0
        return operands[0] if chosen else operands[1]
    if name == "testp":
        return int(tested(words[1], operands[0], kind))
    if name == "copysign":
        sign = 1 << (WIDTHS[kind] - 1)
        return (operands[0] & sign) | (operands[1] & (sign - 1))
    if kind in ("f16x2", "bf16x2", "u16x2", "s16x2"):
        parts = [expected(opcode[:-2], [bits & 0xFFFF for bits in operands])]
        parts.append(expected(opcode[:-2], [bits >> 16 & 0xFFFF for bits in operands]))
        return parts  # type: ignore[return-value]
    if kind in FORMATS:
        if "approx" in words or "full" in words:
            if name == "div":
                return quotient(words, operands)
            return approximate(name, words, kind, operands[0])
        if name in ("min", "max"):
            return extreme(name, words, kind, operands)
        if name in ("abs", "neg"):
            return signs(name, words, kind, operands[0])
        return arithmetic("fma" if name == "mad" else name, words, kind, operands)
    if name in ("min", "max"):
        return extreme(name, words, kind, operands)
    if name in ("add", "sub", "mul", "mad", "mul24", "mad24", "sad", "div", "rem", "abs", "neg"):
        return integer(name, words, kind, operands)
    return bit_operation(name, words, operands)


def quotient(words: tuple[str, ...], operands: list[int]) -> Near | int | None:
    b = Real(operands[1], "f32")
    exact = arithmetic("div", ("rn",), "f32", operands)
    if abs(b.value) > Fraction(2) ** 126 and not b.inf:
        return None  # .approx gives zero there
    result = struct.unpack("<f", struct.pack("<I", exact))[0]
    return exact if math.isnan(result) else Near(result, "f32", 2**-21)


def agrees(wanted: object, got: int, width: int) -> bool:
    """Whether bits are what is expected."""
    if wanted is None:
        return True
    if isinstance(wanted, list):
        return all(agrees(one, got >> 16 * i & 0xFFFF, 16) for i, one in enumerate(wanted))
    if isinstance(wanted, Near):
        value = Real(got, wanted.kind).float()
        if math.isnan(wanted.value) or math.isinf(wanted.value):
            return (math.isnan(value) and math.isnan(wanted.value)) or value == wanted.value
        _, least, greatest = FORMATS[wanted.kind]
        most = 2.0 ** (greatest + 1)
        slack = max(abs(wanted.value) * wanted.relative, wanted.absolute, 2.0**least * 1.01)
        return abs(value - wanted.value) <= slack or (math.isinf(value) and abs(wanted.value) * 1.01 >= most)
    if wanted == ANY_NAN:
        return Real(got, "f64").nan
    return wanted == got & ((1 << width) - 1)
