"""Writes the files of a new task, once the program's own loader takes its card."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core.errors import CardError, UsageError, unwritable
from cudamaster.core.values import wrapper_name
from cudamaster.core.writing import write_text
from cudamaster.making import card_text
from cudamaster.making.baseline import Baseline
from cudamaster.making.card_text import About
from cudamaster.making.understanding import Understood
from cudamaster.tasks import cards, folders
from cudamaster.tasks.cards import TaskCard

_LONGEST_SUMMARY = 600


def name_of(wrapper: str) -> str:
    """The name of a task by that of its wrapper: fused_bias_gelu for fusedBiasGELU."""
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3_\2", wrapper)
    name = re.sub(r"_+", "_", parts).strip("_").lower()
    return name if name[:1].isalpha() else f"task_{name}"


def summary_of(comment: str, wrapper: str) -> str:
    """What a card says of its task where the user has written a comment on the wrapper, or none."""
    text = plain(comment)[:_LONGEST_SUMMARY]
    more = f"The baseline, {wrapper}, defines the result."
    return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {more}" if text else more


def plain(text: str) -> str:
    """A text as one line of ASCII."""
    return " ".join(re.sub(r"[^ -~]", " ", text).split())


@dataclass(frozen=True)
class Written:
    """A task that was written: its card and its files."""

    card: TaskCard
    files: tuple[Path, ...]


def write(task: Understood, about: About, baseline: Baseline, folder: Path, *, replace: bool) -> Written:
    """Write card, baseline and reference into a folder of tasks.

    Nothing is written unless the program's own loader takes the card. Raises UsageError or DeviceError.
    """
    texts = _texts(task, about, baseline)
    folders.must_be_new(folder, about.name, *texts, replace=replace)
    with tempfile.TemporaryDirectory() as staged:
        _write_all(texts, Path(staged))
        _must_load(Path(staged), about.name)
    try:
        _write_all(texts, folder)
    except OSError as error:
        raise unwritable(folder, error, "Name another folder with --into.") from error
    for old in _of_another_kind(folder, about.name, texts):
        old.unlink()
    files = tuple(folder / name for name in texts)
    return Written(cards.load(str(files[0])), files)


def _texts(task: Understood, about: About, baseline: Baseline) -> Mapping[str, str]:
    """Texts by their paths in the folder; the card comes first."""
    found = {f"tasks/{about.name}.yaml": card_text.card(task, about)}
    found[f"{task.precision}/{wrapper_name(about.name, task.precision)}.cu"] = (
        f"// {task.wrapper} ({task.precision}) as the task {about.name} times it: made of {about.file}.\n"
        f"{baseline.flat.text}\n"
    )
    if (reference := card_text.reference(task, about)) is not None:
        found[f"reference/{about.name}.{'h' if about.truth == 'c' else 'py'}"] = reference
    return found


def _write_all(texts: Mapping[str, str], folder: Path) -> None:
    # A card's path is that of one in a folder of tasks where such a folder is beside it.
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / name, text)


def _must_load(folder: Path, name: str) -> None:
    """Raises UsageError unless the program's own loader takes the card."""
    try:
        cards.load(str(folder / "tasks" / f"{name}.yaml"))
    except CardError as error:
        reason = error.reason.replace(f"{folder}/", "")
        raise UsageError(reason, "Correct the options, which the card is made of.") from error


def _of_another_kind(folder: Path, name: str, texts: Mapping[str, str]) -> list[Path]:
    """References of a task that was replaced, which the new one does not have."""
    names = [f"reference/{name}.h", f"reference/{name}.py"]
    return [folder / each for each in names if each not in texts and (folder / each).is_file()]
