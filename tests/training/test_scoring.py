from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from training import judged_kernels, tiny_task

from cudamaster.build.building import Builder
from cudamaster.core import keys
from cudamaster.core.errors import DeviceError, RunFolderError, UsageError
from cudamaster.core.values import Candidate, CaseVerdict, Precision, Status, Verdict
from cudamaster.devices import cuda
from cudamaster.devices.choose import choose
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import LocalGpu
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard
from cudamaster.training.benches import Gpus, Processes
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.problems import Problem, loaded
from cudamaster.training.reward import Rule
from cudamaster.training.scoring import Scoring, scoring
from cudamaster.training.shown import known, must_not_be_held_out
from cudamaster.training.turns import Turns, must_have_room
from cudamaster.training.verdicts import Verdicts
from cudamaster.workbench.evaluation import Workbench


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
        assert kept.provenance.author == "policy"
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


class Noted:
    """Judges of other machines, so to speak: they note what they are asked together, and find it wrong or fail."""

    workers, together = 2, 3

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[list[Candidate]] = []
        self._error = error

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """See Benches."""
        self.asked.append(list(candidates))
        if self._error is not None:
            raise self._error
        return [Verdict(one.id, "cpu", True, Status.WRONG, "") for one in candidates]

    def bench(self, card: TaskCard, precision: Precision) -> Workbench:
        """No prompt is made here."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture(scope="module")
def problem(card: Path) -> Problem:
    return loaded([str(card)], [Precision.FP32], lambda card, precision: Workbench(card, precision, choose("cpu")))[0]


@contextmanager
def waiting(benches: Noted, folder: Path) -> Iterator[tuple[Scoring, threading.Event]]:
    """A pool of one thread, which begins when the event is set and is done when the block is left."""
    begins = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(begins.wait)
        try:
            yield Scoring(benches, Verdicts(folder / "verdicts.jsonl", "aa"), executor, "a test"), begins
        finally:
            begins.set()


def test_verdicts_of_any_run_are_found(tmp_path: Path) -> None:
    path, kernel = tmp_path / "verdicts.jsonl", judged_kernels.kernel(0)
    Verdicts(path, "measured before").add("ab", kernel)
    mine = Verdicts(path, "cd")
    assert (mine.get("ab"), len(mine), mine.paid) == (kernel, 1, 0)


def test_runs_at_once_share_their_verdicts(tmp_path: Path) -> None:
    """The first verdict of a key counts for both, whoever wrote it, and after what a killed run left."""
    path, (one, other) = tmp_path / "verdicts.jsonl", (judged_kernels.kernel(0), judged_kernels.kernel(1))
    mine, theirs = Verdicts(path, "aa"), Verdicts(path, "bb")
    theirs.add("ab", one)
    assert mine.get("ab") == one
    assert mine.add("ab", other) == one
    assert (mine.get("ab"), theirs.get("ab"), mine.paid, theirs.paid) == (one, one, 1, 1)
    with path.open("ab") as file:
        file.write(b'{"key": "99", "run": "cc", "kernel": {"candi')
    assert "cd" not in mine
    theirs.add("cd", other)
    theirs.add("ef", one)
    assert (mine.get("cd"), mine.get("ef"), len(mine), len(Verdicts(path, ""))) == (other, one, 3, 3)


@pytest.mark.slow
def test_threads_of_one_run_add_at_once(tmp_path: Path) -> None:
    """A lock of the file alone does not keep them apart: it is one open file."""
    mine, kernels = Verdicts(tmp_path / "verdicts.jsonl", "aa"), [judged_kernels.kernel(number) for number in (0, 1)]

    def add(thread: int) -> None:
        for number in range(20):
            key = f"{thread:x}{number:03x}"
            assert mine.add(key, kernels[number % 2]) == kernels[number % 2]
            assert mine.get(key) == kernels[number % 2]

    with ThreadPoolExecutor(8) as executor:
        for done in [executor.submit(add, thread) for thread in range(8)]:
            done.result()
    assert len(Verdicts(mine.path, "")) == mine.paid == 160


def test_a_damaged_verdict_is_named_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    for text in ('{"key": "ab", "run": "aa", "kernel": {"cand}}', '{"key": "ab", "run": "aa", "kernel": {}}'):
        path.write_text(text + "\n")
        with pytest.raises(RunFolderError, match=r"verdicts.jsonl has a verdict that cannot be read"):
            Verdicts(path, "aa").get("ab")


def test_what_was_read_of_a_torn_line_is_forgotten_with_it(tmp_path: Path) -> None:
    """A buffer may have it still, when another verdict stands in its place."""
    path, (one, other) = tmp_path / "verdicts.jsonl", (judged_kernels.kernel(0), judged_kernels.kernel(1))
    mine, theirs = Verdicts(path, "aa"), Verdicts(path, "bb")
    theirs.add("ab", one)
    with path.open("ab") as file:
        file.write(b'{"key": "99", "run": "cc", "kernel": {"candi')
    assert mine.get("ab") == one
    theirs.add("cd", other)
    assert (mine.get("cd"), mine.get("99")) == (other, None)


def test_a_file_that_was_changed_in_between_gives_nobody_the_verdict_of_another(
    problem: Problem, tmp_path: Path
) -> None:
    path, kernels = tmp_path / "verdicts.jsonl", [judged_kernels.kernel(number) for number in (0, 1)]
    mine = Verdicts(path, "aa")
    for key, kernel in zip(("ab", "cd"), kernels, strict=True):
        mine.add(key, kernel)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(second + first)
    with pytest.raises(RunFolderError, match="was changed while it was read"):
        mine.get("ab")
    path.write_bytes(first)
    with pytest.raises(RunFolderError, match="it is shorter"):
        mine.get("ef")
    with waiting(Noted(), tmp_path / "other") as (scores, _):
        one = problem.candidate("one")
        scores.verdicts.add(scores.key(problem, one), kernels[0])
        with pytest.raises(RunFolderError, match=f"the verdict on {kernels[0].candidate.id} where that on {one.id}"):
            scores.submit(problem, one)


def test_a_line_that_is_no_verdict_is_named(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_text('{"kernel": 1}\n')
    with pytest.raises(RunFolderError, match=r"verdicts.jsonl has a line that is no verdict: .*kernel"):
        Verdicts(path, "ab")


@pytest.mark.slow
def test_builds_of_what_was_judged_are_removed(card: Path, tmp_path: Path) -> None:
    """All but the baseline's."""
    with pool(tmp_path, card) as (scores, problem):
        good, builder = problem.candidate(tiny_task.FAST), Builder(problem.card, problem.precision, CpuDevice())
        for one in (problem.baseline, good):
            build = builder.build(one)
            assert build.worker is not None
            assert build.worker.exists()
            assert scores.submit(problem, one).result().status is Status.CORRECT
            assert build.worker.exists() is (one is problem.baseline)


