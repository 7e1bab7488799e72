"""Counts what one call of a candidate does at given cases: its traced worker is run, and what that writes is folded.

The worker counts executions of basic blocks; which instructions those are is read from its executable
(devices/cpu/instructions.py). What the observer writes, a line of JSON for each event, is in runtime/trace/hooks.cpp.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cudamaster.devices import cases as progress
from cudamaster.devices.cpu.instructions import Code, code_of
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.kernel_names import plain_name
from cudamaster.devices.protocol import Observing, Ran
from cudamaster.modelling.counts import (
    CallCounts,
    Contention,
    Footprint,
    Instructions,
    Launch,
    Other,
    Products,
    Shared,
    Spread,
    Traffic,
    Way,
)
from cudamaster.modelling.gpu import Gpu
from cudamaster.profiling import ptxas
from cudamaster.profiling.ptxas import Usage

VERSION = 3  # of what is counted, and how
_KEPT_OF_L1 = 0.5  # keeps what all blocks read, while the rest streams
# Times the accesses of a mean block of the sample that one beside it may make: a kernel may know where samples lie.
_UNEVEN = 4
_ALONE = 0.95  # of all instructions of the sample in one block
_UNCOUNTED = re.compile(r"cuda device fault: kernel (?P<kernel>.*), block .*?: (?P<what>.* is not counted)")
_REGISTERS = 65536  # of an SM, of all GPUs that are modelled
_KINDS = tuple(name for name in Instructions.model_fields if name != "active_share")


@dataclass(frozen=True)
class NoTrace:
    """Why the counts of a call are not known, a clause."""

    reason: str


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Mark(_Line):
    event: Literal["call", "end", "failed"]


class _Event(_Line):
    event: Literal["alloc", "free", "memset", "copy", "synchronise", "host"]
    bytes: int = 0
    host: bool = False
    instructions: int = 0


class _Traffic(_Line):
    buffer: int
    bytes: int
    load: tuple[int, int, int, int]  # requests, sectors, missed sectors, and of these those that the first block read
    store: tuple[int, int]
    atomic: tuple[int, int]
    lines: int
    wavefronts: int
    bulk: tuple[int, int, int]  # sectors that the copy engine reads, writes and does operations on
    footprints: list[tuple[int, float, float]]


_Sums = tuple[int, int, int]  # sum, count, largest


class _Launch(_Line):
    """A launch as the observer writes it: sums over the traced blocks."""

    event: Literal["launch"]
    kernel: str
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    cooperative: bool
    blocks: int
    traced: int
    left_out: bool
    events: int
    dropped: int
    accesses: tuple[int, int, int]  # of the traced blocks, of others, and how many others were run
    executed: list[tuple[int, int, int]]  # place of the basic block, executions by warps and by threads
    traffic: list[_Traffic]
    shared: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # requests, wavefronts of load, store, atomic
    bulk_bytes: int
    factor_bytes: int
    products: tuple[int, int, int, int]  # operations of f16, TF32, 8 bits, integers
    local_requests: int
    atomics: tuple[int, int, int, int, int]  # requests, lanes, addresses, the hottest of one group and of several
    barriers: _Sums
    requests: _Sums
    waits: _Sums
    cold_waits: _Sums
    warp_instructions: _Sums
    block_instructions: _Sums
    cluster_fences: _Sums
    slept_ns: _Sums
    way_instructions: _Sums
    way_waits: _Sums
    way_cold_waits: _Sums


_OF_FILE = re.compile(r"(?<!\d)(\d+)(?=_GLOBAL__N_|_INTERNAL_)")
_SPREADS = (
    *("barriers", "requests", "waits", "cold_waits", "warp_instructions", "block_instructions", "cluster_fences"),
    *("slept_ns", "way_instructions", "way_waits", "way_cold_waits"),
)
_ANY = TypeAdapter(Annotated[_Launch | _Event | _Mark, Field(discriminator="event")])


def trace(
    device: Observing,
    judge: Path,
    worker: Path,
    cases: Sequence[str],
    *,
    wanted: Gpu,
    seed: int,
    limit_s: float = 120.0,
) -> tuple[CallCounts | NoTrace, ...]:
    """What a call does at each case, by their labels; caches are those of the `wanted` GPU.

    In one process, which a fault ends: the cases behind it are run in another one.
    """
    found: list[CallCounts | NoTrace] = []
    while len(found) < len(cases):
        left = cases[len(found) :]
        request = JudgeRequest(
            judge=(str(judge),),
            candidate=(str(worker), "--inputs-only"),
            cases="none",
            labels=tuple(left),
            seed=seed,
            call_limit_s=limit_s,
            launches=True,
        )
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"

            def run(
                notes: BinaryIO, request: JudgeRequest = request, report: Path = report, many: int = len(left)
            ) -> Ran:
                return device.run_observed(request, report, limit_s * many, notes)

            with progress.judging("counting for the model", report, len(left)):
                counted = recorded(run, worker, left, wanted)
            skipped = _left_out(report)
        results = iter(counted)
        stopped = False
        for number in range(len(left)):
            one = NoTrace(skipped[number]) if number in skipped else next(results)
            if stopped:
                break
            found.append(one)
            stopped = isinstance(one, NoTrace) and number not in skipped
    return tuple(found)


def _left_out(report: Path) -> dict[int, str]:
    """Why the judge did not run cases, by their numbers."""
    lines = report.read_text(encoding="utf-8").splitlines() if report.is_file() else []
    skips = [line for text in lines if (line := json.loads(text))["event"] == "skip"]
    return {line["index"]: f"the case {line['reason']}" for line in skips}


def recorded(
    run: Callable[[BinaryIO], Ran], worker: Path, cases: Sequence[str], wanted: Gpu
) -> tuple[CallCounts | NoTrace, ...]:
    """Counts of the calls that `run` has recorded, one for each of the cases; it gives its notes to the executable."""
    if not cases:
        return ()
    code = _code_of(worker)
    assembled = worker.with_name("candidate.ptxas")
    usage = ptxas.parse(assembled.read_text(encoding="utf-8")) if assembled.is_file() else ()
    with tempfile.TemporaryFile() as notes:
        notes.write((_multiprocessor(wanted) + _table(code)).encode())
        notes.flush()
        after = notes.tell()
        ran = run(notes)
        notes.seek(after)
        calls = list(_calls(notes.read().decode(errors="replace")))
    why = _why_not(ran.stderr, expired=ran.expired)
    found: list[CallCounts | NoTrace] = []
    for number, label in enumerate(cases):
        call = calls[number] if number < len(calls) else None
        if call is None or call.reason is not None:
            found.append(NoTrace(why or (call and call.reason) or "the traced call failed"))
        elif (uneven := _uneven(call.lines)) is not None:
            found.append(NoTrace(uneven))
        else:
            found.append(_counts(call.lines, label, code, usage, wanted))
    return tuple(found)


def _uneven(lines: Sequence[_Launch | _Event]) -> str | None:
    """Why the sample cannot stand for a launch: most of the work lies in blocks that are not in it."""
    for line in lines:
        if isinstance(line, _Launch):
            own, others, blocks = line.accesses
            if others * line.traced > _UNEVEN * own * blocks:
                return f"blocks of {line.kernel} that are not in the sample do far more than those in it"
    return None


@dataclass(frozen=True)
class _Call:
    """Lines of a call; `reason` says why it did not finish, if so."""

    lines: tuple[_Launch | _Event, ...]
    reason: str | None


def _calls(text: str) -> Iterator[_Call]:
    lines: list[_Launch | _Event] = []
    inside, reason = False, "the call did not come to its end"
    for line in text.splitlines():
        try:
            read = _ANY.validate_json(line)
        except ValidationError:
            reason = "a kernel wrote where only the observer may"
            continue
        if not isinstance(read, _Mark):
            lines.append(read)
        elif read.event == "call":
            lines, inside, reason = [], True, "the call did not come to its end"
        elif read.event == "failed":
            reason = "a launch failed"
            yield _Call(tuple(lines), reason)
            inside = False
        elif inside:
            yield _Call(tuple(lines), None)
            inside = False
    if inside:
        yield _Call(tuple(lines), reason)


def _why_not(stderr: str, *, expired: bool) -> str:
    """The executor's own words, empty where it has none."""
    if expired:
        return "the traced call took too long"
    faults = [line for line in stderr.splitlines() if line.startswith("cuda device")]
    if not faults:
        return ""
    # What the model has no price for is no fault of the kernel, which all blocks and threads have in common.
    uncounted = _UNCOUNTED.fullmatch(faults[-1])
    return f"{uncounted['kernel']}: {uncounted['what']}" if uncounted else faults[-1]


