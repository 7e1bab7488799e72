"""Tokens and dollars of a call: what a server says of them, and what is unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_servers import REQUEST, SECRET, TOLD, ChatServer, UsageServer

from cudamaster.models.litellm_model import LiteLLMModel

pytestmark = pytest.mark.usefixtures("openai_key")


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


def test_tokens_that_the_provider_had_kept_are_told_and_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of o4-mini's 100 prompt tokens at $0.275 per million in place of $1.10."""
    usage = {**TOLD, "prompt_tokens_details": {"cached_tokens": 64}}
    with UsageServer(lambda: (200, {}, usage)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        told = LiteLLMModel("openai/o4-mini").ask(REQUEST).usage
    assert (told.prompt_tokens, told.cached_tokens) == (100, 64)
    assert told.dollars == pytest.approx(36 * 1.1e-6 + 64 * 0.275e-6 + 20 * 4.4e-6)


def test_kept_tokens_that_are_not_told_are_unknown() -> None:
    with UsageServer(lambda: (200, {}, TOLD)) as server:
        assert LiteLLMModel("openai/x", server.url).ask(REQUEST).usage.cached_tokens is None


@pytest.mark.parametrize("cached", [-64, 101])
def test_kept_tokens_are_part_of_the_prompt_or_unknown(cached: int) -> None:
    usage: dict[str, object] = {**TOLD, "prompt_tokens_details": {"cached_tokens": cached}}
    with UsageServer(lambda: (200, {}, usage)) as server:
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
    with UsageServer(lambda: (200, {}, {**told, "total_tokens": 1})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        usage = LiteLLMModel("openai/o4-mini").ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.dollars) == (prompt, completion, None)


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
    with UsageServer(lambda: (200, {}, told)) as server:
        reply = LiteLLMModel(name, server.url, sleep=lambda _: None).ask(REQUEST)
        assert len(server.bodies) == 1
    assert (reply.text, reply.usage.prompt_tokens) == ("fine", None)


@pytest.mark.parametrize("count", ["100", 100.0])
def test_whole_numbers_of_tokens_count_however_they_are_written(count: object) -> None:
    told: dict[str, object] = {**TOLD, "prompt_tokens": count}
    with UsageServer(lambda: (200, {}, told)) as server:
        usage = LiteLLMModel("openai/x", server.url).ask(REQUEST).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (100, 20)
