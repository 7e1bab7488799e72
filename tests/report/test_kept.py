"""Holds the reading of folders kept on purpose, and of other formats, to what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_runs import kept_of, only, run

from cudamaster.core import speed
from cudamaster.core.values import Bottleneck, Candidate
from cudamaster.report.data import RunProgress
from cudamaster.report.loading import load

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "tests" / "kept"  # results of an H200 in format 1


def test_the_kept_results_of_an_older_format(tmp_path: Path) -> None:
    """Each is reported with its P computed from its raw timings, and called older."""
    report = load([KEPT])
    there = {path.parent.name for path in KEPT.glob("*/verdict.json")}
    assert {result.name for result in report.results if result.source == "kept"} <= there
    for result in report.results:
        raw = json.loads((Path(result.origin) / "verdict.json").read_text())
        timed = [
            (case["weight"], case["timing"]["baseline_us"], case["timing"]["candidate_us"])
            for case in raw["cases"]
            if case["sweep"]
        ]
        assert result.speed == speed.overall(timed)
        assert len(result.cases) == len(timed)
        assert result.best is not None
        found = Candidate(result.task, result.precision, result.best.code, result.best.command)
        assert found.id == raw["candidate"]


def test_an_older_format_is_one_clear_word(tmp_path: Path) -> None:
    """A kept folder of format 1, made of a run of today, is read, marked older, and its costs are unknown."""
    path = kept_of(run(tmp_path / "run"), tmp_path / "kept", form=1)
    result = only(path)
    assert result.source == "kept"
    assert [remark.partition(":")[0] for remark in result.remarks] == ["older"]
    assert result.score == pytest.approx(3.0, rel=0.01)
    assert (result.cost.dollars, result.cost.tokens, result.cost.minutes) == (None, None, None)
    assert result.after is not None
    assert result.after.bottleneck is Bottleneck.BANDWIDTH


def test_a_run_folder_of_an_older_format_is_read_too(tmp_path: Path) -> None:
    """As far as its best kernel tells."""
    path = run(tmp_path / "run")
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "format": 3}))
    result = only(path)
    assert result.source == "run"
    assert [remark.partition(":")[0] for remark in result.remarks] == ["older"]
    assert (result.progress, result.score) == (RunProgress.FINISHED, pytest.approx(3.0, rel=0.01))


def test_a_newer_format_is_called_newer(tmp_path: Path) -> None:
    path = kept_of(run(tmp_path / "run"), tmp_path / "kept", form=99)
    assert only(path).remarks[0].startswith("newer:")


def test_a_kept_baseline_is_no_success(tmp_path: Path) -> None:
    path = kept_of(run(tmp_path / "run", outcomes=("wrong",)), tmp_path / "kept", form=1)
    assert (only(path).correct, only(path).score) == (False, None)
