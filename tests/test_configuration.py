"""Configuration files: which are found, what comes before what, and what is refused, with file and line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cudamaster.cli import commands, configured, main, model_options
from cudamaster.core import configuration, resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Role

HERE = Path(__file__).parent.parent


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a project in whose folder we are; not there yet. The user's folder is beside it."""
    monkeypatch.delenv("CUDAMASTER_PROJECT")
    monkeypatch.setenv("CUDAMASTER_CONFIG", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    (tmp_path / "project" / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project" / "cudamaster.toml"


def of(command: str) -> dict[str, object]:
    """The options of a command that files set."""
    return configured.defaults(command, *commands())


def test_the_nearest_file_above_comes_before_the_users(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = 'cache = "built"\n[all]\ndevice = "cuda"\n[optimize]\nrounds = 9\nseed = 4\n'
    (tmp_path / "user" / "config.toml").write_text(users)
    project.write_text('task-folders = ["mine", "/abs"]\n[all]\nrounds = 5\n[optimize]\nout = "found"\n')
    (tmp_path / "cudamaster.toml").write_text("[optimize]\nseed = 1\n")
    monkeypatch.chdir(project.parent / "deep" / "down")
    assert of("optimize") == {"device": "cuda", "rounds": 5, "seed": 4, "out": str(project.parent / "found")}
    assert of("evaluate") == {"device": "cuda"}
    assert configuration.task_folders() == (project.parent / "mine", Path("/abs"))
    monkeypatch.delenv("CUDAMASTER_CACHE")
    assert resources.cache_place() == tmp_path / "user" / "built"
    monkeypatch.setenv("CUDAMASTER_CACHE", "/elsewhere")
    assert resources.cache_place() == Path("/elsewhere"), "the environment comes first"
    project.parent.chmod(0o777)
    assert of("optimize") == {"device": "cuda", "rounds": 9, "seed": 1}, "anyone may have put it there"
    monkeypatch.setenv("CUDAMASTER_PROJECT", "")
    assert of("evaluate") == {"device": "cuda"}, "none is asked for"


def test_the_command_line_comes_first(project: Path) -> None:
    """A whole command, in a process of its own; its help shows what would be taken."""
    project.write_text('[evaluate]\ndevice = "cuda"\ncheck-only = true\n[all]\nprecision = "bf16"\n')
    kernel = HERE / "cudamaster/playbook/relu/fp32/1_wide_loads.cu"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cudamaster", *words]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(HERE)}
        return subprocess.run(command, cwd=project.parent, env=environment, capture_output=True, text=True, check=False)

    assert "not one of bf16" in run("evaluate", "relu", str(kernel)).stderr
    assert run("evaluate", "relu", str(kernel), "--precision", "fp32").returncode == 4, "the file's device is not here"
    done = run("evaluate", "relu", str(kernel), "--device", "cpu", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    assert "P (modelled)" not in done.stdout, "checked only"
    assert "default: cuda" in run("evaluate", "--help").stdout
    project.write_text("[evaluate]\nchecks = true\n")
    broken = run("evaluate", "relu", str(kernel), "--json")
    assert broken.returncode == 2
    assert f"error: {project}, line 2: checks in [evaluate] is no setting. Did you mean" in broken.stderr
    assert run("evaluate", "--help").returncode == 0
    told = run("doctor", "--json")
    assert f"{project}, line 2" in told.stdout
    assert told.returncode == 0


REFUSED = [
    ("[optimize]\nrownds = 5", 2, "rownds in [optimize] is no setting.", "Did you mean rounds"),
    ('[optimize]\n\nrounds = "5"', 3, "rounds in [optimize] is '5'.", "a whole number"),
    ("optimize.rounds = 0", 1, "rounds in [optimize] is 0", "0 is not in the range"),
    ("[optimize]\nrounds = true", 2, "rounds in [optimize] is True.", "a whole number"),
    ('[optimize]\nmax-dollars = "1"', 2, "max-dollars in [optimize] is '1'.", "a number"),
    ('[optimize]\nset = ["a=1", 2]', 2, "set in [optimize] is 2.", "a list"),
    ('[all]\ndevise = "cpu"', 2, "devise in [all] is no setting.", "Did you mean device"),
    ('[all]\ndevice = "gpu"', 2, "device in [all] is 'gpu'", "cudamaster optimize --help"),
    ("[optimise]\nrounds = 5", 1, "optimise is no setting.", "Did you mean optimize"),
    ("rounds = 5", 1, "rounds is no setting.", "below a [command]"),
    ('task_folders = "mine"', 1, "task_folders is not a list of folders.", "task_folders = ["),
    ("cache = 5", 1, "cache is not a text.", "cache = "),
    ("[hgemm]\nsample = 5", 2, "sample in [hgemm] is no command", "[hgemm.tune]"),
    ("[optimize]\njson = true", 2, "json in [optimize] is given on the command line", "Take it out"),
    ('[optimize]\nopenai-api-key = "x"', 2, "API keys are not kept", "OPENAI_API_KEY"),
    ('API_KEY = "x"', 1, "API keys are not kept", "environment"),
    ('[optimize]\nmodel = "sk-proj-0123456789abcdef"', 2, "looks like an API key", "environment"),
    ('[optimize]\nbase-url = "http://localhost:1/v1"', 2, "a project may not say that", "config.toml"),
    ('cache = "/home"', 1, "a project may not say that", "CUDAMASTER_CACHE"),
    ('cache-limit = "1MB"', 1, "a project may not say that", "CUDAMASTER_CACHE_LIMIT"),
    ('[import.kernelbench]\npython = "./ev.sh"', 2, "a program that is run", "CUDAMASTER_PYTHON"),
    ('[optimize]\nagent-command = "./ev.sh"', 2, "a program that is run", "--agent-command"),
    ('[suite]\nray = "there:6379"', 2, "a cluster, whose owner can run programs here", "--ray"),
    ('[all]\npython = "./ev.sh"', 2, "a program that is run", "CUDAMASTER_PYTHON"),
    ('[all]\nset = ["width=2", "command =./ev.sh"]', 2, "a program that is run", "give --agent-command"),
    ('[audit]\nray = "h:6379"', 2, "a cluster, whose owner can run programs here", "give --ray"),
    ('[suite]\ncoder-model = "huggingface/http://h:1/"', 2, "holds an address", "CUDAMASTER_CODER_MODEL"),
    ("[optimize", None, "is not TOML", "Mend"),
]


@pytest.mark.parametrize(("text", "line", "reason", "fix"), REFUSED, ids=[text for text, *_ in REFUSED])
def test_what_cannot_be_used_is_refused_with_its_line(
    text: str, line: int | None, reason: str, fix: str, project: Path
) -> None:
    project.write_text(text)
    with pytest.raises(UsageError) as error:
        configured.check(*commands())
    assert str(error.value).startswith(f"{project}{'' if line is None else f', line {line}:'}")
    assert reason in str(error.value)
    assert fix in str(error.value)
    assert "sk-proj" not in str(error.value), "a key is not repeated"


def test_a_key_of_the_environment_is_known_wherever_it_stands(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_NOBODY_KEY", "correct horse battery")
    project.write_text('[optimize]\nset = ["password=correct horse battery"]\n')
    with pytest.raises(UsageError, match="looks like an API key"):
        of("optimize")


def test_a_file_that_is_named_has_to_be_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAMASTER_PROJECT", str(project))
    with pytest.raises(UsageError, match="there is no such file"):
        configuration.files()


def chosen(*words: str) -> dict[str, object]:
    """What `optimize` with these words gets from command line and files, without running it."""
    names, load = commands()
    command = load("optimize")
    assert command is not None
    found: dict[str, object] = {}

    @model_options.model_options
    def told(models: model_options.ModelOptions, **_others: object) -> None:
        roles = (Role.PLANNER, Role.CODER)
        found.update({role.value: name for role, name in models.choice(roles).names.items()})
        found["rounds"] = click.get_current_context().params["rounds"]

    context = click.Context(main, info_name="cudamaster")
    context.default_map = {"optimize": configured.defaults("optimize", names, load)}
    inner = command.make_context("optimize", list(words), parent=context)
    with inner:
        told(**inner.params)
    return found


def test_models_come_from_the_command_line_then_the_environment_then_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write_text('[optimize]\nmodel = "file/all"\nplanner-model = "file/planner"\nrounds = 5\n')
    assert chosen("relu") == {"planner": "file/planner", "coder": "file/all", "rounds": 5}
    monkeypatch.setenv("CUDAMASTER_CODER_MODEL", "environment/coder")
    assert chosen("relu") == {"planner": "file/planner", "coder": "environment/coder", "rounds": 5}
    monkeypatch.setenv("CUDAMASTER_MODEL", "environment/all")
    assert chosen("relu") == {"planner": "environment/all", "coder": "environment/coder", "rounds": 5}
    assert chosen("relu", "--model", "line/all", "-R", "2") == {"planner": "line/all", "coder": "line/all", "rounds": 2}


def test_a_run_that_is_resumed_keeps_its_settings(project: Path) -> None:
    """Five rounds in a file are no wish to give each old run five."""
    project.write_text('[optimize]\nrounds = 5\nmodel = "file/all"\n')
    assert chosen("--resume", "run") == {"planner": "playbook", "coder": "playbook", "rounds": None}
