"""What the PTX manual says that instructions on registers give: computed with exact integers and fractions.

`expected` takes a case of benchmarks/ptx_cases.py and the bits of its operands. It gives the bits, or a `Near` where
the manual allows an approximation, or None where it leaves the result open. Where the manual is silent it follows what
an H200 gave (h200_ptx.npz); if an H200 contradicts the manual, a comment says so.
"""

from __future__ import annotations

import math
from typing import Any

from .comparing import compare, extreme, tested
from .converting import converted, packed
from .floating import approximate, arithmetic, quotient, signs
from .formats import ANY_NAN, FORMATS, WIDTHS, Near, Real, from_one, signed
from .integers import bit_operation, integer, permuted, small_products


def expected(opcode: str, operands: list[int]) -> int | str | Near | list[Any] | None:
    """What an instruction gives; of one on pairs, a list."""
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
            one, pairs = from_one(kind[:-2]), ([bits >> at & 0xFFFF for bits in operands] for at in (0, 16))
            return [one * compare(words[1], kind[:-2], pair, ftz=False) for pair in pairs]
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
        return [expected(opcode[:-2], [bits >> at & 0xFFFF for bits in operands]) for at in (0, 16)]
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
