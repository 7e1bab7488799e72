"""What a model is sent beside the words of the prompt: what to keep of it, and options."""

from __future__ import annotations

import pytest
from chat_servers import REQUEST, SECRET, TOLD, UsageServer

from cudamaster.core.values import Role
from cudamaster.models import choose
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Message, Request, Sampling

pytestmark = pytest.mark.usefixtures("openai_key")


def about(task: str, ending: str) -> Request:
    text = f"## Task\n\nAdd {task}\n\n## Code\n\n{ending}\n"
    return Request(Role.PLANNER, (Message("system", "You plan x"), Message("user", text)), {"task": task})


def test_claude_is_told_what_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system message at once; of the prompt what stayed the same so far, once there is something to compare."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    with UsageServer(lambda: (200, {}, usage)) as server:
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
    with UsageServer(lambda: (200, {}, TOLD)) as server:
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
    with UsageServer(lambda: (200, {}, TOLD)) as server:
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
    with UsageServer(lambda: (200, {}, TOLD)) as server:
        LiteLLMModel("openai/x", server.url).ask(REQUEST)
    assert not {"temperature", "reasoning_effort"} & set(server.bodies[0])
