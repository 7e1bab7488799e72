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
from functools import lru_cache
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from cudamaster.devices.cpu.x86 import ARGUMENTS, CALLED, LOST, MEMORY, NAMES, matching, operands_of

_Line = tuple[int, str, str]

_BLOCK = "__sanitizer_cov_trace_pc"
_DIM3 = 12
_BUILT_IN = {
    "threadIdx": _DIM3,
    "blockIdx": _DIM3,
    "blockDim": _DIM3,
    "gridDim": _DIM3,
    "cudamaster_cpu_dynamic_shared": 8,
}
_INVOKE = re.compile(r"^_ZN14cudamaster_cpu7Closure.*6invokeEPKv$")
# Call-outs. What the others do hangs on memory.
_OUT = matching(
    r"^__tsan_(?!atomic)|^__sanitizer_|^cudamaster_cpu_observe_(?!mem|_Z|malloc|calloc|realloc|sleep|clock)"
)
_PLACES = matching(r"^__sanitizer_cov_trace_pc$|^__tsan_func_")  # these say where the program is
# Functions of their arguments alone.
_PURE = matching(
    r"^(?:acos|asin|atan|atan2|cbrt|ceil|copysign|cosh?|erfc?|exp|exp2|exp10|expm1|fabs|floor|fma|fmax|fmin|fmod|log|log10"
    r"|log1p|log2|nearbyint|pow|rint|round|rsqrt|sinh?|sqrt|tanh?|trunc)f?$"
    r"|^_ZN14cudamaster_cpu(?:9bf16_bits|10bf16_value|9half_bits|10half_value|12to_float_odd)E"
    r"|^_Z\d+(?:__expf|__exp10f|__logf|__log2f|__log10f|__sinf|__cosf|__tanf|__tanhf|__powf|__fdividef|rsqrtf?|__saturatef)"
    r"|^_Z\d+__[fd](?:add|sub|mul|div|rcp|sqrt|ma)_r[nzud]|^_Z\d+__floats?22?b?(?:float|half)\w*_r"
    r"|^_ZN14cudamaster_cpu3ptx(?:3cvt|8cvt_pack|3add|3sub|3mul|3fma|3mad|3div|3rem|3rcp|4sqrt|5rsqrt|3ex2|3lg2|3sin|3cos"
    r"|4tanh|3min|3max|3abs|3neg|3and|2or|3xor|3not|3shl|3shr|4prmt|4lop3|3bfe|3bfi|4selp|4setp)I"
    r"|^_Z\d+__(?:byte_perm|brev|clz|popc|ffs|mulhi|umulhi|funnelshift|float_as|int_as|uint_as|double_as|\w+2(?:float|int)_r)"
    r"|^_Z\d+__b?(?:float|half|low|high)\w*2float"
)
# They are told places on the stack, and change four bytes at each: registers of the thread. Those of a
# warpgroup do so when somebody waits for them.
_MULTIPLIES = matching(r"^_ZN14cudamaster_cpu3ptx8mma_syncI")
_OF_REGISTERS = matching(r"^cudamaster_cpu_wgmma$|^_ZN14cudamaster_cpu3ptx8mma_syncI")
_REFERENCES = re.compile(r"EJ((?:RK?[jif]|S[0-9A-Z]*_)+)EEEv\w+$")  # all that such a function is given
_REFERENCE = re.compile(r"RK?[jif]|S[0-9A-Z]*_")
_WAITS = matching(r"^cudamaster_cpu_wgmma_wait$")
# Boxes of tensors, which lie behind the arguments in registers.
_BOXES = matching(r"^cudamaster_cpu_tensor_(?:load|multicast|store)$")
_BOX = 32
# Fragments and their products, which are told as places on the stack; functions with two results, likewise.
_FRAGMENTS = matching(
    r"^_ZN6nvcuda4wmma\d+(?:mma_sync|load_matrix_sync|store_matrix_sync|fill_fragment)I|^_Z\d+sincos(?:pi)?f?[fd]P"
)
_ATOMICS = matching(r"^_Z\d+atomic[A-Z]|^_ZN14cudamaster_cpu3ptx8atom_(?:one|cas)I")
# They hand values from thread to thread, as many whatever these are.
_EXCHANGES = matching(
    r"^cudamaster_cpu_(?:numbered_)?barrier$|^_Z\d+__shfl_|^_Z\d+__(?:any|all|ballot|reduce_\w+?)_sync|3ptx9shfl_sync"
)
_ANY = "any"
_TYPES_GIVEN = re.compile(r"_Z\d+__\w+_sync([ijlmfd]+)")
# What these do and answer hangs on their arguments and on who came by, and on nothing in memory.
_ANSWERS = matching(
    r"^cudamaster_cpu_observe_mem(?:cpy|move|set)$|^cudamaster_cpu_(?:lane|activemask|dynamic_shared|yield|shared_address|shared_place|space|mbarrier_wait"
    r"|cluster_\w+|in_block|rank_of|in_clusters|cooperative|proxy_fence|registers|copy_\w+|bulk_\w+|tensor_\w+|wgmma_\w+"
    r"|mbarrier_\w+)$"
)
# Those of one, two and three arguments in registers; what lies in other registers then is not theirs.
_FEW_ARGUMENTS = matching(
    r"^cudamaster_cpu_(?:(wgmma_wait|shared_place|shared_address|cluster_place|space|rank_of|cluster_arrive|copy_wait|proxy_fence"
    r"|registers|mbarrier_inval)|(tensor_load|tensor_store|mbarrier_init|mbarrier_bytes|copy_arrive|in_block|bulk_wait)"
    r"|(tensor_multicast|mbarrier_wait|bulk_store))$"
)
_TOKENS = matching(r"^cudamaster_cpu_mbarrier_(?!wait$)")  # their answer is a word of memory
_ORDERS = matching(r"^_Z\d+__(?:syncwarp|threadfence)")  # given a mask of lanes at most
# Functions of libraries by which the host may look at memory; others of these call out, or it is closed to the host.
_READS = matching(
    r"^(?:mem(?:cmp|chr|rchr|mem)|bcmp|bcopy|str\w+|w?mem\w+|wcs\w+|\w*printf|\w*scanf|f?put\w+|fwrite|write|qsort|bsearch"
    r"|ato[fil]l?|mktime|nan[fl]?)$|^_ZSt11_Hash_bytes|^_ZNK?St7__cxx1112basic_string\w+(?:compare|find|rfind|copy)"
)
_THROWS = matching(r"^(?:__cxa_|_ZSt\d+__throw|_ZSt\d+rethrow)")
_ENDS = matching(r"^(?:_Unwind_Resume|abort|__cxa_|_ZSt\d+__throw)")

