"""The kinds of candidates that an audit tries, read from corpus/*.yaml.

A kind is one trick, or one honest thing to do, described once for all tasks: what stands around the baseline's own
kernels, as Jinja text over the task's parameters (see `regions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cudamaster.core import yaml_text
from cudamaster.core.values import Precision

CORPUS = Path(__file__).parent / "corpus"


class Expect(StrEnum):
    """The outcome that a kind has to have."""

    REFUSED = "refused"  # it breaks the contract, or its results are wrong
    HARMLESS = "harmless"  # right by the contract, and nothing is gained by it
    RIGHT = "right"  # honest: it has to pass


class Kind(BaseModel):
    """One kind of candidate.

    The region is parts, `globals`, the baseline's kernels with the `edit` named, and a wrapper of `head` and `body`, or
    of `before`, a call of the baseline, and `after`. `text` is a whole region in place of all that.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str
    expect: Expect = Expect.REFUSED
    group: str = ""
    use: tuple[str, ...] = ()  # parts of corpus/parts/
    globals: str = ""
    edit: (
        Literal[
            "stream",
            "unless_hit",
            "bf16_sums",
            "reversed_sums",
            "fast_exponentials",
            "short_names",
            "in_namespaces",
            "static_kernels",
            "template_kernels",
        ]
        | None
    ) = None
    head: str | None = None  # of the wrapper; that of the card where none is given
    body: str | None = None
    before: str = ""
    after: str = ""
    text: str | None = None
    command: str | None = None  # the compile command; the device's own where none is given
    precision: Precision | None = None  # the one that it is about; None for both
    needs: tuple[str, ...] = ()  # what a task has to have, see `regions`
    lawful: Mapping[str, str] = {}  # tasks for which it does the right thing, and why
    shows: Literal["at once", "at timed sizes", "in timed calls"] = "at once"
    everywhere: bool = True  # False: the task makes no difference, so a few tasks are enough


@cache
def load() -> tuple[Kind, ...]:
    """All kinds, in the order of the files and within them."""
    kinds = []
    for path in sorted(CORPUS.glob("*.yaml"), key=lambda path: int(path.stem.partition("_")[0])):
        group = path.stem.partition("_")[2]
        kinds += [
            Kind.model_validate({"group": group, **fields})
            for fields in yaml_text.load(path.read_text(encoding="utf-8"))
        ]
    names = [kind.name for kind in kinds]
    assert len(names) == len(set(names)), "two kinds have one name"
    return tuple(kinds)


@cache
def part(name: str) -> str:
    """Device code that several kinds share."""
    return (CORPUS / "parts" / f"{name}.cu").read_text(encoding="utf-8")