def test_what_waits_is_judged_together_task_by_task(problem: Problem, tmp_path: Path) -> None:
    benches, other = Noted(), replace(problem, precision=Precision.BF16)
    with waiting(benches, tmp_path) as (scores, begins):
        ours = [problem.candidate(f"{number}") for number in range(5)]
        theirs = [other.candidate(f"{number}") for number in range(2)]
        for one, where in [*((one, problem) for one in ours[:1]), *((one, other) for one in theirs)]:
            scores.submit(where, one)
        found = [scores.submit(problem, one) for one in ours]
        begins.set()
        assert [each.result().candidate for each in found] == [one.id for one in ours]
    # At most as many as one judge is asked about, and so few that the other one has as many.
    assert benches.asked == [ours[:3], theirs, ours[3:4], ours[4:]]
    assert scores.verdicts.paid == 7


def test_each_run_tries_canaries_on_its_own_judge(problem: Problem, tmp_path: Path) -> None:
    judges, canary = (Noted(), Noted()), problem.candidate("no kernel")
    for run, judge in zip("ab", judges, strict=True):
        for _ in range(2):  # once, also when the run goes on
            with ThreadPoolExecutor(1) as executor:
                scores = Scoring(judge, Verdicts(tmp_path / "verdicts.jsonl", run), executor, "a test")
                scores.canary(problem, canary, 3).result()
    assert [judge.asked for judge in judges] == [[[canary]], [[canary]]]


