"""Atomics whose answer nobody takes: who makes one asks for nothing that others may have written.

Of additions of one among these, in shared memory, nvcc makes ATOMS.POPC.INC, in which the lanes of a warp that meet at
one address are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cudamaster.devices.cpu import x86

_ADDS = re.compile(r"^_Z9atomicAddP(?:ii|jj)$|8atom_oneI(?=\w*5t_add)\w*5t_[us]32")
_ATOMICS = re.compile(r"^_Z\d+atomic[A-Z]|3ptx\d+atom_(?:one|cas)I")
_VALUE = re.compile(r"%[er]?si\b")
_ANSWER = re.compile(r"%(?:[er]?(?P<wide>[ad])x|(?P<byte>[ad])[lh]|xmm(?P<vector>[01]))\b")
_WHOLE = re.compile(r"%(?:[er][ad]x|xmm[01])")  # a write to a part of one leaves the rest
_TARGET = re.compile(r"^([0-9a-f]+)\b")
_OVERWRITES = re.compile(r"^(?:mov(?![lh]p)|lea|cvt(?!s[sdi]\w*2s)|pop)")
_LEAVES_SOME = re.compile(r"^movs[sd]$")  # between registers
_ZEROES = re.compile(r"^p?xor")


def places(lines: Sequence[tuple[int, str, str]]) -> Iterator[tuple[int, bool]]:
    """The places behind them in a function, and whether each is an addition of one."""
    numbers: dict[int, int] = {}
    for at, (_, name, operands) in enumerate(lines[:-1]):
        target = x86.CALLED.search(operands) if name.startswith("call") else None
        if not target or not _ATOMICS.search(target[1]):
            continue
        numbers = numbers or {place: number for number, (place, _, _) in enumerate(lines)}
        if not _is_taken(lines, at + 1, numbers):
            yield lines[at + 1][0], bool(_ADDS.search(target[1])) and _is_one(lines[:at])


def _is_one(before: Sequence[tuple[int, str, str]]) -> bool:
    """Whether what is added is a constant of one."""
    for _, name, operands in reversed(before):
        if name.startswith(("call", "j")):
            return False
        words = x86.operands_of(operands)
        if words and _VALUE.fullmatch(words[-1]):
            return name.startswith("mov") and words[0] == "$0x1"
    return False


def _is_taken(lines: Sequence[tuple[int, str, str]], behind: int, numbers: Mapping[int, int]) -> bool:
    """Whether the answer is read on some way before a call, as none outlives a call where it is.

    It is in some of a few registers, each of which may be written over; `numbers` are those of lines by their places.
    """
    ways, seen = [(behind, frozenset("ad01"))], set()
    while ways:
        at, left = way = ways.pop()
        if at >= len(lines) or way in seen:
            continue
        seen.add(way)
        _, name, operands = lines[at]
        if name.startswith(("call", "ret")):
            continue
        if name.startswith("j"):
            found = _TARGET.match(operands)
            target = numbers.get(int(found[1], 16)) if found else None
            if target is not None:
                ways.append((target, left))
            elif not name.startswith("jmp"):
                return True  # who knows
            if not name.startswith("jmp"):
                ways.append((at + 1, left))
            continue
        words = x86.operands_of(operands)
        over = _OVERWRITES.match(name) is not None and not (_LEAVES_SOME.match(name) and words[0].startswith("%"))
        over = over and _WHOLE.fullmatch(words[-1]) is not None
        zeroes = _ZEROES.match(name) is not None and len(set(words)) == 1
        read = set() if zeroes else {part for word in (words[:-1] if over else words) for part in _parts(word)}
        if read & left:
            return True
        left -= set(_parts(words[-1])) if words and (over or zeroes) else set()
        if left:
            ways.append((at + 1, left))
    return False


def _parts(word: str) -> Iterator[str]:
    """Which of an answer's registers an operand has."""
    return (found[found.lastgroup or 0] for found in _ANSWER.finditer(word))
