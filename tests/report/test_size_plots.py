"""Holds the plots over sizes to their logarithmic scale, which no single speedup spoils."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import report, result

from cudamaster.report import page, size_plots


def test_plots_of_sizes_are_logarithmic_and_hold_their_intervals() -> None:
    one = result("fft")
    reach = size_plots.Reach(0.5, 8.0)
    assert [reach.part(speedup) for speedup in (0.5, 1.0, 2.0, 8.0, 99.0)] == pytest.approx([0, 0.25, 0.5, 1, 1])
    plot = size_plots.large(one)
    assert plot is not None
    [line] = plot.lines
    assert len(line.dots) == len(one.cases)
    assert all(dot.low is not None and dot.high is not None and dot.high < dot.y < dot.low for dot in line.dots)
    steps = [later.x - dot.x for dot, later in zip(line.dots, line.dots[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps))  # sizes are powers of four
    faster = [case.speedup is not None and case.speedup > 1 for case in one.cases]
    assert [dot.y < plot.one for dot in line.dots] == faster
    assert size_plots.small([replace(one, cases=())], reach) is None


@pytest.mark.parametrize(
    ("low", "high"), [(0.67, 1.48), (0.95, 1.05), (0.99, 1.01), (0.6, 3.9), (0.5, 2.0), (0.7, 900.0)]
)
def test_an_axis_has_three_ticks_or_more(low: float, high: float) -> None:
    """One tick does not show how far apart two heights are. 1 always has a tick."""
    ticks = size_plots.tick_marks(size_plots.Reach(low, high))
    assert 3 <= len(ticks) <= 6
    assert all(low <= value <= high for value, _ in ticks)
    assert "1" in [text for _, text in ticks]
    assert len({text for _, text in ticks}) == len(ticks)


@pytest.mark.slow
def test_one_huge_speedup_does_not_flatten_all_plots() -> None:
    """The common scale leaves the outermost out, and the page says that they lie beyond."""
    results = [result(task) for task in ("fft", "softmax", "spmv_csr", "relu", "gelu", "selu", "elu", "rope")]
    most = max(case.speedup or 0.0 for one in results for case in one.cases)
    [*cases, last] = results[0].cases
    huge = replace(results[0], cases=(*cases, replace(last, speedup=5000.0)))
    assert size_plots.common_reach(results).high <= 1.05 * most
    assert size_plots.common_reach([huge, *results[1:]]).high <= 1.05 * most
    assert size_plots.reach(huge).high > 5000
    beyond = "what lies beyond is drawn at the edge"
    assert beyond in page.page(report([huge, *results[1:]]))
    assert beyond not in page.page(report(results[:1]))
