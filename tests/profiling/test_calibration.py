"""Otsu's thresholds: known answers, data that outlive a kill, and what a calibration changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Bottleneck, KernelProfile, Profile
from cudamaster.profiling import calibration, thresholds
from cudamaster.profiling.calibration import Point, Table

PAPER = thresholds.load()


def one(number: int, compute: float | None = 10.0, dram: float | None = 10.0, memory: float | None = 10.0) -> Point:
    return Point(f"task{number}", "fp32", "c0ffee", "N=8", "a_kernel_optimized", 5.0, 1.0, compute, dram, memory)


def two_groups(low: float, high: float) -> list[float]:
    """Twenty values about each."""
    return [centre + 0.2 * i for centre in (low, high) for i in range(-10, 10)]


@pytest.mark.parametrize(("low", "high"), [(5, 60), (10, 90), (20, 28)])
def test_otsu_divides_two_groups_in_the_middle(low: float, high: float) -> None:
    """Between the largest of the low and the smallest of the high values, by the greatest variance between groups."""
    values = two_groups(low, high)
    assert calibration.otsu(values) == pytest.approx(((low + 1.8) + (high - 2.0)) / 2)
    assert calibration.otsu(reversed(values)) == calibration.otsu(values)


def test_otsu_is_the_split_of_greatest_variance_between_groups() -> None:
    """Held against the definition, every split of uneven data tried."""
    values = sorted([1.0, 2, 2.5, 3, 4, 4.5, 5, 9, 15, 17, 33, 34, 36, 39, 55, 56, 71])

    def variance(split: int) -> float:
        low, high = values[:split], values[split:]
        return len(low) * len(high) * (sum(low) / len(low) - sum(high) / len(high)) ** 2

    best = max(range(1, len(values)), key=variance)
    assert values[best - 1] < calibration.otsu(values) < values[best]


@pytest.mark.parametrize("values", [[], [3.0], [3.0] * 40])
def test_otsu_needs_different_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="no low and high"):
        calibration.otsu(values)


def test_limits_are_of_each_axis() -> None:
    """An axis that a chip does not give for some kernels uses those that have it."""
    groups = zip(two_groups(5, 60), two_groups(10, 90), two_groups(20, 50), strict=True)
    points = [one(i, *throughputs) for i, throughputs in enumerate(groups)]
    points.append(one(99, None, 10.0, None))
    found = calibration.limits(points)
    assert (found.compute, found.dram, found.memory) == (32.4, 49.9, 34.9)


def test_too_few_points_are_refused() -> None:
    with pytest.raises(UsageError, match="9 kernels have a compute throughput"):
        calibration.limits([one(i, compute=float(i)) for i in range(9)])


def test_a_point_is_the_dominating_kernel() -> None:
    """Of two kernels the longer one, with its part of the time; a throughput that the chip lacks is None."""
    names = PAPER.metrics
    metrics = {names["Compute (SM) Throughput"].ncu: 12.5, names["DRAM Throughput"].ncu: 40.0}
    kernels = (KernelProfile("short", 1, 1.0, {}), KernelProfile("long", 2, 3.0, metrics))
    made = calibration.point("fft", "bf16", Profile("c0ffee", "N=8", "Nsight Compute", kernels), PAPER)
    assert (made.kernel, made.time_us, made.share) == ("long", 3.0, 0.75)
    assert (made.compute, made.dram, made.memory) == (12.5, 40.0, None)


def test_data_outlive_a_kill(tmp_path: Path) -> None:
    """A line that was cut short is measured again; what is absent stays absent; the last one of a name counts."""
    table = Table(tmp_path / "deep" / "throughputs.csv")
    assert table.read() == []
    points = [one(1), one(2, memory=None), one(3)]
    for point in points:
        table.add(point)
    assert table.read() == points
    text = table.path.read_text()
    start = len(text) - len(text.splitlines(keepends=True)[-1])
    for end in range(start, len(text)):  # wherever it was cut: half a figure is none
        table.path.write_text(text[:end])
        assert table.read() == points[:2], text[start:end]
    table.path.with_name("empty.csv").touch()
    assert Table(table.path.with_name("empty.csv")).read() == []
    table.add(one(3, compute=77.0))
    assert table.read() == [*points[:2], one(3, compute=77.0)]
    table.add(one(1, compute=1.0))
    assert next(point for point in table.read() if point.task == "task1").compute == 1.0


def test_data_that_are_none_are_refused_with_their_line(tmp_path: Path) -> None:
    table = Table(tmp_path / "throughputs.csv")
    table.add(one(1))
    table.path.write_text(table.path.read_text().replace(",5,", ",long,"))
    with pytest.raises(UsageError, match="line 2"):
        table.read()
    table.path.write_text("some,other\n1,2\n")
    with pytest.raises(UsageError, match="has no column task"):
        table.read()
    table.path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        table.read()


@pytest.mark.parametrize("figure", ["nan", "inf", "-5", "long", "7" * 200_000])
def test_a_figure_that_is_none_is_refused_with_its_line(figure: str, tmp_path: Path) -> None:
    """Not let through to the histogram, which breaks on it or is spread over it."""
    table = Table(tmp_path / "throughputs.csv")
    table.add(one(1, compute=12.25))
    table.path.write_text(table.path.read_text().replace(",12.25,", f",{figure},"))
    with pytest.raises(UsageError, match="line 2, is no point"):
        table.read()


def test_what_is_no_percentage_makes_no_limit() -> None:
    """Counters may add up to a little more than all, a threshold cannot."""
    points = [one(i, 2.0 * i, 3.0 * i, 1.5 * i) for i in range(19)]
    assert calibration.limits([*points, one(19, 100.4, 100.4, 100.4)]).compute < 100
    with pytest.raises(UsageError, match="compute throughputs are no percentages"):
        calibration.limits([*points, one(19, compute=1e9)])


def test_what_a_calibration_changes() -> None:
    """Classes before and after, and which kernels change theirs."""
    points = [one(1, compute=35.0), one(2, compute=60.0), one(3, dram=35.0), one(4, compute=None)]
    before = calibration.classes(points, PAPER)
    found = thresholds.Cutoffs(compute=50, dram=30, memory=30)
    after = calibration.classes(points, PAPER.model_copy(update={"thresholds": found}))
    assert before == {
        "task1-fp32": Bottleneck.COMPUTE,
        "task2-fp32": Bottleneck.COMPUTE,
        "task3-fp32": Bottleneck.BANDWIDTH,
        "task4-fp32": None,
    }
    assert calibration.moves(before, after) == {(Bottleneck.COMPUTE, Bottleneck.LATENCY): 1}


def test_written_limits_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's own calibration, by the GPU's name or by its file; the metric sets stay the paper's."""
    monkeypatch.setenv("CUDAMASTER_CONFIG", str(tmp_path))
    place = resources.calibrations() / "some_gpu_5"
    place.mkdir(parents=True)
    found = thresholds.Cutoffs(compute=41.5, dram=22, memory=33)
    about = {"date": "2026-11-22", "driver": "580", "toolkit": "13.0", "kernels": 100}
    calibration.write(place / "thresholds.yaml", "Some GPU-5", found, about, place / "throughputs.csv")
    for wanted in ("calibrated", str(place / "thresholds.yaml")):
        chosen = thresholds.choose(wanted, "Some GPU-5")
        assert chosen.thresholds == found
        assert chosen.kept == PAPER.kept
        assert "41.5 %" in chosen.described
        assert "Some GPU-5, 100 kernels" in chosen.described
    assert thresholds.choose("paper", "Some GPU-5") == PAPER
    with pytest.raises(UsageError, match="no thresholds for Other GPU"):
        thresholds.choose("calibrated", "Other GPU")
    (place / "thresholds.yaml").write_text("gpu: Some GPU-5\nthresholds: {compute: 400}\n")
    with pytest.raises(UsageError, match="cannot be used"):
        thresholds.choose("calibrated", "Some GPU-5")


@pytest.mark.slow(but=["svg"])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_is_drawn(suffix: str, tmp_path: Path) -> None:
    """Three panels with a dot a kernel and both lines; the same data give the same file."""
    points = [one(i, 2.0 * i, 3.0 * i, 1.5 * i) for i in range(20)]
    found = thresholds.Cutoffs(compute=20, dram=30, memory=15)
    drawn = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.{suffix}"
        calibration.draw(points, found, PAPER.thresholds, "Some GPU", path)
        drawn.append(path.read_bytes())
    if suffix == "svg":
        assert drawn[0].count(b"<use ") > 60
        assert drawn[0] == drawn[1]
    else:
        assert drawn[0].startswith(b"\x89PNG")
