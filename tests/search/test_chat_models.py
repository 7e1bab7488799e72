"""The real path: agents through LiteLLM to a server that speaks the OpenAI chat protocol, and real builds.

The server's replies depend on the request. It refuses a debug prompt that lacks the log of the failure.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from plain_device import PlainCpuDevice
from search_stand_ins import (
    COMMAND,
    ChatServer,
    DrippingServer,
    FloodingServer,
    HangingUpServer,
    RawServer,
    code,
    dot_product,
    fix,
    plan,
)
from small_cards import small_card

from cudamaster.core.errors import BudgetSpent, ModelError, UsageError
from cudamaster.core.values import Precision, Role, Status
from cudamaster.models import choose
from cudamaster.models.in_time import OutOfTime, in_time
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Message, Model, Request, Sampling
from cudamaster.runs.optimization import optimize
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.workbench.evaluation import Workbench

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
    return Workbench(small_card("dot_product"), Precision.FP32, PlainCpuDevice(), modelled=False)


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


@pytest.mark.slow
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
            LiteLLMModel(name, server.url, retries=retries, sleep=slept.append, chance=lambda: 0.0).ask(REQUEST)
        return caught.value, len(server.asked), slept


@pytest.mark.parametrize(
    ("status", "calls", "reason"),
    [
        (429, 3, "rate limit outlasted"),
        (500, 3, "the server keeps failing"),
        (503, 3, "the server keeps failing"),
        (520, 3, "the server keeps failing"),
        (529, 3, "the server keeps failing"),
        (402, 1, "quota is used up"),
        (401, 1, "the key was refused"),
        (403, 1, "the key has no access"),
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


@pytest.mark.parametrize("name", ["openai/x", "hosted_vllm/x"])
def test_an_account_without_money_is_not_waited_for(name: str) -> None:
    """Its provider answers as for a rate limit, with a different code; both have the same words."""
    words = "You exceeded your current quota, please check your plan and billing details."
    for kind, calls, reason in (("insufficient_quota", 1, "quota is used up"), ("rate_limit", 3, "limit outlasted")):
        error = json.dumps({"error": {"message": words, "type": kind, "code": kind}}).encode()
        slept: list[float] = []
        with RawServer(429, error) as server, pytest.raises(ModelError, match=reason):
            LiteLLMModel(name, server.url, retries=2, sleep=slept.append).ask(REQUEST)
        assert (server.asked, len(slept)) == (calls, calls - 1)


@pytest.mark.parametrize("body", [b"<html>a proxy's page</html>", b"", b"{}", b"[]"])
@pytest.mark.parametrize("name", ["openai/x", "hosted_vllm/x"])
def test_what_is_no_reply_is_asked_for_again(name: str, body: bytes) -> None:
    """Whatever the server: a proxy in between may be gone at the next try."""
    told: list[tuple[float, str]] = []
    with RawServer(200, body) as server:
        model = LiteLLMModel(name, server.url, retries=1, sleep=lambda _: None, chance=lambda: 0.0)
        model.before_pause = lambda pause_s, why: told.append((pause_s, why))
        with pytest.raises(ModelError):
            model.ask(REQUEST)
        assert server.asked == 2
    ((pause_s, why),) = told
    assert pause_s == 1.0
    assert why.startswith("the call failed (Invalid" if (name, body) == ("hosted_vllm/x", b"[]") else "what came is no")


def test_a_pause_is_told_with_its_reason() -> None:
    """A person sees what is waited for, without a key in it."""
    answers = iter([(429, f"slow down, {SECRET}"), (500, "boom"), (200, "fine")])
    told: list[tuple[float, str]] = []
    with ChatServer(lambda *_: next(answers)) as server:
        model = LiteLLMModel("openai/x", server.url, sleep=lambda _: None, chance=lambda: 0.0)
        model.before_pause = lambda pause_s, why: told.append((pause_s, why))
        model.ask(REQUEST)
    (first, limited), (second, failed) = told
    assert (first, second) == (1.0, 2.0)
    assert re.fullmatch(r"its rate limit is reached \(slow down, \*\*\*\)", limited)
    assert re.fullmatch(r"its server fails \(boom\)", failed)


def test_a_pause_can_help() -> None:
    answers = iter([(429, "slow down"), (200, "fine")])
    with ChatServer(lambda *_: next(answers)) as server:
        reply = LiteLLMModel("openai/test-model", server.url, sleep=lambda _: None).ask(REQUEST)
    assert reply.text == "fine"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 20)
    assert reply.usage.seconds > 0


@pytest.mark.parametrize("name", ["openai/test-model", "openrouter/openai/o3", "hosted_vllm/test-model"])
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_a_busy_server_is_asked_again_whoever_runs_it(status: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM has a class for 500 of one provider and none for that of another."""
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    answers = iter([(status, "busy"), (200, "fine")])
    with ChatServer(lambda *_: next(answers)) as server:
        assert LiteLLMModel(name, server.url, sleep=lambda _: None).ask(REQUEST).text == "fine"


