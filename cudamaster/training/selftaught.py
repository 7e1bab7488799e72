"""Self-supervised learning: section 2.3 of the CUDA-L1 paper.

    each round:  sample every task -> judge -> keep what is right -> train on that

Speed plays no part. What the paper leaves open is decided here: a kernel that was sampled twice in a round is trained
on once, and only the round's own are; every round begins with a fresh AdamW; a round without a right kernel changes
nothing.

A step is a round. Its samples are on disk as soon as a micro-batch is there, and its model before the next round
begins, so a run that was killed goes on within the round.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudamaster.core.errors import BudgetSpent
from cudamaster.core.values import Verdict, content_hash
from cudamaster.models.protocol import Message
from cudamaster.training import evaluating, policy, prompts
from cudamaster.training.evaluating import summary
from cudamaster.training.fitting import Hooks, fit, fitting_rows, updates
from cudamaster.training.problems import Problem
from cudamaster.training.prompts import Form
from cudamaster.training.session import Sample, Session
from cudamaster.training.settings import Selftaught
from cudamaster.training.shown import baselines
from cudamaster.training.state import SAMPLES, STEPS, TrainingFolder


def run(session: Session) -> str:
    """Round after round, to the last one or to the end of the budget; returns why it ended."""
    settings, folder = session.settings, session.folder
    assert isinstance(settings, Selftaught)
    total = settings.rounds if settings.budget.steps is None else min(settings.rounds, settings.budget.steps)
    done = len(folder.rows(STEPS))
    folder.go_back_to(done + 1)  # of the round under way, the samples stay
    with session.turns.of_model():
        shown = baselines(session, (*session.problems, *session.tried))
        asked = {name: prompts.prompt(settings.form, _brief(session, name), (one,)) for name, one in shown.items()}
        try:
            _evaluate(session, done, asked)
            for number in range(done + 1, total + 1):
                session.must_afford(
                    settings.samples * len(session.problems) if not _has_samples(session, number) else 0
                )
                _round(session, number, total, asked)
                _evaluate(session, number, asked)
        except BudgetSpent as spent:
            return spent.reason
    return f"{total} rounds are done"


def folder_of(folder: TrainingFolder, number: int) -> Path:
    """What a round leaves: its model, and its checkpoints until that is there."""
    return folder.path / "rounds" / f"{number:04d}"


def model_after(folder: TrainingFolder, number: int) -> Path | None:
    """The model after a round: of the last one up to there that learnt something, None if that is the first model."""
    for earlier in range(number, 0, -1):
        if (folder_of(folder, earlier) / "model").is_dir():
            return folder_of(folder, earlier) / "model"
    return None


def _brief(session: Session, name: str) -> Any:
    return next(problem.brief for problem in (*session.problems, *session.tried) if problem.name == name)


def _has_samples(session: Session, number: int) -> bool:
    return any(row["step"] == number for row in session.folder.rows(SAMPLES))


def _evaluate(session: Session, step: int, asked: Mapping[str, Sequence[Message]]) -> None:
    if evaluating.is_due(session, step):
        evaluating.try_out(session, step, lambda problem: asked[problem.name])


def _round(session: Session, number: int, total: int, asked: Mapping[str, Sequence[Message]]) -> None:
    """A round, or what is left of it."""
    settings, folder = session.settings, session.folder
    assert isinstance(settings, Selftaught)
    session.taken_seconds()
    samples = {problem.name: _samples(session, problem, number, asked[problem.name]) for problem in session.problems}
    verdicts = {name: session.verdicts(some) for name, some in samples.items()}
    pairs: dict[str, dict[str, Any]] = {}
    for name, some in samples.items():
        for sample, verdict in zip(some, verdicts[name], strict=True):
            if verdict is not None and verdict.correct:
                pairs.setdefault(verdict.candidate, _pair(settings.form, asked[name], sample.text))
    kept = fitting_rows(session.policy, list(pairs.values()))
    losses = _learn(session, number, kept) if kept else []
    every = [verdict for some in verdicts.values() for verdict in some]
    row = {
        "step": number,
        "samples": len(every),
        "right": sum(verdict is not None and verdict.correct for verdict in every) / len(every),
        "kept": len(kept),
        "loss": losses[-1] if losses else None,
        "tasks": {problem.name: _told(session, problem, verdicts[problem.name]) for problem in session.problems},
        "evaluations": session.scoring.verdicts.paid if session.scoring is not None else 0,
        "seconds": session.taken_seconds(),
    }
    folder.append(STEPS, row)
    folder.save()
    for earlier in range(1, number):
        if model_after(folder, number) != folder_of(folder, earlier) / "model":
            shutil.rmtree(folder_of(folder, earlier), ignore_errors=True)
    session.observer.step(row, total)


def _told(session: Session, problem: Problem, verdicts: Sequence[Verdict | None]) -> dict[str, Any]:
    found = summary(session, problem, verdicts)
    return {name: found[name] for name in ("right", "mean", "best")}


def _samples(session: Session, problem: Problem, number: int, messages: Sequence[Message]) -> list[Sample]:
    """The samples of a problem in a round: those on disk, and the others written now, a micro-batch at a time."""
    settings = session.settings
    assert isinstance(settings, Selftaught)
    assert session.scoring is not None
    rows = [row for row in session.folder.rows(SAMPLES) if (row["step"], row["task"]) == (number, problem.name)]
    samples = [session.sample(problem, row["text"]) for row in rows]
    while len(samples) < settings.samples:
        size = min(settings.generation.batch, settings.samples - len(samples))
        seed = f"{settings.seed} round {number} {problem.name} {len(samples)}"
        (written,) = session.write([(problem, messages)], size, seed)
        for sample in written:
            session.folder.append(
                SAMPLES,
                {
                    "step": number,
                    "task": problem.name,
                    "prompt": content_hash(*(message.content for message in messages)),
                    "text": sample.text,
                    "candidate": None if sample.candidate is None else sample.candidate.id,
                },
            )
        samples += written
        session.observer.doing(f"sampling {problem.name}", len(samples), settings.samples)
    return samples


def _pair(form: Form, messages: Sequence[Message], text: str) -> dict[str, Any]:
    """A pair as TRL takes it: two texts, or two lists of messages."""
    if form is Form.COMPACT:
        return {"prompt": "".join(message.content for message in messages), "completion": text}
    prompt = [{"role": message.role, "content": message.content} for message in messages]
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": text}]}


def _learn(session: Session, number: int, pairs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Train on a round's pairs, unless that was done before. Either way the model is then the one that was kept."""
    settings, folder = session.settings, folder_of(session.folder, number)
    assert isinstance(settings, Selftaught)
    losses: list[float] = []

    class Losses(Hooks):
        """Keeps the loss of each update."""

        def logged(self, step: int, logs: Mapping[str, Any]) -> bool:
            losses.append(float(logs["loss"]))
            session.observer.doing("training", step, steps)
            return False

    steps = updates(len(pairs), settings.batch, settings.epochs)
    if not (folder / "model").is_dir():
        checkpoints = folder / "checkpoints"
        last, _ = session.folder.checkpoint(checkpoints)
        fit(
            session, pairs, Losses(), steps=steps, batch=settings.batch, micro_batch=settings.micro_batch,
            checkpoints=checkpoints, resume=last,
        )  # fmt: skip
        session.policy.save(folder / "model")
        shutil.rmtree(checkpoints, ignore_errors=True)
    session.policy.model = None  # two would need twice the memory
    # Adapters are part of the weights now, and the next round has new ones.
    gpus = len(session.turns.gpus)
    at = str(folder / "model")
    session.policy = policy.loaded(settings.model, settings.form, on_gpus=gpus, place=at, seed=settings.seed)
    return losses
