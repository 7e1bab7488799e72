"""Looks at leaps in reward, as records: lines of JSON on disk, and rows of a table for the report of a training run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cudamaster.core import records
from cudamaster.core.errors import RunFolderError, one_line, unwritable
from cudamaster.core.values import Precision

COLUMNS = ("task", "precision", "speedup", "best before", "looked at because", "again", "reviewer", "most similar",
           "outcome")  # fmt: skip


class Outcome(StrEnum):
    """What a look came to. The list is closed."""

    COUNTS = "counts"
    TRICK = "a trick"  # says the reviewer
    WRONG = "wrong"  # says the second judgement
    NOT_CONFIRMED = "not confirmed"  # by the second measurement
    NOT_REVIEWED = "not reviewed"  # the reviewer gave no usable answer, or has not answered yet


@dataclass(frozen=True)
class Shown:
    """A trick that a reviewer was shown, and how similar it is to the kernel."""

    trick: str
    name: str
    similarity: float


@dataclass(frozen=True)
class Look:
    """What was found at a leap.

    `speedup` is that of the first measurement, `again` that of the second (`again_why` if it has none) on the device
    `unit`. `counts` is the reward: None if there is none, 0 for what is wrong or a trick. `reviewer` is the model's
    name and `said` its reason, both empty if none was asked.
    """

    candidate: str
    task: str
    precision: Precision
    speedup: float
    best: float
    why: str
    outcome: Outcome
    counts: float | None
    again: float | None
    again_why: str = ""
    unit: str = ""
    reviewer: str = ""
    said: str = ""
    case: str = ""
    shown: tuple[Shown, ...] = ()


def rows(looks: Iterable[Look]) -> list[tuple[str, ...]]:
    """One row of COLUMNS for each look, for the report of a training run."""
    return [
        (
            look.task,
            look.precision.value,
            f"{look.speedup:.2f}",
            f"{look.best:.2f}",
            look.why,
            f"{look.again:.2f}" if look.again is not None else look.again_why,
            f"{look.reviewer}: {': '.join(part for part in (look.case, look.said) if part)}" if look.reviewer else "",
            ", ".join(f"{shown.name} ({shown.similarity:.2f})" for shown in look.shown),
            look.outcome.value,
        )
        for look in looks
    ]


def append(path: Path, look: Look) -> None:
    """Add a look to a file, after what a killed process left of a line is gone. Raises UsageError or DeviceError."""
    line = (json.dumps(records.to_json(look)) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error, "Give another file of looks.") from error


def read(path: Path) -> tuple[Look, ...]:
    """The looks of a file, the last of each candidate. A last line that a kill cut short is left out.

    Raises RunFolderError for a file that is no record of looks.
    """
    found: dict[str, Look] = {}
    try:
        text = path.read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            look = records.from_json(Look, json.loads(line))
            found[look.candidate] = look
    except (OSError, ValueError) as error:
        fix = "Remove what is wrong in it, or give another file of looks."
        raise RunFolderError(f"{path} is no record of looks: {one_line(error)}.", fix) from error
    return tuple(found.values())
