"""What the hardware says about a kernel and its baseline, or a model of a GPU does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cudamaster.core.errors import UsageError
from cudamaster.core.values import LATER, Candidate, Findings, Profile, Verdict
from cudamaster.devices.ncu import NoProfile
from cudamaster.library.progress import Progress, telling
from cudamaster.library.ranges import LARGEST_SEED, must_be_within
from cudamaster.library.subjects import choose_device, code_of, command_of, load_task, precision_for
from cudamaster.outside import client
from cudamaster.profiling import configuration, metric_sets
from cudamaster.profiling import thresholds as limits
from cudamaster.profiling.configuration import Configuration
from cudamaster.profiling.filter import findings
from cudamaster.workbench.evaluation import Workbench

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.profiling.metric_sets import MetricSet
    from cudamaster.profiling.thresholds import Thresholds
    from cudamaster.tasks.cards import Case, TaskCard

Mode = Literal["filtered", "full", "none"]


@dataclass(frozen=True)
class Profiled:
    """What is known of one kernel (`who`: baseline or candidate) in one case.

    `profile` has the counters, or why there are none. `findings` say what bounds the kernel; without counters they have
    what needs none, and `not_timed` says if not even that could be found. `launches` has a configuration for each
    kernel of the profile, in its order.
    """

    who: str
    case: str
    profile: Profile | NoProfile
    not_timed: str | None = field(default=None, metadata=LATER)
    findings: Findings | None = field(default=None, metadata=LATER)
    launches: tuple[Configuration, ...] | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Profiles:
    """Profiles of a kernel and its baseline, and the thresholds that decided their classes, in words.

    `verdict` is that of the check that a kernel has to pass first, None for the baseline alone. If it is not correct,
    nothing was profiled.
    """

    thresholds: str
    profiles: tuple[Profiled, ...]
    verdict: Verdict | None = None

    def of(self, who: str, case: str | None = None) -> Profiled:
        """That of "baseline" or "candidate" in a case, by default the first. Raises KeyError if there is none."""
        for one in self.profiles:
            if one.who == who and case in (None, one.case):
                return one
        raise KeyError(f"no profile of the {who}" + (f" at {case}" if case else ""))


class Profiling:
    """What a profile is asked of, found and checked: the steps of `profile`, for a caller that shows each.

    `baseline` and, if it is correct, the kernel are the `subjects`; `verdict` is that of its check.
    """

    def __init__(
        self,
        task: str | os.PathLike[str] | TaskCard,
        kernel: str | os.PathLike[str] | Candidate | None = None,
        *,
        precision: str | None = None,
        case: str = "heaviest",
        mode: Mode = "filtered",
        metrics: str | None = None,
        thresholds: str = "paper",
        command: str | None = None,
        device: str | Device = "auto",
        seed: int | None = None,
    ) -> None:
        """Arguments and errors are those of `profile`."""
        client.must_be_outside("A profile")
        if mode not in ("filtered", "full", "none"):
            raise UsageError(f"There is no mode {mode!r}.", "Take filtered, full or none.")
        if mode == "none" and metrics is not None:
            raise UsageError("--metrics reads counters, and --none reads none.", "Leave out --none or --metrics.")
        must_be_within("seed", seed, 0, LARGEST_SEED)
        card = load_task(task)
        one = precision_for(card, precision, kernel)
        code = None if kernel is None else code_of(kernel, card, one)
        self.cases = chosen_cases(card, case)
        self.mode: Mode = mode
        self.metrics = metric_sets.load(metrics) if metrics is not None else None
        chosen = choose_device(device)
        self.bench = Workbench(card, one, chosen, seed=seed)
        self.thresholds = limits.choose(thresholds, self.bench.profiled_gpu)
        self.subjects = {"baseline": self.bench.baseline}
        self.verdict: Verdict | None = None
        self._verdicts: dict[str, Verdict] = {}
        if kernel is not None and code is not None:
            candidate = Candidate(card.name, one, code, command_of(kernel, chosen, command))
            self.verdict = self.bench.evaluate(candidate, check_only=True)
            if self.verdict.correct:
                self.subjects["candidate"] = candidate

    @property
    def refused(self) -> bool:
        """Whether the kernel is not correct, so that nothing is profiled."""
        return self.verdict is not None and not self.verdict.correct

    def steps(self) -> Iterator[tuple[str, Case]]:
        """Who is profiled in which case, in the order in which it is shown."""
        return ((who, case) for case in self.cases for who in self.subjects)

    def profiled(self, who: str, case: Case) -> Profiled:
        """The profile of one of them in one case. Raises DeviceError."""
        subject = self.subjects[who]
        return profiled(self.bench, who, subject, case.label, self.mode, self.metrics, self.thresholds, self._verdicts)


def profile(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate | None = None,
    *,
    precision: str | None = None,
    case: str = "heaviest",
    mode: Mode = "filtered",
    metrics: str | None = None,
    thresholds: str = "paper",
    command: str | None = None,
    device: str | Device = "auto",
    seed: int | None = None,
    progress: Progress | None = None,
) -> Profiles:
    """Profile a kernel and the baseline of a task with Nsight Compute; without `kernel` the baseline alone.

    `case` is which timed case: "heaviest", "all", or its number from 1, as text. `mode` says what is found: "filtered"
    the metrics that decide what bounds a kernel, "full" all of the paper's table 6, "none" what needs no counters.
    `metrics` names a further set of metrics, or its `.yaml` file. `thresholds` are "paper", "calibrated" or a file.
    The other arguments are those of `evaluate`.

    Metrics are in Nsight Compute's base units (per cent, bytes, cycles), times in microseconds per call. On the CPU
    device a model of a GPU gives them, and the profile's `modelled` says so. Raises what `evaluate` raises, and
    UsageError for a case, set or thresholds that there are not.
    """
    with telling(progress, "profile", "building and checking"):
        asked = Profiling(
            task, kernel, precision=precision, case=case, mode=mode, metrics=metrics, thresholds=thresholds,
            command=command, device=device, seed=seed,
        )  # fmt: skip
    if asked.refused:
        return Profiles(asked.thresholds.described, (), asked.verdict)
    found = []
    for who, where in asked.steps():
        with telling(progress, f"{who}, {where.label}", "profiling"):
            found.append(asked.profiled(who, where))
    return Profiles(asked.thresholds.described, tuple(found), asked.verdict)


def chosen_cases(card: TaskCard, which: str) -> list[Case]:
    """The timed cases that `--case` asks for. Raises UsageError."""
    timed = [case for case in card.cases if case.sweep]
    if which == "all":
        return timed
    if which == "heaviest":
        return [max(timed, key=lambda case: case.weight)]
    if which.isdecimal() and 1 <= int(which) <= len(timed):
        return [timed[int(which) - 1]]
    labels = ", ".join(f"{number}: {case.label}" for number, case in enumerate(timed, 1))
    raise UsageError(f"{card.name} has no timed case {which!r}.", f"Choose heaviest, all, or one of {labels}.")


def profiled(
    bench: Workbench,
    who: str,
    subject: Candidate,
    case: str,
    mode: Mode,
    named: MetricSet | None,
    thresholds: Thresholds,
    verdicts: dict[str, Verdict],
) -> Profiled:
    """What is known of one subject at one case. `verdicts` keeps the verdicts that this needed, by candidate."""
    wanted = thresholds.full if mode == "full" else thresholds.filtered
    more = named.asked if named is not None else ()
    found: Profile | NoProfile = NoProfile("none were asked for (--none)")
    if mode != "none":
        found = bench.profiler.profile(subject, case, tuple(dict.fromkeys((*wanted, *configuration.METRICS, *more))))
    if isinstance(found, NoProfile):
        if bench.device.emulated:
            return Profiled(who, case, found)  # there are no times but the model's
        if subject.id not in verdicts:
            verdicts[subject.id] = bench.evaluate(subject)  # for its times on the device, at all cases
        verdict = verdicts[subject.id]
        timed = next((one for one in verdict.cases if one.label == case), None)
        if timed is None or timed.timing is None:
            skipped = timed.skipped if timed is not None else None
            return Profiled(who, case, found, not_timed=skipped or f"{verdict.status}: {verdict.detail}")
        without = bench.profiler.without_counters(subject, verdict, timed, found)
        return Profiled(who, case, found, findings=without)
    usages = bench.profiler.usages(subject)
    launches = tuple(configuration.configuration(kernel.metrics, usages.get(kernel.kernel)) for kernel in found.kernels)
    kept = findings(found, thresholds, full=mode == "full")
    return Profiled(who, case, found, findings=kept, launches=launches)
