"""Holds folder.py and recording.py to refusing what is damaged, foreign or in use, with the file and the fix."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from search_stand_ins import (
    COMMAND,
    HARDWARE,
    FakeCard,
    ScriptedModel,
    ScriptedWorkbench,
    code,
    command,
    fix,
    kernel,
    plan,
)

from cudamaster.core.errors import ModelError, RunFolderError
from cudamaster.core.values import Candidate, Precision, Role, Verdict
from cudamaster.models.protocol import Reply, Request
from cudamaster.runs.folder import RunFolder, fresh_path
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings, read_manifest, unusable
from cudamaster.strategies.cudamaster import ROLES

SETTINGS = Settings("cudamaster", 1, 1, "stand-in", dict.fromkeys(ROLES, "scripted"), seed=7)
SCRIPT = [
    plan("A"), code(kernel("compile_error", tag="a")), command(), fix("f"), code(kernel(score=2.0)), command()
]  # fmt: skip


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run that came to its end."""
    optimize(tmp_path / "run", ScriptedWorkbench(), ScriptedModel(SCRIPT).for_all(), SETTINGS)
    return tmp_path / "run"


def again(path: Path) -> None:
    resume(path, ScriptedWorkbench(), ScriptedModel([]).for_all())


def test_all_that_a_run_made_is_in_the_folder(finished: Path) -> None:
    names = sorted(path.name for path in (finished / "exchanges").iterdir())
    assert names == [
        "0001_planner.json",
        "0002_coder.json",
        "0003_compiler.json",
        "0004_debug.json",
        "0005_coder.json",
        "0006_compiler.json",
    ]
    best = json.loads((finished / "best.json").read_text())
    text = (finished / "best.cu").read_text()
    assert Candidate("double_it", Precision.FP32, text, best["command"]).id == best["candidate"]
    assert json.loads((finished / best["verdict"]).read_text())["score"] == best["score"] == 2.0
    assert len(list((finished / "candidates").glob("*.cu"))) == 3
    assert sorted(log.read_text() for log in (finished / "builds").glob("*.log")) == [
        "",
        "",
        "# compile log\nLOG of a\n",
    ]
    summary = json.loads((finished / "summary.json").read_text())
    assert (summary["improved"], summary["score"], summary["emulated"]) == (True, 2.0, True)
    assert summary["usage"]["coder"]["dollars"] == 0.5
    assert read_manifest(finished).settings == SETTINGS


def test_a_fresh_run_overwrites_nothing(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(RunFolderError, match=r"exists already.*--resume"):
        optimize(finished, ScriptedWorkbench(), ScriptedModel(SCRIPT).for_all(), SETTINGS)
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert not list(finished.parent.glob(".*")), "a half-made folder was left behind"


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    optimize(tmp_path / "mine", ScriptedWorkbench(), ScriptedModel(SCRIPT).for_all(), SETTINGS)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _first(folder: str, pattern: str = "*.json") -> Callable[[Path], Path]:
    return lambda run: sorted((run / folder).glob(pattern))[0]


@pytest.mark.parametrize(
    "which",
    [
        lambda run: run / "run.json",
        _first("exchanges"),
        _first("verdicts"),
        _first("findings"),
        _first("candidates", "*.cu"),
        _first("candidates", "*.command"),
    ],
    ids=["run.json", "exchange", "verdict", "findings", "candidate", "command"],
)
def test_a_truncated_file_is_named(finished: Path, which: Callable[[Path], Path]) -> None:
    victim = which(finished)
    _truncate(victim)
    with pytest.raises(RunFolderError) as caught:
        again(finished)
    assert victim.stem in str(caught.value)
    assert caught.value.exit_code == 6
    assert caught.value.fix


def test_a_changed_exchange_is_found(finished: Path) -> None:
    victim = finished / "exchanges" / "0002_coder.json"
    victim.write_text(victim.read_text().replace("double_it", "treble_it"))
    with pytest.raises(RunFolderError, match=r"0002_coder\.json was changed"):
        again(finished)


def test_a_missing_exchange_is_found(finished: Path) -> None:
    (finished / "exchanges" / "0003_compiler.json").unlink()
    with pytest.raises(RunFolderError, match="Exchange 3 is missing"):
        again(finished)


def test_a_run_that_git_has_kept_is_whole(finished: Path) -> None:
    """Its empty folders are gone."""
    (finished / "confirmations").rmdir()
    again(finished)
    assert (finished / "confirmations").is_dir()


def test_another_format_is_refused(finished: Path) -> None:
    manifest = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps({**manifest, "format": 99, "new": 1}))
    with pytest.raises(RunFolderError, match="has format 99, this version reads format 5"):
        again(finished)


def test_no_run_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="There is no run in"):
        again(tmp_path)


