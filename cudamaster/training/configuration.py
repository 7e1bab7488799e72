"""Reads the configuration file of a stage: YAML, whose keys are the fields in settings.py.

An unknown key is refused, with the nearest known one. Paths are relative to the file. `--set KEY=VALUE` changes a key,
with dots between the parts (`optimization.learning_rate=1e-4`); its value is read as YAML.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from cudamaster.core.errors import CardError, UsageError, one_line
from cudamaster.tasks import marked_yaml, reading
from cudamaster.training.settings import Contrastive, Judge, Stage

_FIX = "docs/training.md describes the keys of each stage."
T = TypeVar("T", bound=Stage)


def load(kind: type[T], path: Path, changes: Sequence[str] = ()) -> T:
    """The settings in a file with the `changes` (KEY=VALUE). Raises UsageError with what is wrong and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {one_line(error)}.", _FIX) from error
    if changes:
        text = _changed(text, path, changes)
    try:
        settings = reading.described(kind, text, path, _FIX)
    except CardError as error:
        first = error.problems[0]
        # Changes make another text, of which no line is the file's.
        where = f"{path} with --set" if changes else f"{path}, line {first.line}"
        what = f"{first.field}: {first.what}" if first.field else first.what
        more = len(error.problems) - 1
        also = f" (and {more} more)" if more else ""
        raise UsageError(f"{where}: {what}{also}.", first.fix) from error
    return _placed(settings, path.parent.absolute())


def _changed(text: str, path: Path, changes: Sequence[str]) -> str:
    """The text with the keys changed."""
    try:
        content = marked_yaml.parsed(text).content or {}
    except yaml.YAMLError as error:
        what = one_line(getattr(error, "problem", None) or error)
        raise UsageError(f"{path}, line {marked_yaml.line_of(error)}: {what}.", "Write it as YAML.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is no mapping of keys.", _FIX)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{change!r} changes nothing.", "Write --set KEY=VALUE, as budget.steps=20.")
        try:
            read_as = marked_yaml.parsed(value).content
        except yaml.YAMLError as error:
            raise UsageError(f"The value of {key} is no YAML: {one_line(error)}.", "Quote it.") from error
        *above, last = key.strip().split(".")
        place = content
        for part in above:
            inner = place.get(part)
            place[part] = place = dict(inner) if isinstance(inner, dict) else {}
        place[last] = read_as
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _placed(settings: T, folder: Path) -> T:
    """The settings with absolute paths: the same file gives the same settings, from whatever folder it is named."""
    changed: dict[str, Any] = {"data": folder / settings.data}
    if settings.out is not None:
        changed["out"] = folder / settings.out
    if (name := settings.model.name) is not None:
        if (folder / name).is_dir():
            changed["model"] = settings.model.model_copy(update={"name": str(folder / name)})
        elif _is_path(name):
            raise UsageError(
                f"model.name is {name}, and there is no folder {folder / name}.",
                "Write the path of a training run's folder relative to the configuration file, or an absolute one.",
            )
    judge: Judge | None = getattr(settings, "judge", None)
    if judge is not None:
        verdicts = None if judge.verdicts is None else folder / judge.verdicts
        changed["judge"] = judge.model_copy(update={"tasks": _cards(judge.tasks, folder), "verdicts": verdicts})
    changed["evaluation"] = settings.evaluation.model_copy(update={"tasks": _cards(settings.evaluation.tasks, folder)})
    if isinstance(settings, Contrastive) and settings.tricks is not None:
        changed["tricks"] = folder / settings.tricks
    return settings.model_copy(update=changed)


def _is_path(name: str) -> bool:
    """Whether a model's name can only be a path: one on Hugging Face is OWNER/NAME, or a single word."""
    return name.count("/") > 1 or name.startswith((".", "/", "~"))


def _cards(tasks: Sequence[str], folder: Path) -> tuple[str, ...]:
    return tuple(str(folder / task) if task.endswith((".yaml", ".yml")) else task for task in tasks)
