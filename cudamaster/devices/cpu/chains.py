"""How long a warp's arithmetic is because one instruction needs what another one brings: cycles by basic block.

The host's instructions of a function are gone through in the order of its basic blocks. Every value has the time at
which it is ready: its operands' and the latency of what makes it. A block's cycles are by how much the latest time
grows in it; in a loop, in its later passes, so a sum that a loop hands on costs one addition a pass, and four sums
beside each other no more. Values are followed through registers, the function's own memory and fragments of matrices;
what memory brings is there at once, because waits for it are counted elsewhere (origins.py). What comes behind a
branch waits for what decides it, but for a loop of one block, or one whose branches become predicates: nvcc unrolls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from cudamaster.devices.cpu import counting
from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, NAMES, matching, operands_of

_Line = tuple[int, str, str]


@cache
def latencies() -> Mapping[str, float]:
    """Cycles from an instruction's start to that of one which needs its result, by its kind."""
    of = counting.shipped()
    return {
        **dict.fromkeys(("fma", "fp32", "sum", "product"), of.fp32_cycles),
        **dict.fromkeys(("fp64", "sum of doubles", "product of doubles"), of.fp64_cycles),
        **dict.fromkeys(("integer", "counting"), of.integer_cycles),
        "conversion": of.conversion_cycles,
        "special": of.special_cycles,
        "slow": of.subroutine_cycles,
        "matrix": of.matrix_cycles,
        "shuffle": of.shuffle_cycles,
    }


_PASSES, _SETTLED = 4, 2  # of a loop, and those of them until its values' times grow alike

_QUIET = matching(r"^__tsan_|^__sanitizer_|^cudamaster_cpu_observe_|^_Unwind|^cudamaster_cpu_barrier")
_LOADS_FRAGMENT = lru_cache(re.compile(r"load_matrix_sync|fill_fragment").search)
_PRODUCT = lru_cache(re.compile(r"mma_sync").search)
_MEMORY = matching(r"^(?P<offset>-?(?:0x)?[0-9a-f]*)\((?P<base>%\w+)?(?:,(?P<index>%\w+)?(?:,\d)?)?\)$")
_VALUES = (*ARGUMENTS, "xmm0", "xmm1", "xmm2")
_REPLACES = matching(r"^v?(?:mov|lea|cvt|set|lddqu|bsf|bsr|popcnt|lzcnt|tzcnt|pshuf|pop$)")
_POPS = matching(r"^pop[qw]?$")
_COMPARES = matching(r"^(?:cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[lqw]?)$")
# Exact divisions and roots go around their long way by a branch.
_IN_TURN = matching(r"^(?:v?(?:div|sqrt)ss|sqrtf)$")
_EMULATES = "<cudamaster_cpu_lane"
_SHORT = 8  # blocks of such a loop
_ZEROES = matching(r"^v?p?xor(?:ps|pd)?[lq]?$")
_WIDE = matching(r"^v?mov(?:[au]p[sd]|dq[au])")
_USES_FLAGS = matching(r"^(?:set|cmov|adc|sbb)")
_POINTERS = 16  # that a product of registers is given at most on the stack


# A register, an array or a fragment by its name, or a word of the function's own memory by its number: of bytes from
# where the stack ends as the function begins, or, beyond _FRAME, from its frame.
_Place = str | int
_FRAME = 1 << 40
_ARRAYS = frozenset({"stack array", "frame array"})


class _Memory(NamedTuple):
    """An operand in memory: registers of its address, and bytes beside that."""

    base: str | None
    scaled: str | None
    offset: int
    framed: bool  # %rbp is the function's frame


_Operand = str | _Memory | None  # a register by its name; None is always ready


@lru_cache(maxsize=1 << 16)
def _operand(text: str, framed: bool) -> _Operand:
    if text.startswith("%"):
        return None if text.startswith("%fs:") else NAMES.get(text[1:], text[1:])
    parts = _MEMORY(text)
    if parts is None:
        return None
    base, scaled = (NAMES.get(part[1:], part[1:]) if part else None for part in (parts["base"], parts["index"]))
    return _Memory(base, scaled, int(parts["offset"] or "0", 16), framed)