def test_a_proxy_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy refuses although the server would answer; its password is not shown."""
    monkeypatch.setenv("HTTP_PROXY", _refusing_url().replace("//", "//somebody:secret-word@").removesuffix("/v1"))
    with ChatServer(lambda *_: (200, "fine")) as server:
        model = LiteLLMModel("openai/test-model", server.url, retries=0)
        with pytest.raises(ModelError, match="cannot be reached") as caught:
            model.ask(REQUEST)
    assert "HTTP_PROXY" in caught.value.fix
    assert "NO_PROXY" in caught.value.fix
    assert "secret-word" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ChatServer(lambda *_: (200, "fine")) as server:  # at a new address: LiteLLM keeps what it made for the old one
        assert LiteLLMModel("openai/test-model", server.url, retries=0).ask(REQUEST).text == "fine"
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        LiteLLMModel("openai/test-model", _refusing_url(), retries=0).ask(REQUEST)
    assert "PROXY" not in caught.value.fix


def test_an_unreachable_host_is_said_plainly() -> None:
    url, said = _refusing_url(), list[str]()
    model = LiteLLMModel("openai/test-model", url, retries=1, sleep=lambda _: None)
    model.before_pause = lambda _, why: said.append(why)
    with pytest.raises(ModelError, match=r"openai/test-model at http.*cannot be reached") as caught:
        model.ask(REQUEST)
    assert "base URL" in caught.value.fix
    assert said[0].startswith(f"openai/test-model at {url} cannot be reached (")


def _refusing_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


def test_why_no_reply_came_is_said_in_the_words_of_who_knows() -> None:
    """LiteLLM says "Connection error." of all of these: a closed port, TLS to a plain one, a server that hangs up."""
    with RawServer(200, b"{}") as server, HangingUpServer() as hangs_up:
        for url, reason in (
            (_refusing_url(), r"cannot be reached \(\[Errno \d+\] Connection refused"),
            (server.url.replace("http:", "https:"), r"cannot be reached \(\[SSL: WRONG_VERSION_NUMBER\]"),
            (hangs_up.url, r"what came is no reply \(Server disconnected without sending a response"),
        ):
            with pytest.raises(ModelError, match=reason):
                LiteLLMModel("openai/x", url, retries=0).ask(REQUEST)


@pytest.mark.parametrize(
    ("told", "calls", "reason"),
    [
        ({"message": "the model crashed", "code": 502}, 2, r"keeps failing \(the model crashed\)"),
        ({"message": "no money", "code": "insufficient_quota"}, 1, r"quota is used up \(no money\)"),
        ({"message": "slower", "code": "rate_limit_exceeded"}, 2, r"limit outlasted all retries \(slower\)"),
        ({"message": "no such field"}, 1, r"was refused .*\(no such field\)"),
    ],
)
def test_an_error_that_comes_with_status_200_is_one(told: dict[str, object], calls: int, reason: str) -> None:
    """As OpenRouter sends them; LiteLLM leaves their words out."""
    pauses: list[float] = []
    with RawServer(200, json.dumps({"error": told}).encode()) as server, pytest.raises(ModelError, match=reason):
        LiteLLMModel("openai/x", server.url, retries=1, sleep=pauses.append).ask(REQUEST)
    assert len(pauses) == calls - 1


def test_a_missing_key_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="no key was given") as caught:
        LiteLLMModel("openai/o4-mini", sleep=lambda _: None).ask(REQUEST)
    assert "OPENAI_API_KEY" in caught.value.fix


def test_an_unknown_provider_is_said_plainly() -> None:
    with pytest.raises(ModelError, match="no such model is known") as caught:
        LiteLLMModel("no-provider-at-all", sleep=lambda _: None).ask(REQUEST)
    assert "PROVIDER/NAME" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "url", "known"),
    [
        ("openai/never-heard-of", None, True),
        ("openai/never-heard-of", "http://localhost:1/v1", True),
        ("hosted_vllm/a/b", None, True),
        ("gpt-4o", None, True),
        ("llama3", "https://api.groq.com/openai/v1", True),
        ("github_copilot/gpt-4o", None, True),  # LiteLLM itself would ask for a login here
        ("no-provider-at-all", None, False),
        ("no-provider/at-all", None, False),
        ("no-provider/at-all", "http://localhost:1/v1", False),
        ("openai", None, False),
        ("openai/", None, False),
    ],
)
def test_a_provider_is_known_before_a_call(
    name: str, url: str | None, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the network: no socket is opened."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert LiteLLMModel(name, url).known is known
    choice = choose.Choice({Role.PLANNER: "playbook", Role.CODER: name}, url)
    if known:
        choose.must_be_usable(choice)
    else:
        with pytest.raises(UsageError, match=f"No model is known as {name}.*PROVIDER/NAME"):
            choose.must_be_usable(choice)


@pytest.mark.parametrize(
    ("name", "url", "variables", "wanted"),
    [
        ("openai/x", None, {}, "OPENAI_API_KEY"),
        ("gpt-4o", None, {}, "OPENAI_API_KEY"),
        ("openai/x", "http://localhost:1/v1", {}, "OPENAI_API_KEY"),
        ("openai/x", None, {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", None, {"OPENAI_API_KEY": SECRET}, "ANTHROPIC_API_KEY"),
        ("deepseek/deepseek-chat", None, {}, "DEEPSEEK_API_KEY"),
        ("openai/x", None, {"OPENAI_API_KEY": SECRET}, None),
        ("anthropic/claude-sonnet-4-5", None, {"ANTHROPIC_AUTH_TOKEN": SECRET}, None),
        ("gemini/gemini-2.5-pro", None, {"GOOGLE_API_KEY": SECRET}, None),
        # Servers of one's own need none, and what others log in by is not known.
        ("deepseek/deepseek-chat", "http://localhost:1/v1", {}, None),
        ("deepseek/deepseek-chat", None, {"DEEPSEEK_API_BASE": "http://localhost:1"}, None),
        ("hosted_vllm/x", "http://localhost:1/v1", {}, None),
        ("ollama/qwen3", None, {}, None),
        ("bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0", None, {}, None),
        ("github_copilot/gpt-4o", None, {}, None),
    ],
)
def test_a_missing_key_is_known_before_a_call(
    name: str, url: str | None, variables: dict[str, str], wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in list(os.environ):
        if re.search("KEY|TOKEN|API_BASE", variable):
            monkeypatch.delenv(variable)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    choice = choose.Choice({Role.PLANNER: "playbook", Role.CODER: name}, url)
    if wanted is None:
        choose.must_be_usable(choice)
    else:
        with pytest.raises(ModelError, match=f"{name}.*: no key was given") as error:
            choose.must_be_usable(choice)
        assert wanted in error.value.fix


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["optimize", "hinge_loss", "--model", "openai/x"],
        ["optimize", "hinge_loss", "--coder-model", "openai/x"],
        ["optimize", "hinge_loss", "--strategy", "cudaforge", "--judge-model", "openai/x"],
        ["suite", "--tasks", "h*", "--debug-model", "openai/x"],
    ],
)
def test_the_command_finds_a_missing_key_before_it_measures(tmp_path: Path, words: list[str]) -> None:
    """No run folder is made, whichever role it is missing for."""
    environment = {name: value for name, value in os.environ.items() if "KEY" not in name}
    command = [sys.executable, "-m", "cudamaster", *words, "--device", "cpu"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (5, "")
    assert ran.stderr.startswith("error: Model openai/x: no key was given. Set the provider's key")
    assert not list(tmp_path.iterdir())


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

        ran = command("optimize", "layer_norm", *common, "--out", "runs")
        assert ran.returncode == 5, ran.stderr
        assert re.search(r"error: No round produced a kernel: The planner .* no usable form: .*exchanges", ran.stderr)
        again = "the planner is asked again: its reply cannot be used: there is no complete JSON object"
        assert ran.stdout.count(again) == 1
        (run,) = (tmp_path / "runs").iterdir()
        resumed = command("optimize", "--resume", str(run), "--json")
        assert resumed.returncode == 5
        assert json.loads(resumed.stdout)["error"]["exit_code"] == 5
        busy.append((429, "slow down"))
        ran = command("suite", "--tasks", "layer_norm", *common, "--record", "suite")
        assert ran.returncode == 1, ran.stderr
        told = r"layer_norm_fp32: the planner is asked again in [12] s: its rate limit is reached \(slow down\)"
        assert len(re.findall(told, ran.stdout)) == 1
        assert ran.stdout.count(f"layer_norm_fp32: {again}") == 1
        assert "layer_norm_fp32 failed: No round produced a kernel" in ran.stdout


def test_a_server_that_is_too_slow_is_a_timeout() -> None:
    def slow(*_: object) -> tuple[int, str]:
        time.sleep(1.0)
        return 200, "late"

    with ChatServer(slow) as server, pytest.raises(ModelError, match="did not answer in time"):
        LiteLLMModel("openai/test-model", server.url, timeout_s=0.2, retries=0).ask(REQUEST)


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("headers", [False, True])
def test_a_server_that_drips_is_a_timeout(headers: bool) -> None:
    """The limit is on the whole reply: a byte now and then, of the headers too, does not put it off.

    The connection is closed then, so that the server need not go on.
    """
    with DrippingServer(headers=headers) as server:
        model = LiteLLMModel("openai/test-model", server.url, timeout_s=0.5, retries=1, sleep=lambda _: None)
        assert model.known  # LiteLLM is imported, which takes seconds
        began = time.monotonic()
        with pytest.raises(ModelError, match="did not answer in time") as error:
            model.ask(REQUEST)
        assert 1.0 <= time.monotonic() - began < 5.0
        assert server.asked == 2
        assert server.left.wait(5.0)
    assert "--model-timeout" in error.value.fix


_STOPPED = """
import sys, time
from cudamaster.models.in_time import in_time