def _code_of(worker: Path) -> Code:
    """What a traced worker consists of, read from it once."""
    kept = worker.with_name("code.json")
    if kept.is_file() and kept.stat().st_mtime_ns >= worker.stat().st_mtime_ns:
        blocks, order, *others = json.loads(kept.read_text(encoding="utf-8"))
        of_places, origins, functions, chains = (
            {int(place): found for place, found in each.items()} for each in (blocks, *others)
        )
        return Code(of_places, order, origins, functions, chains)
    code = code_of(worker)
    making = kept.with_suffix(".making")
    kinds = (code.blocks, code.order, code.origins, code.functions, code.chains)
    making.write_text(json.dumps(kinds), encoding="utf-8")
    making.replace(kept)
    return code


def _multiprocessor(wanted: Gpu) -> str:
    """What the observer reads first: what an SM has, by which it gives a block its share of L1."""
    limits = wanted.limits
    parts = (limits.sms, int(wanted.figures.l1_bytes), limits.shared_bytes, limits.reserved_shared_bytes)
    return f"{' '.join(map(str, parts))} {limits.warps} {limits.blocks}\n"


def _table(code: Code) -> str:
    """What the observer reads then: a line for each place behind a call, with the instructions of its block."""
    lines = []
    for number, place in enumerate(code.order, 1):
        weight = max(0, math.ceil(sum(code.blocks.get(place, {}).values())))
        lines.append(f"{place:x} {weight} {number}\n")
    numbers = {place: number for number, place in enumerate(code.order, 1)}
    for place, origins in code.origins.items():
        if place in numbers:
            lines += [f"< {numbers[place]} {numbers[origin]}\n" for origin in origins if origin in numbers]
    return "".join(lines) + "\n"


