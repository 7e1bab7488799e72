"""Holds strategies/cudamaster.py to algorithm 1 of the paper, with scripted models and verdicts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import search_stand_ins
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan

from cudamaster.agents.asking import ReplyMisfit
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import Candidate, Role, Status
from cudamaster.runs.optimization import optimize as recorded
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import NAME, ROLES
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result, Round


def search(
    script: list[tuple[Role, str]], rounds: int = 1, debug_tries: int = 0
) -> tuple[Result, ScriptedModel, ScriptedWorkbench]:
    bench, model = ScriptedWorkbench(), ScriptedModel(script)
    result = search_stand_ins.search(bench, model.for_all(), NAME, rounds, debug_tries)
    assert model.exhausted, "the algorithm asked less than it should have"
    return result, model, bench


def test_one_round_without_debugging_asks_three_agents_once() -> None:
    """R=1, D=0 (the paper's Single Run): baseline, one plan, one kernel, one verdict."""
    result, model, bench = search([plan("A"), code(kernel(score=2.0, tag="a")), command()])
    assert [request.role for request in model.requests] == [Role.PLANNER, Role.CODER, Role.COMPILER]
    assert bench.evaluated == [bench.baseline.id, result.best.id]
    assert (result.score, result.improved) == (2.0, True)
    assert result.rounds[0].outcome.accepted


def test_without_debug_tries_a_failing_kernel_ends_its_round() -> None:
    """D=0: no Debug agent is asked, whatever the failure."""
    script = [plan("A"), code(kernel("wrong", tag="a")), command()]
    result, model, _ = search(script)
    assert Role.DEBUG not in {request.role for request in model.requests}
    assert not result.improved
    assert result.score == 1.0
    assert result.rounds[0].outcome.status is Status.WRONG


def test_the_best_moves_only_for_a_correct_and_faster_kernel() -> None:
    """Line 20: correct and P > P*; findings are computed for a new best and for no other."""
    script = [
        plan("A"), code(kernel(score=2.0, tag="a")), command(),
        plan("B"), code(kernel(score=1.5, tag="b")), command(),
        plan("C"), code(kernel(score=3.0, tag="c")), command(),
    ]  # fmt: skip
    result, model, bench = search(script, rounds=3)
    assert [r.outcome.accepted for r in result.rounds] == [True, False, True]
    assert [r.best_score for r in result.rounds] == [2.0, 2.0, 3.0]
    assert len(bench.profiled) == 3  # baseline, A, C
    assert "// correct 2.0 a" in model.prompts(Role.PLANNER)[2], "B was refused, so C starts from A"
    assert "// correct 2.0 a" in model.prompts(Role.CODER)[2]


def test_a_baseline_that_measures_above_one_does_not_raise_the_bar() -> None:
    """Line 2: P* starts at 1.0, not at what noise made of the baseline against itself (1.01 here)."""
    result, _, _ = search([plan("A"), code(kernel(score=1.005, tag="a")), command()])
    assert result.improved


@pytest.mark.parametrize("score", [None, math.nan, 1.0, 0.5])
def test_no_better_score_is_refused(score: float | None) -> None:
    """A score that is absent, NaN, equal or lower is no improvement, and the plan is marked as failed."""
    result, _, _ = search([plan("A"), code(kernel(score=score, tag="a")), command()])
    assert not result.improved
    assert not result.rounds[0].outcome.accepted


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CORRECT])
def test_a_failing_kernel_is_refused_whatever_its_score(status: Status) -> None:
    """Line 20 asks for both: a workbench that scores a failing kernel does not get it accepted."""
    result, _, _ = search([plan("A"), code(kernel(status, 9.0, tag="a")), command()])
    assert not result.improved
    assert result.rounds[0].outcome.status is status


def test_a_failed_plan_is_shown_as_failed_to_the_next_planner() -> None:
    """Line 24: the scheme is marked invalid, with its reason, and the accepted one is marked as such."""
    script = [
        plan("Broken idea"), code(kernel("fault", tag="a")), command(),
        plan("Slow idea"), code(kernel(score=0.5, tag="b")), command(),
        plan("Good idea"), code(kernel(score=2.0, tag="c")), command(),
        plan("Last"), code(kernel(score=0.1, tag="d")), command(),
    ]  # fmt: skip
    _, model, _ = search(script, rounds=4)
    first, second, _, last = model.prompts(Role.PLANNER)
    assert "Broken idea" not in first
    assert "FAILED, fault: Broken idea" in second
    assert "DETAIL a" in second
    assert "FAILED, correct but no faster than the best (speedup 0.500): Slow idea" in last
    assert "ACCEPTED, speedup 2.000: Good idea" in last
    assert model.requests[-3].facts["tried"] == ("Broken idea", "Slow idea", "Good idea")


