"""A beam: the W best kernels that differ are kept, and every generation takes a step from each of them.

Beam search over programs is old in this field: Halide's autoscheduler searches schedules so (Adams et al., SIGGRAPH
2019), and Autocomp (arXiv:2505.18574) has language models write the steps. Here

    beam = {baseline}
    each generation of W rounds:
        each round: plan, write, build, check, time one step from one kernel of the beam, the fastest first, in turn
        beam = the W fastest of the beam and the generation's correct kernels, of those alike the fastest alone

What that leaves open is decided here:
- A beam of fewer than W kernels takes several steps from one, so the first generation takes W from the baseline. The
  Planner sees what was tried on the kernel, and the titles of what was tried on others.
- Two kernels are alike if they share at least the part `alike` of their lines, comments and blanks aside: W copies of
  one kernel with other block sizes would be no beam. A copy to the letter is judged once, and never joins again.
- Among equals the earlier kernel is the better. Scores are taken as they are, also within `tie`, which is about what is
  announced as a new best.
- A kernel for which the Planner has no further idea leaves the beam. What falls out of the beam does not come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.core.errors import UsageError
from cudamaster.strategies import several
from cudamaster.strategies.cudamaster import ROLES, ask_coder
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.several import Kernel, Spent
from cudamaster.strategies.strategy import SearchSettings, Strategy, options_of

NAME = "beam"


@dataclass(frozen=True)
class Options:
    """W, and from which share of common lines two kernels count as alike (above 1 none do)."""

    width: int = 3
    alike: float = 0.9

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UsageError(f"width is {self.width}, which makes no beam.", "Make it at least 1.")
        if not self.alike > 0:
            raise UsageError(f"alike is {self.alike}, which makes no beam.", "Make it a number above 0.")


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """One step in each round; generations have W rounds."""
    options = options_of(STRATEGY, settings.options)
    running = several.Search(frame, settings)
    beam, new = [running.first], list[Kernel]()
    for number in range(1, settings.rounds + 1):
        frame.observer.round_started(number, settings.rounds)
        turn = (number - 1) % options.width
        if turn == 0:
            beam, new = best_that_differ([*beam, *new], options), []

        def start(turn: int = turn) -> Kernel | None:
            nonlocal beam, new
            if not running.unspent(beam):  # the generation ends early
                beam, new = best_that_differ(running.unspent(new), options), []
            left = running.unspent(beam)
            return left[turn % len(left)] if left else None

        try:
            kernel = running.grow(number, start)
        except Spent as spent:
            return str(spent)
        beam = running.unspent(beam)
        if kernel is not None:
            new.append(kernel)
    return None


def best_that_differ(kernels: Sequence[Kernel], options: Options) -> list[Kernel]:
    """The fastest W kernels, the fastest first, none of them like a faster one."""
    chosen: list[Kernel] = []
    for kernel in sorted(kernels, key=lambda each: (-each.score, each.made)):
        if len(chosen) == options.width:
            break
        if all(several.likeness(kernel.candidate, each.candidate) < options.alike for each in chosen):
            chosen.append(kernel)
    return chosen


STRATEGY = Strategy(
    NAME,
    "a beam of several best kernels that differ: R steps, each from one of them",
    ROLES,
    search,
    rounds=10,
    debug_tries=3,
    options=Options,
    coder=ask_coder,
    planner=several.ask_planner,
)
