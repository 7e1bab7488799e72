"""The folder of a corpus, written by one process at a time.

corpus.jsonl     a row a line, see rows.py
README.md        the card of the data set, for people and for Hugging Face
NOTICE           the licence texts, each once
left_out.jsonl   what is not in it, with reasons
corpus.json      the same in numbers
replies.jsonl    every reply of the model, see replies.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cudamaster.core.errors import UsageError, unwritable
from cudamaster.core.folderlock import locked
from cudamaster.core.writing import whole, write_text
from cudamaster.training.corpus.rows import FEATURES
from cudamaster.training.corpus.sources import LeftOut

ROWS, REPLIES, NUMBERS = "corpus.jsonl", "replies.jsonl", "corpus.json"
LEFT_OUT, NOTICE, CARD = "left_out.jsonl", "NOTICE", "README.md"
_HUB = {"MIT": "mit", "BSD-2-Clause": "bsd-2-clause", "BSD-3-Clause": "bsd-3-clause", "Apache-2.0": "apache-2.0",
        "ISC": "isc", "Unlicense": "unlicense", "CC0-1.0": "cc0-1.0"}  # fmt: skip


@contextmanager
def opened(out: Path) -> Iterator[None]:
    """Holds the folder, made if it is missing. Raises UsageError for one with other things in it, RunFolderError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = {each.name for each in out.iterdir()}
    except OSError as error:
        raise unwritable(out, error, "Name another folder with --out.") from error
    # Other folders of ours have a lock too; one with a lock alone was killed before it had more.
    begun = all(name == "lock" or name.startswith(".") for name in there)
    if not begun and not there & {ROWS, REPLIES, NUMBERS}:
        raise UsageError(f"{out} is not empty, and holds no corpus.", "Name a new folder with --out.")
    try:
        lock = locked(out)
    except OSError as error:
        raise unwritable(out, error, "Name another folder with --out.") from error
    try:
        yield
    finally:
        os.close(lock)


def write_rows(out: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows; the file is complete or as it was."""
    _write_lines(out / ROWS, rows)


def write_about(out: Path, left: Sequence[LeftOut], notice: str, numbers: Mapping[str, Any]) -> None:
    """Write what is said about the rows."""
    _write_lines(out / LEFT_OUT, (_shown(each) for each in left))
    write_text(out / NOTICE, notice)
    write_text(out / CARD, card(numbers))
    write_text(out / NUMBERS, json.dumps(numbers, indent=1) + "\n")


def card(numbers: Mapping[str, Any]) -> str:
    """The data set's card: its head is read by Hugging Face."""
    licences = numbers["by_licence"]
    names = [_HUB.get(name, "other") for name in licences] or ["other"]
    lines = ["---", "license:", *(f"- {name}" for name in dict.fromkeys(names))]
    lines += ["task_categories:", "- text-generation", "language:", "- en", "tags:", "- cuda", "- code"]
    lines += ["configs:", "- config_name: default", f"  data_files: {ROWS}", FEATURES.rstrip(), "---"]
    lines += ["", "# CUDA code with instructions and context", ""]
    lines += [
        f"{numbers['rows']:,} pieces of CUDA code out of {numbers['files']:,} files, made by `cudamaster train corpus` "
        f"{numbers['version']}. A row has the `instruction` that its `code` answers, the `context` that was found for "
        "it, its `licence` and `provenance` (file, lines, SHA-256, copyright lines, where the licence text is), and "
        "`text`, the three joined for continued pretraining.",
        "",
        f"- Instructions: {_who(numbers)}",
        f"- Benchmark: near copies of kernels of MSKernelBench and its playbook are {_tested(numbers)}.",
        *(
            [f"- Documentation in contexts is under: {_counted(numbers['documentation_by_licence'])}."]
            if numbers["documentation_by_licence"]
            else []
        ),
        "- Secrets and e-mail addresses in the code were masked. NOTICE has the licence texts.",
        "",
        "| licence | rows |",
        "|---|--:|",
        *(f"| {name} | {count:,} |" for name, count in licences.items()),
        "",
        "| left out, and why | number |",
        "|---|--:|",
        *(f"| {why} | {count:,} |" for why, count in numbers["left_out"].items()),
        "",
    ]
    return "\n".join(lines)


def _who(numbers: Mapping[str, Any]) -> str:
    if not numbers["model"]:
        return "none; no model was asked, and `instruction` is empty."
    return f"written by {numbers['model']}, which also said which pieces are worth learning from."


def _counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,} passages)" for name, count in numbers.items())


def _tested(numbers: Mapping[str, Any]) -> str:
    return "left out" if numbers["tasks_held_out"] else "not left out, so do not test a model on it that saw these rows"


def _shown(left: LeftOut) -> dict[str, Any]:
    lines = None if left.first is None else [left.first, left.last]
    return {"path": left.path, "lines": lines, "why": left.why, "note": left.note}


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with whole(path) as staged, staged.open("w", encoding="utf-8") as file:
        for each in rows:
            file.write(json.dumps(each) + "\n")
