"""`tasks`: the list, a card, and cards that cannot be used."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import run

from cudamaster.cli import main
from cudamaster.core import resources


def test_a_bad_card_is_named(tmp_path: Path) -> None:
    """A user's own card with a fault is a CardError, exit 3."""
    card = tmp_path / "mine.yaml"
    card.write_text("id: 1\nname: mine\n")
    done = run("tasks", str(card))
    assert done.returncode == 3
    assert str(card) in done.stderr


def test_a_bad_card_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has the rest, names it, and ends with the code of a card that cannot be used."""
    bench = tmp_path / "bench"
    shutil.copytree(resources.bench(), bench)
    (bench / "tasks" / "relu.yaml").write_text("id: 1\nname: relu\n")
    monkeypatch.setattr(resources, "bench", lambda: bench)
    done = CliRunner().invoke(main, ["tasks", "--json"])
    assert done.exit_code == 3
    assert len(json.loads(done.stdout)) == 49
    assert "relu.yaml" in done.stderr


def test_tasks_for_people_and_programs() -> None:
    """The list and a card, as a table and as JSON."""
    listed = json.loads(run("tasks", "--json").stdout)
    assert listed["spmv_csr"]["timed_cases"] == 6
    shown = CliRunner().invoke(main, ["tasks", "spmv_csr"]).stdout
    assert "row_offsets[i]" in shown
    assert 'extern "C" void spmv_csr_bf16_optimized(' in shown
    assert json.loads(CliRunner().invoke(main, ["tasks", "spmv_csr", "--json"]).stdout)["weight"] == "nnz"


def test_what_a_task_gathers_is_beside_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 * 262144 entries take a row of 4096 floats each; 132 SMs at 1965 MHz deliver 128 bytes a cycle."""
    monkeypatch.setenv("COLUMNS", "120")
    shown = " ".join(CliRunner().invoke(main, ["tasks", "spmm_csr"]).stdout.split())
    assert "written oper. gathered" in shown
    assert "22 G 74 MiB 4 GiB 44 G 81.9 GiB" in shown
    assert "An NVIDIA H200 (132 SMs, 1965 MHz) at rows=262144, K=4096 gathers 88 GB through shared memory" in shown
    assert "(128 bytes a cycle and SM) at 33.2 TB/s: 2.65 ms." in shown
    assert "athered" not in CliRunner().invoke(main, ["tasks", "spmv_csr"]).stdout


def test_sizes_of_a_card_are_exact() -> None:
    """A size of seven digits is not rounded to six: it is what a kernel has to work for."""
    assert " 1048576 " in CliRunner().invoke(main, ["tasks", "dot_product"]).stdout


def test_a_task_by_its_path_in_one_precision(tmp_path: Path) -> None:
    """What is printed to go on with names the card that was given, in the precision that it has."""
    mine = tmp_path / "solver"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "axpby", mine)
    card = mine / "tasks" / "axpby.yaml"
    card.write_text(card.read_text() + "precisions: [bf16]\n")
    skeleton = CliRunner().invoke(main, ["tasks", str(card), "--skeleton"]).stdout
    assert f"cudamaster evaluate {card} THIS_FILE --precision bf16\n" in skeleton
    shown = " ".join(CliRunner().invoke(main, ["tasks", str(card)]).stdout.split())
    assert "the least that a call has to. Operations" in shown
    listed = CliRunner().invoke(main, ["tasks", "--suite", str(mine)]).stdout
    assert listed.endswith("optimize NAME\n")
