"""Supervised fine-tuning: section 2.2 of the CUDA-L1 paper, on the pairs of an export.

The model learns each token of the completion, given the prompt, and with `completion_only_loss` off those of the prompt
too. A step is one update on a batch of pairs. With a new model, this stage also makes the model and its tokenizer, from
the same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from cudamaster.core.errors import BudgetSpent, UsageError
from cudamaster.training import contrasts, evaluating, prompts
from cudamaster.training.evaluating import Asking
from cudamaster.training.fitting import Hooks, fit, fitting_rows, updates
from cudamaster.training.prompts import Form
from cudamaster.training.session import Session
from cudamaster.training.settings import Sft
from cudamaster.training.shown import baselines
from cudamaster.training.state import STEPS, rows

PAIRS = "sft.jsonl"


def pairs(data: Path, form: Form) -> list[dict[str, Any]]:
    """The pairs of an export.

    Raises UsageError for a set without pairs, or in another form, and RunFolderError for a file that is no such set.
    """
    found = []
    for number, row in enumerate(rows(data / PAIRS), 1):
        if not isinstance(row, dict) or not {"prompt", "completion"} <= set(row):
            what = f"Line {number} of {data / PAIRS} has no prompt and completion."
            raise UsageError(what, "Name a folder that `cudamaster export` wrote.")
        if isinstance(row["prompt"], str) is not (form is Form.COMPACT):
            other = Form.COMPACT if form is Form.FULL else Form.FULL
            what = f"{data / PAIRS} is in the {other.value} form, and the configuration says form: {form.value}."
            raise UsageError(what, f"Export it with --form {form.value}, or write form: {other.value}.")
        found.append(row)
    if not found:
        what = f"There are no pairs in {data / PAIRS}."
        raise UsageError(what, "Export with a lower --at-least, or more sources.")
    return found


def texts(settings: Sft) -> list[str]:
    """What a tokenizer is trained on: each prompt and completion of the compact form."""
    return [row["prompt"] + row["completion"] for row in pairs(settings.data, settings.form)]


def _all_pairs(settings: Sft) -> list[dict[str, Any]]:
    """The pairs of the export, those with exemplars added; without provenance."""
    found = pairs(settings.data, settings.form)
    if settings.exemplars.method != "none":
        about, copies = settings.exemplars, settings.copies
        found += contrasts.added(settings.data, found, settings.form, about, copies, settings.seed)
    return [{"prompt": row["prompt"], "completion": row["completion"]} for row in found]


def run(session: Session) -> str:
    """Train to the end of the budget or of the epochs; returns why it ended."""
    settings, folder = session.settings, session.folder
    assert isinstance(settings, Sft)
    every = _all_pairs(settings)
    kept = fitting_rows(session.policy, every, completion_only_loss=settings.completion_only_loss)
    if len(kept) < len(every):
        more = f"{len(every) - len(kept)} of {len(every)} pairs are longer than model.context"
        if not kept:
            raise UsageError(f"All {more}.", f"Raise model.context, which is {settings.model.context}.")
        session.observer.said(f"{more}, and are left out.")
    total = updates(len(kept), settings.batch, settings.epochs)
    if settings.budget.steps is not None:
        total = settings.budget.steps
    checkpoint, done = folder.checkpoint()
    if folder.model.exists() and folder.ended is not None and len(folder.rows(STEPS)) >= total:
        return folder.ended
    folder.go_back_to(done)
    hooks = _Hooks(session, done, total)
    trained = done < total and fit(
        session, kept, hooks, steps=total, batch=settings.batch, micro_batch=settings.micro_batch,
        checkpoints=folder.checkpoints, resume=checkpoint,
    )  # fmt: skip
    if not trained and checkpoint is not None:
        session.policy.restore(checkpoint)
    return hooks.stopped or f"{total} steps are done"


def baseline_alone(session: Session) -> Asking:
    """Prompts that show the baseline alone, as those of the pairs do."""
    shown = baselines(session, session.tried)
    form = session.settings.form
    return lambda problem: prompts.prompt(form, problem.brief, (shown[problem.name],))


class _Hooks(Hooks):
    """Writes a line for each step, tries the model when it is due, and ends with the budget."""

    def __init__(self, session: Session, done: int, total: int) -> None:
        self._session = session
        self._total = total
        self._done = done
        self._asking: Asking | None = None
        self._since = monotonic()
        self.stopped: str | None = None

    def begins(self) -> bool:
        """Before the first step the model may be tried."""
        goes_on = self._goes_on(self._done)
        self._since = monotonic()
        return goes_on

    def logged(self, step: int, logs: Mapping[str, Any]) -> bool:
        """The line of a step; whether the budget is spent."""
        now = monotonic()
        row = {
            "step": step,
            "loss": float(logs["loss"]),
            "accuracy": _number(logs.get("mean_token_accuracy")),
            "grad_norm": _number(logs.get("grad_norm")),
            "seconds": {"training": round(now - self._since, 3)},
        }
        self._since = now
        self._session.folder.append(STEPS, row)
        self._session.folder.save()
        self._session.observer.step(row, self._total)
        goes_on = self._goes_on(step)
        self._since = monotonic()
        return not goes_on

    def _goes_on(self, step: int) -> bool:
        """Whether the budget lets it go on after a step, when the model was tried if that is due."""
        try:
            if evaluating.is_due(self._session, step):
                self._asking = self._asking or baseline_alone(self._session)
                evaluating.try_out(self._session, step, self._asking)
            self._session.folder.must_go_on(self._session.settings.budget)
        except BudgetSpent as spent:
            self.stopped = spent.reason
        return self.stopped is None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
