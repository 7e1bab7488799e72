"""The statistics of a table against values by hand, NumPy and SciPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_tables import config, entry, grid

from cudamaster.hgemm import bounds, statistics
from cudamaster.hgemm.statistics import Contest
from cudamaster.hgemm.table import (
    Mode,
)
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

AUTOTUNED = Contest(Mode.OFFLINE, Accumulate.FP32, Layout.NN, "cublaslt_autotuned")
SHAPES = [Shape(64, 64, 64 << step) for step in range(4)]


def test_by_hand() -> None:
    """Four shapes of ratios 2, 1, 0.8 and 1.25: without noise, so each is decided but the one that is equal."""
    entries = [entry(of, ratios={"cublaslt_autotuned": r}) for of, r in zip(SHAPES, (2, 1, 0.8, 1.25), strict=True)]
    found = statistics.statistic(AUTOTUNED, entries)
    assert found.shapes == 4
    assert found.wins == 2
    assert (found.speedup.mean, found.speedup.median) == pytest.approx((1.05 / 4, 0.125))
    assert found.speedup.deviation == pytest.approx(np.std([1, 0, -0.2, 0.25], ddof=1))
    assert (found.best.mean, found.best.median) == pytest.approx((1.25 / 4, 0.125))
    assert found.geometric == pytest.approx(2 ** (1 / 4))
    assert (found.faster, found.slower, found.undecided) == (2, 1, 1)
    assert 0.8 <= found.low < found.geometric < found.high <= 2


def test_against_numpy_over_a_grid() -> None:
    from scipy import stats  # which takes a second, and each test process reads this file

    entries = grid((64, 512, 4096))
    every = statistics.statistics(entries)
    assert len(every) == len(Mode) * 2 * 2 * 4
    for found in every:
        ratios = [
            each.ratios[found.contest.mode][found.contest.authority][found.contest.layout]
            for each in entries
            if each.accumulate is found.contest.accumulate
        ]
        means = np.array([ratio.mean for ratio in ratios])
        assert found.shapes == len(ratios) == 27
        assert found.speedup.mean == pytest.approx((means - 1).mean())
        assert found.speedup.median == pytest.approx(np.median(means - 1))
        assert found.speedup.deviation == pytest.approx((means - 1).std(ddof=1))
        assert found.wins == (means > 1).sum()
        best = np.maximum(means, 1) - 1
        assert (found.best.mean, found.best.deviation) == pytest.approx((best.mean(), best.std(ddof=1)))
        assert found.geometric == pytest.approx(stats.gmean([ratio.geometric for ratio in ratios]))
        assert found.faster == sum(ratio.low > 1 for ratio in ratios)
        assert found.faster + found.slower + found.undecided == found.shapes


def test_what_of_a_gain_is_the_kernels() -> None:
    """By hand: ours is 1.2 times as fast back to back, and 1.1 times as soon as the host is ahead."""
    entries = [entry(of, ratios={"cublas": 1.2}) for of in SHAPES]
    assert [share.launch for share in statistics.launch_and_kernel("cublas", entries)] == [1, 1]
    kernels = [entry(of, ratios={"cublas": 1.1}).ratios[Mode.DEVICE] for of in SHAPES]
    mixed = [
        replace(each, ratios={**each.ratios, Mode.DEVICE: kernel})
        for each, kernel in zip(entries, kernels, strict=True)
    ]
    alone = replace(entry(Shape(64, 64, 2048), ratios={"cublas": 9.0}), ratios=entries[0].ratios)
    without = replace(alone, ratios={Mode.OFFLINE: alone.ratios[Mode.OFFLINE]})
    found = statistics.launch_and_kernel("cublas", [*mixed, without])
    assert [(share.accumulate, share.layout, share.shapes) for share in found] == [
        (Accumulate.FP32, layout, 4) for layout in Layout
    ]
    assert (found[0].offline, found[0].kernel) == pytest.approx((1.2, 1.1))
    assert found[0].launch == pytest.approx(1.2 / 1.1)
    assert statistics.launch_and_kernel("cublas", [without]) == ()


def test_the_bootstrap_is_that_of_scipy_and_always_the_same() -> None:
    from scipy import stats

    ratios = np.exp(np.random.default_rng(1).normal(0.05, 0.1, 200))
    low, high = statistics.bootstrap(ratios)
    theirs = stats.bootstrap((np.log(ratios),), np.mean, method="percentile", n_resamples=10_000, rng=2)
    assert np.log([low, high]) == pytest.approx(theirs.confidence_interval, abs=5e-4)
    assert statistics.bootstrap(ratios) == (low, high)
    assert statistics.bootstrap(ratios[:1]) == (0.0, math.inf)


def test_bins_hold_every_shape_once() -> None:
    entries = grid((64, 512, 16384))
    found = statistics.by_size(AUTOTUNED, entries)
    assert sum(each.shapes for each in found) == 27
    assert [(each.low, each.high) for each in found][:2] == [(18, 20), (20, 22)]
    assert found[-1].low == 42
    assert found[-1].shapes == 1
    of_first = [r.mean for e, r in AUTOTUNED.ratios(entries) if e.shape.products < 2**20]
    assert found[0].mean == pytest.approx(np.mean(of_first))
    assert found[0].wins == sum(r > 1 for r in of_first)


def test_the_strongest_authority_is_the_last_that_was_measured() -> None:
    every = entry(SHAPES[0])
    assert statistics.strongest([every]) == "cublaslt_autotuned"
    some = {mode: {name: of[name] for name in ("torch", "cublas")} for mode, of in every.ratios.items()}
    assert statistics.strongest([replace(every, ratios=some)]) == "cublas"
    assert statistics.strongest([]) is None


def test_rank_correlation_is_spearmans() -> None:
    from scipy import stats

    drawn = np.random.default_rng(0).integers(0, 6, (2, 50)).astype(float).tolist()
    assert statistics.rank_correlation(*drawn) == pytest.approx(stats.spearmanr(*drawn).statistic)
    assert statistics.rank_correlation([1, 1], [1, 2]) is None


def test_what_a_lost_shape_is_bound_by() -> None:
    h200 = bounds.limits_of("NVIDIA H200")
    assert h200 is not None
    assert h200.tensor_per_s == pytest.approx(975e12, rel=1e-3)
    launch, memory, tensor = Shape(64, 64, 64), Shape(16384, 64, 16384), Shape(8192, 8192, 8192)
    assert [bounds.bound(of, h200, 3.0) for of in (launch, memory, tensor)] == ["launch", "memory", "tensor"]
    assert bounds.bound(launch, None, 3.0) == "unknown"
    assert bounds.limits_of("NVIDIA H100 80GB HBM3") is not None
    assert bounds.limits_of("NVIDIA H100 PCIe") is None
    assert bounds.limits_of("NVIDIA L4") is None


def test_losses_are_to_the_authority_that_wins_by_most() -> None:
    entries = [
        entry(SHAPES[0], ratios={"cublas": 0.9, "torch": 0.8}, ours_us=10, noise=0.001),
        entry(SHAPES[1], ratios={"cublas": 0.999}, noise=0.05, seed=4),
        entry(SHAPES[2]),
    ]
    found = bounds.losses(entries, Mode.OFFLINE, Accumulate.FP32, Layout.NN, bounds.limits_of("NVIDIA H200"))
    assert found[0].authority == "torch"
    assert found[0].theirs is Layout.TN
    assert found[0].certain
    assert found[0].gap_us == pytest.approx(2.0, rel=0.01)
    assert found[0].config == config(Layout.NN, Accumulate.FP32, SHAPES[0])
    assert found[0].tensor is not None
    assert found[0].tensor[0] == pytest.approx(2 * 64**3 / 975e12 * 1e6 / 10, rel=0.01)
    assert all(not loss.certain for loss in found[1:])
    assert SHAPES[2] not in [loss.entry.shape for loss in found]
    assert math.isnan(bounds.shortest_us([], Mode.OFFLINE))
