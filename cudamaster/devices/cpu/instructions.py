"""The GPU instructions that the basic blocks of a traced executable stand for, by kind.

A traced build calls out once in each basic block (runtime/trace). The block is the host's instructions around such a
call, from one jump or jump target to the next; an instruction's name decides its kind. The code is x86-64 without
vector instructions, compiled as toolchain.py says, which is near what nvcc makes of the same source:

- moves, stack traffic and call-outs cost nothing: a GPU has registers enough, and accesses to memory are counted apart
- four passes of a loop of one block, or of one whose branches nvcc makes predicates, pay once for its counting and its
  jump, if nvcc can tell how many there are (passes.py) and is not told to leave them (rolled.py); such branches cost
  nothing
- a product and a sum of one block are one fused instruction
- a call of a function that is one instruction on a GPU, or a subroutine there too, counts as that

- sums, shifts and comparisons of 64-bit integers cost nothing where an address is made from them (addresses.py): nvcc
  makes offsets of these, and what is left is part of the requests to memory (instructions_of_request,
  modelling/constants.py); nor does the upper half of a register, which holds the second word of a small structure

Left out is what a GPU saves by immediate operands and predicates.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from cudamaster.core import keys
from cudamaster.core.errors import DeviceError
from cudamaster.devices.cpu import (
    addresses,
    chains,
    counting,
    effects,
    flow,
    ones,
    origins,
    passes,
    rolled,
    steering,
    x86,
)

_FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$", re.MULTILINE)
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(?:(?:rep|repz|repnz|lock|notrack|data16|cs|bnd) )*([a-z][a-z0-9]*)\s*(.*)$")
# A shift by one has an operand less in code. Later binutils than 2.40 write the one down, other than constants: "$1".
_SHIFT = re.compile(r"^(?:sh[lr]|sa[lr]|ro[lr]|rc[lr])[bwlq]?$")
_CALLED = re.compile(r"<([^>+@]+)(?:@plt)?>")
_LANE, _SHARED_PLACE = "<cudamaster_cpu_lane", "<cudamaster_cpu_shared_place"
_MEETS = frozenset({"control", "shuffle", "matrix"})  # what calls are that no predicate stands before
_TARGET = re.compile(r"^([0-9a-f]+) <")
_BLOCK = "__sanitizer_cov_trace_pc"

_Lines = list[tuple[int, str, str]]

# With what finds out whether the short way will do, and goes around the other: 17 and 12 cycles on an H200.
_DIVISION: Mapping[str, int] = {"special": 1, "fma": 8, "fp32": 2, "control": 5}
_ROOT: Mapping[str, int] = {"special": 1, "fma": 5, "fp32": 1, "control": 4}
# Functions of inline PTX (include/cudamaster_cpu/ptx), where each is one instruction; types are in their names.
_PTX: tuple[tuple[str, Mapping[str, float]], ...] = (
    (r"3ptx8mma_syncI\w*m16n8k(?:16\w*t_b?f16|8\w*t_tf32)", {"matrix": 0.5}),
    (r"3ptx8mma_sync", {"matrix": 0.25}),
    (r"3ptx(?:8atom_one|8atom_cas|8meet_for)", {}),  # requests to memory, and a part of one
    (r"3ptx7rows_of|^cudamaster_cpu_copy", {"other": 1}),
    (r"^cudamaster_cpu_(?:shared_place|space|proxy_fence|registers)", {}),
    (r"^cudamaster_cpu_shared_address", {"integer": 1}),
    (r"^cudamaster_cpu_numbered_barrier|^cudamaster_cpu_exit", {"control": 1}),
    (r"3ptx9shfl_sync", {"shuffle": 1}),
    (r"3ptx(?:3cvt|8cvt_pack)I", {"conversion": 1}),
    (r"3ptx(?:3div|3rcp|4sqrt|5rsqrt)I\w*t_f64", {"slow": 1}),
    (r"3ptx3divI\w*t_(?:approx|full)", {"special": 1, "fp32": 1}),
    (r"3ptx3divI\w*t_f32", {"special": 1, "fma": 7}),
    (r"3ptx(?:3div|3rem)I", {"special": 1, "conversion": 2, "integer": 10}),
    (r"3ptx(?:3sin|3cos)I", {"special": 1, "fp32": 1}),
    (r"3ptx(?:3rcp|4sqrt|5rsqrt|3lg2|3ex2|4tanh)I\w*t_approx", {"special": 1}),
    (r"3ptx(?:3rcp|4sqrt)I", {"special": 1, "fma": 4}),
    (r"3ptx\w+I\w*t_f64", {"fp64": 1}),
    (r"3ptx(?:3fma|3mad)I\w*t_b?f(?:16|32)", {"fma": 1}),
    (r"3ptx(?:3add|3sub|3mul)I\w*t_b?f16", {"fma": 1}),
    (r"3ptx\w+I\w*t_b?f(?:16|32)", {"fp32": 1}),
    (r"3ptx3fnsI", {"integer": 4}),
    (r"14cudamaster_cpu3ptx", {"integer": 1}),
)

# Functions, by what their mangled names have in them; the first that fits counts.
_CALLS: tuple[tuple[re.Pattern[str], Mapping[str, float]], ...] = (
    *((re.compile(pattern), kinds) for pattern, kinds in _PTX),
    *(
        (re.compile(pattern), kinds)
        for pattern, kinds in (
            (r"^__tsan_|^cudamaster_cpu_observe_(?!mem)|^__stack_chk", {}),
            (r"^cudamaster_cpu_barrier|_Z\d+__syncwarp|__threadfence|^cudamaster_cpu_yield|4spun", {"control": 1}),
            (r"7details8converge", {"control": 1}),
            (r"mma_sync", {"matrix": 1}),
            (r"(?:load|store)_matrix_sync", {"integer": 2}),  # requests to memory, and their address
            (r"__shfl_|__ballot_sync|__any_sync|__all_sync|__reduce_\w+_sync|7details4move", {"shuffle": 1}),
            (r"__match_a\w+_sync", {"shuffle": 8}),
            # Where a word of ldmatrix lies: what is behind this call, a sum, an address and a jump, no GPU executes.
            (r"^cudamaster_cpu_lane", {"integer": -2, "control": -1}),
            (r"^cudamaster_cpu_(?:activemask|cooperative|dynamic)", {"other": 1}),
            (r"_Z\d+atomic", {}),  # requests to memory
            # bf16 and fp16: conversions, then arithmetic, which takes two values at once
            (
                r"bf16_bits|bf16_value|half_bits|half_value|to_float_odd|__floats?2|saturate|2(?:int|uint|ll|ull)_r",
                {"conversion": 1},
            ),
            (r"(?:4bf16|4half|4fp16)(?:3fma|3mul|3add|3sub)|fma_odd|__h(?:fma|mul|add|sub)", {"fma": 1}),
            (r"(?:4bf16|4half|4fp16)3div|__h2?div", {"special": 1, "fma": 1}),
            (r"(?:4bf16|4half|4fp16)\d+|__h(?:neg|abs|min|max)", {"fp32": 1}),
            (r"_Z\d+h2?(?:exp|log|sin|cos|tanh|sqrt|rsqrt|rcp)", {"special": 1, "conversion": 2}),
            (r"_Z\d+h2?(?:ceil|floor|rint|trunc)", {"conversion": 1}),
            # mathematics: what the special function unit does, with what leads to it
            (r"(?:_Z\d+)?(?:__expf|__exp10f|__logf|__log2f|__log10f|__sinf|__cosf|__tanhf)", {"special": 1, "fp32": 1}),
            (r"(?:_Z\d+)?(?:__powf|__tanf|__sincosf)", {"special": 2, "fp32": 2}),
            (r"(?:_Z\d+)?(?:__fdividef|fdividef)", {"special": 1, "fp32": 1}),
            (r"(?:_Z\d+)?(?:rsqrtf|rsqrt)", {"special": 1, "fp32": 2}),
            (r"^(?:expf|exp2f|exp10f)$", {"special": 1, "fma": 4}),
            (r"^(?:logf|log2f|log10f|log1pf)$", {"special": 1, "fma": 11, "integer": 5, "control": 3}),
            (r"^sqrtf$", _ROOT),
            (r"^(?:fminf|fmaxf|fabsf|copysignf)$", {"fp32": 1}),
            (r"^(?:fmin|fmax|fabs|copysign)$", {"fp64": 1}),
            (r"^fmaf$", {"fma": 1}),
            (r"^fma$", {"fp64": 1}),
            (r"^(?:floorf|ceilf|truncf|rintf|roundf|nearbyintf|lrintf|floor|ceil|trunc|rint)$", {"conversion": 1}),
            (r"__brev|__byte_perm|__dp4a|__clz|__popc|__ffs|__u?sad|__u?mulhi", {"integer": 1}),
            (r"__dp2a|__fns|lane_of|ranks_of", {"integer": 4}),
            (r"__[fd](?:add|sub|mul)_|__f(?:div|rcp|sqrt)_", {"fp32": 1}),
            (r"^(?:cudamaster_cpu_observe_)?mem(?:cpy|set|move)$", {"other": 1}),
            (r"_Z\d+(?:clock64|__globaltimer)|^cudamaster_cpu_observe_clock", {"other": 1}),
        )
    ),
)
_SUBROUTINE: dict[str, float] = {"slow": 1}  # any other function of the mathematical library
_MATHEMATICS = re.compile(r"^[a-z][a-z0-9]*f?$|_Z\d+(?:\w*pif?|erf\w*|norm\w*|rcbrt\w*|rhypot\w*|normcdf\w*)E?[a-z]")

_SCALAR_FLOATS = {
    "add": "sum",
    "sub": "sum",
    "mul": "product",
    "min": "fp32",
    "max": "fp32",
    "comi": "fp32",
    "ucomi": "fp32",
    "cmp": "fp32",
    "div": "quotient",
    "sqrt": "root",
    "round": "conversion",
}
_FLOAT = re.compile(r"^v?(ucomi|comi|cmp\w*?|add|sub|mul|div|sqrt|min|max|round)(s|p)(s|d)$")
_CONVERSION = re.compile(r"^v?cvtt?(?:si2s[sd]|s[sd]2si|ss2sd|sd2ss|dq2p[sd]|p[sd]2\w+)[lq]?$")
_INTEGER = re.compile(
    r"^(?:add|sub|and|or|xor|not|neg|inc|dec|shl|sal|shr|sar|shld|shrd|rol|ror|imul|mul|mulx|cmp|test|adc|sbb|bt[src]?|bs[fr]|"
    r"lzcnt|tzcnt|popcnt|bswap)[bwlq]?$"
)
_OF_ADDRESSES = re.compile(r"^(?:add|sub|inc|dec|neg|cmp|test|shl|sal)q?$")
_WIDE = re.compile(r"%r(?:[abcd]x|[sd]i|[bs]p|\d+)(?![dwb\d])")
_COUNTING = re.compile(r"^(?:add|sub|inc|dec|cmp|test)")
_CHOICE = re.compile(r"^(?:set|cmov)[a-z]+$")
_JUMP = re.compile(r"^j(?!mp)[a-z]+$")


@dataclass(frozen=True)
class Code:
    """A traced executable: instructions of each basic block by the return address of its call-out, and the places
    behind calls in an order in which threads of a warp meet again. `origins` of a place behind a load's call-out are
    those of the loads that its address is made from (origins.py), `functions` symbols by where they begin, `chains` of
    a basic block the cycles of instructions that wait for each other (chains.py), and `loops`, of one that nvcc makes
    into one with others of its loop, the first of these. `split` are loads whose values are taken apart behind them,
    `alone` places in loops whose passes wait for each other, `unanswered` atomics whose answer nobody takes, and `ones`
    those of them whose lanes at one address are one (ones.py). `unsteered` are launches whose work no value in memory
    steers (steering.py), by where functions begin that make a thread's part of them, `named` those of these that call
    the kernel which the launch names. Addresses count from where the program lies."""

    blocks: Mapping[int, Mapping[str, float]]
    order: Sequence[int]
    origins: Mapping[int, Sequence[int]] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
    chains: Mapping[int, float] = field(default_factory=dict)
    loops: Mapping[int, int] = field(default_factory=dict)
    split: Sequence[int] = ()
    alone: Sequence[int] = ()
    unanswered: Sequence[int] = ()
    ones: Sequence[int] = ()
    unsteered: Sequence[int] = ()
    named: Sequence[int] = ()


def code_of(executable: Path) -> Code:
    """What the kernels of a traced executable consist of. DeviceError where binutils are missing."""
    try:
        done = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", "--section=.text", str(executable)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=keys.for_tools(),
        )
    except FileNotFoundError as error:
        raise DeviceError("objdump is missing.", "Install GNU binutils.") from error
    if done.returncode != 0:
        raise DeviceError(f"objdump cannot read a traced build: {done.stderr.strip()[:300]}.", "Build it again.")
    return code_in(done.stdout, effects.program_of(executable))


def code_in(listing: str, program: effects.Program | None = None) -> Code:
    """The same, from objdump's listing."""
    functions = {int(head[1], 16): head[2] for head in _FUNCTION.finditer(listing)}
    launches = steering.Launches(program) if program else None
    found: dict[int, Counter[str]] = {}
    order: list[int] = []
    came_from: dict[int, Sequence[int]] = {}
    chained: dict[int, float] = {}
    looped: dict[int, int] = {}
    split: list[int] = []
    alone: list[int] = []
    merged: list[int] = []
    unanswered: list[int] = []
    for lines in _functions(listing):
        stretches = list(_stretches(lines))
        for behind, adds_one in ones.places(lines):
            unanswered.append(behind)
            if adds_one:
                merged.append(behind)
        if launches:
            blocks_of = ((stretch.start, stretch.lines, stretch.following) for stretch in stretches)
            launches.take(functions[lines[0][0]], blocks_of)
        places = {stretch.start: stretch.places for stretch in stretches}
        following = {stretch.start: stretch.following for stretch in stretches}
        loops = flow.nested(places, following)
        in_order = flow.in_order(places, following, loops)
        order += [place for start in in_order for place in places[start]]
        of_start = {stretch.start: stretch.lines for stretch in stretches}
        blocks = [of_start[start] for start in in_order]
        found_origins = origins.of_loads(blocks, following, _passes_on)
        came_from.update(found_origins.of_addresses)
        split += found_origins.split
        values = addresses.values_of(blocks, following)
        simple = flow.simple_loops(in_order, following, loops).values()
        chasing = [inside for inside in simple if _chases(inside, in_order, places, following, found_origins)]
        apart = [
            inside
            for inside in simple
            if passes.countless(inside, of_start, following)
            or any(rolled.is_marked(of_start[start]) for start in inside)
        ]
        each = frozenset(start for inside in apart for start in inside)
        alone += [place for inside in (*chasing, *apart) for start in inside for place in places[start]]
        shared = [inside for inside in simple if inside not in chasing]
        predicated = _predicated(shared, of_start, values)
        emulated = {start for inside in simple if _emulates(inside, of_start) for start in inside}
        cycles = chains.of_blocks(blocks, following, _of_instruction, _of_call, values, predicated)
        callouts = {stretch.start: stretch.callout for stretch in stretches}
        for inside in set(predicated.values()):
            several = [place for start in in_order if start in inside and (place := callouts[start]) is not None]
            looped.update(dict.fromkeys(several, several[0]))
        last: int | None = None  # the call-out before, in the order of addresses
        for stretch in stretches:
            last = stretch.callout or last
            if last is None:
                continue
            if stretch.start in emulated:
                words = sum(_LANE in operands for _, _, operands in stretch.lines)
                found.setdefault(last, Counter()).update({"integer": -words})
                continue
            times = 1 if stretch.start in each else counting.shipped().unrolled_passes
            found.setdefault(last, Counter()).update(_kinds(stretch, values, predicated.get(stretch.start), times))
            if more := cycles.get(stretch.start, 0.0):
                chained[last] = chained.get(last, 0.0) + more
    return Code(
        {place: _fused(block) for place, block in found.items()},
        order,
        came_from,
        functions,
        chained,
        looped,
        split,
        alone,
        unanswered,
        merged,
        *(launches.unsteered() if launches else ((), ())),
    )


