"""The filter is table 2: class by thresholds, a set of metrics per class, with rules for ties and gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudamaster.core.values import Bottleneck, KernelProfile, Profile
from cudamaster.devices import ncu
from cudamaster.profiling.filter import classify, findings, no_profile
from cudamaster.profiling.thresholds import load

DATA = Path(__file__).parent / "data"
THRESHOLDS = load()
NAMES = {name: metric.ncu for name, metric in THRESHOLDS.metrics.items()}
COMPUTE, LATENCY, BANDWIDTH = Bottleneck.COMPUTE, Bottleneck.LATENCY, Bottleneck.BANDWIDTH


def throughputs(compute: float | None, dram: float | None, memory: float | None) -> dict[str, float]:
    names = (NAMES["Compute (SM) Throughput"], NAMES["DRAM Throughput"], NAMES["Memory Throughput"])
    return {name: value for name, value in zip(names, (compute, dram, memory), strict=True) if value is not None}


def kernel(name: str, duration_us: float, launches: int = 1, **values: float) -> KernelProfile:
    metrics = {NAMES[key.replace("_", " ")]: value for key, value in values.items()}
    return KernelProfile(name, launches, duration_us, {**throughputs(10, 10, 10), **metrics})


def profile(*kernels: KernelProfile) -> Profile:
    return Profile(candidate="c0ffee", case="N=8", source="Nsight Compute", kernels=kernels)


def recorded(name: str) -> Profile:
    text = (DATA / f"{name}.txt").read_text()
    result = ncu.parse(text, candidate="c0ffee", case="N=65536", metrics=THRESHOLDS.filtered)
    assert isinstance(result, Profile)
    return result


def test_the_full_profile_keeps_everything() -> None:
    """All metrics but the duration, which the note has, and the class too."""
    text = (DATA / "all_sections.txt").read_text()
    seen = ncu.parse(text, candidate="c0ffee", case="N=8", metrics=THRESHOLDS.full)
    assert isinstance(seen, Profile)
    whole, kept = findings(seen, THRESHOLDS, full=True), findings(seen, THRESHOLDS)
    assert whole.bottleneck is kept.bottleneck is COMPUTE
    assert set(kept.metrics) < set(whole.metrics)
    assert len(whole.metrics) == 22  # of 24, two of which this version of ncu does not give
    assert whole.measured == kept.measured == dict(whole.metrics)
    assert kept.thresholds == "compute 30 %, DRAM 30 %, memory 30 % (paper)"


def test_without_the_filter_every_kernel_is_reported_at_every_case() -> None:
    """Kernels in the order of their times, the case of the findings last; filtered findings have no reports."""
    text = (DATA / "all_sections.txt").read_text()
    seen = [ncu.parse(text, candidate="c0ffee", case=case, metrics=THRESHOLDS.full) for case in ("N=8", "N=4")]
    assert all(isinstance(each, Profile) for each in seen)
    whole = findings(seen[0], THRESHOLDS, full=True, others=seen[1:])
    merge, sort = "merge_runs_kernel_optimized", "sort_tiles_kernel_optimized"
    told = [(report.case, report.kernel) for report in whole.reports]
    assert told == [("N=4", merge), ("N=4", sort), ("N=8", merge), ("N=8", sort)]
    assert whole.reports[2].metrics == whole.metrics
    assert whole.reports[3].metrics["L2 Hit Rate"] == 62.41
    assert whole.reports[3].duration_us == pytest.approx(15.616)
    assert set(whole.units) == set(whole.metrics)
    assert findings(seen[0], THRESHOLDS, others=seen[1:]).reports == ()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((31, 0, 0), COMPUTE),
        ((31, 99, 99), COMPUTE),  # compute is asked first
        ((29, 31, 0), BANDWIDTH),
        ((29, 0, 31), BANDWIDTH),
        ((29, 29, 29), LATENCY),
        ((30, 30, 30), LATENCY),  # at the limit is not above it
        ((30, 30.01, 30), BANDWIDTH),
        ((30.01, 30, 30), COMPUTE),
        ((31, None, None), COMPUTE),
        ((29, None, 31), BANDWIDTH),
        ((29, 31, None), BANDWIDTH),
        ((29, None, 29), None),  # what is missing could be the high one
        ((29, 29, None), None),
        ((None, 31, 31), None),
        ((None, 0, 0), None),
        ((None, None, None), None),
    ],
)
def test_classes(values: tuple[float | None, float | None, float | None], expected: Bottleneck | None) -> None:
    """Compute first, then latency if both memory throughputs are low, else bandwidth; missing is not low."""
    assert classify(throughputs(*values), THRESHOLDS) is expected


def test_kept_sets_are_table_2() -> None:
    """The sets as the paper lists them, and the one metric that appendix A.3 adds."""
    assert THRESHOLDS.kept == {
        COMPUTE: ("Compute (SM) Throughput", "Issue Slots Busy", "Executed Ipc Active", "SM Busy"),
        LATENCY: (
            "L2 Hit Rate",
            "L1/TEX Hit Rate",
            "Warp Cycles Per Executed Instruction",
            "Executed Ipc Elapsed",
            "Mem Busy",
        ),
        BANDWIDTH: ("DRAM Throughput", "Memory Throughput", "Max Bandwidth", "Mem Pipes Busy"),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one_kernel", LATENCY),
        ("several_kernels", LATENCY),
        ("many_launches", LATENCY),
        ("bandwidth_edge", BANDWIDTH),  # DRAM at 30.28 %
        ("all_sections", COMPUTE),
    ],
)
def test_recorded_profiles(name: str, expected: Bottleneck) -> None:
    """Real runs fall into all three classes, and keep their class's metrics under the paper's names, in its order."""
    found = findings(recorded(name), THRESHOLDS)
    assert found.candidate == "c0ffee"
    assert found.bottleneck is expected
    lacking = {"Issue Slots Busy", "SM Busy"} if name == "all_sections" else set()
    assert list(found.metrics) == [metric for metric in THRESHOLDS.kept[expected] if metric not in lacking]


def test_dominating_kernel() -> None:
    """The kernel with the most time in all its launches is classified; the note has each one's share."""
    found = findings(
        profile(kernel("a_kernel_optimized", 25.0), kernel("b_kernel_optimized", 75.0, 6, Mem_Busy=7.0)), THRESHOLDS
    )
    assert (found.kernel, found.time_share) == ("b_kernel_optimized", 0.75)
    assert found.metrics == {"Mem Busy": 7.0}
    assert "100 µs" in found.note
    assert "b_kernel_optimized 75 % in 6 launches, a_kernel_optimized 25 %" in found.note


