"""Holds `cudamaster show` to runs that did not end: shown as far as they got, and never as finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from search_stand_ins import kernel
from show_runs import BEST, MENDED, Bench, Page, page, run_of, show

from cudamaster.core.values import Candidate, Findings, Role, Verdict
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.reading import read
from cudamaster.runs.summary import RunState


@pytest.mark.parametrize(
    ("script", "stopped_at", "attempts"),
    [
        ([], "asking the planner agent (scripted)", []),
        (MENDED[:1], "asking the coder agent (scripted)", [0]),
        (MENDED[:2], "asking the compiler agent (scripted)", [0]),
        (MENDED[:3], "asking the debug agent (scripted)", [1]),
        (MENDED, "asking the planner agent (scripted)", [3, 0]),
    ],
)  # fmt: skip
def test_a_stopped_run_is_shown_as_far_as_it_got(
    tmp_path: Path, script: list[tuple[Role, str]], stopped_at: str, attempts: list[int]
) -> None:
    run = run_of(tmp_path / "run", script)
    summary = read(run)
    # The script of the stand-in ran out there, which is how its session ended.
    assert (summary.state, summary.stopped_at) == (RunState.STOPPED, f"{stopped_at}; StopIteration")
    assert [len(r.attempts) for r in summary.rounds] == (attempts or [0])
    assert summary.rounds[-1].accepted is None
    shown = show(run).stdout
    assert "Not finished: this is a run as far as it got." in shown
    assert shown.splitlines()[-1].endswith(f"optimize --resume {run}")
    text = Page(page(run, tmp_path / "page.html")).text
    assert "Not finished" in text
    assert stopped_at in text


class _Killed(Exception):
    pass


@pytest.mark.parametrize("when", ["evaluate", "findings", "baseline"])
def test_a_run_that_was_killed_over_a_candidate_says_so(tmp_path: Path, when: str) -> None:
    """While it was judged: there is code and no verdict. While it was profiled: a verdict, and no round's end."""

    class Dies(Bench):
        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            if when == "baseline" or (when == "evaluate" and candidate.id != self.baseline.id):
                raise _Killed
            return super().evaluate(candidate)

        def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
            if when == "findings" and candidate.id != self.baseline.id:
                raise _Killed
            return super().findings(candidate, verdict)

    with pytest.raises(_Killed):
        run_of(tmp_path / "run", BEST, Dies())
    summary = read(tmp_path / "run")
    assert summary.state is RunState.STOPPED
    assert summary.stopped_at is not None
    if when == "baseline":
        assert summary.rounds == ()
        assert (summary.best, summary.baseline_verdict) == (None, None)
    else:
        (attempt,) = summary.rounds[0].attempts
        assert attempt.candidate in summary.stopped_at
        assert (attempt.verdict is None) is (when == "evaluate")
        assert summary.best is not None
        assert not summary.best.improved
    assert show(tmp_path / "run").exit_code == 0
    assert "Not finished" in page(tmp_path / "run", tmp_path / "page.html")


def test_a_run_that_is_worked_on_is_said_to_run(tmp_path: Path) -> None:
    """Its lock is noticed but not taken, and reading does not need it."""
    run = run_of(tmp_path / "run", MENDED)
    with RunFolder.open(run):
        assert read(run).state is RunState.RUNNING
        assert "--resume" not in show(run).stdout
    assert read(run).state is RunState.STOPPED
    RunFolder.open(run).close()


def test_a_baseline_that_fails_is_the_end_of_its_run(tmp_path: Path) -> None:
    bench = Bench()
    bench.baseline = replace(bench.baseline, code=kernel("fault", tag="baseline"))
    with pytest.raises(Exception, match="does not pass"):
        run_of(tmp_path / "run", [], bench)
    shown = show(tmp_path / "run").stdout
    assert "does not pass on" in " ".join(shown.split())
    assert "LOG of baseline" in shown
    assert shown.splitlines()[-1].endswith("doctor")
