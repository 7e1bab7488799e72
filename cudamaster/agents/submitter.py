"""An agent that is no model: a program that works by itself, and submits one kernel after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.core.values import Outcome, Role
from cudamaster.guards.flags import LONGEST_COMMAND
from cudamaster.guards.text import SIZE_LIMIT
from cudamaster.models.protocol import Model

_TITLE = re.compile(r"\A\s*(?://+|/\*+)[ \t]*(?P<title>[^\n]*?)[ \t]*(?:\*+/|\n|\Z)")
_LONGEST_TITLE = 100


@dataclass(frozen=True)
class Submission:
    """Code of the region to be judged, and the compile command; the default one if that is empty."""

    code: str
    command: str = ""

    @property
    def title(self) -> str:
        """The comment that the code begins with, as the idea's name; empty if it begins with none."""
        found = _TITLE.match(self.code)
        return " ".join(found["title"].split())[:_LONGEST_TITLE] if found else ""


@dataclass(frozen=True)
class Ended:
    """There is no further submission, and why."""

    ended: str


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: str = ""
    command: str = ""
    ended: str = ""


def next_submission(model: Model, brief: Brief, history: Sequence[Outcome]) -> Submission | Ended:
    """What the program submits after the submissions in `history`. Raises ReplyMisfit and ModelError."""
    return ask(model, Role.AGENT, {**brief.facts, "after": str(len(history))}, _parse, brief=brief, history=history)


def text_of(reply: Submission | Ended) -> str:
    """The text of a reply that says this, as `next_submission` reads it."""
    return json.dumps(asdict(reply), indent=1, ensure_ascii=False)


def _parse(text: str) -> Submission | Ended:
    try:
        reply = _Reply.model_validate_json(text)
    except ValidationError as error:
        raise Misfit(f"it is no submission: {error.errors()[0]['msg']}.") from error
    if reply.ended:
        return Ended(reply.ended)
    for what, part, most in (("the code", reply.code, SIZE_LIMIT), ("the command", reply.command, LONGEST_COMMAND)):
        if len(part) > most:
            raise Misfit(f"{what} has {len(part):,} characters, at most {most:,} are taken.")
    if not reply.code.strip():
        raise Misfit("there is no code in it.")
    return Submission(reply.code, reply.command)