def _emulates(inside: frozenset[int], lines: Mapping[int, _Lines]) -> bool:
    """Whether a loop stands for one instruction of a GPU, ldmatrix or stmatrix: the words of a lane one after another.
    Each is a request to shared memory, and is counted as one more instruction there."""
    called = " ".join(to for start in inside for _, name, to in lines[start] if name.startswith("call"))
    return _LANE in called and _SHARED_PLACE in called


def _chases(
    inside: frozenset[int],
    order: Sequence[int],
    places: Mapping[int, Sequence[int]],
    following: Mapping[int, Sequence[int]],
    found: origins.Origins,
) -> bool:
    """Whether loads of a loop's pass have their addresses from the pass before, as those of a list or a search, or that
    there is a next pass hangs on what is loaded."""
    number = {
        place: at for at, place in enumerate(place for start in order if start in inside for place in places[start])
    }
    if any(
        not inside.issuperset(following.get(start, ())) and found.decides.get(start, frozenset()) & number.keys()
        for start in inside
    ):
        return True
    return any(
        number.get(origin, -1) >= number[place]
        for place in found.loads & number.keys()
        for origin in found.of_addresses.get(place, ())
    )


def _predicated(
    loops: Iterable[frozenset[int]], lines: Mapping[int, _Lines], values: Mapping[int, Mapping[str, float]]
) -> dict[int, frozenset[int]]:
    """Blocks of loops of several blocks that nvcc makes into one, with all blocks of their loop: it unrolls these by
    four, and their branches become predicates."""
    found: dict[int, frozenset[int]] = {}
    most = counting.shipped()
    for inside in loops:
        every = [line for start in inside for line in lines[start]]
        calls = [target[1] for _, name, to in every if name.startswith("call") and (target := x86.CALLED.search(to))]
        if not 1 < len(inside) <= most.predicated_blocks or any(
            _MEETS & _of_call(target).keys() for target in calls if target != _BLOCK
        ):
            continue
        if sum(sum(_of_line(*line, values).values()) for line in every) <= most.predicated_instructions:
            found.update(dict.fromkeys(inside, inside))
    return found


