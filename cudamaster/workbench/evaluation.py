"""From a candidate to its verdict, and from a correct candidate to the findings of its profile.

The workbench of one task, precision and device builds, runs the harness in a process of its own, and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from cudamaster.build.building import Build, Builder
from cudamaster.core.errors import BaselineError
from cudamaster.core.values import (
    RACES_UNSEEN,
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
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, MeasuringProtocol, Observing
from cudamaster.faults.compute_sanitizer import SanitizerReport, Tool
from cudamaster.faults.finding import FaultFinder, with_faults
from cudamaster.judging import reference_process, unreached
from cudamaster.judging.judge_process import CHECK_LIMIT_S, Trial, Trials
from cudamaster.judging.paper_protocol import PaperScore
from cudamaster.judging.unreached import Reach
from cudamaster.judging.verdicts import Judgement, joined
from cudamaster.profiling.thresholds import Thresholds
from cudamaster.profiling.thresholds import choose as choose_thresholds
from cudamaster.tasks import held_out, truth
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.tasks.harness import baseline_region, must_be_kernel
from cudamaster.workbench import floors
from cudamaster.workbench.profiler import Profiler

if TYPE_CHECKING:
    from cudamaster.modelling.gpu import Gpu
    from cudamaster.modelling.verdicts import Modeller

_RUN_LIMIT_S = 1200.0
_VENDOR_CALL_LIMIT_S = 30.0  # the first call may load a library's kernels from a disk
_BRIEFLY = JudgeRequest(pairs=1, calls=10, extra_seconds=0.0)


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
        thresholds: str | Thresholds = "paper",
        modelled: bool = True,
        brief_baseline: bool = False,
        builder: Callable[[TaskCard, Precision, Device], Builder] = Builder,
        modelled_gpu: Gpu | None = None,
    ) -> None:
        """`seed` fixes the inputs of every evaluation; by default each one draws a fresh seed and records it.

        `protocol` is the device's own by default; `calls`, the number of timed calls per case, is the protocol's by
        default. `profile` and `thresholds`, named as in `profiling.thresholds.choose`, are for `findings`. On a device
        that only emulates, a model of a GPU gives the times (verdicts.py), by default of the one that is chosen here,
        unless `modelled` is off: then they are the device's own. `brief_baseline` times the baseline against itself by
        few calls of one pair of processes. In a search its P is 1 by definition, and its times are only for readers.
        `builder` makes what builds candidates.
        """
        self.card = card
        self.precision = precision
        self.device = device
        protocol = protocol or device.protocol
        self._builder = builder(card, precision, device)
        calls = protocol.calls if calls is None else calls
        self._protocol, self._calls = protocol, calls
        self._trials = Trials(card, self._builder, device, protocol, calls=calls, seed=seed)
        self._faults = FaultFinder(self._builder, device, self._trials)
        self._modeller: Modeller | None = None
        if device.emulated and modelled:
            self._modeller = _modeller(self._builder, device, seed, modelled_gpu)
        self.profiler = Profiler(self._builder, device, self._modeller)
        self._profile = profile
        if isinstance(thresholds, str):
            thresholds = choose_thresholds(thresholds, self.profiled_gpu)
        self._thresholds = thresholds
        self._brief_baseline = brief_baseline
        # Called with a candidate's id and its build log the moment the build has ended.
        self.on_build: Callable[[str, str], None] | None = None

    @property
    def baseline(self) -> Candidate:
        """The baseline as a candidate: C_0 of algorithm 1.

        A module that eager PyTorch runs has no text in CUDA. Then this is a skeleton, from which a search starts; its
        verdict and its times are PyTorch's, with P = 1.
        """
        code = baseline_region(self.card, self.precision)
        return Candidate(self.card.name, self.precision, code, self.device.default_command)

    @property
    def hardware(self) -> Hardware:
        """The device in figures, with a GPU's measured limits, or with the modelled GPU."""
        hardware, limits = self.device.hardware(), floors.limits(self.device)
        if self._modeller is not None:
            return self._modeller.hardware(hardware)
        return hardware if limits is None else replace(hardware, figures={**hardware.figures, **limits.figures})

    @property
    def profiled_gpu(self) -> str:
        """Name of the GPU that profiles describe: the modelled one on a device that only emulates."""
        return self.device.hardware().name if self._modeller is None else self._modeller.gpu_name

    @property
    def on_hold(self) -> Callable[[Hold], None] | None:
        """Called after each time that this workbench held the device, once the device is free again."""
        return self.device.on_hold

    @on_hold.setter
    def on_hold(self, call: Callable[[Hold], None] | None) -> None:
        self.device.on_hold = call

    def key(self, candidate: Candidate) -> str:
        """Hash of everything that a verdict on the candidate depends on, except the inputs' seed."""
        model = self._modeller.fingerprint if self._modeller is not None else ""
        parts = [self._builder.key(candidate), self.device.name, self.device.fingerprint, model]
        return content_hash(*parts, *self._builder.eager_sources(), *reference_process.sources(self.card))

    def evaluate(
        self,
        candidate: Candidate,
        *,
        check_only: bool = False,
        first_failure: bool = False,
        to_beat: float | None = None,
    ) -> Verdict:
        """Build, check and time a candidate. A kernel that fails gets a verdict; DeviceError is for our own errors.

        With `check_only` only the verification cases run, on a device that tells launches also light ones for other
        kernels (unreached.py), and nothing is timed, so there is no score. Either way the candidate meets small cases
        drawn from the evaluation's seed, and in a full evaluation large ones too (held_out.py). With `first_failure`
        the cases after the first wrong one are left out. With `to_beat` compute-sanitizer runs too, if the device has
        it: a score above `to_beat` only counts if it finds nothing, and it explains a fault.
        """
        began = monotonic()
        if self._builder.stands_for_eager(candidate):
            verdict = self._of_eager(check_only=check_only, first_failure=first_failure)
            return _with_rest(verdict, monotonic() - began)
        seed = self._trials.draw_seed()
        first = self._first_trial(candidate, seed, check_only=check_only, first_failure=first_failure)
        with self._builder.using(candidate), self._trials.ahead() as start:
            build = self._builder.build(candidate, on_compile=lambda: start(first))
            if self.on_build is not None:
                self.on_build(candidate.id, _build_log(build))
            verdict = self._of_build(candidate, build, seed, check_only=check_only, first_failure=first_failure)
            if to_beat is not None and build.status is None:
                if verdict.score is not None and verdict.score > to_beat:
                    verdict = self._faults.sanitized(verdict, candidate)
                    verdict = replace(verdict, build={**verdict.build, **self._builder.instructions(candidate)})
                else:
                    verdict = self._faults.explained(verdict, candidate)
        return _with_rest(verdict, monotonic() - began)

    def evaluate_all(
        self, candidates: Sequence[Candidate], *, check_only: bool = False, first_failure: bool = False
    ) -> list[Verdict]:
        """What `evaluate` says about each of them, in less time if a process on the device takes long to start.

        They are built first. Then one judge, with one process of the baseline, judges them one after another; each has
        its own process and seed. If the seed is fixed, each also has its own judge: what one candidate leaves in the
        memory shared with the judge would be the right answer for the next.
        """
        # A device with a debug build runs differently, and its processes start quickly.
        eager = any(self._builder.stands_for_eager(one) for one in candidates)
        if self.device.has_debug_build or self._trials.seed_is_fixed or eager:
            return [self.evaluate(one, check_only=check_only, first_failure=first_failure) for one in candidates]
        with ExitStack() as block:
            built, trials = [], []
            for candidate in candidates:
                seed = self._trials.draw_seed()
                block.enter_context(self._builder.using(candidate))
                built.append((candidate, self._builder.build(candidate), seed))
                if built[-1][1].status is None:
                    trials.append(
                        self._first_trial(candidate, seed, check_only=check_only, first_failure=first_failure)
                    )
            if trials:
                block.enter_context(self._trials.together(trials))
            return [self._of_build(*one, check_only=check_only, first_failure=first_failure) for one in built]

    def _of_build(
        self, candidate: Candidate, build: Build, seed: int, *, check_only: bool, first_failure: bool
    ) -> Verdict:
        """The verdict on a candidate whose build has ended, well or not."""
        verdict = self._begun(candidate.id, build, seed)
        if build.status is None:
            verdict = self._judged(verdict, candidate, build, seed, check_only=check_only, first_failure=first_failure)
        # Without a score where nothing was to be timed, or where all that was is too long for this device.
        if self._modeller is not None and (verdict.score is not None or any(case.skipped for case in verdict.cases)):
            verdict = self._modeller.verdict(verdict, candidate, self._against)
        return verdict

    @property
    def _against(self) -> Candidate | None:
        """The baseline for the model of a GPU."""
        return self._modelled(self.baseline)

    def _modelled(self, candidate: Candidate) -> Candidate | None:
        """A candidate for the model of a GPU: None is eager PyTorch."""
        return None if self._builder.stands_for_eager(candidate) else candidate

    def _built(self, candidate: Candidate) -> tuple[Build, tuple[str, ...]]:
        """The build of a candidate, and the command of its worker: no words where the build failed.

        A baseline in eager PyTorch needs none: its worker is the one that all its candidates are timed against.
        """
        if self._builder.stands_for_eager(candidate):
            self._builder.build_shared()
            return Build(None, "built", ""), self._builder.baseline_command()
        build = self._builder.build(candidate)
        return build, () if build.worker is None else (str(build.worker),)

    def _of_eager(self, *, check_only: bool, first_failure: bool) -> Verdict:
        """The verdict on a baseline in eager PyTorch: itself in the candidate's place, as other baselines are."""
        build, command = self._built(self.baseline)
        seed = self._trials.draw_seed()
        if check_only:
            trial = self._trials.verifying(command, seed, first_failure=first_failure)
        else:
            request = replace(
                _BRIEFLY if self._brief_baseline else JudgeRequest(),
                candidate=command,
                seed=seed,
                first_failure=first_failure,
            )
            trial = Trial(request, self._all_cases(seed), _RUN_LIMIT_S, trusted=True)
        verdict = self._begun(self.baseline.id, build, seed)
        verdict = self._with_judgement(verdict, self._trials.run(trial))
        if check_only:
            return verdict
        return self._with_floors(verdict if self._modeller is None else self._modeller.verdict(verdict, None, None))

    def _first_trial(self, candidate: Candidate, seed: int, *, check_only: bool, first_failure: bool) -> Trial:
        """The first run of the judge of an evaluation: what `_judged` asks for once the candidate is built."""
        if self.device.has_debug_build:
            return self._memory_trial(candidate, seed, first_failure=first_failure)
        if check_only:
            worker = [str(self._builder.executable(candidate))]
            return self._trials.verifying(worker, seed, first_failure=first_failure)
        return self._timed_trial(candidate, seed, first_failure=first_failure)

    def _memory_trial(self, candidate: Candidate, seed: int, *, first_failure: bool) -> Trial:
        """Verification cases under the memory checker and in reversed thread order."""
        worker = [str(self._builder.executable(candidate, debug=True)), "--exact"]
        return self._trials.verifying(worker, seed, first_failure=first_failure, reversed_threads=True)

    def _reach(self, build: Build, seed: int) -> Reach:
        """Cases for kernels that are launched at timed sizes alone, on a device that can tell launches.

        No run that times may have begun ahead: it holds the device.
        """
        if build.worker is None or not isinstance(self.device, Observing):
            return Reach()
        checked = self._trials.verification(seed)
        return unreached.reach(self.card, self.device, self._builder.judge(), build.worker, checked)

    def _reaching_trial(self, worker: Path | None, seed: int, cases: Sequence[Case], sets: int | None) -> Trial:
        """A check of further cases, by the one or the other build of a candidate, on so many sets of inputs."""
        request = JudgeRequest(candidate=(str(worker),), cases="none", seed=seed, calls=0, sets=sets)
        return Trial(request, cases, CHECK_LIMIT_S)

    def _timed_trial(self, candidate: Candidate, seed: int, *, first_failure: bool) -> Trial:
        """All cases that this device can run, checked and timed."""
        is_baseline = candidate.id == self.baseline.id
        request = replace(
            _BRIEFLY if self._brief_baseline and is_baseline else JudgeRequest(),
            candidate=(str(self._builder.executable(candidate)),),
            seed=seed,
            first_failure=first_failure,
        )
        return Trial(request, self._all_cases(seed), _RUN_LIMIT_S, trusted=is_baseline)

    def _all_cases(self, seed: int) -> list[Case]:
        return [*self.card.cases, *held_out.draw(self.card, seed), *self._trials.large(seed)]

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
            notes=truth.notes(self.card),
            seconds=Seconds(build=build.seconds),
            build=build.record,
        )

    def _judged(
        self,
        verdict: Verdict,
        candidate: Candidate,
        build: Build,
        seed: int,
        *,
        check_only: bool,
        first_failure: bool,
    ) -> Verdict:
        """The verdict on a candidate that was built, filled in."""
        with threads(1) as pool:
            looks = self.device.has_debug_build
            look = partial(self._faults.look, candidate, seed, first_failure=first_failure)
            # Whoever asks for only the first failure gets no more than that.
            looking = pool.submit(look) if looks and not first_failure else None
            checked = None
            if build.debug is not None:
                checked = self._trials.run(self._memory_trial(candidate, seed, first_failure=first_failure))
            right = checked is None or checked.status is Status.CORRECT
            if looking is None and looks and right:
                looking = pool.submit(look)
            looked = None if looking is None else looking.result()
        if looked is not None and looked.judgement.status is Status.TIMEOUT and not looked.found:
            # The checker is a hundred times as slow as the device, so its time limit says nothing about the kernel.
            verdict = replace(verdict, notes=(*verdict.notes, f"{RACES_UNSEEN}: {looked.judgement.detail}"))
        elif looked is not None and looked.judgement.status is not Status.CORRECT and (looked.found or right):
            return with_faults(self._with_judgement(verdict, looked.judgement), looked, candidate, checked)
        if checked is not None and checked.status is not Status.CORRECT:
            return self._with_judgement(verdict, checked)
        if checked is not None:
            reach = self._reach(build, seed)
            runs = self._trials.runs if not check_only else (lambda case: False)
            verdict = replace(verdict, notes=(*verdict.notes, *reach.notes(runs)))
            for executable, cases, sets in ((build.debug, reach.light, None), (build.worker, reach.heavy(runs), 1)):
                if cases and checked.status is Status.CORRECT:
                    try:
                        checked = joined(checked, self._trials.run(self._reaching_trial(executable, seed, cases, sets)))
                    except BaselineError as error:  # sizes that nobody has listed may be none of the task's
                        verdict = replace(
                            verdict, notes=(*verdict.notes, f"cases for further kernels left out: {error.reason}")
                        )
            if check_only or checked.status is not Status.CORRECT:
                return self._with_judgement(verdict, checked)
        if check_only:
            worker = [str(self._builder.executable(candidate))]
            return self._with_judgement(
                verdict, self._trials.run(self._trials.verifying(worker, seed, first_failure=first_failure))
            )
        counted = [one for one in (self._against, candidate) if one is not None]
        preparing = self._modeller.preparing(*counted) if self._modeller is not None else nullcontext()
        with preparing:
            judgement = self._trials.run(self._timed_trial(candidate, seed, first_failure=first_failure))
        if checked is not None:
            judgement = replace(judgement, seconds=judgement.seconds + checked.seconds)
        return self._with_floors(self._with_judgement(verdict, judgement))

    def compare(self, first: Candidate, second: Candidate) -> tuple[Verdict, Verdict]:
        """Check both, and time `second` against `first`: the second verdict's score is its speedup over `first`.

        If one is wrong, the other's verdict holds as far as it got, and nothing is timed. Either may be a baseline in
        eager PyTorch.
        """
        with self._builder.using(first), self._builder.using(second):
            checked = [self.evaluate(candidate, check_only=True) for candidate in (first, second)]
            if not all(verdict.correct for verdict in checked):
                return checked[0], checked[1]
            workers = [self._built(candidate)[1] for candidate in (first, second)]
            assert all(workers)  # they were built before
            seed = self._trials.draw_seed()
            cases = self._all_cases(seed)
            alone = self._trials.run(Trial(JudgeRequest(candidate=workers[0], seed=seed, calls=0), cases, _RUN_LIMIT_S))
            together = JudgeRequest(candidate=workers[1], rival=workers[0], seed=seed)
            judgement = self._trials.run(Trial(together, cases, _RUN_LIMIT_S))
            verdicts = [replace(verdict, seed=seed) for verdict in checked]
            timed = self._with_judgement(verdicts[1], judgement)
            if self._modeller is not None:
                timed = self._modeller.verdict(timed, self._modelled(second), self._modelled(first), rivals=True)
            return self._with_judgement(verdicts[0], alone), self._with_floors(timed, rivalled=True)

    def by_paper(self, candidate: Candidate) -> PaperScore:
        """What the paper's protocol says about a candidate, and our own checks at the listed sizes alone.

        It need not be right at other sizes. On a device that only emulates, its times mean nothing. Raises UsageError
        for a baseline in eager PyTorch, which that protocol does not know.
        """
        must_be_kernel(self.card, self.precision, candidate.code)
        with self._builder.using(candidate):
            build, worker = self._built(candidate)
            if not worker:
                return PaperScore(build.status or Status.FAULT, build.detail)
            seed = self._trials.draw_seed()
            request = JudgeRequest(candidate=worker, cases="sweep", seed=seed, pairs=1, paper=True)
            timed = [case for case in self.card.cases if case.sweep]
            judgement = self._trials.run(Trial(request, timed, _RUN_LIMIT_S))
            left_out = sum(case.skipped is not None for case in judgement.cases)
            detail = f"{judgement.detail}, {left_out} too long for this device" if left_out else judgement.detail
            return PaperScore(judgement.status, detail, judgement.by_paper)

    def vendor_worker(self, text: str, about: str, flags: Sequence[str], libraries: Sequence[Path]) -> Path:
        """Build a vendor's file with what every evaluation shares (build/shared.py). Raises DeviceError."""
        self._builder.build_shared()
        return self._builder.vendor_worker(text, about, flags, libraries)

    def evaluate_vendor(self, worker: Path, name: str, *, check_only: bool = False) -> Verdict:
        """Check and time a vendor's worker in a candidate's place; `name` stands for a candidate's id.

        Its first calls load kernels of the library, and have more time than a candidate's.
        """
        seed = self._trials.draw_seed()
        if check_only:
            trial = self._trials.verifying([str(worker)], seed)
        else:
            # It is unknown whether a library allocates through the driver.
            trial = Trial(
                JudgeRequest(candidate=(str(worker),), seed=seed), self._all_cases(seed), _RUN_LIMIT_S, quiet=True
            )
        patient = replace(trial.request, call_limit_s=_VENDOR_CALL_LIMIT_S)
        judgement = self._trials.run(replace(trial, request=patient))
        verdict = Verdict(
            candidate=name,
            device=self.device.name,
            emulated=self.device.emulated,
            status=judgement.status,
            detail=judgement.detail,
            seed=seed,
            notes=truth.notes(self.card),
        )
        judged = self._with_judgement(verdict, judgement)
        return judged if check_only else self._with_floors(judged)

    def against_vendor(self, candidate: Candidate, worker: Path) -> Verdict:
        """Check a candidate and time it against a vendor's worker: its score is its speedup over the library.

        The worker has to be known to be right: its outputs are not checked here.
        """
        with self._builder.using(candidate):
            build, ours = self._built(candidate)
            seed = self._trials.draw_seed()
            verdict = self._begun(candidate.id, build, seed)
            if not ours:
                return verdict
            request = JudgeRequest(candidate=ours, rival=(str(worker),), seed=seed, call_limit_s=_VENDOR_CALL_LIMIT_S)
            judgement = self._trials.run(Trial(request, self.card.cases, _RUN_LIMIT_S, quiet=True))
            return self._with_floors(self._with_judgement(verdict, judgement))

    def sanitize(self, candidate: Candidate, tools: Sequence[Tool]) -> tuple[SanitizerReport, ...]:
        """What compute-sanitizer's tools say of a candidate at the verification sizes; where the device has a checker
        of its own, what that says.

        Raises DeviceError if there is no such tool, and UsageError for a candidate that does not build, or that is a
        baseline in eager PyTorch.
        """
        must_be_kernel(self.card, self.precision, candidate.code)
        return self._faults.sanitize(candidate, tools)

    def _with_floors(self, verdict: Verdict, *, rivalled: bool = False) -> Verdict:
        return floors.hold_on(self.device, verdict, self.card, self.precision, rivalled=rivalled)

    def build_shared(self) -> None:
        """Build what every evaluation shares, unless it is cached."""
        self._builder.build_shared()

    def forget(self, candidate: Candidate) -> None:
        """Remove a candidate's builds from the cache, unless another process uses them."""
        self._builder.forget(candidate)

    def build_baseline(self) -> None:
        """Build what `check_baseline` runs, unless it is cached."""
        self._builder.build_shared(debug_baseline=self.device.has_debug_build)

    def check_baseline(self, *, calls: int = 0) -> Judgement:
        """Check the baseline against the reference, on every case that this device can run, and time `calls` calls.

        A device that only emulates runs only the verification cases and small held-out ones, under its memory checker.
        """
        debug = self.device.has_debug_build
        worker = self._builder.baseline_command(debug)
        seed = self._trials.draw_seed()
        cases = [case for case in self.card.cases if not (self.device.emulated and case.sweep)]
        cases += held_out.draw(self.card, seed)
        if not self.device.emulated:
            cases += self._trials.large(seed)
        request = JudgeRequest(
            baseline=worker,
            cases="verify" if self.device.emulated else "all",
            seed=seed,
            calls=calls,
            baseline_only=True,
        )
        return self._trials.run(Trial(request, cases, _RUN_LIMIT_S))

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """What the profile filter says about a correct candidate."""
        return self.profiler.findings(candidate, verdict, self._thresholds, self._profile)

    def _with_judgement(self, verdict: Verdict, judgement: Judgement) -> Verdict:
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
            protocol=self._protocol_of(verdict.candidate) if judgement.speed is not None else {},
            asked_bytes=judgement.asked_bytes,
        )

    def _protocol_of(self, candidate: str) -> Mapping[str, str]:
        """How a candidate's calls are timed, for its record; nothing where a model gives the times.

        Fewer calls than these may be enough, and more may follow (stopping.h).
        """
        if self._modeller is not None:
            return {}
        brief = self._brief_baseline and candidate == self.baseline.id
        calls, pairs = (_BRIEFLY.calls, _BRIEFLY.pairs) if brief else (self._calls, self._protocol.pairs)
        return {"calls": str(calls), "pairs of processes": str(pairs), "warm-ups": str(self._protocol.warmups)}


def _modeller(builder: Builder, device: Device, seed: int | None, wanted: Gpu | None) -> Modeller:
    """The model of a GPU for a device that only emulates. A GPU's evaluations need not wait for its modules."""
    from cudamaster.modelling.verdicts import Modeller, counter

    return Modeller(builder, counter(builder, device), seed=seed, wanted=wanted)


def _with_rest(verdict: Verdict, wall_s: float) -> Verdict:
    """The verdict with the time that its seconds do not account for."""
    seconds = verdict.seconds
    return replace(verdict, seconds=replace(seconds, rest=max(0.0, wall_s - seconds.total)))


def _build_log(build: Build) -> str:
    """Every command with its output, and the outcome."""
    parts = [f"{key}: {value}" for key, value in build.record.items() if value]
    return "\n".join([*parts, f"outcome: {build.status or 'built'}, {build.detail}", build.log]).rstrip() + "\n"
