"""How the judge is run for its request, and its report judged.

Evaluations, contests and the search for faults ask the judge different things; what all its runs share is here.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from cudamaster.build.building import Builder
from cudamaster.core.errors import BaselineError, ReferenceFailed, ReferenceStopped
from cudamaster.core.values import Status
from cudamaster.devices import cases as progress
from cudamaster.devices.gate import Gate
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.process import ends, threads
from cudamaster.devices.protocol import Device, MeasuringProtocol, Ran
from cudamaster.judging import reference_process, report_lines
from cudamaster.judging.report_lines import End, Fault, Line, Timeout
from cudamaster.judging.verdicts import Judgement, judge, parse
from cudamaster.tasks import held_out
from cudamaster.tasks.cards import Case, TaskCard

CHECK_LIMIT_S = 600.0
_FAILED = {"fault": 70, "timeout": 75}  # the judge's exit codes where a line of this kind ends a run
_HOPELESS = 6e8  # weight of a timed case that takes an emulating device minutes; those of the fifty are lighter
_NOT_UP = "failed at its start"  # the error of a worker that made no call (mskb/workers.h)
CHUNK_BYTES = 2 << 20  # larger allocations go to the driver in every call (mskb/used_process.h)

Reported = tuple[list[Line], Ran]


@dataclass(frozen=True)
class Trial:
    """One run of the judge. `cases` are those of the request, in order; `limit_s` is for the whole run.

    In the request, the judge is missing, the baseline's worker unless it is a special one, and what is the same for all
    runs of a device (`Trials.request`).

    `trusted` is a candidate that is the baseline itself, which has no reason to lie about its times. With `quiet`,
    nothing of ours runs on the machine's other GPUs meanwhile.
    """

    request: JudgeRequest
    cases: Sequence[Case]
    limit_s: float
    trusted: bool = False
    quiet: bool = False

    @property
    def doubted(self) -> tuple[str, ...]:
        """Whose times the judge's own clock has to confirm."""
        if self.trusted:
            return ()
        return ("candidate", "rival") if self.request.rival else ("candidate",)


@dataclass(frozen=True, eq=False)
class _Ahead:
    """A run that started before its candidate was built: its request, and its result."""

    gate: Gate = field(default_factory=Gate)
    request: Future[JudgeRequest] = field(default_factory=Future)
    reported: Future[Reported] = field(default_factory=Future)


