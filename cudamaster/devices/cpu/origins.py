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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, NAMES, matching, memory_of, operands_of

_Line = tuple[int, str, str]
# Places are bits of an integer, by the order in which a function has them: sets of them are made a million times.
_Values = dict[str, int]
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
_CHANGES_NOTHING = matching(r"^(?:cmp|test|v?u?comis|j|nop|push|pop[qw]?$|ret|ud2|hlt|bt[lqw]?$)")
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
    bits: dict[int, int] = {}
    steps = {lines[0][0]: _steps(lines, bits, passes_on) for lines in blocks}
    before: dict[int, _Values] = {}
    behind: dict[int, _Values] = {}
    decided: dict[int, int] = {}  # by loads, whether a block is executed
    found: dict[int, int] = {}
    ways: dict[int, list[int]] = {}
    for lines in blocks:
        for to in set(following.get(lines[0][0], ())):
            ways.setdefault(to, []).append(lines[0][0])
    changed = set(steps)  # blocks whose values before them have become more since they were followed
    for _ in range(2):
        for start, each in steps.items():
            decides = _decided(ways.get(start, ()), following, behind, decided)
            if start in changed or decides != decided.get(start):
                changed.discard(start)
                decided[start] = decides
                behind[start] = values = {**before.get(start, {}), _DECIDES: decides}
                _follow(each, values, found)
            for to in following.get(start, ()):
                if _meet(before, to, behind[start]):
                    changed.add(to)
    places = list(bits)
    of_addresses = {place: _places(bits_of, places) for place, bits_of in found.items() if bits_of}
    sizes, block_of = _loads(blocks)
    plain = sum(bits[place] for lines in blocks for place in _plain(lines))
    decides_jumps = {
        start: frozenset(_places(values.get(_FLAGS, 0) & plain, places)) for start, values in behind.items()
    }
    return Origins(of_addresses, decides_jumps, frozenset(sizes), _split(sizes, block_of, bits, ways, behind))


def _places(bits: int, places: Sequence[int]) -> list[int]:
    """Places in their order, by their bits."""
    found = []
    while bits:
        found.append(places[(bits & -bits).bit_length() - 1])
        bits &= bits - 1
    return sorted(found)


def _meet(before: dict[int, _Values], to: int, values: _Values) -> bool:
    """Adds the values on one way to a block to those on others, and says whether they have become more."""
    known = before.get(to)
    if known is None:
        before[to] = dict(values)
        return True
    changed = False
    for name, bits in values.items():
        there = known.get(name, 0)
        if there is not bits and bits & ~there:
            known[name] = _few(there | bits)
            changed = True
    return changed


def _decided(
    ways: Sequence[int],
    following: Mapping[int, Sequence[int]],
    behind: Mapping[int, _Values],
    decided: Mapping[int, int],
) -> int:
    """Loads on which it hangs that a block is executed, to which so many ways lead: on what decides the jump there, and
    what was decided on all ways before."""
    common = -1
    for start in ways:
        common &= decided.get(start, -1)
    if common == -1:  # no way is known yet
        return 0
    if len(ways) > 1 or len(set(following[ways[0]])) == 1:
        return common
    return _few(common | behind[ways[0]].get(_FLAGS, 0))


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
    bits: Mapping[int, int],
    ways: Mapping[int, Sequence[int]],
    behind: Mapping[int, _Values],
) -> list[int]:
    """Loads of whole registers in a block behind which their value meets one that is put together from smaller ones."""
    found = set()
    whole = {bits[place]: place for place, size in sizes.items() if size >= _REGISTER}
    pieces = sum(bits[place] for place, size in sizes.items() if size < _REGISTER)
    for starts in ways.values():
        for start in starts if len(starts) > 1 else ():
            for name, value in behind[start].items():
                place = whole.get(value)
                if place is not None and block_of[place] == start:
                    # Of pieces in the function's own memory, what is written last stands for a register.
                    least = 1 if sizes[place] > _REGISTER else 2
                    others = (behind[other].get(name, 0) & pieces for other in starts if other != start)
                    if any(each.bit_count() >= least for each in others):
                        found.add(place)
    return sorted(found)


def _framed(blocks: Sequence[Sequence[_Line]]) -> Sequence[Sequence[_Line]]:
    """A function's blocks, its frame under a name of its own if it has one: elsewhere %rbp is like any register."""
    if not any(name.startswith("mov") and operands == "%rsp,%rbp" for lines in blocks for _, name, operands in lines):
        return blocks
    return [[(place, name, _FRAME.sub("(%frame", operands)) for place, name, operands in lines] for lines in blocks]


def _few(bits: int) -> int:
    return bits if bits.bit_count() <= _MOST else 0


class _Return(NamedTuple):
    """A call has come back to the place with this bit."""

    place: int
    bit: int
    loads: bool
    passes_on: bool  # its result is its argument in another form; without, it may load, too


class _Change(NamedTuple):
    """An instruction that makes a new value of others, by the names of these."""

    sources: tuple[str, ...] = ()
    loaded: bool = False  # what was loaded last is one of them
    changed: str | None = None  # so is this, the target itself
    takes_flags: bool = False
    makes_flags: bool = False
    hangs: bool = False  # on what decides a branch to it
    targets: tuple[str, ...] = ()


