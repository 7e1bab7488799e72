"""Greatest and smallest, comparisons and tests, of integer and floating types."""

from __future__ import annotations

import math

from .formats import WIDTHS, Real, cut, from_float, is_integer, number


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