def _counts(
    lines: Sequence[_Launch | _Event],
    label: str,
    code: Code,
    usage: Sequence[Usage],
    wanted: Gpu,
) -> CallCounts:
    events: list[Launch | Other] = []
    notes: list[str] = []
    left_out = False
    for line in lines:
        if isinstance(line, _Launch):
            events.append(_launch(line, code, usage, wanted))
            if left_out:
                notes.append(f"{line.kernel} was traced after launches of which most blocks were left out")
            left_out = left_out or line.left_out
            if line.dropped:
                notes.append("of long threads the first part was traced")
        else:
            events.append(Other(event=line.event, bytes=line.bytes, host=line.host, instructions=line.instructions))
    merged = [
        first.model_copy(update={"count": sum(1 for _ in same) + 1})
        for _, same in groupby(events)
        if (first := next(same))
    ]
    return CallCounts(
        version=VERSION,
        case=label,
        events=tuple(merged),
        note="; ".join(dict.fromkeys(notes)),
    )


def _took_all(line: _Launch) -> bool:
    """Whether one block did what all blocks share out among them by atomics: it runs before the others do."""
    total, blocks, largest = line.block_instructions
    return blocks > 1 and largest > _ALONE * total and line.atomics[0] > 0 and line.traced < line.blocks


def _shared_out(line: _Launch) -> _Launch:
    """A launch whose work one traced block took, as if all its blocks had been traced and each had done its share."""
    blocks = line.blocks
    more = blocks / line.traced

    def shares(sums: _Sums) -> _Sums:
        total, count, largest = sums
        return total, round(count * more), math.ceil(largest / blocks)

    spreads = {name: shares(getattr(line, name)) for name in _SPREADS}
    traffic = [_shared_traffic(each, line) for each in line.traffic]
    return line.model_copy(update={**spreads, "traced": blocks, "traffic": traffic})


def _shared_traffic(line: _Traffic, launch: _Launch) -> _Traffic:
    """Of a block's share no more is known than what it asks for."""
    _, read, written = line.footprints[0]  # a mean of the traced blocks, of which one touched all
    read, written = read * launch.traced, written * launch.traced
    asked = line.load[1] + line.atomic[1] + line.bulk[0] + line.bulk[2]
    stored = line.store[1] + line.atomic[1] + line.bulk[1] + line.bulk[2]
    share = min(read, asked / launch.blocks), min(written, stored / launch.blocks)
    return line.model_copy(update={"footprints": [(1, *share), (launch.blocks, read, written)]})


