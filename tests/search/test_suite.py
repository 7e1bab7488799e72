"""scheduler.py: many tasks at once, one budget, errors that stop no other task, and nothing lost by a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from search_stand_ins import FakeCard, ScriptedModel, ScriptedWorkbench, code, command, kernel, plan

from cudamaster.core.errors import ModelError, RunFolderError
from cudamaster.core.values import Candidate, Hold, Precision, Role, Verdict
from cudamaster.runs.budget import Budget, Limits
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings, read_record
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.suites import scheduler as suites
from cudamaster.suites.folder import Entry, State, Suite, SuiteFolder, UnitUse, read
from cudamaster.suites.progress import Board, left_s, usage

SETTINGS = Settings("cudamaster", 2, 0, "stand-in", dict.fromkeys(list(Role)[:4], "scripted"))
SCRIPT = [
    plan("A"), code(kernel(score=2.0, tag="a")), command(),
    plan("B"), code(kernel(score=3.0, tag="b")), command(),
]  # fmt: skip
CALLS = len(SCRIPT)  # of a task; each costs 0.25 dollars
TASKS = [("ant", Precision.FP32), ("bee", Precision.FP32), ("bee", Precision.BF16), ("cow", Precision.FP32)]
NAMES = ["ant_fp32", "bee_fp32", "bee_bf16", "cow_fp32"]
Before = Callable[[str], None]


class Bench(ScriptedWorkbench):
    """Holds its unit for each judgement; `before` hears which task is judged."""

    on_hold: Callable[[Hold], None] | None = None

    def __init__(self, entry: Entry, unit: str, before: Before) -> None:
        super().__init__(entry.precision)
        self.card = FakeCard(entry.task)
        self.baseline = Candidate(entry.task, entry.precision, kernel(score=1.01, tag="baseline"), command()[1])
        self._unit, self._name, self._before = unit, entry.name, before

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """Judge and tell."""
        self._before(self._name)
        assert self.on_hold is not None
        self.on_hold(Hold(self._unit, time.time(), 0.001, True))
        return super().evaluate(candidate, to_beat=to_beat)


def searching(before: Before = lambda name: None, units: dict[str, list[str]] | None = None) -> suites.Search:
    """A search of scripted replies; those that the run folder holds are not asked for again."""

    def search(entry: Entry, path: Path, unit: str, observer: Observer, budget: Budget) -> Result:
        if units is not None:
            units.setdefault(entry.name, []).append(unit)
        bench = Bench(entry, unit, before)
        done = len(list((path / "exchanges").glob("*.json")))
        models = ScriptedModel(SCRIPT[done:]).for_all()
        if (path / "run.json").exists():
            return resume(path, bench, models, observer, budget)
        return optimize(path, bench, models, SETTINGS, observer, budget)

    return search


def run(
    path: Path, search: suites.Search | None = None, budget: Budget | None = None, jobs: int = 2,
    units: tuple[str, ...] = ("GPU-a",), show: Callable[[Board], None] = lambda board: None,
) -> Suite:  # fmt: skip
    """Run the suite in a folder, fresh or again."""
    if path.exists():
        with SuiteFolder.open(path) as folder:
            return suites.run(folder, read(path), search or searching(), budget or Budget(), units, jobs, show)
    suite = suites.new(SETTINGS, TASKS)
    with SuiteFolder.create(path, suite) as folder:
        return suites.run(folder, suite, search or searching(), budget or Budget(), units, jobs, show)


def exchanges(path: Path) -> int:
    return len(list(path.glob("*/exchanges/*.json")))


def test_every_task_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Each has its run folder, which is finished, and its result in suite.json."""
    path = tmp_path / "suite"
    ended = run(path)
    assert [entry.name for entry in ended.entries] == NAMES
    assert all((entry.state, entry.score, entry.rounds) == (State.DONE, 3.0, 2) for entry in ended.entries)
    assert all(read_record(path / name).finished for name in NAMES)
    assert read(path) == ended
    assert ended.sessions[-1].ended == "finished"
    assert ended.entries[0].emulated


def test_a_fresh_suite_takes_over_no_run(tmp_path: Path) -> None:
    """One that lies in its folder may be of another model and of other settings, and is not the suite's result."""
    path = tmp_path / "suite"
    run(path)
    (path / "suite.json").unlink()
    with pytest.raises(RunFolderError, match="holds ant_fp32, bee_fp32, bee_bf16, cow_fp32 already"):
        SuiteFolder.create(path, suites.new(SETTINGS, TASKS))
    assert not (path / "suite.json").exists()


