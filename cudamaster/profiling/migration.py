"""What an optimisation did to a kernel in the hardware's terms: class before and after, change of each metric.

Figures 8 and 9 of the paper are made of these, and figure 7 of the classes before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.core.values import Bottleneck, Findings
from cudamaster.profiling.thresholds import Thresholds


@dataclass(frozen=True)
class Change:
    """One metric of the dominating kernel before and after, in the metric's unit.

    `relative` is (after - before) / before, None where the metric was 0.
    """

    before: float
    after: float
    relative: float | None


@dataclass(frozen=True)
class Migration:
    """From a baseline to the best kernel. `changes` are of the metrics that the filter keeps for the class before.

    A metric that was not measured on both sides is left out. `thresholds` are those of both classes.
    """

    before: Bottleneck
    after: Bottleneck
    kernel_before: str
    kernel_after: str
    changes: Mapping[str, Change]
    thresholds: str


def migration(before: Findings, after: Findings, thresholds: Thresholds) -> Migration | None:
    """What changed between two findings; None if one has no class, or if their thresholds differ."""
    if before.bottleneck is None or after.bottleneck is None or before.thresholds != after.thresholds:
        return None
    changes = {
        name: _change(before.measured[name], after.measured[name])
        for name in thresholds.kept[before.bottleneck]
        if name in before.measured and name in after.measured
    }
    return Migration(
        before=before.bottleneck,
        after=after.bottleneck,
        kernel_before=before.kernel or "",
        kernel_after=after.kernel or "",
        changes=changes,
        thresholds=before.thresholds,
    )


def _change(before: float, after: float) -> Change:
    return Change(before, after, (after - before) / before if before != 0 else None)
