"""Holds the reading of suites to their runs, and to what is missing of them and why."""

from __future__ import annotations

from pathlib import Path

from report_runs import H200, TimedBench, script, settings

from cudamaster.core.errors import ModelError
from cudamaster.core.values import Precision, Role
from cudamaster.report.loading import load
from cudamaster.report.numbers import groups
from cudamaster.runs.budget import Budget, Limits
from cudamaster.runs.optimization import optimize
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.suites import scheduler as suites
from cudamaster.suites.folder import Entry, SuiteFolder


def suite(
    path: Path, tasks: dict[tuple[str, Precision], tuple[float | str, ...]], limits: Limits | None = None
) -> Path:
    """A suite of scripted searches; the outcome "no model" is an error of a task."""
    told = settings(rounds=1)

    def search(entry: Entry, folder: Path, unit: str, observer: Observer, budget: Budget) -> Result:
        outcomes = tasks[entry.task, entry.precision]
        if outcomes == ("no model",):
            raise ModelError("The model cannot be reached.", "Try again.")
        from search_stand_ins import ScriptedModel

        bench = TimedBench(entry.task, entry.precision, H200)
        model = ScriptedModel(script(*outcomes))
        return optimize(folder, bench, dict.fromkeys(Role, model), told, observer, budget)

    plan = suites.new(told, list(tasks))
    with SuiteFolder.create(path, plan) as folder:
        suites.run(folder, plan, search, Budget(limits), ("GPU-a",), 1)
    return path


FP32, BF16 = Precision.FP32, Precision.BF16


def test_a_suite_with_what_failed_and_what_it_did_not_get_to(tmp_path: Path) -> None:
    """Missing tasks are missing, with the reason, and no failures of the model."""
    path = suite(
        tmp_path / "suite",
        {
            ("gelu", FP32): (2.0,),
            ("gelu", BF16): ("wrong",),
            ("relu", FP32): ("no model",),
            ("selu", FP32): (3.0,),
            ("elu", FP32): (3.0,),
        },
        Limits(dollars=1.6),  # a task costs 0.75
    )
    report = load([path])
    assert [(result.name, result.source) for result in report.results] == [
        ("gelu_bf16", "suite"),
        ("gelu_fp32", "suite"),
    ]
    why = {one.name: one.why for one in report.missing}
    assert "The model cannot be reached" in why["relu_fp32"]
    assert len([one for one in report.problems if "relu_fp32" in one.path]) == 1  # told once
    assert "was stopped before it had judged a kernel" in why["selu_fp32"]
    assert "did not get to it" in why["elu_fp32"]
    by_precision = {group.precision: group for group in groups(report)}
    assert [one.name for one in by_precision[FP32].missing] == ["elu_fp32", "relu_fp32", "selu_fp32"]
    assert (by_precision[FP32].tasks, by_precision[FP32].success[0].share) == (1, 1.0)
    assert by_precision[BF16].success[0].share == 0.0


def test_a_suite_whose_own_file_is_damaged_is_reported_run_by_run(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    (path / "suite.json").write_text("{")
    report = load([path])
    assert [result.task for result in report.results] == ["gelu", "relu"]
    assert "suite.json" in report.problems[0].what


def test_a_run_of_a_suite_that_is_named_too_is_read_once(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    for paths in ([path / "gelu_fp32", path], [path, path / "gelu_fp32"]):
        assert [result.name for result in load(paths).results] == ["gelu_fp32", "relu_fp32"]


def test_a_damaged_run_of_a_suite_is_missing(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    (path / "relu_fp32" / "run.json").unlink()
    report = load([path])
    assert [result.task for result in report.results] == ["gelu"]
    assert [one.task for one in report.missing] == ["relu"]
    assert any("run.json is missing" in problem.what for problem in report.problems)
