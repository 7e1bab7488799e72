"""Islands with a MAP-Elites archive each: the best kernel of every kind is kept, and any may be the next parent.

MAP-Elites (Mouret and Clune 2015, arXiv:1504.04909) keeps the best solution of each cell of a grid of features and
draws parents evenly from the cells; several populations with migration are as old as parallel genetic algorithms. Both
together search programs with language models in FunSearch (Romera-Paredes et al., Nature 2024; islands) and AlphaEvolve
(2025), and kernels in KernelFoundry (arXiv:2603.12440).

    a cell is   what limits the kernel (class of its profile) x by what means it works (its text: `MEANS`)
    each round: the island whose turn it is draws a cell that is filled, evenly
                plan, write, build, check and time one step from the cell's kernel
                the new kernel, if right, fills its own cell of that island or replaces a slower one there
    every `migration_interval` rounds the best kernel of each island is copied to the next one, in a ring

What that leaves open is decided here:
- Every kernel that is right is profiled, because its class is half of its cell. Where there is no profile, the class is
  "not known" and cells differ by their means alone.
- Among equals the earlier kernel stays. A copy joins nothing.
- The Planner sees which other cells of the island are filled, how fast their kernels are and by which idea. Islands
  keep kernels apart and not the record: titles of plans for kernels of other islands are shown too.
- A kernel for which the Planner has no further idea is not drawn any more and stays in its cell. An island with no
  other kernel gives its turn to the next one.
- Only `Random.random` is used (see exemplars.py for why).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from cudamaster.core.errors import UsageError
from cudamaster.strategies import several
from cudamaster.strategies.cudamaster import ROLES, ask_coder
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.several import Kernel, Spent
from cudamaster.strategies.strategy import SearchSettings, Strategy, options_of

NAME = "mapelites"
# By what means a kernel works, the most special first; the first that its text shows, comments aside, is its own.
MEANS = (
    ("tensor cores", re.compile(r"\b(wgmma|wmma|mma_sync|mma\.sync)\b|tiled_mma|mma_atom", re.IGNORECASE)),
    ("asynchronous copies", re.compile(r"cp[._]async|memcpy_async|cuda::pipeline|__pipeline_", re.IGNORECASE)),
    ("shared memory", re.compile(r"__shared__")),
    ("warp primitives", re.compile(r"__shfl|__reduce_\w+_sync|__ballot_sync|tiled_partition|coalesced_threads")),
)
NO_MEANS = "registers alone"
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Options:
    """The number of islands, and after how many rounds the best kernels are copied to the next island."""

    islands: int = 2
    migration_interval: int = 4

    def __post_init__(self) -> None:
        for name in ("islands", "migration_interval"):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"{name} is {getattr(self, name)}, which makes no search of islands.", "Make it at least 1."
                )


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: the class of the profile, and the means."""

    limit: str
    means: str

    def __str__(self) -> str:
        """Both in words."""
        return f"{f'class {self.limit}' if self.limit == NOT_KNOWN else self.limit}, {self.means}"


class Archive:
    """The best kernel of each cell of one island, in the order in which the cells were filled."""

    def __init__(self) -> None:
        self.cells: dict[Cell, Kernel] = {}

    def add(self, cell: Cell, kernel: Kernel) -> None:
        """Put a kernel into its cell, unless one is there that is as fast."""
        if cell not in self.cells or kernel.score > self.cells[cell].score:
            self.cells[cell] = kernel

    @property
    def best(self) -> tuple[Cell, Kernel]:
        """The fastest kernel with its cell, among equals that of the cell that was filled first."""
        return max(self.cells.items(), key=lambda item: item[1].score)


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """One step in each round. The seed of the draws is unrelated to that of the inputs."""
    options, random = options_of(STRATEGY, settings.options), Random(settings.search_seed)
    running = several.Search(frame, settings)
    islands = [Archive() for _ in range(options.islands)]
    for island in islands:
        island.add(_cell(running, running.first), running.first)
    for number in range(1, settings.rounds + 1):
        frame.observer.round_started(number, settings.rounds)
        turn = (number - 1) % len(islands)
        draw = _Draw((*islands[turn:], *islands[:turn]), running, random)
        try:
            kernel = running.grow(number, draw.parent, draw.others)
        except Spent as spent:
            return str(spent)
        if kernel is not None:
            draw.island.add(_cell(running, kernel), kernel)
        if number % options.migration_interval == 0:
            migrate(islands)
    return None


class _Draw:
    """Draws a round's parent from the first island that has one. `island` is the one that it came from."""

    def __init__(self, islands: Sequence[Archive], running: several.Search, random: Random) -> None:
        self.island = islands[0]
        self._islands, self._running, self._random = islands, running, random

    def parent(self) -> Kernel | None:
        """A kernel that is not spent, drawn evenly; None if no island has one."""
        for island in self._islands:
            if left := self._running.unspent(list(island.cells.values())):
                self.island = island
                return left[int(self._random.random() * len(left))]
        return None

    def others(self, parent: Kernel) -> list[str]:
        """The other kernels of the parent's island, a line each."""
        return [
            f"{cell}: speedup {other.score:.3f}, by: {self._running.idea_of(other)}"
            for cell, other in self.island.cells.items()
            if other.id != parent.id
        ]


def migrate(islands: list[Archive]) -> None:
    """Copy the best kernel of each island, as it is before any copy, to the next one, and of the last to the first."""
    leaving = [island.best for island in islands]
    for place, (cell, kernel) in enumerate(leaving, start=1):
        islands[place % len(islands)].add(cell, kernel)


def means_of(code: str) -> str:
    """By what means a kernel works, as its text shows."""
    text = several.without_comments(code)
    return next((name for name, pattern in MEANS if pattern.search(text)), NO_MEANS)


def _cell(running: several.Search, kernel: Kernel) -> Cell:
    limit = running.findings(kernel).bottleneck
    return Cell(limit.value if limit else NOT_KNOWN, means_of(kernel.candidate.code))


STRATEGY = Strategy(
    NAME,
    "islands with a MAP-Elites archive: R steps, from the best kernel of any class and means",
    ROLES,
    search,
    rounds=10,
    debug_tries=3,
    options=Options,
    coder=ask_coder,
    planner=several.ask_planner,
)
