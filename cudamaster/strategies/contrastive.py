"""CUDA-L1 with fixed weights: in each round the model compares earlier kernels by their scores and writes a better one.

The CUDA-L1 paper trains its model on this loop. Without training it calls the loop "fixed-parameter solution
optimization" (section 2.4), and "evolve" in its measurements (section 4.4). A round is:

    exemplars = N kernels out of distinct buckets of score    section 2.4.3, and exemplars.py
    analysis, algorithm, code = model(exemplars)              section 2.4.2, and agents/contrast.py
    verdict = build, check and time it
    a correct kernel joins the exemplars with its score       section 2.4

What the paper leaves open is decided here:
- The exemplars start with the baseline, whose score is 1 by definition; the first round sees it alone.
- What fails joins nothing: there is no debugging, and no later prompt mentions it. Its status and its log stay in the
  round's record. The same goes for a reply that does not fit its form when it is asked again either.
- The Compiler chooses the command, as in algorithm 1: the paper builds every kernel in one way.
- Scores are P of our harness, whose turns and intervals stand in for the paper's own against noise (section 2.4.4): its
  rounding to two decimals and its limit on the variance of a measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from cudamaster.agents import contrast
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.contrast import Exemplar, Improvement
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Plan, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.exemplars import Islands, Pool, Selection
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy, options_of

NAME = "contrastive"
ROLES = (Role.CODER, Role.COMPILER)
NO_PLAN = Plan("(no plan)", "The model gave no usable reply.")


@dataclass(frozen=True)
class Options:
    """N, tau, and the factor between buckets, as in exemplars.Selection; and the number of islands (1: no islands).

    Every `migration_interval` rounds the inferior half of the islands is replaced by copies.
    """

    exemplars: int = 2
    temperature: float = 1.0
    bucket_ratio: float = 1.1
    islands: int = 1
    migration_interval: int = 10

    def __post_init__(self) -> None:
        for name, least in (("exemplars", 1), ("islands", 1), ("migration_interval", 1)):
            if getattr(self, name) < least:
                raise _senseless(name, getattr(self, name), f"at least {least}")
        if not 0 < self.temperature < math.inf:
            raise _senseless("temperature", self.temperature, "a number above 0")
        if not 1 < self.bucket_ratio < math.inf:
            raise _senseless("bucket_ratio", self.bucket_ratio, "a number above 1")

    @property
    def selection(self) -> Selection:
        """How exemplars are drawn."""
        return Selection(self.exemplars, self.temperature, self.bucket_ratio)


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """Write one kernel in each round. The seed of the draws is unrelated to that of the inputs."""
    rounds, options = settings.rounds, options_of(STRATEGY, settings.options)
    random = Random(settings.search_seed)
    baseline = frame.baseline
    first = Exemplar(baseline.candidate, baseline.verdict, baseline.score, is_baseline=True)
    islands = Islands(first, options.islands, options.migration_interval)
    for number in range(1, rounds + 1):
        frame.observer.round_started(number, rounds)
        island = islands.of_round(number)
        exemplars = island.draw(options.selection, random)
        tried = [outcome.plan.idea for outcome in frame.history]
        plan = NO_PLAN
        try:
            improvement = contrast.improve(frame.models[Role.CODER], frame.brief, exemplars, tried)
            if improvement is None:
                return f"The model has no further idea after {len(frame.rounds)} of {rounds} rounds."
            plan = improvement.plan
            # A reader of the run also sees why the model does it; no other agent does.
            frame.observer.planned(number, Plan(plan.idea, f"{improvement.analysis}\n\n{plan.text}"))
            command = frame.compile_command(number, plan, improvement.code)
        except ReplyMisfit as misfit:
            frame.lost(number, plan, (), str(misfit))
        else:
            _try(frame, number, improvement, command, exemplars[-1], island)
        islands.end_round(number, random)
    return None


def _try(
    frame: Frame, number: int, improvement: Improvement, command: str, fastest_shown: Exemplar, island: Pool
) -> None:
    """Judge the round's kernel; a correct one joins its island, and is the new best when it is the fastest."""
    attempts: list[Attempt] = []
    candidate = frame.candidate(improvement.code, command)
    verdict = frame.judge(number, candidate, attempts, source=fastest_shown.candidate)
    if verdict.score is not None:
        island.add(Exemplar(candidate, verdict, verdict.score))
    frame.settle(number, improvement.plan, attempts, candidate, verdict)


def _senseless(name: str, value: float, wanted: str) -> UsageError:
    return UsageError(f"{name} is {value}, which makes no contrastive search.", f"Make it {wanted}.")


def _ask_coder(model: Model, brief: Brief, baseline: Candidate, candidate: Candidate, verdict: Verdict) -> object:
    shown = [Exemplar(baseline, verdict, 1.0, is_baseline=True)]
    if candidate.id != baseline.id:
        if not verdict.correct or verdict.score is None:
            raise UsageError(f"The strategy {NAME} shows no kernel without a score.", "Take another kernel.")
        shown.append(Exemplar(candidate, verdict, verdict.score))
    return contrast.improve(model, brief, sorted(shown, key=lambda exemplar: exemplar.score), [])


STRATEGY = Strategy(
    NAME,
    "CUDA-L1 with fixed weights: R kernels, each written from earlier ones and their scores",
    ROLES,
    search,
    rounds=10,
    shows_profile=lambda options: False,
    options=Options,
    coder=_ask_coder,
)
