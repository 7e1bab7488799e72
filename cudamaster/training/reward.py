"""Rewards from verdicts: the protocol of the CUDA-L1 paper (section 2.4.4), and CUDA-L2's equation 3. Pure functions.

A round is a turn of the judge: one call of the baseline and one of the kernel, on the same inputs, in random order. Of
each case the speedups of its rounds are cut into 7 buckets in order of time. The case's speedup is the median of the
buckets' means. P is the mean over cases, weighted by their work as in every score here, rounded to two decimals toward
one: 1.118 is 1.11, and 0.992 is 1.00.

What the paper leaves open, or has otherwise, is decided here:
- It has one size of a task. We have several, and round once, after they are combined: a slow case rounded up by itself
  would raise P. If one counted case is too noisy, all of the measurement is discarded: with the case alone left out, a
  kernel could hide there what is slow.
- Its limit of 0.005 on the variance of the buckets' means is absolute, for tens of thousands of rounds. We have some
  hundreds, and the variance grows with the square of the speedup. Of the six kernels in results/h200 with P from 1.05
  to 1.29 and calls of 10 to 20 µs, all 36 cases are within the limit (at most 0.0045). With the same noise and P = 2,
  four of the six would be discarded, and all of them from P = 3 on. So the rule as the paper has it punishes what
  training is for, unless calls are long or quiet. `relative` holds the variance of the means, each divided by their
  average, against the same limit: there at most 0.0026, whatever P is. With 10 rounds, as the baselines there have, 9
  of 12 cases are discarded, and rightly so.
- A mean of ratios favours a kernel that is fast in most calls and very slow in some: ten times as long in every fifth
  call costs it 18 % here, and two thirds of its throughput. `core.speed` sees that, so a case counts no more than the
  ratio of means where that decides there, and than the upper end of its interval elsewhere (`within_interval`; of the
  36 cases above it lowers 2).

A kernel that is to blame gets 0: it is wrong, a fault was found, it was rejected, its times are not positive numbers,
or it alone has no modelled time in a case. Where nobody is to blame, there is no speedup (None): too noisy, not
timed, a counted case that was not run, emulated times, races that could not be looked for. A verdict that lost its
score, as after a second measurement, has none here either. A sample without a speedup should be left out of its
group. It should not be measured until it has one: that would choose the luckiest measurement.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from cudamaster.core.errors import UsageError, one_line
from cudamaster.core.speed import compare
from cudamaster.core.values import RACES_UNSEEN, Candidate, CaseVerdict, Status, Verdict
from cudamaster.guards.lexer import Kind, lex
from cudamaster.strategies.large_gains import AGREEMENT, JumpRule

_TIMES_US = (1e-6, 1e12)  # what a call can take: sums and squares of these do not overflow
_CLEAN, _NOT_CHECKED = "clean", "not checked: "  # of compute-sanitizer's summaries those that blame nobody
_HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True)
class Rule:
    """The constants of rewards. Raises UsageError for one that makes no sense.

    `buckets`, `variance_limit` and `smoothing` (k of equation 6) are the paper's. `relative`, `within_interval`: see
    above. With `unchecked`, modelled times count of cases too, whose outputs were not checked because they are too long
    for the CPU device; a kernel may do less work there than it has to.

    A speedup above `jump_above`, or above `jump_factor` times the best so far, needs verification. The paper's text
    lacks the first threshold, and how much a second measurement may differ. Both are as in every search (large_gains):
    8, which three of four tasks of the CUDAMaster paper never reach, and a quarter (`agreement`), by which two
    processes that allocate through the driver do differ.

    `deviation_penalty` and `length_penalty` are alpha and beta of CUDA-L2's equation 3, whose values its text lacks.
    They decide between kernels of about the same speed: an error of 4 ulps of fp16 (0.004 of its scale) costs 0.04,
    and a thousand tokens cost 0.01.
    """

    buckets: int = 7
    variance_limit: float = 0.005
    relative: bool = False
    within_interval: bool = True
    unchecked: bool = False
    jump_factor: float = JumpRule.factor
    jump_above: float = JumpRule.above
    agreement: float = AGREEMENT
    smoothing: float = 1.5
    deviation_penalty: float = 10.0
    length_penalty: float = 1e-5

    def __post_init__(self) -> None:
        JumpRule(self.jump_factor, self.jump_above)
        if self.buckets < 2:
            raise UsageError(f"Of {self.buckets} buckets there is no variance.", "Take 2 or more.")
        if not 0 < self.smoothing < math.inf:
            raise UsageError(f"Rewards cannot be clipped to {self.smoothing} deviations.", "Give a number above 0.")
        for name in ("variance_limit", "agreement", "deviation_penalty", "length_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}, which makes no reward.", "Give 0 or more.")


@dataclass(frozen=True)
class CaseSpeedup:
    """The speedup of one case, and the variance of its buckets' means (not of a sample); 0 for a modelled case."""

    label: str
    weight: float
    speedup: float
    variance: float
    rounds: int


