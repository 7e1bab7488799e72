"""Judge: CudaForge's second agent. It looks at one kernel and gives the Coder one correction or one optimisation.

The three fields of both replies are those of the CudaForge paper (appendix D.2). The Judge sees only the current
kernel, neither earlier rounds nor the score.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import AliasChoices, Field

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.named_lines import named_lines
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Candidate, Findings, Role, Verdict
from cudamaster.models.protocol import Model


@dataclass(frozen=True)
class Correction:
    """The one thing that is wrong with a failing kernel, why it matters, and the smallest change that fixes it."""

    critical_issue: str
    why_it_matters: str
    minimal_fix_hint: str


@dataclass(frozen=True)
class Optimization:
    """What limits a correct kernel, one method to lift that limit, and what to change for it."""

    bottleneck: str
    method: str
    plan: str


class _CorrectionReply(Form):
    critical_issue: str
    why_it_matters: str
    minimal_fix_hint: str


class _OptimizationReply(Form):
    # The paper spells two of its names with a blank; models put an underscore there as often.
    bottleneck: str
    optimization_method: str = Field(validation_alias=AliasChoices("optimization method", "optimization_method"))
    modification_plan: str = Field(validation_alias=AliasChoices("modification plan", "modification_plan"))


def correct(model: Model, brief: Brief, reference: str, failing: Candidate, verdict: Verdict) -> Correction:
    """What is wrong with a kernel that fails; `reference` is the baseline's code. Raises ReplyMisfit and ModelError."""
    return ask(
        model,
        Role.JUDGE,
        {**brief.facts, "code": failing.code, "status": verdict.status.value},
        _parse_correction,
        templates="judge_correction",
        brief=brief,
        reference=reference,
        code=failing.code,
        command=failing.command,
        verdict=verdict,
        named=named_lines(f"{verdict.detail}\n{verdict.log}", failing.code),
    )


def optimize(
    model: Model, brief: Brief, reference: str, candidate: Candidate, findings: Findings
) -> Optimization | None:
    """How to make a correct kernel faster, by its metrics, or None when the model sees nothing left to gain.

    `findings` are those of `candidate`. Raises ReplyMisfit and ModelError.
    """
    return ask(
        model,
        Role.JUDGE,
        {**brief.facts, "code": candidate.code},
        _parse_optimization,
        templates="judge_optimization",
        brief=brief,
        reference=reference,
        code=candidate.code,
        command=candidate.command,
        findings=findings,
    )


def _parse_correction(text: str) -> Correction:
    reply = json_object(text, _CorrectionReply)
    if not reply.critical_issue.strip():
        raise Misfit("critical_issue: it is empty.")
    return Correction(reply.critical_issue.strip(), reply.why_it_matters.strip(), reply.minimal_fix_hint.strip())


def _parse_optimization(text: str) -> Optimization | None:
    reply = json_object(text, _OptimizationReply)
    method = " ".join(reply.optimization_method.split())
    if not method:
        return None
    if not reply.modification_plan.strip():
        raise Misfit("modification plan: it is empty, though there is a method.")
    return Optimization(reply.bottleneck.strip(), method, reply.modification_plan.strip())
