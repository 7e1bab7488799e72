"""Where a user's own tasks are found, and the suites that their folders are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError
from cudamaster.core.values import Precision, Role
from cudamaster.models.playbook import PlaybookModel
from cudamaster.runs.record import Settings
from cudamaster.suites import planning
from cudamaster.tasks import cards, task_suites

SETTINGS = Settings("cudamaster", 1, 0, "cpu", dict.fromkeys(Role, "playbook"))
EXAMPLE = Path(__file__).parent.parent / "examples" / "axpby"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, env={"CUDA_VISIBLE_DEVICES": ""})


def folder(place: Path, *names: str, suite: str = "") -> Path:
    """A folder of the example's task under other names, with a suite.yaml if there is a text for it."""
    for name in names:
        card = (EXAMPLE / "tasks" / "axpby.yaml").read_text().replace("name: axpby", f"name: {name}")
        for part, file, text in (
            ("tasks", f"{name}.yaml", card),
            ("fp32", f"{name}.cu", (EXAMPLE / "fp32" / "axpby.cu").read_text().replace("axpby", name)),
            ("bf16", f"{name}_bf16.cu", (EXAMPLE / "bf16" / "axpby_bf16.cu").read_text().replace("axpby", name)),
            ("reference", f"{name}.h", (EXAMPLE / "reference" / "axpby.h").read_text().replace("axpby", name)),
        ):
            (place / part).mkdir(parents=True, exist_ok=True)
            (place / part / file).write_text(text)
    if suite:
        (place / "suite.yaml").write_text(suite)
    return place


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, which is not there yet."""
    monkeypatch.setenv(resources.DATA, str(tmp_path / "data"))
    return tmp_path / "data" / "tasks"


def test_tasks_are_found_in_all_folders_from_anywhere(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = folder(tmp_path / "one", "first"), folder(tmp_path / "two", "second")
    folder(data, "third")
    folder(data / "inner", "fourth", suite="name: more\n")
    monkeypatch.setenv(resources.TASKS, f"{one}:{two}:{one}")
    monkeypatch.chdir("/")
    assert cards.own_names() == ["first", "second", "third", "fourth"]
    assert [cards.load(name).suite for name in cards.own_names()] == ["one", "two", "mine", "more"]
    assert cards.load("fourth").baseline(Precision.FP32) == (data / "inner" / "fp32" / "fourth.cu").read_text()
    assert cards.load(cards.load("second").source).folder == two


def test_a_name_in_two_folders_is_an_error_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = folder(tmp_path / "one", "same"), folder(tmp_path / "two", "same", "other")
    monkeypatch.setenv(resources.TASKS, f"{one}:{two}")
    with pytest.raises(CardError) as refused:
        cards.load("same")
    assert f"{two}/tasks/same.yaml:2" in refused.value.reason
    assert f"{one}/tasks/same.yaml" in refused.value.reason
    assert cards.load("other").folder == two
    assert cards.load(str(one / "tasks" / "same.yaml")).folder == one
    listed = json.loads(run("tasks", "--json").stdout)
    assert len(listed) == 50 + 3
    for key in (str(one / "tasks" / "same.yaml"), str(two / "tasks" / "same.yaml"), "other"):
        assert cards.load(key).folder == Path(str(listed[key]["of"]))


def test_suite_yaml_names_a_suite_and_chooses_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name: mine\ntitle: Of our solver\ntasks: [norm_*, scan]\n"
    mine = folder(tmp_path / "folder", "norm_a", "norm_b", "scan", "draft", suite=text)
    monkeypatch.setenv(resources.TASKS, str(mine))
    suite = task_suites.named("mine")
    assert (suite.title, suite.tasks) == ("Of our solver", ("norm_a", "norm_b", "scan"))
    assert task_suites.named(str(mine)).tasks == suite.tasks
    with pytest.raises(UsageError, match="Unknown task 'draft'"):
        cards.load("draft")
    listed = json.loads(run("tasks", "--suite", "mine", "--json").stdout)
    assert list(listed) == list(suite.tasks)
    assert {one["suite"] for one in listed.values()} == {"mine"}
    shown = " ".join(run("tasks").stdout.split())
    assert "MSKernelBench 50 The benchmark hgemm 4000" in shown
    assert "mine 3 Of our solver" in shown


def test_a_folder_of_folders_names_those(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "one", "first"), folder(tmp_path / "two", "second")
    with pytest.raises(UsageError, match="holds 2 of them") as refused:
        task_suites.named(str(tmp_path))
    assert refused.value.fix == f"Name one of them: {one}, {two}."


def test_a_search_takes_a_whole_suite_or_some_of_it(tmp_path: Path) -> None:
    """The cards are named by their paths: the folder is not among those that are searched for names."""
    mine = folder(tmp_path / "mine", "first", "second")
    suite = task_suites.named(str(mine))
    plan = planning.fresh(SETTINGS, [], [Precision.FP32, Precision.BF16], of=suite)
    assert [entry.name for entry in plan.entries] == ["first_fp32", "first_bf16", "second_fp32", "second_bf16"]
    assert plan.entries[0].card == str(mine / "tasks" / "first.yaml")
    half = mine / "tasks" / "second.yaml"
    half.write_text(f"{half.read_text()}\nprecisions: [fp16]\n")
    plan = planning.fresh(SETTINGS, [], list(Precision), of=suite)
    assert [entry.name for entry in plan.entries] == ["first_fp32", "first_bf16", "second_fp16"]
    refused = run("suite", "--suite", str(mine), "--precision", "fp16", "--out", str(tmp_path / "runs"))
    assert "first is a task in fp32, not in fp16" in refused.output
    some = planning.fresh(SETTINGS, ["sec*"], [Precision.FP32], of=suite)
    assert [entry.name for entry in some.entries] == ["second_fp16"]
    with pytest.raises(UsageError, match="relu"):
        planning.fresh(SETTINGS, ["relu"], [Precision.FP32], of=suite)
    products = planning.fresh(SETTINGS, ["hgemm_nn_fp32_64x64x*"], [Precision.FP32], 3, task_suites.named("hgemm"))
    assert len(products.entries) == 3


def test_what_cannot_be_used_of_a_suite_leaves_the_others(tmp_path: Path) -> None:
    """A search of it comes last and says why; `baselines` counts it as failed, and goes on."""
    mine = folder(tmp_path / "mine", "first", "second", "third")
    (mine / "fp32" / "first.cu").unlink()
    card = mine / "tasks" / "second.yaml"
    card.write_text(card.read_text().replace("weight:", "wieght:"))
    plan = planning.fresh(SETTINGS, [], [Precision.FP32], of=task_suites.named(str(mine)))
    assert [entry.name for entry in plan.entries] == ["third_fp32", "first_fp32", "second_fp32"]
    (mine / "tasks" / "third.yaml").unlink()
    checked = run("baselines", "--suite", str(mine), "--precision", "fp32", "--device", "cpu", "--json")
    assert checked.exit_code == 1, checked.output
    said = json.loads(checked.stdout)
    assert "second.yaml" in said["unusable"][0]
    assert [(one["task"], one["right"]) for one in said["baselines"]] == [("first", False)]
    assert "fp32/first.cu" in said["baselines"][0]["detail"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name: mine\ntilte: x\n", r"suite.yaml:2 is wrong at tilte: there is no such field. Did you mean title"),
        ("title: x\n", r"suite.yaml:1 is wrong: the field name is missing"),
        ("name: MSKernelBench\n", "has the name of the suite MSKernelBench"),
        ("name: hgemm\n", "has the name of the suite hgemm"),
        ("name: [\n", r"suite.yaml:2"),
    ],
)
def test_a_wrong_suite_yaml_is_named(text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.TASKS, str(folder(tmp_path / "mine", "first", suite=text)))
    with pytest.raises(CardError, match=what):
        cards.load("first")
    assert run("tasks", "--suite", "mine").exit_code == CardError.exit_code
    assert cards.load("relu").of_benchmark


def test_two_folders_with_one_suite_name_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = folder(tmp_path / "one", "first", suite="name: mine\n")
    two = folder(tmp_path / "two", "second", suite="name: mine\n")
    monkeypatch.setenv(resources.TASKS, f"{one}:{two}")
    with pytest.raises(CardError, match=f"{one} and {two}"):
        task_suites.named("mine")


def test_an_unknown_suite_lists_the_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.TASKS, str(folder(tmp_path / "solver", "first")))
    for command in (("tasks",), ("suite",), ("baselines",), ("audit",)):
        done = run(*command, "--suite", "nowhere")
        assert done.exit_code == UsageError.exit_code, command
        assert "MSKernelBench, hgemm, hgemm_open, solver" in done.output
    assert "Did you mean solver" in run("tasks", "--suite", "solvre").output
    done = run("baselines", "relu", "--suite", "solver")
    assert (done.exit_code, "no task 'relu'" in done.output) == (UsageError.exit_code, True)


def test_a_card_by_its_path_brings_its_own_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLE, mine)
    monkeypatch.chdir(tmp_path)
    card = cards.load("mine/tasks/axpby.yaml")
    assert card.folder == mine
    assert card.source == str(mine / "tasks" / "axpby.yaml")
    assert PlaybookModel(own=card.folder).steps("axpby", "fp32")
    with pytest.raises(UsageError):
        PlaybookModel().steps("axpby", "fp32")
