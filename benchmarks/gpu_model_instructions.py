"""How many instructions a GPU executes for those that are counted: `instructions` of benchmarks/gpu_model.py.

`instruction_scale` and `instructions_beside` are no part of the fit to times. They are fitted to what Nsight Compute
counted (smsp__inst_executed of results/gpu_model/counters.csv.gz, at each kernel's heaviest case):

    instructions = arithmetic and requests, as counted + scale x (integer, control, other) + beside x warps

on the tasks that are fitted on, with errors in logarithms and outliers held back; every task weighs the same. How far
both may be off is what leaving out each of the tasks in turn gives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import gpu_model_data as data
import gpu_model_parts as parts
import numpy as np
from gpu_model_validation import COUNTS, FOLDER
from scipy.optimize import least_squares

from cudamaster.modelling import constants, gpu, measured
from cudamaster.modelling.constants import Constants
from cudamaster.modelling.counts import CallCounts
from cudamaster.modelling.launch_time import WARP
from cudamaster.tasks import cards

_COUNTER = "smsp__inst_executed.sum"
_BEGIN = (1.5, 12.0)
_HELD_BACK = 0.2  # logarithm of an error beyond which it pulls no harder


@dataclass(frozen=True)
class Executed:
    """A launch: instructions as they are counted, those that are scaled, its warps, and what a GPU executed."""

    task: str
    kernel: str
    plain: float
    scaled: float
    warps: float
    executed: float


def executed() -> list[Executed]:
    """The launches that were counted and profiled."""
    rows = parts.read(FOLDER / "counters.csv.gz")
    shipped, modelled = constants.shipped().constants, gpu.load()
    without = shipped.model_copy(update={"instruction_scale": 0.0, "instructions_beside": 0.0})
    found = []
    for call in data.read([COUNTS]):
        if not isinstance(call.counts, CallCounts):
            continue
        of_call = rows.get((call.task, call.precision, call.code, call.case), [])
        for one in parts.launches(call.counts, of_call, call.task, modelled, without):
            mix = one.launch.instructions
            warps = math.prod(one.launch.grid) * math.ceil(math.prod(one.launch.block) / WARP)
            found.append(
                Executed(
                    call.task,
                    f"{call.task}-{call.precision} {call.kernel}",
                    one.time.instructions,
                    mix.integer + mix.control + mix.other,
                    warps,
                    one.row[_COUNTER],
                )
            )
    return found


def fitted(launches: Sequence[Executed]) -> tuple[float, float]:
    """Scale, and instructions beside."""
    of_task = Counter(one.task for one in launches)
    weights = np.array([1 / math.sqrt(of_task[one.task]) for one in launches])
    plain, scaled, warps, counted = (
        np.array([getattr(one, name) for one in launches]) for name in ("plain", "scaled", "warps", "executed")
    )

    def errors(of: np.ndarray) -> np.ndarray:
        return np.asarray(weights * np.log((plain + of[0] * scaled + of[1] * warps) / counted))

    found = least_squares(errors, _BEGIN, bounds=((0.1, 0.0), (10.0, 100.0)), loss="soft_l1", f_scale=_HELD_BACK).x
    return float(found[0]), float(found[1])


def factors(launches: Sequence[Executed], scale: float, beside: float) -> np.ndarray:
    """Modelled over executed."""
    return np.array([(one.plain + scale * one.scaled + beside * one.warps) / one.executed for one in launches])


def run() -> None:
    """Print both figures, how far they may be off, and what they leave."""
    launches = executed()
    fitted_on, _ = measured.split({name: cards.load(name).category for name in cards.names()})
    mine = [one for one in launches if one.task in fitted_on]
    scale, beside = fitted(mine)
    others = [fitted([one for one in mine if one.task != task]) for task in sorted({one.task for one in mine})]
    print(f"{len(mine)} launches of {len({one.kernel for one in mine})} kernels that are fitted on")
    for name, value, found in (
        ("instruction_scale", scale, [each[0] for each in others]),
        ("instructions_beside", beside, [each[1] for each in others]),
    ):
        print(f"{name} {value:.3g}, without one of the tasks {min(found):.3g} to {max(found):.3g}")
    shipped: Constants = constants.shipped().constants
    for what, of in (("these", (scale, beside)), ("shipped", (shipped.instruction_scale, shipped.instructions_beside))):
        for name, those in (("fitted on", mine), ("held out", [one for one in launches if one not in mine])):
            off = factors(those, *of)
            within = math.exp(float(np.quantile(np.abs(np.log(off)), 0.9)))
            print(f"{what}, {name}: median {np.median(off):.2f}, nine of ten within {within:.2f} of {len(those)}")
    off = factors(mine, scale, beside)
    for place in sorted(range(len(mine)), key=lambda place: -abs(math.log(off[place])))[:10]:
        print(f"  {off[place]:.2f} {mine[place].kernel}")
