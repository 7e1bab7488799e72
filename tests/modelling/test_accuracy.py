"""Accuracy of modelled times: known answers, and tables of times that are wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpu_model_accuracy import Compared, accuracy, pairs, rank_correlation

from cudamaster.core.errors import UsageError
from cudamaster.modelling import measured
from cudamaster.modelling.measured import Time


def calls(times: Sequence[tuple[str, float, float]], task: str = "softmax") -> list[Compared]:
    """Kernels of one task at one case: name, measured, modelled."""
    return [Compared(Time(task, "fp32", name, "N=1", real), model, real) for name, real, model in times]


def test_ranks_correlate_by_order_alone() -> None:
    """By hand: 1 2 3 4 with two neighbours swapped gives 1 - 6 x 2 / (4 x 15) = 0.8; equal values share a rank."""
    assert rank_correlation([1, 20, 300, 4000], [5, 6, 7, 8]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert rank_correlation([1], [1]) is None


def test_pairs_are_those_that_differ_by_more_than_a_fifth() -> None:
    found = pairs(calls([("a", 10, 9), ("b", 11, 30), ("c", 20, 10)]))
    assert [(pair.faster.measured.kernel, pair.slower.measured.kernel, pair.ordered) for pair in found] == [
        ("a", "c", True),
        ("b", "c", False),
    ]
    assert found[1].measured_ratio == pytest.approx(20 / 11)
    assert found[1].modelled_ratio == pytest.approx(1 / 3)


def test_kernels_of_different_tasks_are_no_pair() -> None:
    assert pairs([*calls([("a", 10, 10)]), *calls([("a", 100, 100)], task="gelu")]) == []


def test_equal_modelled_times_do_not_order_a_pair() -> None:
    (pair,) = pairs(calls([("a", 10, 10), ("b", 20, 10)]))
    assert not pair.ordered


def test_nine_of_ten_are_within_the_factor() -> None:
    """Ten times too large or too small by 1.0, 1.1 ... 1.9: the factor for nine of ten lies between the last two."""
    ratios = [1 + k / 10 for k in range(10)]
    told = accuracy(calls([(str(k), 100, 100 * r if k % 2 else 100 / r) for k, r in enumerate(ratios)]))
    assert told.times_within is not None
    assert 1.8 <= told.times_within <= 1.9
    assert told.times == 10
    assert told.ordered_share is None


HEAD = "task,precision,kernel,case,whole_us,device_us\n"


def test_times_are_read_and_may_lack_the_devices(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD + 'gelu,fp32,baseline,N=1,10.5,2.5\ngelu,fp32,"Two, at once",N=1,9.5,\n')
    one, other = measured.read(path)
    assert one == Time("gelu", "fp32", "baseline", "N=1", 10.5, 2.5)
    assert (other.kernel, other.device_us) == ("Two, at once", None)


@pytest.mark.parametrize(
    "text", ["task,precision\n", HEAD + "gelu,fp32,baseline,N=1,-3,1\n", HEAD + "gelu,fp32,baseline,N=1,,1\n"]
)
def test_a_table_with_a_mistake_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"times\.csv"):
        measured.read(path)


def test_times_of_baselines_come_with_their_empty_call(tmp_path: Path) -> None:
    path = tmp_path / "baselines.json"
    timed = [{"label": "N=1", "median_us": 12.0, "empty_us": 9.0}]
    path.write_text(json.dumps({"baselines": [{"task": "gelu", "precision": "bf16", "timed": timed}]}))
    assert measured.read(path) == [Time("gelu", "bf16", "baseline", "N=1", 12.0, None, 9.0)]
