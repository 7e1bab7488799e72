"""Which loads of a traced function wait for others: those whose address is made from what the others bring.

Values are followed through registers and the stack, in the order of the basic blocks and twice, so that what a loop
hands on to its next pass counts too. A place is the return address of a load's call-out, or of a function that may
load. Left out are values that go through memory or through references that a function is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, MEMORY, NAMES, operands_of

_Line = tuple[int, str, str]
_Values = dict[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()
_MOST = 16  # places that a value is followed from; of a sum over more loads, the last ones are kept

_LOADS = re.compile(r"^__tsan_(?:unaligned_|volatile_)*(?:read|atomic\d+_load)")
_QUIET = re.compile(r"^__tsan_|^__sanitizer_|^cudamaster_cpu_observe_")
_ARGUMENTS = (*ARGUMENTS, "xmm0", "xmm1", "xmm2")
_REPLACES = re.compile(r"^v?(?:mov|lea|cvt|set|lddqu|bsf|bsr|popcnt|lzcnt|tzcnt|pshuf)")
_CHANGES_NOTHING = re.compile(r"^(?:cmp|test|v?u?comis|j|nop|push|pop|ret|ud2|hlt|bt[lqw]?$)")
_SLOT_BYTES = 4
# Names of a function's own memory: by the stack pointer, or by %rbp where the function sets that up as its frame.
_BASES = {"%rsp": "stack", "%frame": "frame"}
_ARRAYS = frozenset(f"{name} array" for name in _BASES.values())
_FRAME = re.compile(r"\(%rbp\b")


def of_loads(
    blocks: Sequence[Sequence[_Line]], following: Mapping[int, Sequence[int]], passes_on: Callable[[str], bool]
) -> dict[int, list[int]]:
    """Places that each load's address comes from, of a function's basic blocks in their order; loads with none are
    absent. `following` gives the blocks behind one by their first addresses. `passes_on` names conversions."""
    blocks = _framed(blocks)
    before: dict[int, _Values] = {}
    found: dict[int, frozenset[int]] = {}
    for _ in range(2):
        for lines in blocks:
            if not lines:
                continue
            start = lines[0][0]
            values = dict(before.get(start, {}))
            _follow(lines, values, found, passes_on)
            for to in following.get(start, ()):
                known = before.setdefault(to, {})
                for name, places in values.items():
                    there = known.get(name, _NONE)
                    if not places <= there:
                        known[name] = _few(there | places)
    return {place: sorted(places) for place, places in found.items() if places}


def _framed(blocks: Sequence[Sequence[_Line]]) -> Sequence[Sequence[_Line]]:
    """A function's blocks, its frame under a name of its own if it has one: elsewhere %rbp is like any register."""
    if not any(name.startswith("mov") and operands == "%rsp,%rbp" for lines in blocks for _, name, operands in lines):
        return blocks
    return [[(place, name, _FRAME.sub("(%frame", operands)) for place, name, operands in lines] for lines in blocks]


def _few(places: Iterable[int]) -> frozenset[int]:
    every = frozenset(places)
    return every if len(every) <= _MOST else _NONE


def _follow(
    lines: Sequence[_Line], values: _Values, found: dict[int, frozenset[int]], passes_on: Callable[[str], bool]
) -> None:
    """What registers and the stack hold behind a basic block, and what its loads' addresses are made from."""
    called: str | None = None
    loaded = _NONE  # the last load that was announced
    for address, name, operands in lines:
        if called is not None:
            loaded = _return(called, address, values, found, passes_on) or loaded
            called = None
        if name.startswith("call"):
            target = CALLED.search(operands)
            called = target[1] if target else ""
        elif not _CHANGES_NOTHING.match(name):
            _step(name, operands_of(operands), values, loaded)


def _return(
    called: str, place: int, values: _Values, found: dict[int, frozenset[int]], passes_on: Callable[[str], bool]
) -> frozenset[int]:
    """A call has come back to `place`; the load that it announced, if any."""
    loads = _LOADS.match(called) is not None
    arguments = _few(set().union(*(values.get(name, _NONE) for name in (_ARGUMENTS[:1] if loads else _ARGUMENTS))))
    for name in LOST:
        values.pop(name, None)
    if loads:
        found[place] = found.get(place, _NONE) | arguments
        return frozenset((place,))
    if _QUIET.match(called):
        return _NONE
    result = arguments
    if not passes_on(called):  # it may load, too
        found[place] = found.get(place, _NONE) | arguments
        result = _few(arguments | {place})
    if result:
        values["rax"] = values["xmm0"] = result
    return _NONE


def _step(name: str, operands: Sequence[str], values: _Values, loaded: frozenset[int]) -> None:
    if not operands:
        return
    *sources, target = (operand.strip() for operand in operands)
    if (name.startswith("xor") and sources == [target]) or (name.startswith("pxor") and sources == [target]):
        came = _NONE
    elif name.startswith("lea"):
        came = _of_address(sources[0], values)
    else:
        came = _few(set().union(*(_of_operand(source, values, loaded) for source in sources)) if sources else _NONE)
        if not _REPLACES.match(name):
            came = _few(came | _of_operand(target, values, _NONE))
    for slot in _slots(target, _bytes(name)):
        if slot in _ARRAYS:  # one of its elements
            values[slot] = _few(came | values.get(slot, _NONE))
        elif came:
            values[slot] = came
        else:
            values.pop(slot, None)


def _bytes(name: str) -> int:
    if re.match(r"^v?mov(?:[au]p[sd]|dq[au])", name):
        return 16
    return 8 if name.endswith("q") or name == "mov" or name.endswith(("sd", "lps", "hps")) else 4


def _of_operand(operand: str, values: _Values, loaded: frozenset[int]) -> frozenset[int]:
    if operand.startswith("$"):
        return _NONE
    slots = _slots(operand, 4)
    if slots:
        return values.get(slots[0], _NONE)
    return loaded if "(" in operand else _NONE


def _of_address(operand: str, values: _Values) -> frozenset[int]:
    parts = MEMORY.match(operand)
    if parts is None:
        return _NONE
    names = (NAMES.get(part[1:], part[1:]) for part in (parts["base"], parts["index"]) if part)
    return _few(set().union(*(values.get(name, _NONE) for name in names)))


def _slots(operand: str, size: int) -> list[str]:
    """Names of what an operand is: a register, or words of the function's own memory, or all of its elements with an
    index; none for other memory."""
    if operand.startswith("%") and not operand.startswith("%fs:"):
        return [NAMES.get(operand[1:], operand[1:])]
    parts = MEMORY.match(operand)
    if parts is None or parts["base"] not in _BASES:
        return []
    base = _BASES[parts["base"]]
    if parts["index"]:
        return [f"{base} array"]
    offset = int(parts["offset"] or "0", 16) // _SLOT_BYTES
    return [f"{base} {offset + word}" for word in range(max(size // _SLOT_BYTES, 1))]