def test_tasks_overlap(tmp_path: Path) -> None:
    """As many judgements as there are jobs run at the same time: a single one would never end."""
    together = threading.Barrier(3, timeout=20)
    waited: Counter[str] = Counter()

    def before(name: str) -> None:
        waited[name] += 1
        if waited[name] == 1 and name != NAMES[3]:
            together.wait()

    assert {entry.state for entry in run(tmp_path / "suite", searching(before), jobs=3).entries} == {State.DONE}


def test_an_error_of_one_task_stops_no_other(tmp_path: Path) -> None:
    """It is kept with the task, with a traceback where the fault is ours, and --resume tries again what failed."""
    path = tmp_path / "suite"

    def before(name: str) -> None:
        if name == "ant_fp32":
            raise ModelError("Model x is gone.", "Wait for it.")
        if name == "bee_bf16":
            raise ZeroDivisionError("one over nothing")

    ant, bee, bf16, cow = run(path, searching(before)).entries
    assert (ant.state, ant.error, ant.trace) == (State.FAILED, "Model x is gone. Wait for it.", None)
    assert (bf16.state, bf16.error) == (State.FAILED, "ZeroDivisionError: one over nothing")
    assert bf16.trace is not None
    assert "in before" in bf16.trace
    assert (bee.state, cow.state) == (State.DONE, State.DONE)
    again = Counter[str]()
    ended = run(path, searching(lambda name: again.update([name])))
    assert {entry.state for entry in ended.entries} == {State.DONE}
    assert set(again) == {"ant_fp32", "bee_bf16"}, "what was done is not done again"
    assert all(entry.error is None for entry in ended.entries)


def test_a_budget_holds_over_all_tasks_and_across_resume(tmp_path: Path) -> None:
    """No more than one call beyond the limit per job; what earlier sessions spent counts."""
    path = tmp_path / "suite"
    ended = run(path, budget=Budget(Limits(dollars=2.0)), jobs=1)
    assert exchanges(path) == 8
    assert [entry.state for entry in ended.entries] == [State.DONE, State.STOPPED, State.WAITING, State.WAITING]
    assert ended.sessions[-1].ended == "The budget of 2 dollars is spent: 2."
    assert not (path / "bee_bf16").exists()

    before = suites.spent_before(path, ended)
    assert (before.dollars, before.calls) == (2.0, 8)
    same = run(path, budget=Budget(ended.sessions[-1].limits, before), jobs=2)
    assert exchanges(path) == 8
    assert [entry.state for entry in same.entries][1:] == [State.WAITING] * 3

    more = run(path, budget=Budget(Limits(dollars=3.0), suites.spent_before(path, same)), jobs=2)
    assert 12 <= exchanges(path) <= 13
    last = run(path, budget=Budget(Limits(), suites.spent_before(path, more)), jobs=2)
    assert {entry.state for entry in last.entries} == {State.DONE}
    assert exchanges(path) == CALLS * len(TASKS), "nothing was asked twice"
    assert suites.spent_before(path, last).dollars == CALLS * len(TASKS) * 0.25


def test_a_task_that_was_stopped_keeps_its_best(tmp_path: Path) -> None:
    ended = run(tmp_path / "suite", budget=Budget(Limits(dollars=0.8)), jobs=1)
    assert (ended.entries[0].state, ended.entries[0].score, ended.entries[0].rounds) == (State.STOPPED, 2.0, 1)


def test_devices_get_tasks_in_turn_and_keep_theirs(tmp_path: Path) -> None:
    """Two devices are used side by side, and a resumed task goes back to the one that its baseline was measured on."""
    path = tmp_path / "suite"
    together = threading.Barrier(2, timeout=20)
    units: dict[str, list[str]] = {}

    def before(name: str) -> None:
        if name in NAMES[:2]:
            together.wait()
            raise ModelError("Gone.", "Wait.")

    ended = run(path, searching(before, units), units=("GPU-a", "GPU-b"))
    assert {units[NAMES[0]][0], units[NAMES[1]][0]} == {"GPU-a", "GPU-b"}
    run(path, searching(units=units), units=("GPU-b", "GPU-c", "GPU-a"))
    assert all(len(set(units[name])) == 1 for name in NAMES[:2])
    assert [entry.unit for entry in ended.entries[:2]] == [units[name][1] for name in NAMES[:2]]


def test_a_device_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "suite"
    run(path, budget=Budget(Limits(dollars=0.8)), jobs=1)
    ended = run(path, units=("GPU-z",))
    assert {entry.unit for entry in ended.entries} == {"GPU-z"}


_CHILD = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import time
from pathlib import Path
from test_suite import run, searching

judged = []

def before(name):
    time.sleep(0.05)
    if name == "bee_fp32":
        judged.append(name)
        if len(judged) == 3:  # the baseline, one kernel, and the one at hand
            print("here", flush=True)
            time.sleep(60)

