"""The one small protocol between agents and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cudamaster.core.values import LATER, Role

REPLY_SECONDS = 600.0  # for a whole reply, by default
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
    """A request of an agent. A chat model reads `messages`; the playbook, which cannot read prose, reads `facts`.

    `facts` says in structured form what the messages say in words: task, precision, the ideas tried so far,
    the current plan. It holds only strings and lists of strings, so it can be stored.
    """

    role: Role
    messages: tuple[Message, ...]
    facts: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Cost of one call. What a server does not report is None, never 0; the playbook costs nothing.

    `cached_tokens` are those of `prompt_tokens` that the provider had cached from an earlier call and charges less for.
    `seconds` is wall time, including pauses before further attempts.
    """

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    dollars: float | None = 0.0
    seconds: float = 0.0
    cached_tokens: int | None = 0


@dataclass(frozen=True)
class Reply:
    """What a model answered, which model it was, and what it cost.

    `cut` says why `text` is not the whole reply; it is empty if `text` is whole. If we had the whole reply and cut it
    here, `digest` is its SHA-256.
    """

    text: str
    model: str
    usage: Usage
    cut: str = field(default="", metadata=LATER)
    digest: str = field(default="", metadata=LATER)


@dataclass(frozen=True)
class Sampling:
    """Sampling options; None leaves an option to the model. `reasoning_effort` is a word that its provider knows."""

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

        Raises ModelError if there is no answer; the error names the model, the reason and the fix.
        """
        ...


class AnsweredBy:
    """A model of that name, whose requests a function answers."""

    def __init__(self, name: str, answer: Callable[[Request], Reply]) -> None:
        self.name = name
        self._answer = answer

    def ask(self, request: Request) -> Reply:
        """The function's reply; raises what it raises."""
        return self._answer(request)


@runtime_checkable
class Waits(Protocol):
    """A model that takes its time: it calls `while_asking` several times a second, which may raise and end the call."""

    while_asking: Callable[[], None] | None


@runtime_checkable
class TriesAgain(Waits, Protocol):
    """A model that waits for a server, and repeats a failing call after a pause.

    It calls `before_pause` with the seconds of each pause and the reason, which may raise and end the call too.
    """

    before_pause: Callable[[float, str], None] | None
