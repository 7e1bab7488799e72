"""Counts what one call of a candidate does at given cases: its traced worker is run, and what that writes is folded.

The worker counts executions of basic blocks; which instructions those are is read from its executable
(devices/cpu/instructions.py). What the observer writes is read by observed.py, and made counts of whole launches by
folding.py.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cudamaster.core.writing import write_text
from cudamaster.devices import cases as progress
from cudamaster.devices.cpu import counting, steering
from cudamaster.devices.cpu.instructions import Code, code_of
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.parts import cores
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Observing, Ran
from cudamaster.modelling import units
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.folding import VERSION, counts_of
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.observed import AGAIN, WHOLE, EventLine, LaunchLine, calls
from cudamaster.profiling import ptxas

_ALIKE = 0.02
# Of a kernel's cases, which are counted side by side. Each has a first call, where nothing is known of what launches
# need: with two shares these are the two smallest cases. Most of the work is in the largest, whatever is beside it.
_SHARES = 2
_IDLE = {"integer", "control", "other", "shuffle"}  # what loops that wait for another thread are made of
_UNCOUNTED = re.compile(r"cuda device fault: kernel (?P<kernel>.*), block .*?: (?P<what>.* is not counted)")


@dataclass(frozen=True)
class Spares:
    """What a process that counts spares itself: `inputs`, which are not made; `results` of its first call's launches,
    as if nobody needed them (of later calls the one before says who does); what launches do not need of which
    `steering` says that nothing in memory steers them; of so many `units` of work all but one, where a block takes all
    of a launch's."""

    inputs: bool = False
    results: bool = False
    steering: bool = False
    units: int = 0


_MOST = Spares(inputs=True, results=True, steering=True, units=units.ONE_OF)


