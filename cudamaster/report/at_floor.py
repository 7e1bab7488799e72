"""Which results are at the floor: no kernel could have a P much above 1, and the best one is as near to it.

The floor of a call is an empty launch, timed in the same run, and the time of its bytes and operations. A kernel that
took no more than that in every case would have the P that `room` gives. Where this is close to 1, P says nothing about
the kernel: the launch is what the call consists of.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudamaster.report.data import CaseResult, TaskResult

# Times of the floor. One trip to memory, which no floor counts, takes a tenth of an empty launch, and empty launches of
# two runs are as far apart: 8.3 to 11.3 µs on H200s.
NEAR = 1.2
WORDS = "at the floor"
MEANING = (
    f"{WORDS.capitalize()}: over all sizes, weighted as in P, baseline and kernel both take at most {NEAR:g} times the "
    "floor, which is an empty launch of the same run and the time of the bytes and operations. P is about 1 there, "
    "whatever a kernel does"
)


def at_floor(result: TaskResult) -> bool:
    """Whether baseline and best kernel both take at most NEAR times the floor. Never so for emulated times."""
    found = (room(result), over_floor(result))
    return all(one is not None and one <= NEAR for one in found)


def room(result: TaskResult) -> float | None:
    """P of a kernel that takes the floor in every case; None unless every case has a baseline's time and a floor."""
    return _weighted(result, ((case, case.baseline_us) for case in result.cases))


def over_floor(result: TaskResult) -> float | None:
    """The best kernel's times as multiples of the floor, weighted as in P; None unless every case has both."""
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
