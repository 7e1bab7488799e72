"""What each part of the model's formulas is worth, and how far results move within the ranges of its figures: `worth`
and `ranges` of benchmarks/gpu_model.py.

worth    a part is left out, and what is fitted is fitted anew without it, in a few steps from what ships, by the slopes
         that errors have there
ranges   a figure takes the least and the most of its range, and nothing else changes

Errors are means of the logarithm of modelled over measured on the tasks fitted on, in per cent: of whole calls, and of
speedups over the baseline of the same task and case. Figures of counting are left out: all would be counted anew.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gpu_model_fitting as fitting
import gpu_model_validation as validation
import numpy as np
from gpu_model_fitting import Example

from cudamaster.modelling import gpu as gpus
from cudamaster.modelling import launch_time, memory
from cudamaster.modelling.constants import Constants, shipped
from cudamaster.modelling.counts import Launch
from cudamaster.modelling.gpu import Gpu
from cudamaster.modelling.launch_time import Part
from cudamaster.modelling.model import modelled

PAGE = validation.FOLDER / "worth.md"
_STEPS = 6
_NOTHING = 1e-9
_WIDTH = 118


def errors(of: Sequence[Example], gpu: Gpu, constants: Constants) -> tuple[float, float]:
    """Of times and of speedups."""
    whole = [math.log(modelled(one.counts, gpu, constants).whole_us / fitting.whole_us(one.time, gpu)) for one in of]
    baselines = {one.time.of_task: error for one, error in zip(of, whole, strict=True) if one.time.kernel == "baseline"}
    speedups = [
        error - baselines[one.time.of_task]
        for one, error in zip(of, whole, strict=True)
        if one.time.kernel != "baseline" and one.time.of_task in baselines
    ]
    return tuple(100 * float(np.mean(np.abs(each))) for each in (whole, speedups))  # type: ignore[return-value]


@dataclass(frozen=True)
class Without:
    """The model without a part: other figures, other counts, or other functions in the place of the model's."""

    name: str
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    counted: Callable[[Launch], Launch] | None = None
    functions: Sequence[tuple[Any, str, Any]] = ()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Its functions are the model's meanwhile, and what it sets is not fitted."""
        kept = [(module, name, getattr(module, name)) for module, name, _ in self.functions]
        fitted = dict(fitting.OF_MODEL), dict(fitting.OF_GPU)
        try:
            for module, name, function in self.functions:
                setattr(module, name, function)
            for ranges in (fitting.OF_MODEL, fitting.OF_GPU):
                for name in self.figures:
                    ranges.pop(name, None)  # type: ignore[attr-defined]
            yield
        finally:
            for module, name, function in kept:
                setattr(module, name, function)
            for ranges, before in zip((fitting.OF_MODEL, fitting.OF_GPU), fitted, strict=True):
                ranges.update(before)  # type: ignore[attr-defined]

    def of(self, examples: Sequence[Example]) -> list[Example]:
        """Calls whose counts lack the part."""
        if self.counted is None:
            return list(examples)
        return [dataclasses.replace(one, counts=_changed(one.counts, self.counted)) for one in examples]


def _changed(counts: Any, change: Callable[[Launch], Launch]) -> Any:
    events = tuple(change(event) if isinstance(event, Launch) else event for event in counts.events)
    return counts.model_copy(update={"events": events})


def _with(**changes: object) -> Callable[[Launch], Launch]:
    return lambda launch: launch.model_copy(update=changes)


def _traffic(**changes: float) -> Callable[[Launch], Launch]:
    return lambda launch: launch.model_copy(
        update={"traffic": tuple(each.model_copy(update=changes) for each in launch.traffic)}
    )


def _all_far(launch: Launch) -> Launch:
    """Every sector comes from DRAM by itself."""
    way = launch.way_of_block
    changed = None if way is None else way.model_copy(update={"far_waits": way.cold_waits})
    return launch.model_copy(update={"far_waits_of_warp": launch.cold_waits_of_warp, "way_of_block": changed})


_way = launch_time._way


def _mean_way(*given: Any, largest: bool) -> float:
    return _way(*given, largest=False)


def _whole_rounds(launch: Launch, gpu: Gpu, constants: Constants, shape: Any, moved: Any) -> float:
    """The last round of blocks is as long as the longest, behind all the others."""
    mean, longest = (_way(launch, gpu, constants, shape, moved, largest=largest) for largest in (False, True))
    first = constants.block_cycles
    if launch.cold_waits_of_warp.largest > 0:
        first += launch_time._cold_latency(launch, gpu, moved)
    return max(0.0, (shape.rounds - 1) * mean + longest - first)