def _launch(line: _Launch, code: Code, usage: Sequence[Usage], wanted: Gpu) -> Launch:
    """Counts of the whole launch, of those of the traced blocks."""
    if _took_all(line):
        line = _shared_out(line)
    # Threads of which only a part was kept stand for the whole.
    longer = (line.events + line.dropped) / line.events if line.events else 1.0
    scale = line.blocks / line.traced * longer
    kinds = dict.fromkeys(_KINDS, 0.0)
    warps = lanes = 0.0
    for place, by_warps, by_lanes in line.executed:
        block = code.blocks.get(place, {})
        size = sum(block.values())
        warps += size * by_warps
        lanes += size * by_lanes
        for kind, count in block.items():
            kinds[kind] += count * by_warps * scale
    kinds = {
        kind: max(0.0, count) for kind, count in kinds.items()
    }  # some stand for less than nothing (instructions.py)
    (loads, load_waves), (stores, store_waves), (atomics, atomic_waves) = line.shared
    _, atomic_lanes, addresses, of_one, of_many = line.atomics
    f16, tf32, f8, integer = (each * scale for each in line.products)
    found = usage_of(line.kernel, math.prod(line.block), usage, code.functions.get(line.function))
    return Launch(
        kernel=line.kernel,
        grid=line.grid,
        block=line.block,
        cluster=line.cluster,
        dynamic_shared_bytes=line.dynamic_shared_bytes,
        static_shared_bytes=None if found is None else found.shared_bytes,
        registers=None if found is None else found.registers,
        spill_store_bytes=(found and found.spill_store_bytes) or 0,
        spill_load_bytes=(found and found.spill_load_bytes) or 0,
        cooperative=line.cooperative,
        traced_blocks=line.traced,
        chained_cycles=scale * sum(code.chains.get(place, 0.0) * by_warps for place, by_warps, _ in line.executed),
        instructions=Instructions(**kinds, active_share=min(lanes / (32 * warps), 1.0) if warps else 1.0),
        traffic=tuple(_traffic(traffic, scale, line, wanted) for traffic in line.traffic),
        shared=Shared(
            load_requests=loads * scale,
            load_wavefronts=load_waves * scale,
            store_requests=stores * scale,
            store_wavefronts=store_waves * scale,
            atomic_requests=atomics * scale,
            atomic_wavefronts=atomic_waves * scale,
            bulk_bytes=line.bulk_bytes * scale,
            factor_bytes=line.factor_bytes * scale,
        ),
        products=Products(f16=f16, tf32=tf32, f8=f8, integer=integer),
        local_requests=line.local_requests * scale,
        contention=Contention(
            hottest=max(of_many * scale, of_one),
            all=atomic_lanes * scale,
            same_address=atomic_lanes / addresses if addresses else 1,
        ),
        barriers=_spread(line.barriers, longer),
        cluster_fences=_spread(line.cluster_fences, longer),
        slept_ns_of_warp=_spread(line.slept_ns, longer),
        requests_of_warp=_spread(line.requests, longer),
        waits_of_warp=_spread(line.waits, longer),
        cold_waits_of_warp=_spread(line.cold_waits, longer),
        instructions_of_warp=_spread(line.warp_instructions, longer),
        instructions_of_block=_spread(line.block_instructions, longer),
        way_of_block=Way(
            instructions=_spread(line.way_instructions, longer),
            waits=_spread(line.way_waits, longer),
            cold_waits=_spread(line.way_cold_waits, longer),
        ),
    )


def _traffic(line: _Traffic, scale: float, launch: _Launch, wanted: Gpu) -> Traffic:
    # Blocks that an SM runs after or beside another one find what all of them read, as far as its L1 keeps it.
    common = line.load[3]
    kept = 32 * common / launch.traced <= _KEPT_OF_L1 * wanted.figures.l1_bytes
    others = 1 - 1 / max(launch.blocks / wanted.limits.sms, 1) if kept else 0.0
    return Traffic(
        buffer=line.buffer,
        bytes=line.bytes,
        load_requests=line.load[0] * scale,
        load_sectors=line.load[1] * scale,
        missed_sectors=(line.load[2] - others * common) * scale,
        store_requests=line.store[0] * scale,
        store_sectors=line.store[1] * scale,
        atomic_requests=line.atomic[0] * scale,
        atomic_sectors=line.atomic[1] * scale,
        lines=line.lines * scale,
        wavefronts=line.wavefronts * scale,
        bulk_read_sectors=line.bulk[0] * scale,
        bulk_written_sectors=line.bulk[1] * scale,
        bulk_reduced_sectors=line.bulk[2] * scale,
        footprints=tuple(Footprint(blocks=n, read=read, written=written) for n, read, written in line.footprints),
    )


def _spread(sums: _Sums, longer: float) -> Spread:
    total, count, largest = sums
    return Spread(mean=longer * total / count if count else 0, largest=longer * largest)


def usage_of(kernel: str, threads: int, usage: Sequence[Usage], symbol: str | None = None) -> Usage | None:
    """What ptxas says of a kernel that was launched with blocks of so many threads; None if it does not name it.

    `symbol` is the mangled name of the function that was launched, which tells a template's kernels apart, and what
    was launched where `kernel` is only the name of a parameter. Without one that ptxas knows, plain names are compared,
    and of a template's kernels the first whose registers suffice for such a block stands for all.
    """
    if symbol is not None:
        same = (found for found in usage if _without_file(found.symbol) == _without_file(symbol))
        if (launched := next(same, None)) is not None:
            return launched
    name = kernel.split("<")[0].split("::")[-1].strip()
    named = [found for found in usage if plain_name(found.symbol) == name]
    fitting = (found for found in named if (found.registers or 0) * threads <= _REGISTERS)
    return next(fitting, named[0] if named else None)


def _without_file(symbol: str) -> str:
    """A mangled name without what g++ and nvcc mangle in their own ways: that it is its file's alone."""
    name, at = "", 0
    while found := _OF_FILE.search(symbol, at):
        name += symbol[at : found.start()]
        at = found.end(1) + int(found[1])
    return (name + symbol[at:]).replace("_ZL", "_Z")