def look():
    if time.monotonic() > until:
        raise TimeoutError("the minutes are over")

until = time.monotonic() + float(sys.argv[2])
print("asked", flush=True)
print(in_time(sys.stdin.readline, float(sys.argv[1]), look))
"""


@pytest.mark.slow(but=["1-60"])
@pytest.mark.parametrize(("limit", "minutes"), [("1", "60"), ("60", "1")])
def test_a_reply_that_came_while_the_process_was_stopped_is_taken(limit: str, minutes: str) -> None:
    """Ctrl-Z and fg: it is paid for, and would be asked for again."""
    command = [sys.executable, "-c", _STOPPED, limit, minutes]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        time.sleep(0.3)  # until it waits
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("fine\n")
        process.stdin.flush()
        time.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "fine\n"
        assert process.wait(10) == 0


@pytest.mark.slow(but=["openai/x-True"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["openai/x", "hosted_vllm/x"])
def test_a_reply_without_end_fills_no_memory(name: str, packed: bool) -> None:
    """It is given up at 128 MiB, unpacked, and not asked for again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with FloodingServer(packed) as server:
        with pytest.raises(ModelError, match="its reply goes on beyond 128 MiB"):
            LiteLLMModel(name, server.url, timeout_s=120).ask(REQUEST)
        assert server.left.wait(5.0)
        assert server.asked == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_no_limit_is_none_of_litellm_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes None for ten minutes, and a socket takes no number of any size."""
    given: list[float] = []

    def never(*, timeout: float, **_: Any) -> None:
        given.append(timeout)
        raise ValueError("no")

    monkeypatch.setattr("litellm.completion", never)
    for limit_s in (None, 1e300, 5.0):
        with pytest.raises(ModelError):
            LiteLLMModel("openai/x", timeout_s=limit_s).ask(REQUEST)
    assert given == [1e6, 1e6, 5.0]


def test_a_call_that_was_given_up_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """Its thread is gone with its next step, and prints nothing on the terminal."""

    def for_ever() -> None:
        while True:
            time.sleep(0.01)

    with pytest.raises(OutOfTime, match=r"within 0\.1 s"):
        in_time(for_ever, 0.1)
    until = time.monotonic() + 10
    while any(thread.name == "call" for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "call"]
    assert capfd.readouterr().err == ""


def test_a_call_that_is_out_can_be_ended() -> None:
    """What is asked meanwhile may say that it is no longer wanted; there is no further try."""

    def over() -> None:
        if server.asked:
            raise BudgetSpent("The time is over.", "")

    with DrippingServer() as server:
        model = LiteLLMModel("openai/test-model", server.url)
        model.while_asking = over
        with pytest.raises(BudgetSpent, match="time is over"):
            model.ask(REQUEST)
        assert server.left.wait(5.0)
        assert server.asked == 1


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


@pytest.mark.parametrize("name", ["hosted_vllm/gpt-4o", "lm_studio/deepseek-chat"])
def test_a_listed_name_at_another_provider_has_no_price(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before a call is made, by which a limit in dollars is refused, as by the call itself."""
    model = LiteLLMModel(name)
    assert not model.priced
    with ChatServer(lambda *_: (200, "fine")) as server:
        for variable, value in (("API_BASE", server.url), ("API_KEY", SECRET)):
            monkeypatch.setenv(f"{name.partition('/')[0].upper()}_{variable}", value)
        assert model.ask(REQUEST).usage.dollars is None


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "azure/gpt-4o", "deepseek/deepseek-chat",
     "vertex_ai/gemini-2.5-pro", "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0"],
)  # fmt: skip
def test_a_hosted_model_is_found_in_the_list(name: str) -> None:
    assert LiteLLMModel(name).priced


