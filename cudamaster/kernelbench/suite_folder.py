"""The folder of tasks that problems are written to: a suite."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cudamaster.core import resources
from cudamaster.core.errors import UsageError, unwritable
from cudamaster.tasks import folders, task_suites

_SUITE = "suite.yaml"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def opened(folder: Path | None, suite: str | None) -> Path:
    """The folder, made if needed, with its suite.yaml.

    Without a folder it is the one that all new tasks go to, or for a suite one of its name among a user's own. Raises
    UsageError
    for a folder that cannot be written, for one that is another suite, and for the name of a suite that is elsewhere.
    """
    users = resources.user_tasks()
    if folder is None:
        folder = folders.default() if suite is None else users / _plain(suite)
    folder = folder.expanduser().absolute()
    named = folder / _SUITE
    if folder == users / "tasks":  # which has the cards of the user's own
        raise UsageError("A suite among your own tasks cannot be called tasks.", "Give another name.")
    try:
        is_suite = named.exists()
        if is_suite and suite is not None and (found := task_suites.of_folder(folder).name) != _plain(suite):
            raise UsageError(f"{folder} is the suite {found} already.", f"Leave out --suite, or change {named}.")
        # The user's own needs no suite.yaml, and one that has tasks has its own name already.
        is_named = is_suite or (suite is None and (folder == users or (folder / "tasks").is_dir()))
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
