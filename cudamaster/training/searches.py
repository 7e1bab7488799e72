"""Reads one run folder: the kernels that were judged in it, and the search as a conversation.

The search runs again on the stored replies and verdicts, as `cudamaster show` does it. So a verdict is the one that
counted, after a second measurement and a reviewer's word, and what the judge said stands where it was said.

The conversation is for chat templates, which want one system message and then user and assistant in turn. The agents of
a search have a system prompt each: the first one asked has it as the conversation's, and another's stands before its
request. A request that asks again is only its last message, as the rest has been said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Candidate, Findings, Hardware, Plan, Role, Status, Verdict
from cudamaster.models.protocol import Message
from cudamaster.runs import digest
from cudamaster.runs.reading import read
from cudamaster.runs.record import Manifest, RunRecord, read_manifest
from cudamaster.runs.summary import RunState
from cudamaster.strategies.protocol import Observer
from cudamaster.tasks import cards
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of, harness_of

_AUTHORS = (Role.CODER, Role.DEBUG, Role.AGENT)


@dataclass(frozen=True)
class Tried:
    """An attempt of a search: the user message that tells its verdict (counted from 0), and the kernel."""

    message: int
    kernel: str
    idea: str
    status: Status
    score: float | None


@dataclass(frozen=True)
class Search:
    """A search as a conversation. `score` is P of its best kernel, and `about` that of the task, run and GPU."""

    messages: tuple[Message, ...]
    tried: tuple[Tried, ...]
    about: JudgedKernel
    strategy: str
    models: str
    score: float
    finished: bool
    shows_other_tasks: bool

    @property
    def kernels(self) -> tuple[str, ...]:
        """Ids of the kernels that were judged in it."""
        return tuple(one.kernel for one in self.tried)


@dataclass(frozen=True)
class ReadRun:
    """What a run folder gives. `search` is None if no kernel but the baseline was judged; `notes` are to be told."""

    kernels: tuple[JudgedKernel, ...]
    search: Search | None
    hardware: Hardware
    notes: tuple[str, ...] = ()


@dataclass
class _Judged:
    candidate: Candidate
    verdict: Verdict
    idea: str = ""
    author: str = ""
    is_baseline: bool = False


@dataclass
class _Steps(Observer):
    """The steps of a search in their order: numbers of exchanges, and what was judged."""

    steps: list[int | _Judged] = field(default_factory=list)
    _asked: int = 0
    _idea: str = ""
    _author: str = ""

    def asking(self, role: Role, model: str) -> None:
        self._asked += 1
        self.steps.append(self._asked)
        if role in _AUTHORS:
            self._author = model

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        self.steps.append(_Judged(candidate, verdict, is_baseline=True))

    def round_started(self, number: int, rounds: int) -> None:
        self._idea = ""

    def planned(self, number: int, plan: Plan) -> None:
        self._idea = plan.idea

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        self.steps.append(_Judged(candidate, verdict, self._idea, self._author))


def read_run(path: Path) -> ReadRun:
    """The kernels and the conversation of a run, finished or not. Raises RunFolderError if it is damaged."""
    steps = _Steps()
    summary = read(path, steps)
    record = RunRecord(path, read_manifest(path))
    category, notes = _category(record.manifest)
    kernels: dict[str, JudgedKernel] = {}
    for step in steps.steps:
        if isinstance(step, _Judged):
            kernels.setdefault(step.candidate.id, _kernel(path, record.manifest, category, step))
    if summary.state is not RunState.FINISHED:
        how = "still goes on" if summary.state is RunState.RUNNING else f"was stopped while {summary.stopped_at}"
        notes.append(f"{path} {how}: it counts with the {len(kernels)} kernels that it judged so far.")
    baseline = next((one for one in kernels.values() if one.provenance.is_baseline), None)
    search = None
    if baseline is not None and any(isinstance(step, _Judged) and not step.is_baseline for step in steps.steps):
        messages, tried = _conversation(record, steps.steps)
        settings = record.manifest.settings
        search = Search(
            messages=messages,
            tried=tried,
            about=baseline,
            strategy=settings.strategy,
            models=", ".join(dict.fromkeys(settings.models.values())),
            score=summary.best.score if summary.best is not None else 1.0,
            finished=summary.state is RunState.FINISHED,
            shows_other_tasks=settings.examples > 0,
        )
    return ReadRun(tuple(kernels.values()), search, record.manifest.hardware, tuple(notes))


def _kernel(path: Path, run: Manifest, category: str, judged: _Judged) -> JudgedKernel:
    about = Provenance(
        suite=run.suite or cards.MSKERNELBENCH,
        category=category,
        card_hash=run.card_hash,
        harness=harness_of(run.versions),
        source=str(path),
        idea=judged.idea,
        is_baseline=judged.is_baseline,
        gpu=gpu_of(run.hardware),
        started=run.started,
        author=judged.author,
    )
    return JudgedKernel(judged.candidate, judged.verdict, about)


def _category(run: Manifest) -> tuple[str, list[str]]:
    """The category of a run's task by today's card, and what is to be known about that card."""
    try:
        card = cards.load(run.card if Path(run.card).is_file() else run.task)
    except CudaMasterError:
        return "unknown", [f"There is no card of {run.task} here, so its category is unknown."]
    if card.times_as(run.card_hash):
        return card.category, []
    return card.category, [f"The card of {run.task} has changed since its kernels were judged."]


def _conversation(record: RunRecord, steps: list[int | _Judged]) -> tuple[tuple[Message, ...], tuple[Tried, ...]]:
    messages: list[Message] = []
    tried: list[Tried] = []
    for step in steps:
        if isinstance(step, int):
            exchange = record.exchange(step)
            if exchange is None:  # the run ends here
                break
            asked = exchange.request.messages
            if "misfit" in exchange.request.facts:
                asked = asked[-1:]
            for message in _with_one_system(asked, first=messages[0] if messages else None):
                _say(messages, message)
            _say(messages, Message("assistant", exchange.reply.text or "(nothing)"))
        elif not step.is_baseline:
            _say(messages, Message("user", said(step.verdict)))
            verdict = step.verdict
            tried.append(Tried(len(messages) - 1, step.candidate.id, step.idea, verdict.status, verdict.score))
    return tuple(messages), tuple(tried)


def _with_one_system(asked: tuple[Message, ...], first: Message | None) -> list[Message]:
    """The messages of a request, in a conversation that begins with `first`, if it has begun."""
    if first is None or asked[0].role != "system":
        return list(asked)
    system, *rest = asked
    return rest if system == first else [Message("user", system.content), *rest]


def _say(messages: list[Message], message: Message) -> None:
    """Add a message; two of one role in a row become one."""
    if messages and messages[-1].role == message.role:
        messages[-1] = Message(message.role, f"{messages[-1].content}\n\n{message.content}")
    else:
        messages.append(message)


def said(verdict: Verdict) -> str:
    """What the judge says to whoever wrote a kernel: the status, P with its interval, and the log of a failure."""
    score = ""
    if verdict.score is not None:
        mark = f" ({verdict.mark})" if verdict.mark else ""
        score = f", P = {verdict.score:.3f}{mark}"
        if verdict.speed is not None:
            low, high = verdict.speed.interval.low, verdict.speed.interval.high
            score += f", {verdict.speed.change.value} ({low:.3f} to {high:.3f})"
    log = "" if verdict.correct or not verdict.log.strip() else f"\n\n{digest.main_part(verdict.log)}"
    return f"The judge: {verdict.status.value}{score}. {verdict.detail}{log}"