def test_an_error_of_a_judge_comes_to_all_who_wait(problem: Problem, tmp_path: Path) -> None:
    lost = DeviceError("The GPU is gone.", "Look for it.")
    with waiting(Noted(lost), tmp_path) as (scores, begins):
        found = [scores.submit(problem, problem.candidate(f"{number}")) for number in range(4)]
        begins.set()
        assert [each.exception(timeout=10) for each in found] == [lost] * 4
    assert scores.verdicts.paid == 0


def test_what_was_dropped_is_not_judged(problem: Problem, tmp_path: Path) -> None:
    benches = Noted()
    with waiting(benches, tmp_path) as (scores, _):
        scores.submit(problem, problem.candidate("one"))
        scores.drop()
    assert benches.asked == []


def test_a_verdict_is_known_by_all_that_it_depends_on(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with waiting(Noted(), tmp_path) as (scores, _):
        one, hardware = problem.candidate("one"), problem.hardware
        model = hardware.modelled
        assert model is not None
        path = tiny_task.make(tmp_path / "changed")
        path.write_text(path.read_text(encoding="utf-8").replace("[256, 1024]", "[256, 2048]"), encoding="utf-8")
        others = [
            replace(hardware, name="another GPU"),
            replace(hardware, modelled=None),
            replace(hardware, modelled=replace(model, version="v0")),
            replace(hardware, modelled=replace(model, gpu="another GPU")),
        ]
        problems = [replace(problem, brief=replace(problem.brief, hardware=other)) for other in others]
        problems.append(replace(problem, card=cards.load(str(path))))
        # The card's own text is as before, and the reference is another.
        problems.append(replace(problem, card=cards.load(str(tiny_task.make(tmp_path / "referred")))))
        with problems[-1].card.reference_path.open("a", encoding="utf-8") as file:
            file.write("// another\n")
        assert problems[-1].card.hash == problem.card.hash
        keys = [scores.key(each, one) for each in (problem, *problems)]
        keys += [scores.key(problem, problem.candidate("two")), scores.key(problem, one, "canary 1")]
        monkeypatch.setattr("cudamaster.training.scoring.program_hash", lambda: "of another program")
        keys.append(scores.key(problem, one))
        assert len(set(keys)) == len(keys) == 10


def test_a_verdict_of_another_run_that_came_first_counts(problem: Problem, tmp_path: Path) -> None:
    """Both runs were judging the kernel: the one that was slower goes by what a run that goes on would find."""
    with waiting(Noted(), tmp_path) as (scores, begins):
        one = problem.candidate("one")
        mine = scores.submit(problem, one)
        first = Verdict(one.id, "cpu", True, Status.FAULT, "of another run")
        kernel = replace(judged_kernels.kernel(0), candidate=one, verdict=first)
        Verdicts(tmp_path / "verdicts.jsonl", "bb").add(scores.key(problem, one), kernel)
        begins.set()
        assert mine.result() == first
        assert scores.submit(problem, one).result() == first


def test_the_baselines_verdict_says_whose_it_is(problem: Problem, tmp_path: Path) -> None:
    with waiting(Noted(), tmp_path) as (scores, begins):
        begins.set()
        scores.submit(problem, problem.baseline).result()
        kept = scores.verdicts.get(scores.key(problem, problem.baseline))
        assert kept is not None
        assert (kept.provenance.is_baseline, kept.provenance.author) == (True, "")


def test_gpus_of_two_models_are_refused_and_the_other_one_measures_again() -> None:
    one, other = GPU, replace(GPU, uuid="GPU-2")
    with pytest.raises(UsageError, match="several models"):
        Gpus([one, replace(other, name="another")], None)
    gpus, card = Gpus([one, other], None), cards.load("relu")
    assert gpus.workers == 8
    second = gpus.bench_besides(one.uuid, card, Precision.FP32)
    assert second is not None
    assert second.device.unit == other.uuid
    assert Gpus([one], None).bench_besides(one.uuid, card, Precision.FP32) is None


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
        with pytest.raises(RuntimeError, match="turn already"), turns.of_model():
            pass
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
    other = replace(GPU, uuid="GPU-of-the-judges")
    must_have_room(verdict, turns, [other])
    too_slow = replace(skipped, skipped="the time was up")
    must_have_room(replace(verdict, cases=(too_slow,)), turns, [GPU])
    must_have_room(verdict, Turns([], lambda: None), [GPU])