def _passes_on(target: str) -> bool:
    """Whether a function's result is its argument in another form."""
    return set(_of_call(target)) == {"conversion"}


@dataclass
class _Stretch:
    """Instructions that are executed together, and the places behind the calls among them."""

    start: int
    callout: int | None = None
    places: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    lines: list[tuple[int, str, str]] = field(default_factory=list)


def _stretches(lines: _Lines) -> Iterator[_Stretch]:
    """A function from jump to jump. Two call-outs in a row without a jump between them are two stretches."""
    targets = {int(to[1], 16) for _, name, operands in lines if name[0] == "j" and (to := _TARGET.match(operands))}
    stretch = _Stretch(lines[0][0])
    called = jumped = block = False
    behind = [address for address, _, _ in lines[1:]]
    for (address, name, operands), after in zip(lines, [*behind, None], strict=True):
        if jumped or address in targets or (block and stretch.callout is not None):
            if not jumped:
                stretch.following.append(address)
            yield stretch
            stretch = _Stretch(address)
        if called:
            stretch.places.append(address)
        if block:
            stretch.callout = address
        stretch.lines.append((address, name, operands))
        target = _CALLED.search(operands) if name.startswith("call") else None
        called = name.startswith("call")
        block = target is not None and target[1] == _BLOCK
        jumped = name[0] == "j"
        if called:
            continue
        if jumped:
            _jump(stretch, name, operands, after)
        jumped = jumped or name in {"ret", "ud2"}
    yield stretch


