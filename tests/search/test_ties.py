"""A modelled score that is barely above the best so far is a tie, and no new best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scripted_contrast import step
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, command, kernel, plan, submission

from cudamaster.core.records import from_json, to_json
from cudamaster.core.values import Candidate, GpuModel, Modelled, Verdict
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings
from cudamaster.strategies import registry
from cudamaster.strategies.result import Result

FOUR_AGENTS = ("cudamaster", "beam", "mapelites", "bandit")
ROUND = {
    **{name: lambda score: [plan("an idea"), code(kernel(score=score)), command()] for name in FOUR_AGENTS},
    "sample": lambda score: [code(kernel(score=score))],
    "cudaforge": lambda score: [code(kernel(score=score))],
    "contrastive": lambda score: step("an idea", score),
    "agent": lambda score: [submission(kernel(score=score))],
}


class ModelledBench(ScriptedWorkbench):
    """Its times are those of a model of a GPU."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The verdict, modelled."""
        verdict = super().evaluate(candidate, to_beat=to_beat)
        cases = tuple(replace(case, modelled=Modelled(2.0, 1.0, 1.0, 0.5, "latency")) for case in verdict.cases)
        return replace(verdict, cases=cases, modelled=GpuModel("v6", "H200"))


def test_all_strategies_are_held_to_it() -> None:
    """A new one has to be among those that are tried here."""
    assert ROUND.keys() == registry.STRATEGIES.keys()


def run(path: Path, bench: ScriptedWorkbench, strategy: str, scores: list[float], tie: float = 0.01) -> Result:
    """A search whose rounds have those scores."""
    roles = dict.fromkeys(registry.find(strategy).roles, "scripted")
    model = ScriptedModel([step for score in scores for step in ROUND[strategy](score)])
    settings = Settings(strategy, len(scores), 0, "stand-in", roles, tie=tie)
    result = optimize(path, bench, model.for_all(), settings)
    assert resume(path, bench, ScriptedModel([]).for_all()) == result, "a resumed run goes by the same rule"
    return result


@pytest.mark.parametrize("strategy", ROUND)
def test_a_modelled_tie_is_no_new_best(tmp_path: Path, strategy: str) -> None:
    """It was once announced with P = 1.00, as a kernel that beats the baseline."""
    result = run(tmp_path / "run", ModelledBench(), strategy, [1.0004])
    assert not result.improved
    assert result.score == 1.0
    outcome = result.rounds[0].outcome
    assert not outcome.accepted
    assert outcome.detail == (
        "speedup 1.000, where the best so far has 1.000: a tie, since the model cannot tell differences below 1%"
    )


def test_a_modelled_gain_is_one(tmp_path: Path) -> None:
    """Beside the baseline and beside the best so far."""
    result = run(tmp_path / "run", ModelledBench(), "sample", [1.2, 1.205, 1.3])
    assert [done.outcome.accepted for done in result.rounds] == [True, False, True]


def test_a_measured_score_is_held_to_its_own_rule(tmp_path: Path) -> None:
    """Its noise has its own say; nothing is rounded away here."""
    assert run(tmp_path / "run", ScriptedWorkbench(), "sample", [1.0004]).improved


def test_a_run_of_before_has_no_ties(tmp_path: Path) -> None:
    """A new best stays one when the run is read or resumed, because later prompts were about that kernel."""
    settings = to_json(Settings("sample", 1, 0, "stand-in", {}, tie=0.01))
    del settings["tie"]
    assert from_json(Settings, settings).tie == 0.0
    assert run(tmp_path / "run", ModelledBench(), "sample", [1.0004], tie=0.0).improved
