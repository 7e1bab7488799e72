"""Which launches of a traced build do the same work whatever is in memory: no value that is loaded comes to a branch,
to an address or to anything else by which the work goes.

Of such a launch the counts do not hang on what launches before it left, so these need not run whole (runtime/trace).
The answer is on the safe side: what is not understood steers. Every load counts as one of memory that others write,
shared memory and arrays of a thread too, but for the built-in variables, constants of the program and what the launch
was given. Values are followed through registers and bytes of the stack, until nothing changes any more.

Places of a thread's own variables are told from those of registers by the lowest address that is taken: g++ puts
variables above. If something loaded is stored by an address that may be lower, all of the stack is memory.

A branch that only chooses between values of registers (`Launches._arms`) does not steer, but what it leaves counts as
loaded.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cudamaster.devices.cpu import callees, effects
from cudamaster.devices.cpu.bits import FLAGS, INTEGERS, PASSED, RESULTS, SCRATCH, WORDS, bits_of
from cudamaster.devices.cpu.effects import Frame, Function, Instruction, Reader
from cudamaster.devices.cpu.x86 import CALLED, matching

_Line = tuple[int, str, str]

_INVOKE = re.compile(r"^_ZN14cudamaster_cpu7Closure.*6invokeEPKv$")
_MOST, _MORE = 4, 1  # instructions of an arm of a choice that a GPU makes without a branch, and more than in the other
_FREE = matching(r"^(?:mov|nop|endbr)")
_LONG = matching(r"^(?:i?div|v?sqrt|v?div)")  # many instructions of a GPU
# Bits of what came from memory that others write, of places on the stack, of a launch's closure, of what that points
# to, and of where built-in variables begin in the thread's own memory.
_State = tuple[int, int, int, int, int]


@dataclass
class _Block:
    start: int
    lines: Sequence[_Line]
    following: Sequence[int]
    name: str
    steps: list[Instruction] = field(default_factory=list)


def launches(name: str) -> bool:
    """Whether a function of this name makes a thread's part of a launch, and not of the harness's own."""
    return _INVOKE.match(name) is not None and "4mskb" not in name


class Launches:
    """Takes a traced build's functions block by block, and says then which launches nothing in memory steers."""

    def __init__(self, program: effects.Program) -> None:
        self._program = program
        self._functions: dict[str, Function] = {}
        self._first: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        self._reads = False  # the host may look at memory by a function of a library

    def take(self, name: str, blocks: Iterable[tuple[int, Sequence[_Line], Sequence[int]]]) -> None:
        """A function's blocks: where each begins, its instructions, and the blocks behind it."""
        whole = name.removesuffix(".cold")
        function = self._functions.setdefault(whole, Function())
        function.steered |= name in self._first  # of two functions of a name it is not known which one is called
        for start, lines, following in blocks:
            if name == whole:
                self._first.setdefault(name, start)
            self._blocks[start] = _Block(start, lines, following, whole)
            for _, does, text in lines:
                if (
                    text.endswith(effects.BASES)
                    and text != "%rsp,%rbp"
                    and not (effects.COMPARES(does) or does in ("push", "pop"))
                ):
                    function.frame = False
                if does[0] in "cj" and (called := CALLED.search(text)):
                    function.steered |= bool(callees.THROWS(called[1]))  # what is caught is not looked at
                    self._reads |= bool(callees.READS(called[1]))

    def unsteered(self) -> tuple[list[int], list[int]]:
        """Where such functions begin; and those of them that call the kernel which the launch names."""
        for name, start in self._first.items():
            self._decode(start, name)
        if self._reads:
            return [], []
        for function in self._functions.values():
            self._settle(function)
        for name, start in self._first.items():
            self._follow(name, start)
        found = [name for name in self._first if not any(self._functions[each].steered for each in self._reached(name))]
        return (
            sorted(self._first[name] for name in found),
            sorted(self._first[name] for name in found if self._functions[name].any_kernel),
        )

    def _reached(self, name: str) -> set[str]:
        found, left = {name}, [name]
        while left:
            more = self._functions[left.pop()].calls & self._functions.keys() - found
            found |= more
            left += more
        return found

    @staticmethod
    def _settle(function: Function) -> None:
        for (aligned, place), bit in function.places.items():
            handed = not aligned and place >= effects.RETURN
            if place >= (function.handed if handed else function.own):
                function.variables |= bit

    # Each instruction once, from where a function begins: the stack pointer's place follows from the way there.

    def _decode(self, start: int, name: str) -> None:
        function = self._functions[name]
        frames = {start: Frame()}
        left = [start]
        while left:
            at = left.pop()
            block = self._blocks[at]
            frame = Frame(frames[at].aligned, frames[at].at, frames[at].base)
            reader = Reader(function, self._program, frame)
            block.steps = [
                reader.read(line, block.lines[number + 1][0] if number + 1 < len(block.lines) else line[0] + 8)
                for number, line in enumerate(block.lines)
            ]
            for step in block.steps:
                step.own = step.called in self._functions and step.called != callees.BLOCK
            function.calls |= {step.called for step in block.steps if step.called and step.own}
            function.steered |= any(step.strange for step in block.steps) or self._leaves(block)
            for to in self._behind(block):
                if to not in frames:
                    frames[to] = Frame(frame.aligned, frame.at, frame.base)
                    left.append(to)
                elif (frames[to].aligned, frames[to].at) != (frame.aligned, frame.at):
                    function.steered = True

    def _leaves(self, block: _Block) -> bool:
        """Whether a branch goes to another function."""
        last = block.steps[-1]
        return last.jumps and not last.called and len(self._behind(block)) < len(block.following)

    def _behind(self, block: _Block) -> list[int]:
        """Blocks of the same function that follow; others are calls."""
        if (called := block.steps[-1].called) and (callees.ENDS(called) or block.steps[-1].jumps):
            return []
        return [to for to in block.following if to in self._blocks and self._blocks[to].name == block.name]

    def _arms(self, behind: Sequence[int]) -> list[int]:
        """Blocks between which a branch chooses, if either way takes as many instructions, give or take one, and
        changes registers alone: a GPU makes it without a branch. One or two, which come together at once; or none."""
        if len(behind) != 2:
            return []
        (after, works), (after_other, other_works) = map(self._arm, behind)
        if after == behind[1]:
            return [behind[0]] if works <= _MORE else []
        if after_other == behind[0]:
            return [behind[1]] if other_works <= _MORE else []
        alike = after is not None and after == after_other and abs(works - other_works) <= _MORE
        return list(behind) if alike else []

    def _arm(self, at: int) -> tuple[int | None, int]:
        """Where a block of few instructions in registers goes on, and how many are no moves."""
        block = self._blocks[at]
        behind = self._behind(block)
        works = 0
        for step in block.steps:
            if step.called is not None and callees.PLACES(step.called) and not step.jumps:
                continue
            if step.called is not None or step.loads is not None or step.stores is not None or step.addresses:
                return None, 0
            if _LONG(step.name):
                return None, 0
            works += not (_FREE(step.name) or step.jumps)
        return (behind[0], works) if len(behind) == 1 and works <= _MOST else (None, 0)

    # Values are followed until nothing changes any more.

    def _follow(self, name: str, start: int) -> None:
        function = self._functions[name]
        launched = function.launched = _INVOKE.match(name) is not None
        while not function.steered:
            before = function.known
            known: dict[int, _State] = {start: (0, bits_of("rsp"), bits_of("rdi") if launched else 0, 0, 0)}
            chosen: dict[int, int] = {}  # by the arm of a choice
            left, waiting = [start], {start}
            while left and not function.steered:
                at = heapq.heappop(left)
                waiting.discard(at)
                block = self._blocks[at]
                state = known[at]
                for step in block.steps:
                    state = _after(step, function, state)
                behind = self._behind(block)
                branches = block.lines[-1][1][0] == "j" and not block.lines[-1][1].startswith("jmp")
                changes = []
                past = state = _with(state, chosen.get(at, 0))
                if branches and state[0] & FLAGS:
                    arms = self._arms(behind)
                    if not arms:
                        function.steered = True
                        break
                    written = FLAGS | _all(step.target for arm in arms for step in self._blocks[arm].steps)
                    past = _with(state, written)
                    changes = [arm for arm in arms if written & ~chosen.get(arm, 0)]
                    chosen |= {arm: chosen.get(arm, 0) | written for arm in arms}
                for to in behind:
                    there = known.get(to)
                    comes = past if to not in chosen else state
                    merged = comes if there is None else _merged(comes, there)
                    if merged != there:
                        known[to] = merged
                        changes.append(to)
                for to in changes:
                    if to not in waiting:
                        waiting.add(to)
                        heapq.heappush(left, to)
            if before == function.known:
                return


