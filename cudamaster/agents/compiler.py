"""Compiler: chooses the command line that builds a candidate."""

from __future__ import annotations

from functools import partial

from cudamaster.agents.asking import ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import command_line
from cudamaster.core.values import Plan, Role
from cudamaster.models.protocol import Model


def choose_command(model: Model, brief: Brief, plan: Plan, code: str) -> str:
    """One command line for `code` (algorithm 1, lines 6 and 12).

    The flag guard, not this agent, decides whether its flags are allowed.
    Raises ReplyMisfit and ModelError.
    """
    program = brief.default_command.split(" ", 1)[0]
    return ask(
        model,
        Role.COMPILER,
        {**brief.facts, "idea": plan.idea, "default_command": brief.default_command},
        partial(command_line, program=program),
        brief=brief,
        plan=plan,
        code=code,
    )
