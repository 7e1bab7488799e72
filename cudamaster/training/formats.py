"""The files of an export: JSON lines that Hugging Face `datasets` reads, and a dataset card that says what they are.

    README.md            the dataset card, whose header names the sets and their splits
    sft.jsonl            prompt, completion, provenance
    preference.jsonl     prompt, chosen, rejected, provenance
    contrastive.jsonl    prompt, exemplars, provenance
    trajectories.jsonl   messages, attempts, provenance
    kernels.jsonl        every judged kernel whole, right or refused, with raw times (kernels.JudgedKernel)
    held-out/            the same five files of the held-out tasks
    hardware.json        the devices by the names of their GPUs
    judged.jsonl, lock   verdicts on the playbook's kernels as they came, and the lock of the process at work

What is beside held-out/ is to train on, whether one knows of held-out tasks or not. kernels.jsonl is no set of the
card: its records are nested and differ in their fields; `collecting.read_kernels` reads it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cudamaster.core.errors import UsageError, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.records import to_json
from cudamaster.core.values import Hardware
from cudamaster.core.writing import whole, write_text
from cudamaster.training.collecting import HARDWARE, HELD_OUT, KERNELS
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.sets import NAMES, Row

CARD = "README.md"
_MADE_BY = "<!-- made by cudamaster export -->"
_WHAT = {
    "sft": "pairs for supervised fine-tuning: improve the baseline, and a kernel that does",
    "preference": "pairs of kernels: right over wrong, and faster over slower where that is sure",
    "contrastive": "prompts that show kernels with their scores, for reinforcement learning; without a reply",
    "trajectories": "whole searches as conversations, with what the judge said after each attempt",
}
_ANOTHER = "Name another folder with --out."


def must_be_ours(folder: Path) -> None:
    """Raise UsageError where an export would mix with somebody's files: only an empty folder or an export is taken."""
    try:
        if not folder.exists():
            return
        if not folder.is_dir():
            raise UsageError(f"{folder} is a file.", _ANOTHER)
        there = [each.name for each in folder.iterdir()]
        card = folder / CARD
        ours = _MADE_BY in card.read_text(encoding="utf-8", errors="replace") if card.is_file() else False
    except OSError as error:
        raise unwritable(folder, error, _ANOTHER) from error
    # An export that has not come to its end has no card yet.
    begun = {"judged.jsonl", "lock", HELD_OUT, HARDWARE, KERNELS, *(f"{name}.jsonl" for name in NAMES)}
    if not ours and (strange := sorted(name for name in there if name not in begun and not name.startswith("."))):
        raise UsageError(f"{folder} holds {strange[0]}, and is no export.", _ANOTHER)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside the block no other export writes here. The card goes first: without one, an export is not whole.

    Raises RunFolderError where another one is at work, UsageError and DeviceError where nothing can be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = locked(folder)
    except OSError as error:
        raise unwritable(folder, error, _ANOTHER) from error
    try:
        for leftover in (folder / CARD, *folder.glob(".*.part*"), *folder.glob(f"{HELD_OUT}/.*.part*")):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def write(folder: Path, sets: Mapping[str, Sequence[Row]], kernels: Sequence[JudgedKernel]) -> None:
    """Write the files of one side: the sets by their names, and the kernels. Raises UsageError or DeviceError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            _lines(folder / f"{name}.jsonl", sets[name])
        _lines(folder / KERNELS, (kernel.to_json() for kernel in kernels))
    except OSError as error:
        raise unwritable(folder, error, _ANOTHER) from error


def write_rest(folder: Path, devices: Mapping[str, Hardware], card: str, *, has_held_out: bool) -> None:
    """Write what is of the whole export, its card last. Without held-out tasks, those of an earlier export go."""
    try:
        if not has_held_out and (folder / HELD_OUT).is_dir():
            shutil.rmtree(folder / HELD_OUT)
        write_text(folder / HARDWARE, json.dumps(to_json(devices), indent=1) + "\n")
        write_text(folder / CARD, card)
    except OSError as error:
        raise unwritable(folder, error, _ANOTHER) from error


def _lines(path: Path, rows: Iterable[Any]) -> None:
    with whole(path) as staged, staged.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def card_text(
    train: Mapping[str, Sequence[Row]],
    held_out: Mapping[str, Sequence[Row]],
    kernels: Sequence[JudgedKernel],
    held_out_tasks: Sequence[str],
    form: str,
    left_out: Mapping[str, int],
    notes: Sequence[str],
) -> str:
    """The dataset card: a header for `datasets`, then counts, where kernels are from, and what one may do with them."""
    header = {
        "license": "other",
        "task_categories": ["text-generation"],
        "tags": ["cuda", "code"],
        "configs": [
            {"config_name": name, "data_files": files} for name in NAMES if (files := _files(name, train, held_out))
        ],
    }
    counts = ["| set | rows | held out | what |", "|---|--:|--:|---|"]
    counts += [f"| {name} | {len(train[name])} | {len(held_out.get(name, ()))} | {_WHAT[name]} |" for name in NAMES]
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n{_MADE_BY}\n\n# Judged CUDA kernels",
        "Kernels that were built, checked against a double-precision reference and timed by CUDAMaster. `score` is the "
        "speedup over the task's baseline, `low` and `high` its interval; a refused kernel has 0, and only such a one "
        f"is ever a rejected example for being wrong. Prompts have the form `{form}`.",
        "\n".join(counts),
        _table("GPU", Counter(kernel.gpu for kernel in kernels)),
        "GPUs are never mixed in one comparison. `(modelled)` means that no GPU measured the time.",
        _table("task", Counter(kernel.candidate.task for kernel in kernels)),
        f"Held-out tasks: {', '.join(held_out_tasks) or 'none'}.",
        _table("source", Counter(kernel.provenance.source for kernel in kernels)),
        _table("author", Counter(_author(kernel) for kernel in kernels)),
        "**Licence.** Baselines and the playbook's kernels are CUDAMaster's, under the MIT license. Kernels and "
        "replies of a language model are subject to the terms of its provider, who may not allow every use in "
        "training; tasks of your own have your licence. Each row names the author in its provenance.",
        _table("in no set, because", left_out) if left_out else "",
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _files(
    name: str, train: Mapping[str, Sequence[Row]], held_out: Mapping[str, Sequence[Row]]
) -> list[dict[str, str]]:
    """The files of a set, by splits; without rows there is nothing that `datasets` could take the columns from."""
    there = [("train", f"{name}.jsonl", train[name]), ("held_out", f"{HELD_OUT}/{name}.jsonl", held_out.get(name, ()))]
    return [{"split": split, "path": path} for split, path, rows in there if rows]


def _author(kernel: JudgedKernel) -> str:
    return "the baseline" if kernel.provenance.is_baseline else kernel.provenance.author or "unknown"


def _table(what: str, counts: Mapping[str, int]) -> str:
    rows = [
        f"| {name.replace('|', '/')} | {count} |"
        for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]
    return "\n".join([f"| {what} | kernels |", "|---|--:|", *rows])
