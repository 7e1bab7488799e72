"""A judged kernel and where it came from: what training sets are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudamaster.core import records
from cudamaster.core.values import LATER, Candidate, Hardware, Verdict


@dataclass(frozen=True)
class Provenance:
    """Where a kernel and its verdict are from.

    `category` and `card_hash` are those of the task's card. `harness` is the version of the program that judged it, and
    `source` the run folder, or what else it was taken from. `idea` is the title of the plan that it was written for,
    empty if there was none. `gpu` is the GPU model of its times (`gpu_of`), also for a kernel that was refused before
    it had any; `started` is when the run began that judged it (ISO 8601), and `author` the model that wrote it.
    """

    suite: str
    category: str
    card_hash: str
    harness: str
    source: str
    idea: str = ""
    is_baseline: bool = False
    gpu: str = field(default="", metadata=LATER)
    started: str = field(default="", metadata=LATER)
    author: str = field(default="", metadata=LATER)


def gpu_of(hardware: Hardware) -> str:
    """The GPU model whose times a device gives; a modelled one is marked as such, and so is a CPU without a model."""
    if hardware.modelled is not None:
        return f"{hardware.modelled.gpu} (modelled)"
    return f"{hardware.name} (emulated)" if hardware.emulated else hardware.name


def harness_of(versions: Mapping[str, str]) -> str:
    """The version of the program that judged, with its commit where that is known: "0.1.0 (1234567890ab)"."""
    version, commit = versions.get("cudamaster", "unknown"), versions.get("commit")
    return f"{version} ({commit})" if commit else version


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
        if self.provenance.gpu:
            return self.provenance.gpu
        if self.verdict.modelled is not None:
            return f"{self.verdict.modelled.gpu} (modelled)"
        return self.verdict.hardware.get("device", "")

    def to_json(self) -> Any:
        """As a JSON value, whole."""
        return records.to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> JudgedKernel:
        """Back from its JSON value; raises records.RecordError if it is none."""
        return records.from_json(cls, data)
