from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

import pytest

from cudamaster.core import keys
from cudamaster.core.errors import BudgetSpent, RunFolderError
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.training import state
from cudamaster.training.kernels import JudgedKernel, Provenance
from cudamaster.training.settings import Budget, Selftaught, Sft
from cudamaster.training.state import CANARIES, EVALUATIONS, SAMPLES, STEPS, TrainingFolder
from cudamaster.training.verdicts import Verdicts

SETTINGS = Sft.model_validate({"model": {"new": "llama"}, "data": "set"})
JUDGE = {"gpu": "a GPU", "relu/fp32": "1234"}


def opened(path: Path, settings: Sft = SETTINGS, **judge: str) -> AbstractContextManager[TrainingFolder]:
    return state.opened(path, settings, (), {**JUDGE, **judge})


def test_a_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.append(STEPS, {"step": 1})
        assert folder.ended is None
        folder.end("done")
    more = SETTINGS.model_copy(update={"budget": Budget(minutes=5), "out": Path("elsewhere")})
    with opened(tmp_path, more) as folder:
        assert folder.rows(STEPS) == [{"step": 1}]
        assert folder.ended == "done"
        assert len(folder.manifest["sessions"]) == 2
        assert folder.manifest["settings"]["budget"]["minutes"] == 5
        of_both = [session["versions"] for session in folder.manifest["sessions"]]
        there = {name for name in ("torch", "trl", "transformers") if find_spec(name)}
        assert all({"cudamaster", "python"} | there <= set(of) for of in of_both)
        assert folder.changed_versions == ()
        folder.manifest["sessions"][-2]["versions"] = {**of_both[0], "python": "3.9.0"}
        assert folder.changed_versions == (f"python 3.9.0 -> {of_both[0]['python']}",)
        del folder.manifest["sessions"][-2]["versions"]  # a folder from before versions were kept
        assert folder.changed_versions == ()
    assert 0 < state.read_manifest(tmp_path)["sessions"][0]["seconds"] < 60


def test_a_folder_of_another_configuration_is_refused_with_the_difference(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    model = SETTINGS.model.model_copy(update={"layers": 9})
    with pytest.raises(RunFolderError, match=r"model\.layers is 4 there and 9 here"):
        opened(tmp_path, SETTINGS.model_copy(update={"model": model})).__enter__()
    with pytest.raises(RunFolderError, match=r"judge relu/fp32 is \"1234\" there and \"5\" here"):
        opened(tmp_path, **{"relu/fp32": "5"}).__enter__()
    rounds = Selftaught.model_validate({"model": {"name": "m"}, "data": "set", "judge": {"tasks": ["relu"]}})
    with pytest.raises(RunFolderError, match=r"stage is \"sft\" there and \"selftaught\" here"):
        state.opened(tmp_path, rounds, (), JUDGE).__enter__()
    data = tmp_path / "sft.jsonl"
    data.write_text("{}\n", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"data sft\.jsonl is not given there and"):
        state.opened(tmp_path, SETTINGS, [data], JUDGE).__enter__()


def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(RunFolderError, match="has format 2, this version reads format 1"):
        opened(tmp_path).__enter__()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match=r"thesis\.tex"):
        opened(tmp_path).__enter__()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(RunFolderError, match="Another process"):
        opened(tmp_path).__enter__()


def test_going_back_moves_later_lines_aside(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        for step in (1, 2, 3):
            folder.append(STEPS, {"step": step})
            folder.append(SAMPLES, {"step": step, "text": f"of {step}"})
            folder.append(EVALUATIONS, {"step": step})
            folder.append(CANARIES, {"step": step})
        with (tmp_path / SAMPLES).open("a") as file:
            file.write('{"step": 3, "te')  # killed here
        assert len(folder.rows(SAMPLES)) == 3
        folder.go_back_to(2)
        folder.append(SAMPLES, {"step": 3, "text": "again"})
        assert [row["text"] for row in folder.rows(SAMPLES)] == ["of 1", "of 2", "again"]
        assert [row["step"] for row in folder.rows(STEPS)] == [1, 2]
        aside = state.rows(tmp_path / "abandoned.jsonl")
        assert [(row["file"], row["step"]) for row in aside] == [(name, 3) for name in state.OF_STEPS]
        for name in (EVALUATIONS, CANARIES):
            assert [row["step"] for row in folder.rows(name)] == [1, 2]


def test_a_line_that_was_cut_short_spoils_no_later_one(tmp_path: Path) -> None:
    """Also where no line of a later step is there."""
    with opened(tmp_path) as folder:
        folder.append(SAMPLES, {"step": 1})
        with (tmp_path / SAMPLES).open("a") as file:
            file.write('{"step": 2, "te')  # killed here
        folder.go_back_to(1)
        folder.append(SAMPLES, {"step": 2})
        assert folder.rows(SAMPLES) == [{"step": 1}, {"step": 2}]


def test_a_checkpoint_that_was_cut_short_is_no_place_to_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        assert folder.checkpoint() == (None, 0)
        for number in (9, 10, 11):
            (folder.checkpoints / f"checkpoint-{number}").mkdir(parents=True)
        for number in (9, 10):
            folder.completed(folder.checkpoints / f"checkpoint-{number}")
        assert folder.checkpoint() == (folder.checkpoints / "checkpoint-10", 10)
        assert not (folder.checkpoints / "checkpoint-11").exists()


def test_minutes_are_those_of_all_sessions(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        folder.must_go_on(Budget(minutes=1))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["sessions"][0]["seconds"] = 60.0
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with opened(tmp_path) as folder:
        folder.must_go_on(Budget(minutes=2))
        with pytest.raises(BudgetSpent, match="1 minutes"):
            folder.must_go_on(Budget(minutes=1))


def kernel(code: str) -> JudgedKernel:
    candidate = Candidate("relu", Precision.FP32, code, "nvcc")
    verdict = Verdict(candidate.id, "cpu", True, Status.WRONG, "no")
    return JudgedKernel(candidate, verdict, Provenance("s", "c", "h", "v", "here"))


def test_verdicts_are_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    script = f"""
import os, signal
from training.test_training_state import *
verdicts = Verdicts(Path({str(path)!r}), "aa")
verdicts.add("01", kernel("one"))
verdicts.add("02", kernel("two"))
os.write(verdicts._file.fileno(), b'{{"key": "03", "run": "aa", "ker')
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**keys.for_tools(), "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, check=False, cwd=Path(__file__).parents[1])
    assert ran.returncode == -9
    first, second = Verdicts(path, "aa"), Verdicts(path, "bb")
    assert (first.paid, second.paid) == (2, 0)
    assert first.get("02") == kernel("two")
    assert first.get("03") is None
    # Two runs with one file: neither's lines are lost, and each knows what it has paid for itself.
    first.add("03", kernel("three"))
    with path.open("ab") as killed:
        killed.write(b'{"key": "09", "run": "cc", "ker')  # by a third run, in the middle of a line
    second.add("04", kernel("four"))
    first.add("05", kernel("five"))
    assert (second.get("04"), first.get("05"), first.get("03")) == (kernel("four"), kernel("five"), kernel("three"))
    assert b'"09"' not in path.read_bytes()
    again = Verdicts(path, "bb")
    assert again.paid == 1
    assert [again.get(f"0{number}") for number in range(1, 6)] == [
        kernel(code) for code in ("one", "two", "three", "four", "five")
    ]
