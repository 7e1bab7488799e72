"""Limits of a call in time and size, and what ends one."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from chat_servers import REQUEST, ChatServer, DrippingServer, FloodingServer

from cudamaster.core.errors import BudgetSpent, ModelError
from cudamaster.models.in_time import OutOfTime, in_time
from cudamaster.models.litellm_model import LiteLLMModel

pytestmark = pytest.mark.usefixtures("openai_key")


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
    with DrippingServer(of_headers=headers) as server:
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
