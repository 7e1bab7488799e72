"""The one small protocol between agents and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cudamaster.values import Role


@dataclass(frozen=True)
class Message:
    """One chat message; `role` is "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True)
class Request:
    """What an agent asks. A chat model reads `messages`; the playbook, which cannot read, reads `facts`.

    `facts` says in structured form what the messages say in words: task, precision, the ideas tried so far,
    the plan at hand. It holds strings and lists of strings alone, so that it can be stored.
    """

    role: Role
    messages: tuple[Message, ...]
    facts: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Cost of one call. What a server does not tell is None, never 0; the playbook costs nothing."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    dollars: float | None = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Reply:
    """What a model answered, which model it was, and what it cost."""

    text: str
    model: str
    usage: Usage


class Model(Protocol):
    """Anything that answers the four roles."""

    @property
    def name(self) -> str:
        """Name as the user gave it, e.g. "openai/o4-mini" or "playbook"."""
        ...

    def ask(self, request: Request) -> Reply:
        """Answer one request.

        Raises ModelError when no answer can be had; the error names the model, the reason and the fix.
        """
        ...
