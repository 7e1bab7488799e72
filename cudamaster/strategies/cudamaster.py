"""Algorithm 1 of the CUDAMaster paper: R rounds of Planner, Coder and Compiler, each with up to D debug
tries.

Line numbers in comments are those of the paper's listing. It departs from the listing in one place: where
line 10 hands the Debug agent C* and its profile, the paper's text (section 4.3, appendix B.4) hands it the
failing kernel with its log, and so does this; a second try starts from the first try's code.

A role that twice gives no usable reply costs the round, except the Compiler: the default command replaces its own.
"""

from __future__ import annotations

from cudamaster.agents import coder, debug, planner
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.debug import Diagnosis
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Plan, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies import other_agents
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy

NAME = "cudamaster"
ROLES = (Role.PLANNER, Role.CODER, Role.COMPILER, Role.DEBUG)
NO_PLAN = Plan("(no plan)", "The Planner gave no usable reply.")


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """Run algorithm 1 with R and D of the settings. Raises UsageError for D < 0.

    Lines 1 and 2 are done: C*, S*, pi* and P* = 1.
    """
    rounds = settings.rounds
    if settings.debug_tries < 0:
        raise UsageError(f"D = {settings.debug_tries} makes no search.", "Give no fewer than 0 debug tries.")
    for number in range(1, rounds + 1):  # line 3
        frame.observer.round_started(number, rounds)
        best = frame.best
        plan = NO_PLAN
        attempts: list[Attempt] = []
        try:
            proposed = planner.propose(  # line 4
                frame.models[Role.PLANNER], frame.brief, best.candidate, best.verdict, best.findings, frame.history
            )
            if proposed is None:
                return f"The planner has no further idea after {len(frame.rounds)} of {rounds} rounds."
            plan = proposed
            frame.observer.planned(number, plan)
            tries = settings.tries_in(number)
            candidate, verdict = write_and_debug(frame, number, plan, best.candidate, tries, attempts)
        except ReplyMisfit as misfit:
            frame.lost(number, plan, attempts, str(misfit))
        else:
            # Lines 20 to 25: a scheme that was not accepted stays in the history as failed, where the Planner sees it.
            frame.settle(number, plan, attempts, candidate, verdict)
    return None  # line 27


def write_and_debug(
    frame: Frame, number: int, plan: Plan, start: Candidate, debug_tries: int, attempts: list[Attempt]
) -> tuple[Candidate, Verdict]:
    """Lines 5 to 19, for other strategies too: `start` is C* here, and in a search that keeps several any of them."""
    written = coder.implement(frame.models[Role.CODER], frame.brief, plan, start.code)  # line 5
    candidate = frame.candidate(written, frame.compile_command(number, plan, written))  # line 6
    verdict = frame.judge(number, candidate, attempts, source=start)  # line 7
    tried: list[Diagnosis] = []
    for debug_try in range(1, debug_tries + 1):  # lines 8 and 9
        if verdict.correct:
            break
        fix = debug.diagnose(frame.models[Role.DEBUG], frame.brief, plan, candidate, verdict, tried)  # line 10
        if fix is None:
            break
        tried.append(fix)
        frame.observer.diagnosed(number, debug_try, fix)
        written = coder.repair(frame.models[Role.CODER], frame.brief, plan, fix, candidate.code)  # line 11
        candidate = frame.candidate(written, frame.compile_command(number, plan, written))  # line 12
        verdict = frame.judge(number, candidate, attempts, debug_try=debug_try, diagnosis=fix)  # line 13
    return candidate, verdict


def ask_coder(model: Model, brief: Brief, baseline: Candidate, candidate: Candidate, verdict: Verdict) -> str:
    """What the Coder is asked about a candidate alone, with a plan or a fix still to come."""
    if verdict.correct:
        return coder.implement(model, brief, other_agents.PLAN, candidate.code)
    return coder.repair(model, brief, other_agents.PLAN, other_agents.DIAGNOSIS, candidate.code)


STRATEGY = Strategy(
    NAME,
    "algorithm 1: Planner, Coder, Compiler and Debug, R rounds of up to D debug tries",
    ROLES,
    search,
    rounds=3,
    debug_tries=3,
    coder=ask_coder,
)
