"""A call that fails for good: the error names model, reason and fix, and holds no key."""

from __future__ import annotations

import json
import socket

import pytest
from chat_servers import REQUEST, SECRET, ChatServer, HangingUpServer, RawServer

from cudamaster.core.errors import ModelError
from cudamaster.models.litellm_model import LiteLLMModel

pytestmark = pytest.mark.usefixtures("openai_key")


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


def test_a_reply_out_of_form_is_said_in_words(recwarn: pytest.WarningsRecorder) -> None:
    """No traceback and no warnings of the libraries below, which say nothing to a user."""
    said = b'{"id": "1", "object": "chat.completion", "created": 1, "model": "x", "choices": [{"index": 0}]}'
    with RawServer(200, said) as server, pytest.raises(ModelError, match="Invalid response") as error:
        LiteLLMModel("openai/x", server.url, retries=0).ask(REQUEST)
    assert "Traceback" not in str(error.value)
    assert not [warning for warning in recwarn if "Pydantic" in str(warning.message)]
