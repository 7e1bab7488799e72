"""Rounds of two agents: the Critic names what costs most in the best kernel, the Coder rewrites it."""

from __future__ import annotations

from cudamaster.agents import coder, critic
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.core.values import Plan, Role
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy

ROLES = (Role.CRITIC, Role.CODER)
_NO_ADVICE = Plan("(no advice)", "The Critic gave no usable reply.")


def search(frame: Frame, settings: SearchSettings) -> None:
    """Search as the settings say. The frame judges, keeps the best, and tells the observer."""
    for number in range(1, settings.rounds + 1):
        frame.observer.round_started(number, settings.rounds)
        best, plan = frame.best.candidate, _NO_ADVICE
        attempts: list[Attempt] = []
        try:
            plan = critic.criticise(frame.models[Role.CRITIC], frame.brief, best.code)
            frame.observer.planned(number, plan)
            code = coder.implement(frame.models[Role.CODER], frame.brief, plan, best.code)
        except ReplyMisfit as misfit:
            frame.lost(number, plan, attempts, str(misfit))
            continue
        candidate = frame.candidate(code)
        verdict = frame.judge(number, candidate, attempts)
        frame.settle(number, plan, attempts, candidate, verdict)


STRATEGY = Strategy(
    "criticised",
    "Critic and Coder over R rounds, without a profile",
    ROLES,
    search,
    rounds=3,
    shows_profile=lambda options: False,
)