# ---- what a server says beside its reply, and what it is told beside the prompt


class Provider:
    """A server for both protocols, OpenAI's and Anthropic's; `respond` gives status, headers and, for 200, usage."""

    def __init__(self, respond: Callable[[], tuple[int, dict[str, str], dict[str, object]]]) -> None:
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                status, headers, usage = respond()
                claude = {"type": "message", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}
                openai = {
                    "object": "chat.completion",
                    "created": 1,
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}],
                }
                shape = claude if self.path.endswith("/messages") else openai
                reply = {"id": "1", "role": "assistant", "model": body["model"], **shape, "usage": usage}
                raw = json.dumps(reply if status == 200 else {"error": {"message": "busy"}}).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(raw)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Without the /v1 that OpenAI's protocol has in its paths."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Provider:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


TOLD = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def pauses(headers: dict[str, str], chance: float = 0.0, **options: float) -> list[float]:
    """The pauses of a model whose server is busy twice, with these headers, and answers at the third try."""
    answers = iter([(429, headers, {}), (503, headers, {}), (200, {}, TOLD)])
    slept: list[float] = []
    with Provider(lambda: next(answers)) as server:
        model = LiteLLMModel("openai/x", server.url, sleep=slept.append, chance=lambda: chance, **options)  # type: ignore[arg-type]
        assert model.ask(REQUEST).text == "fine"
    return slept


