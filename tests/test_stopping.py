"""The rule that ends the timing of a case, on simulated times (benchmarks/stopping.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
import stopping
from stopping import Situation

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
    """Four in a thousand are allowed to be called different here; of 4000 it was one."""
    found = stopping.simulate(program, Situation("equal", settings), EVALUATIONS, 2, early=True)
    assert found.called["faster"] + found.called["slower"] <= 0.004
    assert abs(found.bias) < 5 * found.bias_error
    assert found.turns < (50 if "turn_seconds" in settings else 200)


def test_three_percent_are_seen_by_further_turns(program: Path) -> None:
    situation = Situation("3 %", {"noise": 0.05, "speed": 1.03}, speed=1.03)
    early, asked = (stopping.simulate(program, situation, EVALUATIONS, 2, early=early) for early in (True, False))
    assert asked.turns == 50
    assert early.called["faster"] > 0.95 > 0.6 > asked.called["faster"]


def test_a_kernel_that_is_slow_in_one_call_of_five_is_rarely_called_faster(program: Path) -> None:
    settings = {"speed": 1 / 0.9, "every": 5, "slow": 3}
    found = stopping.simulate(program, Situation("slow", settings), EVALUATIONS, 2, early=True)
    assert found.called["faster"] < 0.08
