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
from functools import lru_cache

from cudamaster.devices.cpu import counting
from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, MEMORY, NAMES, is_whole, operands_of

_Line = tuple[int, str, str]
_Kinds = Mapping[str, float]
_Own = frozenset[str]  # registers by which a function finds its own memory
_UNFRAMED, _FRAMED = frozenset({"%rsp"}), frozenset({"%rsp", "%rbp"})

_ROUNDS = 8  # of the whole function; nested loops need one each

_COPIES = re.compile(r"^(?:mov[bwlq]?|movabs|movs[bwl][wlq]|movz[bw][wlq])$")
_ADDRESS = re.compile(r"^lea")
_ADDS = re.compile(r"^(?:add|sub|inc|dec|neg)[lq]?$")
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

_TWO_WORDS: _Kinds = {"integer": 2}
_COUNTING: _Kinds = {"counting": 2}
_SHORT: _Kinds = {"counting": 1}
_PRODUCT_OF_HALVES: _Kinds = {"integer": 1}
_WHOLE_PRODUCT: _Kinds = {"integer": 4}


class _Does(Enum):
    """What an instruction does to what leads to an address."""

    CALLS = 0
    COMPARES = 1
    GOES_ON = 2  # a part of an address stays one
    REPLACES = 3  # by what its sources are
    ENDS = 4  # what comes of it is no address, or is not known


_HANDS_ON = (_Does.GOES_ON, _Does.REPLACES)


@dataclass(frozen=True)
class _Step:
    """An instruction: `sources` lead to an address where `goal` does, and what is in `memory` always."""

    does: _Does
    goal: str | None = None
    sources: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    kinds: _Kinds | None = None
    spared: bool = False  # it costs nothing where it leads to an address
    requests: int = 0


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
    framed = any(name.startswith("mov") and to == "%rsp,%rbp" for lines in blocks for _, name, to in lines)
    steps = {lines[0][0]: _steps(lines, _FRAMED if framed else _UNFRAMED) for lines in blocks if lines}
    wanted: dict[int, frozenset[str]] = {start: frozenset() for start in steps}
    found: dict[int, _Found] = {}
    changed = set(steps)
    for _ in range(_ROUNDS):
        before, changed = changed, set()
        for start in reversed(steps):
            after = following.get(start, ())
            if start in found and before.isdisjoint(after) and changed.isdisjoint(after):
                continue
            behind = set().union(*(wanted.get(to, frozenset()) for to in after))
            found[start] = _backwards(steps[start], behind)
            if behind != wanted[start]:
                changed.add(start)
                wanted[start] = frozenset(behind)
        if not changed:
            break
    counted: dict[int, _Kinds] = {}
    of_request = int(counting.shipped().address_instructions)
    for one in found.values():
        counted.update(one.counted)
        counted.update(one.spared[of_request * one.requests :])
    return counted


def _backwards(steps: Sequence[tuple[int, _Step]], wanted: set[str]) -> _Found:
    """Goes through a block from its end: of `wanted` an address is made behind it, and then in it, too."""
    found = _Found()
    for place, step in reversed(steps):
        leads = step.goal in wanted
        match step.does:
            case _Does.CALLS:
                wanted.difference_update(LOST)
                found.requests += step.requests
            case _Does.COMPARES:
                leads = not wanted.isdisjoint(step.sources)
            case _Does.REPLACES | _Does.ENDS if step.goal is not None:
                wanted.discard(step.goal)
            case _:
                pass
        if leads and step.does in _HANDS_ON:
            wanted.update(step.sources)
        wanted.update(step.memory)
        if step.kinds and not (leads and step.spared):
            found.counted[place] = step.kinds
        elif step.kinds and step.does is not _Does.COMPARES:
            found.spared.append((place, step.kinds))
    return found


