"""Writes the files of a new task, once the program's own loader and the source guard take them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cudamaster.build.source_guard import guarded
from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError, unwritable
from cudamaster.core.values import wrapper_name
from cudamaster.core.writing import write_text
from cudamaster.devices.protocol import Device
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature
from cudamaster.making import card_text
from cudamaster.making.baseline import Baseline
from cudamaster.making.card_text import About
from cudamaster.making.understanding import Understood
from cudamaster.tasks import cards, hgemm
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region

_LONGEST_SUMMARY = 600


def name_of(wrapper: str) -> str:
    """The name of a task by that of its wrapper: fused_bias_gelu for fusedBiasGELU."""
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3_\2", wrapper)
    name = re.sub(r"_+", "_", parts).strip("_").lower()
    return name if name[:1].isalpha() else f"task_{name}"


def folder_for(into: Path | None) -> Path:
    """Where tasks are written: the folder given, else that of $CUDAMASTER_TASKS (the first), else `user_tasks`."""
    chosen = into or Path(os.environ.get(resources.TASKS, "").partition(":")[0])
    return resources.user_tasks() if chosen == Path() else chosen.expanduser().absolute()


def next_id(folder: Path) -> int:
    """One more than the largest id of the cards in a folder."""
    ids = [0]
    for path in (folder / "tasks").glob("*.yaml"):
        found = re.search(r"^id: (\d+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        ids += [int(found[1])] if found else []
    return max(ids) + 1


def summary_of(comment: str, wrapper: str) -> str:
    """What a card says of its task where the user has written a comment on the wrapper, or none."""
    text = " ".join(re.sub(r"[^ -~]", " ", comment).split())[:_LONGEST_SUMMARY]
    more = f"The baseline, {wrapper}, defines the result."
    return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {more}" if text else more


@dataclass(frozen=True)
class Written:
    """A task that was written: its card and its files."""

    card: TaskCard
    files: tuple[Path, ...]


def write(
    task: Understood, about: About, baseline: Baseline, folder: Path, device: Device, *, replace_old: bool
) -> Written:
    """Write card, baseline and reference into a folder of tasks.

    Nothing is written unless the card loads and the source guard lets the baseline pass as a candidate: a search starts
    from it. Raises UsageError, CardError or DeviceError.
    """
    if about.name in cards.names() or hgemm.is_meant(about.name):
        raise UsageError(
            f"{about.name} is a task of a suite that comes with CUDAMaster.", "Give --name for another name."
        )
    texts = _texts(task, about, baseline)
    if not replace_old and (there := [folder / name for name in texts if (folder / name).exists()]):
        fix = "Give --force to replace it, or --name for another name."
        raise UsageError(f"{there[0]} is there already.", fix)
    with tempfile.TemporaryDirectory() as staged:
        _write_all(texts, Path(staged))
        card = _checked(Path(staged), about.name)
        _must_pass_guard(card, task, baseline, device)
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
    found[f"{task.precision}/{wrapper_name(about.name, task.precision)}.cu"] = f"{baseline.flat.text}\n"
    if (reference := card_text.reference(task, about)) is not None:
        found[f"reference/{about.name}.{'h' if about.truth == 'c' else 'py'}"] = reference
    return found


def _write_all(texts: Mapping[str, str], folder: Path) -> None:
    # A card's path is that of one in a folder of tasks where such a folder is beside it.
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / name, text)


def _checked(folder: Path, name: str) -> TaskCard:
    """The card as the program's own loader takes it."""
    try:
        return cards.load(str(folder / "tasks" / f"{name}.yaml"))
    except CardError as error:
        reason = error.reason.replace(f"{folder}/", "")
        raise UsageError(reason, "Correct the options, which the card is made of.") from error


def _must_pass_guard(card: TaskCard, task: Understood, baseline: Baseline, device: Device) -> None:
    """Raises UsageError where the source guard would refuse the baseline as a candidate."""
    flags = device.parse_command(device.default_command)
    assert not isinstance(flags, Refusal)
    code = baseline_region(card, task.precision)
    signature = Signature(card.wrapper(task.precision, optimized=True), card.signature(task.precision), card.headers)
    refused = guarded(code, flags, device, signature)
    if isinstance(refused, Refusal):
        where = "" if refused.line is None else f"{baseline.flat.place(refused.line)}: "
        reason = refused.reason.replace(f"{task.wrapper}_optimized", task.wrapper)
        fix = refused.fix.replace(f"{task.wrapper}_optimized", task.wrapper)
        more = "A search starts from this text, and no candidate may have that."
        raise UsageError(f"{where}{reason}.", f"{fix} {more}")


def _of_another_kind(folder: Path, name: str, texts: Mapping[str, str]) -> list[Path]:
    """References of a task that was replaced, which the new one does not have."""
    names = [f"reference/{name}.h", f"reference/{name}.py"]
    return [folder / each for each in names if each not in texts and (folder / each).is_file()]
