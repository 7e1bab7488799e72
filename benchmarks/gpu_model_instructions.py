"""How many instructions a GPU executes for those that are counted: `instructions` of benchmarks/gpu_model.py.

`instruction_scale`, `instructions_of_request` and `instructions_beside` are no part of the fit to times. They are
fitted to what Nsight Compute counted (smsp__inst_executed of results/gpu_model/counters.csv.gz, at each kernel's
heaviest case):

    instructions = what counts as it is + scale x integers + of_request x requests to global memory + beside x warps

on the tasks that are fitted on, with errors in logarithms and outliers held back; every task weighs the same. How far
each may be off is what leaving out each of the tasks in turn gives.
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
from cudamaster.modelling.counts import CallCounts
from cudamaster.modelling.launch_time import WARP
from cudamaster.tasks import cards

_COUNTER = "smsp__inst_executed.sum"
_NAMES = ("instruction_scale", "instructions_of_request", "instructions_beside")
_BEGIN = (1.5, 2.0, 12.0)
_LEAST, _MOST = (0.1, 0.1, 0.0), (10.0, 10.0, 100.0)
_HELD_BACK = 0.2  # logarithm of an error beyond which it pulls no harder


@dataclass(frozen=True)
class Executed:
    """A launch: instructions that count as they are, what is multiplied by each constant, and what a GPU executed."""

    task: str
    kernel: str
    plain: float
    multiplied: tuple[float, float, float]
    executed: float


def executed() -> list[Executed]:
    """The launches that were counted and profiled."""
    rows = parts.read(FOLDER / "counters.csv.gz")
    modelled = gpu.load()
    without = constants.shipped().constants.model_copy(update=dict.fromkeys(_NAMES, 0.0))
    found = []
    for call in data.read([COUNTS]):
        if not isinstance(call.counts, CallCounts):
            continue
        of_call = rows.get((call.task, call.precision, call.code, call.case), [])
        for one in parts.launches(call.counts, of_call, call.task, modelled, without):
            warps = math.prod(one.launch.grid) * math.ceil(math.prod(one.launch.block) / WARP)
            traffic = one.launch.traffic
            requests = sum(each.load_requests + each.store_requests + each.atomic_requests for each in traffic)
            multiplied = (one.launch.instructions.integer, requests, float(warps))
            name = f"{call.task}-{call.precision} {call.kernel}"
            found.append(Executed(call.task, name, one.time.instructions, multiplied, one.row[_COUNTER]))
    return found


def fitted(launches: Sequence[Executed]) -> tuple[float, ...]:
    """The constants, in the order of their names."""
    of_task = Counter(one.task for one in launches)
    weights = np.array([1 / math.sqrt(of_task[one.task]) for one in launches])

    def errors(of: np.ndarray) -> np.ndarray:
        return np.asarray(weights * np.log(factors(launches, of)))

    found = least_squares(errors, _BEGIN, bounds=(_LEAST, _MOST), loss="soft_l1", f_scale=_HELD_BACK).x
    return tuple(map(float, found))


def factors(launches: Sequence[Executed], of: Sequence[float] | np.ndarray) -> np.ndarray:
    """Modelled over executed."""
    plain, executed = (np.array([getattr(one, name) for one in launches]) for name in ("plain", "executed"))
    return np.asarray((plain + np.array([one.multiplied for one in launches]) @ np.asarray(of)) / executed)


def run() -> None:
    """Print the constants, how far they may be off, and what they leave."""
    launches = executed()
    fitted_on, _ = measured.split({name: cards.load(name).category for name in cards.names()})
    mine = [one for one in launches if one.task in fitted_on]
    found = fitted(mine)
    others = [fitted([one for one in mine if one.task != task]) for task in sorted({one.task for one in mine})]
    print(f"{len(mine)} launches of {len({one.kernel for one in mine})} kernels that are fitted on")
    for place, name in enumerate(_NAMES):
        seen = [each[place] for each in others]
        print(f"{name} {found[place]:.3g}, without one of the tasks {min(seen):.3g} to {max(seen):.3g}")
    now = constants.shipped().constants
    for what, of in (("these", found), ("shipped", tuple(getattr(now, name) for name in _NAMES))):
        for name, those in (("fitted on", mine), ("held out", [one for one in launches if one not in mine])):
            off = factors(those, of)
            within = math.exp(float(np.quantile(np.abs(np.log(off)), 0.9)))
            print(f"{what}, {name}: median {np.median(off):.2f}, nine of ten within {within:.2f} of {len(those)}")
    off = factors(mine, found)
    for place in sorted(range(len(mine)), key=lambda place: -abs(math.log(off[place])))[:10]:
        print(f"  {off[place]:.2f} {mine[place].kernel}")
