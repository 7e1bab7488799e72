"""The kernels that prompts begin with: baselines, and what is known of an export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cudamaster.agents.contrast import Exemplar
from cudamaster.core.errors import BaselineError, UsageError
from cudamaster.training.choosing import Standing
from cudamaster.training.collecting import HELD_OUT, KERNELS, read_kernels
from cudamaster.training.kernels import gpu_of
from cudamaster.training.problems import Problem
from cudamaster.training.reward import Rule, measured
from cudamaster.training.session import Session


def baselines(session: Session, problems: Sequence[Problem]) -> dict[str, Exemplar]:
    """The baselines by the problems' names, judged here: each has the score 1 by definition.

    Raises BaselineError, and BudgetSpent where there are too few evaluations for them.
    """
    scoring = session.scoring
    assert scoring is not None
    new = {problem.name for problem in problems if scoring.key(problem, problem.baseline) not in scoring.verdicts}
    session.must_afford(len(new))
    judged = [scoring.submit(problem, problem.baseline) for problem in problems]
    with session.turns.of_judges():
        verdicts = [each.result() for each in judged]
    for problem, verdict in zip(problems, verdicts, strict=True):
        if not verdict.correct:
            raise BaselineError(
                f"The baseline of {problem.name} is {verdict.status.value}: {verdict.detail}.",
                "Leave the task out, or mend it: `cudamaster check` looks at its card.",
            )
    return {
        problem.name: Exemplar(problem.baseline, verdict, 1.0, is_baseline=True)
        for problem, verdict in zip(problems, verdicts, strict=True)
    }


def known(
    data: Path, problems: Sequence[Problem], rule: Rule, cases: Sequence[str]
) -> tuple[dict[str, list[Exemplar]], Counter[str]]:
    """The right kernels of an export, by the problems' names, with their rewards; and why others are left out.

    Scores of another GPU, or by another card, say nothing about those that are measured here.
    """
    by_name = {problem.name: problem for problem in problems}
    found: dict[str, list[Exemplar]] = {name: [] for name in by_name}
    left_out: Counter[str] = Counter()
    kernels = read_kernels(data / KERNELS)
    standing = Standing(kernels, modelled=True)
    for kernel in kernels:
        candidate = kernel.candidate
        problem = by_name.get(f"{candidate.task}/{candidate.precision.value}")
        if problem is None or candidate.id == problem.baseline.id or kernel.provenance.is_baseline:
            continue
        if not problem.card.times_as(kernel.provenance.card_hash):
            left_out["by another card"] += 1
        elif kernel.gpu != gpu_of(problem.hardware):
            left_out[f"measured on {kernel.gpu or 'an unknown GPU'}"] += 1
        elif why := standing.why_not(kernel):
            left_out[why] += 1
        elif speedup := measured(kernel.verdict, rule, wanted(problem, cases)).speedup:
            found[problem.name].append(Exemplar(candidate, kernel.verdict, speedup))
        else:
            left_out["without a speedup"] += 1
    return found, left_out


def must_not_be_held_out(data: Path, problems: Sequence[Problem]) -> None:
    """Raise UsageError for a problem to train on that the export holds out."""
    if not (data / HELD_OUT / KERNELS).is_file():
        return
    held = {kernel.candidate.task for kernel in read_kernels(data / HELD_OUT)}
    if names := [problem.name for problem in problems if problem.card.name in held]:
        raise UsageError(
            f"{', '.join(names)} is to be trained on, and {data} holds it out.",
            "Take it out of judge.tasks; evaluation.tasks may name it.",
        )


def wanted(problem: Problem, cases: Sequence[str]) -> tuple[str, ...] | None:
    """The labels that count for a problem: its own of `cases`; None for all, if that names none."""
    return tuple(label for label in problem.cases if label in cases) if cases else None
