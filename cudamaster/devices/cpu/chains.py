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
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

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
_LOADS_FRAGMENT = re.compile(r"load_matrix_sync|fill_fragment")
_PRODUCT = re.compile(r"mma_sync")
_MEMORY = matching(r"^(?P<offset>-?(?:0x)?[0-9a-f]*)\((?P<base>%\w+)?(?:,(?P<index>%\w+)?(?:,\d)?)?\)$")
_VALUES = (*ARGUMENTS, "xmm0", "xmm1", "xmm2")
_REPLACES = matching(r"^v?(?:mov|lea|cvt|set|lddqu|bsf|bsr|popcnt|lzcnt|tzcnt|pshuf|pop$)")
_COMPARES = matching(r"^(?:cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[lqw]?)$")
# Exact divisions and roots go around their long way by a branch.
_IN_TURN = matching(r"^(?:v?(?:div|sqrt)ss|sqrtf)$")
_EMULATES = "<cudamaster_cpu_lane"
_SHORT = 8  # blocks of such a loop
_ZEROES = matching(r"^v?p?xor(?:ps|pd)?[lq]?$")
_WIDE = matching(r"^v?mov(?:[au]p[sd]|dq[au])")
_USES_FLAGS = matching(r"^(?:set|cmov|adc|sbb)")
_POINTERS = 16  # that a product of registers is given at most on the stack


class _State:
    """When values are ready, by register or place in the function's own memory, and which of them are its addresses."""

    def __init__(self, *, framed: bool) -> None:
        self.ready: dict[str, float] = {}
        self.address: dict[str, str] = {}  # of a register or place: the place that it points to
        self.begin = 0.0  # of instructions behind the last branch
        self.flags = 0.0
        self.latest = 0.0
        self.pushed = 0  # bytes below the function's frame
        self.framed = framed

    def get(self, name: str) -> float:
        return max(self.begin, self.ready.get(name, 0.0))

    def put(self, name: str, time: float, address: str | None = None) -> None:
        self.ready[name] = time
        self.latest = max(self.latest, time)
        if address is None:
            self.address.pop(name, None)
        else:
            self.address[name] = address

    def place(self, operand: str) -> str | None:
        """Where a value is kept: a register, or a word of the function's own memory; None for other memory."""
        if operand.startswith("%"):
            return None if operand.startswith("%fs:") else NAMES.get(operand[1:], operand[1:])
        parts = _MEMORY(operand)
        if parts is None:
            return None
        base, offset = parts["base"], int(parts["offset"] or "0", 16)
        if base == "%rsp":
            return "stack array" if parts["index"] else f"stack {offset - self.pushed}"
        if base == "%rbp" and self.framed:
            return "frame array" if parts["index"] else f"frame {offset}"
        known = self.address.get(NAMES.get((base or "")[1:], ""))
        return _beside(known, offset) if known is not None and not parts["index"] else None

    def of_address(self, operand: str) -> float:
        parts = _MEMORY(operand)
        if parts is None:
            return self.begin
        names = (part for part in (parts["base"], parts["index"]) if part)
        return max((self.get(NAMES.get(name[1:], name[1:])) for name in names), default=self.begin)


def _beside(place: str, offset: int) -> str:
    kind, _, number = place.partition(" ")
    return place if number == "array" else f"{kind} {int(number) + offset}"


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
    code = [
        [
            _prepared(name, operands, of_instruction, of_call, of_places.get(place), loops[at], unrolled=alone[at])
            for place, name, operands in lines
        ]
        for at, lines in enumerate(blocks)
    ]
    framed = any(name.startswith("mov") and to == "%rsp,%rbp" for lines in blocks for _, name, to in lines)
    # Loops are stretches of that order: from where a jump goes back to until where it comes from.
    ends: dict[int, int] = {}
    for start in starts:
        for to in following.get(start, ()):
            if to in position and position[to] <= position[start]:
                ends[position[to]] = max(ends.get(position[to], 0), position[start])
    # What points where is known at a loop's start from the way there.
    state, known = _State(framed=framed), []
    for each, by_itself in zip(code, alone, strict=True):
        known.append(dict(state.address))
        _follow(each, state, unrolled=by_itself)
    found: dict[int, float] = {}
    loops_of = sorted(((first, last, True) for first, last in ends.items()), key=lambda loop: loop[1] - loop[0])
    # The innermost loop of a block is the shortest; what is in none is gone through once.
    for first, last, of_loop in (*loops_of, (0, len(blocks) - 1, False)):
        if all(start in found for start in starts[first : last + 1]):
            continue
        state = _State(framed=framed)
        state.address = dict(known[first])
        grown = [0.0] * (last - first + 1)
        passes = _PASSES if of_loop else 1
        for number in range(passes):
            for at in range(first, last + 1):
                before = state.latest
                _follow(code[at], state, unrolled=alone[at])
                if number >= _SETTLED or not of_loop:
                    grown[at - first] += state.latest - before
        counted = passes - _SETTLED if of_loop else 1
        for at in range(first, last + 1):
            found.setdefault(starts[at], grown[at - first] / counted)
    return found


