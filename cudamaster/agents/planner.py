"""Planner: looks at the best kernel and what the hardware said about it, and proposes one next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Candidate, Findings, Outcome, Plan, Role, Verdict
from cudamaster.models.protocol import Model


class _PlanReply(Form):
    idea: str
    plan: str


@dataclass(frozen=True)
class Kind:
    """A kind of optimisation: its name, and what belongs to it in one sentence."""

    name: str
    meaning: str


@dataclass(frozen=True)
class Place:
    """Where a kernel stands in a search that keeps several, so that it need not be the fastest.

    `best_score` is P of the fastest, `line` the steps that led to this one, earliest first, `elsewhere` what was
    carried out on other kernels, and `kept` the others that the search keeps, a line each.
    """

    best_score: float
    line: tuple[Outcome, ...] = ()
    elsewhere: tuple[Outcome, ...] = ()
    kept: tuple[str, ...] = ()


def propose(
    model: Model,
    brief: Brief,
    start: Candidate,
    verdict: Verdict,
    findings: Findings,
    history: Sequence[Outcome],
    *,
    place: Place | None = None,
    kind: Kind | None = None,
) -> Plan | None:
    """The next optimisation scheme, or None when the model has no further idea (algorithm 1, line 4).

    `start` is the kernel to change, the best so far unless `place` says otherwise; `verdict` and `findings` are its
    own. `history` holds every earlier plan with its result, including failed ones; with a `place`, those carried out on
    this kernel, where accepted means faster than it. A plan has to be of the `kind`, if there is one, and None then
    means that nothing of this kind can help. Raises ReplyMisfit and ModelError.
    """
    before = (*place.line, *place.elsewhere) if place else ()
    facts = {**brief.facts, "tried": tuple(outcome.plan.idea for outcome in (*before, *history))}
    if kind is not None:
        facts["kind"] = kind.name
    return ask(
        model,
        Role.PLANNER,
        facts,
        _parse,
        brief=brief,
        code=start.code,
        command=start.command,
        verdict=verdict,
        findings=findings,
        history=tuple(history),
        place=place,
        kind=kind,
    )


def _parse(text: str) -> Plan | None:
    reply = json_object(text, _PlanReply)
    idea = " ".join(reply.idea.split())
    if not idea:
        return None
    if not reply.plan.strip():
        raise Misfit("plan: it is empty, though there is an idea.")
    return Plan(idea, reply.plan.strip())
