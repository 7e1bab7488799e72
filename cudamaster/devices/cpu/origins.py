"""Which loads of a traced function wait for others: those whose address is made from what the others bring.

A GPU loads nothing before it knows that it has to, so a load also waits for what decides a branch to it, and what is
changed there is another value by that. Values are followed through registers and the stack, in the order of the basic
blocks and twice, so that what a loop hands on to its next pass counts too. A place is the return address of a load's
call-out, or of a function that may load. Left out are values that go through memory or through references that a
function is given.

Found too are loads whose values are split on their path: where two paths meet and one of them has a value in whole
registers, the other in pieces of one or two bytes, nvcc keeps pieces, so the first path waits for its load in order to
split that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, NAMES, matching, memory_of, operands_of

_Line = tuple[int, str, str]
_Values = dict[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()
_MOST = 16  # places that a value is followed from; of a sum over more loads, the last ones are kept

_LOADS = matching(r"^__tsan_(?:unaligned_|volatile_)*(?:read|atomic\d+_load)")
_LOADED = matching(r"^__tsan_(?:unaligned_|volatile_)*(?:read(\d+)|atomic(\d+)_load)")
_REGISTER = 4  # bytes
_QUIET = matching(r"^__tsan_|^__sanitizer_|^cudamaster_cpu_observe_")
_ARGUMENTS = (*ARGUMENTS, "xmm0", "xmm1", "xmm2")
_REPLACES = matching(r"^v?(?:mov|lea|cvt|set|lddqu|bsf|bsr|popcnt|lzcnt|tzcnt|pshuf)")
_COMPARES = matching(r"^(?:cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[lqw]?)$")
_USES_FLAGS = matching(r"^(?:set|cmov|adc|sbb)")
_FLAGS, _DECIDES = "flags", "decides"  # beside the values: what a branch is decided by, and what has decided the last
_CHANGES_NOTHING = matching(r"^(?:cmp|test|v?u?comis|j|nop|push|pop|ret|ud2|hlt|bt[lqw]?$)")
_SLOT_BYTES = 4
# Names of a function's own memory: by the stack pointer, or by %rbp where the function sets that up as its frame.
_BASES = {"%rsp": "stack", "%frame": "frame"}
_ARRAYS = frozenset(f"{name} array" for name in _BASES.values())
_FRAME = re.compile(r"\(%rbp\b")


@dataclass(frozen=True)
class Origins:
    """Of a function's `loads`: places that each one's address comes from, loads with none absent, those whose value is
    split on its path, and those that decide the jump at the end of a block, by its first address, but for others that
    are asked again and again until another thread has written."""

    of_addresses: dict[int, list[int]]
    decides: dict[int, frozenset[int]]
    loads: frozenset[int]
    split: list[int]


def of_loads(
    blocks: Sequence[Sequence[_Line]], following: Mapping[int, Sequence[int]], passes_on: Callable[[str], bool]
) -> Origins:
    """What loads wait for, of a function's basic blocks in their order. `following` gives the blocks behind one by
    their first addresses. `passes_on` names conversions."""
    blocks = [lines for lines in _framed(blocks) if lines]
    before: dict[int, _Values] = {}
    behind: dict[int, _Values] = {}
    decided: dict[int, frozenset[int]] = {}  # by loads, whether a block is executed
    found: dict[int, frozenset[int]] = {}
    ways: dict[int, list[int]] = {}
    for lines in blocks:
        for to in set(following.get(lines[0][0], ())):
            ways.setdefault(to, []).append(lines[0][0])
    for _ in range(2):
        for lines in blocks:
            start = lines[0][0]
            values = dict(before.get(start, {}))
            decided[start] = _decided(ways.get(start, ()), following, behind, decided)
            values[_DECIDES] = decided[start]
            _follow(lines, values, found, passes_on)
            behind[start] = values
            for to in following.get(start, ()):
                known = before.setdefault(to, {})
                for name, places in values.items():
                    there = known.get(name, _NONE)
                    if not places <= there:
                        known[name] = _few(there | places)
    of_addresses = {place: sorted(places) for place, places in found.items() if places}
    sizes, block_of = _loads(blocks)
    plain = {place for lines in blocks for place in _plain(lines)}
    decides = {start: values.get(_FLAGS, _NONE) & plain for start, values in behind.items()}
    return Origins(of_addresses, decides, frozenset(sizes), _split(sizes, block_of, ways, behind))


def _decided(
    ways: Sequence[int],
    following: Mapping[int, Sequence[int]],
    behind: Mapping[int, _Values],
    decided: Mapping[int, frozenset[int]],
) -> frozenset[int]:
    """Loads on which it hangs that a block is executed, to which so many ways lead: on what decides the jump there, and
    what was decided on all ways before."""
    known = [decided[start] for start in ways if start in decided]
    if not known:
        return _NONE
    common = frozenset.intersection(*known)
    if len(ways) > 1 or len(set(following[ways[0]])) == 1:
        return common
    return _few(common | behind[ways[0]].get(_FLAGS, _NONE))


def _plain(lines: Sequence[_Line]) -> Iterator[int]:
    """Loads whose value no other thread changes meanwhile."""
    called = ""
    for place, name, operands in lines:
        if _LOADS(called) and "volatile" not in called and "atomic" not in called:
            yield place
        called = target[1] if name.startswith("call") and (target := CALLED.search(operands)) else ""


def _loads(blocks: Sequence[Sequence[_Line]]) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes of each load, and its basic block."""
    sizes: dict[int, int] = {}
    block_of: dict[int, int] = {}
    for lines in blocks:
        called = ""
        for place, name, operands in lines:
            if size := _LOADED(called):
                sizes[place], block_of[place] = int(size[1] or size[2]), lines[0][0]
            called = target[1] if name.startswith("call") and (target := CALLED.search(operands)) else ""
    return sizes, block_of


