"""What one call of a wrapper does, as the CPU device's traced build counts it: an entry for each launch and each call
of the runtime, in their order.

Counts are those of a whole launch: the traced blocks are a sample, and what they did is scaled by blocks / traced.
A *request* is one memory instruction of one warp, with the lanes that take part in it; a *sector* is 32 bytes, aligned.
Left out: what a time follows from these (that is the model's), and instruction fetch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[float, Field(ge=0)]
_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(gt=0)]
_Three = tuple[_Positive, _Positive, _Positive]


class _Counted(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Footprint(_Counted):
    """Distinct sectors that `blocks` neighbouring blocks touch together, mean over the sampled groups of so many."""

    blocks: _Positive
    read: _Count
    written: _Count


class Traffic(_Counted):
    """What a launch asks of one allocation in global memory; `bytes` is its size.

    `missed_sectors` are those of the loads that a block's share of an L1 cache does not hold already, and that no
    block before it on its SM left there.
    `lines` are those of 128 bytes that requests of all kinds touch, each request by itself; `missed_lines` those of
    loads of which a sector is missed, `store_lines` those of stores. L1 serves requests in `wavefronts`, as many as the
    busiest of its banks has words, and looks up their lines in `lookups`, as many as the busiest of four banks of tags
    has lines. Stores and atomics leave the SM in `sends`, a sector or the mask of a line each.
    `bulk_...` are sectors that the copy engine moves past L1: of copies to several blocks of a cluster each once.
    """

    buffer: _Whole
    bytes: _Positive
    load_requests: _Count = 0
    load_sectors: _Count = 0
    missed_sectors: _Count = 0
    store_requests: _Count = 0
    store_sectors: _Count = 0
    atomic_requests: _Count = 0
    atomic_sectors: _Count = 0
    lines: _Count = 0
    missed_lines: _Count = 0
    store_lines: _Count = 0
    wavefronts: _Count = 0
    lookups: _Count = 0
    sends: _Count = 0
    bulk_read_sectors: _Count = 0
    bulk_written_sectors: _Count = 0
    bulk_reduced_sectors: _Count = 0
    footprints: tuple[Footprint, ...] = ()


# What all banks of shared memory give or take at once.
_WAVEFRONT_BYTES = 128


class Shared(_Counted):
    """Shared memory: requests, and the wavefronts that they take: one each without bank conflicts.

    `remote_...` are those of the requests that go to another block of the cluster, and the bytes that their lanes take
    or bring. Beside all these, without a request: `bulk_bytes` that the copy engine writes and reads there, and
    `factor_bytes` that products of warpgroups read.
    """

    load_requests: _Count = 0
    load_wavefronts: _Count = 0
    store_requests: _Count = 0
    store_wavefronts: _Count = 0
    atomic_requests: _Count = 0
    atomic_wavefronts: _Count = 0
    remote_load_requests: _Count = 0
    remote_store_requests: _Count = 0
    remote_atomic_requests: _Count = 0
    remote_bytes: _Count = 0
    bulk_bytes: _Count = 0
    factor_bytes: _Count = 0

    @property
    def wavefronts(self) -> float:
        """Those of all requests, and of the bytes beside them."""
        beside = (self.bulk_bytes + self.factor_bytes) / _WAVEFRONT_BYTES
        return self.load_wavefronts + self.store_wavefronts + self.atomic_wavefronts + beside


class Products(_Counted):
    """Operations of products of warpgroups (wgmma) by the type of their factors, where `f16` is bf16 too, `f8` both
    kinds of 8 bits, and `integer` of 8 bits. A multiplication and an addition are two."""

    f16: _Count = 0
    tf32: _Count = 0
    f8: _Count = 0
    integer: _Count = 0

    @property
    def as_f16(self) -> float:
        """How many operations of 16 bits take as long: factors of an instruction have 32 bytes of k in all types."""
        return self.f16 + 2 * self.tf32 + (self.f8 + self.integer) / 2


class Instructions(_Counted):
    """Instructions that warps issue, by kind; a lane that is idle in one does not make it cheaper.

    Kinds are those of the host's code, which is near a GPU's: no addresses in registers are spared, and a multiply and
    the add behind it are one `fma`. `conversion` is bf16 or fp16 to float or back; `special` one call of a function of
    the special function unit (exp, log, sin, rsqrt, division); `slow` one call of a function that is a subroutine on a
    GPU too; `matrix` a tensor instruction of 16x16x16.
    """

    fma: _Count = 0
    fp32: _Count = 0
    fp64: _Count = 0
    integer: _Count = 0
    conversion: _Count = 0
    special: _Count = 0
    slow: _Count = 0
    matrix: _Count = 0
    control: _Count = 0
    shuffle: _Count = 0
    other: _Count = 0
    # Lanes that took part, over 32 x the instructions: 1 without divergence.
    active_share: Annotated[float, Field(ge=0, le=1)] = 1.0


class Spread(_Counted):
    """A figure of single warps or blocks: its mean, and the largest that was seen."""

    mean: _Count
    largest: _Count


class Way(_Counted):
    """The way through a block, mean of blocks and the longest: from one barrier of all its threads to the next, the
    others wait for the warp that has most to do. Waits are those of `waits_of_warp` and `remote_waits_of_warp`."""

    instructions: Spread
    waits: Spread
    cold_waits: Spread
    far_waits: Spread
    remote_waits: Spread = Spread(mean=0, largest=0)


class Contention(_Counted):
    """Atomics on one address: how many a launch sends to the address that gets most, and all in the launch."""

    hottest: _Count = 0
    all: _Count = 0
    # Lanes of one warp that meet on one address in one request, mean.
    same_address: _Count = 1


class Launch(_Counted):
    """One kernel launch, or `count` of them in a row that do the same.

    Registers and static shared memory are None where no compiler for the GPU was asked. `barriers` are per warp: all
    waits for other threads, also at mbarriers and for other blocks of the `cluster`. `instructions_of_warp` shows how
    uneven the work is.
    """

    event: Literal["launch"] = "launch"
    kernel: str
    symbol: str = ""  # as the compiler names it
    count: _Positive = 1
    grid: _Three
    block: _Three
    cluster: _Three = (1, 1, 1)  # blocks
    dynamic_shared_bytes: _Whole
    static_shared_bytes: _Whole | None = None
    registers: _Whole | None = None
    # Bytes that a thread stores to and loads from local memory because it has too few registers, each instruction once.
    spill_store_bytes: _Whole = 0
    spill_load_bytes: _Whole = 0
    cooperative: bool = False
    early: bool = False  # may begin while the launch before it ends (programmatic stream serialization)
    instructions: Instructions
    # Cycles of all warps for instructions of which each needs what the one before brings; 0 in counts from before.
    chained_cycles: _Count = 0
    traffic: tuple[Traffic, ...] = ()
    shared: Shared = Shared()
    products: Products = Products()
    contention: Contention = Contention()
    barriers: Spread
    cluster_barriers: Spread = Spread(mean=0, largest=0)  # those of them that are the cluster's
    grid_barriers: Spread = Spread(mean=0, largest=0)  # and the whole grid's
    # Arrivals and waits of a warp at mbarriers with the scope of the cluster: each is a fence of all memory.
    cluster_fences: Spread = Spread(mean=0, largest=0)
    fences: Spread = Spread(mean=0, largest=0)  # of a warp, for all of the GPU: __threadfence
    tickets: Spread = Spread(mean=0, largest=0)  # of a warp: atomics right behind one of these
    # What a warp sleeps by itself (__nanosleep), in nanoseconds; waiting for another thread counts once.
    slept_ns_of_warp: Spread = Spread(mean=0, largest=0)
    # Global loads of a warp that come one after another because each waits for the one before, and those of them that
    # ask for something which the warp has not had lately. Asynchronous copies that it waits for are such loads.
    waits_of_warp: Spread
    cold_waits_of_warp: Spread
    # Those of them for pairs of sectors that are new to the block: L2 has the other half of what DRAM brought.
    far_waits_of_warp: Spread
    # The same of loads from another block's shared memory, and of waits at mbarriers for what other blocks store.
    remote_waits_of_warp: Spread = Spread(mean=0, largest=0)
    instructions_of_warp: Spread
    way_of_block: Way | None = None  # None in counts from before it was counted


class Other(_Counted):
    """Another call of the runtime, of `bytes` where it moves or allocates some; a copy with `host` on one side crosses
    the link to it. Or what the host executes itself between two calls, in `instructions`."""

    event: Literal["alloc", "free", "memset", "copy", "synchronise", "host"]
    count: _Positive = 1
    bytes: _Whole = 0
    host: bool = False
    instructions: _Whole = 0


class CallCounts(_Counted):
    """A call at one case. `note` says what was cut short, empty where nothing was."""

    version: _Positive
    case: str
    events: tuple[Annotated[Launch | Other, Field(discriminator="event")], ...]
    note: str = ""
