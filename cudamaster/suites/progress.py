"""How far a suite is while it runs: what each task waits for, how long devices measured, how long it will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudamaster.core.speed import Interval
from cudamaster.core.values import Candidate, Findings, GpuModel, Hold, Role, Verdict, mark
from cudamaster.runs.budget import Limits, Spent
from cudamaster.strategies.protocol import Observer, asked_again
from cudamaster.strategies.result import Round
from cudamaster.suites.folder import Entry, State, UnitUse


@dataclass
class Running:
    """A task that runs, as its observer sees it: what it waits for, and what it came to so far.

    `began` is on the monotonic clock. `steps` are the baseline and the rounds that are done, those of earlier sessions
    too.
    """

    entry: Entry
    began: float
    doing: str = "starting"
    round: int = 0
    rounds: int = 0
    steps: int = 0
    score: float | None = None
    emulated: bool = False
    modelled: GpuModel | None = None
    interval: Interval | None = None

    @property
    def mark(self) -> str:
        """As of a verdict: "modelled", "emulated" or empty."""
        return mark(emulated=self.emulated, modelled=self.modelled)


@dataclass(frozen=True)
class Board:
    """How far a suite is. `left_s` is None while it is unknown how long a step takes.

    `again` has a line for each time that a model was asked again or work went to another machine, with the reason,
    since the suite began or resumed.
    """

    entries: tuple[Entry, ...]
    running: tuple[Running, ...]
    spent: Spent
    limits: Limits
    use: tuple[UnitUse, ...]
    session_s: float
    left_s: float | None
    again: tuple[str, ...] = ()

    def count(self, state: State) -> int:
        """How many tasks are in a state."""
        return sum(entry.state is state for entry in self.entries)


class Watch(Observer):
    """Keeps the view of a running task up to date."""

    def __init__(self, view: Running, again: list[str]) -> None:
        """`again` gets a line each time that a model is asked or a kernel judged again, which outlasts the view."""
        self._view = view
        self._again = again

    def asking(self, role: Role, model: str) -> None:
        """What it waits for."""
        self._view.doing = f"asking the {role.value}"

    def trying_again(self, role: Role, pause_s: float, why: str) -> None:
        """Why it waits, and for how long."""
        self._again.append(f"{self._view.entry.name}: {asked_again(role, pause_s, why)}")

    def moved(self, why: str) -> None:
        """What is done again."""
        self._again.append(f"{self._view.entry.name}: {why}")

    def evaluating(self, candidate: Candidate) -> None:
        """What it waits for."""
        self._view.doing = "building and judging"

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """The first step is done."""
        self._view.score, self._view.emulated, self._view.steps = 1.0, verdict.emulated, 1
        self._view.modelled = verdict.modelled

    def round_started(self, number: int, rounds: int) -> None:
        """Where it is."""
        self._view.round, self._view.rounds = number, rounds

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """What it came to so far."""
        self._view.score = score
        known = verdict.speed is not None and verdict.speed.chance is not None
        self._view.interval = verdict.speed.interval if verdict.speed is not None and known else None

    def round_ended(self, finished: Round) -> None:
        """A step is done."""
        self._view.steps += 1


def usage(holds: Sequence[Hold], units: Sequence[str]) -> tuple[UnitUse, ...]:
    """For how long each unit was held, and held alone; times that overlap count once."""
    return tuple(
        UnitUse(
            unit,
            round(_covered([hold for hold in holds if hold.unit == unit]), 3),
            round(_covered([hold for hold in holds if hold.unit == unit and hold.alone]), 3),
        )
        for unit in units
    )


def _covered(holds: Sequence[Hold]) -> float:
    """Seconds in which at least one of the holds was there."""
    total, until = 0.0, float("-inf")
    for hold in sorted(holds, key=lambda hold: hold.started):
        end = hold.started + hold.seconds
        total += max(0.0, end - max(until, hold.started))
        until = max(until, end)
    return total


def left_s(
    entries: Sequence[Entry],
    steps: Mapping[str, int],
    seconds: Mapping[str, float],
    *,
    steps_each: int,
    jobs: int,
) -> float | None:
    """Seconds until all is done if a step goes on taking what it took on average, `jobs` at once.

    `steps` and `seconds` are those of each entry so far, by its name. None before the first step.
    """
    done = sum(steps.values())
    if not done:
        return None
    left = sum(
        max(0, steps_each - steps.get(entry.name, 0))
        for entry in entries
        if entry.state in (State.WAITING, State.RUNNING)
    )
    return left * sum(seconds.values()) / done / max(1, min(jobs, len(entries)))
