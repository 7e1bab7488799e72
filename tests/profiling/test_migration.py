"""Class before and after an optimisation, and what each metric did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudamaster.core.values import Bottleneck, Findings
from cudamaster.profiling.migration import migration
from cudamaster.profiling.thresholds import load

PAPER = load()
BEFORE = Findings(
    candidate="a",
    note="",
    bottleneck=Bottleneck.BANDWIDTH,
    kernel="naive_kernel_optimized",
    measured={"DRAM Throughput": 40.0, "Max Bandwidth": 0.0, "Mem Pipes Busy": 10.0, "SM Busy": 5.0},
    thresholds=PAPER.described,
)
AFTER = replace(
    BEFORE,
    candidate="b",
    bottleneck=Bottleneck.COMPUTE,
    kernel="tiled_kernel_optimized",
    measured={"DRAM Throughput": 20.0, "Max Bandwidth": 7.0, "Memory Throughput": 3.0, "SM Busy": 50.0},
)


def test_changes_are_of_the_class_before() -> None:
    """Relative to before; none where that was zero; what one side lacks is left out, and so are other classes'."""
    made = migration(BEFORE, AFTER, PAPER)
    assert made is not None
    assert (made.before, made.after) == (Bottleneck.BANDWIDTH, Bottleneck.COMPUTE)
    assert (made.kernel_before, made.kernel_after) == ("naive_kernel_optimized", "tiled_kernel_optimized")
    assert set(made.changes) == {"DRAM Throughput", "Max Bandwidth"}
    assert made.changes["DRAM Throughput"].relative == -0.5
    assert made.changes["Max Bandwidth"].relative is None
    assert made.changes["Max Bandwidth"].after == 7.0


@pytest.mark.parametrize("change", [{"bottleneck": None}, {"thresholds": "compute 41 %"}])
def test_what_cannot_be_compared_is_none(change: dict[str, object]) -> None:
    """No profile on one side, or other thresholds."""
    assert migration(BEFORE, replace(AFTER, **change), PAPER) is None  # type: ignore[arg-type]
    assert migration(replace(BEFORE, **change), AFTER, PAPER) is None  # type: ignore[arg-type]
