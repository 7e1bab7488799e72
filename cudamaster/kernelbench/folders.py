"""The folder of tasks that problems are written to: a suite."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cudamaster.core import resources
from cudamaster.core.errors import UsageError, unwritable
from cudamaster.tasks import cards

_SUITE = "suite.yaml"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def opened(folder: Path | None, suite: str | None) -> Path:
    """The folder, made if needed, with its suite.yaml; by default that of a user's own tasks.

    Raises UsageError for a folder that cannot be written.
    """
    own = folder is None
    folder = (folder or resources.user_tasks()).absolute()
    named = folder / _SUITE
    try:
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        if named.exists() and suite is not None:
            raise UsageError(f"{folder} is a suite already.", f"Leave out --suite, or change {named}.")
        if not named.exists() and not (own and suite is None):
            name = _NO_NAME.sub("_", suite or folder.name)
            name = name if name[:1].isalpha() else f"kb_{name}"
            title = "Problems in KernelBench's form, against eager PyTorch"
            named.write_text(yaml.safe_dump({"name": name, "title": title}, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error, "Give another folder with --into.") from error
    return folder


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
