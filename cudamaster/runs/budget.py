"""Limits on what a search may spend, and the one object that enforces them.

Limits are checked before each attempt to ask a model, and before a candidate is judged or profiled. Only the minutes
are also checked meanwhile, while a model answers: the call in progress ends with them. Other limits can be exceeded
only by what was in progress when they were reached: one attempt of a call or one judgement; in a suite, one for each
running task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from threading import Lock

from cudamaster.core.errors import BudgetSpent
from cudamaster.core.values import LATER, Hold
from cudamaster.models.protocol import REPLY_SECONDS, Usage


@dataclass(frozen=True)
class Limits:
    """The most that may be spent; None for no limit. Minutes are wall time in which a process worked on it.

    Tokens are those of prompts and replies together. GPU seconds are those in which a GPU was held, alone or shared
    (the CPU device, where that is the device). `reply_seconds` are those of one whole reply of a model, whatever
    arrives meanwhile.
    """

    dollars: float | None = None
    tokens: float | None = None
    minutes: float | None = None
    gpu_seconds: float | None = None
    reply_seconds: float | None = field(default=REPLY_SECONDS, metadata=LATER)


@dataclass(frozen=True)
class Spent:
    """What was spent. `unpriced` calls have no known price and `uncounted` ones no known tokens: the sums lack them."""

    dollars: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    calls: int = 0
    unpriced: int = 0
    uncounted: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.dollars + other.dollars,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            self.gpu_seconds + other.gpu_seconds,
            self.calls + other.calls,
            self.unpriced + other.unpriced,
            self.uncounted + other.uncounted,
        )


@dataclass(frozen=True)
class Session:
    """One process's work on a run or a suite: `seconds` of wall time until it last wrote to disk.

    `ended` says how it ended. It is None while the process works, and stays None if it was killed.
    """

    started: str
    limits: Limits
    seconds: float = 0.0
    holds: tuple[Hold, ...] = ()
    ended: str | None = None


def cost(usage: Usage) -> Spent:
    """What one call of a model cost."""
    known = usage.prompt_tokens is not None and usage.completion_tokens is not None
    return Spent(
        dollars=usage.dollars or 0.0,
        tokens=(usage.prompt_tokens or 0) + (usage.completion_tokens or 0),
        calls=1,
        unpriced=int(usage.dollars is None),
        uncounted=int(not known),
    )


class Budget:
    """Counts what is spent against limits. All tasks of a suite share one, each from its own thread."""

    def __init__(
        self, limits: Limits | None = None, before: Spent | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`before` is what earlier sessions spent. The clock starts now."""
        self.limits = limits or Limits()
        self._spent = before or Spent()
        self._clock = clock
        self._since = clock()
        self._stopped: str | None = None
        self._holds: list[Hold] = []
        self._lock = Lock()

    @property
    def spent(self) -> Spent:
        """What was spent so far, including earlier sessions."""
        with self._lock:
            return changed(self._spent, seconds=self._spent.seconds + self._clock() - self._since)

    def asked(self, usage: Usage) -> None:
        """Count what a call of a model cost."""
        with self._lock:
            self._spent += cost(usage)

    def held(self, hold: Hold) -> None:
        """Count a time in which a device was held."""
        with self._lock:
            self._spent += Spent(gpu_seconds=hold.seconds)
            self._holds.append(hold)

    @property
    def holds(self) -> tuple[Hold, ...]:
        """When devices were held, since this budget counts."""
        with self._lock:
            return tuple(self._holds)

    def stop(self, why: str) -> None:
        """Let nothing more begin."""
        self._stopped = why

    @property
    def why_stopped(self) -> str | None:
        """Why nothing more may begin; None if it may."""
        try:
            self.check()
        except BudgetSpent as spent:
            return spent.reason
        return None

    def check(self) -> None:
        """Raise BudgetSpent, which names the limit and what was spent, when nothing more may begin."""
        self.check_time()
        spent, limits = self.spent, self.limits
        for option, limit, used, unit, digits in (
            ("--max-dollars", limits.dollars, spent.dollars, "dollars", 4),
            ("--max-tokens", limits.tokens, spent.tokens, "tokens", 0),
            ("--max-gpu-seconds", limits.gpu_seconds, spent.gpu_seconds, "GPU seconds", 1),
        ):
            # Written so that a sum that is NaN stops it.
            if limit is not None and not used < limit:
                raise _is_spent(option, limit, used, unit, digits)
        for option, limit, unknown, what in (
            ("--max-dollars", limits.dollars, spent.unpriced, "price"),
            ("--max-tokens", limits.tokens, spent.uncounted, "number of tokens"),
        ):
            if limit is not None and unknown:
                raise BudgetSpent(
                    f"{option} {_figure(limit)} cannot be kept: the {what} of {unknown} calls is unknown.",
                    f"Continue with --resume, `{option} inf` and a limit that can be kept.",
                )

    def check_time(self) -> None:
        """Raise BudgetSpent when the minutes are over or nothing more may begin; this also ends a call in progress.

        No other limit does: the call's cost is already spent, and its reply may still be useful.
        """
        if self._stopped is not None:
            raise BudgetSpent(self._stopped, "It goes on with --resume.")
        minutes, spent_s = self.limits.minutes, self.spent.seconds
        if minutes is not None and not spent_s < 60 * minutes:
            raise _is_spent("--max-minutes", minutes, spent_s / 60, "minutes", 2)

    def check_pause(self, pause_s: float) -> None:
        """Raise BudgetSpent if nothing more may begin now or after the pause: the rest would be spent on waiting."""
        self.check()
        minutes, spent_s = self.limits.minutes, self.spent.seconds
        if minutes is not None and not spent_s + pause_s < 60 * minutes:
            raise BudgetSpent(
                f"The budget of {_figure(minutes)} minutes ends within the {_figure(pause_s, 0)} s before a model can "
                f"be asked again: {_figure(spent_s / 60, 2)} are spent.",
                "It goes on with --resume and a larger --max-minutes.",
            )


def _is_spent(option: str, limit: float, used: float, unit: str, digits: int) -> BudgetSpent:
    return BudgetSpent(
        f"The budget of {_figure(limit)} {unit} is spent: {_figure(used, digits)}.",
        f"It goes on with --resume and a larger {option}.",
    )


def _figure(number: float, digits: int = 4) -> str:
    """With commas between thousands, and no more than `digits` decimals."""
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
