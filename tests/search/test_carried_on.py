# ruff: noqa: D102
"""A finished search continues for more rounds: nothing is paid for twice, and the result is that of a longer one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from search_stand_ins import COMMAND, ScriptedWorkbench, code, fix, kernel, plan, submission

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Role
from cudamaster.models.protocol import Model, Reply, Request, Usage
from cudamaster.runs import carrying, reading
from cudamaster.runs.carrying import More
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings, read_manifest, read_record
from cudamaster.strategies import registry
from cudamaster.strategies.result import Result


class Killed(Exception):
    """What a test ends a search with."""


class Answering:
    """A model of all roles whose replies depend on the number of the call alone, counted over all its sessions."""

    name = "answering"

    def __init__(self, done: int = 0, fails: tuple[int, ...] = (), killed_at: int | None = None) -> None:
        self.asked = done
        self.new = 0
        self._fails = fails
        self._killed_at = killed_at

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        self.new += 1
        if self.asked == self._killed_at:
            raise Killed
        return Reply(self._text(request.role), self.name, Usage(10, 5, 0.25, 0.1))

    def _text(self, role: Role) -> str:
        number = self.asked
        if role is Role.PLANNER:
            return plan(f"Idea {number}")[1]
        if role is Role.COMPILER:
            return COMMAND
        if role is Role.DEBUG:
            return fix(f"{number}")[1]
        if role is Role.JUDGE:
            advice = {"bottleneck": "b", "optimisation method": f"Method {number}", "modification plan": "p"}
            return json.dumps(advice)
        if role is Role.AGENT:
            return submission(kernel(score=1.0 + number / 10, tag=f"i{number}"))[1]
        if number in self._fails:
            return code(kernel("wrong", tag=f"i{number}"))[1]
        return code(kernel(score=1.0 + number / 10, tag=f"i{number}"))[1]

    def for_all(self) -> dict[Role, Model]:
        return dict.fromkeys(Role, self)


def settings(strategy: str = "cudamaster", rounds: int = 3, tries: int = 1) -> Settings:
    found = registry.find(strategy)
    return Settings(
        strategy, rounds, tries if found.debug_tries is not None else 0, "cpu",
        dict.fromkeys(found.roles, Answering.name), options=registry.parse_options(found, ()),
    )  # fmt: skip


def story(result: Result) -> object:
    """What a search came to, without times of day."""
    return result.best.id, result.score, result.rounds, result.usage, result.note


def answered(path: Path) -> int:
    return len(list((path / "exchanges").glob("*.json")))


def judged(path: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mtime_ns for each in (path / "verdicts").glob("*.json")}


@pytest.mark.parametrize("strategy", registry.STRATEGIES)
def test_a_finished_run_goes_on_and_ends_as_one_that_had_the_rounds_at_first(strategy: str, tmp_path: Path) -> None:
    """For every strategy, the draws of the contrastive one included."""
    whole = optimize(tmp_path / "whole", ScriptedWorkbench(), Answering().for_all(), settings(strategy, 5))
    run, first = tmp_path / "run", Answering()
    short = optimize(run, ScriptedWorkbench(), first.for_all(), settings(strategy, 3))
    before, paid = judged(run), answered(run)
    bench, model = ScriptedWorkbench(), Answering(done=first.asked)

    result = resume(run, bench, model.for_all(), more=More(rounds=5))

    assert len(short.rounds) == 3
    assert len(result.rounds) == 5
    assert result.rounds[:3] == short.rounds
    assert story(result) == story(whole)
    assert model.new == answered(run) - paid > 0
    assert bench.baseline.id not in bench.evaluated
    assert before.items() <= judged(run).items()
    now = read_manifest(run).settings
    assert now.rounds == 5
    assert [(stage.ended, stage.rounds) for stage in now.earlier] == [(3, 3)]
    summary = reading.read(run)
    assert "R = 5" in summary.search
    assert "carried on from R = 3" in summary.search
    assert read_record(run).finished


def test_rounds_that_are_over_keep_their_tries(tmp_path: Path) -> None:
    """More tries are for the rounds to come: an earlier one that gave up is replayed as it was."""
    run, first = tmp_path / "run", Answering(fails=(2, 5))  # the kernel and its repair in round 1, with D = 1
    optimize(run, ScriptedWorkbench(), first.for_all(), settings(rounds=2, tries=1))
    model = Answering(done=first.asked, fails=tuple(range(first.asked + 1, first.asked + 10)))
    result = resume(run, ScriptedWorkbench(), model.for_all(), more=More(rounds=3, debug_tries=2))
    assert [len(each.attempts) for each in result.rounds] == [2, 1, 3]
    assert [read_manifest(run).settings.tries_in(number) for number in (1, 2, 3)] == [1, 1, 2]
    assert len(reading.read(run).rounds) == 3
    again = resume(run, ScriptedWorkbench(), Answering().for_all())
    assert story(again) == story(result)


def test_more_tries_in_a_round_that_is_open(tmp_path: Path) -> None:
    """A run that was stopped within a round has the larger number of tries in it already."""
    run, first = tmp_path / "run", Answering(fails=(2, 5, 8), killed_at=5)
    with pytest.raises(Killed):
        optimize(run, ScriptedWorkbench(), first.for_all(), settings(rounds=1, tries=1))
    model = Answering(done=4, fails=(5,))
    result = resume(run, ScriptedWorkbench(), model.for_all(), more=More(debug_tries=2))
    assert [len(each.attempts) for each in result.rounds] == [3]
    assert result.rounds[0].outcome.accepted


@pytest.mark.parametrize("killed_at", range(10, 16))
def test_killed_while_it_is_carried_on(killed_at: int, tmp_path: Path) -> None:
    """At each call of the rounds to come; then it is resumed with the rounds it was given, or with more."""
    whole = optimize(tmp_path / "whole", ScriptedWorkbench(), Answering().for_all(), settings(rounds=5))
    run, first = tmp_path / "run", Answering()
    optimize(run, ScriptedWorkbench(), first.for_all(), settings(rounds=3))
    assert first.asked == 9
    with pytest.raises(Killed):
        resume(run, ScriptedWorkbench(), Answering(done=9, killed_at=killed_at).for_all(), more=More(rounds=5))
    assert not read_record(run).finished
    assert reading.read(run).stopped_at is not None
    model = Answering(done=answered(run))
    assert model.asked == killed_at - 1
    more = More() if killed_at % 2 else More(rounds=5)
    assert story(resume(run, ScriptedWorkbench(), model.for_all(), more=more)) == story(whole)
    assert model.asked == answered(run) == 15
    assert len(read_manifest(run).settings.earlier) == 1


def test_killed_between_the_summary_and_the_settings(tmp_path: Path) -> None:
    """A run whose summary is gone and whose settings are the old ones is an unfinished one of the old rounds."""
    run, first = tmp_path / "run", Answering()
    optimize(run, ScriptedWorkbench(), first.for_all(), settings(rounds=3))
    (run / "summary.json").unlink()
    result = resume(run, ScriptedWorkbench(), Answering(done=9).for_all(), more=More(rounds=4))
    assert len(result.rounds) == 4


@pytest.mark.parametrize(
    ("more", "reason", "remedy"),
    [
        (More(rounds=2), "-R 2 is fewer than the 3 rounds", "Give 3 or more"),
        (More(debug_tries=0), "-D 0 is fewer than the 1 debug tries", "Give 1 or more"),
        (More(debug_tries=5), "All 3 rounds of", "Add -R 5"),
    ],
)
def test_less_than_was_done_is_refused(more: More, reason: str, remedy: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    optimize(run, ScriptedWorkbench(), Answering().for_all(), settings(rounds=3))
    before = (run / "run.json").read_text()
    with pytest.raises(UsageError) as refused:
        resume(run, ScriptedWorkbench(), Answering().for_all(), more=more)
    assert reason in refused.value.reason
    assert remedy in refused.value.fix
    assert (run / "run.json").read_text() == before
    assert read_record(run).finished


def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    """A search that ended early, and a strategy without debug tries."""
    run = tmp_path / "run"

    class Idle(Answering):
        def _text(self, role: Role) -> str:
            return json.dumps({"idea": "", "plan": ""}) if self.asked == 4 else super()._text(role)

    result = optimize(run, ScriptedWorkbench(), Idle().for_all(), settings(rounds=3))
    assert result.note is not None
    with pytest.raises(UsageError, match="ended by itself"):
        carrying.settings_with(run, More(rounds=5))
    assert carrying.as_in_suite(run, settings(rounds=5)) == More()
    other = tmp_path / "other"
    optimize(other, ScriptedWorkbench(), Answering().for_all(), settings("sample", 2))
    with pytest.raises(UsageError, match="no debug tries"):
        carrying.settings_with(other, More(debug_tries=2))


def test_settings_of_before_are_read(tmp_path: Path) -> None:
    """A run.json that knows no stages yet, as all until now."""
    run = tmp_path / "run"
    optimize(run, ScriptedWorkbench(), Answering().for_all(), settings(rounds=1))
    manifest = json.loads((run / "run.json").read_text())
    assert "earlier" not in manifest["settings"]  # nor does one that was never carried on
    assert read_manifest(run).settings.earlier == ()


# ---- through the command line, with the playbook on the CPU device


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cudamaster", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_carries_on_and_says_so(tmp_path: Path) -> None:
    """Round 1, then round 2 of the same run, which is killed in the middle of it and resumed."""
    run = tmp_path / "spmv_csr_bf16"
    ran = cli("optimize", "spmv_csr", "--precision", "bf16", "-R", "1", "-D", "0", "--device", "cpu", "--record",
              str(tmp_path))  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    before = judged(run)

    done = cli("optimize", "--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert "this run is finished" in done.stderr
    assert re.search(rf"optimize --resume {re.escape(str(run))} -R 3$", done.stderr.strip())
    for words, said in (
        (("-R", "0"), "0 is not in the range"),
        (("--device", "cuda"), "-R and -D may be raised, and limits (--max-...) given anew"),
        (("--model", "openai/x"), "leave --model out"),
        (("--precision", "bf16"), "leave --precision out"),
    ):
        refused = cli("optimize", "--resume", str(run), *words)
        assert refused.returncode == 2
        assert said in " ".join(refused.stderr.split())

    words = [sys.executable, "-m", "cudamaster", "optimize", "--resume", str(run), "-R", "2", "-D", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while answered(run) < 5 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    done = cli("optimize", "--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert "R = 2, D = 1, carried on from R = 1, D = 0" in " ".join(done.stdout.split())
    assert "this run is finished" not in done.stderr
    assert before.items() <= judged(run).items()
    summary = json.loads((run / "summary.json").read_text())
    assert [each["outcome"]["round"] for each in summary["rounds"]] == [1, 2]
    shown = cli("show", str(run), "--no-diff")
    assert shown.returncode == 0, shown.stderr
    assert "carried on from R = 1" in " ".join(shown.stdout.split())
    replayed = cli("optimize", "--replay", str(run), "--record", str(tmp_path / "again"))
    assert replayed.returncode == 0, replayed.stderr


@pytest.mark.slow
def test_a_suite_goes_on_with_more_rounds(tmp_path: Path) -> None:
    """Finished tasks do the further round, one whose ideas are used up stays; nothing is judged again."""
    suite = tmp_path / "suite"
    ran = cli("suite", "--tasks", "spmv_csr", "-R", "1", "-D", "0", "--device", "cpu", "--record", str(suite))
    assert ran.returncode == 0, ran.stderr
    before = judged(suite / "spmv_csr_fp32")
    fewer = cli("suite", "--resume", str(suite), "-R", "1", "-D", "0")
    assert fewer.returncode == 0
    assert "This suite is finished" in fewer.stdout
    ran = cli("suite", "--resume", str(suite), "-R", "2", "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)["result"]
    assert result["settings"]["rounds"] == 2
    run = suite / "spmv_csr_fp32"
    assert read_manifest(run).settings.rounds == 2
    assert [stage.rounds for stage in read_manifest(run).settings.earlier] == [1]
    assert before.items() <= judged(run).items()
    lowered = cli("suite", "--resume", str(suite), "-R", "1")
    assert lowered.returncode == 2
    assert "-R 1 is fewer than the 2 rounds" in " ".join(lowered.stderr.split())
