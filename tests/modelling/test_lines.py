"""What the model has to reach: each measure on calls whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from gpu_model_accuracy import Compared
from gpu_model_lines import Share, chosen, close, lines, ordered, scores_of_paths, speedups, table

from cudamaster.modelling.measured import Time


def calls(times: Sequence[tuple[str, float, float]], case: str = "N=1", task: str = "softmax") -> list[Compared]:
    """Kernels of one task at one case: name, measured, modelled."""
    return [Compared(Time(task, "fp32", name, case, real), model, real) for name, real, model in times]


def weights(_task: str) -> dict[str, float]:
    return {"N=1": 1.0, "N=2": 3.0}


def test_pairs_that_are_far_enough_apart_count_and_those_at_the_edge() -> None:
    every = calls([("a", 100, 50), ("b", 110, 40), ("c", 125, 60)])
    assert ordered(every, 1.10, 0.95) == Share("pairs 10 % apart or more in order", 2, 3, 0.95)
    assert ordered(every, 1.25, 0.99) == Share("pairs 25 % apart or more in order", 1, 1, 0.99)


def test_equal_modelled_times_are_no_order() -> None:
    assert ordered(calls([("a", 10, 10), ("b", 20, 10)]), 1.1, 0.95).right == 0


def test_speedups_are_against_the_baseline_of_the_same_case() -> None:
    every = [*calls([("baseline", 20, 10), ("a", 10, 10)]), *calls([("a", 10, 5)], case="N=2")]
    assert speedups(every) == [pytest.approx(0.5)]
    assert close(every) == Share("speedups within a factor of 1.35", 0, 1, 0.9)
    assert close(calls([("baseline", 20, 20), ("a", 10, 13.5)])).right == 1


def test_the_best_of_a_path_goes_by_weighted_scores() -> None:
    """Kernel a is best at the heavy case, b at the light one: the score is a's."""
    heavy = [("baseline", 30, 30), ("1_a", 10, 10), ("2_b", 15, 16)]
    light = [("baseline", 10, 10), ("1_a", 10, 10), ("2_b", 5, 4)]
    every = [*calls(heavy, case="N=2"), *calls(light)]
    scores = scores_of_paths(every, weights)["softmax", "fp32"]
    assert scores["1_a"] == (pytest.approx(2.5), pytest.approx(2.5))
    assert scores["2_b"] == (pytest.approx((3 * 30 / 16 + 2.5) / 4), pytest.approx(2.0))
    assert chosen(every, weights) == Share("best of a path, or within 5 % of it", 1, 1, 0.9)


def test_a_choice_within_five_percent_is_right_and_beyond_is_not() -> None:
    near = calls([("baseline", 100, 100), ("1_a", 50, 40), ("2_b", 48, 41)])
    far = calls([("baseline", 100, 100), ("1_a", 50, 40), ("2_b", 47, 41)])
    assert chosen(near, weights).right == 1
    assert chosen(far, weights).right == 0


def test_variants_are_no_steps_of_a_path() -> None:
    every = calls([("baseline", 100, 100), ("1_a", 50, 50), ("1_a kThreads=64", 20, 200)])
    assert chosen(every, weights).right == 1


def test_what_is_missed_is_marked_in_the_table() -> None:
    (_, _, first, *_) = table({"fitted": lines(calls([("baseline", 20, 20), ("1_a", 10, 30)]), weights)})
    assert first == "| pairs 10 % apart or more in order | 95 % | 0.0 % of 1 (missed) |"


def test_nothing_reaches_no_line_and_the_lines_are_those_of_the_docs() -> None:
    assert not Share("empty", 0, 0, 0.9).reached
    assert [share.wanted for share in lines([], weights)] == [0.95, 0.99, 0.9, 0.9]
