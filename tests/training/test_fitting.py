"""What a trainer is given: the settings as its arguments, rows that fit the context, and time that is left."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for _library in ("torch", "transformers", "trl", "datasets"):
    pytest.importorskip(_library)


from cudamaster.core.errors import BudgetSpent  # noqa: E402
from cudamaster.training import state  # noqa: E402
from cudamaster.training.fitting import arguments, fitting_rows, updates  # noqa: E402
from cudamaster.training.prompts import Form  # noqa: E402
from cudamaster.training.session import Observer, Session  # noqa: E402
from cudamaster.training.settings import Optimization, Sft  # noqa: E402
from cudamaster.training.turns import Turns  # noqa: E402


class Letters:
    """A tokenizer with a token for each letter, and one that begins a text."""

    eos_token_id = 0

    def __call__(self, texts: list[str], *, add_special_tokens: bool = True) -> dict[str, list[list[int]]]:
        """As a tokenizer of transformers is called."""
        begin = [1] if add_special_tokens else []
        return {"input_ids": [[*begin, *text.encode()] for text in texts]}


def policy(**about: object) -> Any:
    known = {"context": 7, "dtype": "float32", **about}
    device = SimpleNamespace(type="cpu")
    model = SimpleNamespace(device=device)
    return SimpleNamespace(tokenizer=Letters(), form=Form.COMPACT, about=SimpleNamespace(**known), model=model)


def test_every_setting_reaches_the_trainer(tmp_path: Path) -> None:
    about = Optimization(learning_rate=3e-4, weight_decay=0.1, warmup=7, clip=0.5, schedule="cosine", recompute=True)
    config = pytest.importorskip("trl").SFTConfig(**arguments(policy(), about, tmp_path, every=3, seed=11))
    assert (config.learning_rate, config.weight_decay, config.max_grad_norm) == (3e-4, 0.1, 0.5)
    assert (config.warmup_steps, config.lr_scheduler_type, config.gradient_checkpointing) == (7, "cosine", True)
    assert (config.save_strategy, config.save_steps, config.seed, config.bf16) == ("steps", 3, 11, False)
    constant = arguments(policy(), Optimization(schedule="constant"), tmp_path, every=0, seed=0)
    assert (constant["lr_scheduler_type"], constant["save_strategy"]) == ("constant_with_warmup", "no")
    assert arguments(policy(dtype="bfloat16"), about, tmp_path, every=0, seed=0)["bf16"]


def test_rows_that_exceed_the_context_are_left_out_and_prompts_do_not_count() -> None:
    rows = [{"prompt": "ab", "completion": "cde"}, {"prompt": "ab", "completion": "cdef"}]
    (row,) = fitting_rows(policy(), rows)  # the begin, five letters and the end
    assert row == {"input_ids": [1, *b"abcde", 0], "labels": [-100, -100, -100, *b"cde", 0]}
    (row,) = fitting_rows(policy(), rows, completion_only_loss=False)
    assert row == {"input_ids": [1, *b"abcde", 0], "labels": [1, *b"abcde", 0]}


def test_the_last_batch_of_an_epoch_may_be_smaller() -> None:
    assert [updates(*each) for each in ((8, 4, 1), (9, 4, 1), (9, 4, 2.5), (1, 4, 0.1))] == [2, 3, 8, 1]


def test_a_step_does_not_begin_when_the_minutes_are_over(tmp_path: Path) -> None:
    about = {"model": {"new": "llama"}, "data": "set"}
    for minutes, is_over in ((60, False), (1e-9, True)):
        settings = Sft.model_validate({**about, "budget": {"minutes": minutes}})
        with state.opened(tmp_path, settings, (), {}) as folder:
            session = Session(settings, folder, policy(), Turns([], lambda: None), Observer())
            with pytest.raises(BudgetSpent, match="minutes are spent") if is_over else nullcontext():
                session.must_afford(1)
