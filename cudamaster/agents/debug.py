"""Debug: finds out why a kernel fails, and says in words how to fix it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.agents.asking import ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.named_lines import named_lines
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Candidate, Plan, Role, Verdict
from cudamaster.models.protocol import Model


@dataclass(frozen=True)
class Diagnosis:
    """The debug scheme of algorithm 1: what is wrong, and what to change."""

    diagnosis: str
    fix: str


class _DebugReply(Form):
    diagnosis: str
    fix: str


def diagnose(
    model: Model,
    brief: Brief,
    plan: Plan,
    failing: Candidate,
    verdict: Verdict,
    earlier: Sequence[Diagnosis],
) -> Diagnosis | None:
    """Why `failing` fails and how to fix it, or None if the model has no fix (algorithm 1, line 10).

    The listing passes C* and its profile here; section 4.3 and appendix B.4 of the paper pass the failing
    kernel with its log, and so does this. `earlier` are the diagnoses of this round that did not help.
    Raises ReplyMisfit and ModelError.
    """
    return ask(
        model,
        Role.DEBUG,
        {**brief.facts, "idea": plan.idea, "status": verdict.status.value},
        _parse,
        brief=brief,
        plan=plan,
        code=failing.code,
        command=failing.command,
        verdict=verdict,
        named=named_lines(f"{verdict.detail}\n{verdict.log}", failing.code),
        earlier=tuple(earlier),
    )


def _parse(text: str) -> Diagnosis | None:
    reply = json_object(text, _DebugReply)
    return Diagnosis(reply.diagnosis.strip(), reply.fix.strip()) if reply.fix.strip() else None
