"""A call that is made again: when, and how long it waits before."""

from __future__ import annotations

import email.utils
import re
from datetime import UTC, datetime, timedelta

import pytest
from chat_servers import REQUEST, SECRET, TOLD, ChatServer, RawServer, UsageServer

from cudamaster.core.errors import ModelError
from cudamaster.models.litellm_model import LiteLLMModel

pytestmark = pytest.mark.usefixtures("openai_key")


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


def pauses(headers: dict[str, str], chance: float = 0.0, **options: float) -> list[float]:
    """The pauses of a model whose server is busy twice, with these headers, and answers at the third try."""
    answers = iter([(429, headers, {}), (503, headers, {}), (200, {}, TOLD)])
    slept: list[float] = []
    with UsageServer(lambda: next(answers)) as server:
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