def _one_rate(launch: Launch, gpu: Gpu) -> float:
    same = max(1.0, launch.contention.same_address)
    operations = sum(each.atomic_sectors * same + each.bulk_reduced_sectors for each in launch.traffic)
    hottest = launch.contention.hottest / gpu.figures.same_address_per_clock
    return max(operations / gpu.figures.atomic_sectors_per_clock, hottest)


def _all_joined(parts: Mapping[Part, float], power: float) -> float:
    """Atomics and starts overlap as the other parts do."""
    beside = tuple(us for part, us in parts.items() if part not in (Part.L2, Part.DRAM))
    return launch_time._joined((*beside, max(parts[Part.L2], parts[Part.DRAM])), power)


def _l2_by_itself(parts: Mapping[Part, float], power: float) -> float:
    """L2 and DRAM overlap as the other parts do."""
    others = tuple(us for part, us in parts.items() if part not in (Part.ATOMICS, Part.STARTS))
    return max(launch_time._joined(others, power), parts[Part.ATOMICS], parts[Part.STARTS])


def _waits_only(launch: Launch, gpu: Gpu, constants: Constants, moved: Any) -> float:
    """Nothing fills the GPU first but answers of atomics."""
    atomics = launch.grid_barriers.largest > 0 or any(each.atomic_requests for each in launch.traffic)
    return constants.answer_cycles if atomics else 0.0


def every(gpu: Gpu) -> list[Without]:
    """All parts that can be left out."""
    figures = gpu.figures
    return [
        Without("nothing left out"),
        Without(
            "the way of a block between its barriers (a mean warp, and the longest)",
            counted=_with(way_of_block=None),
        ),
        Without("the longest block (every one as the mean)", functions=[(launch_time, "_way", _mean_way)]),
        Without(
            "the next block starts where one has ended (the last round as long as the longest)",
            functions=[(launch_time, "_latency", _whole_rounds)],
        ),
        Without("what fills the GPU before its parts overlap", functions=[(launch_time, "_filling", _waits_only)]),
        Without("warps of a block in step (each waits for its own requests)", {"in_step": 0.0}),
        Without(
            "requests of a warp in turn (all that are on their way together take as long as one)",
            functions=[(launch_time, "_in_turn", lambda *given: 0.0)],
        ),
        Without(
            "barriers of clusters and of the grid (as those of a block)",
            {
                "cluster_barrier_cycles": figures.barrier_cycles,
                "cluster_barrier_warp_cycles": figures.barrier_warp_cycles,
                "grid_barrier_cycles": figures.barrier_cycles,
            },
        ),
        Without("fences", {"fence_cycles": _NOTHING}),
        Without("tickets behind fences", {"ticket_cycles": _NOTHING}),
        Without("fences and tickets", {"fence_cycles": _NOTHING, "ticket_cycles": _NOTHING}),
        Without(
            "another block's shared memory (as the own)",
            {"remote_latency_cycles": figures.shared_latency_cycles, "remote_cycles": _NOTHING},
        ),
        Without("launches that may start early", counted=_with(early=False)),
        Without("spills", counted=_with(spill_store_bytes=0, spill_load_bytes=0)),
        Without("what blocks of an SM find in its L1", functions=[(memory, "_found_in_l1", lambda *given: 0.0)]),
        Without(
            "stretches of gathers, and waves that go through a buffer once",
            {"sweeps": _NOTHING},
            functions=[(memory, "_gather", lambda *given: None)],
        ),
        Without("what L2 has not written yet when a launch ends", {"left_in_l2": 0.0}),
        Without("lines that a wait is for (one)", functions=[(launch_time, "_lines_of_wait", lambda *given: 1.0)]),
        Without("pairs of sectors from DRAM (each by itself)", counted=_all_far),
        Without("lines of atomics (one rate for all)", functions=[(launch_time, "_atomics", _one_rate)]),
        Without("lines that share slices of L2", {"crowded_atomics": 1.0}),
        Without(
            "queues (atomics and starts overlap as the other parts)",
            functions=[(launch_time, "_overlapped", _all_joined)],
        ),
        Without("answers of atomics", {"answer_cycles": 0.0}),
        Without("copies in bulk as loads", {"bulk_share": 1.0}),
        Without("starts of blocks", {"start_cycles": _NOTHING}),
        Without("L2 by lines: loads", {"line_sectors": 1.0}),
        Without("L2 by lines: stores as loads", {"stored_sectors": 1.0, "stored_line_sectors": 0.0}),
        Without(
            "L2 by lines: loads and stores", {"line_sectors": 1.0, "stored_sectors": 1.0, "stored_line_sectors": 0.0}
        ),
        Without(
            "L2 and DRAM side by side (as the other parts)",
            functions=[(launch_time, "_overlapped", _l2_by_itself)],
        ),
        Without("L1's banks of tags", counted=_traffic(lookups=0.0)),
        Without("L1's misses, and the way to L2", counted=_traffic(missed_lines=0.0, sends=0.0)),
        Without(
            "L1's banks of tags, misses, and the way to L2", counted=_traffic(lookups=0.0, missed_lines=0.0, sends=0.0)
        ),
        Without("chains of instructions", counted=_with(chained_cycles=0.0)),
        Without("products behind their factors", functions=[(launch_time, "_of_products", lambda *given: 0.0)]),
        Without("that a warp may spin", {"spinning_waits": math.inf}),
    ]