def _jump(stretch: _Stretch, name: str, operands: str, behind: int | None) -> None:
    if to := _TARGET.match(operands):
        stretch.following.append(int(to[1], 16))
    if not name.startswith("jmp"):
        stretch.following += [] if behind is None else [behind]


def _kinds(
    stretch: _Stretch, values: Mapping[int, Mapping[str, float]], loop: frozenset[int] | None, times: float
) -> dict[str, float]:
    """What a stretch's instructions stand for. nvcc makes so many passes one in a loop of one stretch, or `loop`: they
    pay once for its counting."""
    found: dict[str, float] = {}
    for place, name, operands in stretch.lines:
        for kind, count in _of_line(place, name, operands, values).items():
            found[kind] = found.get(kind, 0) + count
    if loop is not None and loop.issuperset(stretch.following):
        found.pop("control", None)
    elif stretch.start in stretch.following or loop is not None:
        for kind in ("counting", "control"):
            found[kind] = found.get(kind, 0) / times
    return found


def _of_line(place: int, name: str, operands: str, values: Mapping[int, Mapping[str, float]]) -> Mapping[str, float]:
    if name.startswith("call"):
        target = x86.CALLED.search(operands)
        called = target[1] if target else ""
        return {} if called == _BLOCK else _of_call(called)
    return values.get(place) or _of_instruction(name, operands)