@dataclass(frozen=True)
class Measured:
    """What a kernel earns: its speedup, 0 if it is to blame, None if nothing can be said. `why` is empty for a speedup.

    `cases` are those that counted.
    """

    speedup: float | None
    why: str = ""
    cases: tuple[CaseSpeedup, ...] = ()


class _Without(Exception):
    """There is no speedup."""

    def __init__(self, speedup: float | None, why: str) -> None:
        self.measured = Measured(speedup, why)


def measured(verdict: Verdict, rule: Rule, cases: Collection[str] | None = None) -> Measured:
    """The reward of a verdict by CUDA-L1's protocol. Of the timed cases only those with the labels in `cases` count.

    Each of them has to be right and timed, so a label that the verdict lacks leaves nothing. Every other case has to be
    right too.
    """
    try:
        counted = _counted(verdict, rule, cases)
    except _Without as without:
        return without.measured
    # Exact sums, so that the order of cases makes no difference; parts of the heaviest, so that none overflows.
    heaviest = max(case.weight for case in counted)
    parts = [(case.weight / heaviest, case.speedup) for case in counted]
    speedup = math.fsum(part * speedup for part, speedup in parts) / math.fsum(part for part, _ in parts)
    return Measured(toward_one(speedup), cases=counted)


def hgemm_reward(candidate: Candidate, verdict: Verdict, rule: Rule, cases: Collection[str] | None = None) -> Measured:
    """Equation 3 of CUDA-L2: (1/N) sum of [t_ref / t_custom - alpha diff] over cases, less beta L.

    A case's ratio is its speedup by the protocol above, and `diff` its worst error in any output. That is in units of
    the element's scale (the sum of its absolute terms), where the paper's is absolute. L is the number of tokens:
    comments and long names cost nothing, so nothing is gained by leaving them out. All cases weigh the same, nothing is
    rounded, and a right kernel has no less than a wrong one, 0.
    """
    if candidate.id != verdict.candidate:
        raise ValueError(f"a verdict on {verdict.candidate} beside the candidate {candidate.id}")
    try:
        counted = _counted(verdict, rule, cases)
        checked = {case.label: case for case in verdict.cases if case.sweep}
        parts = [case.speedup - rule.deviation_penalty * _worst_error(checked[case.label]) for case in counted]
    except _Without as without:
        return without.measured
    length = sum(token.kind is not Kind.NEWLINE for token in lex(candidate.code).tokens)
    return Measured(max(0.0, math.fsum(parts) / len(parts) - rule.length_penalty * length), cases=counted)


def toward_one(speedup: float) -> float:
    """A speedup with two decimals, never further from one than it was (but for an error in its twelfth digit)."""
    exact = Decimal(f"{speedup:.12g}")
    return float(exact.quantize(_HUNDREDTH, ROUND_FLOOR if exact > 1 else ROUND_CEILING))


