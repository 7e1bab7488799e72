"""How the judge is run: which workers, cases and options its command names, and its report judged.

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
from cudamaster.core.errors import BaselineError
from cudamaster.core.values import Status
from cudamaster.devices import cases as progress
from cudamaster.devices.gate import Gate
from cudamaster.devices.process import ends, threads
from cudamaster.devices.protocol import Device, MeasuringProtocol, Ran, baseline_alone, worker_words
from cudamaster.judging.report_lines import End, Fault, Line, Timeout
from cudamaster.judging.verdicts import Judgement, judge, parse
from cudamaster.tasks import held_out
from cudamaster.tasks.cards import Case, TaskCard

CHECK_LIMIT_S = 600.0
_FAILED = {"fault": 70, "timeout": 75}  # the judge's exit codes where a line of this kind ends a run
_NOT_UP = "failed at its start"  # the error of a worker that made no call (mskb/workers.h)
CHUNK_BYTES = 2 << 20  # larger allocations go to the driver in every call (mskb/used_process.h)
VERIFY = ("--cases", "verify", "--calls", "0")

Reported = tuple[list[Line], Ran]


@dataclass(frozen=True)
class Trial:
    """One run of the judge: the command of the candidate's worker, the cases, and the judge's options."""

    candidate: Sequence[str]
    cases: Sequence[Case]
    options: Sequence[str]
    seed: int
    limit_s: float
    reversed_threads: bool = False


@dataclass(frozen=True, eq=False)
class _Ahead:
    """A run that started before its candidate was built: the judge's command, and its result."""

    gate: Gate = field(default_factory=Gate)
    command: Future[list[str]] = field(default_factory=Future)
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
        """`calls` are timed per case where a run's options do not say otherwise; `seed` is as the workbench has it."""
        self._card = card
        self._builder = builder
        self._device = device
        self._protocol = protocol
        self._calls = calls
        self._seed = seed
        self._started: list[_Ahead] = []
        self._told: dict[tuple[str, ...], Reported] = {}  # of a batch, by the judge's command
        self._quiet = False

    @property
    def seed_is_fixed(self) -> bool:
        """Whether every evaluation has the same inputs."""
        return self._seed is not None

    def draw_seed(self) -> int:
        """The seed of the inputs of one evaluation: a fresh one unless it is fixed."""
        return secrets.randbits(63) if self._seed is None else self._seed

    def workers(self, candidate: Sequence[str]) -> list[str]:
        """The judge's options that say who is judged; `candidate` is the command of its worker."""
        baseline = [str(self._builder.baseline_worker())]
        return [*worker_words("baseline", baseline), *worker_words("candidate", candidate)]

    def verifying(
        self, candidate: Sequence[str], seed: int, more: Sequence[str], *, reversed_threads: bool = False
    ) -> Trial:
        """The trial on the verification cases and small held-out ones."""
        return Trial(candidate, self.verification(seed), [*VERIFY, *more], seed, CHECK_LIMIT_S, reversed_threads)

    def run_trial(self, trial: Trial, *, quiet: bool = False, trusted: bool = False) -> Judgement:
        """The judgement of a trial of a candidate that is there (`run`)."""
        return self.run(
            self.workers(trial.candidate),
            trial.cases,
            trial.options,
            trial.seed,
            trial.limit_s,
            reversed_threads=trial.reversed_threads,
            quiet=quiet,
            trusted=trusted,
        )

    def verification(self, seed: int) -> list[Case]:
        """The verification cases and small held-out ones."""
        return [*(case for case in self._card.cases if not case.sweep), *held_out.draw(self._card, seed)]

    def run(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        quiet: bool = False,
        trusted: bool = False,
    ) -> Judgement:
        """The judgement on those cases, by the judge run with those options.

        `trusted` is a candidate that is the baseline itself, which has no reason to lie about its times. If the judge's
        own clock contradicts another candidate's times, everything is measured once more: a busy processor makes an
        honest process look like a liar once but not twice, and a liar lies again.

        If the judge itself fails next to a candidate, for example one that takes all of a GPU's memory, the baseline
        runs alone, and then both run again. If the judge fails only with the candidate, the candidate is to blame;
        otherwise this raises BaselineError.

        Calls that allocate large memory through the driver wait for what it does for the machine's other GPUs. If that
        is seen, everything is measured again, from then on while nothing of ours runs on those GPUs; with `quiet` from
        the start. Results from a run `together` with others still count if no such allocation was made.
        """

        quiet = quiet or (self._quiet and tuple(self._command(workers, cases, options, seed)) not in self._told)
        told = self._measured(workers, cases, options, seed, limit_s, reversed_threads, quiet, trusted)
        if quiet or told.asked_bytes < CHUNK_BYTES or not self._device.shares_driver:
            return told
        self._quiet = True
        again = self._measured(workers, cases, options, seed, limit_s, reversed_threads, True, trusted)
        return replace(again, seconds=told.seconds + again.seconds)

    def _measured(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        reversed_threads: bool,
        quiet: bool,
        trusted: bool,
    ) -> Judgement:
        rivalled = "--rival" in workers
        doubted = () if trusted else ("candidate", "rival") if rivalled else ("candidate",)

        def told(workers: Sequence[str], more: Sequence[str] = ()) -> Reported:
            every = [*options, *more]
            return self.report(workers, cases, every, seed, limit_s, reversed_threads=reversed_threads, quiet=quiet)

        def once() -> Judgement:
            return judge(*told(workers), cases, doubted=doubted)

        def whoever_failed() -> Judgement:
            try:
                return once()
            except BaselineError:
                if "--candidate" not in workers:
                    raise
            alone = judge(*told(baseline_alone(workers), ["--baseline-only", "--calls", "0"]), cases)
            try:
                return once()
            except BaselineError as error:
                whose = "these kernels, and not without them" if rivalled else "this candidate, and not without it"
                detail = f"with {whose}: {error.reason}"
                return replace(alone, status=Status.FAULT, detail=detail, cases=())

        first = whoever_failed()
        if first.status is not Status.REJECTED:
            return first
        second = whoever_failed()
        note = f"measured a second time, since the first time {first.detail}"
        return replace(second, seconds=first.seconds + second.seconds, notes=(*second.notes, note))

    def report(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        quiet: bool = False,
        doing: str | None = None,
    ) -> Reported:
        """What the judge reported, not judged yet, and how its process ended. `doing` is shown to whoever waits.

        A run that was started `ahead` continues; one of a batch has ended (`together`).
        """
        command = self._command(workers, cases, options, seed)
        if not quiet and (told := self._told.pop(tuple(command), None)) is not None:
            return told
        started = monotonic()
        ahead = next((ahead for ahead in tuple(self._started) if ahead.command.result() == command), None)
        if ahead is None:
            lines, ran = self._run(
                command, len(cases), limit_s, reversed_threads=reversed_threads, quiet=quiet, doing=doing
            )
        else:
            self._started.remove(ahead)
            ahead.gate.open(quiet=quiet and _alone(command))
            lines, ran = ahead.reported.result()
        return lines, replace(ran, waited=max(0.0, monotonic() - started - ran.seconds))

    @contextmanager
    def together(self, trials: Sequence[Trial]) -> Iterator[None]:
        """Runs trials of built candidates by one judge, which keeps its own process and the baseline's.

        Inside the block, `report` gives each trial's result once. A trial without an end, because the judge itself
        failed or was stopped, is then run by a judge of its own, and so is one whose process did not start. Either all
        of them time calls, or none does.
        """
        commands = [self._command(self.workers(t.candidate), t.cases, t.options, t.seed) for t in trials]
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as name:
            folder = Path(name)
            runs = [_RunOfBatch(command, folder / str(number)) for number, command in enumerate(commands)]
            for run in runs:
                run.folder.mkdir()
            (folder / "batch").write_text("".join(run.options for run in runs), encoding="utf-8")
            judge = [commands[0][0], *baseline_alone(commands[0]), "--batch", str(folder / "batch")]
            limit_s = sum(trial.limit_s for trial in trials)
            self._device.run(judge, folder / "report.jsonl", limit_s, alone=_alone(commands[0]))
            self._told.update((tuple(run.command), told) for run in runs if (told := run.told()) is not None)
        try:
            yield
        finally:
            for command in commands:
                self._told.pop(tuple(command), None)

    @contextmanager
    def ahead(self) -> Iterator[Callable[[Trial], None]]:
        """Gives a function that starts a run of the judge before its candidate is built, once.

        The judge, the baseline's process and the reference of the first case are ready when the candidate is. `report`
        for the same run lets it continue. If `report` is not called, the run ends with the block.
        """
        ahead = _Ahead()
        with threads(1) as pool:

            def start(trial: Trial) -> None:
                self._started.append(ahead)
                pool.submit(self._run_ahead, ahead, trial)

            try:
                yield start
            finally:
                if ahead in self._started:
                    self._started.remove(ahead)
                ahead.gate.close()

    def _run_ahead(self, ahead: _Ahead, trial: Trial) -> None:
        try:
            command = self._command(self.workers(trial.candidate), trial.cases, trial.options, trial.seed)
        except BaseException as error:
            ahead.command.set_exception(error)
            return
        ahead.command.set_result(command)
        try:
            reported = self._run(
                command,
                len(trial.cases),
                trial.limit_s,
                reversed_threads=trial.reversed_threads,
                quiet=False,
                gate=ahead.gate,
            )
        except BaseException as error:
            ahead.reported.set_exception(error)
        else:
            ahead.reported.set_result(reported)

    def _run(
        self,
        command: Sequence[str],
        cases: int,
        limit_s: float,
        *,
        reversed_threads: bool,
        quiet: bool,
        gate: Gate | None = None,
        doing: str | None = None,
    ) -> Reported:
        alone = _alone(command)
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"
            doing = doing or ("checking and timing" if alone else "checking")
            with progress.judging(doing, report, cases, lambda: gate is None or gate.opened):
                ran = self._device.run(
                    command,
                    report,
                    limit_s,
                    reversed_threads=reversed_threads,
                    alone=alone,
                    quiet=quiet and alone,
                    gate=gate,
                )
            return parse(report.read_text("utf-8", "replace")) if report.is_file() else [], ran

    def _command(self, workers: Sequence[str], cases: Sequence[Case], options: Sequence[str], seed: int) -> list[str]:
        """The judge's command for those cases."""
        command = [str(self._builder.judge()), *workers]
        command += ["--seed", str(seed), "--warmups", str(self._protocol.warmups)]
        command += ["--pairs", str(self._protocol.pairs)]
        if "--calls" not in options:
            command += ["--calls", str(self._calls)]
        if (limit := self._work_limit()) is not None:
            command += ["--work-limit", f"{limit:.17g}"]
        command += ["--call-limit", f"{self._protocol.call_limit_s:g}", *options]
        for case in cases:
            if case.held_out:
                command += ["--case", held_out.argument(case)]
        return command

    def large(self, seed: int) -> list[Case]:
        """Large held-out cases; on a device with a work limit, only those no heavier than a timed case that runs."""
        drawn, limit = list(held_out.draw(self._card, seed, largest=True)), self._work_limit()
        if limit is None:
            return drawn
        heaviest = max(case.weight for case in self._card.cases if case.sweep and case.weight <= limit)
        return [case for case in drawn if case.weight <= heaviest]

    def _work_limit(self) -> float | None:
        """Weight of the heaviest timed case that runs. The lightest one always runs, so that there is a score."""
        limit = self._protocol.work_limit
        lightest = min(case.weight for case in self._card.cases if case.sweep)
        return None if limit is None else max(limit, lightest)


def _alone(command: Sequence[str]) -> bool:
    """Whether a judge with this command times calls."""
    return command[command.index("--calls") + 1] != "0"


@dataclass(frozen=True)
class _RunOfBatch:
    """One of a judge's runs: the command that it stands for, and the folder for its report and output."""

    command: Sequence[str]
    folder: Path

    @property
    def options(self) -> str:
        """Its part of the batch's file: one word per line, then an empty line. All runs share the baseline."""
        own = self.command[1 + len(baseline_alone(self.command)) :]
        words = [*own, "--report", str(self._report), "--output", str(self._log)]
        return "".join(f"{word}\n" for word in words) + "\n"

    @property
    def _report(self) -> Path:
        return self.folder / "report.jsonl"

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def told(self) -> Reported | None:
        """What the judge reported about it, if it came to an end for which the candidate is responsible."""
        lines = parse(self._report.read_text("utf-8", "replace")) if self._report.is_file() else []
        last = lines[-1] if lines else None
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