def _with(state: _State, bits: int) -> _State:
    """With these, too, of memory that others write."""
    return state[0] | bits, *state[1:]


def _all(bits: Iterable[int]) -> int:
    found = 0
    for each in bits:
        found |= each
    return found


def _merged(one: _State, other: _State) -> _State:
    """Of two ways: what may be on either, but given is only what is on both."""
    taint, stack, given, values, near = one
    return taint | other[0], stack | other[1], given & other[2], values & other[3], near & other[4]


def _after(step: Instruction, function: Function, state: _State) -> _State:
    """The bits behind an instruction."""
    taint, stack, given, values, near = state
    if step.called is not None:
        return _called(step, function, state)
    if step.strange or taint & step.addresses:
        function.steered = True
        return state
    if step.reaches & stack:
        function.variables = WORDS
    loaded = step.unknown or taint & step.sources != 0 or function.may_hold(step.sources)
    made = _of(given & step.sources, 1) | _of(values & step.sources, 2) if step.replaces else 0
    if step.loads is not None:
        if given & step.loads:
            made = 2
        elif not (near if step.of_thread else values) & step.loads:
            loaded = True
    function.steered |= step.fails and loaded
    place = step.place or stack & step.sources != 0
    function.moved |= bool(stack & step.sources and step.target and not effects.COPIES(step.name)) or step.indexed
    if step.stores is not None and stack & step.stores and (loaded or place):
        function.wild = True  # a place, too, may be anywhere then
        function.variables |= WORDS if step.low else 0
    function.steered |= step.stores is not None and bool((given | values | near) & step.stores)
    target, kept = step.target, ~step.target if step.replaces else ~0
    taint = taint & kept | (target if loaded else 0)
    if step.flags:
        taint = (taint if effects.KEEPS_FLAGS(step.name) else taint & ~FLAGS) | (FLAGS if loaded else 0)
    stack = stack & kept & ~step.spoils | (target if place else 0)
    given = given & ~target | (target if made == 1 else 0)
    values = values & ~target | (target if made == 2 else 0)
    kept_near = step.near or (step.replaces and near & step.sources != 0)
    near = near & ~target | (target if kept_near else 0)
    return taint, stack, given, values, near