def _split(
    sizes: Mapping[int, int],
    block_of: Mapping[int, int],
    ways: Mapping[int, Sequence[int]],
    behind: Mapping[int, _Values],
) -> list[int]:
    """Loads of whole registers in a block behind which their value meets one that is put together from smaller ones."""
    found = set()
    for starts in ways.values():
        names = set().union(*(behind[start].keys() for start in starts)) if len(starts) > 1 else ()
        for name in names:
            for start in starts:
                whole = [place for place in behind[start].get(name, _NONE) if block_of.get(place) == start]
                if len(whole) == 1 and len(behind[start][name]) == 1 and sizes[whole[0]] >= _REGISTER:
                    others = [behind[other].get(name, _NONE) for other in starts if other != start]
                    # Of pieces in the function's own memory, what is written last stands for a register.
                    least = 1 if sizes[whole[0]] > _REGISTER else 2
                    if any(sum(sizes.get(place, _REGISTER) < _REGISTER for place in each) >= least for each in others):
                        found.add(whole[0])
    return sorted(found)


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
        elif _COMPARES(name):
            values[_FLAGS] = _few(set().union(*(_of_operand(each, values, loaded) for each in operands_of(operands))))
        elif not _CHANGES_NOTHING(name):
            _step(name, operands_of(operands), values, loaded)


def _return(
    called: str, place: int, values: _Values, found: dict[int, frozenset[int]], passes_on: Callable[[str], bool]
) -> frozenset[int]:
    """A call has come back to `place`; the load that it announced, if any."""
    loads = _LOADS(called) is not None
    arguments = _few(set().union(*(values.get(name, _NONE) for name in (_ARGUMENTS[:1] if loads else _ARGUMENTS))))
    for name in LOST:
        values.pop(name, None)
    if loads:
        found[place] = found.get(place, _NONE) | arguments | values.get(_DECIDES, _NONE)
        return frozenset((place,))
    if _QUIET(called):
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
        if not _REPLACES(name):
            came = _few(came | _of_operand(target, values, _NONE))
        if _USES_FLAGS(name):
            came = _few(came | values.get(_FLAGS, _NONE))
        elif not _REPLACES(name):
            values[_FLAGS] = came
    # What is changed behind a branch hangs on what decides that; what is only taken from the stack again does not.
    if not (sources and name.startswith("mov") and _slots(sources[0], 4) and "(" in sources[0]):
        came = _few(came | values.get(_DECIDES, _NONE))
    for slot in _slots(target, _bytes(name)):
        if slot in _ARRAYS:  # one of its elements
            values[slot] = _few(came | values.get(slot, _NONE))
        elif came:
            values[slot] = came
        else:
            values.pop(slot, None)


@lru_cache(maxsize=4096)
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
    parts = memory_of(operand)
    if parts is None:
        return _NONE
    names = (NAMES.get(part[1:], part[1:]) for part in (parts["base"], parts["index"]) if part)
    return _few(set().union(*(values.get(name, _NONE) for name in names)))


@lru_cache(maxsize=1 << 16)
def _slots(operand: str, size: int) -> tuple[str, ...]:
    """Names of what an operand is: a register, or words of the function's own memory, or all of its elements with an
    index; none for other memory."""
    if operand.startswith("%") and not operand.startswith("%fs:"):
        return (NAMES.get(operand[1:], operand[1:]),)
    parts = memory_of(operand)
    if parts is None or parts["base"] not in _BASES:
        return ()
    base = _BASES[parts["base"]]
    if parts["index"]:
        return (f"{base} array",)
    offset = int(parts["offset"] or "0", 16) // _SLOT_BYTES
    return tuple(f"{base} {offset + word}" for word in range(max(size // _SLOT_BYTES, 1)))
