"""From a candidate to its verdict, and from a correct candidate to the findings of its profile.

The workbench of one task, precision and device: it builds, runs the harness in a process of its own, and judges.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from cudamaster import faults, floors, held_out, sanitizers
from cudamaster.building import Build, Builder
from cudamaster.cards import Case, TaskCard
from cudamaster.devices.protocol import Device, MeasuringProtocol, Observing, worker_words
from cudamaster.errors import DeviceError, UsageError
from cudamaster.harness import baseline_region
from cudamaster.judging import Judgement, judge, parse
from cudamaster.modelled import Modeller, counter
from cudamaster.profiling.profiler import Profiler
from cudamaster.profiling.thresholds import Thresholds
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.sanitizers import SanitizerReport, Tool
from cudamaster.values import (
    Candidate,
    Findings,
    Hardware,
    Hold,
    Precision,
    ProfileMode,
    Seconds,
    Status,
    Verdict,
    content_hash,
)

_CHECK_LIMIT_S = 600.0
_RUN_LIMIT_S = 1200.0
_VENDOR_CALL_LIMIT = ["--call-limit", "30"]  # seconds: the first call may load a library's kernels from a disk
_BRIEFLY = ("--pairs", "1", "--calls", "10", "--extra-seconds", "0")
_SANITIZED_CALL_LIMIT_S = 60.0  # a tool slows a kernel down a thousandfold


@dataclass(frozen=True)
class _Looked:
    """What a run of the build that looks for faults came to, and what was found."""

    judgement: Judgement
    reports: tuple[SanitizerReport, ...]

    @property
    def found(self) -> tuple[SanitizerReport, ...]:
        return tuple(report for report in self.reports if report.findings)


class Workbench:
    """Builds, checks and times candidates of one task and precision on one device."""

    def __init__(
        self,
        card: TaskCard,
        precision: Precision,
        device: Device,
        *,
        seed: int | None = None,
        calls: int | None = None,
        protocol: MeasuringProtocol | None = None,
        profile: ProfileMode = ProfileMode.FILTERED,
        thresholds: Thresholds | None = None,
        modelled: bool = True,
        brief_baseline: bool = False,
    ) -> None:
        """`seed` fixes the inputs of every evaluation; by default each one draws a fresh seed and records it.

        `protocol` is the device's own by default, and `calls`, how many calls per case are timed, what it says.
        `profile` and `thresholds`, the paper's by default, are for `findings`. On a device that only emulates, times
        are those of a model of a GPU (modelled.py), unless `modelled` is off: then they are the device's own.
        `brief_baseline` times the baseline against itself by few calls of one pair of processes: where its P is 1 by
        definition, as in a search, its times are for readers alone.
        """
        self.card = card
        self.precision = precision
        self.device = device
        self._seed = seed
        self._protocol = protocol or device.protocol
        self._calls = self._protocol.calls if calls is None else calls
        self._builder = Builder(card, precision, device)
        self._modeller = (
            Modeller(self._builder, counter(self._builder, device), seed=seed) if device.emulated and modelled else None
        )
        self.profiler = Profiler(self._builder, device, self._modeller)
        self._profile = profile
        self._thresholds = thresholds or load_thresholds()
        self._brief_baseline = brief_baseline
        # Called with a candidate's id and its build log the moment the build has ended.
        self.on_build: Callable[[str, str], None] | None = None

    @property
    def baseline(self) -> Candidate:
        """The baseline as a candidate: C_0 of algorithm 1."""
        code = baseline_region(self.card, self.precision)
        return Candidate(self.card.name, self.precision, code, self.device.default_command)

    @property
    def hardware(self) -> Hardware:
        """The device in figures, with what was measured of a GPU, or the GPU that is modelled."""
        hardware, limits = self.device.hardware(), floors.limits(self.device)
        if self._modeller is not None:
            return self._modeller.hardware(hardware)
        return hardware if limits is None else replace(hardware, figures={**hardware.figures, **limits.figures})

    @property
    def on_hold(self) -> Callable[[Hold], None] | None:
        """Called each time the device was held for this workbench, once it is free again."""
        return self.device.on_hold

    @on_hold.setter
    def on_hold(self, call: Callable[[Hold], None] | None) -> None:
        self.device.on_hold = call

    def key(self, candidate: Candidate) -> str:
        """Hash of all that a verdict on the candidate depends on, but for the inputs' seed."""
        model = self._modeller.fingerprint if self._modeller is not None else ""
        return content_hash(self._builder.key(candidate), self.device.name, self.device.fingerprint, model)

    def evaluate(
        self,
        candidate: Candidate,
        *,
        check_only: bool = False,
        first_failure: bool = False,
        to_beat: float | None = None,
    ) -> Verdict:
        """Build, check and time a candidate. A kernel that fails is a verdict; DeviceError is for our own faults.

        With `check_only` the verification cases alone are run and nothing is timed, so there is no score. Either way
        it meets small cases drawn from the evaluation's seed, and in a full one large ones too (held_out.py). With
        `first_failure` the cases behind the first that is not right are left out. With `to_beat`
        compute-sanitizer looks too, where the device has it: a score above counts only where it finds
        nothing, and of a fault it says more.
        """
        with self._builder.using(candidate):
            seed = secrets.randbits(63) if self._seed is None else self._seed
            build = self._builder.build(candidate, check_only=check_only)
            if self.on_build is not None:
                self.on_build(candidate.id, _build_log(build))
            verdict = self._begun(candidate.id, build, seed)
            if build.status is not None:
                return verdict
            quiet = not check_only and self._builder.asks_driver(candidate)
            stop = ["--first-failure"] if first_failure else []
            told = self._judged(verdict, candidate, build, seed, stop, check_only=check_only, quiet=quiet)
            if self._modeller is not None and told.score is not None:
                told = self._modeller.verdict(told, candidate, self.baseline)
            if to_beat is None:
                return told
            if told.score is not None and told.score > to_beat:
                return self._sanitized(told, candidate)
            return self._explained(told, candidate)

    def _begun(self, candidate: str, build: Build, seed: int) -> Verdict:
        """A verdict as far as the build goes."""
        return Verdict(
            candidate=candidate,
            device=self.device.name,
            emulated=self.device.emulated,
            status=build.status or Status.CORRECT,
            detail=build.detail,
            log=build.log,
            seed=seed,
            seconds=Seconds(build=build.seconds),
            build=build.record,
        )

    def _judged(
        self,
        verdict: Verdict,
        candidate: Candidate,
        build: Build,
        seed: int,
        stop: Sequence[str],
        *,
        check_only: bool,
        quiet: bool,
    ) -> Verdict:
        """The verdict on a candidate that was built, filled in."""
        with ThreadPoolExecutor(1) as pool:
            looks = self.device.has_debug_build
            # Who wants the first failure alone is told no more than that.
            looking = pool.submit(self._look_for_faults, candidate, seed, stop) if looks and not stop else None
            checked = self._check_memory(build, seed, stop)
            right = checked is None or checked.status is Status.CORRECT
            if looking is None and looks and right:
                looking = pool.submit(self._look_for_faults, candidate, seed, stop)
            looked = None if looking is None else looking.result()
        if looked is not None and looked.judgement.status is Status.TIMEOUT and not looked.found:
            # It is a hundred times as slow as the device: that says nothing of the kernel.
            verdict = replace(
                verdict, notes=(*verdict.notes, f"not wholly checked for races: {looked.judgement.detail}")
            )
        elif looked is not None and looked.judgement.status is not Status.CORRECT and (looked.found or right):
            return self._with_faults(self._told(verdict, looked.judgement), looked, candidate, checked)
        if checked is not None and (check_only or checked.status is not Status.CORRECT):
            return self._told(verdict, checked)
        assert build.worker is not None
        workers = self._workers([str(build.worker)])
        if check_only:
            return self._told(verdict, self._verify(workers, seed, stop))
        cases = [*self.card.cases, *held_out.draw(self.card, seed), *self._large(seed)]
        preparing = self._modeller.preparing(self.baseline, candidate) if self._modeller is not None else nullcontext()
        brief = _BRIEFLY if self._brief_baseline and candidate.id == self.baseline.id else ()
        with preparing:
            judgement = self._run(workers, cases, ["--cases", "all", *stop, *brief], seed, _RUN_LIMIT_S, quiet=quiet)
        if checked is not None:
            seconds = replace(judgement.seconds, check=judgement.seconds.check + checked.seconds.check)
            judgement = replace(judgement, seconds=seconds)
        return self._with_floors(self._told(verdict, judgement))

    def check_faults(self, candidate: Candidate) -> Verdict:
        """What the checker of races and other faults alone says of a candidate that the guards need not see.

        DeviceError where the device has none.
        """
        with self._builder.using(candidate):
            self._builder.build_shared()
            seed = secrets.randbits(63) if self._seed is None else self._seed
            looked = self._look_for_faults(candidate, seed, ["--first-failure"])
            if looked is None:
                raise DeviceError(f"The {self.device.name} device does not look for faults.", "Use --device cpu.")
            verdict = self._begun(candidate.id, Build(None, "", ""), seed)
            return self._with_faults(self._told(verdict, looked.judgement), looked, candidate, None)

    def _look_for_faults(self, candidate: Candidate, seed: int, options: Sequence[str]) -> _Looked | None:
        """Verification cases under the checker of races and other faults, where the device has that.

        A candidate that the other builds took and this one does not take is judged by what its compiler says.
        """
        if not isinstance(self.device, Observing):
            return None
        build = self._builder.checked_worker(candidate)
        if build.worker is None:
            assert build.status is not None
            failed = Judgement(build.status, build.detail, build.log, (), Seconds(build=build.seconds), {})
            return _Looked(failed, ())
        cases = [*(case for case in self.card.cases if not case.sweep), *held_out.draw(self.card, seed)]
        workers = self._workers([str(build.worker), "--exact"])
        command = self._command(workers, cases, ["--cases", "verify", "--calls", "0", *options], seed)
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"
            ran = self.device.run(command, report, _CHECK_LIMIT_S, alone=False)
            lines = parse(report.read_text("utf-8", "replace")) if report.is_file() else []
        reports = faults.reports(ran.stderr, build.worker, candidate.code)
        return _Looked(judge(lines, replace(ran, stderr=faults.without_findings(ran.stderr)), cases), reports)

    def _with_faults(
        self, verdict: Verdict, looked: _Looked, candidate: Candidate, checked: Judgement | None
    ) -> Verdict:
        """The verdict on a candidate with the faults that were found, and what else is wrong with it."""
        if not looked.found:
            return verdict
        detail = "; ".join(report.summary for report in looked.found)
        logs = [report.explain(candidate.code) for report in looked.found]
        if checked is not None and checked.status is not Status.CORRECT:
            logs.append(f"Besides, {checked.detail}\n{checked.log}".rstrip())
        return replace(verdict, status=Status.FAULT, detail=detail, log="\n\n".join(logs), score=None, speed=None)

    def compare(self, first: Candidate, second: Candidate) -> tuple[Verdict, Verdict]:
        """Check both, and time `second` against `first`: the second verdict's score is its speedup over `first`.

        Where one is not right, the other's verdict holds as far as it got, and nothing is timed.
        """
        with self._builder.using(first), self._builder.using(second):
            checked = [self.evaluate(candidate, check_only=True) for candidate in (first, second)]
            if not all(verdict.correct for verdict in checked):
                return checked[0], checked[1]
            builds = [self._builder.build(candidate) for candidate in (first, second)]
            assert all(build.worker is not None for build in builds)  # they were built before
            workers = [[str(build.worker)] for build in builds]
            seed = secrets.randbits(63) if self._seed is None else self._seed
            cases = [*self.card.cases, *held_out.draw(self.card, seed), *self._large(seed)]
            alone = self._run(self._workers(workers[0]), cases, ["--cases", "all", "--calls", "0"], seed, _RUN_LIMIT_S)
            together = [*self._workers(workers[1]), *worker_words("rival", workers[0])]
            quiet = self._builder.asks_driver(first, second)
            judgement = self._run(together, cases, ["--cases", "all"], seed, _RUN_LIMIT_S, quiet=quiet)
            verdicts = [replace(verdict, seed=seed) for verdict in checked]
            told = self._told(verdicts[1], judgement)
            if self._modeller is not None:
                told = self._modeller.verdict(told, second, first)
            return self._told(verdicts[0], alone), self._with_floors(told)

    def vendor_worker(self, text: str, about: str, flags: Sequence[str], libraries: Sequence[Path]) -> Path:
        """Build a vendor's file with what every evaluation shares (building.py). Raises DeviceError."""
        self._builder.build_shared()
        return self._builder.vendor_worker(text, about, flags, libraries)

    def evaluate_vendor(self, worker: Path, name: str, *, check_only: bool = False) -> Verdict:
        """Check and time a vendor's worker in a candidate's place; `name` stands for a candidate's id.

        Its first calls load kernels of the library, and have more time than a candidate's.
        """
        seed = secrets.randbits(63) if self._seed is None else self._seed
        workers = self._workers([str(worker)])
        if check_only:
            judgement = self._verify(workers, seed, _VENDOR_CALL_LIMIT)
        else:
            cases = [*self.card.cases, *held_out.draw(self.card, seed), *self._large(seed)]
            options = ["--cases", "all", *_VENDOR_CALL_LIMIT]
            # What a library asks of the driver is not known.
            judgement = self._run(workers, cases, options, seed, _RUN_LIMIT_S, quiet=True)
        verdict = Verdict(
            candidate=name,
            device=self.device.name,
            emulated=self.device.emulated,
            status=judgement.status,
            detail=judgement.detail,
            seed=seed,
        )
        told = self._told(verdict, judgement)
        return told if check_only else self._with_floors(told)

    def against_vendor(self, candidate: Candidate, worker: Path) -> Verdict:
        """Check a candidate and time it against a vendor's worker: its score is its speedup over the library.

        The worker has to be known as right: what it makes here is not looked at.
        """
        with self._builder.using(candidate):
            build = self._builder.build(candidate)
            seed = secrets.randbits(63) if self._seed is None else self._seed
            verdict = self._begun(candidate.id, build, seed)
            if build.worker is None:
                return verdict
            workers = [*self._workers([str(build.worker)]), *worker_words("rival", [str(worker)])]
            options = ["--cases", "all", *_VENDOR_CALL_LIMIT]
            judgement = self._run(workers, self.card.cases, options, seed, _RUN_LIMIT_S, quiet=True)
            return self._with_floors(self._told(verdict, judgement))

    def sanitize(self, candidate: Candidate, tools: Sequence[Tool]) -> tuple[SanitizerReport, ...]:
        """What compute-sanitizer's tools say of a candidate at the verification sizes; where the device has a checker
        of its own, what that says.

        Raises DeviceError where there is no such tool, and UsageError for a candidate that does not build.
        """
        path = sanitizers.find()
        looks = isinstance(self.device, Observing)
        if not looks and (self.device.emulated or path is None):
            reason = f"the {self.device.name} device has none" if self.device.emulated else sanitizers.NOT_INSTALLED
            raise DeviceError(f"compute-sanitizer cannot be run: {reason}.", "`cudamaster doctor` says what is there.")
        with self._builder.using(candidate):
            build = self._builder.built(candidate)
            if build.worker is None:
                fix = "`cudamaster evaluate` shows the whole log."
                raise UsageError(f"The kernel does not build: {build.detail}", fix)
            seed = secrets.randbits(63) if self._seed is None else self._seed
            if (looked := self._look_for_faults(candidate, seed, ())) is not None:
                failed = looked.judgement.status is not Status.CORRECT and not looked.found
                why = looked.judgement.detail if failed else None
                return tuple(replace(report, failure=why) for report in looked.reports if report.tool in tools)
            assert path is not None
            worker = build.worker
            with ThreadPoolExecutor(max(len(tools), 1)) as pool:
                return tuple(pool.map(lambda tool: self._sanitize_with(path, tool, worker, seed), tools))

    def _sanitize_with(self, path: Path, tool: Tool, worker: Path, seed: int) -> SanitizerReport:
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            log = Path(folder) / "log.txt"
            program = sanitizers.command(path, tool, [str(worker), "--exact", "--unconfined"], log)
            command = [str(self._builder.judge()), *self._workers(program), "--cases", "verify", "--calls", "0"]
            command += ["--seed", str(seed), "--call-limit", f"{_SANITIZED_CALL_LIMIT_S:g}"]
            ran = self.device.run(command, Path(folder) / "report.jsonl", _CHECK_LIMIT_S, alone=False)
            text = log.read_text("utf-8", "replace") if log.is_file() else ""
        return sanitizers.parse(text or ran.stderr, tool)

    def _sanitized(self, verdict: Verdict, candidate: Candidate) -> Verdict:
        """The verdict on a new best, once compute-sanitizer has looked at it too, where it is there."""
        if self.device.emulated:
            return verdict
        if sanitizers.find() is None:
            note = f"compute-sanitizer did not look at this kernel: {sanitizers.NOT_INSTALLED}"
            return replace(verdict, notes=(*verdict.notes, note))
        reports = self.sanitize(candidate, sanitizers.GATE)
        said = {report.tool.value: report.summary for report in reports}
        failed = (f"{report.tool.value} {report.summary}" for report in reports if report.failure is not None)
        verdict = replace(verdict, sanitizers=said, notes=(*verdict.notes, *failed))
        found = [report for report in reports if report.findings]
        if not found:
            return verdict
        detail = "; ".join(f"{report.tool.value}: {report.summary}" for report in found)
        log = "\n\n".join(report.explain(candidate.code) for report in found)
        return replace(verdict, status=Status.FAULT, detail=detail, log=log, score=None, speed=None)

    def _explained(self, verdict: Verdict, candidate: Candidate) -> Verdict:
        """A fault on a GPU with what memcheck says of it, where that is there: a CUDA error names no line."""
        if verdict.status is not Status.FAULT or self.device.emulated or sanitizers.find() is None:
            return verdict
        (report,) = self.sanitize(candidate, (Tool.MEMCHECK,))
        said = {**verdict.sanitizers, report.tool.value: report.summary}
        log = f"{verdict.log}\n\nAt the verification sizes {report.explain(candidate.code)}"
        return replace(verdict, sanitizers=said, log=log.lstrip())

    def _with_floors(self, verdict: Verdict) -> Verdict:
        limits = floors.limits(self.device)
        return verdict if limits is None else floors.hold(verdict, self.card, self.precision, limits)

    def build_shared(self) -> None:
        """Build what every evaluation shares, unless it is cached."""
        self._builder.build_shared()

    def forget(self, candidate: Candidate) -> None:
        """Remove a candidate's builds from the cache. Nobody may be running them."""
        self._builder.forget(candidate)

    def build_baseline(self) -> None:
        """Build what `check_baseline` runs, unless it is cached."""
        self._builder.build_shared(debug_baseline=self.device.has_debug_build)

    def check_baseline(self, *, calls: int = 0) -> Judgement:
        """Hold the baseline against the reference, on every case that this device can run, and time `calls` calls.

        A device that only emulates runs the verification cases and small held-out ones alone, under its memory checker.
        """
        debug = self.device.has_debug_build
        worker = [str(self._builder.baseline_worker(debug)), *(["--exact"] if debug else [])]
        seed = secrets.randbits(63) if self._seed is None else self._seed
        cases = [case for case in self.card.cases if not (self.device.emulated and case.sweep)]
        cases += held_out.draw(self.card, seed)
        if not self.device.emulated:
            cases += self._large(seed)
        options = ["--cases", "verify" if self.device.emulated else "all", "--baseline-only", "--calls", str(calls)]
        quiet = self._builder.asks_driver()
        return self._run(worker_words("baseline", worker), cases, options, seed, _RUN_LIMIT_S, quiet=quiet)

    def _workers(self, candidate: Sequence[str]) -> list[str]:
        """The judge's options that say who is judged; `candidate` is the command of its worker."""
        baseline = [str(self._builder.baseline_worker())]
        return [*worker_words("baseline", baseline), *worker_words("candidate", candidate)]

    def _check_memory(self, build: Build, seed: int, options: Sequence[str]) -> Judgement | None:
        """Verification cases under the memory checker and in reversed thread order, where the device has that."""
        if build.debug is None:
            return None
        return self._verify(self._workers([str(build.debug), "--exact"]), seed, options, reversed_threads=True)

    def _verify(
        self, workers: Sequence[str], seed: int, more: Sequence[str], *, reversed_threads: bool = False
    ) -> Judgement:
        cases = [*(case for case in self.card.cases if not case.sweep), *held_out.draw(self.card, seed)]
        options = ["--cases", "verify", "--calls", "0", *more]
        return self._run(workers, cases, options, seed, _CHECK_LIMIT_S, reversed_threads=reversed_threads)

    def _large(self, seed: int) -> list[Case]:
        """Large held-out cases; on a device with a work limit those no heavier than a timed case that is run."""
        drawn, limit = list(held_out.draw(self.card, seed, largest=True)), self._work_limit()
        if limit is None:
            return drawn
        heaviest = max(case.weight for case in self.card.cases if case.sweep and case.weight <= limit)
        return [case for case in drawn if case.weight <= heaviest]

    def _work_limit(self) -> float | None:
        """Weight of the heaviest timed case that is run: the lightest one is in any case, so that there is a score."""
        limit = self._protocol.work_limit
        lightest = min(case.weight for case in self.card.cases if case.sweep)
        return None if limit is None else max(limit, lightest)

    def _run(
        self,
        workers: Sequence[str],
        cases: Sequence[Case],
        options: Sequence[str],
        seed: int,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        quiet: bool = False,
    ) -> Judgement:
        command = self._command(workers, cases, options, seed)
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            report = Path(folder) / "report.jsonl"
            alone = command[command.index("--calls") + 1] != "0"
            ran = self.device.run(
                command, report, limit_s, reversed_threads=reversed_threads, alone=alone, quiet=quiet and alone
            )
            lines = parse(report.read_text("utf-8", "replace")) if report.is_file() else []
        return judge(lines, ran, cases, rivalled="--rival" in workers)

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

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """What the profile filter says of a correct candidate."""
        return self.profiler.findings(candidate, verdict, self._thresholds, self._profile)

    def _told(self, verdict: Verdict, judgement: Judgement) -> Verdict:
        return replace(
            verdict,
            status=judgement.status,
            detail=judgement.detail,
            log=judgement.log,
            score=judgement.score,
            speed=judgement.speed,
            notes=(*verdict.notes, *judgement.notes),
            complete=judgement.complete,
            cases=judgement.cases,
            hardware={**judgement.hardware, "unit": self.device.unit} if judgement.hardware else {},
            seconds=replace(judgement.seconds, build=verdict.seconds.build),
        )


def _build_log(build: Build) -> str:
    """Every command with what it said, and the outcome."""
    parts = [f"{key}: {value}" for key, value in build.record.items() if value]
    return "\n".join([*parts, f"outcome: {build.status or 'built'}, {build.detail}", build.log]).rstrip() + "\n"
