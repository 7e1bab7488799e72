from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from training import tiny_task

from cudamaster.core import keys
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import CaseVerdict, Precision, Status, Verdict
from cudamaster.devices import cuda
from cudamaster.devices.cuda import LocalGpu
from cudamaster.training.benches import Processes
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.problems import Problem, loaded
from cudamaster.training.reward import Rule
from cudamaster.training.scoring import Scoring, scoring
from cudamaster.training.shown import known, must_not_be_held_out
from cudamaster.training.turns import Turns, must_have_room
from cudamaster.training.verdicts import Verdicts


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_task.make(tmp_path_factory.mktemp("tasks") / "tiny")


@contextmanager
def pool(folder: Path, card: Path) -> Iterator[tuple[Scoring, Problem]]:
    benches = Processes(1)
    (problem,) = loaded([str(card)], [Precision.FP32], benches.bench)
    verdicts = Verdicts(folder / "verdicts.jsonl", "aa")
    with scoring(benches, verdicts, "a test") as made:
        yield made, problem


def test_the_same_text_is_judged_once_and_kept(card: Path, tmp_path: Path) -> None:
    with pool(tmp_path, card) as (scores, problem):
        good, bad = problem.candidate(tiny_task.FAST), problem.candidate("no kernel")
        first = [scores.submit(problem, one) for one in (good, good, bad)]
        found = [each.result() for each in first]
        assert [verdict.status for verdict in found] == [Status.CORRECT, Status.CORRECT, Status.REJECTED]
        assert found[0] is found[1]
        assert scores.submit(problem, good).done()
        assert scores.verdicts.paid == 2
        # A speedup is over a baseline, whose text is no part of the card's hash.
        other = replace(problem, baseline=problem.candidate(tiny_task.SLOW))
        assert scores.key(other, good) != scores.key(problem, good)
        # A canary is judged on each occasion, and once on each.
        again = [scores.submit(problem, bad, f"canary {step}") for step in (1, 2, 2)]
        assert len({id(each.result()) for each in again}) == 2
        assert scores.verdicts.paid == 4
    with pool(tmp_path, card) as (scores, problem):
        assert scores.submit(problem, good).result() == found[0]
        kept = scores.verdicts.get(scores.key(problem, good))
        assert kept is not None
        assert (kept.candidate, kept.gpu) == (good, "NVIDIA H200 (modelled)")
        assert scores.verdicts.paid == 4
        is_known_where_it_was_measured(tmp_path / "set", problem, kept)


def is_known_where_it_was_measured(data: Path, problem: Problem, kernel: JudgedKernel) -> None:
    """What an export has of a task is an exemplar, unless it is from another GPU or card, or was refused."""
    data.mkdir()
    about, candidate = kernel.provenance, replace(kernel.candidate, code=tiny_task.SLOW)
    other = replace(kernel, candidate=candidate, verdict=replace(kernel.verdict, candidate=candidate.id))
    elsewhere = replace(other, provenance=replace(about, gpu="another GPU"))
    earlier = replace(other, provenance=replace(about, card_hash="another"))
    refused = replace(other, verdict=replace(other.verdict, status=Status.FAULT))
    tiny_task.write_kernels(data, kernel, elsewhere, earlier, refused)
    found, left_out = known(data, [problem], Rule(), [problem.cases[0]])
    (only,) = found[problem.name]
    assert (only.candidate, only.score) == (kernel.candidate, pytest.approx(2, abs=1))
    assert left_out == {"measured on another GPU": 1, "by another card": 1, "refused": 1}
    (data / "held-out").mkdir()
    tiny_task.write_kernels(data / "held-out", kernel)
    with pytest.raises(UsageError, match=f"{problem.name} is to be trained on"):
        must_not_be_held_out(data, [problem])


def test_judges_end_with_a_killed_run(card: Path, tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from training.test_scoring import *
if __name__ == "__main__":
    with pool(Path({str(tmp_path)!r}), Path({str(card)!r})) as (scores, problem):
        assert scores.submit(problem, problem.candidate("no kernel")).result().status is Status.REJECTED
        print(*scores.benches._pool._processes, flush=True)
        time.sleep(60)
"""
    path = tmp_path / "killed.py"
    path.write_text(script, encoding="utf-8")
    environment = {
        **keys.for_tools(),
        "PYTHONPATH": ":".join(sys.path),
        "CUDAMASTER_CACHE": os.environ["CUDAMASTER_CACHE"],
    }
    with subprocess.Popen([sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        judges = [int(number) for number in process.stdout.readline().split()]
        assert judges
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{judge}").exists() for judge in judges):
        assert time.monotonic() < deadline
        time.sleep(0.05)


GPU = LocalGpu(0, "GPU of a test", "GPU-of-a-test", "580", "9.0", "100", "1", "1", "1")


def is_free(gpu: LocalGpu) -> bool:
    """Whether a judge could measure there now."""
    try:
        with cuda._locked(gpu.uuid, alone=True, waits=False):
            return True
    except BlockingIOError:
        return False


def test_nobody_measures_on_the_models_gpu_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LOCKS", tmp_path)
    finished = []
    turns = Turns([GPU], lambda: finished.append(is_free(GPU)))
    with turns.of_model():
        assert not is_free(GPU)
        with turns.of_judges():
            assert is_free(GPU)
        assert not is_free(GPU)
        with pytest.raises(ZeroDivisionError), turns.of_judges():
            raise ZeroDivisionError
        assert turns.is_models
    assert is_free(GPU)
    # What the model still computes ends before a judge may begin.
    assert finished == [False, False, False]


def test_a_model_that_fills_the_gpu_needs_another_one() -> None:
    skipped = CaseVerdict("N=1", True, 1.0, None, skipped="needs 9 MiB of device memory, 4 are free")
    verdict = Verdict("x", "cuda", False, Status.CORRECT, "", cases=(skipped,))
    turns = Turns([GPU], lambda: None)
    with pytest.raises(DeviceError, match="Another GPU is needed"):
        must_have_room(verdict, turns, [GPU])
    must_have_room(verdict, turns, [])
    must_have_room(verdict, Turns([], lambda: None), [GPU])
