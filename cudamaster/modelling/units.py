"""Launches of which one block did a part of the units of work that it took from a counter (runtime/trace/units.cpp)."""

from __future__ import annotations

import math

from cudamaster.modelling.observed import LaunchLine

ONE_OF = 64  # units of work one is taken, where nothing is known of them
_MOST_TAKEN, _LEAST_TAKEN = 32, 16  # where there are few, as many as these events allow:
_EVENTS_TAKEN = 100e6
_AS_MANY = 1.25  # times as many as are enough where one part of the units is longer than others
_FEWER = 0.75  # so it comes to an end
_LEAST_UNITS = 10  # that the block took behind the first that was left out
_LEAST_KNOWN = 3  # units whose events are known, where it is asked how much they differ
_OF_STEP = 1 / 3  # of the square of one that may be a step: where it is, is even in its stretch
_MOST_BEFORE = 3  # times as much as behind it: so no more than three quarters of what is behind it can go unseen
_MOST_OF_UNIT = 0.5  # that other blocks do, in the mean, if none is left
_MOST_UNSURE = 0.05  # of a launch's events: the standard error of those that were not executed
_HALVINGS = 50  # of how far a sum may have come, until that is as exact as numbers are
_FIRST, _LAST = 1e-6, 50.0  # of how far: there 1 - exp(-x) of a limit is reached


def stands_for_all(line: LaunchLine) -> bool:
    """Whether a block that left out units of work took enough of them, and others found none left."""
    if line.units is None:
        return True
    before, taken, _, _, events = line.units
    enough = taken - before >= _LEAST_UNITS and events <= _MOST_BEFORE * (line.events + line.dropped - events)
    return enough and _none_left(line) and _unsure(line) <= _MOST_UNSURE


def _none_left(line: LaunchLine) -> bool:
    """Whether blocks that were run behind the one that took all units did far less than one of these."""
    *accesses, blocks = line.accesses
    taken = line.units[1] if line.units is not None else 0
    sums = (accesses, line.threads_instructions)
    return all(others * taken <= _MOST_OF_UNIT * own * blocks for own, others in sums)


def closer(line: LaunchLine) -> int:
    """Of how many units one is to be taken, where those that were did not stand for all; 0 if all are to be."""
    if line.units is None or not _none_left(line):
        return 0
    before, taken, least, _, _ = line.units
    one_of = line.of_unit[-1]
    wanted = min(max(_EVENTS_TAKEN * taken / (line.events + line.dropped), _LEAST_TAKEN), _MOST_TAKEN)
    if math.isfinite(unsure := _unsure(line)):
        enough = _AS_MANY * (taken - before) * unsure / _MOST_UNSURE
        few = taken - before < _LEAST_UNITS  # they say little of others
        wanted = max(wanted, min(enough, _MOST_TAKEN) if few else enough)
    fewer = (least - before) // math.ceil(wanted) if math.isfinite(wanted) else 0
    return fewer if 1 < fewer <= _FEWER * one_of else 0


def _unsure(line: LaunchLine) -> float:
    """The standard error of a launch's events where units of work were left out, in parts of these.

    One was taken of each so many that follow each other. So it goes by how much two that do so differ: if some part of
    the units is longer than others, that part has its share. Of one step between two such parts a third counts: it is
    anywhere between its two units, which leaves a sixth of its square unknown, where units that differ by chance leave
    a half. A step is as much as one difference exceeds the one before and the one behind it: a single unit that is
    longer is none, nor is the first or the last. Those that were not taken differ by themselves, too."""
    count, squares, step_square, _, _ = line.of_unit
    if line.units is None or count < _LEAST_KNOWN:
        return math.inf
    before, taken, _, most, _ = line.units
    of_mean = math.sqrt((squares - step_square + step_square * _OF_STEP) / 2 / (count - 1) / count)
    return of_mean * math.sqrt((most - taken) * (most - before)) / (longer(line) * line.events)


def longer(line: LaunchLine) -> float:
    """How many times as much there was as was recorded, where a first part stands for the whole, or units of work.

    Each unit behind the first that was left out stands for as many as one was taken of, the last for what is left."""
    if not line.events:
        return 1.0
    all_events = float(line.events + line.dropped)
    if line.units is not None:
        before, taken, least, most, events = line.units
        *_, of_last, one_of = line.of_unit
        last = (least + most) / 2 - before - one_of * (taken - before)
        all_events = events + max(one_of * (all_events - events) + last * of_last, all_events - events)
    return all_events / line.events


def grown(early: float, late: float, line: LaunchLine) -> float:
    """What a sum comes to by all units that was `early` by some and `late` by all that were taken.

    It goes on towards a limit, as the number of different ones does where one of many is drawn again and again."""
    if line.units is None or line.earlier is None or not late:
        return late
    _, taken, least, most, _ = line.units
    times, share = (least + most) / 2 / taken, line.earlier[0] / taken
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
