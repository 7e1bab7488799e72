"""The files of a task of a user's own: baseline, reference, and the headers beside them that they include."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cudamaster.core.errors import CardError
from cudamaster.core.values import Precision
from cudamaster.tasks.cards import TaskCard

_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def of(card: TaskCard, precision: Precision) -> dict[str, str]:
    """The texts of a task's files in one precision but for the card, by their paths below its folder.

    Headers that are included by quotes count if they lie in the task's folder; a reference in Python is one file.
    Raises CardError for a file that cannot be read.
    """
    found: dict[str, str] = {}
    paths = [card.baseline_path(precision), *([] if card.truth == "baseline" else [card.reference_path])]
    while paths:
        path = Path(os.path.normpath(paths.pop()))
        inside = str(path.relative_to(card.folder))
        if inside in found:
            continue
        found[inside] = text(card, inside, path)
        if path.suffix != ".py":
            beside = (Path(os.path.normpath(path.parent / name)) for name in _INCLUDED.findall(found[inside]))
            paths += [each for each in beside if each.is_relative_to(card.folder) and each.is_file()]
    return found


def text(card: TaskCard, name: str, path: Path) -> str:
    """The text of a file that a task calls `name`. Raises CardError for what cannot be read or is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}.", "Write it, or restore it.") from error
    except UnicodeDecodeError as error:
        raise CardError(f"The file {name} of {card.name} is no text in UTF-8.", "Save it as UTF-8.") from error
