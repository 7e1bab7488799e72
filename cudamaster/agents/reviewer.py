"""Reviewer: a second model that examines a kernel whose score is too good, for a trick instead of a faster kernel.

Its opinion adds to the harness's own proofs and never replaces them: it can keep a kernel from counting, but cannot
make one count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import Form, json_object
from cudamaster.core.values import Candidate, Role, Verdict
from cudamaster.models.protocol import Model

_HACK, _HONEST = "hack", "honest"


@dataclass(frozen=True)
class Review:
    """A reviewer's opinion of a kernel: whether it is a trick, which kind of trick, and why."""

    hack: bool
    case: str
    reason: str


@dataclass(frozen=True)
class KnownCase:
    """A kernel that was refused before and resembles the one to review: what it did, its code, how it was refused."""

    name: str
    what: str
    code: str
    refused: str


class _ReviewReply(Form):
    verdict: str
    case: str
    reason: str


def review(
    model: Model,
    brief: Brief,
    baseline: str,
    candidate: Candidate,
    verdict: Verdict,
    best: float,
    similar: Sequence[KnownCase] = (),
) -> Review:
    """Whether a kernel that was judged correct earns its score by a trick; `best` is the best score before it.

    `similar` are the cases of a database that resemble it most (section 3.2 of the CUDA-L1 paper); a search has none.
    Raises ReplyMisfit and ModelError.
    """
    return ask(
        model,
        Role.REVIEWER,
        {**brief.facts, "code": candidate.code},
        _parse,
        brief=brief,
        baseline=baseline,
        code=candidate.code,
        command=candidate.command,
        verdict=verdict,
        best=best,
        similar=similar,
    )


def _parse(text: str) -> Review:
    reply = json_object(text, _ReviewReply)
    said = reply.verdict.strip().lower()
    if said not in (_HACK, _HONEST):
        raise Misfit(f'verdict: it is neither "{_HACK}" nor "{_HONEST}".')
    if said == _HACK and not reply.reason.strip():
        raise Misfit("reason: it is empty, though the kernel is called a hack.")
    return Review(said == _HACK, " ".join(reply.case.split()), reply.reason.strip())