def test_each_debug_try_starts_from_the_code_of_the_try_before() -> None:
    """Lines 9 to 18, with the failing kernel and its log in place of C*: the chain a -> b -> c."""
    script = [
        plan("A"), code(kernel("compile_error", tag="a")), command(),
        fix("one"), code(kernel("wrong", tag="b")), command(),
        fix("two"), code(kernel(score=2.0, tag="c")), command(),
    ]  # fmt: skip
    result, model, _ = search(script, debug_tries=3)
    debug_one, debug_two = model.prompts(Role.DEBUG)
    assert "// compile_error - a" in debug_one
    assert "LOG of a" in debug_one
    assert "// wrong - b" in debug_two
    assert "LOG of b" in debug_two
    assert "LOG of a" not in debug_two
    assert "FIX one" in debug_two, "what did not help is not proposed again"
    _, coder_one, coder_two = model.prompts(Role.CODER)
    assert "// compile_error - a" in coder_one
    assert "FIX one" in coder_one
    assert "// wrong - b" in coder_two
    assert "FIX two" in coder_two
    assert "compile_error" not in coder_two
    assert result.improved
    assert [a.debug_try for a in result.rounds[0].attempts] == [0, 1, 2]


def test_debugging_stops_after_d_tries() -> None:
    """D=2 and a kernel that never works: two tries, then the plan is invalid."""
    script = [plan("A"), code(kernel("wrong", tag="a")), command()]
    for tag in ("b", "c"):
        script += [fix(tag), code(kernel("wrong", tag=tag)), command()]
    result, _, _ = search(script, debug_tries=2)
    assert len(result.rounds[0].attempts) == 3
    assert not result.improved


def test_a_mended_kernel_that_is_slow_is_not_debugged_further() -> None:
    """Debugging is for correctness: a correct, slow kernel leaves the loop and is refused."""
    script = [
        plan("A"), code(kernel("wrong", tag="a")), command(),
        fix("one"), code(kernel(score=0.9, tag="b")), command(),
    ]  # fmt: skip
    result, _, _ = search(script, debug_tries=3)
    assert result.rounds[0].outcome.status is Status.CORRECT
    assert not result.rounds[0].outcome.accepted


def test_a_debug_agent_without_a_fix_ends_the_round() -> None:
    """An empty fix is a legal answer, and no try is spent on it."""
    script = [plan("A"), code(kernel("wrong", tag="a")), command(), (Role.DEBUG, '{"diagnosis": "x", "fix": ""}')]
    result, _, _ = search(script, debug_tries=3)
    assert result.rounds[0].outcome.status is Status.WRONG


def test_a_planner_without_ideas_ends_the_search_with_a_note() -> None:
    script = [plan("A"), code(kernel(score=2.0, tag="a")), command(), (Role.PLANNER, '{"idea": "", "plan": ""}')]
    result, _, _ = search(script, rounds=3)
    assert len(result.rounds) == 1
    assert result.note == "The planner has no further idea after 1 of 3 rounds."


def test_a_misfit_is_asked_again_once_with_the_reason() -> None:
    """The second request holds the first reply and what is wrong with it; then the round goes on."""
    script = [(Role.PLANNER, '{"idea": "A", "steps": []}'), plan("A"), code(kernel(score=2.0, tag="a")), command()]
    result, model, _ = search(script)
    again = model.requests[1].messages
    assert [m.role for m in again] == ["system", "user", "assistant", "user"]
    assert "steps: Extra inputs are not permitted" in again[-1].content
    assert "plan: Field required" in again[-1].content
    assert result.improved


@pytest.mark.parametrize(
    "script",
    [
        [(Role.PLANNER, "no"), (Role.PLANNER, "no")],
        [plan("A"), (Role.CODER, "no"), (Role.CODER, "```cuda\ncut off")],
        [plan("A"), code(kernel("wrong", tag="a")), command(), (Role.DEBUG, "no"), (Role.DEBUG, "{}")],
    ],
    ids=["planner", "coder", "debug"],
)
def test_a_second_misfit_fails_the_round_and_the_search_goes_on(script: list[tuple[Role, str]]) -> None:
    """A round lost to a role that cannot answer is REJECTED, and the next planner sees why."""
    script = [*script, plan("B"), code(kernel(score=2.0, tag="b")), command()]
    result, model, _ = search(script, rounds=2, debug_tries=1)
    outcome = result.rounds[0].outcome
    assert (outcome.status, outcome.accepted) == (Status.REJECTED, False)
    assert "answered twice in no usable form" in outcome.detail
    assert "answered twice in no usable form" in model.prompts(Role.PLANNER)[-1]
    assert result.improved


