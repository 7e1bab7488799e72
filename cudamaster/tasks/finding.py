"""Finds a task: by name among the benchmark's, a user's own and those of the suite hgemm, or a card by its path."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import CardError, CudaMasterError, UsageError, nearest, one_line
from cudamaster.core.values import Precision
from cudamaster.tasks import hgemm, reading, task_suites
from cudamaster.tasks.cards import MSKERNELBENCH, TaskCard

# What a folder of tasks has beside tasks/, of which one is enough: a card without any is of the benchmark's files.
_BESIDE = ("reference", "pytorch", *(each.value for each in Precision), task_suites.FILE_NAME)


def names() -> list[str]:
    """Names of MSKernelBench's tasks, in the order of their ids; those whose card cannot be used come last."""
    return task_suites.names_in(resources.bench())


def own_names() -> list[str]:
    """Names of a user's own tasks, suite by suite, each once. Raises as `task_suites.every`."""
    own = (suite for suite in task_suites.every() if suite.folder != resources.bench())
    return list(dict.fromkeys(name for suite in own for name in suite.tasks))


def load(name: str) -> TaskCard:
    """The card of a task, by name, or of a user's own card by path (…/card.yaml).

    By name it is one of MSKernelBench's, one in a folder of one's own (`resources.task_folders`), or one of the suite
    hgemm, whose names say the shape (tasks/hgemm.py). Raises UsageError for an unknown task, CardError for a card that
    cannot be used, and for a name that two folders have.
    """
    if name.endswith(".yaml"):
        return _by_path(Path(name))
    folders = (resources.bench(), *resources.task_folders())
    found = [folder for folder in folders if "/" not in name and _has(folder, name)]
    if not found and hgemm.is_meant(name):
        return _of_hgemm(hgemm.parse_name(name))
    if not found:
        raise _unknown(name, has_own=len(folders) > 1)
    path = found[-1] / "tasks" / f"{name}.yaml"
    if len(found) > 1:
        first = found[0] / "tasks" / f"{name}.yaml"
        whose = f"a task of {MSKERNELBENCH}" if found[0] == resources.bench() else f"another task, {first}"
        fix = "Give the file and its field `name` another name, or name the card by its path."
        raise reading.wrong_at(path, "name", f"it has the name of {whose}", fix)
    card = reading.read(path, path.stat().st_mtime_ns, found[0])
    if card.name != name:
        what = f"it has the name {card.name}, and its file another one"
        raise reading.wrong_at(path, "name", what, "Make them the same.")
    return card


def _has(folder: Path, name: str) -> bool:
    """Whether a folder has a card of that name among its tasks."""
    if not _is_file(folder / "tasks" / f"{name}.yaml"):
        return False
    return folder == resources.bench() or name in task_suites.of_folder(folder)


def _unknown(name: str, *, has_own: bool) -> UsageError:
    known = sorted([*names(), *own_names()])
    products = f" The suite {hgemm.SUITE} has a task for every shape: {hgemm.EXAMPLE}, say."
    more = "" if has_own else f" A folder of your own tasks is named by {resources.TASKS}."
    every = f"Choose one of: {', '.join(known)}.{products}{more}"
    return UsageError(f"Unknown task {name!r}.", nearest(name, [*known, hgemm.SUITE, hgemm.EXAMPLE], every))


def _by_path(path: Path) -> TaskCard:
    """A card by its path: with the baselines and the reference beside it where they are, else with the benchmark's."""
    if not _is_file(path):
        raise UsageError(f"There is no card {path}.", "Give the path of a file, or the name of a task without .yaml.")
    return reading.read(path.absolute(), path.stat().st_mtime_ns, folder_of(path))


def short(task: str, source: str) -> str:
    """What to write for a task whose card is `source` (TaskCard.source): its name if that finds it, else the path."""
    try:
        return task if not source or load(task).source == source else source
    except CudaMasterError:
        return source


def folder_of(path: Path) -> Path:
    """The folder in which the baselines and the reference of a card's file lie. Raises as `resources.task_folder`."""
    folder = path.absolute().parent.parent
    whole = path.absolute().parent.name == "tasks" and any((folder / part).exists() for part in _BESIDE)
    if not whole or folder.resolve() == resources.bench().resolve():
        return resources.bench()
    return resources.task_folder(folder)


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
