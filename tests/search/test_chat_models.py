"""The real path: agents through LiteLLM to a server that speaks the OpenAI chat protocol, and real builds.

The server's replies depend on the request. It refuses a debug prompt that lacks the log of the failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chat_servers import SECRET, ChatServer
from plain_device import PlainCpuDevice
from search_stand_ins import COMMAND, code, dot_product, fix, plan
from small_cards import small_card

from cudamaster.core.errors import ModelError
from cudamaster.core.values import Precision, Role, Status
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.protocol import Model
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.workbench.evaluation import Workbench

pytestmark = pytest.mark.usefixtures("openai_key")


GOOD = dot_product("total += X[i] * Y[i];  // good")

FAILING = {
    # What the debug prompt has to hold for each failure, and the fix that leads to the next code.
    "first": (dot_product("totl += X[i] * Y[i];"), re.compile(r"error: .*\btotl\b", re.S), "second"),
    "second": (dot_product("total += X[i];"), re.compile(r"Status: wrong.*expected", re.S), "third"),
    "third": (
        dot_product("total += X[i] * Y[i]; *(volatile float*)8 = total;"),
        re.compile(r"Status: fault"),
        "fourth",
    ),
}


def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
    """Code that does not compile, then one with a wrong result, then one that faults, then a good one."""
    text = messages[-1]["content"]
    if role is Role.PLANNER:
        return 200, plan("Sum in a register")[1]
    if role is Role.COMPILER:
        return 200, f"```\n{COMMAND}\n```"
    if role is Role.DEBUG:
        for source, log, following in FAILING.values():
            if source.strip() in text:
                return (200, fix(following)[1]) if log.search(text) else (400, f"the log lacks {log.pattern}")
        return 400, "this is not the failing code"
    wanted = re.search(r"FIX (\w+)", text)
    if wanted is None:
        return 200, code(FAILING["first"][0])[1]
    return 200, code(FAILING[wanted[1]][0] if wanted[1] in FAILING else GOOD)[1]


@pytest.fixture
def workbench() -> Workbench:
    """The real one, on the CPU device, with a single small timed case."""
    return Workbench(small_card("dot_product"), Precision.FP32, PlainCpuDevice(), modelled=False)


def models(server: ChatServer) -> dict[Role, Model]:
    return dict.fromkeys(Role, LiteLLMModel("openai/test-model", server.url, retries=0))


SETTINGS = Settings("cudamaster", 1, 3, "stand-in", dict.fromkeys(ROLES, "openai/test-model"))


@pytest.mark.slow
def test_the_whole_way_with_a_model_that_needs_three_debug_tries(tmp_path: Path, workbench: Workbench) -> None:
    run = tmp_path / "run"
    with ChatServer(answer) as server:
        result = optimize(run, workbench, models(server), SETTINGS)
    statuses = [attempt.status for attempt in result.rounds[0].attempts]
    assert statuses == [Status.COMPILE_ERROR, Status.WRONG, Status.FAULT, Status.CORRECT]
    assert result.best.code == GOOD
    assert result.improved
    assert result.usage[Role.DEBUG].calls == 3
    assert result.usage[Role.DEBUG].prompt_tokens == 300
    assert result.usage[Role.DEBUG].dollars is None, "the price of a server of one's own is not known"
    assert all(SECRET in headers["Authorization"] for headers in server.headers)
    assert not [path for path in run.rglob("*") if path.is_file() and SECRET in path.read_text()]


@pytest.mark.slow
def test_the_server_refuses_a_debug_prompt_without_the_log(tmp_path: Path, workbench: Workbench) -> None:
    """Holds the test above to its word: with the compiler's log cut out, the run fails."""

    def without_log(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        cut = [{**m, "content": re.sub(r"```text.*?```", "", m["content"], flags=re.S)} for m in messages]
        return answer(role, cut)

    with ChatServer(without_log) as server, pytest.raises(ModelError, match="the log lacks"):
        optimize(tmp_path / "run", workbench, models(server), SETTINGS)


@pytest.mark.slow
def test_a_search_in_which_no_reply_made_sense_ends_with_the_code_of_that(tmp_path: Path) -> None:
    """With --json there is one object on stdout, and resumed it ends the same; a suite counts it as failed.

    There, too, each further try is a line.
    """
    busy: list[tuple[int, str]] = []
    with ChatServer(lambda *_: busy.pop() if busy else (200, "Sorry, I am a teapot.")) as server:
        common = ["-R", "1", "-D", "0", "--device", "cpu", "--model", "openai/x", "--base-url", server.url]

        def command(*words: str) -> subprocess.CompletedProcess[str]:
            whole = [sys.executable, "-m", "cudamaster", *words]
            return subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, check=False)

        ran = command("optimize", "relu", *common, "--out", "runs")
        assert ran.returncode == 5, ran.stderr
        assert re.search(r"error: No round produced a kernel: The planner .* no usable form: .*exchanges", ran.stderr)
        again = "the planner is asked again: its reply cannot be used: there is no complete JSON object"
        assert ran.stdout.count(again) == 1
        (run,) = (tmp_path / "runs").iterdir()
        resumed = command("optimize", "--resume", str(run), "--json")
        assert resumed.returncode == 5
        assert json.loads(resumed.stdout)["error"]["exit_code"] == 5
        busy.append((429, "slow down"))
        ran = command("suite", "--tasks", "relu", *common, "--record", "suite")
        assert ran.returncode == 1, ran.stderr
        told = r"relu_fp32: the planner is asked again in [12] s: its rate limit is reached \(slow down\)"
        assert len(re.findall(told, ran.stdout)) == 1
        assert ran.stdout.count(f"relu_fp32: {again}") == 1
        assert "relu_fp32 failed: No round produced a kernel" in ran.stdout
