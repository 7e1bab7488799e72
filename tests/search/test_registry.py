"""The registry of strategies, and the options by which the command line chooses and configures one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, kernel

from cudamaster.cli import main
from cudamaster.core.errors import RunFolderError, UsageError
from cudamaster.core.values import ProfileMode, Role
from cudamaster.runs.optimization import optimize
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings, read_manifest
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Observer


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
        (
            ["--strategy", "sample", "--profile", "full"],
            "sample shows no agent a profile. Leave out --profile, or give none",
        ),
        (["--strategy", "contrastive", "--profile", "filtered"], "The strategy contrastive shows no agent a profile."),
        (
            ["--strategy", "cudaforge", "--set", "judge=correction", "--profile", "full"],
            "The strategy cudaforge with judge=correction shows no agent a profile.",
        ),
        (["--set", "judge=both"], "The strategy cudamaster has no option 'judge'. It has none of its own."),
        (["--strategy", "cudaforge", "--set", "jugde=both"], "no option 'jugde'. It has judge=both."),
        (["--strategy", "cudaforge", "--set", "judge"], "'judge' sets nothing. Write it as NAME=VALUE."),
        (["--strategy", "cudaforge", "--set", "judge=me"], "judge is 'me'. Take one of both, correction"),
        (["--strategy", "contrastive", "--set", "islands=two"], "islands is 'two', which is no whole number."),
        (["--strategy", "contrastive", "--set", "temperature=warm"], "temperature is 'warm', which is no number."),
        (["--strategy", "beam", "--set", "width=0"], "width is 0, which makes no beam. Make it at least 1."),
        (["--strategy", "beam", "--set", "alike=nan"], "alike is nan, which makes no beam."),
        (["--strategy", "mapelites", "--set", "islands=0"], "islands is 0, which makes no search of islands."),
        (["--strategy", "bandit", "--set", "exploration=-1"], "exploration is -1.0, which makes no bandit."),
        (["--strategy", "bandit", "--set", "exploration=inf"], "exploration is inf, which makes no bandit."),
        (["--jump-factor", "0.5"], "A jump by a factor of 0.5 is none."),
        (["--strategy", "sample", "--debug-model", "x/y"], "asks no debug agent: it asks coder. Leave --debug-model"),
        (["--base-url", "http://localhost:1/v1"], "Name one with --model, e.g. openai/NAME, or leave --base-url out."),
        (["--max-tokens", "nan"], "nan is not a number."),
        (
            ["--coder-model", "no-provider/x"],
            "No model is known as no-provider/x: LiteLLM has no provider for it. Give",
        ),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_run(words: list[str], said: str, tmp_path: Path) -> None:
    ran = command(*words, "--out", str(tmp_path / "runs"))
    assert ran.exit_code == UsageError.exit_code
    assert said in ran.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("strategy", "options", "modes"),
    [
        ("cudamaster", [], list(ProfileMode)),
        ("cudaforge", [], list(ProfileMode)),
        ("cudaforge", ["judge=none"], list(ProfileMode)),
        ("cudaforge", ["judge=correction"], [ProfileMode.NONE]),
        ("contrastive", [], [ProfileMode.NONE]),
        ("mapelites", [], list(ProfileMode)),
        ("sample", [], [ProfileMode.NONE]),
    ],
)
def test_a_profile_is_chosen_where_an_agent_is_told_of_it(
    strategy: str, options: list[str], modes: list[ProfileMode]
) -> None:
    """`none` can be chosen anywhere: then nothing is profiled. Without a choice each strategy has its own."""
    found = registry.find(strategy)
    own = registry.parse_options(found, options)
    assert registry.profile_of(found, None, own) is found.profile
    for mode in ProfileMode:
        if mode in modes:
            assert registry.profile_of(found, mode.value, own) is mode
        else:
            with pytest.raises(UsageError, match="shows no agent a profile"):
                registry.profile_of(found, mode.value, own)


@pytest.mark.parametrize("judge", ["both", "correction", "optimization", "none"])
def test_what_a_strategy_says_of_its_prompts_holds(judge: str) -> None:
    """CudaForge over a kernel that is right: a profile is in a prompt exactly where the registry says so."""
    found = registry.find("cudaforge")
    judged = [(Role.JUDGE, json.dumps({"bottleneck": "B", "optimization method": "M", "modification plan": "P"}))]
    script = [code(kernel(score=1.5, tag="a")), *(judged if judge in ("both", "optimization") else []),
              code(kernel(score=2.0, tag="b"))]  # fmt: skip
    model = ScriptedModel(script)
    settings = Settings("cudaforge", 2, 0, "stand-in", dict.fromkeys(found.roles, "scripted"),
                        options={"judge": judge})  # fmt: skip
    registry.run(registry.begin(ScriptedWorkbench(), model.for_all(), settings, Observer()), settings)
    told = any("NOTE" in message.content for request in model.requests for message in request.messages)
    assert told == found.shows_profile(registry.options_of(found, settings.options))


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
