"""Planner: looks at the best kernel and what the hardware said about it, and proposes one next step."""

from __future__ import annotations

from collections.abc import Sequence

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Candidate, Findings, Outcome, Plan, Role, Verdict
from cudamaster.models.protocol import Model


class _PlanReply(Form):
    idea: str
    plan: str


def propose(
    model: Model,
    brief: Brief,
    best: Candidate,
    verdict: Verdict,
    findings: Findings,
    history: Sequence[Outcome],
) -> Plan | None:
    """The next optimisation scheme, or None when the model has no further idea (algorithm 1, line 4).

    `verdict` and `findings` are those of `best`; `history` holds every earlier plan with its result, including failed
    ones. Raises ReplyMisfit and ModelError.
    """
    tried = tuple(outcome.plan.idea for outcome in history)
    return ask(
        model,
        Role.PLANNER,
        {**brief.facts, "tried": tried},
        _parse,
        brief=brief,
        code=best.code,
        command=best.command,
        verdict=verdict,
        findings=findings,
        history=tuple(history),
    )


def _parse(text: str) -> Plan | None:
    reply = json_object(text, _PlanReply)
    idea = " ".join(reply.idea.split())
    if not idea:
        return None
    if not reply.plan.strip():
        raise Misfit("plan: it is empty, though there is an idea.")
    return Plan(idea, reply.plan.strip())
