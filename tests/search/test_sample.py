"""Holds strategies/sample.py to what a baseline of independent shots is: no shot sees anything of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel, search

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Role, Status
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings

SHOTS = [
    code(kernel(score=1.5, tag="a")),
    code(kernel("wrong", tag="b")),
    code(kernel(score=2.5, tag="c")),
    code(kernel(score=2.0, tag="d")),
]


def test_every_shot_is_asked_the_very_same_and_the_best_counts() -> None:
    """No feedback of any kind: the messages of all shots are equal, after a failure and after a success."""
    bench, model = ScriptedWorkbench(), ScriptedModel(SHOTS)
    result = search(bench, model.for_all(), "sample", 4)
    assert {request.role for request in model.requests} == {Role.CODER}
    assert len({request.messages for request in model.requests}) == 1
    assert result.score == 2.5
    assert [r.outcome.status for r in result.rounds] == [Status.CORRECT, Status.WRONG, Status.CORRECT, Status.CORRECT]
    assert [r.outcome.score for r in result.rounds] == [1.5, None, 2.5, 2.0], "every verdict is kept"
    assert len(bench.evaluated) == 5
    assert set(result.usage) == {Role.CODER}


def test_a_failing_shot_is_not_repaired() -> None:
    model = ScriptedModel([code(kernel("compile_error", tag="a"))])
    result = search(ScriptedWorkbench(), model.for_all(), "sample", 1)
    assert model.exhausted
    assert not result.improved


def test_the_prompt_holds_task_contract_baseline_and_device_and_no_profile() -> None:
    model = ScriptedModel(SHOTS[:1])
    search(ScriptedWorkbench(), model.for_all(), "sample", 1)
    text = "".join(message.content for message in model.requests[0].messages)
    for part in ("DESCRIPTION of double_it", "void double_it_optimized(float* out", "1.01 baseline", "Stand-in device"):
        assert part in text
    assert "NOTE" not in text, "findings are for the record alone"


def test_a_shot_out_of_form_is_lost_and_the_rest_go_on() -> None:
    model = ScriptedModel([(Role.CODER, "no"), (Role.CODER, "still no"), SHOTS[0]])
    result = search(ScriptedWorkbench(), model.for_all(), "sample", 2)
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.CORRECT]


def test_no_shots_are_refused() -> None:
    with pytest.raises(UsageError):
        search(ScriptedWorkbench(), ScriptedModel([]).for_all(), "sample", 0)


def test_equal_shots_are_judged_once(tmp_path: Path) -> None:
    """A model without chance gives one kernel; resumed and shown, the run is the same."""
    settings = Settings("sample", 3, 0, "stand-in", {Role.CODER: "scripted"})
    bench = ScriptedWorkbench()
    result = optimize(tmp_path / "run", bench, ScriptedModel([SHOTS[0]] * 3).for_all(), settings)
    assert len(bench.evaluated) == 2
    assert resume(tmp_path / "run", ScriptedWorkbench(), ScriptedModel([]).for_all()) == result
    summary = read(tmp_path / "run")
    assert [told.attempts[0].judged_before for told in summary.rounds] == [False, True, True]
    assert {told.attempts[0].written_from for told in summary.rounds} == {summary.baseline}
    assert summary.search == "sample, R = 3"
