"""Looking for faults that a right result does not show: races, accesses out of bounds, reads of what nothing wrote.

The CPU device looks with a build of its own (cpu_checker.py), a GPU with compute-sanitizer (compute_sanitizer.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudamaster.build.building import Builder
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import Candidate, Seconds, Status, Verdict
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, Observing
from cudamaster.faults import compute_sanitizer, cpu_checker
from cudamaster.faults.compute_sanitizer import SanitizerReport, Tool
from cudamaster.judging.judge_process import CHECK_LIMIT_S, Trial, Trials
from cudamaster.judging.verdicts import Judgement, judge

_LIGHT = 1e6  # weight of timed cases that memcheck sees beside the verification cases, ...
_MOST_LIGHT = 6  # ... the lightest
_SANITIZED_CALL_LIMIT_S = 60.0  # a tool slows a kernel down a thousandfold


@dataclass(frozen=True)
class Looked:
    """The result of a run of the build that looks for faults, and what it found."""

    judgement: Judgement
    reports: tuple[SanitizerReport, ...]

    @property
    def found(self) -> tuple[SanitizerReport, ...]:
        """Those that say more than that nothing was found."""
        return tuple(report for report in self.reports if report.findings)


class FaultFinder:
    """Looks for faults of candidates of one task and precision on one device."""

    def __init__(self, builder: Builder, device: Device, trials: Trials) -> None:
        self._builder = builder
        self._device = device
        self._trials = trials

    def look(self, candidate: Candidate, seed: int, *, first_failure: bool = False) -> Looked | None:
        """Verification cases under the checker of races and other faults, where the device has that.

        A candidate that the other builds took and this one does not take is judged by what its compiler says.
        """
        if not isinstance(self._device, Observing):
            return None
        build = self._builder.checked_worker(candidate)
        if build.worker is None:
            assert build.status is not None
            failed = Judgement(build.status, build.detail, build.log, (), Seconds(build=build.seconds), {})
            return Looked(failed, ())
        trial = self._trials.verifying([str(build.worker), "--exact"], seed, first_failure=first_failure)
        lines, ran = self._trials.report(trial, doing="looking for races")
        reports = cpu_checker.reports(ran.stderr, build.worker, candidate.code)
        return Looked(judge(lines, replace(ran, stderr=cpu_checker.without_findings(ran.stderr)), trial.cases), reports)

    def sanitize(self, candidate: Candidate, tools: Sequence[Tool]) -> tuple[SanitizerReport, ...]:
        """What compute-sanitizer's tools say of a candidate at the verification sizes; where the device has a checker
        of its own, what that says.

        Raises DeviceError if there is no such tool, and UsageError for a candidate that does not build.
        """
        path = compute_sanitizer.find()
        looks = isinstance(self._device, Observing)
        if not looks and (self._device.emulated or path is None):
            reason = (
                f"the {self._device.name} device has none" if self._device.emulated else compute_sanitizer.NOT_INSTALLED
            )
            raise DeviceError(f"compute-sanitizer cannot be run: {reason}.", "`cudamaster doctor` says what is there.")
        if looks and not set(tools) & set(cpu_checker.TOOLS):
            raise DeviceError(
                f"The {self._device.name} device has a checker that looks for nothing of what {tools[0]} finds.",
                "A barrier that hangs shows in `cudamaster evaluate`; the rest takes a GPU with compute-sanitizer.",
            )
        with self._builder.using(candidate):
            build = self._builder.built(candidate)
            if build.worker is None:
                fix = "`cudamaster evaluate` shows the whole log."
                raise UsageError(f"The kernel does not build: {build.detail}", fix)
            seed = self._trials.draw_seed()
            if (looked := self.look(candidate, seed)) is not None:
                failed = looked.judgement.status is not Status.CORRECT and not looked.found
                why = looked.judgement.detail if failed else None
                return tuple(replace(report, failure=why) for report in looked.reports if report.tool in tools)
            assert path is not None
            worker = build.worker
            with threads(max(len(tools), 1)) as pool:
                return tuple(pool.map(lambda tool: self._sanitize_with(path, tool, worker, seed), tools))

    def sanitized(self, verdict: Verdict, candidate: Candidate) -> Verdict:
        """The verdict on a new best after compute-sanitizer has checked it too, if that is installed."""
        if self._device.emulated:
            return verdict
        if compute_sanitizer.find() is None:
            note = f"compute-sanitizer did not look at this kernel: {compute_sanitizer.NOT_INSTALLED}"
            return replace(verdict, notes=(*verdict.notes, note))
        reports = self.sanitize(candidate, compute_sanitizer.GATE)
        said = {report.tool.value: report.summary for report in reports}
        failed = (f"{report.tool.value} {report.summary}" for report in reports if report.failure is not None)
        verdict = replace(verdict, sanitizers=said, notes=(*verdict.notes, *failed))
        found = [report for report in reports if report.findings]
        if not found:
            return verdict
        detail = "; ".join(f"{report.tool.value}: {report.summary}" for report in found)
        log = "\n\n".join(report.explain(candidate.code) for report in found)
        return replace(verdict, status=Status.FAULT, detail=detail, log=log, score=None, speed=None)

    def explained(self, verdict: Verdict, candidate: Candidate) -> Verdict:
        """A fault on a GPU with memcheck's findings, if it is installed: a CUDA error names no line."""
        if verdict.status is not Status.FAULT or self._device.emulated or compute_sanitizer.find() is None:
            return verdict
        (report,) = self.sanitize(candidate, (Tool.MEMCHECK,))
        said = {**verdict.sanitizers, report.tool.value: report.summary}
        log = f"{verdict.log}\n\nAt the verification sizes {report.explain(candidate.code)}"
        return replace(verdict, sanitizers=said, log=log.lstrip())

    def _sanitize_with(self, path: Path, tool: Tool, worker: Path, seed: int) -> SanitizerReport:
        with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
            log = Path(folder) / "log.txt"
            program = compute_sanitizer.command(path, tool, [str(worker), "--exact", "--unconfined"], log)
            request = JudgeRequest(candidate=tuple(program), cases="verify", seed=seed, calls=0)
            request = replace(request, call_limit_s=_SANITIZED_CALL_LIMIT_S)
            # racecheck does not follow order by st.async and an mbarrier, which kernels for timed sizes may use.
            cases = self._trials.light(_LIGHT)[:_MOST_LIGHT] if tool is Tool.MEMCHECK else ()
            whole = self._trials.request(Trial(request, cases, CHECK_LIMIT_S))
            ran = self._device.run(whole, Path(folder) / "report.jsonl", CHECK_LIMIT_S)
            text = log.read_text("utf-8", "replace") if log.is_file() else ""
        return compute_sanitizer.parse(text or ran.stderr, tool)


def with_faults(verdict: Verdict, looked: Looked, candidate: Candidate, checked: Judgement | None) -> Verdict:
    """The verdict on a candidate with the faults that were found, and what else is wrong with it."""
    if not looked.found:
        return verdict
    detail = "; ".join(report.summary for report in looked.found)
    logs = [report.explain(candidate.code) for report in looked.found]
    if checked is not None and checked.status is not Status.CORRECT:
        logs.append(f"Besides, {checked.detail}\n{checked.log}".rstrip())
    return replace(verdict, status=Status.FAULT, detail=detail, log="\n\n".join(logs), score=None, speed=None)
