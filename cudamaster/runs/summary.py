"""The summary of a run: what `reading` takes from its folder, and pages and terminals show.

What the folder does not have is None. Prompts, replies and build logs stay in the folder, where they are found by the
numbers of exchanges and the ids of candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cudamaster.agents.debug import Diagnosis
from cudamaster.core.speed import Change, Comparison
from cudamaster.core.values import Bottleneck, GpuModel, Hardware, Plan, Precision, Role, Status, Verdict, mark
from cudamaster.models.metered import RoleUsage
from cudamaster.models.protocol import Usage
from cudamaster.runs.record import Settings

SHOWN_IN_PERCENT = 9.0  # relative changes up to this: tenfold


class RunState(StrEnum):
    """How far a run has come. There are no other states."""

    FINISHED = "finished"
    RUNNING = "running"  # a process works on it
    STOPPED = "stopped"  # killed, interrupted, or ended by an error; it can be resumed


@dataclass(frozen=True)
class CallSummary:
    """One call of a model. If its reply could not be used, `refused` says why, and `reply` is the beginning of it."""

    number: int
    role: Role
    model: str
    usage: Usage
    refused: str | None = None
    reply: str | None = None


@dataclass(frozen=True)
class AttemptSummary:
    """One candidate: what it was written from, what was changed, and its verdict.

    `diff` is a unified diff, empty if the code is the same. `judged_before` says that an earlier attempt had the very
    same candidate, and this is its verdict. `verdict` is None if the run stopped before there was one.
    """

    debug_try: int
    diagnosis: Diagnosis | None
    candidate: str
    written_from: str
    diff: str
    lines_added: int
    lines_removed: int
    command: str
    flags_added: tuple[str, ...]
    flags_removed: tuple[str, ...]
    judged_before: bool
    verdict: Verdict | None


def change(relative: float | None, unknown: str = "–") -> str:
    """How a metric changed, in percent.

    If it is more than tenfold, the metric was close to zero before, and a percentage of that would be noise.
    """
    if relative is None or math.isnan(relative):
        return unknown
    return f"{relative:+.0%}" if relative <= SHOWN_IN_PERCENT else "> 10 x"


@dataclass(frozen=True)
class MetricSummary:
    """One metric before and after. `relative` is (after - before) / before, None if that is no number.

    `unit` is None if the metric's name says it.
    """

    name: str
    before: float | None
    after: float | None
    relative: float | None
    unit: str | None = None


@dataclass(frozen=True)
class ProfileSummary:
    """The profile of a new best, beside that of the best before it; the baseline has none before it.

    For a modelled profile, `modelled` is the model, and `breakdown` says where the time of a call goes (µs).
    """

    note: str
    kernel: str | None
    time_share: float | None
    bottleneck: Bottleneck | None
    bottleneck_before: Bottleneck | None
    metrics: tuple[MetricSummary, ...]
    modelled: GpuModel | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundSummary:
    """One round. `accepted` and `why` are None if the run stopped within it, or had no further idea.

    `title` is the idea, or why there is none. `gave_up` says that the Debug agent offered no fix. `best_score` and
    `best` are those after the round. `judging_s` is how long candidates were built and run. `against` is a modelled
    kernel's speedup over the best before it, as in `Outcome`.
    """

    number: int
    title: str
    plan: Plan | None
    attempts: tuple[AttemptSummary, ...]
    status: Status | None
    score: float | None
    accepted: bool | None
    why: str | None
    gave_up: bool
    profile: ProfileSummary | None
    best_score: float
    best: str
    calls: tuple[CallSummary, ...]
    usage: RoleUsage
    judging_s: float
    against: Comparison | None = None

    @property
    def unsure(self) -> bool:
        """Whether the model cannot tell the kernel and the best before it apart."""
        return self.against is not None and self.against.change is Change.UNSURE


@dataclass(frozen=True)
class BestSummary:
    """The best candidate so far, the baseline at first, with its difference from the baseline."""

    candidate: str
    command: str
    code: str
    score: float
    improved: bool
    diff: str


@dataclass(frozen=True)
class RunSummary:
    """A run as far as it got. `stopped_at` says what an unfinished run was doing, `note` why a run ended early.

    The server's address in `settings` is without secrets. `search` is the strategy, with its figures, in words.
    """

    path: str
    state: RunState
    stopped_at: str | None
    note: str | None
    task: str
    precision: Precision
    hardware: Hardware
    settings: Settings
    search: str
    started: str
    versions: Mapping[str, str]
    baseline: str
    baseline_verdict: Verdict | None
    baseline_profile: ProfileSummary | None
    rounds: tuple[RoundSummary, ...]
    best: BestSummary | None
    usage: RoleUsage

    @property
    def best_speed(self) -> Comparison | None:
        """P of the best kernel with its interval; None if that is the baseline, or if it is not known."""
        if self.best is None:
            return None
        attempts = [attempt for done in self.rounds for attempt in done.attempts]
        judged = [one.verdict for one in attempts if one.candidate == self.best.candidate and one.verdict]
        return next((one.speed for one in reversed(judged) if one.score == self.best.score), None)

    @property
    def modelled(self) -> GpuModel | None:
        """The model that gave its scores; None if they are measured, or the baseline has no modelled time."""
        judged = self.baseline_verdict
        return self.hardware.modelled if judged is None else judged.modelled

    @property
    def mark(self) -> str:
        """What its times are, as in `Verdict.mark`."""
        return mark(emulated=self.hardware.emulated, modelled=self.modelled)
