"""Supervised training on pairs of prompt and completion, by TRL's SFTTrainer: what two stages have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from cudamaster.training.policy import Policy
from cudamaster.training.prompts import Form
from cudamaster.training.session import Session
from cudamaster.training.settings import Optimization
from cudamaster.training.state import TrainingFolder

_KEPT = 2  # checkpoints: the last one may be cut short by a kill


class Hooks:
    """What a stage does while a trainer of transformers is at work. Steps are the trainer's: its updates, from 1."""

    def begins(self) -> bool:
        """Whether training may begin, or go on."""
        return True

    def logged(self, step: int, logs: Mapping[str, Any]) -> bool:
        """What the trainer says of an update: its loss, for example. Whether to stop there, with a checkpoint."""
        return False


class _Callback(TrainerCallback):  # type: ignore[misc]
    """Tells hooks, and marks checkpoints as whole."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        # After every update, and before its checkpoint.
        if logs and "loss" in logs and self._hooks.logged(state.global_step, logs):
            control.should_training_stop = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        TrainingFolder.completed(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def arguments(policy: Policy, about: Optimization, checkpoints: Path, *, every: int, seed: int) -> dict[str, Any]:
    """The arguments that all trainers have. `every` is after how many updates a checkpoint is made; 0 is never."""
    return {
        "output_dir": str(checkpoints),
        "learning_rate": about.learning_rate,
        "weight_decay": about.weight_decay,
        "warmup_steps": about.warmup,
        "max_grad_norm": about.clip,
        "lr_scheduler_type": "constant_with_warmup" if about.schedule == "constant" else about.schedule,
        "gradient_checkpointing": about.recompute,
        "bf16": policy.about.dtype == "bfloat16",
        "use_cpu": policy.model.device.type == "cpu",
        "save_strategy": "steps" if every else "no",
        "save_steps": every or 500,
        "save_total_limit": _KEPT,
        "logging_steps": 1,
        "disable_tqdm": True,
        "report_to": [],
        "seed": seed,
    }


def train(trainer: Any, hooks: Hooks, session: Session, resume: Path | None) -> bool:
    """Run a trainer to its end, or from a checkpoint on, while it is the model's turn; whether it could begin."""
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_Callback(hooks))
    with nullcontext() if session.turns.is_models else session.turns.of_model():
        if not hooks.begins():
            return False
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return True


def fitting_rows(
    policy: Policy, rows: Sequence[Mapping[str, Any]], *, completion_only_loss: bool = True
) -> list[dict[str, list[int]]]:
    """Tokens and labels of the rows that do not exceed the context: the others would be cut.

    A completion ends with the token that ends a text. Prompts have the label -100, which does not count in the loss,
    unless their tokens are to be learned too.
    """
    kept = []
    for prompt, whole in zip(*_tokens(policy, rows), strict=True):
        if len(whole) <= policy.about.context:
            labels = [-100] * len(prompt) + whole[len(prompt) :] if completion_only_loss else whole
            kept.append({"input_ids": whole, "labels": labels})
    return kept


def _tokens(policy: Policy, rows: Sequence[Mapping[str, Any]]) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of each prompt, and of each prompt with its completion: all at once, as one by one takes minutes."""
    tokenizer = policy.tokenizer
    prompts = [row["prompt"] for row in rows]
    completions = [row["completion"] for row in rows]
    if policy.form is Form.COMPACT:
        # Each by itself, as a completion is written behind the tokens of a prompt.
        asked = tokenizer(prompts)["input_ids"]
        replies = tokenizer(completions, add_special_tokens=False)["input_ids"]
        return asked, [[*ids, *reply, tokenizer.eos_token_id] for ids, reply in zip(asked, replies, strict=True)]
    wholes = [prompt + reply for prompt, reply in zip(prompts, completions, strict=True)]
    asked = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, return_dict=True)["input_ids"]
    return asked, tokenizer.apply_chat_template(wholes, return_dict=True)["input_ids"]


def updates(pairs: int, batch: int, epochs: float) -> int:
    """How many updates so many epochs are: whole batches, the last one of an epoch perhaps smaller."""
    return max(1, math.ceil(epochs * math.ceil(pairs / batch)))


def fit(
    session: Session,
    rows: Sequence[Mapping[str, list[int]]],
    hooks: Hooks,
    *,
    steps: int,
    batch: int,
    micro_batch: int,
    checkpoints: Path,
    resume: Path | None,
) -> bool:
    """Train on `fitting_rows` for so many updates (section 2.2 of the CUDA-L1 paper).

    Returns whether it could begin.
    """
    settings, policy = session.settings, session.policy
    config = SFTConfig(
        **arguments(policy, settings.optimization, checkpoints, every=settings.every.checkpoint, seed=settings.seed),
        max_steps=steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=batch // micro_batch,
        dataset_kwargs={"skip_prepare_dataset": True},  # the rows are tokens already
    )
    trainer = SFTTrainer(
        policy.model, args=config, train_dataset=Dataset.from_list(list(rows)), processing_class=policy.tokenizer
    )
    began = monotonic()
    trained = train(trainer, hooks, session, resume)
    session.seconds.training += monotonic() - began
    return trained