class Trials:
    """Runs of the judge of one task and precision on one device."""

    def __init__(
        self,
        card: TaskCard,
        builder: Builder,
        device: Device,
        protocol: MeasuringProtocol,
        *,
        calls: int,
        seed: int | None,
    ) -> None:
        """`calls` are timed per case unless a request says otherwise; `seed` is as the workbench has it."""
        self._card = card
        self._builder = builder
        self._device = device
        self._protocol = protocol
        self._calls = calls
        self._seed = seed
        self._started: list[_Ahead] = []
        self._of_batch: dict[JudgeRequest, Reported] = {}
        self._quiet = False

    @property
    def seed_is_fixed(self) -> bool:
        """Whether every evaluation has the same inputs."""
        return self._seed is not None

    def draw_seed(self) -> int:
        """The seed of the inputs of one evaluation: a fresh one unless it is fixed."""
        return secrets.randbits(63) if self._seed is None else self._seed

    def verification(self, seed: int) -> list[Case]:
        """The verification cases and small held-out ones."""
        return [*(case for case in self._card.cases if not case.sweep), *held_out.draw(self._card, seed)]

    def verifying(
        self, candidate: Sequence[str], seed: int, *, first_failure: bool = False, reversed_threads: bool = False
    ) -> Trial:
        """The trial on the verification cases and small held-out ones; `candidate` is its worker's command."""
        request = JudgeRequest(
            candidate=tuple(candidate),
            cases="verify",
            seed=seed,
            calls=0,
            first_failure=first_failure,
            reversed_threads=reversed_threads,
        )
        return Trial(request, self.verification(seed), CHECK_LIMIT_S)

    def request(self, trial: Trial) -> JudgeRequest:
        """A trial's request, complete."""
        asked, protocol = trial.request, self._protocol
        return replace(
            asked,
            judge=(str(self._builder.judge()),),
            baseline=asked.baseline or self._builder.baseline_command(),
            reference=reference_process.command(self._card),
            labels=tuple(held_out.argument(case) for case in trial.cases if case.held_out),
            calls=self._calls if asked.calls is None else asked.calls,
            warmups=protocol.warmups,
            pairs=protocol.pairs if asked.pairs is None else asked.pairs,
            work_limit=self._work_limit(),
            times_count=protocol.times_count,
            call_limit_s=protocol.call_limit_s if asked.call_limit_s is None else asked.call_limit_s,
        )

    def run(self, trial: Trial) -> Judgement:
        """The judgement on a trial whose candidate is there.

        If the judge's own clock contradicts the times of a candidate that is not trusted, although the judge has timed
        others in their place (case_time.h), everything is measured once more: a busy processor makes an honest process
        look like a liar once but not again and again, and a liar lies again.

        If the judge itself fails next to a candidate, for example one that takes all of a GPU's memory, the baseline
        runs alone, and then both run again. If the judge fails only with the candidate, the candidate is to blame;
        otherwise this raises BaselineError.

        Calls that allocate large memory through the driver wait for what it does for the machine's other GPUs. If that
        is seen, everything is measured again, from then on while nothing of ours runs on those GPUs; with `quiet` from
        the start. Results from a run `together` with others still count if no such allocation was made.
        """
        quiet = trial.quiet or (self._quiet and self.request(trial) not in self._of_batch)
        first = self._measured(replace(trial, quiet=quiet))
        if quiet or first.asked_bytes < CHUNK_BYTES or not self._device.shares_driver:
            return first
        self._quiet = True
        second = self._measured(replace(trial, quiet=True))
        return replace(second, seconds=first.seconds + second.seconds)

    def _measured(self, trial: Trial) -> Judgement:
        first = self._blamed(trial)
        if first.status is not Status.REJECTED:
            return first
        second = self._blamed(trial)
        note = f"measured a second time, since the first time {first.detail}"
        return replace(second, seconds=first.seconds + second.seconds, notes=(*second.notes, note))

    def _blamed(self, trial: Trial) -> Judgement:
        """The judgement, in which a judge that fails only with the candidate is the candidate's fault."""
        try:
            return self._judged(trial)
        except BaselineError as error:
            own_fault = isinstance(error, ReferenceFailed) and not isinstance(error, ReferenceStopped)
            if own_fault or not trial.request.candidate:
                raise
        alone = self._judged(replace(trial, request=trial.request.of_baseline))
        try:
            return self._judged(trial)
        except BaselineError as error:
            whom, them = ("these kernels", "them") if trial.request.rival else ("this candidate", "it")
            detail = f"with {whom}, and not without {them}: {error.reason}"
            return replace(alone, status=Status.FAULT, detail=detail, cases=())

    def _judged(self, trial: Trial) -> Judgement:
        doubted = trial.doubted if self._protocol.times_count else ()
        return judge(*self.report(trial), trial.cases, doubted=doubted)

    def report(self, trial: Trial, *, doing: str | None = None) -> Reported:
        """What the judge reported, not judged yet, and how its process ended. `doing` is shown to whoever waits.

        A run that was started `ahead` continues; one of a batch has ended (`together`).
        """
        request = self.request(trial)
        if not trial.quiet and (reported := self._of_batch.pop(request, None)) is not None:
            return reported
        started = monotonic()
        ahead = next((ahead for ahead in tuple(self._started) if ahead.request.result() == request), None)
        if ahead is None:
            lines, ran = self._run(request, trial, doing=doing)
        else:
            self._started.remove(ahead)
            ahead.gate.open(quiet=trial.quiet and request.measures)
            lines, ran = ahead.reported.result()
        return lines, replace(ran, waited=max(0.0, monotonic() - started - ran.seconds))

    @contextmanager
    def together(self, trials: Sequence[Trial]) -> Iterator[None]:
        """Runs trials of built candidates by one judge, which keeps its own process and the baseline's.

        Inside the block, `report` gives each trial's result once. A trial without an end, because the judge itself
        failed or was stopped, is then run by a judge of its own, and so is one whose process did not start or that took
        longer than its own limit. Either all of them time calls, or none does.
        """
        requests = [self.request(trial) for trial in trials]
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as name:
            folder = Path(name)
            runs = [
                _RunOfBatch(request, trial.limit_s, folder / str(number))
                for number, (request, trial) in enumerate(zip(requests, trials, strict=True))
            ]
            for run in runs:
                run.folder.mkdir()
            (folder / "batch").write_text("".join(run.lines for run in runs), encoding="utf-8")
            first = requests[0]
            batch = JudgeRequest(
                first.judge, first.baseline, reference=first.reference, calls=first.calls, batch=str(folder / "batch")
            )
            self._device.run(batch, folder / "report.jsonl", sum(trial.limit_s for trial in trials))
            self._of_batch.update((run.request, found) for run in runs if (found := run.reported()) is not None)
        try:
            yield
        finally:
            for request in requests:
                self._of_batch.pop(request, None)

    @contextmanager
    def ahead(self) -> Iterator[Callable[[Trial], None]]:
        """Gives a function that starts a run of the judge before its candidate is built, once.

        While the candidate is built, the judge makes the references of as many cases as it has time for. `report`
        for the same run lets it continue. If `report` is not called, the run ends with the block.
        """
        ahead = _Ahead()
        with threads(1) as pool:

            def start(trial: Trial) -> None:
                self._started.append(ahead)
                pool.submit(self._run_ahead, ahead, trial)
                report_lines.reader()  # made while the compiler works

            try:
                yield start
            finally:
                if ahead in self._started:
                    self._started.remove(ahead)
                ahead.gate.close()

    def _run_ahead(self, ahead: _Ahead, trial: Trial) -> None:
        try:
            request = self.request(trial)
        except BaseException as error:
            ahead.request.set_exception(error)
            return
        ahead.request.set_result(request)
        try:
            ahead.reported.set_result(self._run(request, trial, gate=ahead.gate))
        except BaseException as error:
            ahead.reported.set_exception(error)

    def _run(
        self, request: JudgeRequest, trial: Trial, *, gate: Gate | None = None, doing: str | None = None
    ) -> Reported:
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"
            doing = doing or ("checking and timing" if request.measures else "checking")
            with progress.judging(doing, report, len(trial.cases), lambda: gate is None or gate.opened):
                quiet = trial.quiet and request.measures
                ran = self._device.run(request, report, trial.limit_s, quiet=quiet, gate=gate)
            return parse(report.read_text("utf-8", "replace")) if report.is_file() else [], ran

    def large(self, seed: int) -> list[Case]:
        """Large held-out cases; on a device with a work limit, only those no heavier than a timed case that runs."""
        drawn, limit = list(held_out.draw(self._card, seed, largest=True)), self._work_limit()
        if limit is None:
            return drawn
        heaviest = max((case.weight for case in self._card.cases if case.sweep and case.weight <= limit), default=limit)
        return [case for case in drawn if case.weight <= heaviest]

    def light(self, most: float) -> list[Case]:
        """Timed cases up to a weight, the lightest first, to be checked as held-out ones are."""
        timed = (case for case in self._card.cases if case.sweep and case.weight <= most)
        return [
            case.model_copy(update={"held_out": True, "sweep": False})
            for case in sorted(timed, key=lambda case: case.weight)
        ]

    def runs(self, case: Case) -> bool:
        """Whether a timed case is no more work than this device does."""
        limit = self._work_limit()
        return limit is None or case.weight <= limit

    def _work_limit(self) -> float | None:
        """Weight of the heaviest timed case that runs. The lightest one runs too, so that there is a score, unless it
        would take minutes: then none runs, and a model alone gives times."""
        limit = self._protocol.work_limit
        lightest = min(case.weight for case in self._card.cases if case.sweep)
        if limit is None or lightest > _HOPELESS:
            return limit if limit is None else max(limit, 1.0)  # to a judge, 0 is no limit
        return max(limit, lightest)


