"""Puts the run folder between a strategy and its models and workbench.

The folder's content is returned; what it lacks is asked for, and stored before the strategy sees it. Fresh and resumed
runs take the same path, and both get what was read back from the disk. So the same record gives the same result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace as changed
from functools import partial

from cudamaster.core.errors import RunFolderError
from cudamaster.core.values import Candidate, Findings, Hardware, Precision, Role, Status, Verdict
from cudamaster.models.protocol import (
    LONGEST_PART,
    LONGEST_REPLY,
    AnsweredBy,
    Model,
    Reply,
    Request,
    TriesAgain,
    Waits,
)
from cudamaster.runs.folder import RunFolder
from cudamaster.runs.record import Exchange, request_hash
from cudamaster.runs.spending import Spending
from cudamaster.strategies.protocol import Card, MeasuresAgain, Observer, ReportsBuilds, ReportsHolds, Workbench


class Recorder:
    """Numbers the exchanges of one run across all roles."""

    def __init__(self, folder: RunFolder, spending: Spending, observer: Observer) -> None:
        """`observer` gets each pause before a failing call is repeated, and each reply that cannot be used."""
        self.folder = folder
        self._spending = spending
        self._observer = observer
        self._asked = 0

    def models(self, models: Mapping[Role, Model]) -> dict[Role, Model]:
        """The models, each answering from the record if it can, and waiting no longer than the budget lasts."""
        return {role: AnsweredBy(model.name, partial(self.ask, model)) for role, model in models.items()}

    def ask(self, inner: Model, request: Request) -> Reply:
        """Answer the next request of the run, from the record or by `inner`.

        Raises RunFolderError when the stored exchange of that number answers another request, ModelError, and
        BudgetSpent when nothing more may be asked.
        """
        self._asked += 1
        stored = self.folder.exchange(self._asked)
        if "misfit" in request.facts:
            self._observer.trying_again(request.role, 0.0, f"its reply cannot be used: {request.facts['misfit']}")
        if stored is None:
            self._spending.allow()
            if isinstance(inner, TriesAgain):
                inner.before_pause = partial(self._pausing, request.role)
            if isinstance(inner, Waits):
                inner.while_asking = self._spending.allow_waiting
            reply = kept(inner.ask(request))
            self.folder.save_exchange(self._asked, request, reply)
            self._spending.asked(reply.usage)
            stored = self.folder.exchange(self._asked)
            assert stored is not None
        if stored.request_hash != request_hash(request):
            raise RunFolderError(
                f"Exchange {self._asked} in {self.folder.path} answers another request: {difference(stored, request)}.",
                "Prompts, cards or the program changed since; start a fresh run.",
            )
        return stored.reply

    def _pausing(self, role: Role, pause_s: float, why: str) -> None:
        self._spending.allow_pause(pause_s)
        self._observer.trying_again(role, pause_s, why)


class RecordedWorkbench:
    """A workbench that never judges a candidate twice, neither in one run nor after a resume."""

    def __init__(self, inner: Workbench, folder: RunFolder, spending: Spending) -> None:
        self._inner = inner
        self._folder = folder
        self._spending = spending
        if isinstance(inner, ReportsBuilds):
            inner.on_build = folder.save_build_log
        if isinstance(inner, ReportsHolds):
            inner.on_hold = spending.held

    @property
    def card(self) -> Card:
        """The task."""
        return self._inner.card

    @property
    def precision(self) -> Precision:
        """Element type of the run."""
        return self._inner.precision

    @property
    def baseline(self) -> Candidate:
        """The baseline as a candidate."""
        return self._inner.baseline

    @property
    def hardware(self) -> Hardware:
        """The device as it was when the run began. Prompts contain its figures and must not change."""
        return self._folder.manifest.hardware

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """The stored verdict, or a new one, stored."""
        self._folder.save_candidate(candidate)
        if self._folder.verdict(candidate.id) is None:
            self._spending.allow()
            verdict = self._inner.evaluate(candidate, to_beat=to_beat)
            if not isinstance(self._inner, ReportsBuilds):
                self._folder.save_build_log(candidate.id, _build_log(verdict))
            self._folder.save_verdict(verdict)
        stored = self._folder.verdict(candidate.id)
        assert stored is not None
        return stored

    def measure_again(self, candidate: Candidate) -> Verdict:
        """The stored second verdict, or a new one, stored."""
        if self._folder.confirmation(candidate.id) is None:
            self._spending.allow()
            again = self._inner.measure_again if isinstance(self._inner, MeasuresAgain) else self._inner.evaluate
            self._folder.save_confirmation(again(candidate))
        stored = self._folder.confirmation(candidate.id)
        assert stored is not None
        return stored

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """The stored findings, or new ones, stored."""
        if self._folder.findings(candidate.id) is None:
            # Belongs to a judgement that the budget allowed: without its findings a new best would not count.
            self._folder.save_findings(self._inner.findings(candidate, verdict))
        stored = self._folder.findings(candidate.id)
        assert stored is not None
        return stored


def kept(reply: Reply) -> Reply:
    """A reply as the folder keeps it and the search reads it: for one that is too long, its head, length and digest."""
    if len(reply.text) <= LONGEST_REPLY:
        return reply
    cut = f"it has {len(reply.text):,} characters, of which the first {LONGEST_PART:,} were read"
    return changed(
        reply,
        text=reply.text[:LONGEST_PART],
        cut=f"{reply.cut}; {cut}" if reply.cut else cut,
        digest=hashlib.sha256(reply.text.encode()).hexdigest(),
    )


def _build_log(verdict: Verdict) -> str:
    """Commands and logs of a build, from a workbench that gives them only with the verdict."""
    parts = dict(verdict.build)
    if verdict.status is Status.COMPILE_ERROR:
        parts.setdefault("compile log", verdict.log)
    return "".join(f"# {name}\n{text.rstrip()}\n" for name, text in parts.items())


def difference(stored: Exchange, now: Request) -> str:
    """The first difference between a stored request and the current one, in a few words."""
    then = stored.request
    if then.role is not now.role:
        return f"it went to the {then.role.value}, now the {now.role.value} is asked"
    for key in sorted({*then.facts, *now.facts}):
        if then.facts.get(key) != now.facts.get(key):
            return f"the fact {key!r} was {then.facts.get(key)!r:.80} and is {now.facts.get(key)!r:.80}"
    if len(then.messages) != len(now.messages):
        return f"it had {len(then.messages)} messages and has {len(now.messages)}"
    for old, new in zip(then.messages, now.messages, strict=True):
        before, after = old.content.splitlines(), new.content.splitlines()
        for line, (a, b) in enumerate(zip(before, after, strict=False), start=1):
            if a != b:
                return f"line {line} of the {new.role} message was {a!r:.80} and is {b!r:.80}"
        if old != new:
            return f"the {new.role} message had {len(before)} lines and has {len(after)}"
    return "the stored hash does not fit it"
