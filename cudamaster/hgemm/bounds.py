"""What a GPU allows a product at best, and which of its limits a lost shape is near: launch, memory or tensor cores.

The limits are those of profiles/gpus/, for GPUs that have a file there; figures of other sources than a measurement are
named with their source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudamaster.families.config import Config
from cudamaster.hgemm.statistics import Contest
from cudamaster.hgemm.table import AUTHORITIES, OURS, Entry, Mode, Ratio, Times
from cudamaster.modelling import gpu
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

_OTHER_BOARDS = {"PCIe", "NVL"}  # with slower clocks and memory than those in profiles/gpus/ of the same chip
_NEEDED = {"tensor": "warpgroup_operations", "memory": "read_bytes_per_s"}


@dataclass(frozen=True)
class Limits:
    """Tensor cores in operations per second (fp32 sums) and memory in bytes per second; `l2_bytes` of cache.

    `about` says where they come from.
    """

    tensor_per_s: float
    memory_bytes_per_s: float
    l2_bytes: float
    about: str

    def tensor_us(self, shape: Shape) -> float:
        """The least time of the operations."""
        return shape.operations / self.tensor_per_s * 1e6

    def memory_us(self, shape: Shape) -> float:
        """The least time in which A and B come from memory and C goes there."""
        return shape.bytes / self.memory_bytes_per_s * 1e6

    def cached(self, shape: Shape) -> bool:
        """Whether A, B and C fit into the L2 cache, so that a warm call may take less than `memory_us`."""
        return shape.bytes <= self.l2_bytes


@dataclass(frozen=True)
class Loss:
    """A shape that ours in one layout loses, by the geometric mean, to the `authority` that wins by most.

    `theirs` is that authority's faster layout. `tensor` and `memory` are shares of the GPU's limits, ours and the
    library's, None where the limits are not known; `bound` is as the function of that name says.
    """

    entry: Entry
    mode: Mode
    layout: Layout
    authority: str
    theirs: Layout
    ratio: Ratio
    ours: Times
    library: Times
    config: Config | None
    tensor: tuple[float, float] | None
    memory: tuple[float, float] | None
    bound: str

    @property
    def gap_us(self) -> float:
        """How much longer ours takes, by the medians."""
        return self.ours.median_us - self.library.median_us

    @property
    def certain(self) -> bool:
        """Whether ours is certainly slower."""
        return self.ratio.verdict < 0


def limits_of(name: str) -> Limits | None:
    """The limits of a GPU by the name that its driver gives; None where it has no file with figures for wgmma."""
    wanted = set(name.split())
    if wanted & _OTHER_BOARDS:
        return None
    for key in gpu.known():
        found = gpu.load(key)
        figures = found.figures
        # A driver adds the memory's size and the word HBM3 to the name of a board.
        if set(found.name.split()) - {"SXM"} <= wanted and figures.warpgroup_operations is not None:
            sources = {part: found.sources[figure] for part, figure in _NEEDED.items()}
            tensor = figures.warpgroup_operations * figures.sms * figures.clock_mhz * 1e6
            about = (
                f"{tensor / 1e12:.0f} TFLOP/s of the tensor cores ({sources['tensor']}), "
                f"{figures.read_bytes_per_s / 1e12:.2f} TB/s of memory ({sources['memory']})"
            )
            return Limits(tensor, figures.read_bytes_per_s, figures.l2_bytes, about)
    return None


def shortest_us(entries: Sequence[Entry], mode: Mode) -> float:
    """The shortest median of any call: a launch takes about as long."""
    return min(
        (times.median_us for entry in entries for times in entry.times.get(mode, {}).values()), default=float("nan")
    )


def bound(shape: Shape, limits: Limits | None, launch_us: float) -> str:
    """Which least time of a product is the longest: "launch", "memory" or "tensor"; "unknown" without limits.

    That of a launch is given: the shortest median of any call in the table.
    """
    if limits is None:
        return "unknown"
    # What lies in the cache does not wait for memory.
    memory = 0.0 if limits.cached(shape) else limits.memory_us(shape)
    least = {"launch": launch_us, "memory": memory, "tensor": limits.tensor_us(shape)}
    return max(least, key=lambda name: least[name])


def losses(
    entries: Sequence[Entry], mode: Mode, accumulate: Accumulate, layout: Layout, limits: Limits | None
) -> list[Loss]:
    """The shapes that ours loses to any authority, the worst first."""
    launch_us = shortest_us(entries, mode)
    found = list(_losses(entries, mode, accumulate, layout, limits, launch_us))
    return sorted(found, key=lambda loss: (not loss.certain, loss.ratio.geometric))


def _losses(
    entries: Sequence[Entry],
    mode: Mode,
    accumulate: Accumulate,
    layout: Layout,
    limits: Limits | None,
    launch_us: float,
) -> Iterator[Loss]:
    lowest: dict[Shape, tuple[Entry, str, Ratio]] = {}
    for authority in AUTHORITIES:
        for entry, ratio in Contest(mode, accumulate, layout, authority).ratios(entries):
            before = lowest.get(entry.shape)
            if before is None or ratio.geometric < before[2].geometric:
                lowest[entry.shape] = (entry, authority, ratio)
    for entry, authority, ratio in lowest.values():
        theirs = entry.faster(mode, authority)
        ours = entry.time(mode, OURS, layout)
        library = None if theirs is None else entry.time(mode, authority, theirs)
        if ratio.geometric >= 1 or theirs is None or ours is None or library is None:
            continue
        tensor, memory = None, None
        if limits is not None:
            least = limits.tensor_us(entry.shape), limits.memory_us(entry.shape)
            tensor = (least[0] / ours.median_us, least[0] / library.median_us)
            memory = (least[1] / ours.median_us, least[1] / library.median_us)
        yield Loss(
            entry, mode, layout, authority, theirs, ratio, ours, library, entry.chosen.get(layout), tensor, memory,
            bound(entry.shape, limits, launch_us),
        )  # fmt: skip
