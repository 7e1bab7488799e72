"""What a model in training is asked, and how its reply is read.

Two forms. `full` is what the agents of a search read (agents/contrast.py), for models that follow instructions; its
reply has the three parts of section 2.4.2 of the CUDA-L1 paper. `compact` is for small models: plain text that names
task and precision, shows exemplars (the baseline among them) with their scores, and ends where the code begins; its
reply is the code alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from cudamaster.agents import contrast
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.contrast import Exemplar
from cudamaster.models.protocol import AnsweredBy, Message, Reply, Request, Usage

_CODE = "// write\n"


class Form(StrEnum):
    """How a model is asked."""

    FULL = "full"
    COMPACT = "compact"


def prompt(form: Form, brief: Brief, exemplars: Sequence[Exemplar]) -> tuple[Message, ...]:
    """The messages that ask for a kernel faster than all `exemplars`, the slowest first; a compact form has one."""
    if form is Form.FULL:
        return _full(brief, exemplars)
    shown = "".join(f"// score {exemplar.score:.2f}\n{exemplar.candidate.code.strip()}\n" for exemplar in exemplars)
    return (Message("user", f"// {brief.task} {brief.precision.value}\n{shown}{_CODE}"),)


def completion(form: Form, idea: str, code: str, analysis: str = "") -> str:
    """A reply in that form that has this code: what a model learns to write."""
    if form is Form.COMPACT:
        return code.strip() + "\n"
    title = idea or "A faster kernel"
    analysis = analysis or "The kernels shown leave time unused."
    return f"## Analysis\n\n{analysis}\n\n## Algorithm\n\n{title}\n\n## Code\n\n```cuda\n{code.strip()}\n```\n"


def code_of(form: Form, brief: Brief, reply: str) -> str | None:
    """The code of a reply, or None if the reply has not the form that was asked for."""
    if form is Form.COMPACT:
        return reply.strip() + "\n" if reply.strip() else None
    answered = AnsweredBy("policy", lambda request: Reply(reply, "policy", Usage()))
    try:
        improvement = contrast.improve(answered, brief, (), ())
    except ReplyMisfit:
        return None
    return improvement.code if improvement is not None else None


class _Asked(Exception):
    def __init__(self, request: Request) -> None:
        self.request = request


def _full(brief: Brief, exemplars: Sequence[Exemplar]) -> tuple[Message, ...]:
    def hear(request: Request) -> Reply:
        raise _Asked(request)

    try:
        contrast.improve(AnsweredBy("policy", hear), brief, exemplars, ())
    except _Asked as asked:
        return asked.request.messages
    raise AssertionError("the agent asked nobody")