@dataclass(frozen=True)
class NoTrace:
    """Why the counts of a call are not known, a clause. If it left out units of work that are needed: of how many one
    may be taken, 0 if all are needed; and whether it came to its end without them."""

    reason: str
    units: int = 0
    ended: bool = False


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

    Every other case is in one process, which a fault ends: the cases behind it are run in another one. So is a case
    that left out what proved to be needed, and what is behind it; if that was a first one, it spares itself less.

    What is said of launches that nothing steers (steering.py) is tried on the smallest case that makes one: if it has
    other counts with its inputs and all that launches before left, that is not believed, and all cases are counted so.
    One without counts may have made such a launch that failed for want of its inputs.
    """
    of_share = partial(_traced, device, judge, worker, wanted=wanted, seed=seed, limit_s=limit_s)
    counted = partial(_side_by_side, of_share)
    steered = replace(_MOST, inputs=False, steering=False)
    if not _seems_unsteered(worker) or not cases:
        return counted(cases, steered)
    unsteered: set[str] = set()
    found = counted(cases, _MOST, unsteered=unsteered)
    lacking = {label for label, one in zip(cases, found, strict=True) if isinstance(one, NoTrace)}
    make_one = [number for number, label in enumerate(cases) if label in unsteered | lacking]
    if not make_one:
        return found
    smallest = min(make_one, key=lambda number: _size(found[number]))
    if _alike(found[smallest], counted([cases[smallest]], steered)[0]):
        return found
    return counted(cases, steered)


def _side_by_side(
    counted: Callable[..., tuple[CallCounts | NoTrace, ...]],
    cases: Sequence[str],
    spares: Spares,
    unsteered: set[str] | None = None,
) -> tuple[CallCounts | NoTrace, ...]:
    """`counted` (`_traced`) of shares of the cases, side by side where there are cores; the last case's share first.

    One behind the other in a process may have other counts than alone, so the shares are the same on every machine."""
    shares = [share for first in range(_SHARES) if (share := range(first, len(cases), _SHARES))]
    shares.sort(key=lambda share: share[-1], reverse=True)
    with (
        # A thread that was interrupted may never come back to remove a folder of its own.
        tempfile.TemporaryDirectory(prefix="cudamaster-", ignore_cleanup_errors=True) as folder,
        progress.at_work(progress.Judges("counting for the model", len(cases))) as judges,
        threads(max(1, min(len(shares), cores()))) as pool,
    ):

        def of_share(share: range) -> tuple[CallCounts | NoTrace, ...]:
            labels = [cases[number] for number in share]
            told = partial(judges.read, share.start)
            return counted(labels, spares, folder=Path(folder), unsteered=unsteered, told=told)

        found = {
            number: one
            for share, ones in zip(shares, pool.map(of_share, shares), strict=True)
            for number, one in zip(share, ones, strict=True)
        }
    return tuple(found[number] for number in range(len(cases)))


def _size(counts: CallCounts | NoTrace) -> float:
    """How much there is to execute of a call; most of one without counts."""
    if isinstance(counts, NoTrace):
        return math.inf
    launches = [event for event in counts.events if isinstance(event, Launch)]
    size: float = sum(
        each.count * sum(each.instructions.model_dump(exclude={"active_share"}).values()) for each in launches
    )
    return size


def _traced(
    device: Observing,
    judge: Path,
    worker: Path,
    cases: Sequence[str],
    spares: Spares,
    *,
    wanted: Gpu,
    seed: int,
    limit_s: float,
    folder: Path | None = None,
    unsteered: set[str] | None = None,
    told: Callable[[Path, int], None] = lambda report, done: None,
) -> tuple[CallCounts | NoTrace, ...]:
    """`trace` that spares itself these, unless something shows that they are needed.

    Units of work that are needed at one case may be left out at others: there may be too few of them. It is
    counted anew alone. Cases that make a launch which nothing steers are added to `unsteered`. `told` is which report
    the judge writes from now on, and how many cases are done by then."""
    found: list[CallCounts | NoTrace] = []
    counted = partial(
        _traced, device, judge, worker, wanted=wanted, seed=seed, limit_s=limit_s, folder=folder, unsteered=unsteered
    )
    while len(found) < len(cases):
        left = cases[len(found) :]
        request = JudgeRequest(
            judge=(str(judge),),
            candidate=(str(worker), "--no-inputs" if spares.inputs else "--inputs-only"),
            cases="none",
            labels=tuple(left),
            seed=seed,
            call_limit_s=limit_s,
            launches=True,
            others=("--told",) if spares.inputs else (),  # inputs are not made: nobody looks at them
        )
        with tempfile.TemporaryDirectory(prefix="cudamaster-", dir=folder) as own:
            report = Path(own) / "report.jsonl"
            told(report, len(found))

            def run(
                notes: BinaryIO, request: JudgeRequest = request, report: Path = report, many: int = len(left)
            ) -> Ran:
                return device.run_observed(request, report, limit_s * many, notes)

            of_cases = recorded(run, worker, left, wanted, seed, spares, unsteered)
            skipped = _left_out(report)
        results = iter(of_cases)
        stopped = False
        for number in range(len(left)):
            one = NoTrace(skipped[number]) if number in skipped else next(results)
            again = isinstance(one, NoTrace) and one.reason == AGAIN
            if stopped or (again and (number > 0 or spares.results)):
                if again and number == 0:
                    spares = replace(spares, inputs=False, results=spares.inputs)
                break
            stopped = isinstance(one, NoTrace) and not one.ended and number not in skipped
            if isinstance(one, NoTrace) and one.reason == WHOLE and spares.units:
                told(report, len(found))
                (one,) = counted([left[number]], replace(spares, units=one.units))
            found.append(one)
        told(report, len(found))
    return tuple(found)


def _alike(one: CallCounts | NoTrace, other: CallCounts | NoTrace) -> bool:
    """Whether two counts of a call differ by no more than the order in which blocks run makes them differ."""
    if isinstance(one, NoTrace) or isinstance(other, NoTrace):
        return one == other
    here, there = list(_figures(one.model_dump())), list(_figures(other.model_dump()))
    return len(here) == len(there) and all(
        math.isclose(this, that, rel_tol=_ALIKE, abs_tol=2) for this, that in zip(here, there, strict=True)
    )


def _figures(value: object) -> Iterator[float]:
    """The numbers in a record, but for those of buffers, which are numbered as they are met."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in ("buffer", "bytes", "note"):
                yield from _figures(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _figures(part)
    elif isinstance(value, int | float):
        yield value


def _left_out(report: Path) -> dict[int, str]:
    """Why the judge did not run cases, by their numbers."""
    lines = report.read_text(encoding="utf-8").splitlines() if report.is_file() else []
    skips = [line for text in lines if (line := json.loads(text))["event"] == "skip"]
    return {line["index"]: f"the case {line['reason']}" for line in skips}


def recorded(
    run: Callable[[BinaryIO], Ran],
    worker: Path,
    cases: Sequence[str],
    wanted: Gpu,
    seed: int = 0,
    spares: Spares = Spares(steering=True),
    unsteered: set[str] | None = None,
) -> tuple[CallCounts | NoTrace, ...]:
    """Counts of the calls that `run` has recorded, one for each of the cases; it gives its notes to the executable.

    By the seed a few blocks beside the sample are drawn. Cases that make a launch which nothing steers are added to
    `unsteered`.
    """
    if not cases:
        return ()
    code = _code_of(worker)
    assembled = worker.with_name("candidate.ptxas")
    usage = ptxas.parse(assembled.read_text(encoding="utf-8")) if assembled.is_file() else ()
    with tempfile.TemporaryFile() as notes:
        notes.write((_multiprocessor(wanted, seed) + _table(code, usage, spares)).encode())
        notes.flush()
        after = notes.tell()
        ran = run(notes)
        notes.seek(after)
        written = list(calls(notes.read().decode(errors="replace")))
    why = _why_not(ran.stderr, expired=ran.expired)
    found: list[CallCounts | NoTrace] = []
    for number, label in enumerate(cases):
        call = written[number] if number < len(written) else None
        launches = [line for line in (call.lines if call else ()) if isinstance(line, LaunchLine)]
        short = [line for line in launches if not units.stands_for_all(line)]
        if unsteered is not None and any(line.unsteered for line in launches):
            unsteered.add(label)
        if call is None or call.reason is not None:
            anew = call is not None and call.reason in (AGAIN, WHOLE)
            reason = call and call.reason
            found.append(NoTrace((reason if anew else why) or reason or "the traced call failed"))
        elif short:
            found.append(NoTrace(WHOLE, min(map(units.closer, short)), ended=True))
        elif (uneven := _uneven(call.lines)) is not None:
            found.append(NoTrace(uneven))
        else:
            found.append(counts_of(call.lines, label, code, usage, wanted))
    return tuple(found)


def _uneven(lines: Sequence[LaunchLine | EventLine]) -> str | None:
    """Why the sample cannot stand for a launch: most of the work lies in blocks that are not in it. (A kernel may know
    where samples lie.)"""
    for line in lines:
        if isinstance(line, LaunchLine):
            *accesses, blocks = line.accesses
            for own, others in (accesses, line.threads_instructions):
                if others * line.traced > counting.shipped().uneven_times * own * blocks:
                    return f"blocks of {line.kernel} that are not in the sample do far more than those in it"
    return None


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


def prepare(worker: Path) -> None:
    """Read from a traced worker what counting needs of it: up to 4 s for the largest kernels, once."""
    if not _is_read(worker):
        _code_of(worker)


def _code_of(worker: Path) -> Code:
    """What a traced worker consists of, read from it once."""
    kept = _kept(worker)
    if _is_read(worker):
        order, split, alone, unanswered, ones, unsteered, named, *others = json.loads(kept.read_text(encoding="utf-8"))
        of_places, origins, functions, chains, loops = (
            {int(place): found for place, found in each.items()} for each in others
        )
        return Code(
            of_places, order, origins, functions, chains, loops, split, alone, unanswered, ones, unsteered, named
        )
    code = code_of(worker)
    lists = (code.order, code.split, code.alone, code.unanswered, code.ones, code.unsteered, code.named)
    kinds = (*lists, code.blocks, code.origins, code.functions, code.chains, code.loops)
    write_text(kept, json.dumps(kinds))
    return code


def _kept(worker: Path) -> Path:
    """Where what was read from a worker is kept."""
    return worker.with_name(f"blocks-{VERSION}.json")


def _is_read(worker: Path) -> bool:
    kept = _kept(worker)
    return kept.is_file() and kept.stat().st_mtime_ns >= worker.stat().st_mtime_ns


def _seems_unsteered(worker: Path) -> bool:
    """Whether it seems that nothing in memory steers what some launch does."""
    code = _code_of(worker)
    return any(place in code.unsteered for place, name in code.functions.items() if steering.launches(name))


def _multiprocessor(wanted: Gpu, seed: int) -> str:
    """What the observer reads first: what an SM has, by which it gives a block its share of L1, its clock, and the seed
    of what it draws. Then the figures of counting that it goes by."""
    limits = wanted.limits
    parts = (limits.sms, int(wanted.figures.l1_bytes), limits.shared_bytes, limits.reserved_shared_bytes)
    of_sm = f"{' '.join(map(str, parts))} {limits.warps} {limits.blocks} {int(wanted.figures.clock_mhz)} {seed}"
    return f"{of_sm}\n{counting.shipped().rules()}\n"


def _table(code: Code, usage: Sequence[ptxas.Usage], spares: Spares) -> str:
    """What the observer reads then: a line for each place behind a call, with the instructions of its block."""
    lines = []
    for number, place in enumerate(code.order, 1):
        weight = max(0, math.ceil(sum(code.blocks.get(place, {}).values())))
        lines.append(f"{place:x} {weight} {number}\n")
    numbers = {place: number for number, place in enumerate(code.order, 1)}
    for place, origins in code.origins.items():
        if place in numbers:
            lines += [f"< {numbers[place]} {numbers[origin]}\n" for origin in origins if origin in numbers]
    lines += [f"@ {numbers[place]} {numbers[first]}\n" for place, first in code.loops.items()]
    lines += [f"! {numbers[place]}\n" for place in code.split if place in numbers]
    lines += [f"~ {numbers[place]}\n" for place in code.alone if place in numbers]
    lines += [f"+ {numbers[place]}\n" for place in code.ones if place in numbers]
    lines += [f"q {place:x}\n" for place in code.unanswered]
    lines += [f"w {place:x}\n" for place, kinds in code.blocks.items() if not _IDLE.issuperset(kinds)]
    lines += [f"u {place:x} {int(place in code.named)}\n" for place in code.unsteered if spares.steering]
    lines += ["n\n"] if spares.results else []
    lines += ["i\n"] if spares.inputs else []
    lines += [f"s {spares.units}\n"] if spares.units else []
    registers = {found.symbol: found.registers for found in usage}
    for place, symbol in code.functions.items():
        if many := registers.get(symbol):
            lines.append(f"r {place:x} {many}\n")
    return "".join(lines) + "\n"
