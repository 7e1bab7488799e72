"""Holds buckets, pools and islands of exemplars to what enters them, what stays apart and what is copied."""

from __future__ import annotations

import math
from random import Random

import pytest
from scored_exemplars import exemplar, pool, scores_of

from cudamaster.core.values import Status
from cudamaster.strategies.exemplars import Islands, buckets


def test_buckets_are_a_factor_wide_and_half_open() -> None:
    found = buckets(pool(1.0, 1.99, 2.0, 3.99, 4.0, 0.5).members, 2.0)
    assert {number: scores_of(members) for number, members in found.items()} == {
        0: (1.0, 1.99), 1: (2.0, 3.99), 2: (4.0,), -1: (0.5,),
    }  # fmt: skip


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.0, -1.0])
def test_an_unusable_score_never_enters(score: float) -> None:
    members = pool(1.0)
    assert not members.add(exemplar(score, "new"))
    assert scores_of(members.members) == (1.0,)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CORRECT])
def test_a_kernel_that_fails_never_enters(status: Status) -> None:
    assert not pool(1.0).add(exemplar(9.0, "new", status))


def test_a_kernel_enters_once() -> None:
    """A copy would be twice as likely to be drawn."""
    members = pool(1.0)
    assert members.add(exemplar(2.0, "a"))
    assert not members.add(exemplar(2.0, "a"))


def test_islands_take_turns() -> None:
    islands = Islands(exemplar(1.0), count=3, interval=100)
    turns = [islands.pools.index(islands.of_round(number)) for number in range(1, 8)]
    assert turns == [0, 1, 2, 0, 1, 2, 0]


def test_the_inferior_half_gets_copies_of_a_superior_island() -> None:
    """Four islands: those with 1.2 and nothing lose what they have and hold what 3.0 or 2.0 holds."""
    islands = Islands(exemplar(1.0), count=4, interval=8)
    for number, score in ((1, 3.0), (2, 1.2), (3, 2.0)):
        islands.of_round(number).add(exemplar(score, str(number)))
    islands.of_round(1).add(exemplar(0.5, "slow"))
    islands.end_round(7, Random(0))
    assert [scores_of(island.members) for island in islands.pools] == [(1.0, 3.0, 0.5), (1.0, 1.2), (1.0, 2.0), (1.0,)]
    islands.end_round(8, Random(0))
    kept, first_copy, also_kept, second_copy = (scores_of(island.members) for island in islands.pools)
    assert (kept, also_kept) == ((1.0, 3.0, 0.5), (1.0, 2.0))
    assert {first_copy, second_copy} <= {kept, also_kept}


def test_copies_grow_apart_again() -> None:
    islands = Islands(exemplar(1.0), count=2, interval=2)
    islands.of_round(1).add(exemplar(2.0, "a"))
    islands.end_round(2, Random(0))
    islands.of_round(3).add(exemplar(4.0, "b"))
    assert [island.best_score for island in islands.pools] == [4.0, 2.0]


def test_of_three_islands_one_is_replaced() -> None:
    islands = Islands(exemplar(1.0), count=3, interval=3)
    for number, score in ((1, 1.5), (2, 3.0), (3, 2.0)):
        islands.of_round(number).add(exemplar(score, str(number)))
    islands.end_round(3, Random(1))
    assert islands.pools[0].best_score in (3.0, 2.0)
    assert [island.best_score for island in islands.pools[1:]] == [3.0, 2.0]
