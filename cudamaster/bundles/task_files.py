"""The files of a task, by their places in a folder of tasks: the card, the baseline, the reference and its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cudamaster.bundles.archive import hash_of, is_name
from cudamaster.core import resources
from cudamaster.core.errors import CudaMasterError, UsageError, unwritable
from cudamaster.core.values import Precision
from cudamaster.tasks import finding, own_files
from cudamaster.tasks.cards import TaskCard

_TASK = re.compile(r"[a-z][a-z0-9_]*")


def of(card: TaskCard, precision: Precision) -> Mapping[str, str]:
    """The texts of a task's files in one precision, by their paths below its folder.

    A reference in C++ brings the headers that it includes by quotes and that lie in the task's folder; one in Python is
    one file. Raises CardError for a file that cannot be read, UsageError for one with a name that no bundle can hold.
    """
    card_path = str(card.path)
    found = {card_path: own_files.text(card, card_path, card_file(card)), **own_files.of(card, precision)}
    if unnamed := next((name for name in found if not is_name(name)), None):
        raise UsageError(
            f"The file {unnamed!r} of {card.name} has a name that a bundle cannot hold.",
            "Rename it: letters, digits, _ . + - and no hidden folder.",
        )
    return dict(sorted(found.items()))


def reference_hash(card: TaskCard) -> str:
    """SHA-256 of a task's reference, as the record of a build has it; empty where the baseline is the truth."""
    return "" if card.truth == "baseline" else hash_of(card.reference().encode())


def card_file(card: TaskCard) -> Path:
    """Where the text of a card lies."""
    own = card.family is None and card.source != card.name
    return Path(card.source) if own else card.folder / card.path


def known(task: str, precision: Precision, files: Mapping[str, str]) -> TaskCard | None:
    """The task of that name that is here, if its files are these, byte for byte; None for any other.

    It is then no stranger's: its card, baseline and reference are on this machine already.
    """
    if not _TASK.fullmatch(task):
        return None
    with suppress(CudaMasterError):
        card = finding.load(task)
        if precision in card.precisions and of(card, precision) == files:
            return card
    return None


def differing(task: str, precision: Precision, files: Mapping[str, str]) -> str:
    """How files differ from those of the task of that name that is here, as a clause."""
    if _TASK.fullmatch(task):
        with suppress(CudaMasterError):
            card = finding.load(task)
            here = of(card, precision) if precision in card.precisions else {}
            other = sorted(name for name in {*here, *files} if here.get(name) != files.get(name))
            return f"{', '.join(other)} {'is' if len(other) == 1 else 'are'} not as here" if other else "it is as here"
    return "no task of this name is here"


def placed(task: str, files: Mapping[str, str], folder: Path) -> TaskCard:
    """The task of these files, which are written into an empty folder.

    Loading it reads the card only; its reference and baseline are code, which runs as the user once a kernel is
    evaluated. Raises CardError for a card that cannot be used, UsageError for one that is no card of its own.
    """
    card_path = f"tasks/{task}.yaml"
    if not _TASK.fullmatch(task) or card_path not in files:
        raise UsageError(
            f"The task {task!r} of this bundle has no card of its own, and is not as this program has it.",
            "Reproduce it with the version that made it: `cudamaster reproduce BUNDLE --show` names that.",
        )
    try:
        for name, text in files.items():
            path = folder / name
            assert is_name(name)  # as every part's of a bundle that was opened
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        (folder / "reference").mkdir(exist_ok=True)  # so that nothing is taken from the benchmark's files
    except OSError as error:
        raise unwritable(f"The task of the bundle, in {folder},", error, "Set TMPDIR to another folder.") from error
    if folder.resolve().is_relative_to(resources.root().resolve()):
        raise UsageError(f"{folder} is a folder of this program.", "Set TMPDIR to another folder.")
    return finding.load(str(folder / card_path))
