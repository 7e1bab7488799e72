"""k independent single shots: the baseline that every paper reports. The best of k counts, every verdict is kept.

Each shot is the CudaForge paper's one-shot prompt (appendix D.1, there KernelBench's): the task and a plain kernel, no
profile, no result of another shot, no second try at a kernel that fails. Each asks the very same, so that what differs
is what the model draws; one that always answers the same gives one kernel, which is judged once.
"""

from __future__ import annotations

from cudamaster.agents import lone_coder
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.core.values import Plan, Role
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy

NAME = "sample"
ROLES = (Role.CODER,)


def search(frame: Frame, settings: SearchSettings) -> None:
    """Ask for as many kernels as the settings have rounds."""
    samples, baseline = settings.rounds, frame.baseline.candidate
    for number in range(1, samples + 1):
        frame.observer.round_started(number, samples)
        plan = Plan(f"Shot {number}", "A kernel from the task alone.")
        frame.observer.planned(number, plan)
        attempts: list[Attempt] = []
        try:
            code = lone_coder.write(frame.models[Role.CODER], frame.brief, baseline.code, number)
        except ReplyMisfit as misfit:
            frame.lost(number, plan, attempts, str(misfit))
            continue
        candidate = frame.candidate(code)
        verdict = frame.judge(number, candidate, attempts, source=baseline)
        frame.settle(number, plan, attempts, candidate, verdict)


STRATEGY = Strategy(
    NAME,
    "R independent single shots of the Coder, without any feedback",
    ROLES,
    search,
    rounds=10,
    shows_profile=lambda options: False,
    coder=lambda model, brief, baseline, candidate, verdict: lone_coder.write(model, brief, baseline.code),
)
