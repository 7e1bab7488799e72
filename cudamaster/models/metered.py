"""Adds up what the calls of each role cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cudamaster.core.values import Role
from cudamaster.models.protocol import AnsweredBy, Model, Reply, Request

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class RoleUsage:
    """Sum over the calls of one role. A sum with an unknown part is None, never the sum of the rest."""

    calls: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    dollars: float | None = 0.0
    seconds: float = 0.0
    cached_tokens: int | None = 0


class Meter:
    """Counts usage per role; `model` wraps a model so that its calls are counted."""

    def __init__(self, asking: Callable[[Role, str], None], roles: Iterable[Role]) -> None:
        """`roles` are those that may be asked. Each has its sum, even if it is never asked."""
        self._asking = asking
        self.usage: dict[Role, RoleUsage] = {role: RoleUsage() for role in roles}

    def model(self, inner: Model) -> Model:
        """The same model, counted, and announced before each call."""
        return AnsweredBy(inner.name, partial(self.ask, inner))

    def ask(self, inner: Model, request: Request) -> Reply:
        """Ask, and count what it cost."""
        self._asking(request.role, inner.name)
        reply = inner.ask(request)
        before, cost = self.usage[request.role], reply.usage
        self.usage[request.role] = RoleUsage(
            calls=before.calls + 1,
            prompt_tokens=_sum(before.prompt_tokens, cost.prompt_tokens),
            completion_tokens=_sum(before.completion_tokens, cost.completion_tokens),
            dollars=_sum(before.dollars, cost.dollars),
            seconds=before.seconds + cost.seconds,
            cached_tokens=_sum(before.cached_tokens, cost.cached_tokens),
        )
        return reply


def _sum(a: _Number | None, b: _Number | None) -> _Number | None:
    return None if a is None or b is None else a + b
