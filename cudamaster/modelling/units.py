"""Launches of which one block did a part of the units of work that it took from a counter (runtime/trace/units.cpp)."""

from __future__ import annotations

import math

from cudamaster.modelling.observed import LaunchLine

LEFT_OUT = 63  # units between two that the block takes, in the mean
_FEW = 32  # that it takes of a launch which has so few that it took too few of them
_LEAST_UNITS = 4  # that the block took behind the first that was left out
_MOST_BEFORE = 3  # times as much as behind it: so no more than three quarters of what is behind it can go unseen
_MOST_OF_UNIT = 0.5  # that other blocks do, in the mean, if none is left
_MOST_UNSURE = 0.03  # of a launch's events: the standard error of those that were not executed
_HALVINGS = 50  # of how far a sum may have come, until that is as exact as numbers are
_FIRST, _LAST = 1e-6, 50.0  # of how far: there 1 - exp(-x) of a limit is reached


def stands_for_all(line: LaunchLine) -> bool:
    """Whether a block that left out units of work took enough of them, and others found none left."""
    if line.units is None:
        return True
    before, taken, _, _, events = line.units
    enough = taken - before >= _LEAST_UNITS and events <= _MOST_BEFORE * (line.events - events)
    return enough and _none_left(line, taken) and _unsure(line) <= _MOST_UNSURE


def closer(line: LaunchLine, left_out: int) -> int:
    """How many units to leave out between two, instead of so many by which those taken do not stand for all.

    None if not much would be left out then, or if that is not why."""
    if line.units is None:
        return 0
    _, taken, least, _, _ = line.units
    fewer = least // _FEW - 1
    return fewer if 0 < fewer <= left_out // 2 and _none_left(line, taken) else 0


def _none_left(line: LaunchLine, taken: int) -> bool:
    *accesses, blocks = line.accesses
    sums = (accesses, line.threads_instructions)
    return all(others * taken <= _MOST_OF_UNIT * own * blocks for own, others in sums)


def _unsure(line: LaunchLine) -> float:
    """The standard error of a launch's events where units of work were left out, in parts of these.

    They are taken in their order, about as far from each other. So it goes by how much two that follow each other
    differ: if those of one part of the grid are longer than others, that part has its share."""
    count, _, squares = line.of_unit
    if line.units is None or count < _LEAST_UNITS - 1:
        return math.inf
    of_mean = math.sqrt(squares / 2 / (count - 1) / count)
    return of_mean * (line.units[3] - line.units[1]) / (longer(line) * line.events)


def longer(line: LaunchLine) -> float:
    """How many times as much there was as was recorded, where a first part stands for the whole, or units of work."""
    if not line.events:
        return 1.0
    all_events = float(line.events + line.dropped)
    if line.units is not None:
        before, taken, least, most, events = line.units
        all_events += (line.events - events) * ((least + most) / 2 - taken) / (taken - before)
    return all_events / line.events


def grown(early: float, late: float, line: LaunchLine, whole: float = 0.0) -> float:
    """What a sum comes to by all units that was `early` by some and `late` by all that were taken, and `whole` by those
    of which no share was left out, if it was of others.

    It goes on towards a limit, as the number of different ones does where one of many is drawn again and again."""
    if line.units is None or line.earlier is None or not late:
        return late
    before, taken, least, most, _ = line.units
    if line.shares is None:
        return _grown(early, late, line.earlier[0] / taken, (least + most) / 2 / taken)
    stands_for, by_early, drawn = line.shares
    times = stands_for * ((least + most) / 2 - before) / (taken - before)
    return whole + _grown(early - whole, late - whole, by_early / max(drawn, 1), times)


def _grown(early: float, late: float, share: float, times: float) -> float:
    """What a sum that was `early` by that share of some draws, and `late` by all of them, comes to by so many times as
    many."""
    if not late:
        return late
    low, high = _FIRST, _LAST
    if early / late <= math.expm1(-low * share) / math.expm1(-low):
        return late * times
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if math.expm1(-middle * share) / math.expm1(-middle) < early / late:
            low = middle
        else:
            high = middle
    return late * math.expm1(-low * times) / math.expm1(-low)