# A bit for each register.
_WHOLE = tuple(dict.fromkeys(NAMES.values()))
_REGISTERS = {name: 1 << number for number, name in enumerate((*_WHOLE, *(f"xmm{number}" for number in range(16))))}
_FLAGS = 1 << len(_REGISTERS)
_FIRST_WORD = len(_REGISTERS) + 1
_WORDS = -1 << _FIRST_WORD  # all places of the stack


def _bits(*names: str) -> int:
    return sum({_REGISTERS[name] for name in names})


_LOST = _bits(*LOST) | _FLAGS
_INTEGERS = _bits(*ARGUMENTS)
_PASSED = _INTEGERS | _bits(*(f"xmm{number}" for number in range(8)))
_RESULTS = _bits("rax", "rdx", "xmm0", "xmm1")

_COMPARES = matching(r"^(?:cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[wlq]?)$")
_REPLACES = matching(r"^(?:mov(?!lp|hp|lh|hl)|lea|cvt|set|popcnt|lzcnt|tzcnt|pshuf[dhl]|sqrt|pmovmskb)")
_MERGES = matching(r"^(?:cvt(?:si2s|ss2s|sd2s)|movss$|movsd$|sqrts)")
_KEEPS_FLAGS = matching(r"^(?:inc|dec|bt|bs[fr]|sh|sa[lr]|ro)")  # some, or all with some values
_ZEROES = matching(r"^(?:p?xor[bwlqd]?|sub[bwlq]?|pcmpeq[bwdq]|xorp[sd])$")  # an operand with itself
_USES_FLAGS = matching(r"^(?:set|cmov|adc|sbb)")
_ARITHMETIC_NAMES = (
    r"(?:add|sub|and|or|xor|neg|inc|dec|sh[lr]|sa[lr]|sh[lr]d|ro[lr]|bt[src]|bs[fr]|imul|adc|sbb|lzcnt|tzcnt|popcnt)"
    r"[bwlq]?$"
)
_ARITHMETIC = matching("^" + _ARITHMETIC_NAMES)
_OTHERS = matching(
    r"^(?:mov\w*|lea[wlq]?|not[bwlq]?|bswap[lq]?|set\w+|cmov\w+|cvt\w+|(?:add|sub|mul|div|min|max|sqrt|and|andn|or|xor|cmp\w*"
    r"|unpck[lh]|shuf|round)[ps][sd]|p(?:xor|and|andn|or|add|sub|sl|sr|shuf|unpck|cmp|mul|madd|ack|insr|extr|min|max|movmskb|mov[sz]x)\w*)$"
)
_WIDENS = {"cltq": ("rax", "rax"), "cwtl": ("rax", "rax"), "cltd": ("rax", "rdx"), "cqto": ("rax", "rdx")}
_DIVIDES = matching(r"^(?:i?div|i?mul)[bwlq]?$")
_IDLE = matching(r"^(?:nop\w*|endbr64|ud2|hlt|pause|[lm]fence)$")
_TARGET = matching(r"^([0-9a-f]+) <([^>+]+)")
_RELATIVE = matching(r"^(-?)0x([0-9a-f]+)\(%rip\)$")
_OF_THREAD = matching(r"^%fs:(-?)0x([0-9a-f]+)$")
# What makes another address of one; others only move or compare it.
_COPIES = matching(r"^(?:mov|cmov|push|pop|punpck[lh]qdq|unpck[lh]pd|p(?:ins|ext)rq)")
_LOWERS = matching(r"^(?!mov|lea|set|cmov|inc|cmp[bwlq]?$|test|bt[wlq]?$|punpcklqdq|unpcklpd|p(?:ins|ext)rq)")
_SMALL = matching(r"^\$0x[0-9a-f]{1,5}$")  # a number that is more than nothing
_NARROW = matching(r"^%(?:[a-d][xlh]|[sd]il?|[bs]pl?|r\d+[wb])$")  # a part that leaves what is above it
_BASES = ("%rbp", "%ebp", "%bp", "%bpl")
_MOST, _MORE = 4, 1  # instructions of an arm of a choice that a GPU makes without a branch, and more than in the other
_FREE = matching(r"^(?:mov|nop|endbr)")
_LONG = matching(r"^(?:i?div|v?sqrt|v?div)")  # many instructions of a GPU
_REGISTER = 4  # bytes of one of a GPU's
_HALF = 4  # bytes of half an address
_RETURN = 8  # bytes above where a function's stack begins; what is behind was handed to it


