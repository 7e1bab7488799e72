"""budget.py and spending.py: limits hold, across resume too, and the best so far is the result."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from chat_servers import ChatServer, DrippingServer
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, command, kernel, plan

from cudamaster.core.errors import BudgetSpent
from cudamaster.core.values import Candidate, Hold, Role, Verdict
from cudamaster.library.search_options import BudgetOptions
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.protocol import Reply, Request, Usage
from cudamaster.runs.budget import Budget, Limits, Spent
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings, read_record
from cudamaster.runs.spending import spent
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.strategies.result import Result

SETTINGS = Settings("cudamaster", 3, 0, "stand-in", dict.fromkeys(ROLES, "scripted"))
# Each call of the scripted model costs 0.25 dollars and 15 tokens.
SCRIPT = [
    plan("A"), code(kernel(score=2.0, tag="a")), command(),
    plan("B"), code(kernel(score=3.0, tag="b")), command(),
    plan("C"), code(kernel(score=4.0, tag="c")), command(),
]  # fmt: skip


class HoldingWorkbench(ScriptedWorkbench):
    """Tells that each judgement held its GPU for ten seconds."""

    on_hold: Callable[[Hold], None] | None = None

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """Judge and tell."""
        assert self.on_hold is not None
        self.on_hold(Hold("GPU-1", time.time(), 10.0, True))
        return super().evaluate(candidate, to_beat=to_beat)


def search(path: Path, budget: Budget, script: list[tuple[Role, str]] = SCRIPT) -> tuple[Result, ScriptedModel]:
    model = ScriptedModel(script)
    return optimize(path, HoldingWorkbench(), model.for_all(), SETTINGS, budget=budget), model


@pytest.mark.parametrize(
    ("limits", "asked", "best", "said"),
    [
        (Limits(dollars=1.0), 4, 2.0, "The budget of 1 dollars is spent: 1."),
        (Limits(dollars=0.9), 4, 2.0, "The budget of 0.9 dollars is spent: 1."),
        (Limits(tokens=91), 7, 3.0, "The budget of 91 tokens is spent: 105."),
        (Limits(gpu_seconds=25), 6, 3.0, "The budget of 25 GPU seconds is spent: 30."),
    ],
)
def test_a_limit_stops_with_the_best_so_far(tmp_path: Path, limits: Limits, asked: int, best: float, said: str) -> None:
    """The call or judgement that reaches the limit is the last; the best until then is the result, on disk too."""
    path = tmp_path / "run"
    result, model = search(path, Budget(limits))
    assert len(model.requests) == asked
    assert (result.stopped, result.score, result.improved) == (True, best, True)
    assert result.note is not None
    assert said in result.note
    assert "--resume" in result.note
    assert sum(use.calls for use in result.usage.values()) == asked
    assert json.loads((path / "best.json").read_text())["score"] == best
    assert not read_record(path).finished


def test_a_stopped_run_goes_on_with_a_larger_budget_and_ends_the_same(tmp_path: Path) -> None:
    """What was spent before counts, nothing is asked or judged twice, and the result is that without limits."""
    path = tmp_path / "run"
    first, _ = search(path, Budget(Limits(dollars=1.0)))
    before = spent(read_record(path))
    assert (before.dollars, before.tokens, before.calls, before.gpu_seconds) == (1.0, 60, 4, 20.0)

    again = ScriptedModel(SCRIPT[4:])
    same = resume(path, HoldingWorkbench(), again.for_all(), budget=Budget(Limits(dollars=1.0), before))
    assert again.requests == []
    assert (same.stopped, same.score, same.note) == (True, first.score, first.note)

    bench = HoldingWorkbench()
    more = resume(path, bench, again.for_all(), budget=Budget(Limits(dollars=1.75), before))
    assert len(again.requests) == 3
    assert (more.stopped, more.score) == (True, 3.0)
    assert len(bench.evaluated) == 1

    rest = ScriptedModel(SCRIPT[7:])
    last = resume(path, HoldingWorkbench(), rest.for_all(), budget=Budget(before=spent(read_record(path))))
    whole, _ = search(tmp_path / "whole", Budget())
    assert replace(last, findings=whole.findings) == whole, "findings count how often the stand-in was asked"
    assert spent(read_record(path)).dollars == 2.25
    assert [session.ended for session in read_record(path).sessions][-1] == "finished"
    assert read_record(path).finished


def test_a_budget_that_is_spent_before_the_baseline_has_no_result(tmp_path: Path) -> None:
    """Nothing begins, and the run can be resumed."""
    path = tmp_path / "run"
    with pytest.raises(BudgetSpent, match=r"budget of 2 dollars is spent: 2\.5\. .*larger --max-dollars") as caught:
        search(path, Budget(Limits(dollars=2.0), Spent(dollars=2.5)))
    assert caught.value.exit_code == 7
    assert read_record(path).sessions[0].ended == caught.value.reason
    result = resume(path, HoldingWorkbench(), ScriptedModel(SCRIPT).for_all())
    assert (result.score, result.stopped) == (4.0, False)


def test_minutes_are_those_of_all_sessions() -> None:
    """The clock of a budget goes on where the last session left it."""
    now = [100.0]
    budget = Budget(Limits(minutes=2), Spent(seconds=90.0), clock=lambda: now[0])
    budget.check()
    now[0] += 29.9
    budget.check()
    now[0] += 0.1
    with pytest.raises(BudgetSpent, match="budget of 2 minutes is spent: 2"):
        budget.check()


def test_minutes_are_not_spent_on_waiting() -> None:
    """A pause is refused that the budget would end in; without a limit on minutes any is allowed."""
    now = [100.0]
    budget = Budget(Limits(minutes=2), Spent(seconds=90.0), clock=lambda: now[0])
    budget.check_pause(29.9)
    with pytest.raises(
        BudgetSpent, match=r"of 2 minutes ends within the 30 s .* asked again: 1\.5 are spent"
    ) as caught:
        budget.check_pause(30.0)
    assert "--max-minutes" in caught.value.fix
    now[0] += 30.0
    with pytest.raises(BudgetSpent, match="budget of 2 minutes is spent"):
        budget.check_pause(0.0)
    Budget(Limits(dollars=1.0)).check_pause(1e6)


@pytest.mark.slow
def test_a_busy_server_is_not_asked_beyond_the_minutes(tmp_path: Path, openai_key: None) -> None:
    """The pauses grow to 64 s, which do not fit into a minute: the search ends there with the best so far."""
    slept: list[float] = []
    with ChatServer(lambda *_: (429, "slow down")) as server:
        model = LiteLLMModel("openai/x", server.url, retries=9, sleep=slept.append, chance=lambda: 0.0)
        models = dict.fromkeys(Role, model)
        settings = replace(SETTINGS, models=dict.fromkeys(ROLES, "openai/x"))
        budget = Budget(Limits(minutes=1), clock=lambda: 0.0)
        result = optimize(tmp_path / "run", HoldingWorkbench(), models, settings, budget=budget)
        assert len(server.asked) == len(slept) + 1
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert (result.stopped, result.score) == (True, 1.0)
    assert "The budget of 1 minutes ends within the 64 s" in str(result.note)
    assert "ends within the 64 s" in str(read_record(tmp_path / "run").sessions[-1].ended)


def test_minutes_end_a_call_that_is_out(tmp_path: Path, openai_key: None) -> None:
    """A server that drips without end costs no more than the minutes given; the best so far is the result."""
    with DrippingServer() as server:
        settings = replace(SETTINGS, models=dict.fromkeys(ROLES, "openai/x"))
        models = dict.fromkeys(Role, LiteLLMModel("openai/x", server.url))
        assert models[Role.PLANNER].known  # LiteLLM is imported, which takes seconds
        began = time.monotonic()
        result = optimize(
            tmp_path / "run", HoldingWorkbench(), models, settings, budget=Budget(Limits(minutes=1.5 / 60))
        )
        assert time.monotonic() - began < 5.0
        assert server.asked <= 1
    assert (result.stopped, result.score) == (True, 1.0)
    assert "minutes is spent" in str(result.note)


def test_what_others_spend_ends_no_call_that_is_out() -> None:
    """Its reply is as good as paid for; minutes and a stop end it."""
    Budget(Limits(dollars=1.0, tokens=1, gpu_seconds=1), Spent(dollars=2.0, tokens=9, gpu_seconds=9)).check_time()
    with pytest.raises(BudgetSpent, match="minutes"):
        Budget(Limits(minutes=1), Spent(seconds=60.0)).check_time()


def test_a_suite_that_is_stopped_waits_for_no_server(tmp_path: Path, openai_key: None) -> None:
    """When all tasks are to stop, none begins a further try."""
    budget = Budget()

    def busy(*_: object) -> tuple[int, str]:
        budget.stop("The suite was interrupted.")
        return 503, "busy"

    with ChatServer(busy) as server:
        model = LiteLLMModel("openai/x", server.url, sleep=lambda _: pytest.fail("it waited"))
        settings = replace(SETTINGS, models=dict.fromkeys(ROLES, "openai/x"))
        result = optimize(tmp_path / "run", HoldingWorkbench(), dict.fromkeys(Role, model), settings, budget=budget)
        assert len(server.asked) == 1
    assert result.stopped
    assert "interrupted" in str(result.note)


class _Telling:
    name = "scripted"

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._script = ScriptedModel(SCRIPT)

    def ask(self, request: Request) -> Reply:
        return replace(self._script.ask(request), usage=self._usage)


@pytest.mark.parametrize(
    ("usage", "limits", "said"),
    [
        (Usage(10, 5, None), Limits(dollars=9), "--max-dollars 9 cannot be kept: the price of 1 calls is unknown"),
        (Usage(None, 5, 0.1), Limits(tokens=1e6), "--max-tokens 1,000,000 cannot be kept: the number of tokens of 1"),
    ],
)
def test_what_cannot_be_counted_ends_the_search_after_one_call(
    tmp_path: Path, usage: Usage, limits: Limits, said: str
) -> None:
    """An unknown price is never taken for nothing."""
    models = dict.fromkeys(Role, _Telling(usage))
    result = optimize(tmp_path / "run", HoldingWorkbench(), models, SETTINGS, budget=Budget(limits))
    assert result.stopped
    assert result.note is not None
    assert said in result.note
    assert sum(use.calls for use in result.usage.values()) == 1
    free = optimize(tmp_path / "other", HoldingWorkbench(), dict.fromkeys(Role, _Telling(usage)), SETTINGS)
    assert not free.stopped, "without that limit it does not matter"


def test_a_killed_session_is_counted_until_it_last_wrote(tmp_path: Path) -> None:
    """What a session spent is on disk while it works: SIGKILL takes no more than the step that was under way."""
    path = tmp_path / "run"
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import time
from pathlib import Path
from test_budget import SCRIPT, SETTINGS, HoldingWorkbench, ScriptedModel
from cudamaster.runs.optimization import optimize

class Slow(HoldingWorkbench):
    def evaluate(self, candidate, *, to_beat=None):
        if len(self.evaluated) == 2:
            print("here", flush=True)
            time.sleep(60)
        time.sleep(0.1)
        return super().evaluate(candidate, to_beat=to_beat)

optimize(Path({str(path)!r}), Slow(), ScriptedModel(SCRIPT).for_all(), SETTINGS)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        os.kill(process.pid, signal.SIGKILL)
    before = spent(read_record(path))
    assert (before.calls, before.gpu_seconds) == (6, 20.0)
    assert 0.2 <= before.seconds < 30
    assert read_record(path).sessions[0].ended is None


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cudamaster", *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_stops_at_a_limit_keeps_it_and_lifts_it(tmp_path: Path) -> None:
    """A stopped run exits with 0 and says what it spent; --resume keeps the limit, and `inf` lifts it."""
    ran = cli("optimize", "hinge_loss", "-R", "1", "-D", "0", "--device", "cpu", "--out", str(tmp_path),
              "--max-gpu-seconds", "0.01", "--json")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["result"]["stopped"]
    assert told["spent"]["gpu_seconds"] > 0.01
    path = told["run"]
    ran = cli("optimize", "--resume", path)
    assert ran.returncode == 0, ran.stderr
    assert "The budget of 0.01 GPU seconds is spent" in ran.stdout
    assert f"optimize --resume {path}" in ran.stdout.splitlines()[-1]
    ran = cli("optimize", "--resume", path, "--max-gpu-seconds", "inf", "--json")
    assert ran.returncode == 0, ran.stderr
    assert not json.loads(ran.stdout)["result"]["stopped"]
    assert [session.limits.gpu_seconds for session in read_record(Path(path)).sessions] == [0.01, 0.01, None]


@pytest.mark.slow
def test_the_command_holds_a_reply_to_its_seconds(tmp_path: Path) -> None:
    """--model-timeout as it is given, and as --resume keeps it; each further try is a line with reason and pause.

    SIGTERM meanwhile ends it with the line to resume, which finds a missing key before anything else.
    """
    ourselves = [sys.executable, "-m", "cudamaster", "optimize"]
    environment = {**os.environ, "OPENAI_API_KEY": "dummy-key-5f2a9c"}
    with DrippingServer() as server:
        command = [*ourselves, "hinge_loss", "-R", "1", "-D", "0", "--device", "cpu", "--out", str(tmp_path),
                   "--model", "openai/x", "--base-url", server.url, "--model-timeout", "0.5"]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "asked again" in line)
            process.terminate()
            _, said = process.communicate(timeout=30)
    assert re.search(r"planner is asked again in 1 s: it did not answer in time \(no whole reply within 0\.5 s\)", line)
    (path,) = tmp_path.iterdir()
    assert process.returncode == 130
    assert f"optimize --resume {path}\ninterrupted\n" in said
    (session,) = read_record(path).sessions
    assert (session.limits.reply_seconds, session.ended) == (0.5, "interrupted")
    del environment["OPENAI_API_KEY"]
    ran = subprocess.run([*ourselves, "--resume", str(path)], env=environment, capture_output=True, text=True)
    assert ran.returncode == 5
    assert ran.stderr.startswith(f"error: Model openai/x at {server.url}: no key was given.")
    assert read_record(path).sessions == (session,)


def test_limits_of_before_hold_until_others_are_given() -> None:
    before = Limits(dollars=1.0, tokens=100, minutes=5)
    given = BudgetOptions(dollars=None, tokens=math.inf, minutes=9.0, gpu_seconds=3.0, reply_seconds=30.0)
    now = given.limits(before)
    assert now == Limits(dollars=1.0, tokens=None, minutes=9.0, gpu_seconds=3.0, reply_seconds=30.0)
    assert BudgetOptions(None, None, None, None).limits(now) == now
    assert BudgetOptions(None, None, None, None).limits().reply_seconds == 600.0


def test_a_reader_of_a_stopped_run_is_told_why(tmp_path: Path) -> None:
    path = tmp_path / "run"
    search(path, Budget(Limits(dollars=1.0)))
    assert read(path).stopped_at == "asking the coder agent (scripted); The budget of 1 dollars is spent: 1."
