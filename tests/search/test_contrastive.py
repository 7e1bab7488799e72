"""Holds the rounds of the contrastive strategy to section 2.4 of the CUDA-L1 paper, and its replies to three parts."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from scripted_contrast import search, step
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, kernel

from cudamaster.agents.asking import Misfit
from cudamaster.agents.replies import sections
from cudamaster.core.values import Plan, Role, Status
from cudamaster.runs import optimization, reading
from cudamaster.runs.record import Settings as RunSettings
from cudamaster.strategies.contrastive import NAME, Options


@pytest.mark.parametrize(
    "text",
    [
        "## Analysis\na\n## Algorithm\nb\n## Code\nc",
        "Here you are.\n\n### I) Performance analysis\n\na\n\n### II) Algorithm Design:\n\nb\n\n### III) Code\n\nc",
        "**1. Analysis**\na\n**Algorithm:**\nb\n__Code__\nc",
        "<think>## Analysis\nnot yet</think>## Analysis\na\n## Algorithm\nb\n## Code\nc",
        "# analysis\na\n# algorithm\nb\n# code\nc",
        "    ## Analysis\n\n    a\n\n    ## Algorithm\n    b\n    ## Code\nc",
    ],
)
def test_parts_are_found_under_their_headings(text: str) -> None:
    assert sections(text, "Analysis", "Algorithm", "Code") == ["a", "b", "c"]


def test_no_heading_is_looked_for_in_a_fence_or_out_of_turn() -> None:
    text = "## Analysis\n### Code of kernel 2\n```\n# Algorithm\n```\n## Algorithm\nb\n## Code\n### Analysis\nc"
    analysis, algorithm, rest = sections(text, "Analysis", "Algorithm", "Code")
    assert analysis.endswith("# Algorithm\n```")
    assert (algorithm, rest) == ("b", "### Analysis\nc")


@pytest.mark.parametrize(
    ("text", "missing"),
    [("no parts", "Analysis"), ("## Analysis\na\n## Code\nc", "Algorithm"), ("## Analysis\na\n## Algorithm", "Code")],
)
def test_a_missing_part_is_named(text: str, missing: str) -> None:
    with pytest.raises(Misfit, match=f'"## {missing}"'):
        sections(text, "Analysis", "Algorithm", "Code")


def test_the_first_round_shows_the_baseline_alone() -> None:
    """Its score is 1 by definition, not what noise made of it (1.01 here); nothing else is there to compare with."""
    result, model, bench = search(step("A", 2.0), 1)
    (prompt,) = model.prompts(Role.CODER)
    assert "score 1, the baseline itself" in prompt
    assert prompt.count("### Kernel") == 1
    assert model.requests[0].facts["exemplars"] == (f"{bench.baseline.id} 1.0",)
    assert (result.score, result.improved) == (2.0, True)


def test_one_kernel_a_round_and_no_debugging() -> None:
    """The Coder and the Compiler are asked, once each, also after a failure."""
    script = [*step("A", status="wrong"), *step("B", 1.5)]
    result, model, _ = search(script, 2)
    assert [request.role for request in model.requests] == [Role.CODER, Role.COMPILER] * 2
    assert [r.outcome.status for r in result.rounds] == [Status.WRONG, Status.CORRECT]


def test_a_later_round_shows_kernels_with_their_scores() -> None:
    """A correct kernel that is slower than the best is an exemplar too: there is something to learn from it."""
    script = [*step("A", 0.5), *step("B", 2.0)]
    _, model, bench = search(script, 2)
    prompt = model.prompts(Role.CODER)[1]
    assert "### Kernel 1: score 0.500 (emulated)" in prompt
    assert "// correct 0.5 A" in prompt
    assert "### Kernel 2: score 1, the baseline itself" in prompt
    assert bench.baseline.code.rstrip() in prompt
    assert prompt.count("| N=8 | 100 % |") == 1, "each case of a kernel with its speedup; the baseline has none"
    assert COMMAND in prompt


def test_the_code_is_built_with_the_plan_of_the_reply() -> None:
    result, model, _ = search(step("Wider loads", 2.0), 1)
    assert result.rounds[0].outcome.plan == Plan("Wider loads", "1. POINTS of Wider loads")
    assert 'written for "Wider loads"' in model.prompts(Role.COMPILER)[0]


def test_a_compiler_without_a_usable_reply_costs_no_round() -> None:
    reply = step("A", 2.0)[0]
    result, _, _ = search([reply, (Role.COMPILER, "gcc"), (Role.COMPILER, "make it")], 1)
    assert (result.score, result.best.command) == (2.0, COMMAND)


def test_a_reader_is_told_all_three_parts_of_a_reply(tmp_path: Path) -> None:
    """What explains the scores, what is done about it, and the code; the Compiler hears nothing of the first."""
    model = ScriptedModel(step("A", 2.0))
    roles = (Role.CODER, Role.COMPILER)
    settings = RunSettings(NAME, 1, 0, "cpu", dict.fromkeys(roles, "scripted"), options=dataclasses.asdict(Options()))
    optimization.optimize(tmp_path / "run", ScriptedWorkbench(), dict.fromkeys(roles, model), settings)
    (told,) = reading.read(tmp_path / "run").rounds
    assert told.plan == Plan("A", "WHY of A\n\n1. POINTS of A")
    assert told.attempts[0].diff
    assert "WHY" not in model.prompts(Role.COMPILER)[0]


@pytest.mark.parametrize("status", ["wrong", "compile_error", "fault", "timeout"])
def test_a_failing_kernel_is_kept_in_the_record_and_shown_to_nobody(status: str) -> None:
    result, model, _ = search([*step("A", status=status), *step("B", 2.0)], 2)
    assert "A" not in [line.split()[-1] for line in model.prompts(Role.CODER)[1].splitlines() if line.startswith("// ")]
    assert result.rounds[0].attempts[0].status is Status(status)
    assert result.rounds[0].outcome.detail == "DETAIL A"


def test_a_kernel_that_a_reviewer_calls_a_trick_is_no_exemplar(tmp_path: Path) -> None:
    """A score that is not trusted is not shown: the next round sees only the baseline."""
    hack = json.dumps({"verdict": "hack", "case": "caching", "reason": "it keeps its result"})
    model = ScriptedModel([*step("A", 50.0), (Role.REVIEWER, hack), *step("B", 1.5)])
    roles = (Role.CODER, Role.COMPILER, Role.REVIEWER)
    settings = RunSettings(NAME, 2, 0, "cpu", dict.fromkeys(roles, "scripted"), options=dataclasses.asdict(Options()))
    result = optimization.optimize(tmp_path / "run", ScriptedWorkbench(), dict.fromkeys(roles, model), settings)
    assert result.score == 1.5
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.CORRECT]
    assert model.prompts(Role.CODER)[1].count("### Kernel") == 1


@pytest.mark.parametrize("score", [None, math.nan])
def test_a_kernel_without_a_score_is_no_exemplar_and_no_best(score: float | None) -> None:
    result, model, _ = search([*step("A", score), *step("B", 2.0)], 2)
    assert model.prompts(Role.CODER)[1].count("### Kernel") == 1
    assert [r.outcome.accepted for r in result.rounds] == [False, True]


def test_the_best_moves_only_for_a_faster_kernel() -> None:
    """Findings are computed only for a new best."""
    result, _, bench = search([*step("A", 2.0), *step("B", 1.5), *step("C", 3.0)], 3)
    assert [r.outcome.accepted for r in result.rounds] == [True, False, True]
    assert [r.best_score for r in result.rounds] == [2.0, 2.0, 3.0]
    assert result.rounds[1].outcome.detail == "speedup 1.500, where the best so far has 2.000"
    assert len(bench.profiled) == 3


def test_a_reply_out_of_form_is_asked_again_and_then_costs_its_round() -> None:
    """The second chance says what is missing; after it the round is lost and the search goes on."""
    bad = code(kernel(score=9.0, tag="a"))  # a kernel without its analysis
    result, model, _ = search([bad, bad, bad, *step("B", 2.0)], 2)
    assert 'no part under the heading "## Analysis"' in model.requests[1].messages[-1].content
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.CORRECT]
    assert result.rounds[0].attempts == ()
    assert result.score == 2.0


def test_an_analysis_cannot_be_left_out() -> None:
    empty = (Role.CODER, f"## Analysis\n\n## Algorithm\nA\n## Code\n```cuda\n{kernel(score=2.0)}```\n")
    result, _, _ = search([empty, empty], 1)
    assert 'the part under "Analysis" is empty' in result.rounds[0].outcome.detail
