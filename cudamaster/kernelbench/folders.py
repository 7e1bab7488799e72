"""The folder of tasks that problems are written to: a suite."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cudamaster.core import resources
from cudamaster.core.errors import UsageError, unwritable
from cudamaster.tasks import cards, task_suites

_SUITE = "suite.yaml"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def opened(folder: Path | None, suite: str | None) -> Path:
    """The folder, made if needed, with its suite.yaml.

    Without a folder it is that of a user's own tasks, or for a suite one of the suite's name in it. Raises UsageError
    for a folder that cannot be written, for one that is another suite, and for the name of a suite that is elsewhere.
    """
    users = resources.user_tasks()
    folder = (folder or users / _plain(suite or "")).absolute()
    named = folder / _SUITE
    if folder == users / "tasks":  # which has the cards of the user's own
        raise UsageError("A suite among your own tasks cannot be called tasks.", "Give another name.")
    try:
        is_suite = named.exists()
        if is_suite and suite is not None and (found := task_suites.of_folder(folder).name) != _plain(suite):
            raise UsageError(f"{folder} is the suite {found} already.", f"Leave out --suite, or change {named}.")
        is_named = is_suite or (suite is None and folder == users)  # the user's own needs no suite.yaml
        name = None if is_named else _free(suite, folder)
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        if name is not None:
            title = "Problems in KernelBench's form, against eager PyTorch"
            named.write_text(yaml.safe_dump({"name": name, "title": title}, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error, "Give another folder with --into.") from error
    return folder


def _free(suite: str | None, folder: Path) -> str:
    """The name of a new suite in a folder, by default the folder's. Raises UsageError if another has it."""
    name = _plain(suite or folder.name)
    if (other := task_suites.other_with(name, folder)) is not None:
        fix = "Give it another one with --suite." if suite is None else "Give another name."
        raise UsageError(f"The suite in {folder} cannot have the name {name}, which is that of {other}.", fix)
    return name


def _plain(text: str) -> str:
    """A text as a suite's name can be; empty for an empty one."""
    name = _NO_NAME.sub("_", text)
    return name if not name or name[0].isalpha() else f"kb_{name}"


def taken(folder: Path) -> set[str]:
    """Names that no task of the folder may have: those of the benchmark's tasks."""
    return set(cards.names())


def require_new(folder: Path, name: str, *, replace: bool) -> None:
    """Raises UsageError for a name that is none, or that the folder has already."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in taken(folder):
        raise UsageError(
            f"A task cannot have the name {name!r}.",
            "Take lower-case letters, digits and underscores, and none of the benchmark's names.",
        )
    if (folder / "tasks" / f"{name}.yaml").exists() and not replace:
        raise UsageError(
            f"{folder} has a task {name} already.", "Give --replace, another folder with --into, or rename the file."
        )


def next_number(folder: Path, name: str) -> int:
    """The `id` of a task: what it has there, or one behind all others."""
    numbers = {path.stem: _id(path) for path in (folder / "tasks").glob("*.yaml")}
    return numbers.get(name) or max(numbers.values(), default=0) + 1


def _id(path: Path) -> int:
    found = re.search(r"^id: (\d+)$", path.read_text("utf-8", "replace"), re.MULTILINE)
    return int(found[1]) if found else 0
