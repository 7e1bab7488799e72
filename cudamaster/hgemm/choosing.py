"""Our kernel for a product: the member of the family that measurements chose, or else the model's first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudamaster.families import model
from cudamaster.families.config import Config
from cudamaster.hgemm.table import FOLDER, SUFFIX, read_all
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape


@dataclass(frozen=True)
class Choice:
    """A member of the family, and who chose it, in words."""

    config: Config
    by: str


def choose(shape: Shape, layout: Layout, accumulate: Accumulate, place: Path | None = None) -> Choice:
    """Our kernel for a product, by the table at `place`, or by those in runs/hgemm where there are any.

    Raises UsageError for a shape of no task, and as `read_all` does.
    """
    shape.must_be_legal()
    first = model.ranked(layout, accumulate, shape)[0]
    modelled = f"the model, which expects {model.microseconds(first, shape):.1f} µs on an H100"
    if place is None and not any(FOLDER.glob(f"*{SUFFIX}")):
        return Choice(first, f"{modelled}; there is no table in {FOLDER}")
    found = read_all([] if place is None else [place])
    for entry in found.find(shape):
        if entry.accumulate is accumulate and layout in entry.chosen:
            by = f"measurements on {found.header.gpu} of {entry.date[:10]}, in {place or FOLDER}"
            return Choice(entry.chosen[layout], by)
    return Choice(first, f"{modelled}; the shape is not in {place or FOLDER}")
