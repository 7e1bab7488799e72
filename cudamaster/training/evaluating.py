"""Tries the model on tasks: how many samples are right, and how fast they are at sizes that no reward came from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudamaster.core.values import Verdict
from cudamaster.models.protocol import Message
from cudamaster.training import looks
from cudamaster.training.collecting import KERNELS
from cudamaster.training.looks import Outcome
from cudamaster.training.problems import Problem
from cudamaster.training.reward import measured
from cudamaster.training.session import Session
from cudamaster.training.settings import Judge
from cudamaster.training.state import EVALUATIONS, LEAPS, rows

_REFUSED = (Outcome.TRICK, Outcome.WRONG)
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
    learnt = tasks_of(session.settings.data)
    for problem, verdicts in zip(session.tried, every, strict=True):
        row = {
            "step": step,
            "task": problem.name,
            "held_out": problem not in session.problems and problem.card.name not in learnt,
        }
        row |= summary(session, problem, verdicts)
        session.folder.append(EVALUATIONS, row)
        session.observer.evaluated(row)
    session.taken_seconds()


def tasks_of(data: Path) -> set[str]:
    """The tasks of which a set to train on has pairs or kernels: they are not held out, whatever is rewarded."""
    found = set()
    for row in rows(data / "sft.jsonl"):
        if isinstance(row, dict) and isinstance(about := row.get("provenance"), dict):
            found.add(str(about.get("task")))
    for row in rows(data / KERNELS):
        if isinstance(row, dict) and isinstance(candidate := row.get("candidate"), dict):
            found.add(str(candidate.get("task")))
    return found


def summary(session: Session, problem: Problem, verdicts: Sequence[Verdict | None]) -> dict[str, Any]:
    """What verdicts on samples of a problem come to.

    `right` is the share that is right. A kernel that a leap showed to be a trick or wrong is not, and one whose leap
    was not confirmed has no speedup. Of those with a speedup, `mean` and `best` are over the timed cases that no
    reward came from (over all, if every case counts in the reward), and `mean_trained` over the others. `reward` is the
    mean with 0 for wrong ones.
    """
    path = session.folder.path / LEAPS
    looked = {one.candidate: one.outcome for one in looks.read(path)} if path.exists() else {}
    judge: Judge | None = getattr(session.settings, "judge", None)
    counted = [label for label in problem.cases if judge is not None and label in judge.cases]
    others = [label for label in problem.cases if label not in counted] if counted else []
    speeds = _speedups(session, verdicts, others or None, looked)
    right = [speed for speed in speeds if speed]
    trained = [speed for speed in _speedups(session, verdicts, counted or None, looked) if speed]
    return {
        "samples": len(verdicts),
        "right": sum(_is_right(verdict, looked) for verdict in verdicts) / len(verdicts),
        "mean": statistics.fmean(right) if right else None,
        "best": max(right, default=None),
        "reward": statistics.fmean(known) if (known := [speed for speed in speeds if speed is not None]) else None,
        "mean_trained": statistics.fmean(trained) if trained else None,
        "cases": f"{len(others)} of {len(problem.cases)}, not in the reward" if others else "all",
    }


def _is_right(verdict: Verdict | None, looked: Mapping[str, Outcome]) -> bool:
    return verdict is not None and verdict.correct and looked.get(verdict.candidate) not in _REFUSED


def _speedups(
    session: Session, verdicts: Sequence[Verdict | None], cases: Sequence[str] | None, looked: Mapping[str, Outcome]
) -> list[float | None]:
    """The speedup of each sample at these cases: 0 for a wrong one, None where it cannot be told."""
    rule = session.settings.reward

    def of(verdict: Verdict | None) -> float | None:
        if verdict is None or (verdict.correct and not _is_right(verdict, looked)):
            return 0.0
        doubted = looked.get(verdict.candidate, Outcome.COUNTS) is not Outcome.COUNTS
        return None if doubted else measured(verdict, rule, cases).speedup

    return [of(verdict) for verdict in verdicts]
