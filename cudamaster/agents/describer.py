"""Describer: writes the instruction that a piece of CUDA code answers, and says whether the piece teaches anything.

For continued pretraining (section 3.2.1 of the CUDA-L2 paper), where raw code has no instruction. One reply does both:
the paper cleans with a model too, and a second call for each piece would cost as much again. It is no part of a search.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Role
from cudamaster.models.protocol import Model

_YES, _NO = "yes", "no"
_SHORTEST = 20  # characters of an instruction
_LONGEST = 4_000


@dataclass(frozen=True)
class Description:
    """Whether a piece is worth learning from, why, and the instruction, which is empty for a piece that is not."""

    worth_learning: bool
    reason: str
    instruction: str


class _DescriptionReply(Form):
    worth_learning: str
    reason: str
    instruction: str


def describe(model: Model, path: str, code: str) -> Description:
    """What a piece of code, from the file at `path`, may have been asked for. Raises ReplyMisfit and ModelError."""
    # Code can hold three backticks itself, in a comment for a documentation; no run of them may end the block.
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return ask(model, Role.DESCRIBER, {"path": path, "code": code}, _parse, path=path, code=code, fence=fence)


def _parse(text: str) -> Description:
    reply = json_object(text, _DescriptionReply)
    said = reply.worth_learning.strip().lower().rstrip(".")
    if said not in (_YES, _NO):
        raise Misfit(f'worth_learning: it is neither "{_YES}" nor "{_NO}".')
    instruction = reply.instruction.strip()
    if said == _NO:
        return Description(False, " ".join(reply.reason.split()), "")
    if len(instruction) < _SHORTEST:
        raise Misfit("instruction: it is empty or too short, though the code is called worth learning from.")
    if len(instruction) > _LONGEST:
        raise Misfit(f"instruction: it has {len(instruction):,} characters, at most {_LONGEST:,} are taken.")
    if "```" in instruction:
        raise Misfit("instruction: it holds a block of code. Say in words what the code has to do.")
    return Description(True, " ".join(reply.reason.split()), instruction)
