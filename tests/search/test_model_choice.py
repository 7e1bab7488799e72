"""What is found out about a model before its first call: an unknown provider, a missing key."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from chat_servers import SECRET

from cudamaster.core.errors import ModelError, UsageError
from cudamaster.core.values import Role
from cudamaster.models import choose
from cudamaster.models.litellm_model import LiteLLMModel

pytestmark = pytest.mark.usefixtures("openai_key")


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
