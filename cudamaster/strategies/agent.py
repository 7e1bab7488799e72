"""An outside agent searches: a program of the user's submits up to R kernels, and sees the verdict of each.

What the program does in between is its own business. For the search it answers like a model: each reply is one
submission, so that records, --resume, --replay and budgets hold as in any strategy. The program itself is run by
`outside`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cudamaster.agents import submitter
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.submitter import Ended, Submission
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Plan, Role
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy

NAME = "agent"
ROLES = (Role.AGENT,)
_NOTHING = Plan("(no submission)", "The agent submitted nothing that can be judged.")


@dataclass(frozen=True)
class Options:
    """The agent's command, without a shell, and for how many minutes a session lets it work."""

    command: str = ""
    minutes: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise UsageError(f"An agent cannot work for {self.minutes:g} minutes.", "Give a number above 0.")


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """Judge as many submissions as the settings have rounds."""
    rounds, original = settings.rounds, Submission(frame.baseline.candidate.code).title
    for number in range(1, rounds + 1):
        frame.observer.round_started(number, rounds)
        attempts: list[Attempt] = []
        try:
            submitted = submitter.next_submission(frame.models[Role.AGENT], frame.brief, frame.history)
        except ReplyMisfit as misfit:
            frame.lost(number, _NOTHING, attempts, str(misfit))
            continue
        if isinstance(submitted, Ended):
            return f"{submitted.ended} It used {len(frame.rounds)} of {rounds} submissions."
        # A comment that the baseline begins with too, and was left there, says nothing.
        title = submitted.title if submitted.title != original else ""
        plan = Plan(title or f"Submission {number}", "Submitted by the agent.")
        frame.observer.planned(number, plan)
        candidate = frame.candidate(submitted.code, submitted.command)
        verdict = frame.judge(number, candidate, attempts)
        frame.settle(number, plan, attempts, candidate, verdict)
    return None


STRATEGY = Strategy(
    NAME,
    "an outside coding agent (--agent-command) that submits up to R kernels",
    ROLES,
    search,
    rounds=20,
    options=Options,
)
