"""Profiles a candidate on its device: with the GPU's counters, with a model of a GPU, or with what needs neither."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, CaseVerdict, Findings, Profile, ProfileMode, Verdict
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.protocol import Device
from cudamaster.profiling import metric_sets, without_counters
from cudamaster.profiling.filter import findings as filtered
from cudamaster.profiling.filter import findings_of_set, no_profile
from cudamaster.profiling.metric_sets import MetricSet
from cudamaster.profiling.ptxas import Usage
from cudamaster.profiling.thresholds import Thresholds

if TYPE_CHECKING:
    from cudamaster.modelling.verdicts import Modeller


_OF_EAGER = "the baseline is eager PyTorch, which is no kernel of a task's own"


class Profiler:
    """The profiler of one task and precision. A verdict's times are never taken under it: it runs the worker again."""

    def __init__(self, builder: Builder, device: Device, modeller: Modeller | None = None) -> None:
        """`modeller` stands in for the counters of a device that has none."""
        self._builder = builder
        self._device = device
        self._modeller = modeller

    def build(self, candidate: Candidate) -> None:
        """Build what `profile` runs, unless it is cached."""
        self._builder.build_shared()
        if not self._builder.stands_for_eager(candidate):
            self._builder.built(candidate)

    def profile(self, candidate: Candidate, case: str, metrics: Collection[str] | None) -> Profile | NoProfile:
        """The candidate's kernels at a case (its label), with metrics by Nsight Compute's names; None for all metrics.

        A modelled profile has what the model gives, whatever metrics are asked for.
        """
        if self._builder.stands_for_eager(candidate):
            return NoProfile(_OF_EAGER)
        if self._modeller is not None:
            return self._modeller.profile(candidate, case)
        with self._builder.using(candidate):
            build = self._builder.built(candidate)
            if build.worker is None:
                return NoProfile(f"it could not be built again: {build.detail}")
            return self._device.profile(self._judge(), build.worker, case, candidate.id, metrics)

    def usages(self, candidate: Candidate) -> Mapping[str, Usage]:
        """Registers, spills and the like of a candidate's kernels, by plain name; empty if times are modelled."""
        if self._modeller is not None or self._builder.stands_for_eager(candidate):
            return {}
        log = self._builder.built(candidate).record.get("compile log", "")
        return without_counters.usages(log, self._compute_capability)

    @property
    def _compute_capability(self) -> str | None:
        return self._device.hardware().figures.get("compute capability")

    def findings(
        self,
        candidate: Candidate,
        verdict: Verdict,
        thresholds: Thresholds,
        mode: ProfileMode = ProfileMode.FILTERED,
    ) -> Findings:
        """What the profile filter keeps of a correct candidate at its heaviest case, or why there is no profile.

        The heaviest case is the timed one of the largest weight; without the filter all timed cases are profiled. On a
        GPU, the reason for a missing profile comes with what needs no counters.
        """
        if self._builder.stands_for_eager(candidate):
            return no_profile(candidate.id, f"{_OF_EAGER}.")
        if mode is ProfileMode.NONE:
            return no_profile(candidate.id, "none was asked for.")
        timed = [case for case in verdict.cases if case.times_us is not None]
        if not timed:
            return no_profile(candidate.id, "no case was timed, so none was profiled.")
        heaviest = max(timed, key=lambda case: case.weight)
        if mode is ProfileMode.CUDAFORGE24:
            return self._of_set(candidate, verdict, heaviest, thresholds, metric_sets.load(mode.value))
        full = mode is ProfileMode.FULL
        profiled = self.profile(candidate, heaviest.label, thresholds.full if full else thresholds.filtered)
        if isinstance(profiled, NoProfile):
            return self.without_counters(candidate, verdict, heaviest, profiled)
        rest = [case.label for case in timed if full and case is not heaviest]
        others = {label: self.profile(candidate, label, thresholds.full) for label in rest}
        seen = [profile for profile in others.values() if not isinstance(profile, NoProfile)]
        missing = [f" No profile of case {k}: {v.reason}." for k, v in others.items() if isinstance(v, NoProfile)]
        found = filtered(profiled, thresholds, full=full, others=seen)
        return replace(found, note=found.note + "".join(missing))

    def _of_set(
        self, candidate: Candidate, verdict: Verdict, case: CaseVerdict, thresholds: Thresholds, chosen: MetricSet
    ) -> Findings:
        # What decides the class is measured as well, for readers of the run.
        asked = tuple(dict.fromkeys((*chosen.asked, *thresholds.filtered)))
        profiled = self.profile(candidate, case.label, asked)
        if isinstance(profiled, NoProfile):
            return self.without_counters(candidate, verdict, case, profiled)
        return findings_of_set(profiled, thresholds, chosen)

    def without_counters(
        self, candidate: Candidate, verdict: Verdict, case: CaseVerdict, missing: NoProfile
    ) -> Findings:
        """What is known about a candidate at a timed case without counters; `missing` says why there are none."""
        with self._builder.using(candidate):
            build = self._builder.built(candidate)
            if self._device.emulated or build.worker is None:
                return no_profile(candidate.id, f"{missing.reason}.")
            sources = without_counters.look(
                self._device.run,
                self._judge(),
                build.worker,
                case=case.label,
                compile_log=verdict.build.get("compile log", ""),
                compute_capability=self._compute_capability,
            )
            return without_counters.findings(verdict, case, missing, sources)

    def _judge(self) -> JudgeRequest:
        """The judge and the baseline's worker."""
        return JudgeRequest(judge=(str(self._builder.judge()),), baseline=self._builder.baseline_command())
