"""Suites: named sets of tasks. Results of two suites never share a table.

MSKernelBench is one, and so are hgemm and hgemm_open. Every folder of a user's own tasks is one, named by suite.yaml in
it:

    name: solver
    title: Kernels of our solver      # optional: in one line
    tasks: [norm_*, scan]             # optional: which of tasks/*.yaml; all of them without it

Without that file the folder's name is the suite's.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from cudamaster.core import resources
from cudamaster.core.errors import CardError, CudaMasterError, UsageError, nearest
from cudamaster.tasks import hgemm, reading
from cudamaster.tasks.cards import MSKERNELBENCH

FILE_NAME = "suite.yaml"
_FORM = "It has a name, and may have a title and tasks, a list of globs (docs/suites.md)."
_USERS = "mine"  # the user's data folder, which has no name of its own
_SHIPPED = (MSKERNELBENCH, hgemm.SUITE, f"{hgemm.SUITE}_open")


class _File(BaseModel):
    """suite.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=60)]
    title: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=200)] = ""
    tasks: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class TaskSuite:
    """A suite: its name, a title in one line, its folder, and how the names of its tasks are found."""

    name: str
    title: str
    folder: Path
    find: Callable[[], tuple[str, ...]]
    globs: tuple[str, ...] = ("*",)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of its tasks, in the order of their ids; those whose card cannot be used come last."""
        return self.find()

    def __contains__(self, task: str) -> bool:
        """Whether a card of this name in its folder is one of its tasks."""
        return any(fnmatch.fnmatch(task, glob) for glob in self.globs)

    @property
    def sources(self) -> tuple[str, ...]:
        """What `finding.load` takes for each of the tasks: its name, or the path of its card."""
        own = self.name not in _SHIPPED
        return tuple(str(self.folder / "tasks" / f"{name}.yaml") if own else name for name in self.tasks)


def every() -> tuple[TaskSuite, ...]:
    """All suites that have a name here: the shipped ones, then those of a user's own folders.

    Raises CardError for a suite.yaml that cannot be used and for two folders with one name, and as
    `resources.task_folders`.
    """
    own = [of_folder(folder) for folder in resources.task_folders()]
    for k, suite in enumerate(own):
        if (twin := next((each for each in own[:k] if each.name == suite.name), None)) is not None:
            what = f"Two folders have a suite {suite.name}: {twin.folder} and {suite.folder}."
            raise CardError(what, f"Give one of them another name in its {FILE_NAME}.")
    return (*_shipped(), *own)


def named(suite: str) -> TaskSuite:
    """The suite of that name, or in that folder. Raises UsageError for an unknown one, and as `every` and `of_folder`.

    A folder is a path with a slash, or one that is there if no suite has the name.
    """
    if "/" not in suite:
        known = {each.name: each for each in every()}
        if suite in known:
            return known[suite]
        if not Path(suite).is_dir():
            all_names = f"There are {', '.join(known)}; a folder of tasks can be named too, by its path."
            raise UsageError(f"Unknown suite {suite!r}.", nearest(suite, known, all_names))
    folder = resources.task_folder(suite)
    return _shipped()[0] if folder.resolve() == resources.bench().resolve() else of_folder(folder)


def other_with(suite: str, folder: Path) -> str | None:
    """What else than `folder` has the name of a suite, in words; None where the name is free.

    These are the shipped suites, the user's data folder, and the user's own folders, as far as they can be used.
    """
    name, own = suite.lower(), resources.user_tasks()
    if name in (each.lower() for each in _SHIPPED):
        return "a suite that comes with CUDAMaster"
    if name == _USERS and folder.resolve() != own.resolve():
        return f"your own tasks, in {own}"
    for each in resources.task_folders():
        with suppress(CardError):  # it has no name, which is said where it is used
            if each.resolve() != folder.resolve() and of_folder(each).name.lower() == name:
                return f"the suite in {each}"
    return None


def of_folder(folder: Path) -> TaskSuite:
    """The suite that a folder of a user's own tasks is. Raises CardError for a suite.yaml that cannot be used."""
    path = folder / FILE_NAME
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        name = _USERS if folder == resources.user_tasks() else folder.resolve().name
        said = _File.model_construct(name=name)
        fix = f"Give it another one: write `name: NAME` into {path}."
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}.", "Give access to it.") from error
    else:
        said, fix = _read(path, changed), "Give it another one."
    if said.name.lower() in (name.lower() for name in _SHIPPED):
        raise CardError(f"{folder} has the name of the suite {said.name}, which is another one.", fix)
    return TaskSuite(said.name, said.title, folder, lambda: tuple(names_in(folder, said.tasks)), said.tasks)


_ID = re.compile(r"^id: ([0-9]{1,9})$", re.MULTILINE)


def names_in(folder: Path, globs: tuple[str, ...] = ("*",)) -> list[str]:
    """Names of the cards in a folder of tasks that any of the globs matches, in the order of their ids."""
    paths = [
        path for path in (folder / "tasks").glob("*.yaml") if any(fnmatch.fnmatch(path.stem, one) for one in globs)
    ]
    return [path.stem for path in sorted(paths, key=lambda path: (_id(path, folder), path.stem))]


def _id(path: Path, folder: Path) -> float:
    """The id of a card, which is not checked for that: to check all of them takes most of a second."""
    try:
        if len(ids := _ID.findall(reading.text_of(path))) == 1:
            return int(ids[0])
        return reading.read(path, path.stat().st_mtime_ns, folder).id
    except (CudaMasterError, OSError):  # loading it raises the error
        return math.inf


@lru_cache(maxsize=128)
def _read(path: Path, _changed: int) -> _File:
    return reading.described(_File, reading.text_of(path), path, _FORM)


def _shipped() -> tuple[TaskSuite, ...]:
    bench, grid = resources.bench(), hgemm.grid_names
    half = len(grid()) // 2
    return (
        TaskSuite(_SHIPPED[0], "The benchmark", bench, lambda: tuple(names_in(bench))),
        TaskSuite(_SHIPPED[1], "Products of fp16 matrices", bench, lambda: grid()[:half]),
        TaskSuite(_SHIPPED[2], "The same, with CUTLASS's headers open", bench, lambda: grid()[half:]),
    )