class _Compare(NamedTuple):
    """An instruction that makes flags."""

    sources: tuple[str, ...]
    loaded: bool


_Step = _Return | _Change | _Compare | None  # None forgets what a call may change


def _steps(lines: Sequence[_Line], bits: dict[int, int], passes_on: Callable[[str], bool]) -> list[_Step]:
    """What the instructions of a block do to values. Places of calls get their bits."""
    steps: list[_Step] = []
    called: str | None = None
    for address, name, operands in lines:
        if called is not None:
            loads = _LOADS(called) is not None
            if loads or not _QUIET(called):
                bit = bits.setdefault(address, 1 << len(bits))
                steps.append(_Return(address, bit, loads, not loads and passes_on(called)))
            else:
                steps.append(None)
            called = None
        if name.startswith("call"):
            target = CALLED.search(operands)
            called = target[1] if target else ""
        elif (step := _of_instruction(name, operands)) is not None:
            steps.append(step)
    return steps


@lru_cache(maxsize=1 << 16)
def _of_instruction(name: str, text: str) -> _Change | _Compare | None:
    operands = operands_of(text)
    if _COMPARES(name):
        return _Compare(*_of_operands(operands))
    if not operands or _CHANGES_NOTHING(name):
        return None
    *sources, target = operands
    targets = _slots(target, _bytes(name))
    # What is changed behind a branch hangs on what decides that; what is only taken from the stack again does not.
    hangs = not (sources and name.startswith("mov") and _slots(sources[0], 4) and "(" in sources[0])
    if name.startswith(("xor", "pxor")) and sources == [target]:
        return _Change(hangs=hangs, targets=targets)
    if name.startswith("lea"):
        return _Change(_of_address(sources[0]), hangs=hangs, targets=targets)
    names, loaded = _of_operands(sources)
    replaces, takes_flags = _REPLACES(name) is not None, _USES_FLAGS(name) is not None
    itself = None if replaces else next(iter(_of_operands([target])[0]), None)
    makes_flags = not replaces and not takes_flags
    return _Change(names, loaded, itself, takes_flags, makes_flags, hangs, targets)


def _of_operands(operands: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Names of the values of operands, and whether one of them is in other memory: that was loaded last."""
    variable = [operand for operand in operands if not operand.startswith("$")]
    names = tuple(slots[0] for operand in variable if (slots := _slots(operand, 4)))
    return names, any("(" in operand and not _slots(operand, 4) for operand in variable)


def _follow(steps: Sequence[_Step], values: _Values, found: dict[int, int]) -> None:
    """What registers and the stack hold behind a basic block, and what its loads' addresses are made from."""
    loaded = 0  # the last load that was announced
    get = values.get
    for step in steps:
        if isinstance(step, _Change):
            sources, takes_loaded, changed, takes_flags, makes_flags, hangs, targets = step
            came = loaded if takes_loaded else 0
            for name in sources:
                came |= get(name, 0)
            came = _few(came)
            if changed is not None:
                came = _few(came | get(changed, 0))
            if takes_flags:
                came = _few(came | get(_FLAGS, 0))
            elif makes_flags:
                values[_FLAGS] = came
            if hangs:
                came = _few(came | get(_DECIDES, 0))
            for name in targets:
                if name in _ARRAYS:  # one of its elements
                    values[name] = _few(came | get(name, 0))
                elif came:
                    values[name] = came
                elif name in values:
                    del values[name]
        elif isinstance(step, _Compare):
            came = loaded if step.loaded else 0
            for name in step.sources:
                came |= get(name, 0)
            values[_FLAGS] = _few(came)
        else:
            loaded = _return(step, values, found) or loaded


def _return(step: _Return | None, values: _Values, found: dict[int, int]) -> int:
    """The bit of the load that a call has announced, if any."""
    given = 0
    if step is not None:
        for name in _ARGUMENTS[:1] if step.loads else _ARGUMENTS:
            given |= values.get(name, 0)
        given = _few(given)
    for name in LOST:
        if name in values:
            del values[name]
    if step is None:
        return 0
    if step.loads:
        found[step.place] = found.get(step.place, 0) | given | values.get(_DECIDES, 0)
        return step.bit
    if not step.passes_on:
        found[step.place] = found.get(step.place, 0) | given
        given = _few(given | step.bit)
    if given:
        values["rax"] = values["xmm0"] = given
    return 0


@lru_cache(maxsize=4096)
def _bytes(name: str) -> int:
    if re.match(r"^v?mov(?:[au]p[sd]|dq[au])", name):
        return 16
    return 8 if name.endswith("q") or name == "mov" or name.endswith(("sd", "lps", "hps")) else 4


def _of_address(operand: str) -> tuple[str, ...]:
    """Registers that an operand's address is made from."""
    parts = memory_of(operand)
    if parts is None:
        return ()
    return tuple(NAMES.get(part[1:], part[1:]) for part in (parts["base"], parts["index"]) if part)


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
