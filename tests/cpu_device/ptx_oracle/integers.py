"""Arithmetic on integers, and operations on bits and bytes."""

from __future__ import annotations

from .formats import WIDTHS, clamp, cut, number, signed


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
