from __future__ import annotations

import pytest

from cudamaster.agents.contrast import Exemplar
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.training.database import Database, order
from cudamaster.training.settings import Exemplars


def exemplar(code: str, score: float, *, baseline: bool = False) -> Exemplar:
    candidate = Candidate("relu", Precision.FP32, code, "nvcc")
    verdict = Verdict(candidate.id, "cpu", True, Status.CORRECT, "", score=score)
    return Exemplar(candidate, verdict, score, is_baseline=baseline)


BASELINE = exemplar("base", 1.0, baseline=True)
KNOWN = [exemplar(f"k{number}", 1.0 + number) for number in range(1, 6)]


def database(method: str, **more: object) -> Database:
    about = Exemplars.model_validate({"method": method, **more})
    return Database(about, 3, {"relu/fp32": BASELINE}, {"relu/fp32": KNOWN})


def drawn(of: Database, steps: range) -> list[list[float]]:
    return [[one.score for one in of.draw("relu/fp32", step, 0)] for step in steps]


@pytest.mark.parametrize("method", ["bucket", "island", "random"])
def test_draws_are_the_same_after_going_on(method: str) -> None:
    """A run that goes on has replayed what joined, and draws what it would have drawn."""
    one = database(method, islands=2, interval=2)
    before = []
    for step in range(1, 9):
        before += drawn(one, range(step, step + 1))
        one.add("relu/fp32", step, exemplar(f"new {step}", 2.0 + step))
        one.end_step(step)
    other = database(method, islands=2, interval=2)
    for step in range(1, 5):  # as contrastive.go_back_to does
        other.add("relu/fp32", step, exemplar(f"new {step}", 2.0 + step))
        other.end_step(step)
    after = []
    for step in range(5, 9):
        after += drawn(other, range(step, step + 1))
        other.add("relu/fp32", step, exemplar(f"new {step}", 2.0 + step))
        other.end_step(step)
    assert after == before[4:]
    assert len({tuple(scores) for scores in before}) > 2
    assert all(scores == sorted(scores) and len(scores) == len(set(scores)) == 2 for scores in before)


def test_performance_weighs_in_buckets_and_not_at_random() -> None:
    steps = range(400)
    bucket = [score for scores in drawn(database("bucket", temperature=0.5), steps) for score in scores]
    even = [score for scores in drawn(database("random"), steps) for score in scores]
    assert bucket.count(6.0) > 350
    assert 90 < even.count(6.0) < 180


def test_without_contrast_the_baseline_stands_alone() -> None:
    none = database("none")
    none.add("relu/fp32", 1, exemplar("fast", 9.0))
    assert none.draw("relu/fp32", 2, 0) == (BASELINE,)
    assert none.best("relu/fp32") == 9.0
    assert none.size("relu/fp32") == 7


def test_a_copy_joins_once() -> None:
    one = database("bucket")
    assert one.add("relu/fp32", 1, exemplar("new", 2.0))
    assert not one.add("relu/fp32", 2, exemplar("new", 2.1))
    assert not one.add("relu/fp32", 2, exemplar("  new // once more", 9.0))
    assert one.size("relu/fp32") == 7
    assert one.best("relu/fp32") == 9.0


def test_every_problem_has_its_turn() -> None:
    turns = [order(3, number, 5) for number in range(30)]
    assert all(sorted(turns[begin : begin + 3]) == [0, 1, 2] for begin in range(0, 30, 3))
    assert len({tuple(turns[begin : begin + 3]) for begin in range(0, 30, 3)}) > 2
    assert turns == [order(3, number, 5) for number in range(30)]


def test_islands_get_the_known_kernels_in_turn_and_are_drawn_from_in_turn() -> None:
    one = database("island", islands=2, interval=99, temperature=100.0)
    odd, even = ({score for scores in drawn(one, range(first, 60, 2)) for score in scores} for first in (1, 2))
    assert (odd, even) == ({1.0, 2.0, 4.0, 6.0}, {1.0, 3.0, 5.0})
    assert one.best("relu/fp32") == 6.0
    one.add("relu/fp32", 2, exemplar("of the second", 7.0))
    assert any(7.0 in scores for scores in drawn(one, range(2, 60, 2)))
    assert not any(7.0 in scores for scores in drawn(one, range(1, 60, 2)))
    # The best one may be on any island.
    known = [exemplar("slow", 2.0), exemplar("fast", 5.0)]
    about = Exemplars.model_validate({"method": "island", "islands": 2})
    assert Database(about, 3, {"relu/fp32": BASELINE}, {"relu/fp32": known}).best("relu/fp32") == 5.0


def test_each_group_of_a_step_has_a_draw_of_its_own() -> None:
    one = database("random")
    assert len({tuple(each.score for each in one.draw("relu/fp32", 1, group)) for group in range(20)}) > 3


def test_wide_buckets_tell_less() -> None:
    """With one bucket for all, speed does not weigh."""
    steps = range(400)
    wide = [
        score for scores in drawn(database("bucket", temperature=0.5, bucket_ratio=10.0), steps) for score in scores
    ]
    assert wide.count(6.0) < 250