@dataclass(frozen=True)
class Program:
    """Of an executable: where built-in variables lie from the thread's own memory, and what nobody writes."""

    built_in: Sequence[range]
    constant: Sequence[range]


@dataclass
class _Function:
    """`places` of its stack have bits by how far they are from where it begins, or from where it was aligned. Variables
    lie from `own` and `handed` on, with the lowest place whose address it takes; below are registers' places."""

    places: dict[tuple[bool, int], int] = field(default_factory=dict)
    own: float = float("inf")
    handed: float = float("inf")
    variables: int = 0  # the bits of those that are variables
    wild: bool = False  # what was loaded may be anywhere in the variables
    registers: int = 0  # bits of four bytes at each place whose address it takes
    moved: bool = False  # it makes other addresses of those
    exchanged: set[str] = field(default_factory=set)  # exchanges to which some thread brings what was loaded
    steered: bool = False
    launched: bool = False  # a launch calls it
    frame: bool = True  # what %rbp is given is where the stack pointer was, and no pointer that goes on from there
    any_kernel: bool = False  # it calls the kernel that the launch names
    calls: set[str] = field(default_factory=set)

    @property
    def known(self) -> tuple[object, ...]:
        """What was found out of the whole of it while values were followed."""
        return self.wild, self.variables, self.moved, len(self.exchanged)

    def may_hold(self, bits: int) -> bool:
        """Whether what was loaded may be in one of these variables although no instruction brought it there."""
        return self.wild and bits & self.variables != 0


# Bits of what came from memory that others write, of places on the stack, of a launch's closure, of what that points
# to, and of where built-in variables begin in the thread's own memory.
_State = tuple[int, int, int, int, int]


@dataclass
class _Frame:
    """Where the stack pointer is, and %rbp if that is the frame's: aligned, and the place."""

    aligned: bool = False
    at: int = 0
    base: tuple[bool, int] | None = None


@dataclass
class _Instruction:
    """What an instruction does to the bits: of `sources`, `loads` (the bits of the address), to `target` or a `store`
    (the bits of the address)."""

    name: str
    sources: int = 0
    addresses: int = 0
    loads: int | None = None
    unknown: bool = False  # a source that others may write
    place: bool = False  # the result is a place on the stack
    indexed: bool = False  # one that is an index away from what it names
    target: int = 0
    replaces: bool = False
    stores: int | None = None
    flags: bool = False
    near: bool = False  # the result is where a built-in variable begins
    of_thread: bool = False  # what it loads lies close to where its address says in the thread's own memory
    fails: bool = False  # with some values
    spoils: int = 0  # bits of the upper half of a word of the stack whose lower half it writes: an address is lost
    low: bool = False  # it stores below an address, which may be among registers' places
    reaches: int = 0  # bits of an address that it makes a lower one of
    called: str | None = None
    own: bool = False  # what it calls is of the program, and looked at itself
    jumps: bool = False
    strange: bool = False


