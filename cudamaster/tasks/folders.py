"""The folder that new tasks are written to, and what they may be called there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.tasks import finding, hgemm


def default() -> Path:
    """Where tasks go if no folder is named: the first of $CUDAMASTER_TASKS, else `resources.user_tasks`."""
    first = os.environ.get(resources.TASKS, "").partition(":")[0]
    return Path(first).expanduser().absolute() if first else resources.user_tasks()


def shipped(name: str) -> bool:
    """Whether a task of that name comes with CUDAMaster, so that no other may have it."""
    return name in finding.names() or hgemm.is_meant(name)


def must_be_new(folder: Path, name: str, *files: str, replace: bool) -> None:
    """Raises UsageError for a name that no task can have, and for a file of it that is there and is to stay.

    `files` are relative to the folder; without any, it is the card.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise UsageError(
            f"A task cannot have the name {name!r}.",
            "Give --name: small letters, digits and underscores, a letter first, such as bias_gelu.",
        )
    if shipped(name):
        raise UsageError(f"{name} is a task that comes with CUDAMaster.", "Give another name with --name.")
    there = [folder / file for file in files or (f"tasks/{name}.yaml",) if (folder / file).exists()]
    if there and not replace:
        fix = "Replace it with --replace, or give another name with --name or another folder with --into."
        raise UsageError(f"{there[0]} is there already.", fix)


def id_for(folder: Path, name: str) -> int:
    """The `id` of a task in a folder: what it has there, else one more than the largest."""
    ids = {path.stem: _id(path) for path in (folder / "tasks").glob("*.yaml")}
    return ids.get(name) or max(ids.values(), default=0) + 1


def _id(path: Path) -> int:
    found = re.search(r"^id: (\d+)", path.read_text("utf-8", "replace"), re.MULTILINE)
    return int(found[1]) if found else 0