def _steps(lines: Sequence[_Line], own: _Own) -> list[tuple[int, _Step]]:
    """The instructions of a block that matter, by their places."""
    given = _Given(own)
    steps = []
    for place, name, text in lines:
        if name.startswith("call"):
            step = _of_call(text)
        elif name == "cltq":
            step = None
        else:
            step = _of_instruction(name, text, own, known=given.tells(name, text))
        given.goes_on(name, text)
        if step is not None:
            steps.append((place, step))
    return steps


@lru_cache(maxsize=1 << 16)
def _of_call(text: str) -> _Step:
    target = CALLED.search(text)
    called = target[1] if target else ""
    if _READS.match(called) or _ATOMIC.search(called):
        return _Step(_Does.CALLS, memory=("rdi",), requests=1)
    if _MOVES.search(called) and not _VALUES.match(called):
        return _Step(_Does.CALLS, memory=ARGUMENTS, requests=1)
    return _Step(_Does.CALLS)


@lru_cache(maxsize=1 << 16)
def _of_instruction(name: str, text: str, own: _Own, *, known: bool) -> _Step | None:
    """`known`, of a product: its factors have 32 bits; of a mask: it puts two words beside each other."""
    kind = _kind(name)
    operands = operands_of(text)
    if not operands or kind is _Kind.LEAVES:
        return _Step(_Does.ENDS, memory=_of_all(text, own)) if operands and "(" in text else None
    *sources, target = operands
    if target == "%rsp":
        return None
    goal, names = _name(target, own), tuple(each for one in sources if (each := _name(one, own)))
    if kind is _Kind.ADDRESS:
        return _lea(sources[0], target, own)
    memory = _of_all(text, own)
    wide = name.endswith("q") or any(map(is_whole, operands))
    if kind is _Kind.COMPARES:
        both = tuple(each for one in operands if (each := _name(one, own)))
        return _Step(_Does.COMPARES, None, both, memory, _COUNTING if wide else None, spared=True)
    if kind is _Kind.ADDS:
        sum_ = _TWO_WORDS if sources and not sources[0].startswith("$") else _COUNTING
        return _Step(_Does.GOES_ON, goal, names, memory, sum_ if wide else None, spared=True)
    if kind is _Kind.LEFT:
        # By 32: the second word of a small structure is put beside the first.
        kinds = _TWO_WORDS if wide and "$0x20" not in sources else None
        return _Step(_Does.GOES_ON, goal, (), memory, kinds, spared=True)
    if kind is _Kind.CHOOSES:
        return _Step(_Does.GOES_ON, goal, names, memory, _TWO_WORDS if wide else None)
    if kind is _Kind.PRODUCT:
        product = _PRODUCT_OF_HALVES if known else _WHOLE_PRODUCT
        return _Step(_Does.ENDS, goal, (), memory, product if wide else None)
    if kind is _Kind.MASKS:
        alone = sources == [target] or "%xmm" in text or known
        upper = name.startswith(("shr", "sar")) and sources == ["$0x20"]
        return _Step(_Does.ENDS, goal, (), memory, _TWO_WORDS if wide and not alone and not upper else None)
    copies = kind is _Kind.COPIES and bool(sources)
    if goal is None and not memory:
        return None
    return _Step(_Does.REPLACES if copies else _Does.ENDS, goal, names[:1] if copies else (), memory)


def _lea(source: str, target: str, own: _Own) -> _Step:
    """A sum: with an index it is an instruction in any case, and one more where it has 64 bits and makes no address."""
    parts, goal = MEMORY.match(source), _name(target, own)
    if parts is None or parts["base"] in own or parts["base"] == "%rip":
        return _Step(_Does.ENDS, goal)
    whole = is_whole(target)
    if parts["index"]:
        kinds = _TWO_WORDS if whole else None
        # Its one instruction is counted elsewhere, so no more is spared than the second.
        return _Step(_Does.REPLACES, goal, _of_memory(source, own), (), kinds, spared=True)
    return _Step(_Does.REPLACES, goal, _of_memory(source, own), (), _COUNTING if whole else _SHORT, spared=True)


