"""A judged kernel and where it came from: what training sets are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cudamaster.core import records
from cudamaster.core.values import Candidate, Verdict


@dataclass(frozen=True)
class Provenance:
    """Where a kernel and its verdict are from.

    `category` and `card_hash` are those of the task's card. `harness` is the version of the program that judged it, and
    `source` the run folder, or what else it was taken from. `idea` is the title of the plan that it was written for,
    empty if there was none.
    """

    suite: str
    category: str
    card_hash: str
    harness: str
    source: str
    idea: str = ""
    is_baseline: bool = False


@dataclass(frozen=True)
class JudgedKernel:
    """A candidate, what the judge said about it, and its provenance."""

    candidate: Candidate
    verdict: Verdict
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.verdict.candidate != self.candidate.id:
            raise ValueError(f"a verdict on {self.verdict.candidate} beside the candidate {self.candidate.id}")

    @property
    def gpu(self) -> str:
        """The GPU whose times these are; a modelled one is marked as such."""
        if self.verdict.modelled is not None:
            return f"{self.verdict.modelled.gpu} (modelled)"
        return self.verdict.hardware.get("name", "")

    def to_json(self) -> Any:
        """As a JSON value, whole."""
        return records.to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> JudgedKernel:
        """Back from its JSON value; raises records.RecordError if it is none."""
        return records.from_json(cls, data)
