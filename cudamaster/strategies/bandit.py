"""A bandit over kinds of optimisation: UCB1 says of which kind the next step is, and the profile leaves some out.

The rule is UCB1 (Auer, Cesa-Bianchi and Fischer, Machine Learning 47, 2002). KernelBand (arXiv:2511.18868) has language
models optimise kernels by a bandit over strategies that hardware profiles prune. Each round:

    arms  = the kinds of `KINDS` that the class of the best kernel's profile leaves (`left_out`)
    kind  = an arm that was never tried, the first in the table; otherwise the arm with the largest
            mean reward + exploration * sqrt(2 ln(all trials) / trials of the arm)
    plan  = Planner(best kernel, its profile, history, kind), and the rest of the round as in algorithm 1
    reward = log2(new best / best before), at most 1 (a doubling); 0 if the round brought no new best

What that leaves open is decided here:
- UCB1 and not Thompson sampling: in some ten rounds a prior would decide what Thompson sampling draws, and anybody can
  work out the choices of UCB1 from the rewards, without a seed.
- `exploration` is 1 in UCB1. That is for rewards that fill 0 to 1; gains per step are rather 0.1, and with 1 all arms
  would take turns for a hundred rounds.
- A kind of which the Planner says that nothing can help is asked for again only once there is a new best. That costs a
  reply, no round and no reward.
- Means count all trials, though a gain is rarely had twice: an arm that is used up falls behind by its zeros.
- Without a profile, or without a class in it, nothing is left out; `prune=false` leaves nothing out either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cudamaster.agents import planner
from cudamaster.agents.asking import ReplyMisfit
from cudamaster.agents.brief import Brief
from cudamaster.agents.planner import Kind
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Bottleneck, Candidate, Findings, Plan, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.cudamaster import NO_PLAN, ROLES, ask_coder, write_and_debug
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.result import Attempt
from cudamaster.strategies.strategy import SearchSettings, Strategy, options_of

NAME = "bandit"


@dataclass(frozen=True)
class Arm:
    """A kind of optimisation; `left_out` says for which classes of kernels it is not tried, and why."""

    kind: Kind
    left_out: Mapping[Bottleneck, str] = field(default_factory=dict)


_IDLE_UNITS = "the arithmetic units wait for data as it is, and faster ones would wait longer"
_BUSY_MEMORY = "what is moved takes the time, and this moves no less"
# The order is that of the first trials: what helps most kernels comes first.
KINDS = (
    Arm(
        Kind(
            "memory access",
            "which threads load and store what, so that warps touch whole sectors; vector loads and stores; alignment; "
            "read-only and streaming accesses.",
        )
    ),
    Arm(
        Kind(
            "registers and instruction-level parallelism",
            "several outputs in each thread, unrolled loops, blocking in registers, independent chains of operations.",
        )
    ),
    Arm(
        Kind(
            "shared memory",
            "tiles that the threads of a block share, so that each value is loaded once; no bank conflicts.",
        )
    ),
    Arm(
        Kind(
            "warp primitives",
            "shuffles, votes and reductions within a warp in place of shared memory, barriers and atomics.",
        )
    ),
    Arm(
        Kind(
            "launch shape",
            "threads per block, blocks per SM, registers per thread, grid-stride loops, the same work for every SM.",
        ),
        {Bottleneck.COMPUTE: "the SMs are busy, and more warps would share the same units"},
    ),
    Arm(
        Kind(
            "fewer launches",
            "kernels that are fused, passes over the data that are saved, memory that need not be allocated, set or "
            "copied.",
        )
    ),
    Arm(
        Kind(
            "asynchronous copies",
            "loads that are under way while earlier ones are worked on: cp.async, bulk copies, pipelines of several "
            "stages.",
        ),
        {Bottleneck.COMPUTE: "the SMs are busy while loads are under way already"},
    ),
    Arm(
        Kind(
            "algorithm",
            "another way to the same result that does less work, moves less data or has a shorter chain of dependent "
            "steps.",
        )
    ),
    Arm(
        Kind(
            "tensor cores",
            "products of matrices by mma, wmma or wgmma, within the accuracy that the task asks for.",
        ),
        {Bottleneck.LATENCY: _IDLE_UNITS, Bottleneck.BANDWIDTH: _BUSY_MEMORY},
    ),
    Arm(
        Kind(
            "cheaper arithmetic",
            "fast intrinsics and reciprocals, packed operations, fewer conversions, cheaper index arithmetic, flags of "
            "the compiler for it.",
        ),
        {Bottleneck.LATENCY: _IDLE_UNITS, Bottleneck.BANDWIDTH: _BUSY_MEMORY},
    ),
)


@dataclass(frozen=True)
class Options:
    """The factor before the exploration term of UCB1, and whether the profile leaves kinds out."""

    exploration: float = 0.2
    prune: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.exploration < math.inf:
            raise UsageError(f"exploration is {self.exploration}, which makes no bandit.", "Make it at least 0.")


@dataclass
class Record:
    """What the trials of each kind brought, by its name."""

    rewards: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: Kind, reward: float) -> None:
        """One more trial."""
        self.rewards.setdefault(kind.name, []).append(reward)

    def choose(self, kinds: Sequence[Kind], exploration: float) -> Kind:
        """The kind with the largest index, among equals the first; one that was never tried goes before all others."""
        return max(kinds, key=lambda kind: self.index(kind, exploration))

    def index(self, kind: Kind, exploration: float) -> float:
        """UCB1's: what the kind brought on average, and what it may be worth beyond that."""
        trials = self.rewards.get(kind.name)
        if not trials:
            return math.inf
        every = sum(map(len, self.rewards.values()))
        return math.fsum(trials) / len(trials) + exploration * math.sqrt(2 * math.log(every) / len(trials))


