"""One question to one model: the two messages, the form of the reply, and a second attempt.

A malformed reply is asked for once more, with the reason and only as much of the reply as shows the problem, because
megabytes would be paid for again. The strategy decides what to do about a second misfit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from cudamaster.agents import prompts
from cudamaster.core.values import Role
from cudamaster.models.protocol import LONGEST_PART, Message, Model, Reply, Request

T = TypeVar("T")
_REASON_LIMIT = 1000  # characters: a reason can quote the reply
Facts = Mapping[str, str | tuple[str, ...]]


class Misfit(ValueError):
    """One reply that is not in the requested form; the text says what is wrong with it, in a few lines at most."""

    def __init__(self, reason: str) -> None:
        super().__init__(prompts.clip(reason, _REASON_LIMIT))


class ReplyMisfit(Exception):
    """A model failed twice to answer in the form asked for. Strategies count it as a failed round, or do without."""

    def __init__(self, role: Role, model: str, reason: str) -> None:
        super().__init__(f"The {role.value} ({model}) answered twice in no usable form: {reason}")
        self.role = role
        self.model = model
        self.reason = reason


def ask(
    model: Model,
    role: Role,
    facts: Facts,
    parse: Callable[[str], T],
    templates: str | None = None,
    **values: object,
) -> T:
    """Ask one role, and parse its reply.

    `values` are the variables of the role's templates; `templates` names other templates, if a role has more than one
    job. `parse` raises Misfit for a malformed reply. Raises ReplyMisfit when the second reply does not fit either, and
    ModelError from the model.
    """
    name = templates or role.value
    messages = [
        Message("system", prompts.render(f"{name}.system.md.j2", **values)),
        Message("user", prompts.render(f"{name}.user.md.j2", **values)),
    ]
    reply = model.ask(Request(role, tuple(messages), facts))
    try:
        return _parsed(reply, parse)
    except Misfit as misfit:
        reason = str(misfit)
    messages += [
        # Servers refuse a message without text.
        Message("assistant", prompts.clip(reply.text, LONGEST_PART) if reply.text.strip() else "(nothing)"),
        Message("user", prompts.render("again.md.j2", reason=reason)),
    ]
    reply = model.ask(Request(role, tuple(messages), {**facts, "misfit": reason}))
    try:
        return _parsed(reply, parse)
    except Misfit as misfit:
        raise ReplyMisfit(role, reply.model, str(misfit)) from misfit


def _parsed(reply: Reply, parse: Callable[[str], T]) -> T:
    """The result of `parse`. A Misfit also says if the reply is empty or was cut, which may be the cause."""
    try:
        if not reply.text.strip():
            raise Misfit("it is empty.")
        return parse(reply.text)
    except Misfit as misfit:
        if reply.cut:
            raise Misfit(f"{misfit} It was cut: {reply.cut}.") from misfit
        raise