def run_worth(gpu_name: str) -> None:
    """The table of the parts, to its page."""
    gpu, fitted = gpus.load(gpu_name), shipped()
    mine, _ = validation.split(validation.examples())
    mine = [one for one in mine if fitting.refused(one.counts, gpu) is None]
    lines = [
        "# What parts of the model are worth",
        "",
        f"gpu-model v{fitted.version}, {gpu.name}. Made by `python benchmarks/gpu_model.py worth`: a part is left out,",
        f"and what is fitted is fitted anew without it, in {_STEPS} steps at most from what ships. Errors are means of",
        "the logarithm on the tasks fitted on, in per cent.",
        "",
        "| without | times | speedups |",
        "|---|--:|--:|",
    ]
    slopes = fitting.slopes_of(mine, gpu, fitted.constants)
    for without in every(gpu):
        with without.in_place():
            of_gpu, constants = _set(without.figures, gpu, fitted.constants)
            of = without.of(mine)
            found = fitting.fit(of, of_gpu, constants, _STEPS, slopes)
            times, speedups = errors(of, found.gpu, found.constants)
        lines.append(f"| {without.name} | {times:.2f} | {speedups:.2f} |")
        print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n" + _kept_ranges())


def run_ranges(gpu_name: str) -> None:
    """The table of the ranges, to the same page."""
    gpu, fitted = gpus.load(gpu_name), shipped()
    mine, _ = validation.split(validation.examples())
    mine = [one for one in mine if fitting.refused(one.counts, gpu) is None]
    plain = errors(mine, gpu, fitted.constants)
    lines = [
        _RANGES,
        "",
        "Made by `python benchmarks/gpu_model.py ranges`: each figure at both ends of its range, nothing fitted anew.",
        f"As it ships, errors are {plain[0]:.2f} % of times and {plain[1]:.2f} % of speedups. Figures whose range",
        "moves neither by 0.005 points are named below.",
        "",
        "| figure | least | times | speedups | ships | most | times | speedups |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    still = []
    both = {**fitted.sourced, **gpu.sourced}
    for name in (*Constants.model_fields, *gpu.sourced):
        each = both[name]
        ends = [errors(mine, *_set({name: end}, gpu, fitted.constants)) for end in each.range if end != each.value]
        if all(abs(there - here) < 0.005 for end in ends for there, here in zip(end, plain, strict=True)):
            still.append(f"`{name}`")
            continue
        cells = [f"`{name}`"]
        for place, end in enumerate(each.range):
            found = plain if end == each.value else errors(mine, *_set({name: end}, gpu, fitted.constants))
            cells += [f"{each.value:.4g}"] if place else []
            cells += [f"{end:.4g}", *(f"{error:.2f}" for error in found)]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", *textwrap.wrap(f"Of no weight: {', '.join(still)}.", _WIDTH)]
    before = PAGE.read_text().partition(f"\n{_RANGES}")[0].rstrip("\n") if PAGE.is_file() else ""
    PAGE.write_text(f"{before}\n\n" + "\n".join(lines) + "\n")


_RANGES = "## Ranges"


def _kept_ranges() -> str:
    text = PAGE.read_text() if PAGE.is_file() else ""
    return f"\n{_RANGES}{text.partition(_RANGES)[2]}" if _RANGES in text else ""


def _set(figures: Mapping[str, float], gpu: Gpu, constants: Constants) -> tuple[Gpu, Constants]:
    """Other figures of a GPU, or constants, by their names."""
    of_gpu = {name: value for name, value in figures.items() if hasattr(gpu.figures, name)}
    others = {name: value for name, value in figures.items() if name not in of_gpu}
    changed = dataclasses.replace(gpu, figures=dataclasses.replace(gpu.figures, **of_gpu))
    return changed, constants.model_copy(update=others)