run(Path(sys.argv[1]), searching(before))
"""


@pytest.mark.slow(but=["9"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_lost_by_a_kill_or_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    """One task is within a judgement, others are done or have not begun: a resumed suite ends as any other.

    What the one had come to is kept with its mark.
    """
    path = tmp_path / "suite"
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.5)
        os.kill(process.pid, number)
        started = time.monotonic()
        process.wait(30)
    assert time.monotonic() - started < 10
    left = read(path)
    assert left.sessions[-1].ended == ("interrupted" if number == signal.SIGINT else None)
    if number == signal.SIGINT:
        stopped = left.entries[1]
        assert (stopped.state, stopped.score, stopped.rounds) == (State.STOPPED, 2.0, 1)
        assert stopped.emulated
    ended = run(path)
    assert {entry.state for entry in ended.entries} == {State.DONE}
    assert all(entry.score == 3.0 for entry in ended.entries)
    assert exchanges(path) == CALLS * len(TASKS)


@pytest.mark.slow
def test_an_interrupted_suite_waits_for_what_ends_soon(tmp_path: Path) -> None:
    """A run whose judgement was its last step is done; in any case it writes down for how long it was worked on."""
    path = tmp_path / "suite"
    child = _CHILD.replace("time.sleep(60)", "time.sleep(1.5)")
    with subprocess.Popen(
        [sys.executable, "-c", child, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        process.wait(30)
    (session,) = read_record(path / "bee_fp32").sessions
    assert session.ended == "finished"
    assert read(path).entries[1].state is State.DONE
    assert not list(path.rglob("*.tmp"))


def test_how_it_stands_is_told_while_it_runs(tmp_path: Path) -> None:
    """What each running task waits for, what was spent, and in the end that all is done."""
    boards: list[Board] = []
    run(tmp_path / "suite", searching(lambda name: time.sleep(0.15)), show=boards.append)
    doing = {view.doing for board in boards for view in board.running}
    assert "building and judging" in doing
    assert max(len(board.running) for board in boards) == 2
    last = boards[-1]
    assert (last.count(State.DONE), last.running, last.left_s) == (4, (), 0.0)
    assert (last.spent.dollars, last.spent.calls) == (6.0, 24)
    assert any(board.left_s for board in boards)


def test_the_share_of_time_counts_what_overlaps_once() -> None:
    holds = [
        Hold("a", 10.0, 4.0, True),
        Hold("a", 12.0, 4.0, False),
        Hold("a", 13.0, 1.0, False),
        Hold("a", 20.0, 1.0, True),
        Hold("b", 0.0, 9.0, False),
    ]
    assert usage(holds, ("a", "b", "c")) == (UnitUse("a", 7.0, 5.0), UnitUse("b", 9.0, 0.0), UnitUse("c", 0.0, 0.0))


def test_the_time_left_goes_by_what_a_step_took() -> None:
    """Ten seconds a step; five steps are left of two tasks, the failed one's do not count."""
    entries = [
        Entry("a", Precision.FP32, State.DONE),
        Entry("b", Precision.FP32, State.RUNNING),
        Entry("c", Precision.FP32, State.WAITING),
        Entry("d", Precision.FP32, State.FAILED),
    ]
    steps, seconds = {"a_fp32": 3, "b_fp32": 1}, {"a_fp32": 30.0, "b_fp32": 10.0, "c_fp32": 0.0}
    assert left_s(entries, steps, seconds, steps_each=3, jobs=1) == 50.0
    assert left_s(entries, steps, seconds, steps_each=3, jobs=2) == 25.0
    assert left_s(entries, {}, {}, steps_each=3, jobs=2) is None


def test_a_folder_that_is_no_suite_or_in_use_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "suite"
    with pytest.raises(RunFolderError, match="There is no suite in"):
        read(tmp_path)
    run(path)
    with pytest.raises(RunFolderError, match=r"a single run in .*ant_fp32.*optimize --resume"):
        read(path / "ant_fp32")
    with pytest.raises(RunFolderError, match="holds a suite already"):
        SuiteFolder.create(path, suites.new(SETTINGS, TASKS))
    with SuiteFolder.open(path), pytest.raises(RunFolderError, match="Another process is working on"):
        SuiteFolder.open(path)
    file = path / "suite.json"
    text = file.read_text()
    file.write_text(text.replace('"score": 3.0', '"score": 9.0', 1))
    with pytest.raises(RunFolderError, match=r"suite\.json was changed"):
        read(path)
    file.write_text(json.dumps({"format": 99}))
    with pytest.raises(RunFolderError, match="has format 99"):
        read(path)


def test_a_damaged_run_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "suite"
    run(path, budget=Budget(Limits(dollars=0.8)), jobs=1)
    victim = next((path / "ant_fp32" / "exchanges").glob("*.json"))
    victim.write_text("{")
    ended = run(path)
    assert [entry.state for entry in ended.entries] == [State.FAILED, State.DONE, State.DONE, State.DONE]
    failed = ended.entries[0]
    assert (failed.score, failed.rounds, failed.mark) == (2.0, 1, "emulated")  # as before
    assert victim.name in str(ended.entries[0].error)