@dataclass(frozen=True)
class _RunOfBatch:
    """One of a judge's runs: the request that it stands for, its limit, and the folder for its report and output."""

    request: JudgeRequest
    limit_s: float
    folder: Path

    @property
    def lines(self) -> str:
        """Its part of the batch's file: one word per line, then an empty line. All runs share the baseline."""
        words = [*self.request.options, "--report", str(self._report), "--output", str(self._log)]
        return "".join(f"{word}\n" for word in words) + "\n"

    @property
    def _report(self) -> Path:
        return self.folder / "report.jsonl"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def reported(self) -> Reported | None:
        """What the judge reported about it, if it came to an end for which the candidate is responsible."""
        lines = parse(self._report.read_text("utf-8", "replace")) if self._report.is_file() else []
        last = lines[-1] if lines else None
        if last is None or last.t > self.limit_s:
            return None
        if isinstance(last, End):
            code = 0 if last.ok else 1
        elif isinstance(last, Fault) and last.error == _NOT_UP:
            return None  # earlier ones may have left the device in a bad state
        elif isinstance(last, Fault | Timeout) and last.who == "candidate":
            code = _FAILED[last.event]
        else:
            return None
        with self._log.open("rb") as log:
            output = ends(log)
        return lines, Ran(code, None, expired=False, stderr=output, seconds=last.t)