@dataclass(frozen=True)
class _Instruction:
    """One of the host's. `latency` is that of what it stands for on a GPU; `called` is None but for calls. What goes on
    behind a branch forward is predicated on a GPU, so it waits for the predicate alone."""

    name: str
    text: str
    operands: Sequence[str]
    latency: float
    called: str | None = None
    back: bool = False  # a jump to a loop's start
    in_turn: bool = False  # nothing behind it begins before it is done


def _prepared(
    name: str,
    operands: str,
    of_instruction: Callable[[str, str], Mapping[str, float]],
    of_call: Callable[[str], Mapping[str, float]],
    of_place: Mapping[str, float] | None,
    loops: bool,
    *,
    unrolled: bool,
) -> _Instruction:
    called = None
    if name.startswith("call"):
        target = CALLED.search(operands)
        called = target[1] if target else ""
    kinds: Mapping[str, float] = {}
    if called is None:
        kinds = of_place or of_instruction(name, operands)
    elif not _QUIET(called):
        kinds = of_call(called)
    latency = sum(latencies().get(kind, 0.0) * count for kind, count in kinds.items())
    if unrolled and "counting" in kinds:
        latency /= counting.shipped().unrolled_passes
    words = operands_of(operands)
    in_turn = _IN_TURN(called or name) is not None
    return _Instruction(name, operands, words, latency, called, loops, in_turn)


def _follow(code: Sequence[_Instruction], state: _State, *, unrolled: bool) -> None:
    for each in code:
        name = each.name
        if each.called is not None:
            _call(each.called, each.latency, state)
        elif name[0] == "j":
            if not name.startswith("jmp") and not unrolled:
                state.begin = max(state.begin, state.flags + (counting.shipped().branch_cycles if each.back else 0.0))
        elif name.startswith("push"):
            state.pushed += 8
            came = state.place(each.text)
            state.put(f"stack {-state.pushed}", state.get(came or ""), state.address.get(came or ""))
        elif name.startswith("pop"):
            state.pushed -= 8
        elif name.startswith(("add", "sub", "and")) and each.text.endswith("%rsp"):
            _moves(name, each.text, state)
        else:
            _step(name, each.operands, each.latency, state)
        if each.in_turn:
            state.begin = max(state.begin, state.ready.get("xmm0", 0.0), state.ready.get(_target(each), 0.0))


def _target(of: _Instruction) -> str:
    return of.operands[-1].lstrip("%") if of.operands else ""


def _moves(name: str, operands: str, state: _State) -> None:
    """The stack's end: the function makes its frame, or arguments are taken from it again."""
    amount = re.match(r"\$(-?0x[0-9a-f]+)", operands)
    if name.startswith("add") and amount and state.pushed > 0:
        state.pushed = max(0, state.pushed - int(amount[1], 16))
    else:
        state.pushed = 0


def _call(called: str, latency: float, state: _State) -> None:
    if _LOADS_FRAGMENT.search(called):
        if (fragment := state.address.get("rdi")) is not None:
            state.put(f"fragment {fragment}", state.begin)
    elif _PRODUCT.search(called):
        _product(called, latency, state)
    elif not _QUIET(called):
        time = max(state.get(name) for name in _VALUES) + latency
        _forget(state)
        state.put("rax", time)
        state.put("xmm0", time)
        return
    _forget(state)


def _product(called: str, latency: float, state: _State) -> None:
    """Of fragments, d = a x b + c in this order, or of registers, which it is given by their addresses."""
    given = [state.address.get(name) for name in ARGUMENTS]
    if "wmma" in called:
        d, *factors = given[:4]
        if d is not None:
            time = max(state.get(f"fragment {place}") for place in factors)
            state.put(f"fragment {d}", time + latency)
        return
    given += [state.address.get(f"stack {8 * k - state.pushed}") for k in range(min(_POINTERS, state.pushed // 8))]
    places = [place for place in given if place is not None]
    time = max((state.get(place) for place in places), default=state.begin) + latency
    for place in places:
        state.put(place, time)


def _forget(state: _State) -> None:
    for name in LOST:
        state.ready.pop(name, None)
        state.address.pop(name, None)


def _step(name: str, operands: Sequence[str], latency: float, state: _State) -> None:
    if not operands:
        return
    *sources, target = operands
    if _COMPARES(name):
        state.flags = max(_ready(each, state) for each in operands) + (latency or latencies()["integer"])
        return
    place, address = state.place(target), None
    if _ZEROES(name) and sources == [target]:
        time = state.begin
    elif name.startswith("lea"):
        time = state.of_address(sources[0]) + latency
        address = state.place(sources[0])
    else:
        time = max((_ready(each, state) for each in sources), default=state.begin)
        if not _REPLACES(name):
            time = max(time, _ready(target, state))
        elif sources and name.startswith("mov"):
            address = state.address.get(state.place(sources[0]) or "")
        if _USES_FLAGS(name):
            time = max(time, state.flags)
        time += latency
        if latency and not name.startswith(("mov", "lea")):
            state.flags = time
    if place is not None:
        if place.endswith("array"):
            time = max(time, state.get(place))
        state.put(place, time, address)
        if _WIDE(name) and " " in place and not place.endswith("array"):
            for word in range(4, 16, 4):
                state.put(_beside(place, word), time)


def _ready(operand: str, state: _State) -> float:
    if operand.startswith("$"):
        return state.begin
    place = state.place(operand)
    if place is not None:
        return state.get(place)
    return state.of_address(operand) if "(" in operand else state.begin
