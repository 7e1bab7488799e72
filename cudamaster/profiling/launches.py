"""What a call launches, and the occupancy of each launch, without hardware counters.

A candidate's worker makes one call at one case and prints its launches (bench/include/mskb/launches.h). Occupancy is
calculated as NVIDIA's own calculator does it for compute capability 7.0 and later, and compared with what the runtime
says. Launches do not show clusters, which can leave SMs unused, or named barriers, so these are left out.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Ran

_PREFIX = "launch "
# Registers are given to whole warps in units of this many, in each of the four partitions of an SM by itself.
_REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT, _SHARED_UNIT_BEFORE_8 = 128, 256

_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(gt=0)]
_Three = tuple[_Positive, _Positive, _Positive]


@dataclass(frozen=True)
class NoLaunches:
    """Why the launches of a call are not known, as a clause."""

    reason: str


@dataclass(frozen=True)
class SmLimits:
    """What one SM of a GPU with `sms` of them holds at most.

    Of every block's shared memory the driver takes `reserved_shared_bytes` for itself.
    """

    compute_capability: tuple[int, int]
    sms: int
    warp_size: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_shared_bytes: int

    @property
    def warps(self) -> int:
        """The most warps."""
        return self.threads // self.warp_size


@dataclass(frozen=True)
class Launch:
    """Launches of one kernel in one shape, `count` of them in a call. None where the runtime does not say.

    `symbol` is the kernel's mangled name. Registers and local memory are per thread, shared memory is per block,
    `active_blocks` is how many of them the runtime says an SM holds.
    """

    symbol: str | None
    count: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    registers: int | None = None
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    active_blocks: int | None = None
    limits: SmLimits | None = None

    @property
    def blocks(self) -> int:
        """Blocks of one launch."""
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


@dataclass(frozen=True)
class CallLaunches:
    """The launches of one call, ordered by each shape's first launch; `total` includes launches that are not listed."""

    launches: tuple[Launch, ...]
    total: int


class Limiter(StrEnum):
    """What of an SM is used up first."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    BLOCKS = "blocks"
    THREADS = "threads"


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a launch an SM holds at a time, were the grid large enough.

    `blocks` is the runtime's figure where there is one, `calculated_blocks` that of the arithmetic here, `limited_by`
    what allows no more by that arithmetic. `share` is active warps over the most warps of an SM, 0 to 1. `waves` is how
    many times the grid fills the GPU: below 1, SMs hold less than this, or nothing. None where no block fits.
    """

    blocks: int
    calculated_blocks: int
    share: float
    waves: float | None
    limited_by: tuple[Limiter, ...]

    @property
    def disagrees(self) -> bool:
        """Whether the runtime says something else than the arithmetic."""
        return self.blocks != self.calculated_blocks


def record(
    run: Callable[[JudgeRequest, Path, float], Ran],
    judge: JudgeRequest,
    worker: Path,
    *,
    case: str,
    limit_s: float = 120.0,
) -> CallLaunches | NoLaunches:
    """The launches of a call at one case; `judge` names the judge and the baseline's worker, `run` is the device's."""
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
        asked = replace(judge, candidate=(str(worker),), cases="none", labels=(case,), launches=True)
        ran = run(asked, Path(folder) / "report.jsonl", limit_s)
    if ran.expired:
        return NoLaunches(f"the call was stopped after {limit_s:g} s")
    if ran.exit_code != 0:
        return NoLaunches("the call whose launches were to be listed failed")
    return parse(ran.stderr)


class _Line(BaseModel):
    """What a worker prints of one kind of launch; sizes in bytes, limits of one SM."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    event: Literal["launch"]
    count: _Positive
    all_launches: _Positive
    grid: _Three
    block: _Three
    dynamic_shared_bytes: _Count
    symbol: str | None = None
    registers: _Count | None = None
    static_shared_bytes: _Count | None = None
    local_bytes: _Count | None = None
    active_blocks: _Count | None = None
    major: _Count | None = None
    minor: _Count | None = None
    sms: _Positive | None = None
    warp_size: _Positive | None = None
    threads_per_sm: _Positive | None = None
    blocks_per_sm: _Positive | None = None
    registers_per_sm: _Positive | None = None
    shared_bytes_per_sm: _Positive | None = None
    reserved_shared_bytes: _Count | None = None

    def limits(self) -> SmLimits | None:
        """None unless all of them are there."""
        figures = (
            self.sms,
            self.warp_size,
            self.threads_per_sm,
            self.blocks_per_sm,
            self.registers_per_sm,
            self.shared_bytes_per_sm,
            self.reserved_shared_bytes,
        )
        known = [figure for figure in figures if figure is not None]
        if len(known) < len(figures) or self.major is None or self.minor is None:
            return None
        return SmLimits((self.major, self.minor), *known)


def parse(text: str) -> CallLaunches | NoLaunches:
    """The launches in the output of a judge and its workers. Other lines are ignored."""
    lines = []
    for line in text.splitlines():
        if line.startswith(_PREFIX):
            try:
                lines.append(_Line.model_validate_json(line.removeprefix(_PREFIX)))
            except ValidationError:
                continue  # a kernel may print, too
    if not lines:
        return NoLaunches("the call launched no kernel through the runtime")
    launches = tuple(
        Launch(
            symbol=line.symbol,
            count=line.count,
            grid=line.grid,
            block=line.block,
            dynamic_shared_bytes=line.dynamic_shared_bytes,
            registers=line.registers,
            static_shared_bytes=line.static_shared_bytes,
            local_bytes=line.local_bytes,
            active_blocks=line.active_blocks,
            limits=line.limits(),
        )
        for line in lines
    )
    return CallLaunches(launches, lines[0].all_launches)


def occupancy(launch: Launch) -> Occupancy | None:
    """Theoretical occupancy of a launch; None where its resources or the SM's limits are not known.

    Blocks that fit, by what they need:

        threads        warps of an SM / warps of a block, which are whole
        blocks         the limit itself
        registers      a warp takes registers x 32, rounded up to 256; each of four partitions has a quarter of the
                       registers and holds whole warps; those of all four / warps of a block
        shared memory  the SM's / (static + dynamic + reserved), rounded up to 128 bytes (256 before 8.0)

    The smallest counts, and all that are as small limit it.
    """
    limits = launch.limits
    if limits is None or launch.registers is None or launch.static_shared_bytes is None:
        return None
    warps = math.ceil(launch.threads / limits.warp_size)
    fits = {Limiter.THREADS: limits.warps // warps, Limiter.BLOCKS: limits.blocks}
    if launch.registers > 0:
        per_warp = _rounded_up(launch.registers * limits.warp_size, _REGISTER_UNIT)
        fits[Limiter.REGISTERS] = limits.registers // _PARTITIONS // per_warp * _PARTITIONS // warps
    unit = _SHARED_UNIT if limits.compute_capability >= (8, 0) else _SHARED_UNIT_BEFORE_8
    shared = launch.static_shared_bytes + launch.dynamic_shared_bytes + limits.reserved_shared_bytes
    if shared > 0:
        fits[Limiter.SHARED_MEMORY] = limits.shared_bytes // _rounded_up(shared, unit)
    calculated = min(fits.values())
    blocks = calculated if launch.active_blocks is None else launch.active_blocks
    return Occupancy(
        blocks=blocks,
        calculated_blocks=calculated,
        share=blocks * warps / limits.warps,
        waves=launch.blocks / (blocks * limits.sms) if blocks > 0 else None,
        limited_by=tuple(limiter for limiter in Limiter if fits.get(limiter) == calculated),
    )


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