@dataclass
class _Block:
    start: int
    lines: Sequence[_Line]
    following: Sequence[int]
    name: str
    steps: list[_Instruction] = field(default_factory=list)


def launches(name: str) -> bool:
    """Whether a function of this name makes a thread's part of a launch, and not of the harness's own."""
    return _INVOKE.match(name) is not None and "4mskb" not in name


def program_of(executable: Path) -> Program:
    """What is to be known of an executable."""
    with executable.open("rb") as file:
        elf = ELFFile(file)
        of_thread = next((part for part in elf.iter_segments() if part["p_type"] == "PT_TLS"), None)
        end = 0
        if of_thread is not None:
            align = max(of_thread["p_align"], 1)
            end = (of_thread["p_memsz"] + align - 1) // align * align
        table = elf.get_section_by_name(".symtab")
        built_in = []
        if isinstance(table, SymbolTableSection) and of_thread is not None:
            for symbol in table.iter_symbols():
                if symbol["st_info"]["type"] != "STT_TLS":
                    continue
                # That a shared variable is there is said by what only the compiler writes.
                size = 1 if symbol.name.startswith("_ZGVZ") else _BUILT_IN.get(symbol.name, 0)
                if size:
                    built_in.append(range(symbol["st_value"] - end, symbol["st_value"] - end + size))
        constant = [
            range(part["p_vaddr"], part["p_vaddr"] + part["p_memsz"])
            for part in elf.iter_segments()
            if part["p_type"] == "PT_LOAD" and not part["p_flags"] & 2
        ]
    return Program(built_in, constant)


class Launches:
    """Takes a traced build's functions block by block, and says then which launches nothing in memory steers."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._functions: dict[str, _Function] = {}
        self._first: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        self._reads = False  # the host may look at memory by a function of a library

    def take(self, name: str, blocks: Iterable[tuple[int, Sequence[_Line], Sequence[int]]]) -> None:
        """A function's blocks: where each begins, its instructions, and the blocks behind it."""
        whole = name.removesuffix(".cold")
        function = self._functions.setdefault(whole, _Function())
        function.steered |= name in self._first  # of two functions of a name it is not known which one is called
        for start, lines, following in blocks:
            if name == whole:
                self._first.setdefault(name, start)
            self._blocks[start] = _Block(start, lines, following, whole)
            for _, does, text in lines:
                if text.endswith(_BASES) and text != "%rsp,%rbp" and not (_COMPARES(does) or does in ("push", "pop")):
                    function.frame = False
                if does[0] in "cj" and (called := CALLED.search(text)):
                    function.steered |= bool(_THROWS(called[1]))  # what is caught is not looked at
                    self._reads |= bool(_READS(called[1]))

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
    def _settle(function: _Function) -> None:
        for (aligned, place), bit in function.places.items():
            handed = not aligned and place >= _RETURN
            if place >= (function.handed if handed else function.own):
                function.variables |= bit

    # Each instruction once, from where a function begins: the stack pointer's place follows from the way there.

    def _decode(self, start: int, name: str) -> None:
        function = self._functions[name]
        frames = {start: _Frame()}
        left = [start]
        while left:
            at = left.pop()
            block = self._blocks[at]
            frame = _Frame(frames[at].aligned, frames[at].at, frames[at].base)
            reader = _Reader(function, self._program, frame)
            block.steps = [
                reader.read(line, block.lines[number + 1][0] if number + 1 < len(block.lines) else line[0] + 8)
                for number, line in enumerate(block.lines)
            ]
            for step in block.steps:
                step.own = step.called in self._functions and step.called != _BLOCK
            function.calls |= {step.called for step in block.steps if step.called and step.own}
            function.steered |= any(step.strange for step in block.steps) or self._leaves(block)
            for to in self._behind(block):
                if to not in frames:
                    frames[to] = _Frame(frame.aligned, frame.at, frame.base)
                    left.append(to)
                elif (frames[to].aligned, frames[to].at) != (frame.aligned, frame.at):
                    function.steered = True

    def _leaves(self, block: _Block) -> bool:
        """Whether a branch goes to another function."""
        last = block.steps[-1]
        return last.jumps and not last.called and len(self._behind(block)) < len(block.following)

    def _behind(self, block: _Block) -> list[int]:
        """Blocks of the same function that follow; others are calls."""
        if (called := block.steps[-1].called) and (_ENDS(called) or block.steps[-1].jumps):
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
            if step.called is not None and _PLACES(step.called) and not step.jumps:
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
            known: dict[int, _State] = {start: (0, _bits("rsp"), _bits("rdi") if launched else 0, 0, 0)}
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
                if branches and state[0] & _FLAGS:
                    arms = self._arms(behind)
                    if not arms:
                        function.steered = True
                        break
                    written = _FLAGS | _all(step.target for arm in arms for step in self._blocks[arm].steps)
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


