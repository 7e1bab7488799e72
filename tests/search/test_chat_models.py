"""The real path: agents through LiteLLM to a server that speaks the OpenAI chat protocol, and real builds.

The server's replies depend on the request. It refuses a debug prompt that lacks the log of the failure.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from search_stand_ins import COMMAND, ChatServer, code, dot_product, fix, plan
from small_cards import small_card

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.errors import ModelError
from cudamaster.evaluation import Workbench
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.protocol import Message, Model, Request
from cudamaster.optimization import optimize
from cudamaster.runfolder import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.values import Precision, Role, Status

SECRET = "dummy-key-5f2a9c"

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
    return Workbench(small_card("dot_product"), Precision.FP32, CpuDevice())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def models(server: ChatServer) -> dict[Role, Model]:
    return dict.fromkeys(Role, LiteLLMModel("openai/test-model", server.url, retries=0))


SETTINGS = Settings("cudamaster", 1, 3, "stand-in", dict.fromkeys(ROLES, "openai/test-model"))


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


def test_the_server_refuses_a_debug_prompt_without_the_log(tmp_path: Path, workbench: Workbench) -> None:
    """Holds the test above to its word: with the compiler's log cut out, the run fails."""

    def without_log(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        cut = [{**m, "content": re.sub(r"```text.*?```", "", m["content"], flags=re.S)} for m in messages]
        return answer(role, cut)

    with ChatServer(without_log) as server, pytest.raises(ModelError, match="the log lacks"):
        optimize(tmp_path / "run", workbench, models(server), SETTINGS)


REQUEST = Request(Role.PLANNER, (Message("system", "You plan x"), Message("user", "hello")))


def failing(
    status: int, text: str = "no", name: str = "openai/test-model", retries: int = 2
) -> tuple[ModelError, int, list[float]]:
    slept: list[float] = []
    with ChatServer(lambda *_: (status, text)) as server:
        with pytest.raises(ModelError) as caught:
            LiteLLMModel(name, server.url, retries=retries, sleep=slept.append).ask(REQUEST)
        return caught.value, len(server.asked), slept


@pytest.mark.parametrize(
    ("status", "calls", "reason"),
    [
        (429, 3, "rate limit outlasted"),
        (500, 3, "the server keeps failing"),
        (503, 3, "the server keeps failing"),
        (401, 1, "the key was refused"),
        (404, 1, "no such model"),
        (400, 1, "request was refused"),
    ],
)
def test_a_refusal_names_model_reason_and_fix(status: int, calls: int, reason: str) -> None:
    """What may pass is tried again with growing pauses, what will not is not; no key is in the error."""
    error, asked, slept = failing(status, f"You sent {SECRET} and sk-abcdef123456")
    assert reason in error.reason
    assert "openai/test-model" in error.reason
    assert error.fix
    assert asked == calls
    assert slept == [1.0, 2.0][: calls - 1]
    assert SECRET not in str(error)
    assert "sk-abcdef123456" not in str(error)


def test_a_pause_can_help() -> None:
    answers = iter([(429, "slow down"), (200, "fine")])
    with ChatServer(lambda *_: next(answers)) as server:
        reply = LiteLLMModel("openai/test-model", server.url, sleep=lambda _: None).ask(REQUEST)
    assert reply.text == "fine"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 20)
    assert reply.usage.seconds > 0


def test_an_unreachable_host_is_said_plainly() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=r"openai/test-model at http.*cannot be reached") as caught:
            LiteLLMModel("openai/test-model", url, retries=1, sleep=lambda _: None).ask(REQUEST)
    assert "base URL" in caught.value.fix


def test_a_missing_key_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="no key was given") as caught:
        LiteLLMModel("openai/o4-mini", sleep=lambda _: None).ask(REQUEST)
    assert "OPENAI_API_KEY" in caught.value.fix


def test_an_unknown_provider_is_said_plainly() -> None:
    with pytest.raises(ModelError, match="no such model is known") as caught:
        LiteLLMModel("no-provider-at-all", sleep=lambda _: None).ask(REQUEST)
    assert "PROVIDER/NAME" in caught.value.fix


def test_a_server_that_is_too_slow_is_a_timeout() -> None:
    import time

    def slow(*_: object) -> tuple[int, str]:
        time.sleep(1.0)
        return 200, "late"

    with ChatServer(slow) as server, pytest.raises(ModelError, match="did not answer in time"):
        LiteLLMModel("openai/test-model", server.url, timeout_s=0.2, retries=0).ask(REQUEST)


def test_usage_that_is_not_told_is_unknown() -> None:
    """No zeros for tokens or dollars that the server does not report."""
    with ChatServer(lambda *_: (200, "fine"), usage=False) as server:
        usage = LiteLLMModel("openai/test-model", server.url).ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.dollars) == (None, None, None)


def test_a_listed_name_on_a_server_of_ones_own_has_no_price() -> None:
    with ChatServer(lambda *_: (200, "fine")) as server:
        usage = LiteLLMModel("openai/o4-mini", server.url).ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.dollars) == (100, None)


def test_a_listed_model_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through OPENAI_BASE_URL as a proxy may be set; $1.10 and $4.40 per million tokens in LiteLLM's own list."""
    with ChatServer(lambda *_: (200, "fine")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        reply = LiteLLMModel("openai/o4-mini").ask(REQUEST)
    assert reply.usage.dollars == pytest.approx(100 * 1.1e-6 + 20 * 4.4e-6)
    assert json.dumps(reply.text) == '"fine"'
