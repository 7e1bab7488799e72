"""The rule that ends the timing of a case, on simulated times (benchmarks/stopping.py)."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
import stopping
from stopping import Situation

from cudamaster.core.speed import SERIES

EVALUATIONS = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopping.build(tmp_path_factory.mktemp("stopping"))


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": 0.05},
        {"us": 30000, "turn_seconds": 0.07, "long_calls": 1, "noise": 0.01},
        {"us": 2500, "turn_seconds": 0.025, "slots": 3, "noise": 0.01},
    ],
    ids=["short", "long", "large"],
)
def test_equal_kernels_are_called_the_same(program: Path, settings: dict[str, float]) -> None:
    """At most one of these evaluations may be called different; in a run of 4000, one was."""
    found = stopping.simulate(program, Situation("equal", settings), EVALUATIONS, 2, early=True)
    assert found.called["faster"] + found.called["slower"] <= 0.004
    assert abs(found.bias) < 5 * found.bias_error
    assert found.turns < (50 if "turn_seconds" in settings else 200)


def turns(program: Path, settings: dict[str, float]) -> list[int]:
    return [len(baseline) for baseline, _ in stopping._case(program, {"cases": 100} | settings)]


def test_where_turns_agree_one_series_follows_the_fewest(program: Path) -> None:
    quiet = {"noise": 0.001, "held": 0}
    assert 24 < min(turns(program, quiet)) <= max(turns(program, quiet)) <= 23 + 12 + 12  # two series of at most twelve
    assert min(turns(program, quiet | {"turn_seconds": 0.03})) > 12


def test_turns_beyond_those_asked_for_begin_in_a_time_that_counts_from_the_first(program: Path) -> None:
    noisy = {"noise": 0.3, "extra_seconds": 0.2}
    assert {*turns(program, noisy | {"turn_seconds": 0.01})} == {50}
    assert all(100 < number <= 100 + 2 * 15 for number in turns(program, noisy | {"turn_seconds": 0.002}))


def test_three_percent_are_seen_by_further_turns(program: Path) -> None:
    situation = Situation("3 %", {"noise": 0.05, "speed": 1.03}, speed=1.03)
    early, asked = (stopping.simulate(program, situation, EVALUATIONS, 2, early=early) for early in (True, False))
    assert asked.turns == 50
    assert early.called["faster"] > 0.95 > 0.6 > asked.called["faster"]


@pytest.mark.parametrize(("drawn", "most"), [(0, 0.08), (1, 0.2)], ids=["each", "drawn"])
def test_a_kernel_that_is_slow_in_one_call_of_five_is_rarely_called_faster(
    program: Path, drawn: float, most: float
) -> None:
    settings = {"speed": 1 / 0.9, "every": 5, "slow": 3, "drawn": drawn}
    found = stopping.simulate(program, Situation("slow", settings), EVALUATIONS, 2, early=True)
    assert found.called["faster"] < most


@pytest.mark.parametrize(("shared", "times"), [(stopping.QUIET, 1.2), (stopping.BUSY, 2)], ids=["quiet", "busy"])
def test_series_differ_as_they_do_on_a_gpu(program: Path, shared: float, times: float) -> None:
    """The error by the means of series, as a verdict estimates it, over that of turns alone: core/speed.py has both."""
    settings = {"cases": 10, "noise": 0.3, "shared": 0.3 * shared, "held": 0, "extra_seconds": 1e9}  # 3200 turns each
    of_series, alone = [], []
    for baseline, candidate in stopping._case(program, settings):
        logs = [math.log(b / c) for b, c in zip(baseline, candidate, strict=True)]
        means = [statistics.fmean(logs[k : k + SERIES]) for k in range(0, len(logs) - SERIES + 1, SERIES)]
        of_series.append(statistics.variance(means) / len(means))
        alone.append(statistics.variance(logs) / len(logs))
    assert math.sqrt(math.fsum(of_series) / math.fsum(alone)) == pytest.approx(times, rel=0.05)