def leap(speedup: float, best: float, rule: Rule) -> str | None:
    """Why a speedup has to be verified before it counts, or None; `best` is the best of its task that counts so far.

    The paper verifies every speedup above its first threshold. As in a search, only a new best is verified here: what
    one kernel of a task has been confirmed to reach is no surprise in the next.
    """
    return JumpRule(rule.jump_factor, rule.jump_above).broken(speedup, best)


def confirmed(first: float, second: Measured, rule: Rule) -> bool:
    """Whether a second measurement confirms a speedup: it differs by no more than `agreement` of the lower one."""
    if second.speedup is None or not first > 0 or not second.speedup > 0:
        return False
    low, high = sorted((first, second.speedup))
    return high <= low * (1 + rule.agreement)


def smoothed(rewards: Sequence[float], k: float = Rule.smoothing) -> tuple[float, ...]:
    """Equation 6 of CUDA-L1: rewards less their mean, divided by their standard deviation, clipped to -k to k.

    The equation's image is missing; the text says that rewards are normalised by the mean and the deviation of their
    distribution, and that k clips. Raises ValueError for what is not finite.
    """
    return tuple(min(k, max(-k, reward)) for reward in normalised(rewards))


def normalised(rewards: Sequence[float]) -> tuple[float, ...]:
    """Equation 4 of CUDA-L1: (r - mean) / std over a group; zeros if all are equal.

    The deviation is that of the group itself (divided by their number N). Raises ValueError for what is not finite.
    """
    if not all(map(math.isfinite, rewards)):
        raise ValueError(f"rewards {rewards} are not all finite")
    if not rewards or min(rewards) == max(rewards):
        return (0.0,) * len(rewards)
    largest = max(map(abs, rewards))  # squares of large numbers overflow
    scaled = [reward / largest for reward in rewards]
    mean, deviation = statistics.fmean(scaled), statistics.pstdev(scaled)
    return tuple((reward - mean) / deviation for reward in scaled) if deviation else (0.0,) * len(rewards)


def advantages(rewards: Sequence[float | None], k: float) -> list[float | None]:
    """Advantages of a group: its known rewards smoothed (equation 6), then normalised (equation 4); None stays None."""
    known = iter(normalised(smoothed([each for each in rewards if each is not None], k)))
    return [None if each is None else next(known) for each in rewards]


def _counted(verdict: Verdict, rule: Rule, wanted: Collection[str] | None) -> tuple[CaseSpeedup, ...]:
    """The cases that count, with their speedups. Raises _Without."""
    if verdict.status is Status.UNSUPPORTED:
        raise _Without(None, f"unsupported: {one_line(verdict.detail)}")
    if (why := blame(verdict)) is not None:
        raise _Without(0.0, why)
    if verdict.mark == "emulated":
        raise _Without(None, "its times are emulated")
    if unseen := next((note for note in verdict.notes if note.startswith(RACES_UNSEEN)), None):
        raise _Without(None, one_line(unseen))
    if verdict.score is None:
        raise _Without(None, f"it has no score: {one_line(verdict.detail)}")
    timed = [case for case in verdict.cases if case.sweep]
    if twice := [label for label, count in Counter(case.label for case in timed).items() if count > 1]:
        raise _Without(None, f"case {twice[0]} is there twice")
    if lacking := sorted({*(wanted or ())} - {case.label for case in timed}):
        raise _Without(None, f"it has no timed case {lacking[0]}")
    counted = tuple(_speedup(case, verdict, rule) for case in timed if wanted is None or case.label in wanted)
    if wanted is None and not verdict.complete:
        raise _Without(None, "a timed case was not run or has no time")
    if not all(0 <= case.weight < math.inf for case in counted) or not any(case.weight for case in counted):
        raise _Without(None, "no case counts, or its weight is none")
    return counted


