"""A search by modelled times takes what is likely to be faster, says UNSURE of the rest, and offers it to a GPU."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel

from cudamaster.cli import main, optimize_output
from cudamaster.core import modelled
from cudamaster.core.likelihood import Errors, Makeup
from cudamaster.core.speed import Change
from cudamaster.core.values import Candidate, GpuModel, Modelled, Verdict
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings
from cudamaster.strategies.result import Result

# Two kernels that differ in 5 of 20 µs: nine of ten ratios within exp(0.025 + 0.125), eight of ten within half of that.
ERRORS = Errors(0.025, 0.5, 0.1, (0.8, 0.9, 0.99), (0.5, 1.0, 2.0))
BASELINE_US = 20.0


class ModelledBench(ScriptedWorkbench):
    """Half of the baseline's call is launching; a kernel of a score takes so much less of DRAM."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The verdict, modelled with errors."""
        verdict = super().evaluate(candidate, to_beat=to_beat)
        if verdict.score is None:
            return verdict
        model, us = GpuModel("v7", "H200", 1.8, errors=ERRORS), BASELINE_US / verdict.score
        base, own = (Makeup({"launches": 10.0, "DRAM": whole - 10.0}) for whole in (BASELINE_US, us))
        times = Modelled(BASELINE_US, us, BASELINE_US, us, "DRAM", base, own)
        cases = tuple(replace(case, timing=None, modelled=times) for case in verdict.cases)
        speed = modelled.of_cases([(case.weight, times) for case in cases], model)
        return replace(verdict, cases=cases, modelled=model, score=speed.speedup, speed=speed)


def run(path: Path, scores: list[float]) -> tuple[Result, str]:
    """A search whose rounds have those scores, and what it prints at its end."""
    model = ScriptedModel([code(kernel(score=score)) for score in scores])
    settings = Settings("sample", len(scores), 0, "cpu", {}, tie=0.01)
    settings = replace(settings, models=dict.fromkeys(model.for_all(), "scripted"))
    result = optimize(path, ModelledBench(), model.for_all(), settings)
    assert resume(path, ModelledBench(), ScriptedModel([]).for_all()) == result, "a resumed run says the same"
    out = StringIO()
    optimize_output.conclude(Console(file=out, width=200), result, path, settings)
    return result, out.getvalue()


def test_a_clear_gain_is_taken_and_a_close_one_is_unsure(tmp_path: Path) -> None:
    """1.6 is far from 1; 1.62 and 1.58 are not far from 1.6, and 1.1 is."""
    result, _ = run(tmp_path / "run", [1.6, 1.62, 1.1, 1.58])
    outcomes = [done.outcome for done in result.rounds]
    assert [one.accepted for one in outcomes] == [True, False, False, False]
    assert [one.unsure for one in outcomes] == [False, True, False, True]
    assert result.score == pytest.approx(1.6)
    assert [one.against and one.against.change for one in outcomes] == [
        Change.FASTER, Change.UNSURE, Change.SLOWER, Change.UNSURE,
    ]  # fmt: skip
    assert "UNSURE, 1.01 times as fast by the model" in outcomes[1].detail
    assert "a new best needs 90%" in outcomes[1].detail
    assert "likely slower, 0.69 times as fast" in outcomes[2].detail
    assert outcomes[0].interval is not None
    assert outcomes[0].interval.low < 1.6 < outcomes[0].interval.high


def test_what_only_a_gpu_can_tell_apart_is_offered_to_one(tmp_path: Path) -> None:
    """The best and at most two more, the likeliest first, each with the command."""
    result, said = run(tmp_path / "run", [1.6, 1.58, 1.62, 1.1, 1.55])
    assert [each.round for each in result.contenders] == [3, 2]
    told = said.partition("UNSURE: the model cannot tell these 3 kernels apart.")[2]
    assert told
    assert said.count("NVIDIA GPU") == said.count("cudamaster doctor") == 1, "the advice is given once"
    kernels = [result.best, *(each.candidate for each in result.contenders)]
    places = [told.index(f"candidates/{one.id}.cu") for one in kernels]
    assert places == sorted(places)
    assert told.count("cudamaster evaluate double_it ") == 3
    assert "round 1, the best so far: P = 1.60 (modelled) [" in told
    for one in kernels:
        assert (tmp_path / "run" / "candidates" / f"{one.id}.cu").is_file()


def test_where_nothing_is_likely_the_baseline_stays_and_the_gpu_is_asked(tmp_path: Path) -> None:
    result, said = run(tmp_path / "run", [1.02, 1.0])
    assert not result.improved
    assert len(result.contenders) == 2
    assert "UNSURE: the model cannot tell these kernels from the baseline." in said
    assert "(the baseline: nothing is likely to beat it, by the model)" in said
    assert "In brackets: the interval in which a GPU would measure P in 9 of 10 cases." in said


def test_the_run_says_so_when_it_is_read_back(tmp_path: Path) -> None:
    run(tmp_path / "run", [1.6, 1.58, 1.1])
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "run"), "--no-diff"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    table = shown.stdout.partition("Baseline:")[0]
    assert "taken" in table
    ends = [line.split()[-1] for line in table.splitlines() if line.strip()[:1] in ("1", "2", "3")]
    assert ends == ["yes", "UNSURE", "no"]


def test_a_search_that_is_sure_says_so(tmp_path: Path) -> None:
    result, said = run(tmp_path / "run", [1.2, 1.9])
    assert [done.outcome.accepted for done in result.rounds] == [True, True]
    assert not result.contenders
    assert "UNSURE" not in said
    assert "The model has this kernel ahead of all others." in said
