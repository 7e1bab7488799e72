"""Holds the registry of strategies, and the options by which the command line picks and sets one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel

from cudamaster.cli import main
from cudamaster.errors import RunFolderError, UsageError
from cudamaster.optimization import optimize
from cudamaster.reading import read
from cudamaster.runrecord import Settings, read_manifest
from cudamaster.strategies import registry
from cudamaster.values import Role


def command(*words: str) -> Result:
    return CliRunner().invoke(main, ["optimize", "dot_product", "--device", "cpu", *words])


@pytest.mark.parametrize("name", registry.STRATEGIES)
def test_a_strategy_is_found_by_its_name_with_defaults_that_hold(name: str) -> None:
    """Its default options make sense, are what a run folder can hold, and come back as they were."""
    strategy = registry.find(name)
    assert strategy.name == name
    assert Role.REVIEWER not in strategy.roles
    kept = registry.parse_options(strategy, [])
    assert {type(value) for value in kept.values()} <= {str, bool, int, float}
    assert registry.options_of(strategy, kept) == strategy.options()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "evolve"], "There is no strategy 'evolve'. Take one of cudamaster, cudaforge"),
        (["--strategy", "cudaforge", "-D", "3"], "The strategy cudaforge has no debug tries. Leave out -D."),
        (["--set", "judge=both"], "The strategy cudamaster has no option 'judge'. It has none of its own."),
        (["--strategy", "cudaforge", "--set", "jugde=both"], "no option 'jugde'. It has judge=both."),
        (["--strategy", "cudaforge", "--set", "judge"], "'judge' sets nothing. Write it as NAME=VALUE."),
        (["--strategy", "cudaforge", "--set", "judge=me"], "judge is 'me'. Take one of both, correction"),
        (["--strategy", "contrastive", "--set", "islands=two"], "islands is 'two', which is no whole number."),
        (["--strategy", "contrastive", "--set", "temperature=warm"], "temperature is 'warm', which is no number."),
        (["--jump-factor", "0.5"], "A jump by a factor of 0.5 is none."),
        (["--strategy", "sample", "--debug-model", "x/y"], "asks no debug agent: it asks coder. Leave --debug-model"),
        (["--base-url", "http://localhost:1/v1"], "Name one with --model, e.g. openai/NAME, or leave --base-url out."),
        (["--max-tokens", "nan"], "nan is no number."),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_run(words: list[str], said: str, tmp_path: Path) -> None:
    ran = command(*words, "--out", str(tmp_path / "runs"))
    assert ran.exit_code == UsageError.exit_code
    assert said in ran.output
    assert not (tmp_path / "runs").exists()


def test_values_are_read_as_their_defaults_are() -> None:
    """Text, numbers and truth values; a hyphen in a name is as good as an underscore."""
    strategy = registry.find("contrastive")
    kept = registry.parse_options(strategy, ["islands=3", "temperature=2", "bucket-ratio=1.5"])
    assert (kept["islands"], kept["temperature"], kept["bucket_ratio"]) == (3, 2.0, 1.5)
    assert isinstance(kept["temperature"], float)


def test_a_run_keeps_its_strategy_and_its_options(tmp_path: Path) -> None:
    options = registry.parse_options(registry.find("cudaforge"), ["judge=none"])
    settings = Settings("cudaforge", 1, 0, "stand-in", dict.fromkeys((Role.CODER, Role.JUDGE), "scripted"),
                        options=options, search_seed=5)  # fmt: skip
    model = ScriptedModel([code(kernel(score=1.5, tag="a"))])
    optimize(tmp_path / "run", ScriptedWorkbench(), model.for_all(), settings)
    assert read_manifest(tmp_path / "run").settings == settings
    assert read(tmp_path / "run").search == "cudaforge, R = 1, judge = none"


def test_a_run_of_a_strategy_that_is_not_known_is_not_started_and_not_read(tmp_path: Path) -> None:
    settings = Settings("evolve", 1, 0, "stand-in", {Role.CODER: "scripted"})
    with pytest.raises(UsageError, match="no strategy 'evolve'"):
        optimize(tmp_path / "run", ScriptedWorkbench(), ScriptedModel([]).for_all(), settings)
    assert not (tmp_path / "run").exists()


def test_a_run_of_a_strategy_that_is_gone_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("sample", 1, 0, "stand-in", {Role.CODER: "scripted"})
    model = ScriptedModel([code(kernel(score=1.5, tag="a"))])
    optimize(tmp_path / "run", ScriptedWorkbench(), model.for_all(), settings)
    monkeypatch.delitem(registry.STRATEGIES, "sample")
    with pytest.raises(RunFolderError, match="a run of the strategy sample, which is not known here"):
        read(tmp_path / "run")
