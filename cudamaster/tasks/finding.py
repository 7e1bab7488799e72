"""Finds a task: by name among the benchmark's, a user's own and those of the suite hgemm, or a card by its path."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError, nearest, one_line
from cudamaster.tasks import hgemm, reading
from cudamaster.tasks.cards import MSKERNELBENCH, TaskCard


def names() -> list[str]:
    """Names of MSKernelBench's tasks, in the order of their ids; those whose card cannot be used come last."""
    return _names_in(resources.bench())


def own_names() -> list[str]:
    """Names of a user's own tasks in the same order, none where there are none. Raises as `resources.own_tasks`."""
    folder = resources.own_tasks()
    return [] if folder is None else _names_in(folder)


def _names_in(folder: Path) -> list[str]:
    stems = [path.stem for path in (folder / "tasks").glob("*.yaml")]
    return sorted(stems, key=lambda name: (_id(name), name))


def _id(name: str) -> float:
    try:
        return load(name).id
    except CardError:  # loading it raises the error
        return math.inf


def load(name: str) -> TaskCard:
    """The card of a task, by name, or of a user's own card by path (…/card.yaml).

    By name it is one of MSKernelBench's, one in $CUDAMASTER_TASKS, or one of the suite hgemm, whose names say the shape
    (tasks/hgemm.py). Raises UsageError for an unknown task, CardError for a card that cannot be used.
    """
    if name.endswith(".yaml"):
        return _by_path(Path(name))
    folders = [resources.bench()] + ([own] if (own := resources.own_tasks()) is not None else [])
    found = [folder for folder in folders if _is_file(folder / "tasks" / f"{name}.yaml") and "/" not in name]
    if not found and hgemm.is_meant(name):
        return _of_hgemm(hgemm.parse_name(name))
    if not found:
        known = sorted([*names(), *own_names()])
        products = f" The suite {hgemm.SUITE} has a task for every shape: {hgemm.EXAMPLE}, say."
        more = "" if own is not None else f" A folder of your own tasks is named by {resources.TASKS}."
        every = f"Choose one of: {', '.join(known)}.{products}{more}"
        raise UsageError(f"Unknown task {name!r}.", nearest(name, [*known, hgemm.SUITE, hgemm.EXAMPLE], every))
    path = found[-1] / "tasks" / f"{name}.yaml"
    fix = f"Give the file and the field `name` of {path} another name."
    if len(found) > 1:
        raise CardError(f"{path} has the name of a task of {MSKERNELBENCH}.", fix)
    card = reading.read(path, path.stat().st_mtime_ns, found[0])
    if card.name != name:
        raise CardError(f"The card {path} has the name {card.name}, and its file another one.", "Make them the same.")
    return card


def _by_path(path: Path) -> TaskCard:
    """A card by its path: with the baselines and the reference beside it where they are, else with the benchmark's."""
    if not _is_file(path):
        raise UsageError(f"There is no card {path}.", "Give the path of a file, or the name of a task without .yaml.")
    folder = path.absolute().parent.parent
    whole = path.absolute().parent.name == "tasks" and (folder / "reference").is_dir()
    return reading.read(path, path.stat().st_mtime_ns, resources.task_folder(folder) if whole else resources.bench())


@lru_cache(maxsize=4096)
def _of_hgemm(task: hgemm.Task) -> TaskCard:
    try:
        text = hgemm.card_text(task)
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(
            f"The description of {task.name} cannot be read: {one_line(error)}.", "Restore it from version control."
        ) from error
    return reading.checked(text, resources.bench() / hgemm.CARD_FILE, resources.bench())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for a file
        return False
