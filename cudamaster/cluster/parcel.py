"""A task as content: what a node needs to know of it, without a file system that both sides share."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.values import Precision, content_hash
from cudamaster.tasks import own_files, reading
from cudamaster.tasks.cards import TaskCard

_FOLDER = "tasks-of-others"


@dataclass(frozen=True)
class Parcel:
    """A card as JSON, and the files beside it by their places in its folder.

    A shipped task has no files here: they are the program's own, which is the same on all machines.
    """

    card: str
    files: Mapping[str, str]

    @cached_property
    def key(self) -> str:
        """Hash of the content."""
        return content_hash(self.card, *(part for name in sorted(self.files) for part in (name, self.files[name])))


def packed(card: TaskCard, precision: Precision) -> Parcel:
    """The parcel of a task in one precision. Raises CardError where a file is missing."""
    files = {} if card.shipped else own_files.of(card, precision)
    return Parcel(card.model_dump_json(by_alias=True), files)


def unpacked(parcel: Parcel) -> TaskCard:
    """The card, with its files in a folder of the cache that is named by their content. Raises DeviceError, OSError."""
    if not parcel.files:
        return reading.of_json(parcel.card, resources.bench())
    place = resources.cache() / _FOLDER
    folder = place / parcel.key
    if not folder.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix=".making-") as name:
            making = Path(name) / "task"
            for file, text in parcel.files.items():
                (making / file).parent.mkdir(parents=True, exist_ok=True)
                (making / file).write_text(text, encoding="utf-8")
            with suppress(OSError):  # another process made it meanwhile
                making.rename(folder)
    return reading.of_json(parcel.card, folder)