def test_absent_metric_is_named() -> None:
    """A metric of the set that the profile lacks is not among the kept ones, and the note says so."""
    values = {"L2_Hit_Rate": 50.0, "Executed_Ipc_Elapsed": 0.5, "Mem_Busy": 0.0}
    found = findings(profile(kernel("a_kernel_optimized", 5.0, 1, **values)), THRESHOLDS)
    assert found.metrics == {"L2 Hit Rate": 50.0, "Executed Ipc Elapsed": 0.5, "Mem Busy": 0.0}
    assert "does not give L1/TEX Hit Rate, Warp Cycles Per Executed Instruction." in found.note
    assert found.units == {"L2 Hit Rate": "%", "Mem Busy": "%", "Executed Ipc Elapsed": "inst/cycle"}
    assert found.meanings["L2 Hit Rate"] == THRESHOLDS.metrics["L2 Hit Rate"].meaning
    assert set(found.meanings) == set(found.metrics)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (profile(), "no kernel"),
        (profile(KernelProfile("a_kernel_optimized", 1, 5.0, throughputs(10, None, 10))), "throughput is missing"),
        (profile(kernel("a_kernel_optimized", 0.0)), "no measurable time"),
    ],
)
def test_profile_without_class(given: Profile, reason: str) -> None:
    """What cannot be classified has neither class nor metrics, and says why."""
    found = findings(given, THRESHOLDS)
    assert (found.bottleneck, found.kernel, found.time_share, found.metrics) == (None, None, None, {})
    assert reason in found.note


def test_no_profile() -> None:
    """Findings without a profile belong to their candidate and give the reason."""
    found = no_profile("c0ffee", "there is no GPU")
    assert (found.candidate, found.note, found.bottleneck, found.metrics) == ("c0ffee", "there is no GPU", None, {})
