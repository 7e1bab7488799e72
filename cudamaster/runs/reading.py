"""Reads a run folder for a person: the search runs again on the stored replies and verdicts, and each step is noted.

No model is asked, nothing is judged, and the folder does not change. As with resume, a strategy takes the same steps
if it gets the same replies and verdicts, so the summary says what happened. If the record does not fit the steps, that
is an error. Prompts are not compared: a run stays readable when their wording changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial
from pathlib import Path

from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.debug import Diagnosis
from cudamaster.core.errors import DeviceError, RunFolderError, UsageError
from cudamaster.core.values import Candidate, Findings, Plan, Precision, Role, Status, Verdict, wrapper_name
from cudamaster.models.protocol import AnsweredBy, Reply, Request
from cudamaster.runs import digest
from cudamaster.runs.record import RunRecord, read_record
from cudamaster.runs.stored import StoredWorkbench
from cudamaster.runs.summary import (
    AttemptSummary,
    BestSummary,
    CallSummary,
    ProfileSummary,
    RoundSummary,
    RunState,
    RunSummary,
)
from cudamaster.strategies import registry
from cudamaster.strategies.protocol import Both, Observer
from cudamaster.strategies.result import Result, Round

_REPLY_LIMIT = 4000  # characters of a refused reply
_OTHERWISE = "Restore the folder from a copy, or read it with the version that wrote it (run.json names that)."


def read(path: Path, observer: Observer | None = None) -> RunSummary:
    """The summary of a run, finished or not. Raises RunFolderError if there is no run or it is damaged.

    An `observer` gets each step as it was, with the verdicts that counted: those after the check of a jump.
    """
    record = read_record(path)
    strategy = record.manifest.settings.strategy
    if strategy not in registry.STRATEGIES:
        raise RunFolderError(f"{path} is a run of the strategy {strategy}, which is not known here.", _OTHERWISE)
    return _Replay(record, observer).summary()


class _RecordEnds(Exception):
    """The record ends here: `missing` is the file that the next step would have written while `doing` something."""

    def __init__(self, missing: str, doing: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.doing = doing


@dataclass
class _OpenRound:
    """A round while it is read."""

    number: int
    best: str
    plan: Plan | None = None
    attempts: list[AttemptSummary] = field(default_factory=list)
    calls: list[CallSummary] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    profile: ProfileSummary | None = None
    ended: Round | None = None
    gave_up: bool = False


class _Replay(Observer):
    """Observes the search, and gives it what the record holds."""

    def __init__(self, record: RunRecord, observer: Observer | None = None) -> None:
        self.record = record
        self._observer = self if observer is None else Both(self, observer)
        # Taken first, so that files added meanwhile by a working process do not look like a gap.
        self._finished = record.finished
        self._exchanges = sum(1 for _ in (record.path / "exchanges").glob("*.json"))
        self._asked = 0
        self._rounds: list[_OpenRound] = []
        self._seen: dict[str, Candidate] = {}
        self._judged: set[str] = set()
        self._best: tuple[Candidate, Findings | None, float] | None = None
        self._baseline_profile: ProfileSummary | None = None
        self._note: str | None = None
        self._last_reply = ""

    def summary(self) -> RunSummary:
        run = self.record.manifest
        doing: str | None = None
        result: Result | None = None
        try:
            result = self._search()
        except _RecordEnds as end:
            if self._finished or self._exchanges > self._asked:
                raise RunFolderError(
                    f"{self.record.path / end.missing} is missing, though the run went on after it.", _OTHERWISE
                ) from end
            doing = end.doing
        except (DeviceError, UsageError) as error:  # the run ended on that, and so would a resumed one
            doing = error.reason
        else:
            self._must_agree(result)
            doing = None if self.record.finished else "writing the summary"
        return RunSummary(
            path=str(self.record.path),
            state=RunState.FINISHED if doing is None else RunState.RUNNING if self.record.in_use else RunState.STOPPED,
            stopped_at=doing and self._with_why(doing),
            note=self._note,
            task=run.task,
            precision=run.precision,
            hardware=run.hardware,
            settings=changed(run.settings, base_url=digest.without_secrets(run.settings.base_url)),
            search=registry.described(run.settings),
            started=run.started,
            versions=run.versions,
            baseline=run.baseline,
            baseline_verdict=self.record.verdict(run.baseline),
            baseline_profile=self._baseline_profile,
            rounds=tuple(self._summaries()),
            best=self._best_summary(),
            usage=digest.usage([call for done in self._rounds for call in done.calls]),
        )

    def _search(self) -> Result:
        run = self.record.manifest
        baseline = self.record.candidate(run.baseline)
        if baseline is None:
            raise _RecordEnds(f"candidates/{run.baseline}.cu", "preparing the baseline")
        self._seen[baseline.id] = baseline
        card = _StoredCard(baseline)
        bench = StoredWorkbench(self.record, card, baseline, lambda gap: _RecordEnds(gap.file, gap.doing))
        models = {role: AnsweredBy(name, partial(self.answer, name)) for role, name in run.settings.models.items()}
        return registry.run(registry.begin(bench, models, run.settings, self._observer), run.settings)

    def _with_why(self, doing: str) -> str:
        """What it was doing, and why the last session ended before the run did; no reason if it was killed."""
        sessions = self.record.sessions
        why = sessions[-1].ended if sessions and not self.record.in_use else None
        return f"{doing}; {why}" if why and why != doing else doing

    def _must_agree(self, result: Result) -> None:
        """Check that the record is used up, and that the summary has the same result."""
        if self._exchanges > self._asked:
            raise RunFolderError(
                f"Exchange {self._asked + 1} in {self.record.path} follows the end of the search.", _OTHERWISE
            )
        summary = self.record.summary
        if summary is not None and (summary.get("best"), summary.get("score")) != (result.best.id, result.score):
            raise RunFolderError(
                f"{self.record.path / 'summary.json'} does not say what the run came to: "
                f"{result.best.id} with {result.score}.",
                _OTHERWISE,
            )

    # ---- what the search asks for

    def answer(self, name: str, request: Request) -> Reply:
        """The stored reply to the next request."""
        self._asked += 1
        number, role = self._asked, request.role
        stored = self.record.exchange(number)
        if stored is None:
            raise _RecordEnds(f"exchanges/{number:04d}_{role.value}.json", f"asking {role.in_words} ({name})")
        then = stored.request
        differ = [key for key in request.facts if then.facts.get(key, request.facts[key]) != request.facts[key]]
        if then.role is not role or differ or ("misfit" in then.facts) != ("misfit" in request.facts):
            raise RunFolderError(
                f"Exchange {number} in {self.record.path} does not fit the search: it went to the {then.role.value}, "
                f"where the {role.value} is asked{''.join(f', with another {key}' for key in differ)}.",
                _OTHERWISE,
            )
        calls = self._rounds[-1].calls
        if "misfit" in request.facts:
            calls[-1] = changed(calls[-1], refused=str(request.facts["misfit"]), reply=self._last_reply)
        self._last_reply = stored.reply.text[:_REPLY_LIMIT]
        calls.append(CallSummary(number, role, stored.reply.model, stored.reply.usage))
        return stored.reply

    # ---- events of the search

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        self._best = (candidate, findings, 1.0)
        self._judged.add(candidate.id)
        self._baseline_profile = digest.profile(None, findings)

    def round_started(self, number: int, rounds: int) -> None:
        assert self._best is not None
        self._rounds.append(_OpenRound(number, self._best[0].id))

    def planned(self, number: int, plan: Plan) -> None:
        self._rounds[-1].plan = plan

    def diagnosed(self, number: int, debug_try: int, diagnosis: Diagnosis) -> None:
        self._rounds[-1].diagnosis = diagnosis

    def without_command(self, number: int, misfit: ReplyMisfit) -> None:
        calls = self._rounds[-1].calls
        refused = f"{misfit.reason} The default command was taken."
        calls[-1] = changed(calls[-1], refused=refused, reply=self._last_reply)

    def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
        current = self._rounds[-1]
        self._seen[candidate.id] = candidate
        before = self._seen[source or (current.attempts[-1].candidate if debug_try else current.best)]
        added, removed = digest.flags(before.command, candidate.command)
        diff = digest.difference(before.code, candidate.code)
        signs = [line[:1] for line in diff.split("\n")]
        current.attempts.append(
            AttemptSummary(
                debug_try=debug_try,
                diagnosis=current.diagnosis if debug_try else None,
                candidate=candidate.id,
                written_from=before.id,
                diff=diff,
                lines_added=signs.count("+"),
                lines_removed=signs.count("-"),
                command=candidate.command,
                flags_added=added,
                flags_removed=removed,
                judged_before=candidate.id in self._judged,
                verdict=None,
            )
        )

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        attempts = self._rounds[-1].attempts
        attempts[-1] = changed(attempts[-1], verdict=verdict)
        self._judged.add(candidate.id)

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        assert self._best is not None
        self._rounds[-1].profile = digest.profile(self._best[1], findings)
        self._best = (candidate, findings, score)

    def round_ended(self, finished: Round) -> None:
        current = self._rounds[-1]
        current.ended = finished
        last = current.attempts[-1].verdict if current.attempts else None
        misfit = finished.outcome.status is Status.REJECTED and (last is None or finished.outcome.detail != last.detail)
        if misfit:
            reason = finished.outcome.detail.rpartition("in no usable form: ")[2]
            current.calls[-1] = changed(current.calls[-1], refused=reason, reply=self._last_reply)
        current.gave_up = not misfit and current.calls[-1].role is Role.DEBUG

    def stopped(self, note: str) -> None:
        self._note = note

    # ---- the summary

    def _title(self, done: _OpenRound) -> str:
        """The idea; where there is none, why not."""
        if done.plan is not None:
            return done.plan.idea
        if done.ended is not None:
            return f"(no usable reply from the {done.calls[-1].role.value})"
        return "(no idea yet)" if self._note is None else f"(no further idea from the {done.calls[-1].role.value})"

    def _summaries(self) -> list[RoundSummary]:
        rounds = []
        best_score, best = 1.0, self.record.manifest.baseline
        for done in self._rounds:
            if done.ended is not None:
                best_score, best = done.ended.best_score, done.ended.best
            outcome = done.ended.outcome if done.ended else None
            rounds.append(
                RoundSummary(
                    number=done.number,
                    title=self._title(done),
                    plan=done.plan,
                    attempts=tuple(done.attempts),
                    status=outcome.status if outcome else None,
                    score=outcome.score if outcome else None,
                    accepted=outcome.accepted if outcome else None,
                    why=done.ended.why if done.ended else None,
                    gave_up=done.gave_up,
                    profile=done.profile,
                    best_score=best_score,
                    best=best,
                    calls=tuple(done.calls),
                    usage=digest.usage(done.calls),
                    judging_s=sum(digest.seconds(attempt) for attempt in done.attempts),
                    against=outcome.against if outcome else None,
                )
            )
        return rounds

    def _best_summary(self) -> BestSummary | None:
        if self._best is None:
            return None
        best, baseline = self._best[0], self._seen[self.record.manifest.baseline]
        return BestSummary(
            candidate=best.id,
            command=best.command,
            code=best.code,
            score=self._best[2],
            improved=best.id != baseline.id,
            diff=digest.difference(baseline.code, best.code),
        )


# Of a baseline as a candidate. The name is a task's, or one that its card gives.
_WRAPPER = re.compile(r'extern\s+"C"\s*(?:\{\s*)?void\s+(\w+)_optimized\s*\(')


class _StoredCard:
    """What prompts need of a task card. Nobody reads them here, so the real card need not exist any more."""

    title = hash = suite = source = baseline_by = ""
    headers = ()

    def __init__(self, baseline: Candidate) -> None:
        self.name = baseline.task
        found = _WRAPPER.search(baseline.code)
        self._wrapper = found[1] if found else wrapper_name(baseline.task, baseline.precision)

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        return f"{self._wrapper}_optimized" if optimized else self._wrapper

    def declaration(self, precision: Precision, *, optimized: bool = True) -> str:
        return self.wrapper(precision, optimized=optimized)

    def describe(self, precision: Precision) -> str:
        return ""
