"""What came of putting a claim to the test, as a record: the word, the claim, the new verdict, and all it takes to pack
the new result in a bundle of its own."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cudamaster.core.errors import unwritable
from cudamaster.core.records import to_json
from cudamaster.core.speed import Comparison, Interval
from cudamaster.core.values import LATER, GpuModel, Hardware, Precision, Verdict
from cudamaster.judging.paper_protocol import PaperScore

FORMAT = 1


class Word(StrEnum):
    """What a repetition says of a claim. There are no others."""

    SAME = "same"  # right, and as fast as claimed as far as both measurements can tell
    FASTER = "faster"  # right, and certainly faster than claimed
    SLOWER = "slower"  # right, and certainly slower than claimed
    UNSURE = "unsure"  # right, but too noisy, or not to be compared: the sentence says why
    OTHER_GPU = "other gpu"  # right, but on a GPU that the claim is not about
    WRONG = "wrong"  # the kernel fails


@dataclass(frozen=True)
class Claimed:
    """What is claimed. `mark` is empty for measured times, else "modelled" or "emulated", as in a verdict.

    `speed` has the claim's interval: by its own samples, by the model's known error, or by a tolerance. `margin` is
    what P may differ by from one process to the next, None where the claim has no samples. `gpu` is empty if nobody
    said. `bundle` is the SHA-256 of a bundle, empty for a stated claim; `cases` are the sizes that its P is over.
    """

    score: float
    speed: Comparison | None
    mark: str
    gpu: str
    bundle: str
    margin: float | None = None
    modelled: GpuModel | None = None
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A claim that was put to the test.

    `said` is the result in a sentence. `ratio` is the interval of P here over P claimed, None if it cannot be told.
    `differs` lists what differs from the claim, and `measured` what was measured that bears on a difference.
    `notes` are about the bundle itself. `paper` is the paper's own protocol, for a claim made with another harness.
    """

    format: int
    word: Word
    said: str
    ratio: Interval | None
    claim: Claimed
    task: str
    precision: Precision
    suite: str
    card_hash: str
    code: str
    command: str
    verdict: Verdict
    hardware: Hardware
    versions: Mapping[str, str]
    made: str
    files: Mapping[str, str]
    differs: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    paper: PaperScore | None = field(default=None, metadata=LATER)

    def keep(self, path: Path) -> Path:
        """Write it as JSON, beside whatever file is already there, and give the path. Raises as `unwritable`."""
        text = json.dumps(to_json(self), indent=1, allow_nan=False) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            staged = path.with_name(f".{path.name}.{os.getpid()}.part")
            try:
                staged.write_bytes(text.encode())
                return _linked(staged, path)
            finally:
                staged.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error, "Choose another file with --out.") from error


def _linked(staged: Path, path: Path) -> Path:
    """Give a file its name, or that with the next free number: nothing that was measured is overwritten."""
    for number in itertools.count(1):
        free = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            os.link(staged, free)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            if free.exists():
                continue
            staged.replace(free)
        return free
    raise AssertionError("numbers do not end")