def blame(verdict: Verdict) -> str | None:
    """Why the kernel itself earns nothing, or None."""
    if not verdict.correct:
        return f"{verdict.status.value}: {one_line(verdict.detail)}"
    for case in verdict.cases:
        if case.status not in (None, Status.CORRECT) or any(output.mismatches for output in case.outputs):
            return f"wrong: case {case.label}"
    for tool, said in verdict.sanitizers.items():
        if said != _CLEAN and not said.startswith(_NOT_CHECKED):
            return f"{tool}: {one_line(said)}"
    if verdict.lacking:
        return f"only the kernel is to blame that {verdict.lacking[0]} has no modelled time"
    if verdict.score is not None and not 0 < verdict.score < math.inf:
        return f"P = {verdict.score} is no speedup"
    return None


def _speedup(case: CaseVerdict, verdict: Verdict, rule: Rule) -> CaseSpeedup:
    """The speedup of a case that counts. Raises _Without."""
    unchecked = case.skipped is not None or case.status is not Status.CORRECT
    if unchecked and not (rule.unchecked and verdict.modelled is not None):
        raise _Without(None, f"case {case.label} was not checked: {case.skipped or 'it was not run'}")
    if verdict.modelled is not None:
        if case.modelled is None:
            raise _Without(None, f"case {case.label} has no modelled time: {case.not_modelled}")
        (ratio,) = _ratios(case.label, (case.modelled.baseline_us,), (case.modelled.candidate_us,))
        return CaseSpeedup(case.label, case.weight, ratio, 0.0, 1)
    if case.timing is None:
        raise _Without(None, f"case {case.label} has no times")
    ratios = _ratios(case.label, case.timing.baseline_us, case.timing.candidate_us)
    if len(ratios) < rule.buckets:
        raise _Without(None, f"case {case.label}: {len(ratios)} rounds do not fill {rule.buckets} buckets")
    means = bucket_means(ratios, rule.buckets)
    variance = statistics.pvariance(means) / (statistics.fmean(means) ** 2 if rule.relative else 1.0)
    if not variance <= rule.variance_limit:
        found = f"a variance of {variance:.4f} is above {rule.variance_limit:g}"
        raise _Without(None, f"case {case.label} is too noisy: {found}")
    speedup = statistics.median(means)
    if rule.within_interval:
        ours = compare(case.timing.baseline_us, case.timing.candidate_us)
        highest = ours.mean_ratio if ours.speedup == ours.mean_ratio else ours.interval.high
        speedup = speedup if speedup <= highest * (1 + 1e-12) else highest
    return CaseSpeedup(case.label, case.weight, speedup, variance, len(ratios))


def bucket_means(ratios: Sequence[float], buckets: int) -> list[float]:
    """Means of neighbouring rounds, in as many buckets of equal size, give or take one. There are enough rounds."""
    count = len(ratios)
    edges = [number * count // buckets for number in range(buckets + 1)]
    return [statistics.fmean(ratios[low:high]) for low, high in itertools.pairwise(edges)]


def _ratios(label: str, baseline_us: Sequence[float], candidate_us: Sequence[float]) -> list[float]:
    """The speedup of each round. Raises _Without: a kernel whose times are none earns nothing."""
    low, high = _TIMES_US
    if len(baseline_us) != len(candidate_us) or not all(low <= us <= high for us in (*baseline_us, *candidate_us)):
        raise _Without(0.0, f"case {label} has times that are none")
    return [before / after for before, after in zip(baseline_us, candidate_us, strict=True)]


def _worst_error(case: CaseVerdict) -> float:
    """The largest error of a case's outputs. Raises _Without."""
    errors = [output.worst_error for output in case.outputs]
    if not errors:
        raise _Without(None, f"case {case.label} has no outputs that were checked")
    if not all(0 <= error < math.inf for error in errors):
        raise _Without(0.0, f"case {case.label} has an error that is none")
    return max(errors)