def _after(step: _Instruction, function: _Function, state: _State) -> _State:
    """The bits behind an instruction."""
    taint, stack, given, values, near = state
    if step.called is not None:
        return _called(step, function, state)
    if step.strange or taint & step.addresses:
        function.steered = True
        return state
    if step.reaches & stack:
        function.variables = _WORDS
    loaded = step.unknown or taint & step.sources != 0 or function.may_hold(step.sources)
    made = _of(given & step.sources, 1) | _of(values & step.sources, 2) if step.replaces else 0
    if step.loads is not None:
        if given & step.loads:
            made = 2
        elif not (near if step.of_thread else values) & step.loads:
            loaded = True
    function.steered |= step.fails and loaded
    place = step.place or stack & step.sources != 0
    function.moved |= bool(stack & step.sources and step.target and not _COPIES(step.name)) or step.indexed
    if step.stores is not None and stack & step.stores and (loaded or place):
        function.wild = True  # a place, too, may be anywhere then
        function.variables |= _WORDS if step.low else 0
    function.steered |= step.stores is not None and bool((given | values | near) & step.stores)
    target, kept = step.target, ~step.target if step.replaces else ~0
    taint = taint & kept | (target if loaded else 0)
    if step.flags:
        taint = (taint if _KEEPS_FLAGS(step.name) else taint & ~_FLAGS) | (_FLAGS if loaded else 0)
    stack = stack & kept & ~step.spoils | (target if place else 0)
    given = given & ~target | (target if made == 1 else 0)
    values = values & ~target | (target if made == 2 else 0)
    kept_near = step.near or (step.replaces and near & step.sources != 0)
    near = near & ~target | (target if kept_near else 0)
    return taint, stack, given, values, near


def _of(bits: int, level: int) -> int:
    return level if bits else 0


def _called(step: _Instruction, function: _Function, state: _State) -> _State:
    taint, stack, given, values, near = state
    name, result = step.called or "", _RESULTS
    passes = stack & _PASSED
    if step.own or (name == "*" and function.launched):
        # What it gets is not of memory, in registers or behind them; nor may it write what the caller keeps.
        function.steered |= bool((taint | stack) & (_PASSED | step.sources | _WORDS))
        function.any_kernel |= not step.own
    elif _OUT(name):
        function.steered |= not _PLACES(name) and bool(taint & _bits("rdi"))
        result = 0
    elif _PURE(name):
        result = _RESULTS if taint & _PASSED or passes else 0
    elif _ATOMICS(name):
        function.steered |= bool(taint & _bits("rdi"))  # where; the answer is of memory
        function.wild |= bool(passes)
    elif _ORDERS(name):
        function.steered |= bool(taint & _bits("rdi"))
        result = 0
    elif _EXCHANGES(name):
        whose = _bits("rdi", "rsi", "rdx") if "numbered" in name else _bits("rdi")
        function.steered |= bool(taint & whose)
        function.wild |= bool(passes)
        if taint & _given(name) or passes:
            function.exchanged.add(_exchange(name))
        clean = not function.calls and not {_exchange(name), _ANY} & function.exchanged and _exchange(name) != _ANY
        result = 0 if clean else _RESULTS
    elif _OF_REGISTERS(name):
        function.steered |= bool(taint & (_INTEGERS | step.sources)) or function.may_hold(step.sources)
        function.wild |= function.moved
        result = function.registers
    elif _FRAGMENTS(name):
        function.steered |= bool(taint & _INTEGERS)
        function.wild |= bool(passes)
        result = 0
    elif _ANSWERS(name):
        given_it = _asked(name)
        passes &= given_it
        told = passes and (function.wild or taint & function.variables)
        function.steered |= bool(taint & (given_it | step.sources) or told) or function.may_hold(step.sources)
        function.wild |= bool(passes)
        result = _RESULTS if passes or _TOKENS(name) else 0
        result |= function.registers if _WAITS(name) else 0
    else:
        function.steered = True
    kept = ~_LOST
    return taint & kept | result, stack & kept, given & kept, values & kept, near & kept


@lru_cache
def _exchange(name: str) -> str:
    """Which exchange it is, whatever its types: lanes may call it by any of them. Instructions of PTX may be any."""
    if "barrier" in name:
        return "barrier"
    length = re.match(r"_Z(\d+)", name)
    return name[length.end() :][: int(length[1])] if length else _ANY


