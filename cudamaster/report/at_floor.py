"""Which results are at the floor: the baseline leaves no room for a P much above 1, and the best kernel is as close.

The floor of a call is an empty launch, timed in the same run, plus the least time for its bytes and operations. `room`
is the P of a kernel that takes the floor in every case. Where that is close to 1, P does not tell good kernels apart:
nearly all of a call is the launch, or bytes and operations at full speed.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudamaster.report.data import CaseResult, TaskResult

# A multiple of the floor. One trip to memory, which the floor does not count, takes about a tenth of an empty launch.
# Empty launches vary as much: in results/h200 four of five lie within a tenth of their median, 9.7 µs, and all are
# between 8.0 and 12.4.
NEAR = 1.2
WORDS = "at the floor"
MEANING = (
    f"{WORDS.capitalize()}: averaged over all sizes as in P, baseline and kernel both take at most {NEAR:g} times the "
    "floor. The floor is an empty launch, timed in the same run, plus the least time for the bytes and operations. No "
    f"kernel could have a P above {NEAR:g} there"
)


def at_floor(result: TaskResult) -> bool:
    """Whether baseline and best kernel both take at most NEAR times the floor. False for emulated or modelled times."""
    found = (room(result), over_floor(result))
    return all(one is not None and one <= NEAR for one in found)


def room(result: TaskResult) -> float | None:
    """P of a kernel that takes the floor in every case. None unless every case has a baseline's time and a floor."""
    return _weighted(result, ((case, case.baseline_us) for case in result.cases))


def over_floor(result: TaskResult) -> float | None:
    """The best kernel's times as multiples of the floor, averaged as in P. None unless every case has both."""
    return _weighted(result, ((case, case.candidate_us) for case in result.cases))


def _weighted(result: TaskResult, times: Iterable[tuple[CaseResult, float | None]]) -> float | None:
    if result.emulated or not result.correct or not result.complete or not result.cases:
        return None
    total = weights = 0.0
    for case, us in times:
        if us is None or not case.floor_us:
            return None
        total += case.weight * us / case.floor_us
        weights += case.weight
    return total / weights if weights else None