@pytest.mark.parametrize("what", ["precision", "device", "task card", "baseline", "planner model"])
def test_a_run_is_resumed_with_what_it_was_started_with(finished: Path, what: str) -> None:
    bench, model = ScriptedWorkbench(), ScriptedModel([])
    if what == "precision":
        bench.precision = Precision.BF16
    elif what == "device":
        bench.hardware = replace(HARDWARE, name="Other")
    elif what == "task card":
        bench.card = FakeCard(hash="f")
    elif what == "baseline":
        bench.baseline = replace(bench.baseline, command=COMMAND + " -O2")
    else:
        model.name = "other"
    with pytest.raises(RunFolderError, match=rf"belongs to another run: its {what}"):
        resume(finished, bench, model.for_all())


def test_a_changed_prompt_is_named(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Request and record part ways: the error says in which exchange, and the line before and after."""
    monkeypatch.setattr(FakeCard, "describe", lambda *_: "Another description")
    with pytest.raises(RunFolderError, match=r"Exchange 1 .* line 3 of the user message was 'DESCRIPTION of"):
        again(finished)


def test_what_a_kill_left_half_written_is_removed(finished: Path) -> None:
    leftover = finished / "verdicts" / ".abc.json.tmp"
    leftover.write_text("{")
    again(finished)
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["best.cu", "best.json"])
def test_a_folder_where_a_file_belongs_is_named(finished: Path, name: str) -> None:
    (finished / name).unlink()
    (finished / name).mkdir()
    with pytest.raises(RunFolderError, match=f"{name} is a folder") as caught:
        again(finished)
    assert "Remove it" in caught.value.fix


def test_a_folder_in_use_is_left_alone(finished: Path) -> None:
    """The lock is seen from another process and freed with its holder, however it ends."""
    script = (
        "from pathlib import Path; from cudamaster.runs.folder import RunFolder; "
        f"RunFolder.open(Path({str(finished)!r}))"
    )
    with RunFolder.open(finished):
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert "Another process is working on" in other.stderr
    again(finished)


def test_a_workbench_can_hand_over_build_logs_before_its_verdict(tmp_path: Path) -> None:
    """The log is on disk while the candidate is still being timed."""
    path = tmp_path / "run"
    seen: list[bool] = []

    class Reporting(ScriptedWorkbench):
        on_build: Callable[[str, str], None] | None = None

        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            """Report, look, and judge."""
            assert self.on_build is not None
            self.on_build(candidate.id, "nvcc said nothing")
            seen.append((path / "builds" / f"{candidate.id}.log").read_text() == "nvcc said nothing")
            return super().evaluate(candidate, to_beat=to_beat)

    optimize(path, Reporting(), ScriptedModel(SCRIPT).for_all(), SETTINGS)
    assert seen == [True] * 3


class _Unreachable:
    name = "scripted"

    def ask(self, request: Request) -> Reply:
        raise ModelError("Model x cannot be reached.", "Wait.")


def test_a_model_that_fails_midway_leaves_a_run_to_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = ScriptedModel(SCRIPT[:1])
    models = {**first.for_all(), Role.CODER: _Unreachable()}
    with pytest.raises(ModelError):
        optimize(path, ScriptedWorkbench(), models, SETTINGS)
    assert not (path / "summary.json").exists()
    assert (path / "best.cu").exists(), "the best so far is the baseline"
    bench = ScriptedWorkbench()
    result = resume(path, bench, ScriptedModel(SCRIPT[1:]).for_all())
    assert result.score == 2.0
    assert bench.baseline.id not in bench.evaluated


def test_code_keeps_its_bytes(tmp_path: Path) -> None:
    """Letters and what Python takes for line ends are part of the candidate's hash and survive the disk.

    Windows line ends are none of the code: the source guard would refuse them.
    """
    odd = "// correct 2.0 é\u2028 \x85\nvoid double_it_optimized() {}\n"
    script = [plan("A"), code(odd.replace("\n", "\r\n")), command()]
    result = optimize(tmp_path / "run", ScriptedWorkbench(), ScriptedModel(script).for_all(), SETTINGS)
    assert result.best.code == odd
    again(tmp_path / "run")


def test_fresh_paths_do_not_collide(tmp_path: Path) -> None:
    first = fresh_path(tmp_path, "sorting", Precision.BF16)
    first.mkdir()
    assert fresh_path(tmp_path, "sorting", Precision.BF16) != first


@pytest.mark.parametrize(("number", "fix"), [(errno.EROFS, "give access"), (errno.EACCES, "give access"),
                                             (errno.ENOSPC, "Make room"), (errno.EIO, "from a copy")])  # fmt: skip
def test_what_may_not_be_written_is_not_called_damaged(number: int, fix: str) -> None:
    error = unusable("run/lock", OSError(number, os.strerror(number)))
    assert str(error).startswith(f"run/lock cannot be used: {os.strerror(number)}.")
    assert fix in error.fix