def test_a_server_says_how_long_to_wait() -> None:
    assert pauses({"Retry-After": "7"}) == [7.0, 7.0]


def test_a_server_may_name_a_date() -> None:
    """HTTP allows both. A date that has passed may come of a clock that is off: tries are spread all the same."""
    later = email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert all(25.0 < pause < 31.0 for pause in pauses({"Retry-After": later}))
    assert pauses({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}) == [1.0, 2.0]
    assert pauses({"Retry-After": "-5"}) == pauses({"Retry-After": "0"}) == [1.0, 2.0]


@pytest.mark.parametrize(("told", "expected"), [("86400", [120.0, 120.0]), ("soon", [1.0, 2.0]), ("nan", [1.0, 2.0])])
def test_no_server_makes_us_wait_for_a_day(told: str, expected: list[float]) -> None:
    assert pauses({"Retry-After": told}) == expected


def test_searches_that_met_a_limit_together_come_back_apart() -> None:
    """Chance adds up to half of the pause, and takes nothing from what the server asked for."""
    assert pauses({}, chance=1.0) == [1.5, 3.0]
    assert pauses({"Retry-After": "10"}, chance=0.5) == [12.5, 12.5]


def test_patience_ends() -> None:
    """No try begins later than that, however many are left."""
    with pytest.raises(ModelError, match="rate limit outlasted"):
        pauses({"Retry-After": "60"}, patience_s=30.0)