@lru_cache
def _given(exchange: str) -> int:
    """The bits of what an exchange is given."""
    types = _TYPES_GIVEN.fullmatch(exchange)
    if types is None:
        return _PASSED
    integers, numbers = iter(ARGUMENTS), iter(range(8))
    return _bits(*(f"xmm{next(numbers)}" if each in "fd" else next(integers) for each in types[1]))


@lru_cache
def _asked(function: str) -> int:
    """The bits of the registers in which one of the executor's functions is given integers and addresses."""
    few = _FEW_ARGUMENTS(function)
    return _bits(*ARGUMENTS[: few.lastindex]) if few else _INTEGERS


class _Reader:
    """Reads instructions in the order of a way, with the place of the stack pointer."""

    def __init__(self, function: _Function, program: Program, frame: _Frame) -> None:
        self._function, self._program, self._frame = function, program, frame

    def read(self, line: _Line, behind: int) -> _Instruction:
        """What one does; `behind` is where the next begins."""
        _, name, text = line
        operands = operands_of(text)
        if name.startswith("call") or (name.startswith("jmp") and not _TARGET(text)):
            target = None if text.startswith("*") else CALLED.search(text)
            if text.startswith("*%") and name.startswith("call"):
                return _Instruction(name, self._register(text[1:]), called="*")
            called = target[1] if target else ""
            found = _Instruction(name, called=called, jumps=name.startswith("jmp"))
            self._handed(called, found)
            return found
        if name[0] == "j":
            to = _TARGET(text)
            away = name.startswith("jmp") and to is not None and "+" not in text and ".cold" not in text
            strange = to is None or name.endswith("cxz")
            return _Instruction(name, called=to[2] if away and to else None, jumps=True, strange=strange)
        if _IDLE(name) or (name == "xchg" and text == "%ax,%ax") or name == "ret":
            return _Instruction(name)
        to_stack = bool(operands) and NAMES.get(operands[-1][1:]) == "rsp" and not _COMPARES(name)
        if to_stack or name in ("push", "pop", "leave"):
            return self._moves_stack(name, operands, behind)
        if name in _WIDENS:
            source, target_name = _WIDENS[name]
            return _Instruction(name, _REGISTERS[source], target=_REGISTERS[target_name], replaces=True)
        if name.startswith("stos"):
            return _Instruction(name, _bits("rax"), _bits("rdi", "rcx"), stores=_bits("rdi"))
        if name.startswith("movs") and "%es:" in text:
            return _Instruction(
                name, 0, _bits("rdi", "rsi", "rcx"), loads=_bits("rsi"), stores=_bits("rdi"), replaces=True
            )
        if (
            "%es:" in text
            or "%st" in text
            or not (_ARITHMETIC(name) or _OTHERS(name) or _COMPARES(name) or _DIVIDES(name))
        ):
            return _Instruction(name, strange=True)
        return self._plain(name, operands, behind)

    def _handed(self, called: str, found: _Instruction) -> None:
        """What a function of the executor is given behind its arguments in registers."""
        size = _BOX if _BOXES(called) else 0
        if _MULTIPLIES(called):
            references = _REFERENCES.search(called)
            found.strange = references is None
            size = 8 * max(len(_REFERENCE.findall(references[1])) - len(ARGUMENTS), 0) if references else 0
        found.sources |= self._bytes(self._frame.aligned, self._frame.at, size)

    def _moves_stack(self, name: str, operands: Sequence[str], behind: int) -> _Instruction:
        frame = self._frame
        found = _Instruction(name, replaces=True)
        amount = int(operands[0][1:], 0) if operands and operands[0].startswith("$") else None
        if name == "push" and operands[0].startswith("%") and operands[0] != "%rsp":
            frame.at -= 8
            found.sources, found.target = self._register(operands[0]), self._bytes(frame.aligned, frame.at, 8)
        elif name == "push":
            self._source(operands[0], 8, found, behind)
            frame.at -= 8
            found.target = self._bytes(frame.aligned, frame.at, 8)
        elif name == "pop":
            found.sources, found.target = self._bytes(frame.aligned, frame.at, 8), self._register(operands[0])
            frame.at += 8
        elif name.startswith("sub") and amount is not None:
            frame.at -= amount
        elif name.startswith("add") and amount is not None:
            frame.at += amount
        elif name.startswith("and") and amount is not None and not frame.aligned and frame.base is not None:
            frame.aligned, frame.at = True, 0
        elif name == "leave" and frame.base is not None:
            frame.aligned, frame.at = frame.base
            found.sources, found.target = self._bytes(frame.aligned, frame.at, 8), self._register("%rbp")
            frame.at += 8
        elif name.startswith("mov") and operands == ("%rbp", "%rsp") and frame.base is not None:
            frame.aligned, frame.at = frame.base
        elif name.startswith("lea") and (slot := self._slot(operands[0])) is not None:
            frame.aligned, frame.at = slot
        else:
            found.strange = True
        return found

    def _plain(self, name: str, operands: Sequence[str], behind: int) -> _Instruction:
        found = _Instruction(name, flags=bool(_ARITHMETIC(name) or _DIVIDES(name) or _COMPARES(name)))
        if name.startswith("lea"):
            if "(" in operands[0]:
                self._address(operands[0], found)
            else:
                self._begins_built_in(operands[0], found)
            found.target, found.replaces = self._register(operands[-1]), True
            return found
        if name.startswith("mov") and tuple(operands) == ("%rsp", "%rbp") and self._function.frame:
            self._frame.base = (self._frame.aligned, self._frame.at)
        size = _size(name, operands)
        same = len(operands) == 2 and operands[0] == operands[1]
        if same and _ZEROES(name) and not _NARROW(operands[0]):
            found.target, found.replaces = self._register(operands[1]), True
            return found
        one = len(operands) == 1
        for operand in operands if one or _COMPARES(name) else operands[:-1]:
            self._source(operand, size, found, behind)
        if _USES_FLAGS(name):
            found.sources |= _FLAGS
        if _COMPARES(name):
            return found
        if one and _DIVIDES(name):
            found.sources |= _bits("rax") | (_bits("rdx") if "div" in name else 0)
            found.fails = "div" in name  # by zero
            found.target, found.replaces = _bits("rax", "rdx"), True
            return found
        target = operands[-1]
        if one and name.startswith("set"):
            found.sources, found.loads, found.unknown, found.addresses = _FLAGS, None, False, 0
        replaces = bool(_REPLACES(name))
        if _MERGES(name) and target.startswith("%xmm") and (operands[0].startswith("%") or not name.startswith("mov")):
            replaces = False
        if len(operands) == 3 and name.startswith("imul"):
            replaces = True
        if not replaces and not one:
            self._source(target, size, found, behind)
        self._to(target, size, found, whole=replaces and not _NARROW(target))
        if _LOWERS(name) and not (name.startswith("add") and _SMALL(operands[0])):
            found.reaches |= found.sources
        return found

    def _source(self, operand: str, size: int, found: _Instruction, behind: int) -> None:
        if operand.startswith("$"):
            if found.name.startswith("mov"):
                self._begins_built_in(operand[1:], found)
            return
        if operand.startswith("%") and not operand.startswith("%fs:"):
            found.sources |= self._register(operand)
            if operand == "%rsp":
                found.place = True
                self._takes((self._frame.aligned, self._frame.at))
        elif (slot := self._slot(operand)) is not None and "," not in operand:
            found.sources |= self._bytes(*slot, size)
        elif slot is not None:
            self._takes(slot)
            found.unknown = True
            found.addresses |= self._index(operand)
        elif of_thread := _OF_THREAD(operand):
            place = self._place(of_thread)
            found.unknown |= place != 0 and not any(place in each for each in self._program.built_in)
        elif relative := _RELATIVE(operand):
            place = behind + int(relative[1] + relative[2], 16)
            found.unknown |= not any(place in each for each in self._program.constant)
        elif memory := MEMORY.match(operand):
            found.loads = self._parts(memory)
            found.addresses |= found.loads
            offset = memory["offset"]
            if offset.startswith("%fs:"):
                found.of_thread = offset[4:] in ("", "0x0", "0x4", "0x8", "0", "4", "8")
                found.unknown |= not found.of_thread
            found.unknown |= memory["index"] is not None
        else:
            found.strange = True

    @staticmethod
    def _place(of_thread: re.Match[str]) -> int:
        place = int(of_thread[2], 16) - (1 << 64 if len(of_thread[2]) == 16 else 0)
        return -place if of_thread[1] else place

    def _begins_built_in(self, number: str, found: _Instruction) -> None:
        place = int(number, 16)
        place -= 1 << 64 if place >> 63 else 0
        found.near = any(place == each.start and len(each) == _DIM3 for each in self._program.built_in)

    def _to(self, operand: str, size: int, found: _Instruction, *, whole: bool) -> None:
        if operand.startswith("%") and not operand.startswith("%fs:"):
            found.target, found.replaces = self._register(operand), whole
        elif (slot := self._slot(operand)) is not None and "," not in operand:
            found.target = self._bytes(*slot, size)
            found.replaces = whole
            if whole and size == _HALF and slot[1] % (2 * _HALF) == 0:
                found.spoils = self._bytes(slot[0], slot[1] + _HALF, _HALF)
        elif slot is not None:
            self._takes(slot)
            found.addresses |= self._index(operand)
            # It is one to the stack, whatever its address is made of.
            found.stores, found.low = _REGISTERS["rsp"], True
        elif of_thread := _OF_THREAD(operand):
            # The compiler's own marks, of one byte, are written by it alone.
            place = self._place(of_thread)
            found.strange = any(place in each and len(each) > 1 for each in self._program.built_in)
            found.stores = 0
        elif _RELATIVE(operand):
            found.stores = 0
        elif memory := MEMORY.match(operand):
            found.stores = self._parts(memory)
            found.addresses |= found.stores
            found.low = self._is_low(memory)
        else:
            found.strange = True

    @staticmethod
    def _is_low(memory: re.Match[str]) -> bool:
        """Whether an address may be below the one that it is made from: an index may be less than nothing."""
        return memory["offset"].startswith("-") or memory["index"] is not None

    def _address(self, operand: str, found: _Instruction) -> None:
        slot = self._slot(operand)
        if slot is not None:
            self._takes(slot)
            found.place = True
            if "," in operand:
                found.sources |= self._index(operand)
                found.reaches = _REGISTERS["rsp"]
                found.indexed = True
        elif memory := MEMORY.match(operand):
            found.sources |= self._parts(memory)
            found.reaches = found.sources if self._is_low(memory) else 0

    def _takes(self, slot: tuple[bool, int]) -> None:
        aligned, place = slot
        if not aligned and place >= _RETURN:
            self._function.handed = min(self._function.handed, place)
        else:
            self._function.own = min(self._function.own, place)
        self._function.registers |= self._bytes(aligned, place, _REGISTER)

    def _slot(self, operand: str) -> tuple[bool, int] | None:
        """The place of an operand on the stack, without its index."""
        memory = MEMORY.match(operand)
        if memory is None or memory["base"] not in ("%rsp", "%rbp") or memory["offset"].startswith("%"):
            return None
        offset = int(memory["offset"] or "0", 16)
        if memory["base"] == "%rsp":
            return self._frame.aligned, self._frame.at + offset
        base = self._frame.base
        return None if base is None else (base[0], base[1] + offset)

    def _index(self, operand: str) -> int:
        memory = MEMORY.match(operand)
        return self._register(memory["index"]) if memory and memory["index"] else 0

    def _parts(self, memory: re.Match[str]) -> int:
        found = 0
        for part in (memory["base"], memory["index"]):
            found |= self._register(part) if part and part != "%rip" else 0
        return found

    @staticmethod
    def _register(operand: str) -> int:
        name = operand[1:]
        return _REGISTERS.get(NAMES.get(name, name), 0)

    def _bytes(self, aligned: bool, place: int, size: int) -> int:
        places = self._function.places
        found = 0
        for byte in range(place, place + size):
            found |= places.setdefault((aligned, byte), 1 << (_FIRST_WORD + len(places)))
        return found


