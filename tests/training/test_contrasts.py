"""Pairs with exemplars in their prompts: none shows the answer, or what is better than it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from judged_kernels import baseline, kernel, other_code, refused
from training.tiny_task import write_kernels

from cudamaster.core.errors import UsageError
from cudamaster.training import contrasts
from cudamaster.training.choosing import Standing
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.prompts import Form
from cudamaster.training.sets import Wanted, make
from cudamaster.training.settings import Exemplars

RIGHT = [kernel(number) for number in range(3)]  # each faster than the one before
WRONG = refused(other_code(kernel(0), "int wrong;\n"))
# Right on this GPU, and refused on another one.
RACY = other_code(kernel(0), "int racy;\n")
ELSEWHERE = refused(replace(RACY, provenance=replace(RACY.provenance, gpu="NVIDIA A100")))
EVERY = (baseline(), *RIGHT, WRONG, RACY, ELSEWHERE)


def added(folder: Path, *kernels: JudgedKernel) -> list[contrasts.Pair]:
    write_kernels(folder, *kernels)
    rows = make(EVERY, [], {}, Wanted(Form.COMPACT), Standing(EVERY, modelled=False)).sft
    return contrasts.added(folder, rows, Form.COMPACT, Exemplars.model_validate({"method": "random"}), 40, 1)


def test_a_prompt_shows_slower_kernels_and_never_its_answer(tmp_path: Path) -> None:
    found = added(tmp_path, *EVERY)
    assert len(found) == 3 * 40
    for number, own in enumerate(RIGHT):
        its = [row for row in found if row["provenance"]["kernel"] == own.candidate.id]
        assert all(own.candidate.code.strip() in row["completion"] for row in its)
        for other, one in enumerate(RIGHT):
            shown = sum(one.candidate.code.strip() in row["prompt"] for row in its)
            assert (shown > 0) == (other < number), (number, other)
        assert all(text not in row["prompt"] for row in its for text in ("int wrong", "int racy"))
        # Two of one, of two and of three: each copy has a draw of its own.
        assert len({row["prompt"] for row in its}) == (1, 1, 3)[number]
        assert all(row["prompt"].count(baseline().candidate.code.strip()) <= 1 for row in its)


def test_a_pair_without_its_kernel_or_its_baseline_is_said(tmp_path: Path) -> None:
    for left in (EVERY[1:], EVERY[:1]):
        with pytest.raises(UsageError, match="is not among the kernels"):
            added(tmp_path, *left)
