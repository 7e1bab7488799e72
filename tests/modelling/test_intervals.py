"""Intervals of modelled speedups hold what the H200 measured, recomputed from the kept counts and times."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cudamaster.core.likelihood import LEVEL, Errors, Makeup
from cudamaster.modelling import constants, gpu

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@cache
def intervals() -> Any:
    """benchmarks/gpu_model_intervals.py, whose folder is no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("gpu_model_intervals")
    finally:
        sys.path.remove(str(BENCHMARKS))


@cache
def kept() -> tuple[Any, Errors]:
    """Every kept call, modelled by what ships, and the errors that ship."""
    fitted, module = constants.shipped(), intervals()
    assert fitted.intervals is not None
    examples = module.validation.examples()
    to_fit, _ = module.validation.split(examples)
    return module.calls(examples, to_fit, gpu.load(), fitted.constants), fitted.intervals.errors()


@pytest.mark.parametrize("fitted", [True, False], ids=["fitted on", "held out"])
def test_nine_of_ten_intervals_hold_what_was_measured(fitted: bool) -> None:
    """Between 85 and 95 of 100, on tasks that were fitted on and on others, however pairs are weighed."""
    calls, errors = kept()
    pairs = [pair for pair in intervals().pairs(calls) if pair.first.fitted == fitted]
    found = intervals().coverage(pairs, errors)
    assert found.tasks >= 5
    assert 0.85 <= found.share <= 0.95
    assert 0.85 <= found.by_task <= 0.95


@pytest.mark.slow
def test_intervals_hold_as_often_for_a_task_that_was_left_out_of_their_fit() -> None:
    """Of every class of pairs, between 85 and 95 of 100."""
    calls, _ = kept()
    shares = intervals().left_out([pair for pair in intervals().pairs(calls) if pair.first.fitted])
    assert len(shares) == len(intervals().CLASSES)
    assert {name: share for name, share in shares.items() if not 0.85 <= share <= 0.95} == {}


def test_what_is_called_likely_is() -> None:
    """Of pairs of P that the model has in order with a chance of 90 % or more, 90 of 100 were measured so."""
    calls, errors = kept()
    scores = [each for each in intervals().scores(calls, errors) if intervals().likely(each, errors)]
    assert len(scores) > 50
    right = sum(each.log_measured * each.log_modelled > 0 for each in scores)
    assert right >= LEVEL * len(scores)


def test_the_fit_finds_errors_that_are_known() -> None:
    """Of made-up pairs, whose errors grow with what differs."""
    import numpy as np

    module, chance = intervals(), np.random.default_rng(7)
    pairs = []
    for k in range(1500):
        apart = chance.uniform(0, 0.8)
        makeups = Makeup({"a": 10.0, "b": 10.0 * apart}), Makeup({"a": 10.0})
        ratio = makeups[0].whole_us / makeups[1].whole_us
        share = 10 * apart / makeups[0].whole_us
        error = chance.laplace(0, 0.03 + 0.2 * share)
        one, other = (
            module.Call(f"task {k % 20}", "fp32", str(side), "N=8", True, 1.0, makeup.whole_us, "DRAM", makeup)
            for side, makeup in enumerate(makeups)
        )
        pairs.append(module.Pair(one, other, np.log(ratio), np.log(ratio) + error))
    errors, _ = module.fit(pairs)
    nine = np.log(10)  # of Laplace's distribution, as multiples of its scale
    assert errors.floor == pytest.approx(nine * 0.03, rel=0.3)
    assert errors.of_difference == pytest.approx(nine * 0.2, rel=0.3)
    assert module.coverage(pairs, errors).share == pytest.approx(LEVEL, abs=0.01)
