"""Reads from a run folder the result that a report shows. As in `cudamaster show`, the folder does not change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import TypeAlias

import cudamaster
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.speed import median
from cudamaster.core.values import CaseVerdict, ProfileMode, Role, Status, Verdict
from cudamaster.profiling.thresholds import Thresholds
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.report import hardware_views
from cudamaster.report.data import (
    CaseResult,
    Configuration,
    Cost,
    HardwareView,
    Kernel,
    MetricChange,
    Missing,
    RoundResult,
    RunProgress,
    TaskResult,
)
from cudamaster.runs import digest
from cudamaster.runs.reading import read
from cudamaster.runs.record import RunRecord, Settings, read_manifest
from cudamaster.runs.spending import spent
from cudamaster.runs.summary import AttemptSummary, RoundSummary, RunState, RunSummary
from cudamaster.strategies import registry

_PROGRESS = {
    RunState.FINISHED: RunProgress.FINISHED,
    RunState.RUNNING: RunProgress.RUNNING,
    RunState.STOPPED: RunProgress.STOPPED,
}
_Judged: TypeAlias = tuple[RoundSummary, AttemptSummary, Verdict]
# What makes two runs of a strategy different searches; seeds make them repetitions.
_IN_NAME = ("thresholds", "jump_factor", "jump_above", "sampling")


def result(path: Path, source: str) -> TaskResult | Missing:
    """The result of a run, finished or not; Missing if it was stopped before it judged a kernel of its own.

    `source` is TaskResult.source. Raises RunFolderError if the folder is damaged.
    """
    summary = read(path)
    if summary.best is None or (summary.state is not RunState.FINISHED and not any(_judged(summary))):
        doing = f" ({summary.stopped_at})" if summary.stopped_at else ""
        verb = "has not" if summary.state is RunState.RUNNING else "was stopped before it had"
        why = f"{path} {verb} judged a kernel{doing}"
        manifest = read_manifest(path)
        said = about(summary.task, None, manifest.suite, manifest.card)
        emulated = summary.hardware.emulated
        return Missing(summary.task, summary.precision, said.category, why, emulated, said.suite, said.folder)
    return _FromSummary(summary, RunRecord(path, read_manifest(path)), source).result()


@dataclass(frozen=True)
class About:
    """What its card says about a task. `remarks` say what is unusual; `suite` and `folder` are as of a TaskResult."""

    title: str
    category: str
    remarks: tuple[str, ...]
    suite: str
    folder: str


def about(task: str, card_hash: str | None, suite: str = "", card: str = "") -> About:
    """What is known about a task whose card had the hash `card_hash` when it was run.

    `suite` is the suite that its record names, and `card` the path of its card then, which may be gone.
    """
    from cudamaster.tasks import cards

    try:
        found = cards.load(card if Path(card).is_file() else task)
        suite = suite or found.suite
    except CudaMasterError:
        remark = f"unknown task: the benchmark here has no {task}"
        suite = "" if suite == cards.MSKERNELBENCH else suite
        return About(task, "unknown", (remark,), suite, _folder(suite, card))
    suite = "" if suite == cards.MSKERNELBENCH else suite
    folder = _folder(suite, card)
    if card_hash is None or found.hash == card_hash:
        return About(found.title, found.category, (), suite, folder)
    if found.times_as(card_hash):
        remark = (
            "fewer checks: by an earlier form of the task card, which times the same (the card says so) and checks "
            "fewer cases"
        )
        return About(found.title, found.category, (remark,), suite, folder)
    remark = "other card: measured by another task card than today's, so that P may be another measure"
    return About(found.title, found.category, (remark,), suite, folder)


def _folder(suite: str, card: str) -> str:
    """Where one's own suite is, as of a TaskResult, by the path of a card."""
    return str(Path(card).parent.parent) if suite and card.endswith(".yaml") else ""


def configuration(settings: Settings) -> Configuration:
    """The configuration of a run with these settings."""
    differing: dict[str, str] = {}
    for one in dataclasses.fields(Settings):
        if one.name in _IN_NAME:
            default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            if (value := getattr(settings, one.name)) != default:
                differing[one.name] = str(digest.sampling(settings) if one.name == "sampling" else value)
    if settings.replay is not None:
        differing["replayed"] = "replies" if settings.replay.models_only else "replies and verdicts"
    profile = "no profile" if settings.profile is ProfileMode.NONE else f"{settings.profile.value} profile"
    words = [registry.described(settings), profile]
    words += [f"{name.replace('_', ' ')}: {value}" for name, value in differing.items()]
    options = {name: str(value) for name, value in settings.options.items()}
    examples = {"examples": str(settings.examples)} if settings.examples else {}
    return Configuration(
        strategy=settings.strategy,
        rounds=settings.rounds,
        debug_tries=settings.debug_tries,
        profile=settings.profile,
        described=", ".join(words),
        settings={**options, **examples, **differing},
    )


def case(verdict: CaseVerdict) -> CaseResult:
    """A timed case as reports save it."""
    timing, speed = verdict.timing, verdict.speed
    return CaseResult(
        label=verdict.label,
        sizes=sizes(verdict.label),
        weight=verdict.weight,
        status=verdict.status,
        skipped=verdict.skipped,
        baseline_us=median(timing.baseline_us) if timing else None,
        candidate_us=median(timing.candidate_us) if timing else None,
        speedup=speed.speedup if speed else None,
        interval=speed.interval if speed else None,
        floor_us=verdict.floor_us,
        empty_us=verdict.empty_us,
    )


def sizes(label: str) -> Mapping[str, float]:
    """The numbers of a case's label, e.g. "rows=1024,p=0.5"."""
    found: dict[str, float] = {}
    for part in label.split(","):
        name, _, text = part.partition("=")
        try:
            found[name.strip()] = float(text)
        except ValueError:
            continue
    return found


