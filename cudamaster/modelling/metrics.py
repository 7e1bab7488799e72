"""The launches of a modelled call as profiles of kernels, under Nsight Compute's names: the same filter reads them.

A throughput is the time that a unit needs over the time of the launch. What the model has no figure for is absent, such
as stalls by reason and what the cycles of single warps would show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cudamaster.core.values import KernelProfile
from cudamaster.devices.kernel_names import plain_name
from cudamaster.modelling import launch_time
from cudamaster.modelling.counts import Launch
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import LaunchTime, Part

# The units that Nsight Compute counts to the SM, and those that it counts to memory.
_SM = (Part.ISSUE, Part.ARITHMETIC, Part.SPECIAL, Part.CONVERSION, Part.MATRIX)
_CACHES = (Part.L1, Part.L2, Part.DRAM, Part.ATOMICS)


def kernels(pairs: Sequence[tuple[Launch, LaunchTime]], gpu: Gpu) -> tuple[KernelProfile, ...]:
    """The kernels of a call from its launches and their times, the one that takes longest first."""
    of_kernel: dict[str, list[tuple[Launch, LaunchTime]]] = {}
    for launch, time in pairs:
        of_kernel.setdefault(plain_name(launch.kernel), []).append((launch, time))
    found = [_kernel(name, launches, gpu) for name, launches in of_kernel.items()]
    return tuple(sorted(found, key=lambda kernel: -kernel.duration_us))


def _kernel(name: str, pairs: Sequence[tuple[Launch, LaunchTime]], gpu: Gpu) -> KernelProfile:
    """A kernel over all its launches; metrics are their means by time, and the shape is that of the longest."""
    total_us = sum(time.device_us * time.count for _, time in pairs)
    shape = _shape(*max(pairs, key=lambda pair: pair[1].device_us))
    sums: dict[str, float] = {}
    for launch, time in pairs:
        for metric, value in metrics(launch, time, gpu).items():
            sums[metric] = sums.get(metric, 0.0) + value * time.device_us * time.count
    return KernelProfile(
        kernel=name,
        launches=sum(time.count for _, time in pairs),
        duration_us=total_us,
        metrics={metric: value / total_us for metric, value in sums.items()} | shape if total_us > 0 else {},
    )


def _shape(launch: Launch, time: LaunchTime) -> dict[str, float]:
    """How a launch lies on the GPU, as far as its counts say; what a compiler did not report is absent."""
    found = {
        "launch__grid_size": float(math.prod(launch.grid)),
        "launch__block_size": float(math.prod(launch.block)),
        "launch__shared_mem_per_block_dynamic": float(launch.dynamic_shared_bytes),
    }
    if launch.static_shared_bytes is not None:
        found["launch__shared_mem_per_block_static"] = float(launch.static_shared_bytes)
    if launch.registers is not None:
        found["launch__registers_per_thread"] = float(launch.registers)
    if not time.assumed:
        found["sm__maximum_warps_per_active_cycle_pct"] = 100.0 * time.occupancy.share
        if time.occupancy.waves is not None:
            found["launch__waves_per_multiprocessor"] = time.occupancy.waves
    return found


def _requests(launch: Launch) -> float:
    """Instructions of warps that go to global and shared memory, and shuffles, which go the same way."""
    shared = launch.shared
    of_global = sum(each.load_requests + each.store_requests + each.atomic_requests for each in launch.traffic)
    of_shared = shared.load_requests + shared.store_requests + shared.atomic_requests
    return of_global + of_shared + launch.instructions.shuffle


def _wavefronts(launch: Launch) -> float:
    """What L1 and shared memory serve, one a cycle of an SM: Nsight Compute's throughput of L1 counts these.

    The time of a launch goes by lines too, which cost more than their data where they are scattered.
    """
    of_global = sum(each.wavefronts for each in launch.traffic)
    return of_global + launch.shared.wavefronts + launch.instructions.shuffle


def metrics(launch: Launch, time: LaunchTime, gpu: Gpu) -> Mapping[str, float]:
    """What Nsight Compute would say of one launch; percentages are 0 to 100, of an SM's peak over the launch's time."""
    figures, parts = gpu.figures, time.parts_us
    elapsed_us = time.device_us + figures.empty_device_us / 2  # a launch of nothing takes its time, too
    sms = min(figures.sms, time.blocks)
    # Parts are those of the busiest SM; a grid of fewer blocks than SMs leaves the others idle.
    even = time.blocks / (figures.sms * -(-time.blocks // figures.sms))

    def share(us: float) -> float:
        return min(100.0, 100.0 * us / elapsed_us)

    # One instruction to memory a cycle is what an SM hands to its L1, and counts among its pipes.
    handed_us = gpu.microseconds(_requests(launch)) / figures.sms / even
    busiest = max(handed_us, *(parts[part] for part in _SM))
    l1_us = gpu.microseconds(_wavefronts(launch)) / figures.sms / even
    # Atomics on one address wait for each other, and leave L2 free meanwhile.
    atomics_us = gpu.microseconds(launch_time.sectors_of_atomics(launch) / figures.atomic_sectors_per_clock)
    caches = {part: parts[part] for part in _CACHES} | {Part.L1: l1_us * even, Part.ATOMICS: atomics_us}
    cycles = gpu.cycles(elapsed_us)
    resident = min(time.occupancy.blocks, time.blocks / sms) * time.warps_of_block
    loaded = sum(each.load_sectors for each in launch.traffic)
    missed = time.moved.missed_sectors
    at_l2 = time.moved.l2_read + time.moved.l2_written
    found = {
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": share(busiest * even),
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": share(max(caches.values())),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": share(parts[Part.DRAM]),
        "gpu__time_duration.sum": 1000.0 * time.device_us,
        "sm__inst_executed.avg.per_cycle_active": time.instructions / sms / cycles,
        "sm__inst_executed.avg.per_cycle_elapsed": time.instructions / figures.sms / cycles,
        "sm__inst_issued.avg.pct_of_peak_sustained_active": share(time.instructions / sms / figures.schedulers
                                                                  / figures.clock_mhz),
        "sm__instruction_throughput.avg.pct_of_peak_sustained_active": share(busiest),
        "l1tex__throughput.avg.pct_of_peak_sustained_active": share(l1_us),
        "lts__throughput.avg.pct_of_peak_sustained_elapsed": share(max(caches[Part.L2], caches[Part.ATOMICS])),
        "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed": share(max(caches.values())),
        "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed": share(
            max(caches[Part.L2], caches[Part.DRAM])
        ),
        "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed": share(caches[Part.L1]),
        "sm__warps_active.avg.per_cycle_active": resident,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100.0 * resident / gpu.limits.warps,
    }  # fmt: skip
    if loaded > 0:
        found["l1tex__t_sector_hit_rate.pct"] = 100.0 * max(0.0, 1.0 - missed / loaded)
    if at_l2 > 0:
        found["lts__t_sector_hit_rate.pct"] = 100.0 * max(0.0, 1.0 - time.moved.dram_read / at_l2)
    if time.instructions > 0:
        # Warps that are there over instructions per cycle: Little's law.
        found["smsp__average_warps_active_per_inst_executed.ratio"] = resident * sms * cycles / time.instructions
    return found
