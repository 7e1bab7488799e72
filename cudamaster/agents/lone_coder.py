"""The Coder of methods without a Planner: a first kernel from the baseline alone, each next one from the previous."""

from __future__ import annotations

from functools import partial

from cudamaster.agents.asking import ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.judge import Correction, Optimization
from cudamaster.agents.named_lines import named_lines
from cudamaster.agents.replies import code_block
from cudamaster.core.values import Candidate, Findings, Role, Verdict
from cudamaster.models.protocol import Model


def write(model: Model, brief: Brief, baseline: str, shot: int = 1) -> str:
    """Code of the region, faster than the code of the baseline, from the task and its interface alone.

    `shot` numbers independent shots. No model sees it: each shot has the same prompt. Raises ReplyMisfit and
    ModelError.
    """
    return ask(
        model,
        Role.CODER,
        {**brief.facts, "shot": str(shot)},
        partial(code_block, wrapper=brief.wrapper),
        templates="first_kernel",
        brief=brief,
        baseline=baseline,
    )


def correct(model: Model, brief: Brief, failing: Candidate, verdict: Verdict, correction: Correction | None) -> str:
    """Code of the region with the failure of `failing` fixed, by the Judge's advice if there is any.

    Raises ReplyMisfit and ModelError.
    """
    return ask(
        model,
        Role.CODER,
        {**brief.facts, "code": failing.code, "status": verdict.status.value},
        partial(code_block, wrapper=brief.wrapper),
        templates="next_kernel",
        brief=brief,
        code=failing.code,
        verdict=verdict,
        named=named_lines(f"{verdict.detail}\n{verdict.log}", failing.code),
        correction=correction,
        optimization=None,
        findings=None,
    )


def optimize(
    model: Model,
    brief: Brief,
    previous: Candidate,
    verdict: Verdict,
    optimization: Optimization | None,
    findings: Findings | None,
) -> str:
    """Code of the region, made faster than that of `previous`, which is correct.

    By the Judge's advice if there is any, otherwise by the model's own reading of `findings`, if given.
    Raises ReplyMisfit and ModelError.
    """
    return ask(
        model,
        Role.CODER,
        {**brief.facts, "code": previous.code, **({"idea": optimization.method} if optimization else {})},
        partial(code_block, wrapper=brief.wrapper),
        templates="next_kernel",
        brief=brief,
        code=previous.code,
        verdict=verdict,
        correction=None,
        optimization=optimization,
        findings=findings,
    )