def _of(bits: int, level: int) -> int:
    return level if bits else 0


def _called(step: Instruction, function: Function, state: _State) -> _State:
    taint, stack, given, values, near = state
    name, result = step.called or "", RESULTS
    passes = stack & PASSED
    if step.own or (name == "*" and function.launched):
        # What it gets is not of memory, in registers or behind them; nor may it write what the caller keeps.
        function.steered |= bool((taint | stack) & (PASSED | step.sources | WORDS))
        function.any_kernel |= not step.own
    elif callees.OUT(name):
        function.steered |= not callees.PLACES(name) and bool(taint & bits_of("rdi"))
        result = 0
    elif callees.PURE(name):
        result = RESULTS if (taint | stack) & callees.hangs_on(name) else 0
    elif callees.ATOMICS(name):
        function.steered |= bool(taint & bits_of("rdi"))  # where; the answer is of memory
        function.wild |= bool(passes)
    elif callees.ORDERS(name):
        function.steered |= bool(taint & bits_of("rdi"))
        result = 0
    elif callees.EXCHANGES(name):
        exchange = callees.exchange(name)
        whose = bits_of("rdi", "rsi", "rdx") if "numbered" in name else bits_of("rdi")
        function.steered |= bool(taint & whose)
        function.wild |= bool(passes)
        if taint & callees.given(name) or passes:
            function.exchanged.add(exchange)
        clean = exchange != callees.ANY and not {exchange, callees.ANY} & function.exchanged
        result = 0 if clean and not function.calls else RESULTS
    elif callees.MULTIPLIES(name) or callees.OF_WARPGROUP(name):
        function.steered |= bool(taint & step.sources) or function.may_hold(step.sources)
        function.wild |= function.moved
        result = function.registers
    elif callees.FRAGMENTS(name):
        function.steered |= bool(taint & INTEGERS)
        function.wild |= bool(passes)
        result = 0
    elif callees.ANSWERS(name):
        given_it = callees.asked(name)
        passes &= given_it
        told = passes and (function.wild or taint & function.variables)
        function.steered |= bool(taint & (given_it | step.sources) or told) or function.may_hold(step.sources)
        function.wild |= bool(passes)
        result = RESULTS if passes or callees.TOKENS(name) else 0
        result |= function.registers if callees.WAITS(name) else 0
    else:
        function.steered = True
    kept = ~SCRATCH
    return taint & kept | result, stack & kept, given & kept, values & kept, near & kept
