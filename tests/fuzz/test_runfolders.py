"""Damaged run folders: a resume gives the same result, or an error that names the file; never another result."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan

from cudamaster.cli import main
from cudamaster.core.errors import RunFolderError
from cudamaster.core.values import Candidate, Precision, Role, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.models.playbook import PlaybookModel
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.strategies.result import Result
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

from .support import examples, within

SETTINGS = Settings("cudamaster", 2, 1, "stand-in", dict.fromkeys(ROLES, "scripted"), seed=7)
SCRIPT = [
    plan("A"), code(kernel("compile_error", tag="a")), command(), fix("f"), code(kernel(score=2.0, tag="b")), command(),
    plan("C"), code(kernel(score=1.5, tag="c")), command(),
]  # fmt: skip
_MEMORY = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)  # each file is flushed to its disk
ODD = [None, True, -1, 10**400, 1e999, float("nan"), "", "é", "\ud800", [], {}, "../../x", "9" * 5000]


def _search(path: Path, *, again: bool) -> Result:
    asked = len(list((path / "exchanges").glob("*.json"))) if again else 0
    bench, models = ScriptedWorkbench(), ScriptedModel(SCRIPT[asked:]).for_all()
    return resume(path, bench, models) if again else optimize(path, bench, models, SETTINGS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run that came to its end, made once."""
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, _search(path, again=False)


def _value(data: st.DataObject, raw: Any) -> Any:
    """A JSON value with one part of it replaced, renamed or removed."""
    if isinstance(raw, dict) and raw and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(raw)))
        kind = data.draw(st.sampled_from(("into", "into", "remove", "rename", "replace")))
        rest = {key: value for key, value in raw.items() if key != name}
        if kind == "remove":
            return rest
        if kind == "rename":
            return {**rest, name + "_": raw[name]}
        return {**raw, name: _value(data, raw[name]) if kind == "into" else data.draw(st.sampled_from(ODD))}
    if isinstance(raw, list) and raw and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) - 1))
        return [*raw[:at], _value(data, raw[at]), *raw[at + 1 :]]
    if isinstance(raw, float | int) and data.draw(st.booleans()):
        return raw + 1
    return data.draw(st.sampled_from(ODD))


def _damage(data: st.DataObject, run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(files), label="file")
    kinds = ["delete", "truncate", "flip", "empty", "swap", "copy", "folder", "loop", "leftover", "bytes", "no folder"]
    kind = data.draw(st.sampled_from([*kinds, *["json"] * 4]), label="kind")
    raw = victim.read_bytes()
    if kind == "delete":
        victim.unlink()
    elif kind == "truncate":
        victim.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    elif kind == "flip" and raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        victim.write_bytes(raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :])
    elif kind == "empty":
        victim.write_bytes(b"")
    elif kind in ("swap", "copy"):
        other = data.draw(st.sampled_from(files), label="other")
        victim.write_bytes(other.read_bytes())
        if kind == "swap":
            other.write_bytes(raw)
    elif kind == "folder":
        victim.unlink()
        (victim / "inside").mkdir(parents=True)
    elif kind == "loop":
        victim.unlink()
        victim.symlink_to(victim.name)
    elif kind == "leftover":
        (victim.parent / f".{victim.name}.tmp").mkdir(exist_ok=True)
    elif kind == "bytes":
        victim.write_bytes(
            data.draw(st.sampled_from([b"[" * 100_000, b"\xff\xfe", b"null", b"1" * 5000, b"{}", b"NaN"]))
        )
    elif kind == "no folder":
        shutil.rmtree(victim.parent)
    elif victim.suffix == ".json":
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError):
            return  # damaged before
        victim.write_text(json.dumps(_value(data, record), indent=data.draw(st.sampled_from([None, 1]))))


def _holds(run: Path, before: Result) -> None:
    """What lies in the folder of a run fits together: each text has its id, and best.json speaks of best.cu."""
    best = json.loads((run / "best.json").read_text())
    assert best["candidate"] == before.best.id
    task, precision = before.best.task, before.best.precision
    assert Candidate(task, precision, (run / "best.cu").read_bytes().decode(), best["command"]).id == before.best.id
    for path in (run / "verdicts").glob("*.json"):
        text = (run / "candidates" / f"{path.stem}.cu").read_bytes().decode()
        built = (run / "candidates" / f"{path.stem}.command").read_bytes().decode()
        assert json.loads(path.read_text())["candidate"] == path.stem
        assert Candidate(task, precision, text, built).id == path.stem


@pytest.mark.slow
@examples(400)
@given(st.data())
def test_a_damaged_folder_gives_the_same_result_or_an_error(finished: tuple[Path, Result], data: st.DataObject) -> None:
    """One or two kinds of damage: the lost step is done again with the same end, or the file is named."""
    source, before = finished
    with tempfile.TemporaryDirectory(dir=_MEMORY) as parent:
        run = Path(parent) / "run"
        shutil.copytree(source, run)
        for _ in range(data.draw(st.integers(1, 2))):
            if not run.is_dir() or not any(path.is_file() for path in run.rglob("*")):
                break
            _damage(data, run)
        with within(5):
            try:
                after = _search(run, again=True)
            except RunFolderError as error:
                named = str(run) in error.reason and error.fix
                if not named:
                    raise AssertionError("no file is named") from error
                return
        assert (after.best, after.score) == (before.best, before.score)
        assert [done.outcome for done in after.rounds] == [done.outcome for done in before.rounds]
        _holds(run, before)


class _Judged(Workbench):
    """The workbench of a real card on the CPU device, which takes every kernel for right and some for fast."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:  # type: ignore[override]
        """Verdict without running anything: a resume hands it out and runs nothing either."""
        score = 1.0 + int(candidate.id, 16) % 100 / 100
        return Verdict(candidate.id, self.device.name, True, Status.CORRECT, "all right", seed=1, score=score)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run that the command line can resume."""
    path = tmp_path_factory.mktemp("recorded") / "run"
    settings = Settings("cudamaster", 2, 0, "cpu", dict.fromkeys(ROLES, "playbook"), seed=1)
    bench = _Judged(cards.load("dot_product"), Precision.FP32, CpuDevice(), seed=1)
    optimize(path, bench, dict.fromkeys(Role, PlaybookModel()), settings)
    return path


@examples(50)
@given(st.data())
def test_the_command_line_says_it_in_one_line(recorded: Path, data: st.DataObject) -> None:
    """Exit code 0, or 6 with reason and fix as JSON: no traceback reaches a person."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as parent:
        run = Path(parent) / "run"
        shutil.copytree(recorded, run)
        before = json.loads((run / "best.json").read_text())
        _damage(data, run)
        lost = [path for path in (recorded / "verdicts").iterdir() if not (run / "verdicts" / path.name).exists()]
        if lost and (run / "verdicts").is_dir():
            return  # its candidate would really be built and run again
        with within(20):
            done = CliRunner().invoke(main, ["optimize", "--resume", str(run), "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in (0, 6), done.output
        said = json.loads(done.stdout)
        if done.exit_code:
            assert said["error"]["reason"]
            assert said["error"]["fix"]
        else:
            assert json.loads((run / "best.json").read_text()) == before
            assert said["result"]["best"]["code"] == (run / "best.cu").read_text()
