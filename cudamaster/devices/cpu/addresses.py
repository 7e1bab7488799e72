"""Which arithmetic on 64-bit integers a GPU pays for: what makes an address belongs to the request that uses it.

A function's instructions are gone through from the last to the first, until nothing changes, to see which registers
and words of the stack are added up to an address later. Sums, differences and shifts to the left lead there; a mask, a
shift to the right or a product does not, for none of these is a part of an address on a GPU. A basic block's requests
pay for a few such instructions each, since that is how far nvcc folds: a long chain of them is no address any more.

Everything else counts as what nvcc makes of it: two instructions of 32 bits for a sum, a comparison, a mask or a shift,
four for a product, one where its factors have 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, MEMORY, NAMES, is_whole, operands_of

_Line = tuple[int, str, str]
_Kinds = Mapping[str, float]

_OF_REQUEST = 4  # instructions that make an address, for each of a block's requests
_ROUNDS = 8  # of the whole function; nested loops need one each

_COPIES = re.compile(r"^(?:mov[bwlq]?|movabs|movs[bwl][wlq]|movz[bw][wlq])$")
_ADDS = re.compile(r"^(?:add|sub)[lq]?$")
_ONE = re.compile(r"^(?:inc|dec|neg)[lq]?$")
_LEFT = re.compile(r"^(?:shl|sal)[lq]?$")
_CHOOSES = re.compile(r"^cmov")
_COMPARES = re.compile(r"^(?:cmp|test)[bwlq]?$")
_MASKS = re.compile(r"^(?:not|and|or|xor|shr|sar|rol|ror|shld|shrd|bswap|btc|btr|bts)[lq]?$")
_PRODUCT = re.compile(r"^(?:imul|mul|mulx)[lq]?$")
_LEAVES = re.compile(r"^(?:cmp|test|push|j|nop|ret|ud2|hlt|bt[lqw]?$|v?u?comis)")
_OTHER_WORD = ("$0xffffffff00000000", "$0xffffffff")  # masks that leave one word of two
_NARROW = re.compile(r"^(?:movs[bw]l|movz[bw][wlq]|movs[bwl]q|cltq)$")
_READS = re.compile(r"^__tsan_(?!func)\w*(?:read|write|atomic\d)")
_ATOMIC = re.compile(r"^cudamaster_cpu_observe_atomic|_Z\d+atomic|atom_(?:one|cas)")
_MOVES = re.compile(r"^cudamaster_cpu_|matrix_sync|mem(?:cpy|set|move)$")
_VALUES = re.compile(r"^cudamaster_cpu_(?:barrier|numbered|registers|yield|lane|activemask|exit|cluster)")

_SUM: _Kinds = {"integer": 2}
_COUNTING: _Kinds = {"counting": 2}
_SHORT: _Kinds = {"counting": 1}
_MASK: _Kinds = {"integer": 2}
_PRODUCT_OF_HALVES: _Kinds = {"integer": 1}
_WHOLE_PRODUCT: _Kinds = {"integer": 4}


@dataclass
class _Found:
    """Of one basic block: what counts, by instruction, and what would but for the addresses that it makes."""

    counted: dict[int, _Kinds] = field(default_factory=dict)
    spared: list[tuple[int, _Kinds]] = field(default_factory=list)
    requests: int = 0


def values_of(blocks: Sequence[Sequence[_Line]], following: Mapping[int, Sequence[int]]) -> dict[int, _Kinds]:
    """What the 64-bit instructions of a function stand for by their places, as far as they do not make addresses.

    `blocks` are in the order of flow.py, and `following` gives those behind one by their first addresses.
    """
    blocks = [lines for lines in blocks if lines]
    framed = any(name.startswith("mov") and to == "%rsp,%rbp" for lines in blocks for _, name, to in lines)
    own = {"%rsp", "%rbp"} if framed else {"%rsp"}
    parsed = {lines[0][0]: [(place, name, operands_of(text), text) for place, name, text in lines] for lines in blocks}
    wanted: dict[int, frozenset[str]] = {start: frozenset() for start in parsed}
    found: dict[int, _Found] = {}
    for _ in range(_ROUNDS):
        changed = False
        for start in reversed(parsed):
            behind = set().union(*(wanted.get(to, frozenset()) for to in following.get(start, ())))
            found[start] = _Found()
            before = frozenset(_backwards(parsed[start], behind, own, found[start]))
            changed |= before != wanted[start]
            wanted[start] = before
        if not changed:
            break
    counted: dict[int, _Kinds] = {}
    for one in found.values():
        counted.update(one.counted)
        counted.update(one.spared[_OF_REQUEST * one.requests :])
    return counted


_Parsed = tuple[int, str, list[str], str]


def _backwards(lines: Sequence[_Parsed], wanted: set[str], own: set[str], found: _Found) -> set[str]:
    """Names whose values an address is made from, before a block, of those behind it."""
    given = _given(lines, own)
    for at in range(len(lines) - 1, -1, -1):
        place, name, operands, text = lines[at]
        if name.startswith("call"):
            _before_call(text, wanted, found)
        elif operands:
            _before(place, name, operands, wanted, own, found, given[at])
    return wanted


def _before_call(text: str, wanted: set[str], found: _Found) -> None:
    target = CALLED.search(text)
    called = target[1] if target else ""
    wanted.difference_update(LOST)
    if _READS.match(called) or _ATOMIC.search(called):
        wanted.add("rdi")
        found.requests += 1
    elif _MOVES.search(called) and not _VALUES.match(called):
        wanted.update(ARGUMENTS)
        found.requests += 1


def _before(
    place: int, name: str, operands: list[str], wanted: set[str], own: set[str], found: _Found, what: _Factors
) -> None:
    *sources, target = operands
    goal = _name(target, own)
    leads = goal is not None and goal in wanted
    wide = name.endswith("q") or any(is_whole(each) for each in operands)
    kinds: _Kinds | None = None
    if name.startswith("lea"):
        kinds = _lea(sources[0], target, wanted, own, leads=leads)
    elif target == "%rsp":
        return
    elif _COMPARES.match(name):
        kinds = _COUNTING if wide and not any(_name(each, own) in wanted for each in operands) else None
    elif _LEAVES.match(name):
        pass
    elif _ADDS.match(name) or _ONE.match(name):
        if leads:
            wanted.update(_names(sources, own))
        kinds = (_SUM if sources and not sources[0].startswith("$") else _COUNTING) if wide else None
    elif _LEFT.match(name):
        # By 32: the second word of a small structure is put beside the first.
        kinds = _MASK if wide and "$0x20" not in sources else None
    elif _CHOOSES.match(name):
        if leads:
            wanted.update(_names(sources, own))
        kinds, leads = _MASK if wide and not leads else None, False
    elif _PRODUCT.match(name):
        kinds, leads = (_PRODUCT_OF_HALVES if what is _Factors.HALVES else _WHOLE_PRODUCT) if wide else None, False
        _forget(goal, wanted)
    elif _MASKS.match(name):
        alone = sources == [target] or any("%xmm" in each for each in operands)
        upper = name.startswith(("shr", "sar")) and sources == ["$0x20"]
        kinds = _MASK if wide and not alone and not upper and what is not _Factors.WORDS else None
        leads = False
        _forget(goal, wanted)
    else:
        _forget(goal, wanted)
        if leads and sources and (_COPIES.match(name) or name == "movq"):
            wanted.update(_names(sources[:1], own))
    if not name.startswith(("lea", "nop")):
        for each in operands:
            wanted.update(_of_memory(each, own))
    if kinds and leads:
        found.spared.append((place, kinds))
    elif kinds:
        found.counted[place] = kinds


def _lea(source: str, target: str, wanted: set[str], own: set[str], *, leads: bool) -> _Kinds | None:
    """A sum: with an index it is an instruction in any case, and one more where it has 64 bits and makes no address."""
    parts = MEMORY.match(source)
    _forget(_name(target, own), wanted)
    if parts is None or parts["base"] in own or parts["base"] == "%rip":
        return None
    if leads:
        wanted.update(_of_memory(source, own))
    if parts["index"]:
        return _SUM if is_whole(target) and not leads else None
    return _COUNTING if is_whole(target) else _SHORT


def _forget(name: str | None, wanted: set[str]) -> None:
    if name is not None and "array" not in name:
        wanted.discard(name)


def _names(operands: Sequence[str], own: set[str]) -> list[str]:
    return [name for each in operands if (name := _name(each, own))]


def _name(operand: str, own: set[str]) -> str | None:
    """A register, or a word of the function's own memory; None for constants and other memory."""
    if operand.startswith("%"):
        return NAMES.get(operand[1:])
    parts = MEMORY.match(operand)
    if parts is None or parts["base"] not in own:
        return None
    return f"{parts['base']} {'array' if parts['index'] else parts['offset']}"


