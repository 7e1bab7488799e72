"""Holds the draws of exemplars to equation 1 of the CUDA-L1 paper, among buckets and within them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from scored_exemplars import pool, scores_of

from cudamaster.strategies.exemplars import Selection, buckets, probabilities

# Draws are tried with fixed seeds, so that a test that passes once passes always.
# Upper 1 % points of chi-square by degrees of freedom, from the tables.
CHI_SQUARE_99 = {2: 9.21, 4: 13.28, 5: 15.09}


def equation_1(means: Sequence[float], tau: float) -> list[float]:
    """The equation as the paper writes it, the mean of the buckets' scores taken off."""
    centre = sum(means) / len(means)
    weights = [math.exp((mean - centre) / tau) for mean in means]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("tau", [0.2, 1.0, 7.0])
def test_probabilities_are_those_of_the_equation(tau: float) -> None:
    means = [0.6, 1.0, 1.03, 2.5, 4.1]
    assert probabilities(means, tau) == pytest.approx(equation_1(means, tau), rel=1e-12)


def test_no_score_and_no_temperature_overflows() -> None:
    """exp((120 - 0.5) / 0.01) is no float, and neither is a score over the smallest temperature there is."""
    assert probabilities([0.5, 120.0], 0.01) == [0.0, 1.0]
    assert probabilities([0.5, 120.0], 5e-324) == [0.0, 1.0]


def test_a_cold_draw_takes_the_best_buckets_and_a_hot_one_any() -> None:
    scores = [0.5, 1.0, 1.5, 2.0]
    cold = Selection(exemplars=2, temperature=1e-6)
    assert {scores_of(pool(*scores).draw(cold, Random(seed))) for seed in range(50)} == {(1.5, 2.0)}
    assert probabilities(scores, 1e9) == pytest.approx([0.25] * 4)


def test_equal_scores_are_equally_likely() -> None:
    assert probabilities([1.3, 1.3, 1.3], 0.1) == pytest.approx([1 / 3] * 3)


def chi_square(counts: Counter[object], expected: dict[object, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= set(expected)
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in expected.items())


def test_one_bucket_is_drawn_as_the_equation_says() -> None:
    """A bucket's score is the mean of its members; they are uneven here, so that the best or the worst would show."""
    groups = [(1.0, 1.1, 2.7), (3.2, 3.4, 8.5), (9.5,)]
    members = pool(*(score for group in groups for score in group))
    assert [scores_of(bucket) for bucket in buckets(members.members, 3.0).values()] == groups
    random = Random(11)
    drawn = Counter[object]()
    for _ in range(6000):
        (one,) = members.draw(Selection(exemplars=1, temperature=4.0, bucket_ratio=3.0), random)
        drawn[next(number for number, group in enumerate(groups) if one.score in group)] += 1

    def fit(means: list[float]) -> float:
        return chi_square(drawn, dict(enumerate(equation_1(means, 4.0))))

    assert fit([sum(group) / len(group) for group in groups]) < CHI_SQUARE_99[2]
    for other in (max, min, lambda group: 1.0):
        assert fit([other(group) for group in groups]) > 5 * CHI_SQUARE_99[2], "the check can tell other distributions"


def test_two_buckets_are_drawn_one_after_the_other() -> None:
    """The second is drawn by the same equation from what is left: all six pairs of four buckets."""
    scores = (0.7, 1.0, 1.6, 2.2)
    expected = dict[object, float]()
    for first, p in zip(scores, equation_1(scores, 1.0), strict=True):
        rest = [score for score in scores if score != first]
        for second, q in zip(rest, equation_1(rest, 1.0), strict=True):
            pair = (min(first, second), max(first, second))
            expected[pair] = expected.get(pair, 0.0) + p * q
    random, members = Random(5), pool(*scores)
    drawn = Counter[object](scores_of(members.draw(Selection(), random)) for _ in range(6000))
    assert chi_square(drawn, expected) < CHI_SQUARE_99[5]


def test_within_a_bucket_all_kernels_are_equally_likely() -> None:
    """Five in one bucket, however their scores differ there."""
    members = pool(1.95, 2.0, 2.05, 2.1, 2.14)
    random = Random(11)
    drawn = Counter[object](
        members.draw(Selection(exemplars=1, temperature=0.01), random)[0].score for _ in range(5000)
    )
    assert chi_square(drawn, dict.fromkeys(scores_of(members.members), 0.2)) < CHI_SQUARE_99[4]


def test_exemplars_come_from_distinct_buckets_the_slowest_first() -> None:
    members, random = pool(1.0, 1.01, 1.02, 3.0, 3.01), Random(0)
    for _ in range(200):
        slow, fast = members.draw(Selection(temperature=5.0), random)
        assert slow.score < 1.1
        assert fast.score >= 3.0


def test_one_bucket_gives_one_exemplar() -> None:
    """Fewer buckets than N: one of each, and never two of the same."""
    assert len(pool(1.0, 1.01, 1.05).draw(Selection(exemplars=2), Random(0))) == 1
    assert len(pool(1.0, 2.0, 2.01).draw(Selection(exemplars=4), Random(0))) == 2


def test_draws_use_only_what_python_keeps_the_same_for_a_seed() -> None:
    """Python promises that `Random.random` stays the same over versions, but not the other methods."""

    class OnlyRandom(Random):
        def getrandbits(self, k: int, /) -> int:
            raise AssertionError("a method other than random() was used")

    assert len(pool(1.0, 2.0, 3.0).draw(Selection(), OnlyRandom(1))) == 2
