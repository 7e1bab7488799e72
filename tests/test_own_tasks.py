"""A task outside MSKernelBench: the worked example of docs/adding.md goes through the commands as any other does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError
from cudamaster.core.values import Precision
from cudamaster.models.playbook import PlaybookModel
from cudamaster.runs import worked_examples
from cudamaster.tasks import cards

EXAMPLE = Path(__file__).parent.parent / "examples" / "axpby"
STEP = EXAMPLE / "playbook" / "axpby" / "fp32" / "1_wide_loads.cu"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.TASKS, str(EXAMPLE))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, env={"CUDA_VISIBLE_DEVICES": ""})


def copy(folder: Path, **changed: str) -> Path:
    """The example in another place, its card with other texts in place of those named."""
    shutil.copytree(EXAMPLE, folder)
    card = folder / "tasks" / "axpby.yaml"
    text = card.read_text()
    for before, after in changed.items():
        text = text.replace(before, after)
    card.write_text(text)
    return folder


@pytest.mark.usefixtures("own")
def test_it_is_listed_apart_and_the_benchmark_stays_what_it_is() -> None:
    assert len(cards.names()) == 50
    assert cards.own_names() == ["axpby"]
    listed = json.loads(run("tasks", "--json").stdout)
    assert len(listed) == 51
    assert listed["axpby"]["of"] == str(EXAMPLE)
    assert listed["axpby"]["suite"] == "axpby"
    assert {one["of"] for name, one in listed.items() if name != "axpby"} == {cards.MSKERNELBENCH}
    assert "50 tasks, 419 timed cases" in " ".join(run("tasks").stdout.split())
    assert "axpby" in run("tasks", "axpby").stdout


@pytest.mark.usefixtures("own")
def test_both_baselines_are_right() -> None:
    done = run("baselines", "axpby", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "2 of 2 baselines right" in done.output


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_a_wrong_kernel_is_refused(tmp_path: Path) -> None:
    """The skeleton leaves y as it is."""
    kernel = tmp_path / "wrong.cu"
    kernel.write_text(run("tasks", "axpby", "--skeleton").stdout)
    done = run("evaluate", "axpby", str(kernel), "--device", "cpu", "--check-only")
    assert (done.exit_code, done.output.startswith("wrong")) == (1, True), done.output


@pytest.mark.slow
def test_it_is_searched_with_the_kernel_beside_it_and_read_back_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a suite, by its path alone. Without the folder a run can still be read, and errors say what is missing."""
    monkeypatch.chdir(tmp_path)
    mine = copy(tmp_path / "folder")
    (mine / "suite.yaml").write_text("name: mine\n")
    done = run("suite", "--suite", "folder", "--tasks", "axp*", "-R", "1", "-D", "0", "--device", "cpu")
    assert done.exit_code == 0, done.output
    (folder,) = Path("runs").glob("suite_*/axpby_fp32")
    tried = [path.read_text() for path in (folder / "candidates").rglob("*.cu")]
    assert STEP.read_text() in tried, "by the model it is not likely to be faster, so it need not be the best"
    manifest = json.loads((folder / "run.json").read_text())
    assert (manifest["suite"], manifest["card"]) == ("mine", str(mine / "tasks" / "axpby.yaml"))
    again = run("suite", "--replay", str(folder.parent), "--out", "again")
    assert again.exit_code == 0, again.output
    assert "axpby" in again.output
    more = run("optimize", "--resume", str(folder), "-R", "1", "--json")
    assert more.exit_code == 0, more.output
    mine.rename(tmp_path / "moved")
    told = " ".join(run("report", "runs", "--suite", "mine").stdout.split())
    assert "1 of 1 task of the suite mine got a correct kernel" in told
    assert run("show", str(folder)).exit_code == 0
    refused = run("optimize", "--resume", str(folder), "-R", "2")
    assert refused.exit_code == 2
    assert resources.TASKS in refused.output
    (folder.parent / "relu_fp32").mkdir()
    (folder.parent / "relu_fp32" / "run.json").touch()
    refused = run("suite", "--replay", str(folder.parent), "--out", "others")
    assert refused.exit_code == 2
    assert "records of tasks that are not known here: axpby" in refused.output
    assert resources.TASKS in refused.output


def test_worked_examples_are_of_its_category_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.TASKS, str(copy(tmp_path / "sparse", **{"category: dense": "category: sparse"})))
    examples = worked_examples.choose("axpby", Precision.FP32, 3)
    assert {cards.load(example.task).category for example in examples} == {"sparse"}


def test_all_of_it_is_named_in_the_harness() -> None:
    """A harness that a person compiles finds the reference wherever it is written to; its card is said."""
    text = run("harness", str(EXAMPLE / "tasks" / "axpby.yaml")).stdout
    assert f'#include "{EXAMPLE / "reference" / "axpby.h"}"' in text
    assert str(EXAMPLE / "tasks" / "axpby.yaml") in text.splitlines()[0]
    assert "axpby_kernel_optimized" in text


def test_a_card_by_its_path_has_what_lies_beside_it() -> None:
    card = cards.load(str(EXAMPLE / "tasks" / "axpby.yaml"))
    assert not card.of_benchmark
    assert card.baseline(Precision.BF16) == (EXAMPLE / "bf16" / "axpby_bf16.cu").read_text()
    assert card.reference() == (EXAMPLE / "reference" / "axpby.h").read_text()


def test_its_hash_is_that_of_the_card_alone(tmp_path: Path) -> None:
    """A run continues after its task's folder was moved."""
    moved = cards.load(str(copy(tmp_path / "moved") / "tasks" / "axpby.yaml"))
    assert moved.hash == cards.load(str(EXAMPLE / "tasks" / "axpby.yaml")).hash


def test_a_name_is_one_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's are taken; a file has the name of its task."""
    mine = copy(tmp_path / "mine", **{"name: axpby": "name: relu"})
    monkeypatch.setenv(resources.TASKS, str(mine))
    with pytest.raises(CardError, match="has the name relu, and its file another one"):
        cards.load("axpby")
    (mine / "tasks" / "axpby.yaml").rename(mine / "tasks" / "relu.yaml")
    with pytest.raises(CardError, match=r"relu.yaml:2 .* has the name of a task of MSKernelBench"):
        cards.load("relu")


@pytest.mark.parametrize("lost", ["fp32/axpby.cu", "reference/axpby.h"])
def test_what_is_missing_is_named(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = copy(tmp_path / "mine")
    (mine / lost).unlink()
    monkeypatch.setenv(resources.TASKS, str(mine))
    done = run("evaluate", "axpby", str(STEP), "--device", "cpu", "--check-only")
    assert done.exit_code == CardError.exit_code
    assert lost in done.output


@pytest.mark.parametrize(("name", "why"), [("nowhere", "no folder tasks/"), ('a"b', "compilers")])
def test_a_folder_that_is_none_is_refused(name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.TASKS, str(tmp_path / name))
    with pytest.raises(UsageError, match=why) as refused:
        cards.load("relu")
    assert resources.TASKS in refused.value.fix


@pytest.mark.usefixtures("own")
def test_its_playbook_lies_beside_it() -> None:
    playbook = PlaybookModel()
    assert [step.code for step in playbook.steps("axpby", "fp32")] == [STEP.read_text()]
    assert playbook.steps("relu", "fp32")
    with pytest.raises(UsageError, match=r"no kernels for axpby in bf16.*playbook/"):
        playbook.steps("axpby", "bf16")
