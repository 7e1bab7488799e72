"""Tries the model on tasks: how many samples are right, and how fast they are at sizes that no reward came from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from cudamaster.core.values import Verdict
from cudamaster.models.protocol import Message
from cudamaster.training.problems import Problem
from cudamaster.training.reward import measured
from cudamaster.training.session import Session
from cudamaster.training.settings import Judge
from cudamaster.training.state import EVALUATIONS

# The prompt for a problem at an evaluation.
Asking = Callable[[Problem], Sequence[Message]]


def is_due(session: Session, step: int) -> bool:
    """Whether the model is to be tried after this step, of which 0 is before the first, and has not been yet."""
    every = session.settings.every.evaluation
    done = any(row["step"] == step for row in session.folder.rows(EVALUATIONS))
    return bool(every) and step % every == 0 and not done


def try_out(session: Session, step: int, asking: Asking) -> None:
    """Sample every problem that is tried, and write a line for each. Raises BudgetSpent where that is too much."""
    number = session.settings.evaluation.samples
    session.must_afford(number * len(session.tried))
    asked = [(problem, asking(problem)) for problem in session.tried]
    samples = session.write(asked, number, f"{session.settings.seed} evaluation {step}")
    every = [session.verdicts(some) for some in samples]
    for problem, verdicts in zip(session.tried, every, strict=True):
        row = {"step": step, "task": problem.name, "held_out": problem not in session.problems}
        session.folder.append(EVALUATIONS, row | summary(session, problem, verdicts))
        session.observer.evaluated(row | summary(session, problem, verdicts))
    session.taken_seconds()


def summary(session: Session, problem: Problem, verdicts: Sequence[Verdict | None]) -> dict[str, Any]:
    """What verdicts on samples of a problem come to.

    `right` is the share that is right. Of those with a speedup, `mean` and `best` are over the timed cases that no
    reward came from (over all, if every case counts in the reward), and `mean_trained` over the others. `reward` is the
    mean with 0 for wrong ones.
    """
    judge: Judge | None = getattr(session.settings, "judge", None)
    counted = [label for label in problem.cases if judge is not None and label in judge.cases]
    others = [label for label in problem.cases if label not in counted] if counted else []
    speeds = _speedups(session, verdicts, others or None)
    right = [speed for speed in speeds if speed]
    trained = [speed for speed in _speedups(session, verdicts, counted or None) if speed]
    return {
        "samples": len(verdicts),
        "right": sum(verdict is not None and verdict.correct for verdict in verdicts) / len(verdicts),
        "mean": statistics.fmean(right) if right else None,
        "best": max(right, default=None),
        "reward": statistics.fmean(known) if (known := [speed for speed in speeds if speed is not None]) else None,
        "mean_trained": statistics.fmean(trained) if trained else None,
        "cases": f"{len(others)} of {len(problem.cases)}, not in the reward" if others else "all",
    }


def _speedups(session: Session, verdicts: Sequence[Verdict | None], cases: Sequence[str] | None) -> list[float | None]:
    """The speedup of each sample at these cases: 0 for a wrong one, None where it cannot be told."""
    rule = session.settings.reward
    return [0.0 if verdict is None else measured(verdict, rule, cases).speedup for verdict in verdicts]
