"""Coder: writes the region's code, from a plan and the best kernel, or from a fix and the failing one."""

from __future__ import annotations

from functools import partial

from cudamaster.agents.asking import ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.debug import Diagnosis
from cudamaster.agents.replies import code_block
from cudamaster.core.values import Plan, Role
from cudamaster.models.protocol import Model


def implement(model: Model, brief: Brief, plan: Plan, code: str) -> str:
    """Code of the region that carries out `plan` on `code`, the best so far (algorithm 1, line 5).

    Raises ReplyMisfit and ModelError.
    """
    return _write(model, brief, plan, code, None)


def repair(model: Model, brief: Brief, plan: Plan, fix: Diagnosis, code: str) -> str:
    """Code of the region with `fix` applied to `code`, the failing one (algorithm 1, line 11).

    The plan is passed too, so that a repair does not discard the idea with the error.
    Raises ReplyMisfit and ModelError.
    """
    return _write(model, brief, plan, code, fix)


def _write(model: Model, brief: Brief, plan: Plan, code: str, fix: Diagnosis | None) -> str:
    facts = {**brief.facts, "idea": plan.idea, "plan": plan.text}
    if fix is not None:
        facts["fix"] = fix.fix
    return ask(
        model,
        Role.CODER,
        facts,
        partial(code_block, wrapper=brief.wrapper),
        brief=brief,
        plan=plan,
        fix=fix,
        code=code,
    )