def _judged(summary: RunSummary) -> Iterator[_Judged]:
    """The run's own kernels with their verdicts, in order. An unchanged baseline does not count."""
    for done in summary.rounds:
        for attempt in done.attempts:
            if attempt.verdict is not None and attempt.candidate != summary.baseline:
                yield done, attempt, attempt.verdict


class _FromSummary:
    """Makes the result of one run."""

    def __init__(self, summary: RunSummary, record: RunRecord, source: str) -> None:
        self._summary = summary
        self._record = record
        self._source = source
        self._thresholds: Thresholds = load_thresholds()

    def result(self) -> TaskResult:
        summary = self._summary
        chosen = self._best()
        run = self._record.manifest
        said = about(summary.task, run.card_hash, run.suite, run.card)
        last = next(reversed([verdict.status for _, _, verdict in _judged(summary)]), None)
        common = TaskResult(
            origin=str(self._record.path),
            source=self._source,
            task=summary.task,
            title=said.title,
            category=said.category,
            precision=summary.precision,
            # Without a modelled time of the baseline, P is by emulated times.
            hardware=changed(summary.hardware, modelled=summary.modelled),
            versions=summary.versions,
            started=summary.started,
            models=summary.settings.models,
            configuration=configuration(summary.settings),
            progress=_PROGRESS[summary.state],
            correct=False,
            improved=False,
            status=last,
            score=None,
            speed=None,
            complete=summary.baseline_verdict.complete if summary.baseline_verdict else True,
            cases=(),
            cost=self._cost(),
            rounds=tuple(_round(done) for done in summary.rounds),
            stopped_at=summary.stopped_at,
            ended_early=summary.note,
            baseline=self._kernel(summary.baseline),
            before=self._view(summary.baseline),
            remarks=(*said.remarks, *self._remarks()),
            card_hash=run.card_hash,
            suite=said.suite,
            folder=said.folder,
            baseline_by=run.baseline_by,
        )
        return common if chosen is None else self._with_best(common, *chosen)

    def _best(self) -> _Judged | None:
        """The best correct kernel of the run's own: the run's result, or the fastest if that is the baseline."""
        correct = [one for one in _judged(self._summary) if one[2].status is Status.CORRECT]
        best = self._summary.best
        if best is not None and best.improved:
            correct = [one for one in correct if one[1].candidate == best.candidate] or correct

        def worth(one: _Judged) -> float:
            return -math.inf if one[2].score is None else one[2].score

        return max(correct, key=worth, default=None)

    def _with_best(
        self, common: TaskResult, done: RoundSummary, attempt: AttemptSummary, judged: Verdict
    ) -> TaskResult:
        best, baseline = self._kernel(attempt.candidate), common.baseline
        verdict = self._verdict(attempt.candidate, judged.score)
        authors = dict.fromkeys(call.model for call in done.calls if call.role in (Role.CODER, Role.DEBUG))
        # Older runs count a P that lacks a case because of the candidate.
        whole = verdict is None or not verdict.lacking
        added, removed = digest.flags(baseline.command, attempt.command) if baseline else ((), ())
        return changed(
            common,
            correct=True,
            improved=whole and self._summary.best is not None and self._summary.best.candidate == attempt.candidate,
            status=judged.status,
            score=judged.score if whole else None,
            speed=judged.speed if whole else None,
            complete=judged.complete,
            cases=tuple(case(one) for one in verdict.cases if one.sweep) if verdict else (),
            idea=done.plan.idea if done.plan else None,
            round=done.number,
            author=", ".join(authors) or None,
            best=best,
            diff=digest.difference(baseline.code, best.code) if baseline and best else "",
            flags_added=added,
            flags_removed=removed,
            after=self._view(attempt.candidate),
            changes=self._changes(attempt.candidate),
            notes=judged.notes,
            sanitizers=judged.sanitizers,
        )

    def _verdict(self, candidate: str, score: float | None) -> Verdict | None:
        """The verdict that counts: the second one if it gave the score after a jump."""
        verdict, again = self._record.verdict(candidate), self._record.confirmation(candidate)
        return again if again is not None and again.score == score else verdict

    def _kernel(self, candidate: str) -> Kernel | None:
        stored = self._record.candidate(candidate)
        return None if stored is None else Kernel(candidate, stored.code, stored.command)

    def _view(self, candidate: str) -> HardwareView | None:
        findings = self._record.findings(candidate)
        return None if findings is None else hardware_views.view(findings, self._thresholds)

    def _changes(self, candidate: str) -> tuple[MetricChange, ...]:
        before, after = self._record.findings(self._summary.baseline), self._record.findings(candidate)
        return () if before is None or after is None else hardware_views.changes(before, after, self._thresholds)

    def _cost(self) -> Cost:
        total, known = spent(self._record), bool(self._record.sessions)
        usage = self._summary.usage
        return Cost(
            calls=total.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            dollars=None if total.unpriced else total.dollars,
            minutes=total.seconds / 60 if known else None,
            gpu_seconds=total.gpu_seconds if known else None,
        )

    def _remarks(self) -> Iterator[str]:
        summary = self._summary
        if origin := digest.origin(summary.settings):
            yield f"replay: {origin}"
        version = summary.versions.get("cudamaster", "an unknown version")
        if version != cudamaster.__version__:
            yield f"other version: made by cudamaster {version}, read by {cudamaster.__version__}"


def _round(done: RoundSummary) -> RoundResult:
    return RoundResult(
        number=done.number,
        idea=done.plan.idea if done.plan else None,
        status=done.status,
        score=done.score,
        accepted=bool(done.accepted),
        best_score=done.best_score,
    )