@lru_cache(maxsize=1 << 14)
def _size(name: str, operands: Sequence[str]) -> int:
    """Bytes that an instruction moves, at most; those of a store exactly."""
    if name.startswith("set"):
        return 1
    if extends := re.match(r"^mov[sz]([bwl])[wlq]$", name):
        return {"b": 1, "w": 2, "l": 4}[extends[1]]
    if re.match(r"^mov(?:[au]p[sd]|dq[au])$", name) or (
        not name.startswith(("mov", "cvt")) and name.endswith(("ps", "pd"))
    ):
        return 16
    if re.match(r"^(?:mov[lh]p[sd]|movq)$", name):
        return 8
    if name == "movd":
        return 4
    if name.startswith(("cvttsd2si", "cvtsd2si")):
        return 8
    if name.endswith(("sd", "ss")) and not name.startswith("set"):
        return 8 if name.endswith("sd") or "sd" in name else 4
    if name.startswith("p"):
        return 16
    for operand in operands:
        part = operand[1:]
        if operand.startswith("%") and NAMES.get(part) == part:
            return 8
    widest = max((_part(operand) for operand in operands), default=0)
    return widest or {"b": 1, "w": 2, "l": 4, "q": 8}.get(name[-1], 16)


def _part(operand: str) -> int:
    part = operand[1:]
    if not operand.startswith("%") or part not in NAMES:
        return 0
    if part == NAMES[part]:
        return 8
    if part.startswith("e") or part.endswith("d"):
        return 4
    return 1 if part.endswith(("l", "h", "b")) else 2