class _State:
    """When values are ready, by register or place in the function's own memory, and which of them are its addresses."""

    def __init__(self) -> None:
        self.ready: dict[_Place, float] = {}
        self.address: dict[_Place, _Place] = {}  # of a register or place: the place that it points to
        self.begin = 0.0  # of instructions behind the last branch
        self.flags = 0.0
        self.latest = 0.0
        self.pushed = 0  # bytes below the function's frame

    def get(self, place: _Place) -> float:
        time = self.ready.get(place, 0.0)
        return time if time > self.begin else self.begin

    def put(self, place: _Place, time: float, address: _Place | None = None) -> None:
        self.ready[place] = time
        if time > self.latest:
            self.latest = time
        if address is not None:
            self.address[place] = address
        elif place in self.address:
            del self.address[place]

    def place(self, operand: _Operand) -> _Place | None:
        """Where a value is kept: a register, or a word of the function's own memory; None for other memory."""
        if not isinstance(operand, _Memory):
            return operand
        base, scaled, offset, framed = operand
        if base == "rsp":
            return offset - self.pushed if scaled is None else "stack array"
        if base == "rbp" and framed:
            return _FRAME + offset if scaled is None else "frame array"
        known = self.address.get(base) if base is not None and scaled is None else None
        return None if known is None else _beside(known, offset)

    def when(self, operand: _Operand) -> float:
        """When an operand is ready. What other memory brings is there as soon as its address."""
        place = self.place(operand)
        return self.of_address(operand) if place is None else self.get(place)

    def of_address(self, operand: _Operand) -> float:
        if not isinstance(operand, _Memory):
            return self.begin
        return max(self.begin if name is None else self.get(name) for name in operand[:2])


def _beside(place: _Place, offset: int) -> _Place:
    return place + offset if isinstance(place, int) else place


