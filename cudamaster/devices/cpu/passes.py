"""Which loops of a traced build nvcc does not unroll, since it cannot tell how many passes they have.

That is so where the counter goes on by what is no constant and may wrap around: an unsigned one, or an int to which an
unsigned number is added, as blockDim.x is. Signed numbers do not wrap around, so nvcc can tell the passes of one that
goes on by a signed number, or by a constant. g++ is bound by the same rules, so its code shows them: it compares an
unsigned counter by other jumps, and widens an int that may wrap around anew in each pass. Nor can nvcc tell the passes
of a counter that is doubled or shifted. A shift by one, which has one operand in the code, is not looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from cudamaster.devices.cpu import x86

_Lines = Sequence[tuple[int, str, str]]
# The instructions that write a register or a place of the stack, in a loop.
_Written = Mapping[str, Sequence[tuple[str, Sequence[str]]]]

_UNSIGNED = frozenset({"jb", "jae", "ja", "jbe", "jc", "jnc"})
_SIGNED = frozenset({"jl", "jge", "jg", "jle"})
_ADDS = re.compile(r"^add[lq]?$")
_COPIES = re.compile(r"^mov[lq]?$")
_WIDENS = re.compile(r"^movs(?:lq|xd)$")
_SHIFTS = re.compile(r"^(?:shl|sal|shr|sar)[lq]?$")
_FLAGS = re.compile(r"^(?:cmp|test|shl|sal|shr|sar|sub|dec)[bwlq]?$")
_JUMPS = re.compile(r"^j(?!mp)")
_SUM = re.compile(r"^\((%\w+),(%\w+)(?:,1)?\)$")
_MOST_COPIES = 4


def countless(inside: Iterable[int], lines: Mapping[int, _Lines], following: Mapping[int, Sequence[int]]) -> bool:
    """Whether nvcc cannot tell the number of passes of a loop of these basic blocks."""
    blocks = frozenset(inside)
    every = [(name, x86.operands_of(operands)) for start in blocks for _, name, operands in lines[start]]
    written: dict[str, list[tuple[str, Sequence[str]]]] = {}
    for name, operands in every:
        if len(operands) > 1 and not name.startswith(("cmp", "test")) and (to := _name(operands[-1])):
            written.setdefault(to, []).append((name, operands))
    widened = {_name(operands[0]) for name, operands in every if _WIDENS.match(name) and operands}
    widened |= {"rax"} if any(name in {"cltq", "cdqe"} for name, _ in every) else set()
    for start in blocks:
        jump = lines[start][-1][1] if lines[start] else ""
        if blocks.issuperset(following.get(start, ())) or not _JUMPS.match(jump):
            continue
        compared = next((words for _, name, words in reversed(lines[start]) if _FLAGS.match(name)), "")
        for operand in x86.operands_of(compared):
            counters = _sources(operand, written)
            if any(_SHIFTS.match(what) or _doubles(what, how) for to in counters for what, how in written.get(to, ())):
                return True
            if _goes_on(counters, written) and (jump in _UNSIGNED or (jump in _SIGNED and counters & widened)):
                return True
    return False


def _name(operand: str) -> str | None:
    """A register, whatever part of it is meant, or a place of the stack; None for anything else."""
    if operand.startswith("%"):
        return x86.NAMES.get(operand[1:])
    place = x86.MEMORY.match(operand)
    return operand if place and place["base"] in ("%rsp", "%rbp") and place["index"] is None else None


def _sources(operand: str, written: _Written) -> frozenset[str]:
    """Registers and places that hold what is compared, in this pass or another."""
    names = {name} if (name := _name(operand)) else set()
    for _ in range(_MOST_COPIES):
        copied = {
            other
            for name in names
            for what, operands in written.get(name, ())
            if _COPIES.match(what) and (other := _name(operands[0]))
        }
        names |= copied
    return frozenset(names)


def _goes_on(counters: frozenset[str], written: _Written) -> bool:
    """Whether a counter goes on by what is no constant."""
    for to in counters:
        for what, operands in written.get(to, ()):
            if _ADDS.match(what) and not operands[0].startswith("$"):
                return True
            if what.startswith("lea") and (terms := _SUM.match(operands[0])):
                kept = frozenset[str]().union(*(_sources(term, written) for term in terms.groups()))
                if counters & kept:
                    return True
    return False


def _doubles(what: str, operands: Sequence[str]) -> bool:
    return bool(_ADDS.match(what)) and operands[0] == operands[-1]
