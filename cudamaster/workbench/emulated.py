"""Checks of a candidate on a device that only emulates: what its checkers see that the outputs do not show.

    verification and small held-out cases -- memory checker, threads in reverse order
    the same                              -- checker of races and other faults
    light cases for further kernels       -- judging/unreached.py

Such a device runs no large cases. So it tells which kernels they launch, and which of those that a model of a GPU has
counted ran in none of these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.build.building import Build, Builder
from cudamaster.core.errors import BaselineError
from cudamaster.core.values import RACES_UNSEEN, Candidate, Status
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device, Observing
from cudamaster.faults.finding import FaultFinder, Looked
from cudamaster.judging import unreached
from cudamaster.judging.judge_process import CHECK_LIMIT_S, Trial, Trials
from cudamaster.judging.unreached import Reach, and_more
from cudamaster.judging.verdicts import Judgement, joined
from cudamaster.tasks.cards import Case, TaskCard

if TYPE_CHECKING:
    from cudamaster.modelling.counts import CallCounts


@dataclass(frozen=True)
class Checked:
    """What the checks say: a judgement, and notes on what they did not see. `faults` are why it is not right, with what
    the plain check said if it was made."""

    judgement: Judgement
    notes: tuple[str, ...] = ()
    faults: Looked | None = None
    plain: Judgement | None = None
    reach: Reach = field(default_factory=Reach)


class EmulatedChecks:
    """The checks of one task and precision on one device."""

    def __init__(self, card: TaskCard, builder: Builder, device: Device, trials: Trials, faults: FaultFinder) -> None:
        self._card = card
        self._builder = builder
        self._device = device
        self._trials = trials
        self._faults = faults

    def memory_trial(self, candidate: Candidate, seed: int, *, first_failure: bool) -> Trial:
        """Verification cases under the memory checker and in reversed thread order."""
        worker = [str(self._builder.executable(candidate, debug=True)), "--exact"]
        return self._trials.verifying(worker, seed, first_failure=first_failure, reversed_threads=True)

    def check(
        self, candidate: Candidate, build: Build, seed: int, *, first_failure: bool, runs: Callable[[Case], bool]
    ) -> Checked:
        """All of them, as far as they find nothing; `runs` says of a timed case whether it is to be run anyway."""
        notes: tuple[str, ...] = ()
        with threads(1) as pool:
            look = partial(self._faults.look, candidate, seed, first_failure=first_failure)
            # Whoever asks for only the first failure gets no more than that.
            looking = None if first_failure else pool.submit(look)
            checked = self._trials.run(self.memory_trial(candidate, seed, first_failure=first_failure))
            right = checked.status is Status.CORRECT
            if looking is None and right:
                looking = pool.submit(look)
            looked = None if looking is None else looking.result()
        if looked is not None and looked.judgement.status is Status.TIMEOUT and not looked.found:
            # The checker is a hundred times as slow as the device, so its time limit says nothing about the kernel.
            notes = (f"{RACES_UNSEEN}: {looked.judgement.detail}",)
        elif looked is not None and looked.judgement.status is not Status.CORRECT and (looked.found or right):
            return Checked(looked.judgement, faults=looked, plain=checked)
        if not right:
            return Checked(checked, notes)
        reach = self._reach(build, seed)
        notes = (*notes, *reach.notes(runs))
        quick, slow = reach.heavy(runs)
        for executable, cases, sets in (
            (build.debug, reach.light, None),
            (build.worker, quick, None),
            (build.worker, slow, 1),
        ):
            if cases and checked.status is Status.CORRECT:
                try:
                    checked = joined(checked, self._trials.run(_reaching_trial(executable, seed, cases, sets)))
                except BaselineError as error:  # sizes that nobody has listed may be none of the task's
                    notes = (*notes, f"cases for further kernels left out: {error.reason}")
        return Checked(checked, notes, reach=reach)

    def _reach(self, build: Build, seed: int) -> Reach:
        """Cases for kernels that are launched at timed sizes alone, on a device that can tell launches.

        No run that times may have begun ahead: it holds the device.
        """
        if build.worker is None or not isinstance(self._device, Observing):
            return Reach()
        checked = self._trials.verification(seed)
        return unreached.reach(self._card, self._device, self._builder.judge(), build.worker, checked)

    def unchecked(
        self, build: Build, checked: Checked, timed: Judgement, counts: Mapping[str, CallCounts | str]
    ) -> tuple[str, ...]:
        """A note on kernels that were counted, and so make the modelled times, though no check executed them.

        Where a wrapper launches the same kernels whether they are executed or not, nothing is left to say here.
        """
        if build.worker is None or not isinstance(self._device, Observing):
            return ()
        from cudamaster.modelling.counts import Launch  # a GPU's evaluations need not wait for it

        executed = checked.judgement.executed | timed.executed
        known = self._device.symbols_at(build.worker, {int(place, 16) for place in checked.reach.left})
        for program in (build.worker, build.debug or build.worker):
            known |= self._device.symbols_at(program, {place for where, place in executed if where == program})
        unseen = {case.label for case in checked.reach.unknown}
        found = {
            launch.symbol: label
            for label, call in reversed(list(counts.items()))
            if not isinstance(call, str) and label not in unseen
            for launch in call.events
            if isinstance(launch, Launch) and launch.symbol and launch.symbol not in known
        }
        if not found:
            return ()
        kernels = "1 kernel" if len(found) == 1 else f"{len(found)} kernels"
        where = and_more(sorted(found.values(), key=list(counts).index))
        return (f"{kernels} of {where} ran in no check: with none executed, the call launches others",)


def _reaching_trial(worker: Path | None, seed: int, cases: Sequence[Case], sets: int | None) -> Trial:
    """A check of further cases, by the one or the other build of a candidate, on so many sets of inputs."""
    request = JudgeRequest(candidate=(str(worker),), cases="none", seed=seed, calls=0, sets=sets)
    return Trial(request, cases, CHECK_LIMIT_S)