def cli(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", "suite", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
    )


@pytest.mark.slow
def test_the_command_records_replays_and_resumes(tmp_path: Path) -> None:
    """Real tasks on the CPU device; the replay has no compiler. A suite that is done is not done again."""
    record, again = tmp_path / "record", tmp_path / "again"
    ran = cli("--tasks", "hinge*", "--precision", "both", "-R", "1", "-D", "0", "--device", "cpu", "--json",
              "--record", str(record))  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)["result"]
    assert [entry["state"] for entry in result["entries"]] == ["done", "done"]
    assert all(entry["emulated"] and entry["unit"] == "cpu" for entry in result["entries"])
    (use,) = result["sessions"][0]["use"]
    assert 0 < use["measuring_s"] < use["held_s"] < result["sessions"][0]["seconds"]

    ran = cli("--replay", str(record), "--record", str(again), "--json", PATH="/nowhere", CXX="/nowhere/g++")
    assert ran.returncode == 0, ran.stderr
    replayed = json.loads(ran.stdout)["result"]
    assert [entry["score"] for entry in replayed["entries"]] == [entry["score"] for entry in result["entries"]]

    ran = cli("--resume", str(again), PATH="/nowhere")
    assert ran.returncode == 0, ran.stderr
    assert "hinge_loss  fp32" in ran.stdout
    assert "modelled" in ran.stdout
    assert f"report {again}" in ran.stdout.splitlines()[-1]
    shown = subprocess.run(
        [sys.executable, "-m", "cudamaster", "show", str(again)], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "hinge_loss  fp32       done" in shown.stdout

    next((record / "hinge_loss_fp32" / "exchanges").glob("*.json")).write_text("{")
    ran = cli("--precision", "both", "--replay", str(record), "--record", str(tmp_path / "third"))
    assert ran.returncode == 1
    assert "hinge_loss_fp32 failed:" in ran.stdout
    assert f"suite --resume {tmp_path / 'third'}" in ran.stdout.splitlines()[-1]
    assert [entry.state for entry in read(tmp_path / "third").entries] == [State.FAILED, State.DONE]


@pytest.mark.slow
def test_a_record_that_ends_early_says_why_its_task_was_stopped(tmp_path: Path) -> None:
    """No budget stopped it, so that the record's end is the reason, in what is printed and in suite.json."""
    record, again = tmp_path / "record", tmp_path / "again"
    ran = cli("--tasks", "hinge*", "-R", "1", "-D", "0", "--device", "cpu", "--record", str(record))
    assert ran.returncode == 0, ran.stderr
    run = record / "hinge_loss_fp32"
    (run / "summary.json").unlink()
    sorted((run / "exchanges").iterdir())[-1].unlink()
    ran = cli("--replay", str(record), "--record", str(again))
    assert ran.returncode == 0, ran.stderr
    told = " ".join(ran.stdout.split())
    assert f"Stopped: The record {run} ends here" in told
    assert "1 task is not finished." in told
    assert "ends here" in str(read(again).sessions[-1].ended)


@pytest.mark.slow(but=["arguments2-6-There is no suite in nowhere"])
@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--tasks", "nothing*"], 2, "No task is named 'nothing*'"),
        (["--tasks", "sorting", "--tasks", "softmx"], 2, "No task is named 'softmx'. Did you mean softmax?"),
        (["--resume", "nowhere"], 6, "There is no suite in nowhere"),
        (["--resume", "nowhere", "--tasks", "relu"], 2, "leave --tasks out"),
        (["--resume", "nowhere", "--record", "x"], 2, "leave --record out"),
        (["--max-dollars", "0"], 2, "max-dollars"),
        (["--thresholds", "nowhere.yaml", "--device", "cpu"], 2, "nowhere.yaml"),
        (["--tasks", "sorting", "--replay", "nowhere"], 2, "holds no record of 'sorting' in fp32 or bf16"),
        (["--tasks", "sorting", "--max-dollars", "1", "--model", "openai/x", "--base-url", "http://localhost:1/v1"],
         2, "the price of openai/x is unknown. Give --max-tokens"),
        (["--tasks", "sorting", "--model", "no-provider/x"], 2, "No model is known as no-provider/x"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_begins(
    tmp_path: Path, arguments: list[str], exit_code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "dummy-key-5f2a9c")
    ran = cli(*arguments, "--out", str(tmp_path / "runs"))
    assert ran.returncode == exit_code, ran.stderr
    assert said in " ".join(ran.stderr.split())
    assert not (tmp_path / "runs").exists()