def of_blocks(
    blocks: Sequence[Sequence[_Line]],
    following: Mapping[int, Sequence[int]],
    of_instruction: Callable[[str, str], Mapping[str, float]],
    of_call: Callable[[str], Mapping[str, float]],
    of_places: Mapping[int, Mapping[str, float]] = MappingProxyType({}),
    predicated: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> dict[int, float]:
    """Cycles of each basic block of a function by its first address. `blocks` are in the order of flow.py; the others
    give the kinds of instructions that one stands for, `of_places` those of some instructions by where they are. Blocks
    that are `predicated` are unrolled together."""
    blocks = [lines for lines in blocks if lines]
    starts = [lines[0][0] for lines in blocks]
    position = {start: number for number, start in enumerate(starts)}
    alone = [start in following.get(start, ()) or start in predicated for start in starts]
    # What stands for one instruction of a GPU, by a loop, has no branch there.
    emulated = [any(name.startswith("call") and _EMULATES in to for _, name, to in lines) for lines in blocks]
    loops = [
        any(
            position.get(to, len(blocks)) <= at
            and not (at - position[to] < _SHORT and any(emulated[position[to] : at + 1]))
            for to in following.get(start, ())
        )
        for at, start in enumerate(starts)
    ]
    framed = any(name.startswith("mov") and to == "%rsp,%rbp" for lines in blocks for _, name, to in lines)
    code = [
        _prepared(lines, of_instruction, of_call, of_places, framed=framed, back=loops[at], unrolled=alone[at])
        for at, lines in enumerate(blocks)
    ]
    # Loops are stretches of that order: from where a jump goes back to until where it comes from.
    ends: dict[int, int] = {}
    for start in starts:
        for to in following.get(start, ()):
            if to in position and position[to] <= position[start]:
                ends[position[to]] = max(ends.get(position[to], 0), position[start])
    # What points where is known at a loop's start from the way there.
    state, known, once = _State(), dict[int, dict[_Place, _Place]](), list[float]()
    for at, each in enumerate(code):
        if at in ends:
            known[at] = dict(state.address)
        before = state.latest
        _follow(each, state)
        once.append(state.latest - before)
    found: dict[int, float] = {}
    # The innermost loop of a block is the shortest; what is in none is gone through once.
    for first, last in sorted(ends.items(), key=lambda loop: loop[1] - loop[0]):
        if all(start in found for start in starts[first : last + 1]):
            continue
        state = _State()
        state.address = known[first]
        grown = [0.0] * (last - first + 1)
        for number in range(_PASSES):
            for at in range(first, last + 1):
                before = state.latest
                _follow(code[at], state)
                if number >= _SETTLED:
                    grown[at - first] += state.latest - before
        for at in range(first, last + 1):
            found.setdefault(starts[at], grown[at - first] / (_PASSES - _SETTLED))
    for start, more in zip(starts, once, strict=True):
        found.setdefault(start, more)
    return found


class _Change(NamedTuple):
    """An instruction that makes a value of others. `latency` is that of what it stands for on a GPU."""

    target: _Operand
    sources: tuple[_Operand, ...]  # the target too, where it is changed
    latency: float
    of_address: _Operand  # the value is this operand's address
    copied: _Operand  # what it points to, the value does too
    takes_flags: bool
    makes_flags: bool
    wide: bool
    in_turn: str | None  # nothing behind it begins before this register is ready


class _Compare(NamedTuple):
    """An instruction that makes flags."""

    operands: tuple[_Operand, ...]
    latency: float


class _Call(NamedTuple):
    called: str
    latency: float
    lost: tuple[str, ...]  # registers that may be known before it, and are not behind it
    in_turn: bool


class _Branch(NamedTuple):
    """A jump on a condition. What goes on behind one forward is predicated on a GPU, so it waits for the predicate
    alone."""

    cycles: float


class _Push(NamedTuple):
    operand: _Operand


class _Pop(NamedTuple):
    """A word is taken from the stack."""


class _Moves(NamedTuple):
    """The stack's end is moved: the function makes its frame, or so many bytes of arguments are taken from it again."""

    amount: int | None


_Instruction = _Change | _Compare | _Call | _Branch | _Push | _Pop | _Moves


def _prepared(
    lines: Sequence[_Line],
    of_instruction: Callable[[str, str], Mapping[str, float]],
    of_call: Callable[[str], Mapping[str, float]],
    of_places: Mapping[int, Mapping[str, float]],
    *,
    framed: bool,
    back: bool,
    unrolled: bool,
) -> list[_Instruction]:
    """A block, as what it does to values. `back`: its jump leads to a loop's start."""
    code: list[_Instruction] = []
    written = set(LOST)  # registers that may be known, as far as calls matter to them
    for place, name, text in lines:
        if name.startswith("call"):
            target = CALLED.search(text)
            called = target[1] if target else ""
            latency = 0.0 if _QUIET(called) else _latency(of_call(called), unrolled=unrolled)
            code.append(_Call(called, latency, tuple(written.intersection(LOST)), _IN_TURN(called) is not None))
            written = {"rax", "xmm0"}
        elif name[0] == "j":
            if not name.startswith("jmp") and not unrolled:
                code.append(_Branch(counting.shipped().branch_cycles if back else 0.0))
        elif name.startswith("push"):
            code.append(_Push(_operand(text, framed)))
        elif _POPS(name):
            code.append(_Pop())
        elif name.startswith(("add", "sub", "and")) and text.endswith("%rsp"):
            amount = re.match(r"\$(-?0x[0-9a-f]+)", text) if name.startswith("add") else None
            code.append(_Moves(int(amount[1], 16) if amount else None))
        elif text:
            latency = _latency(of_places.get(place) or of_instruction(name, text), unrolled=unrolled)
            step = _step(name, text, latency, framed=framed)
            if step is None:
                continue
            code.append(step)
            if isinstance(step, _Change) and isinstance(step.target, str):
                written.add(step.target)
    return code


def _latency(kinds: Mapping[str, float], *, unrolled: bool) -> float:
    latency = sum(latencies().get(kind, 0.0) * count for kind, count in kinds.items())
    return latency / counting.shipped().unrolled_passes if unrolled and "counting" in kinds else latency


@lru_cache(maxsize=1 << 16)
def _step(name: str, text: str, latency: float, *, framed: bool) -> _Change | _Compare | None:
    """An instruction that is neither a call nor a jump, and leaves the stack where it is; None does nothing."""
    words = operands_of(text)
    if not words:
        return None
    operands = tuple(_operand(word, framed) for word in words)
    if _COMPARES(name):
        return _Compare(operands, latency or latencies()["integer"])
    *sources, target = operands
    in_turn = words[-1].lstrip("%") if _IN_TURN(name) else None
    wide = _WIDE(name) is not None
    if _ZEROES(name) and len(words) == 2 and words[0] == words[1]:
        return _Change(target, (), 0.0, None, None, False, False, wide, in_turn)
    if name.startswith("lea"):
        return _Change(target, (), latency, sources[0], None, False, False, wide, in_turn)
    moves, takes_flags = name.startswith("mov"), _USES_FLAGS(name) is not None
    replaces = _REPLACES(name) is not None
    copied = sources[0] if sources and moves and replaces else None
    makes_flags = latency != 0 and not moves
    every = tuple(sources) if replaces else operands
    return _Change(target, every, latency, None, copied, takes_flags, makes_flags, wide, in_turn)


def _follow(code: Sequence[_Instruction], state: _State) -> None:
    ready = state.ready
    for step in code:
        if isinstance(step, _Change):
            _change(step, state)
            if step.in_turn is not None:
                state.begin = max(state.begin, ready.get("xmm0", 0.0), ready.get(step.in_turn, 0.0))
        elif isinstance(step, _Call):
            _call(step, state)
            if step.in_turn:
                state.begin = max(state.begin, ready.get("xmm0", 0.0))
        elif isinstance(step, _Compare):
            state.flags = max(map(state.when, step.operands)) + step.latency
        elif isinstance(step, _Branch):
            state.begin = max(state.begin, state.flags + step.cycles)
        elif isinstance(step, _Push):
            state.pushed += 8
            came = state.place(step.operand)
            if came is None:
                state.put(-state.pushed, state.begin)
            else:
                state.put(-state.pushed, state.get(came), state.address.get(came))
        elif isinstance(step, _Pop):
            state.pushed -= 8
        elif step.amount is not None and state.pushed > 0:
            state.pushed = max(0, state.pushed - step.amount)
        else:
            state.pushed = 0


def _change(step: _Change, state: _State) -> None:
    operand, sources, latency, of_address, copied, takes_flags, makes_flags, wide, _ = step
    place = operand if isinstance(operand, str) else state.place(operand)
    address = None
    time = state.begin
    for source in sources:
        known = state.ready.get(source, 0.0) if isinstance(source, str) else state.when(source)
        if known > time:
            time = known
    if of_address is not None:
        time, address = state.of_address(of_address), state.place(of_address)
    elif copied is not None and (came := state.place(copied)) is not None:
        address = state.address.get(came)
    if takes_flags and state.flags > time:
        time = state.flags
    time += latency
    if makes_flags:
        state.flags = time
    if place is None:
        return
    if place in _ARRAYS:
        time = max(time, state.get(place))
    state.put(place, time, address)
    if wide and isinstance(place, int):
        for word in range(4, 16, 4):
            state.put(place + word, time)


def _call(step: _Call, state: _State) -> None:
    called = step.called
    result = None
    if _LOADS_FRAGMENT(called):
        if (fragment := state.address.get("rdi")) is not None:
            state.put(f"fragment {fragment}", state.begin)
    elif _PRODUCT(called):
        _product(called, step.latency, state)
    elif not _QUIET(called):
        result = max(state.get(name) for name in _VALUES) + step.latency
    for name in step.lost:
        if name in state.ready:
            del state.ready[name]
            state.address.pop(name, None)
    if result is not None:
        state.put("rax", result)
        state.put("xmm0", result)


def _product(called: str, latency: float, state: _State) -> None:
    """Of fragments, d = a x b + c in this order, or of registers, which it is given by their addresses."""
    given = [state.address.get(name) for name in ARGUMENTS]
    if "wmma" in called:
        d, *factors = given[:4]
        if d is not None:
            time = max(state.get(f"fragment {place}") for place in factors)
            state.put(f"fragment {d}", time + latency)
        return
    given += [state.address.get(8 * k - state.pushed) for k in range(min(_POINTERS, state.pushed // 8))]
    places = [place for place in given if place is not None]
    time = max((state.get(place) for place in places), default=state.begin) + latency
    for place in places:
        state.put(place, time)
