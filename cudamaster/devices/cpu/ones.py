"""Atomics whose answer nobody takes: who makes one asks for nothing that others may have written.

Of additions of one among these, in shared memory, nvcc makes ATOMS.POPC.INC, in which the lanes of a warp that meet at
one address are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudamaster.devices.cpu import x86

_ADDS = re.compile(r"^_Z9atomicAddP(?:ii|jj)$|8atom_oneI(?=\w*5t_add)\w*5t_[us]32")
_ATOMICS = re.compile(r"^_Z\d+atomic[A-Z]|3ptx\d+atom_(?:one|cas)I")
_VALUE = re.compile(r"%[er]?si\b")
_ANSWER = re.compile(r"%(?:[er]?[ad]x|[ad][lh]|xmm[01])\b")
_OVERWRITES = re.compile(r"^(?:mov(?![lh]p)|lea|cvt(?!s[sdi]\w*2s)|pop)")
_LEAVES_SOME = re.compile(r"^movs[sd]$")  # between registers
_ZEROES = re.compile(r"^p?xor")


def places(lines: Sequence[tuple[int, str, str]]) -> Iterator[tuple[int, bool]]:
    """The places behind them in a function, and whether each is an addition of one."""
    for at, (_, name, operands) in enumerate(lines[:-1]):
        target = x86.CALLED.search(operands) if name.startswith("call") else None
        if target and _ATOMICS.search(target[1]) and not _is_taken(lines[at + 1 :]):
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


def _is_taken(behind: Sequence[tuple[int, str, str]]) -> bool:
    """Whether the answer is read before a call or the end of the basic block, as none outlives a call where it is."""
    for _, name, operands in behind:
        if name.startswith(("call", "j", "ret")):
            return False
        words = x86.operands_of(operands)
        over = bool(words) and _ANSWER.fullmatch(words[-1]) is not None and _OVERWRITES.match(name) is not None
        over = over and not (_LEAVES_SOME.match(name) and words[0].startswith("%"))
        if any(_ANSWER.search(word) for word in (words[:-1] if over else words)):
            return not (_ZEROES.match(name) and len(set(words)) == 1)
        if over:
            return False
    return False
