"""What the observer of a traced build writes of its calls, in lines of JSON (runtime/trace/recording.cpp)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class MarkLine(_Line):
    """Where a call begins, where it ends, that a launch in it failed, that it has to be made again, and that a block of
    it leaves out units of work."""

    event: Literal["call", "end", "failed", "again", "short"]


# Why a call did not finish: blocks that were left out proved to be needed. In a process of its own nothing is left out.
AGAIN = "blocks that were left out were needed"
# The same of units of work that a block left out: it has to do them all.
WHOLE = "units of work that were left out were needed"


class EventLine(_Line):
    """A call of the runtime, or what the host executes between two."""

    event: Literal["alloc", "free", "memset", "copy", "synchronise", "host"]
    bytes: int = 0
    host: bool = False
    instructions: int = 0


class TrafficLine(_Line):
    """What a launch's traced blocks ask of one allocation."""

    buffer: int
    bytes: int
    load: tuple[int, int, int, int]  # requests, sectors, missed sectors, and of these those that the first block read
    store: tuple[int, int]
    atomic: tuple[int, int]
    lines: int
    missed_lines: int = 0
    store_lines: int = 0
    wavefronts: int
    lookups: int = 0
    sends: int = 0
    bulk: tuple[int, int, int]  # sectors that the copy engine reads, writes and does operations on
    footprints: list[tuple[int, float, float]]


Sums = tuple[int, int, float]  # sum, count, largest


class LaunchLine(_Line):
    """A launch as the observer writes it: sums over the traced blocks."""

    event: Literal["launch"]
    kernel: str
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    cooperative: bool
    early: bool = False
    blocks: int
    traced: int
    left_out: bool
    unsteered: bool = False  # what it does hangs on nothing in memory
    events: int
    dropped: int
    # Of units of work that the first block took from a counter: how many until some were left out, and in all; how many
    # there are, at least and at most; and the block's events until then.
    units: tuple[int, int, int, int, int] | None = None
    # Of how many of them the block's events are known; of how much two of these that follow each other differ, the sum
    # of the squares, and the largest less both beside it; events of the last, of how many it is one.
    of_unit: tuple[int, float, float, int, int] = (0, 0.0, 0.0, 0, 1)
    # By so many units: far waits of warps and of the block's way, and sectors that were read and written, by buffer.
    earlier: tuple[int, int, int, dict[int, tuple[int, int]]] | None = None
    accesses: tuple[int, int, int]  # of the traced blocks, of others, and how many others were run
    threads_instructions: tuple[int, int] = (0, 0)  # of the same blocks
    executed: list[tuple[int, int, int]]  # place of the basic block, executions by warps and by threads
    traffic: list[TrafficLine]
    shared: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # requests, wavefronts of load, store, atomic
    remote: tuple[int, int, int, int]  # of these requests those to other blocks, by the same kinds, and their bytes
    bulk_bytes: int
    factor_bytes: int
    products: tuple[int, int, int, int]  # operations of f16, TF32, 8 bits, integers
    atomics: tuple[int, int, int, int, int]  # requests, lanes, addresses, the hottest of one group and of several
    barriers: Sums
    waits: Sums
    cold_waits: Sums
    far_waits: Sums
    remote_waits: Sums
    warp_instructions: Sums
    block_instructions: Sums
    cluster_fences: Sums
    cluster_barriers: Sums
    grid_barriers: Sums
    fences: Sums
    tickets: Sums
    slept_ns: Sums
    way_instructions: Sums
    way_waits: Sums
    way_cold_waits: Sums
    way_far_waits: Sums
    way_remote_waits: Sums


# What goes on being counted where a thread's record is cut off; and what does not, of which the largest is nevertheless
# that of a whole warp, or block.
WHOLE_SPREADS = ("barriers", "cluster_fences", "cluster_barriers", "grid_barriers", "fences", "tickets", "slept_ns")
CUT_SPREADS = (
    *("waits", "cold_waits", "far_waits", "remote_waits", "warp_instructions"),
    *("way_instructions", "way_waits", "way_cold_waits", "way_far_waits", "way_remote_waits"),
)
SPREADS = (*WHOLE_SPREADS, *CUT_SPREADS, "block_instructions")
_ANY = TypeAdapter(Annotated[LaunchLine | EventLine | MarkLine, Field(discriminator="event")])


@dataclass(frozen=True)
class Call:
    """Lines of a call; `reason` says why it did not finish, if so."""

    lines: tuple[LaunchLine | EventLine, ...]
    reason: str | None


def calls(text: str) -> Iterator[Call]:
    """The calls that the observer has written of, in their order."""
    lines: list[LaunchLine | EventLine] = []
    inside, short, reason = False, False, "the call did not come to its end"
    for line in text.splitlines():
        try:
            read = _ANY.validate_json(line)
        except ValidationError:
            reason = "a kernel wrote where only the observer may"
            continue
        if not isinstance(read, MarkLine):
            lines.append(read)
        elif read.event == "call":
            lines, inside, short, reason = [], True, False, "the call did not come to its end"
        elif read.event == "short":
            short, reason = True, WHOLE
        elif read.event in ("failed", "again"):
            reason = WHOLE if short else "a launch failed" if read.event == "failed" else AGAIN
            yield Call(tuple(lines), reason)
            inside = False
        elif inside:
            yield Call(tuple(lines), None)
            inside = False
    if inside:
        yield Call(tuple(lines), reason)
