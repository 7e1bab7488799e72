"""Results as values, for tests of numbers: no folder, no run."""

from __future__ import annotations

from dataclasses import replace

from cudamaster.core.speed import Change, Comparison, Interval
from cudamaster.core.values import Bottleneck, GpuModel, Hardware, Precision, ProfileMode, Role, Status
from cudamaster.report.data import (
    CaseResult,
    Configuration,
    Cost,
    HardwareView,
    Kernel,
    MetricChange,
    Report,
    RunProgress,
    TaskResult,
)

H200 = Hardware("NVIDIA H200", {"driver": "580", "CUDA toolkit": "13.0"}, emulated=False)
CPU = Hardware("CPU", {}, emulated=True)
MODELLED = Hardware("CPU with a model", {}, emulated=True, modelled=GpuModel("v1", "NVIDIA H200", 1.25, 0.9))
FULL = Configuration("cudamaster", 3, 3, ProfileMode.FILTERED, "cudamaster, R = 3, D = 3, filtered profile")
SINGLE = Configuration("cudamaster", 1, 0, ProfileMode.FILTERED, "cudamaster, R = 1, D = 0, filtered profile")


def scored(task: str, score: float | None, reach: float = 0.01, **changed: object) -> TaskResult:
    """A result with P = `score`, None for no correct kernel, whose interval reaches that part to either side."""
    correct = score is not None
    improved = score is not None and score > 1
    speed = None
    cases: tuple[CaseResult, ...] = ()
    if score is not None:
        interval = Interval(score / (1 + reach), score * (1 + reach))
        change = Change.FASTER if score > 1 + reach else Change.SAME
        speed = Comparison(score, interval, score, interval, change)
        cases = (
            CaseResult("N=8", {"N": 8.0}, 8.0, Status.CORRECT, None, 1000.0, 1000.0 / score, score, interval, 100.0),
        )
    made = TaskResult(
        origin=f"runs/{task}",
        source="run",
        task=task,
        title=task,
        category="dense",
        precision=Precision.FP32,
        hardware=H200,
        versions={},
        started="2026-01-01",
        models={Role.CODER: "some/model"},
        configuration=FULL,
        progress=RunProgress.FINISHED,
        correct=correct,
        improved=improved,
        status=Status.CORRECT if correct else Status.WRONG,
        score=score,
        speed=speed,
        complete=True,
        cases=cases,
        cost=Cost(4, 100, 50, 0, 0.5, 2.0, 30.0),
        best=Kernel(f"{task}{score}", "code", "nvcc") if correct else None,
        card_hash="card",
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def view(kind: Bottleneck | None) -> HardwareView:
    """A profile of that class."""
    return HardwareView("ncu", kind)


def change(before: float, after: float, name: str = "Mem Busy") -> MetricChange:
    """A metric before and after."""
    return MetricChange(name, before, after, (after - before) / before if before else None)


def report(*results: TaskResult, **rest: object) -> Report:
    """A report of these results, on a benchmark of four tasks."""
    made = Report(
        made="2026-01-01",
        versions={},
        sources=("runs",),
        results=results,
        benchmark={"a": "dense", "b": "dense", "c": "llm", "d": "sparse"},
    )
    return replace(made, **rest)  # type: ignore[arg-type]
