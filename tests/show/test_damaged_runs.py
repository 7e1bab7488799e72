"""Holds `cudamaster show` to naming what is damaged in a run, or that there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from show_runs import show

from cudamaster.core.errors import RunFolderError
from cudamaster.runs.reading import read
from cudamaster.runs.summary import RunState


def _first(folder: str, pattern: str) -> Callable[[Path], Path]:
    return lambda run: sorted((run / folder).glob(pattern))[0]


@pytest.mark.parametrize("remove", [False, True], ids=["cut", "removed"])
@pytest.mark.parametrize(
    "which",
    [
        lambda run: run / "run.json",
        _first("exchanges", "*.json"),
        _first("verdicts", "*.json"),
        _first("findings", "*.json"),
        _first("candidates", "*.cu"),
        _first("candidates", "*.command"),
    ],
    ids=["run.json", "exchange", "verdict", "findings", "candidate", "command"],
)
def test_a_damaged_run_is_named_with_its_file(finished: Path, which: Callable[[Path], Path], remove: bool) -> None:
    victim = which(finished)
    if remove:
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-20])
    result = show(finished)
    assert result.exit_code == RunFolderError.exit_code
    assert (str(finished) if victim.name == "run.json" else victim.stem.split("_")[0].lstrip("0")) in result.stderr
    assert result.stdout == ""


def test_a_changed_result_is_found(finished: Path) -> None:
    """summary.json has no hash of its own; it is held against what the record comes to."""
    summary = json.loads((finished / "summary.json").read_text())
    (finished / "summary.json").write_text(json.dumps({**summary, "score": 30.0}))
    with pytest.raises(RunFolderError, match=r"summary\.json does not say what the run came to"):
        read(finished)


def test_a_record_cut_short_is_no_killed_run_when_it_has_a_summary(finished: Path) -> None:
    (finished / "exchanges" / "0027_planner.json").unlink()
    with pytest.raises(RunFolderError, match=r"0027_planner\.json is missing, though the run went on"):
        read(finished)
    (finished / "summary.json").unlink()
    assert read(finished).state is RunState.STOPPED


def test_no_run_is_said_plainly(finished: Path, tmp_path: Path) -> None:
    """A folder of runs names the latest."""
    result = show(tmp_path)
    assert result.exit_code == RunFolderError.exit_code
    assert f"show {finished}" in result.stderr
    assert "There is no run in" in show(tmp_path / "elsewhere").stderr
