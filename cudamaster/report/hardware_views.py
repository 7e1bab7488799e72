"""A kernel's profile, as a report shows it: class, throughputs and the limits that decided the class."""

from __future__ import annotations

import re

from cudamaster.core.values import Findings
from cudamaster.profiling.migration import migration
from cudamaster.profiling.thresholds import Thresholds
from cudamaster.report.data import ClassLimits, HardwareView, MetricChange, Throughputs

# Thresholds.described, which is what a run keeps of its limits.
_LIMITS = re.compile(r"compute ([\d.]+) %, DRAM ([\d.]+) %, memory ([\d.]+) % \((.*)\)", re.DOTALL)


def view(findings: Findings, thresholds: Thresholds) -> HardwareView:
    """The findings of one kernel; `thresholds` say which metrics the throughputs are, and the metrics' units."""
    measured = {**findings.metrics, **findings.measured}
    axes = thresholds.axes
    throughputs = [measured.get(name) for name in (axes.compute, axes.dram, axes.memory)]
    compute, dram, memory = throughputs
    known = compute is not None and dram is not None and memory is not None
    units = {name: metric.unit for name, metric in thresholds.metrics.items() if name in measured}
    return HardwareView(
        note=findings.note,
        modelled=findings.modelled is not None,
        bottleneck=findings.bottleneck,
        kernel=findings.kernel,
        time_share=findings.time_share,
        throughputs=Throughputs(compute, dram, memory) if known else None,  # type: ignore[arg-type]
        limits=limits(findings.thresholds),
        metrics=measured,
        units={**units, **{name: unit for name, unit in findings.units.items() if name in measured}},
    )


def limits(described: str) -> ClassLimits | None:
    """The limits that a run used, parsed from its words for them; None for other words."""
    found = _LIMITS.fullmatch(described.strip())
    if found is None:
        return None
    compute, dram, memory, source = found.groups()
    return ClassLimits(float(compute), float(dram), float(memory), source)


def changes(before: Findings, after: Findings, thresholds: Thresholds) -> tuple[MetricChange, ...]:
    """What the best kernel changed in the metrics of the class before; empty where the two cannot be compared."""
    moved = migration(before, after, thresholds)
    if moved is None:
        return ()
    return tuple(
        MetricChange(name, change.before, change.after, change.relative) for name, change in moved.changes.items()
    )
