"""A score that looks too good is checked again before it counts. This is the one place for all strategies.

Too good is a new best that is more than a factor above the best so far, or above a set score. The CUDA-L1 paper has
both rules (section 2.4.4, "strict verification"), and takes such a score when a second measurement agrees. Here
- it is measured again in fresh processes with fresh inputs, and the lower score counts, so an accident in the first one
does not. If the two differ by more than their intervals and AGREEMENT allow, a note says so. Times of the CPU device
are not checked again: a model gives the same kernel the same time, and emulated times claim nothing.
- a reviewer, where one is named, is asked whether the kernel is a trick (section 3.2 there: a model that checks
  rewards, with known cases). A kernel that it calls one counts as rejected, with its reason.

Measurements and opinions are kept either way; a kernel is checked once.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Protocol

from cudamaster.agents import reviewer
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Status, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.protocol import MeasuresAgain, Observer, Workbench

# Two measurements that differ by less than this agree whatever their intervals say: these know nothing of what differs
# from one process to the next. That is 0.5 µs of a call of 10 (core/speed.py), and more where calls ask the driver for
# memory: spmv_csc in bf16, whose baseline does, had P = 9.8 and 8.8 on an H200.
AGREEMENT = 0.25


class RemeasuringWorkbench(Workbench, MeasuresAgain, Protocol):
    """A workbench that can judge a candidate a second time."""


@dataclass(frozen=True)
class JumpRule:
    """When a new best is too good: above `factor` times the best so far, or above `above`. 0 switches a rule off."""

    factor: float = 2.0
    above: float = 8.0

    def __post_init__(self) -> None:
        if not (self.factor == 0 or self.factor >= 1):
            raise UsageError(f"A jump by a factor of {self.factor} is none.", "Give 1 or more, or 0 for no such rule.")
        if not self.above >= 0:
            raise UsageError(f"A jump above {self.above} is none.", "Give 0 or more; 0 is no such rule.")

    def broken(self, score: float, best: float) -> str | None:
        """Why a score is too good for a new best, or None."""
        if not score > best:
            return None
        if self.factor and score > self.factor * best:
            return f"P = {score:.3f} is more than {self.factor:g} times the best so far, {best:.3f}"
        if self.above and score > self.above:
            return f"P = {score:.3f} is above {self.above:g}"
        return None


class JumpCheck:
    """Judges candidates for a search, and checks every jump."""

    def __init__(
        self, workbench: RemeasuringWorkbench, rule: JumpRule, reviewer: Model | None, brief: Brief, observer: Observer
    ) -> None:
        """Without a `reviewer` there is no review."""
        self._workbench = workbench
        self._rule = rule
        self._reviewer = reviewer
        self._brief = brief
        self._observer = observer
        self._verdicts: dict[str, Verdict] = {}

    def evaluate(self, candidate: Candidate, best: float | None = None) -> Verdict:
        """The verdict that counts: the workbench's own, or the one after the check of a jump above the `best` so far.

        Without a best, as for the baseline, there is no jump.
        """
        if candidate.id not in self._verdicts:
            verdict = self._workbench.evaluate(candidate, to_beat=best)
            self._verdicts[candidate.id] = verdict if best is None else self._checked(candidate, verdict, best)
        return self._verdicts[candidate.id]

    def _checked(self, candidate: Candidate, verdict: Verdict, best: float) -> Verdict:
        jump = self._jump(verdict, best)
        if jump is not None and not verdict.emulated:
            self._observer.evaluating(candidate)
            verdict = agreed(verdict, self._workbench.measure_again(candidate), jump)
        if self._reviewer is not None and self._jump(verdict, best) is not None:
            verdict = self._reviewed(self._reviewer, candidate, verdict, best)
        return verdict

    def _jump(self, verdict: Verdict, best: float) -> str | None:
        if not verdict.correct or verdict.score is None:
            return None
        return self._rule.broken(verdict.score, best)

    def _reviewed(self, model: Model, candidate: Candidate, verdict: Verdict, best: float) -> Verdict:
        try:
            said = reviewer.review(model, self._brief, self._workbench.baseline.code, candidate, verdict, best)
        except ReplyMisfit as misfit:
            return changed(verdict, notes=(*verdict.notes, f"no review: {misfit}"))
        if not said.hack:
            note = f"the reviewer ({model.name}) finds no trick" + (f": {said.reason}" if said.reason else "")
            return changed(verdict, notes=(*verdict.notes, note))
        detail = f"The reviewer ({model.name}) calls it a trick{f' ({said.case})' if said.case else ''}: {said.reason}"
        return changed(verdict, status=Status.REJECTED, detail=detail, log=detail, score=None, speed=None)


def agreed(first: Verdict, second: Verdict, why: str) -> Verdict:
    """The result of two measurements of one candidate: the lower score, or the second's failure.

    `why` says what made the second one necessary.
    """
    if not second.correct:
        note = f"{why}; judged again, it is {second.status.value}"
        return changed(second, notes=(*second.notes, note))
    assert first.score is not None
    if second.score is None:
        detail = f"{why}; measured again in fresh processes it has no score: neither counts"
        return changed(first, score=None, speed=None, detail=detail)
    lower = min((first, second), key=lambda verdict: verdict.score or 0.0)
    far = " though they are far apart" if _apart(first, second) else ""
    note = f"{why}; measured again in fresh processes: {second.score:.3f}, the lower counts{far}"
    notes = dict.fromkeys((*first.notes, *second.notes, note))
    return changed(lower.after(first), notes=tuple(notes))


def _apart(first: Verdict, second: Verdict) -> bool:
    """Whether two scores differ by more than AGREEMENT and their intervals do not meet."""
    assert first.score is not None
    assert second.score is not None
    low, high = sorted((first.score, second.score))
    if not high > low * (1 + AGREEMENT):
        return False
    if first.speed is None or second.speed is None:
        return True
    one, other = first.speed.interval, second.speed.interval
    return max(one.low, other.low) > min(one.high, other.high)
