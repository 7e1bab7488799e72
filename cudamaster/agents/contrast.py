"""Contrast: compares earlier kernels by their scores, says what explains the differences, and writes a faster one.

The one agent of CUDA-L1 with fixed weights (section 2.4.2 of its paper). It plans and writes in one reply, so it is
asked in the role of the Coder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.agents.asking import Misfit, ask
from cudamaster.agents.brief import Brief
from cudamaster.agents.replies import code_block, must_be_short, sections
from cudamaster.core.values import Candidate, Plan, Role, Verdict
from cudamaster.models.protocol import Model

_LIST_MARKER = re.compile(r"^\s*(?:[-*#]+|\d+[.)])\s+")


@dataclass(frozen=True)
class Exemplar:
    """A correct kernel as the model sees it: `score` is its P, by definition 1.0 for the baseline."""

    candidate: Candidate
    verdict: Verdict
    score: float
    is_baseline: bool = False


@dataclass(frozen=True)
class Improvement:
    """The three parts of a reply: why scores differ, what to do about it, and the code of the region."""

    analysis: str
    plan: Plan
    code: str


def improve(model: Model, brief: Brief, exemplars: Sequence[Exemplar], tried: Sequence[str]) -> Improvement | None:
    """A kernel that is meant to beat `exemplars`, or None when the model has no further idea.

    The prompt does not offer to stop: a model that sees two of many kernels cannot know that nothing is left. The
    playbook, which can run out of ideas, stops by leaving the last two parts empty. `tried` holds the titles of earlier
    plans; only the facts contain it, since the paper's prompt has no failures in it. Raises ReplyMisfit and ModelError.
    """
    shown = tuple(f"{exemplar.candidate.id} {exemplar.score!r}" for exemplar in exemplars)
    return ask(
        model,
        Role.CODER,
        {**brief.facts, "exemplars": shown, "tried": tuple(tried)},
        lambda text: _parse(text, brief.wrapper),
        templates="contrast",
        brief=brief,
        exemplars=tuple(exemplars),
    )


def _parse(text: str, wrapper: str) -> Improvement | None:
    analysis, algorithm, code = sections(text, "Analysis", "Algorithm", "Code")
    if not (algorithm or code):
        return None
    if not analysis:
        raise Misfit('the part under "Analysis" is empty.')
    must_be_short(algorithm)
    title, _, points = algorithm.partition("\n")
    idea = " ".join(_LIST_MARKER.sub("", title).strip("* \t").split())
    if not idea:
        raise Misfit('the part under "Algorithm" is empty, though there is code.')
    return Improvement(analysis, Plan(idea, points.strip() or idea), code_block(code, wrapper))
