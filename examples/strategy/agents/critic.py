"""Critic: reads the best kernel as a reviewer of code does, and names the lines that cost most."""

from __future__ import annotations

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Plan, Role
from cudamaster.models.protocol import Model


class _Reply(Form):
    lines: str
    advice: str


def criticise(model: Model, brief: Brief, code: str) -> Plan:
    """What to change in `code`, for the Coder. Raises ReplyMisfit and ModelError."""
    return ask(model, Role.CRITIC, brief.facts, _parse, brief=brief, code=code)


def _parse(text: str) -> Plan:
    reply = json_object(text, _Reply)
    if not reply.lines.strip() or not reply.advice.strip():
        raise Misfit("lines and advice: one of them is empty.")
    return Plan(" ".join(reply.lines.split()), reply.advice.strip())