def search(frame: Frame, settings: SearchSettings) -> str | None:
    """One step from the best kernel in each round, of the kind that the record of earlier ones says."""
    options, record = options_of(STRATEGY, settings.options), Record()
    refused: dict[str, set[str]] = {}  # kinds of which nothing can help, by the id of the best then
    for number in range(1, settings.rounds + 1):
        frame.observer.round_started(number, settings.rounds)
        best, attempts, plan = frame.best, list[Attempt](), NO_PLAN
        limit = best.findings.bottleneck if options.prune else None
        kinds = kinds_for(limit)
        useless = refused.setdefault(best.candidate.id, set())
        proposed, kind = None, kinds[0]
        try:
            while proposed is None:
                left = [each for each in kinds if each.name not in useless]
                if not left:
                    return f"The planner has no idea of any kind after {len(frame.rounds)} of {settings.rounds} rounds."
                kind = record.choose(left, options.exploration)
                proposed = planner.propose(
                    frame.models[Role.PLANNER],
                    frame.brief,
                    best.candidate,
                    best.verdict,
                    best.findings,
                    frame.history,
                    kind=kind,
                )
                if proposed is None:
                    useless.add(kind.name)
            plan = proposed
            # A reader of the run also sees which kind it is, and why; the Coder has no use for that.
            frame.observer.planned(number, Plan(plan.idea, f"{_why(kind, limit, record)}\n\n{plan.text}"))
            tries = settings.tries_in(number)
            candidate, verdict = write_and_debug(frame, number, plan, best.candidate, tries, attempts)
        except ReplyMisfit as misfit:
            frame.lost(number, plan, attempts, str(misfit))
        else:
            frame.settle(number, plan, attempts, candidate, verdict)
        record.add(kind, reward(best.score, frame.best.score))
    return None


def kinds_for(limit: Bottleneck | None) -> list[Kind]:
    """The kinds that are tried on kernels of that class, in the order of the table; all if it is not known."""
    return [arm.kind for arm in KINDS if limit is None or limit not in arm.left_out]


def reward(before: float, after: float) -> float:
    """What a round brought, from 0 to 1, of the best scores before and after it: 1 for a doubling or more."""
    return min(1.0, math.log2(after / before))


def _why(kind: Kind, limit: Bottleneck | None, record: Record) -> str:
    """Of which kind a plan is, how often that was tried, and what is left out, for readers of the run."""
    trials = record.rewards.get(kind.name, [])
    tried = f"trials: {len(trials)}, mean reward {math.fsum(trials) / len(trials):.2f}" if trials else "not tried yet"
    reasons = [f"{arm.kind.name} ({arm.left_out[limit]})" for arm in KINDS if limit in arm.left_out] if limit else []
    left_out = f" Left out of a kernel that is {limit}: {'; '.join(reasons)}." if reasons else ""
    return f"Kind: {kind.name} ({tried}).{left_out}"


def _ask_planner(model: Model, brief: Brief, candidate: Candidate, verdict: Verdict, findings: Findings) -> object:
    kind = kinds_for(findings.bottleneck)[0]
    return planner.propose(model, brief, candidate, verdict, findings, [], kind=kind)


STRATEGY = Strategy(
    NAME,
    "a bandit over kinds of optimisation, pruned by the profile: R steps from the best kernel",
    ROLES,
    search,
    rounds=10,
    debug_tries=3,
    options=Options,
    coder=ask_coder,
    planner=_ask_planner,
)
