"""Holds saved reports to be read back in full, with nothing counted twice."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import kept_of, run, runs

from cudamaster.report.data import RunProgress
from cudamaster.report.export import as_json
from cudamaster.report.loading import load


def test_a_saved_report_is_read_back_in_full(tmp_path: Path) -> None:
    """Everything but when it was made and of what comes back, so that pages can be made where the runs are no more."""
    folder = runs(tmp_path / "runs", {"gelu": (2.0, 3.0), "relu": ("wrong", 0.5)})
    shutil.copytree(folder / "gelu", folder / "gelu again")  # another run that began in the same second
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    report = load([folder])
    (tmp_path / "saved.json").write_text(json.dumps(as_json(report)))
    again = load([tmp_path / "saved.json"])
    assert replace(again, made=report.made, sources=report.sources) == report
    assert as_json(again)["groups"] == as_json(report)["groups"]


def test_a_report_beside_what_it_was_made_of_counts_nothing_twice(tmp_path: Path) -> None:
    """Also beside folders that were kept of the same runs; two runs are two, though they began in one second."""
    folder = runs(tmp_path / "all" / "runs", {"gelu": (2.0,), "relu": (3.0,)})
    report = load([folder])
    (tmp_path / "all" / "report.json").write_text(json.dumps(as_json(report)))
    kept_of(folder / "gelu", tmp_path / "all" / "kept", form=1)
    for paths in ([tmp_path / "all"], [folder, tmp_path / "all"], [tmp_path / "all" / "report.json", folder]):
        assert [result.task for result in load(paths).results] == ["gelu", "relu"], paths
    (tmp_path / "all" / "report.json").write_text("")  # while a shell fills it with this report
    assert load([tmp_path / "all"]).problems == ()
    shutil.copytree(folder / "gelu", folder / "gelu again")
    assert [result.repetition for result in load([folder]).results] == [1, 2, 1]


def test_a_run_goes_before_what_was_reported_of_it_earlier(tmp_path: Path) -> None:
    """A report of a run that was partial then counts no more when the run is there, finished."""
    path = run(tmp_path / "run", outcomes=(2.0, 3.0))
    report = load([path])
    earlier = replace(report.results[0], score=2.0, progress=RunProgress.STOPPED)
    (tmp_path / "report.json").write_text(json.dumps(as_json(replace(report, results=(earlier,)))))
    (result,) = load([tmp_path]).results
    assert (result.progress, result.score) == (RunProgress.FINISHED, pytest.approx(3.0, rel=0.01))


def test_a_saved_report_of_another_format_is_named(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", {"gelu": (2.0,)})
    raw = as_json(load([folder]))
    for wrong, words in (({**raw, "format": 99}, "format 99"), ({**raw, "made": 3}, "Report.made")):
        (folder / "report.json").write_text(json.dumps(wrong))
        report = load([folder])
        assert [result.task for result in report.results] == ["gelu"]
        assert [words in problem.what for problem in report.problems] == [True]
