"""What a strategy needs from outside: a workbench that judges candidates, and an observer.

Strategies print nothing and write nothing. The command line watches as an `Observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.debug import Diagnosis
from cudamaster.core.values import Candidate, Findings, Hardware, Hold, Plan, Precision, Role, Verdict
from cudamaster.strategies.result import Round


class Card(Protocol):
    """The part of a task card that prompts and records need."""

    @property
    def name(self) -> str:
        """Name of the task, e.g. "spmv_csr"."""
        ...

    @property
    def title(self) -> str:
        """The task on one line."""
        ...

    @property
    def hash(self) -> str:
        """Content hash of the card."""
        ...

    @property
    def suite(self) -> str:
        """Name of the suite that the task is of."""
        ...

    @property
    def source(self) -> str:
        """The task's name where that is enough to find it, else the path of its card."""
        ...

    @property
    def baseline_by(self) -> str:
        """What the baseline is: "kernel", or "pytorch" for a module that eager PyTorch runs."""
        ...

    @property
    def headers(self) -> Sequence[str]:
        """Libraries whose headers a candidate may include."""
        ...

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        """Name of the extern "C" wrapper."""
        ...

    def declaration(self, precision: Precision, *, optimized: bool = True) -> str:
        """C declaration of the wrapper, without a semicolon."""
        ...

    def describe(self, precision: Precision) -> str:
        """The task in words."""
        ...


class Workbench(Protocol):
    """One task and precision on one device: ExecuteAndFilter of algorithm 1."""

    @property
    def card(self) -> Card:
        """The task."""
        ...

    @property
    def precision(self) -> Precision:
        """Element type of the run."""
        ...

    @property
    def baseline(self) -> Candidate:
        """The baseline as a candidate: its text with `_optimized` names, and the default command."""
        ...

    @property
    def hardware(self) -> Hardware:
        """The device in words and figures."""
        ...

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """Build, check and time a candidate. A candidate that fails is a verdict, not an exception.

        A new best, with a score above `to_beat`, gets further checks if the device has them.
        """
        ...

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """What the profile filter says about a correct candidate."""
        ...


@runtime_checkable
class MeasuresAgain(Protocol):
    """A workbench that distinguishes a second judgement from the first. Others judge again at each `evaluate`."""

    def measure_again(self, candidate: Candidate) -> Verdict:
        """Judge a candidate again, whatever the first judgement was."""
        ...


@runtime_checkable
class ReportsBuilds(Protocol):
    """A workbench that passes on each build log the moment the build ends: on_build(candidate id, log)."""

    on_build: Callable[[str, str], None] | None


@runtime_checkable
class ReportsHolds(Protocol):
    """A workbench that reports each period in which it held the device, after it is free again."""

    on_hold: Callable[[Hold], None] | None


@runtime_checkable
class ReportsMoves(Protocol):
    """A workbench on several machines that says in a line when work is done again elsewhere, and why."""

    on_move: Callable[[str], None] | None


class Observer:
    """Gets each step of a search as it happens, and does nothing with it. Inherit from it to do more."""

    def asking(self, role: Role, model: str) -> None:
        """A model is about to be asked."""

    def trying_again(self, role: Role, pause_s: float, why: str) -> None:
        """A role's call failed, or its reply cannot be used; it is asked again after a pause."""

    def evaluating(self, candidate: Candidate) -> None:
        """A candidate is about to be built, checked and timed."""

    def moved(self, why: str) -> None:
        """A machine that judged was lost or is in trouble; what it did is done again elsewhere."""

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """The baseline was measured."""

    def round_started(self, number: int, rounds: int) -> None:
        """Round `number` of `rounds` begins."""

    def planned(self, number: int, plan: Plan) -> None:
        """The Planner proposed a scheme."""

    def without_command(self, number: int, misfit: ReplyMisfit) -> None:
        """The Compiler gave no usable reply; the default command builds the code that is written next."""

    def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
        """A candidate with code and command exists; `debug_try` is 0 for the round's first.

        `source` is the id of the candidate that it was written from: by default the best so far, or in a debug try
        the attempt before it.
        """

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        """A candidate's verdict is known."""

    def diagnosed(self, number: int, debug_try: int, diagnosis: Diagnosis) -> None:
        """The Debug agent said how to fix the failing candidate."""

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """A candidate is the new best."""

    def round_ended(self, finished: Round) -> None:
        """A round is over, accepted or refused."""

    def stopped(self, note: str) -> None:
        """The search ends before its last round, and why."""


class Both(Observer):
    """Passes every event on to two observers, to the first one first."""

    def __init__(self, first: Observer, second: Observer) -> None:
        def passing(event: str) -> Callable[..., None]:
            def passed(*what: object, **more: object) -> None:
                getattr(first, event)(*what, **more)
                getattr(second, event)(*what, **more)

            return passed

        vars(self).update({event: passing(event) for event in vars(Observer) if not event.startswith("_")})


@runtime_checkable
class Resident(Protocol):
    """A model that is a program at work for the whole of a search: it sees what happens, and ends with it."""

    @property
    def observer(self) -> Observer:
        """What gets each step of the search, the stored ones of a resumed run too."""
        ...

    def at_work(self) -> AbstractContextManager[None]:
        """The time of the search: the program ends with the block, at once if that ends by an exception."""
        ...


def asked_again(role: Role, pause_s: float, why: str) -> str:
    """The line for people when a role is asked again."""
    when = f" in {pause_s:.0f} s" if pause_s >= 0.5 else ""
    return f"the {role.value} is asked again{when}: {why}"