def _of_memory(operand: str, own: set[str]) -> list[str]:
    """Registers that an operand's address is made from."""
    parts = MEMORY.match(operand)
    if parts is None:
        return []
    names = (parts["base"], parts["index"])
    return [NAMES[each[1:]] for each in names if each and each not in own and each[1:] in NAMES]


class _Factors(Enum):
    """What an instruction of 64 bits is given, as far as the block shows."""

    ANY = 0
    HALVES = 1  # numbers of 32 bits
    WORDS = 2  # a word in its place beside another one


def _given(lines: Sequence[_Parsed], own: set[str]) -> list[_Factors]:
    """Of each instruction of a block."""
    short: set[str] = set()
    placed: set[str] = set()
    answer = []
    for _, name, operands, _ in lines:
        factors = [each for each in operands if not each.startswith("$")]
        if _PRODUCT.match(name):
            factors = [*factors, "%rax"] if len(operands) == 1 else [operands[1]] if len(operands) == 3 else factors
            halves = all(_name(each, own) in short for each in factors)
            answer.append(_Factors.HALVES if halves else _Factors.ANY)
        else:
            answer.append(_Factors.WORDS if any(_name(each, own) in placed for each in factors) else _Factors.ANY)
        if name.startswith("call"):
            short.difference_update(LOST)
            placed.difference_update(LOST)
        elif name == "cltq":
            short.add("rax")
        elif operands and not _LEAVES.match(name) and (goal := _name(operands[-1], own)) is not None:
            came = operands[0]
            half = operands[-1].startswith("%") and not is_whole(operands[-1])
            half |= _NARROW.match(name) is not None
            half |= _COPIES.match(name) is not None and (came.startswith("$0x0") or _name(came, own) in short)
            (short.add if half else short.discard)(goal)
            into = _LEFT.match(name) is not None and came == "$0x20"
            into |= name.startswith("mov") and came in _OTHER_WORD
            (placed.add if into else placed.discard)(goal)
    return answer