def test_tokens_that_the_provider_had_kept_are_told_and_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of o4-mini's 100 prompt tokens at $0.275 per million in place of $1.10."""
    usage = {**TOLD, "prompt_tokens_details": {"cached_tokens": 64}}
    with Provider(lambda: (200, {}, usage)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        told = LiteLLMModel("openai/o4-mini").ask(REQUEST).usage
    assert (told.prompt_tokens, told.cached_tokens) == (100, 64)
    assert told.dollars == pytest.approx(36 * 1.1e-6 + 64 * 0.275e-6 + 20 * 4.4e-6)


def test_kept_tokens_that_are_not_told_are_unknown() -> None:
    with Provider(lambda: (200, {}, TOLD)) as server:
        assert LiteLLMModel("openai/x", server.url).ask(REQUEST).usage.cached_tokens is None


@pytest.mark.parametrize(
    ("told", "prompt", "completion"),
    [
        ({"prompt_tokens": -1000, "completion_tokens": -500}, None, None),
        ({"prompt_tokens": 100, "completion_tokens": -500}, 100, None),
        ({"prompt_tokens": 100}, 100, None),
        ({"prompt_tokens": 10**400, "completion_tokens": 20}, None, None),
    ],
)
def test_numbers_that_count_no_tokens_are_unknown(
    told: dict[str, object], prompt: int | None, completion: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that they enter would not hold a budget; a reply with text in it had tokens. No price comes of them."""
    with Provider(lambda: (200, {}, {**told, "total_tokens": 1})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        usage = LiteLLMModel("openai/o4-mini").ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.dollars) == (prompt, completion, None)


def test_a_reply_out_of_form_is_said_in_words(recwarn: pytest.WarningsRecorder) -> None:
    """No traceback and no warnings of the libraries below, which say nothing to a user."""
    said = b'{"id": "1", "object": "chat.completion", "created": 1, "model": "x", "choices": [{"index": 0}]}'
    with RawServer(200, said) as server, pytest.raises(ModelError, match="Invalid response") as error:
        LiteLLMModel("openai/x", server.url, retries=0).ask(REQUEST)
    assert "Traceback" not in str(error.value)
    assert not [warning for warning in recwarn if "Pydantic" in str(warning.message)]


@pytest.mark.parametrize("name", ["openai/x", "hosted_vllm/x", "anthropic/claude-haiku-4-5"])
@pytest.mark.parametrize(
    "told",
    [
        {"prompt_tokens": 1.5, "completion_tokens": 20, "input_tokens": 1.5},
        {"prompt_tokens": float("nan"), "completion_tokens": float("inf"), "input_tokens": float("nan")},
        {"prompt_tokens": "many", "completion_tokens": 20, "input_tokens": "many"},
        {"prompt_tokens": {"all": 3}, "completion_tokens": [2], "input_tokens": {"all": 3}},
        {"completion_tokens_details": {"reasoning_tokens": 0.5}, "cache_read_input_tokens": "x"},
        {},
        [1],
        "none",
    ],
)
def test_a_usage_out_of_form_costs_no_second_call(name: str, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is paid for, whatever is said of its tokens: how many they were is unknown."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    with Provider(lambda: (200, {}, told)) as server:
        reply = LiteLLMModel(name, server.url, sleep=lambda _: None).ask(REQUEST)
        assert len(server.bodies) == 1
    assert (reply.text, reply.usage.prompt_tokens) == ("fine", None)


@pytest.mark.parametrize("count", ["100", 100.0])
def test_whole_numbers_of_tokens_count_however_they_are_written(count: object) -> None:
    told: dict[str, object] = {**TOLD, "prompt_tokens": count}
    with Provider(lambda: (200, {}, told)) as server:
        usage = LiteLLMModel("openai/x", server.url).ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 20)


@pytest.mark.parametrize("cached", [-64, 101])
def test_kept_tokens_are_part_of_the_prompt_or_unknown(cached: int) -> None:
    usage: dict[str, object] = {**TOLD, "prompt_tokens_details": {"cached_tokens": cached}}
    with Provider(lambda: (200, {}, usage)) as server:
        assert LiteLLMModel("openai/x", server.url).ask(REQUEST).usage.cached_tokens is None


def about(task: str, ending: str) -> Request:
    text = f"## Task\n\nAdd {task}\n\n## Code\n\n{ending}\n"
    return Request(Role.PLANNER, (Message("system", "You plan x"), Message("user", text)), {"task": task})


def test_claude_is_told_what_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system message at once; of the prompt what stayed the same so far, once there is something to compare."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    with Provider(lambda: (200, {}, usage)) as server:
        model = LiteLLMModel("anthropic/claude-haiku-4-5", server.url)
        for request in (about("a", "first"), about("b", "other task"), about("a", "second"), about("a", "third")):
            told = model.ask(request).usage
    assert (told.prompt_tokens, told.cached_tokens) == (100, 60)
    kept = {"type": "ephemeral"}
    assert all(body["system"][0] == {"type": "text", "text": "You plan x", "cache_control": kept}
               for body in server.bodies)  # fmt: skip
    parts = [body["messages"][0]["content"] for body in server.bodies]
    assert [len(part) for part in parts] == [1, 1, 2, 2]
    assert all("cache_control" not in part[-1] for part in parts)
    front = {"type": "text", "text": "## Task\n\nAdd a\n\n## Code\n\n", "cache_control": kept}
    assert parts[2] == [front, {"type": "text", "text": "second\n"}]
    assert parts[3] == [front, {"type": "text", "text": "third\n"}]


def test_others_get_the_prompt_as_it_is() -> None:
    with Provider(lambda: (200, {}, TOLD)) as server:
        model = LiteLLMModel("openai/claude-of-my-own", server.url)
        model.ask(about("a", "first"))
        model.ask(about("a", "second"))
    assert server.bodies[1]["messages"][1]["content"] == about("a", "second").messages[1].content


@pytest.mark.parametrize(
    ("name", "sent", "left_out"),
    [
        ("openai/x", {"temperature": 0.3, "reasoning_effort": "low"}, ()),
        ("openai/o4-mini", {"reasoning_effort": "low"}, ("temperature",)),
        ("openai/gpt-4o", {"temperature": 0.3}, ("reasoning_effort",)),
    ],
)
def test_what_a_model_does_not_take_is_left_out_and_said(
    name: str, sent: dict[str, object], left_out: tuple[str, ...]
) -> None:
    with Provider(lambda: (200, {}, TOLD)) as server:
        model = LiteLLMModel(name, server.url, Sampling(0.3, "low"))
        assert model.left_out() == left_out
        model.ask(REQUEST)
    body = server.bodies[0]
    assert {key: body[key] for key in ("temperature", "reasoning_effort") if key in body} == sent
    told = choose.left_out(Sampling(0.3, "low"), {Role.CODER: model, Role.PLANNER: PlaybookModel()})
    assert [line for line in told if name in line] == [
        f"{name} takes no {option.replace('_', ' ')}: it is left out." for option in left_out
    ]
    assert any("playbook" in line for line in told)


def test_a_model_is_asked_for_nothing_that_was_not_chosen() -> None:
    with Provider(lambda: (200, {}, TOLD)) as server:
        LiteLLMModel("openai/x", server.url).ask(REQUEST)
    assert not {"temperature", "reasoning_effort"} & set(server.bodies[0])