def test_a_compiler_without_a_usable_reply_costs_its_command_and_no_round(tmp_path: Path) -> None:
    """The default command builds the code, of a debug try too; an observer and a reader of the run see that."""
    useless = [(Role.COMPILER, "gcc"), (Role.COMPILER, "make it")]
    chosen = COMMAND.replace("-O3", "-O2")
    script = [plan("A"), code(kernel("wrong", tag="a")), *useless, fix("f"), code(kernel(score=2.0, tag="b")), *useless,
              plan("B"), code(kernel(score=3.0, tag="c")), command(chosen)]  # fmt: skip
    seen: list[str] = []

    class Watcher(Observer):
        def without_command(self, number: int, misfit: ReplyMisfit) -> None:
            seen.append(f"{number}: {misfit}")

        def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
            seen.append(candidate.command)

    settings = Settings(NAME, 2, 1, "stand-in", dict.fromkeys(ROLES, "scripted"))
    model = ScriptedModel(script)
    result = recorded(tmp_path / "run", ScriptedWorkbench(), model.for_all(), settings, Watcher())
    assert model.exhausted
    told = "1: The compiler (scripted) answered twice in no usable form: there is no line that starts with `nvcc`."
    assert seen == [told, COMMAND, told, COMMAND, chosen]
    assert [round.outcome.accepted for round in result.rounds] == [True, True]
    first, second = read(tmp_path / "run").rounds
    reason = "there is no line that starts with `nvcc`."
    assert [call.refused for call in first.calls if call.role is Role.COMPILER] == [
        reason, f"{reason} The default command was taken.", reason, f"{reason} The default command was taken."
    ]  # fmt: skip
    assert [attempt.command for attempt in first.attempts] == [COMMAND, COMMAND]
    assert not [call for call in second.calls if call.refused]


def test_usage_is_summed_per_role() -> None:
    script = [plan("A"), code(kernel("wrong")), command(), fix("x"), code(kernel("wrong", tag="x")), command()]
    result, _, _ = search(script, debug_tries=1)
    usage = result.usage
    assert {role: use.calls for role, use in usage.items()} == {
        Role.PLANNER: 1,
        Role.CODER: 2,
        Role.COMPILER: 2,
        Role.DEBUG: 1,
    }
    assert usage[Role.CODER].prompt_tokens == 20
    assert usage[Role.CODER].dollars == 0.5


def test_the_observer_sees_every_step_in_order() -> None:
    seen: list[str] = []

    class Watcher(Observer):
        def round_started(self, number: int, rounds: int) -> None:
            seen.append(f"round {number}/{rounds}")

        def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
            seen.append(f"written {debug_try}")

        def round_ended(self, finished: Round) -> None:
            seen.append("accepted" if finished.outcome.accepted else "refused")

    model = ScriptedModel(
        [plan("A"), code(kernel("wrong", tag="a")), command(), fix("f"), code(kernel(score=2.0)), command()]
    )
    search_stand_ins.search(ScriptedWorkbench(), model.for_all(), NAME, 1, 1, Watcher())
    assert seen == ["round 1/1", "written 0", "written 1", "accepted"]


def test_a_failing_baseline_is_our_fault_and_no_verdict() -> None:
    bench = ScriptedWorkbench()
    bench.baseline = Candidate("double_it", bench.precision, kernel("wrong", tag="base"), "nvcc -c x.cu")
    with pytest.raises(DeviceError, match="baseline of double_it"):
        search_stand_ins.search(bench, ScriptedModel([]).for_all(), NAME, 1, 0)


@pytest.mark.parametrize(("rounds", "tries"), [(0, 3), (-1, 0), (3, -1)])
def test_counts_that_make_no_search_are_refused(rounds: int, tries: int) -> None:
    with pytest.raises(UsageError):
        search_stand_ins.search(ScriptedWorkbench(), ScriptedModel([]).for_all(), NAME, rounds, tries)


def test_a_device_without_profiler_and_with_emulated_times_says_so_in_the_prompt() -> None:
    _, model, _ = search([plan("A"), code(kernel(score=2.0)), command()])
    text = model.requests[0].messages[0].content + model.requests[0].messages[1].content
    assert "There is no hardware profile: no profiler here" in text
    assert "Times are emulated" in text
    assert "Weighted speedup over the baseline: 1.010 (emulated)" in text
    assert "Medians of whole calls in µs (emulated)" in text