def _functions(listing: str) -> Iterator[_Lines]:
    """Instructions of each function that has call-outs: address, name, operands."""
    heads = [0, *(head.start() for head in _FUNCTION.finditer(listing)), len(listing)]
    for start, end in pairwise(heads):
        if listing.find(_BLOCK, start, end) < 0:
            continue
        lines: _Lines = []
        observed = False
        for line in listing[start:end].splitlines():
            if parts := _LINE.match(line):
                # objdump says behind an address relative to the program counter where that is.
                operands = parts[3] if parts[2].startswith("call") else parts[3].partition(" #")[0].rstrip()
                if operands.startswith("$1,") and _SHIFT.match(parts[2]):
                    operands = operands.removeprefix("$1,")
                lines.append((int(parts[1], 16), parts[2], operands))
                observed = observed or _BLOCK in parts[3]
        if observed:
            yield lines


@lru_cache(maxsize=1 << 16)
def _of_call(target: str) -> Mapping[str, float]:
    for pattern, kinds in _CALLS:
        if pattern.search(target):
            return kinds
    return _SUBROUTINE if _MATHEMATICS.search(target) else {"control": 1}


@lru_cache(maxsize=1 << 16)
def _of_instruction(name: str, operands: str) -> Mapping[str, int]:
    if parts := _FLOAT.match(name):
        what = _SCALAR_FLOATS["cmp" if parts[1].startswith("cmp") else parts[1]]
        return _of_float(what, double=parts[3] == "d")
    if _CONVERSION.match(name):
        return {"conversion": 1}
    if _JUMP.match(name):
        return {"control": 1}
    if _CHOICE.match(name):
        return {"integer": 1}
    if re.match(r"^i?div[bwl]?$", name):
        wide = "%r" in operands or name.endswith("q")
        return {"slow": 1} if wide else {"special": 1, "conversion": 2, "integer": 10}
    if re.match(r"^i?divq$", name):
        return {"slow": 1}
    if name.startswith("lea"):
        # An index in an address is one multiply-add; a constant offset is part of the access.
        return {"integer": 1} if re.search(r"\(%?\w*,", operands) else {}
    if _INTEGER.match(name):
        words = operands.split(",")
        if name.startswith("xor") and len(words) == 2 and words[0].strip() == words[1].strip():
            return {}  # zero
        if operands.endswith("%rsp") or (name.startswith(("and", "or")) and "%xmm" in operands):
            return {}  # the stack's own; a sign, which is part of an operand on a GPU
        if name.startswith(("shr", "sar")) and operands.startswith("$0x20,%r"):
            return {}
        if _OF_ADDRESSES.match(name) and (name.endswith("q") or _WIDE.search(re.sub(r"\([^)]*\)", "", operands))):
            return {}
        return {"counting": 1} if _COUNTING.match(name) and _counts(name, words) else {"integer": 1}
    if name in {"ud2", "hlt"}:
        return {"control": 1}
    return {}


def _counts(name: str, operands: Sequence[str]) -> bool:
    """Whether an instruction may be the counting of a loop: it compares, or goes on by a constant."""
    return not name.startswith(("add", "sub")) or operands[0].startswith("$")


def _of_float(what: str, *, double: bool) -> Mapping[str, int]:
    if what == "quotient":
        return {"slow": 1} if double else _DIVISION
    if what == "root":
        return {"slow": 1} if double else _ROOT
    if what == "conversion":
        return {"conversion": 1}
    if double:
        return {f"{what} of doubles": 1} if what in {"sum", "product"} else {"fp64": 1}
    return {what: 1}


def _fused(block: Counter[str]) -> dict[str, float]:
    """Products and sums that are one instruction together."""
    block["integer"] += block.pop("counting", 0)
    sums, products = block.pop("sum", 0), block.pop("product", 0)
    block["fma"] += min(sums, products)
    block["fp32"] += abs(sums - products)
    sums, products = block.pop("sum of doubles", 0), block.pop("product of doubles", 0)
    block["fp64"] += max(sums, products)
    return {kind: count for kind, count in block.items() if count}
