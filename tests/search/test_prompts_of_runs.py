"""Holds `cudamaster prompt --run` to the very words that a run sent, as far as it got."""

from __future__ import annotations

import json
from pathlib import Path

from asked_prompts import shown
from search_stand_ins import RealTask, ScriptedModel, code, command, fix, kernel, plan

from cudamaster.core.values import Role
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings

SCRIPT = [
    plan("First"), code(kernel("wrong", tag="a")), command(),
    fix("one"), code(kernel("fault", tag="b")), command(),
    fix("two"), code(kernel(score=2.0, tag="c")), command(),
    plan("Second"), code(kernel(score=3.0, tag="d")), command(),
]  # fmt: skip


def run_of(path: Path, script: list[tuple[Role, str]], examples: int = 0) -> Path:
    """A run over `script`; where that ends early, the run is left as a kill would leave it."""
    model = ScriptedModel([(role, text.replace("double_it", "dot_product")) for role, text in script])
    roles = (Role.PLANNER, Role.CODER, Role.COMPILER, Role.DEBUG)
    settings = Settings("cudamaster", 2, 3, "cpu", dict.fromkeys(roles, "scripted"), examples=examples)
    try:
        optimize(path, RealTask(), model.for_all(), settings)
    except StopIteration:
        assert len(script) < len(SCRIPT)
    return path


def test_a_run_is_shown_as_it_stood(tmp_path: Path) -> None:
    """The last request of the role in the round, in the very words that were sent, found again without a model."""
    run = run_of(tmp_path / "run", SCRIPT)
    debug_said = shown("--run", run, "--role", "debug").stdout
    assert "// fault - b" in debug_said
    assert "FIX one" in debug_said
    assert f"exchange 7 of {run}, round 1, as it was sent" in debug_said
    first, second = (shown("--run", run, "--role", "planner", *more).stdout for more in (("--round", "1"), ()))
    assert "None yet." in first
    assert "ACCEPTED, speedup 2.000: First" in second
    stored = json.loads((run / "exchanges" / "0010_planner.json").read_text())
    assert (
        json.loads(shown("--run", run, "--role", "planner", "--json").stdout)["messages"]
        == stored["request"]["messages"]
    )
    missing = shown("--run", run, "--role", "debug", "--round", "2")
    assert missing.exit_code == 2
    assert "does not ask the debug agent in round 2" in missing.stderr
    assert "It is asked in round 1" in missing.stderr


def test_worked_examples_of_a_run_are_shown_too(tmp_path: Path) -> None:
    """They stand before the Coder's task, as they were sent."""
    run = run_of(tmp_path / "run", SCRIPT, examples=1)
    text = shown("--run", run, "--role", "coder").stdout
    assert "round 2, as it was sent" in text
    stored = json.loads((run / "exchanges" / "0011_coder.json").read_text())["request"]["messages"][1]["content"]
    assert not stored.startswith("## Task")
    assert stored in text


def test_a_run_that_was_stopped_is_shown_up_to_the_question_it_stopped_at(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCRIPT[:6])
    text = shown("--run", run, "--role", "debug").stdout
    assert "// fault - b" in text
    assert "round 1, not asked yet" in text
    gone = shown("--run", run, "--role", "planner", "--round", "2")
    assert "does not ask the planner agent in round 2 (The record" in gone.stderr


def test_a_run_that_was_stopped_while_it_judged_is_shown_up_to_there(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", SCRIPT[:6])
    verdicts = sorted((run / "verdicts").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    verdicts[-1].unlink()
    told = shown("--run", run, "--role", "compiler")
    assert told.exit_code == 0, told.stderr
    assert "as it was sent" in told.stdout
    gone = shown("--run", run, "--role", "debug", "--round", "2")
    assert "does not ask the debug agent in round 2 (The record" in gone.stderr
