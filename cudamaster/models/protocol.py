"""The one small protocol between agents and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cudamaster.core.values import LATER, Role

REPLY_SECONDS = 600.0  # that a whole reply may take, where nobody says otherwise
# Characters. A model that writes 128,000 tokens stays below the first. What is longer is kept as its head; no part of a
# reply that goes into other prompts may be longer than that, and no more goes back of a reply that is asked for again.
LONGEST_REPLY = 512 * 1024
LONGEST_PART = 20_000


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
    """Cost of one call. What a server does not tell is None, never 0; the playbook costs nothing.

    `cached_tokens` are those of `prompt_tokens` that the provider had kept from an earlier call, and charges less for.
    `seconds` is wall time, pauses before further tries included.
    """

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    dollars: float | None = 0.0
    seconds: float = 0.0
    cached_tokens: int | None = 0


@dataclass(frozen=True)
class Reply:
    """What a model answered, which model it was, and what it cost.

    `cut` says why `text` is not the whole reply, and is empty where it is; `digest` is then the SHA-256 of the whole,
    where we had that and cut it here.
    """

    text: str
    model: str
    usage: Usage
    cut: str = field(default="", metadata=LATER)
    digest: str = field(default="", metadata=LATER)


@dataclass(frozen=True)
class Sampling:
    """How a model is to answer; None leaves it to the model. `reasoning_effort` is a word that its provider knows."""

    temperature: float | None = None
    reasoning_effort: str | None = None


class Model(Protocol):
    """Anything that answers the roles."""

    @property
    def name(self) -> str:
        """Name as the user gave it, e.g. "openai/o4-mini" or "playbook"."""
        ...

    def ask(self, request: Request) -> Reply:
        """Answer one request.

        Raises ModelError when no answer can be had; the error names the model, the reason and the fix.
        """
        ...


@runtime_checkable
class TriesAgain(Protocol):
    """A model that waits for a server, and tries a failing call again after a pause.

    It calls `while_asking` several times a second while a try is out, and `before_pause` with the seconds of each pause
    and the reason. Both may raise, which ends the call.
    """

    before_pause: Callable[[float, str], None] | None
    while_asking: Callable[[], None] | None
