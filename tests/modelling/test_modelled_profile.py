"""A modelled call as a profile: the filter that reads Nsight Compute's gives it a class and the metrics of that."""

from __future__ import annotations

import pytest
from counted_by_hand import WARPS, call, launch

from cudamaster.core.values import Bottleneck, GpuModel, Profile
from cudamaster.modelling import gpu as gpus
from cudamaster.modelling import model
from cudamaster.modelling.counts import Instructions, Launch
from cudamaster.profiling import thresholds
from cudamaster.profiling.filter import classify, findings

H200 = gpus.load()
MARK = GpuModel("v1", H200.name)


def profile(*launches: Launch) -> Profile:
    return model.profile(call(*launches), H200, "abc", MARK)


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (launch(2**19, instructions=Instructions(fma=1000 * 2**19 * WARPS), per_warp=1000), Bottleneck.COMPUTE),
        (launch(2**20, loads=8, waits=1), Bottleneck.BANDWIDTH),
        (launch(8, loads=1000, per_warp=3000), Bottleneck.LATENCY),
    ],
)
def test_the_class_is_what_the_kernel_is(one: Launch, kind: Bottleneck) -> None:
    """Arithmetic on all SMs, a wide read, and eight blocks that walk alone."""
    limits = thresholds.load()
    found = profile(one)
    assert classify(found.kernels[0].metrics, limits) is kind
    told = findings(found, limits)
    assert told.bottleneck is kind
    assert told.metrics, "the metrics of the class are there"
    assert "modelled" in told.note


def test_every_metric_of_the_filter_is_one_that_the_model_gives_or_is_absent() -> None:
    """Names are Nsight Compute's; percentages lie between 0 and 100."""
    limits = thresholds.load()
    metrics = profile(launch(4096, loads=2, stores=1)).kernels[0].metrics
    assert set(limits.throughputs.values()) <= set(metrics)
    assert set(limits.filtered) <= set(metrics)
    of_the_launch = {name for name in metrics if name.startswith(("launch__", "sm__maximum_warps"))}
    assert set(metrics) - of_the_launch <= set(limits.full)
    units = {metric.ncu: metric.unit for metric in limits.metrics.values()}
    assert all(0 <= value <= 100 for name, value in metrics.items() if units.get(name) == "%")


def test_hit_rates_are_those_of_the_counts() -> None:
    one = launch(4096, loads=1)
    traffic = one.traffic[0].model_copy(update={"missed_sectors": one.traffic[0].load_sectors / 4})
    metrics = profile(one.model_copy(update={"traffic": (traffic,)})).kernels[0].metrics
    assert metrics["l1tex__t_sector_hit_rate.pct"] == pytest.approx(75)
    without = profile(launch(64)).kernels[0].metrics
    assert "l1tex__t_sector_hit_rate.pct" not in without, "a kernel that loads nothing has no hit rate"


def test_kernels_come_by_their_share_of_the_time() -> None:
    small = launch(64).model_copy(update={"kernel": "_Z12small_kernelPf", "count": 3})
    found = profile(small, launch(2**16, loads=4))
    assert [kernel.kernel for kernel in found.kernels] == ["copy_kernel_optimized", "small_kernel"]
    assert [kernel.launches for kernel in found.kernels] == [1, 3]
    assert found.modelled == MARK
    assert found.breakdown["whole call"] > sum(kernel.duration_us for kernel in found.kernels)