class _Kind(Enum):
    LEAVES, ADDRESS, COMPARES, ADDS, LEFT, CHOOSES, PRODUCT, MASKS, COPIES, OTHER = range(10)


@lru_cache(maxsize=4096)
def _kind(name: str) -> _Kind:
    for pattern, kind in (
        (_COMPARES, _Kind.COMPARES), (_LEAVES, _Kind.LEAVES), (_ADDRESS, _Kind.ADDRESS), (_ADDS, _Kind.ADDS),
        (_LEFT, _Kind.LEFT), (_CHOOSES, _Kind.CHOOSES), (_PRODUCT, _Kind.PRODUCT), (_MASKS, _Kind.MASKS),
        (_COPIES, _Kind.COPIES),
    ):  # fmt: skip
        if pattern.match(name):
            return kind
    return _Kind.OTHER


@lru_cache(maxsize=1 << 16)
def _name(operand: str, own: _Own) -> str | None:
    """A register, or a word of the function's own memory; None for constants and other memory."""
    if operand.startswith("%"):
        return NAMES.get(operand[1:])
    parts = MEMORY.match(operand)
    if parts is None or parts["base"] not in own or parts["index"]:
        return None
    return f"{parts['base']} {parts['offset']}"


@lru_cache(maxsize=1 << 16)
def _of_memory(operand: str, own: _Own) -> tuple[str, ...]:
    """Registers that an operand's address is made from."""
    parts = MEMORY.match(operand)
    if parts is None:
        return ()
    names = (parts["base"], parts["index"])
    return tuple(NAMES[each[1:]] for each in names if each and each not in own and each[1:] in NAMES)


def _of_all(text: str, own: _Own) -> tuple[str, ...]:
    return tuple(name for each in operands_of(text) for name in _of_memory(each, own)) if "(" in text else ()


class _Given:
    """What is known of values at an instruction, as far as its block shows: which have 32 bits, and which are a word in
    its place beside another one."""

    def __init__(self, own: _Own) -> None:
        self._own = own
        self._short: set[str] = set()
        self._placed: set[str] = set()

    def tells(self, name: str, text: str) -> bool:
        """Of a product, whether its factors have 32 bits; of a mask, whether it puts two words beside each other."""
        kind, operands = _kind(name), operands_of(text)
        if kind is _Kind.MASKS:
            return any(_name(each, self._own) in self._placed for each in operands)
        if kind is not _Kind.PRODUCT:
            return False
        factors = [*operands, "%rax"] if len(operands) == 1 else operands[1:2] if len(operands) == 3 else operands
        return all(each.startswith("$") or _name(each, self._own) in self._short for each in factors)

    def goes_on(self, name: str, text: str) -> None:
        """The next instruction has been executed."""
        if name.startswith("call"):
            self._short.difference_update(LOST)
            self._placed.difference_update(LOST)
        elif name == "cltq":
            self._short.add("rax")
        elif (change := _change(name, text, self._own)) is not None:
            goal, half, copied, placed = change
            half |= copied is not None and copied in self._short
            (self._short.add if half else self._short.discard)(goal)
            (self._placed.add if placed else self._placed.discard)(goal)


@lru_cache(maxsize=1 << 16)
def _change(name: str, text: str, own: _Own) -> tuple[str, bool, str | None, bool] | None:
    """What an instruction changes, whether that has 32 bits then, as what is copied to it may have too, and whether it
    is a word in its place beside another one."""
    kind, operands = _kind(name), operands_of(text)
    if kind in (_Kind.LEAVES, _Kind.COMPARES) or not operands or (goal := _name(operands[-1], own)) is None:
        return None
    came, copies = operands[0], kind is _Kind.COPIES
    half = operands[-1].startswith("%") and not is_whole(operands[-1])
    half |= copies and (_NARROW.match(name) is not None or came.startswith("$0x"))
    placed = (kind is _Kind.LEFT and came == "$0x20") or (copies and came in _OTHER_WORD)
    return goal, half, _name(came, own) if copies else None, placed
