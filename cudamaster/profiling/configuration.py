"""How a kernel was launched and what that leaves room for, from Nsight Compute's launch metrics.

Spills are ptxas's: they belong to the code, whatever is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.profiling.ptxas import Usage

_LIMITS = {
    "blocks": "launch__occupancy_limit_blocks",
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
}
_BLOCKS, _THREADS = "launch__grid_size", "launch__block_size"
_REGISTERS = "launch__registers_per_thread"
_STATIC, _DYNAMIC = "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"
_WAVES = "launch__waves_per_multiprocessor"
_POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
_ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"

# What has to be asked of Nsight Compute for a Configuration.
METRICS = (*_LIMITS.values(), _BLOCKS, _THREADS, _REGISTERS, _STATIC, _DYNAMIC, _WAVES, _POSSIBLE, _ACHIEVED)


@dataclass(frozen=True)
class Configuration:
    """One kernel's longest launch. What this chip or ncu does not report is None.

    Occupancies are in percent of the warps that an SM holds: what the launch leaves room for, and what was resident on
    average. `limited_by` names what lets no further block onto an SM. Spills are bytes that the code of a thread stores
    and loads.
    """

    blocks: int | None
    threads: int | None  # of a block
    registers: int | None  # of a thread
    static_shared_bytes: int | None  # of a block
    dynamic_shared_bytes: int | None
    waves: float | None  # of blocks that fill the GPU
    occupancy: float | None
    achieved_occupancy: float | None
    limited_by: tuple[str, ...]
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def configuration(metrics: Mapping[str, float], usage: Usage | None = None) -> Configuration:
    """The configuration in a kernel's metrics, by Nsight Compute's names; `usage` is from ptxas."""

    def whole(name: str) -> int | None:
        return round(metrics[name]) if name in metrics else None

    blocks = {what: metrics[name] for what, name in _LIMITS.items() if name in metrics}
    return Configuration(
        blocks=whole(_BLOCKS),
        threads=whole(_THREADS),
        registers=whole(_REGISTERS),
        static_shared_bytes=whole(_STATIC),
        dynamic_shared_bytes=whole(_DYNAMIC),
        waves=metrics.get(_WAVES),
        occupancy=metrics.get(_POSSIBLE),
        achieved_occupancy=metrics.get(_ACHIEVED),
        limited_by=tuple(what for what, count in blocks.items() if count == min(blocks.values())),
        spill_store_bytes=usage.spill_store_bytes if usage else None,
        spill_load_bytes=usage.spill_load_bytes if usage else None,
    )
