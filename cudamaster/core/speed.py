"""Says from raw samples whether a candidate is faster than its baseline, and how sure that is. Numbers in, values out.

A turn is one call of the baseline and one of the candidate on the same inputs, in random order. What moves both calls
of a turn (clocks, temperature, the inputs) leaves their ratio alone, so turns are compared, not lists of calls.

The paper's score is a ratio of means. The mean of 50 calls of 10 µs is at the mercy of a few that took three times as
long, though: the same kernel against itself gives 1.03 as soon as 1.00. Therefore a speedup is that of the typical
turn: the 20 % trimmed mean of log(baseline / candidate), with the interval of Tukey and McLaughlin (Sankhya A 25,
1963; Wilcox, Introduction to Robust Estimation and Hypothesis Testing, section 4.3): winsorised variance and
Student's t. Where both sides are the same kernel, swapping the calls of a turn changes nothing, so the logarithms are
symmetric about 0 whatever the noise is like. On calls of 10 to 50 µs of an H200 it is off by half as much as the
ratio of means. If the means are certainly worse, they decide.

No interval covers what differs from one process to the next, so a difference has to exceed it to count; this weighs
more the shorter a call is (MARGIN, BETWEEN_PROCESSES_US). It cannot see a slow-down of fewer than one call in five,
unless it is so large that the means show it.

One process makes the calls of a series in a row, and what disturbs one of them disturbs its neighbours: a driver that
another program keeps busy delays each call that allocates. So the error is also estimated from the means of series, and
the larger estimate counts. On an H200 it is 1.2 times the other on quiet cases, and 2 times where a driver is busy.
Where turns are too few to compare series, the other is multiplied by 1.2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

# For equal kernels one interval in a thousand excludes 1. So comparing all hundred baselines with themselves gives no
# false verdict in nine runs of ten, and a hundred repeats of one of them hardly ever give two.
CONFIDENCE = 0.999
# A smaller difference is not a change, however certain: the placement of buffers and code may cause as much.
MARGIN = 0.01
# Two processes that run the same kernel differ in a call's time on the host, as long as they live. No number of their
# calls shows that. Of 2654 cases against themselves on an H200, timed by two pairs of processes each, the furthest was
# 0.29 µs beyond MARGIN (benchmarks/timing.py same and all).
BETWEEN_PROCESSES_US = 0.5
# An interval that includes 1 means SAME if it reaches no further than this from its middle. With 50 turns that is
# 3 to 11 % on calls of 10 to 20 µs. A quiet case (noise up to 1.5 %) reaches 2 %, and SAME hides less than 5 % there.
WIDEST_SAME = 0.12
SERIES = 8  # turns, about as many as a series has (case_time.h): their number is drawn at random
_FEWEST_SERIES = 5  # fewer say nothing about their spread
_WIDER_BY_SERIES = 1.2  # their error on a quiet GPU, where there are too few to see it
_FEWEST_TO_TRIM = 10  # below, a trimmed mean keeps too few degrees of freedom to say anything


class Change(StrEnum):
    """What a candidate did to the time. The list is closed."""

    FASTER = "faster"
    SAME = "same"  # these samples show no change; the interval says how large one may be
    SLOWER = "slower"
    UNSURE = "unsure"  # too few samples, too much noise, or means that contradict the typical turn


@dataclass(frozen=True)
class Interval:
    """Confidence interval of a speedup at level CONFIDENCE. 0 to infinity if nothing is known."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Speedup of a candidate, above 1 where it is faster. Of one case: S. Of several: P = sum(T*S) / sum(T).

    `speedup` is that of the typical turn, with its interval; `mean_ratio` is of mean times, as the paper has it. A
    candidate whose means are certainly worse than its typical turn, because it is slow now and then, gets the means.

    Modelled times have no turns: both speedups are the model's, and both intervals hold what a GPU would measure in
    nine of ten. `chance` is that of a GPU finding it faster (core/likelihood.py); older records have none.
    """

    speedup: float
    interval: Interval
    mean_ratio: float
    mean_interval: Interval
    change: Change
    chance: float | None = field(default=None, metadata={"later": True})

    @property
    def reach(self) -> str:
        """The interval of a modelled speedup, to stand behind it: " [0.98 to 1.70]". Empty for others."""
        return "" if self.chance is None else f" [{self.interval.low:.2f} to {self.interval.high:.2f}]"


@dataclass(frozen=True)
class _Estimate:
    """A speedup with the standard error of its logarithm; infinite, and no degrees of freedom, for a single turn.

    A difference of less than `margin`, a part of 1, is none.
    """

    speedup: float
    log_error: float
    freedom: float
    margin: float

    @property
    def interval(self) -> Interval:
        if math.isinf(self.log_error):
            return Interval(0.0, math.inf)
        if self.log_error == 0:
            return Interval(self.speedup, self.speedup)
        whole = max(1, math.floor(self.freedom + 1e-6))  # a number that is whole except for rounding stays whole
        reach = math.exp(min(700.0, t_quantile(whole) * self.log_error))  # exp of more overflows
        return Interval(self.speedup / reach, self.speedup * reach)

    def differs(self) -> bool:
        """Whether it is certainly not 1, by more than the margin."""
        sure = not self.interval.low <= 1 <= self.interval.high
        return sure and abs(math.log(self.speedup)) > math.log1p(self.margin)


def compare(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> Comparison:
    """One case from its raw samples, whole calls in microseconds; sample i of both is of the same turn.

    Samples are in the order in which they were taken; swapping sides inverts every ratio. Raises ValueError for
    samples that do not pair up, for none at all, and for times that are not positive and finite.
    """
    return overall([(1.0, baseline_us, candidate_us)])


def modelled(speedup: float, error: float | None) -> Comparison:
    """A speedup by a model that is within the factor `error` in nine of ten; None where that is not known.

    That is all that is known of records from before core/likelihood.py, and of times of eager PyTorch. A difference
    within the error is UNSURE; only a kernel compared with itself, which has no error, is SAME.
    """
    reach = math.inf if error is None else error
    interval = Interval(speedup / reach, speedup * reach)
    change = Change.FASTER if interval.low > 1 else Change.SLOWER if interval.high < 1 else Change.UNSURE
    if interval.low == interval.high == 1:
        change = Change.SAME
    return Comparison(speedup, interval, speedup, interval, change)


def median(samples: Sequence[float]) -> float | None:
    """Of samples that there may not be."""
    return statistics.median(samples) if samples else None


def overall(cases: Sequence[tuple[float, Sequence[float], Sequence[float]]]) -> Comparison:
    """P over cases of (weight T, baseline_us, candidate_us), each as for `compare`.

    Cases are independent; errors are propagated to first order, degrees of freedom after Welch and Satterthwaite.
    Raises ValueError also where no case has a weight, or one a negative one.
    """
    weights = [weight for weight, _, _ in cases]
    if not all(weight >= 0 for weight in weights) or not 0 < sum(weights) < math.inf:
        raise ValueError(f"weights {weights} have to be finite, not negative and not all zero")
    turns = [_turns(baseline_us, candidate_us) for _, baseline_us, candidate_us in cases]
    means = _weighted(weights, [_ratio_of_means(case) for case in turns])
    judged = _weighted(weights, [_judged(case) for case in turns])
    return Comparison(
        speedup=judged.speedup,
        interval=judged.interval,
        mean_ratio=means.speedup,
        mean_interval=means.interval,
        change=_change(judged, means),
    )


def margin_of(cases: Sequence[tuple[float, Sequence[float], Sequence[float]]]) -> float:
    """What P over such cases, as for `overall`, may differ by from one process to the next: a part of 1."""
    turns = [_turns(baseline_us, candidate_us) for _, baseline_us, candidate_us in cases]
    return _weighted([weight for weight, _, _ in cases], [_judged(case) for case in turns]).margin


def between(first: Comparison, second: Comparison, margins: tuple[float, float]) -> tuple[Change, Interval]:
    """What `second` is against `first`, both the speedup of one kernel from measurements of their own.

    Neither was taken in turn with the other, so what differs from one process to the next is in both: the intervals
    and the `margins` (`margin_of`) of the two are added as independent errors are. Gives the change and the interval of
    the ratio second / first. FASTER and SLOWER are beyond both; SAME is a ratio known to WIDEST_SAME that is not.
    """
    ratio = math.log(second.speedup) - math.log(first.speedup)
    reach = math.hypot(_reach(first), _reach(second))
    if math.isinf(reach):
        return Change.UNSURE, Interval(0.0, math.inf)
    interval = Interval(math.exp(ratio - reach), math.exp(ratio + reach))
    if abs(ratio) > max(reach, math.hypot(*map(math.log1p, margins))):
        return (Change.FASTER if ratio > 0 else Change.SLOWER), interval
    return (Change.UNSURE if reach > math.log1p(WIDEST_SAME) else Change.SAME), interval


def _reach(of: Comparison) -> float:
    """How far an interval reaches from its speedup, as a logarithm, on its longer side."""
    low, high = of.interval.low, of.interval.high
    if not 0 < low <= of.speedup <= high < math.inf:
        return math.inf
    return max(math.log(high / of.speedup), math.log(of.speedup / low))


def _judged(turns: Sequence[tuple[float, float]]) -> _Estimate:
    """The typical turn, or the means if these are certainly worse."""
    typical, means = _typical(turns), _ratio_of_means(turns)
    return means if means.interval.high < typical.interval.low else typical


def _change(typical: _Estimate, means: _Estimate) -> Change:
    if typical.differs():
        if means.differs() and (means.speedup > 1) != (typical.speedup > 1):
            return Change.UNSURE
        return Change.FASTER if typical.speedup > 1 else Change.SLOWER
    if means.differs() or typical.interval.high > typical.speedup * (1 + WIDEST_SAME):
        return Change.UNSURE
    return Change.SAME


def _turns(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> list[tuple[float, float]]:
    if len(baseline_us) != len(candidate_us) or not baseline_us:
        raise ValueError(
            f"{len(baseline_us)} baseline and {len(candidate_us)} candidate calls: every turn has one of each"
        )
    if not all(0 < us < math.inf for us in (*baseline_us, *candidate_us)):
        raise ValueError("a call's time has to be positive and finite")
    return list(zip(baseline_us, candidate_us, strict=True))


def _logarithms(turns: Sequence[tuple[float, float]]) -> list[float]:
    return [math.log(baseline) - math.log(candidate) for baseline, candidate in turns]


def _ratio_of_means(turns: Sequence[tuple[float, float]]) -> _Estimate:
    """Mean baseline over mean candidate, its error by the delta method on the pairs."""
    baseline_mean = statistics.fmean(baseline for baseline, _ in turns)
    candidate_mean = statistics.fmean(candidate for _, candidate in turns)
    margin = _margin(turns)
    if len(turns) == 1:
        return _Estimate(baseline_mean / candidate_mean, math.inf, 0, margin)
    pulls = [baseline / baseline_mean - candidate / candidate_mean for baseline, candidate in turns]
    return _Estimate(baseline_mean / candidate_mean, _error_of_mean(pulls), len(turns) - 1, margin)


def _typical(turns: Sequence[tuple[float, float]]) -> _Estimate:
    """Trimmed mean of the logarithms of the turns' ratios, error from the winsorised variance."""
    logarithms = _logarithms(turns)
    ordered = sorted(logarithms)
    count, margin = len(ordered), _margin(turns)
    if count == 1:
        return _Estimate(math.exp(ordered[0]), math.inf, 0, margin)
    cut = count // 5 if count >= _FEWEST_TO_TRIM else 0
    kept = ordered[cut : count - cut]
    winsorised = [min(max(value, kept[0]), kept[-1]) for value in logarithms]
    error = _error_of_mean(winsorised) * count / len(kept)
    return _Estimate(math.exp(statistics.fmean(kept)), error, len(kept) - 1, margin)


def _error_of_mean(values: Sequence[float]) -> float:
    """Standard error of a mean of at least two values, in the order of their turns; neighbours may share a series."""
    alone = statistics.stdev(values) / math.sqrt(len(values))
    means = [statistics.fmean(values[k : k + SERIES]) for k in range(0, len(values) - SERIES + 1, SERIES)]
    if len(means) < _FEWEST_SERIES:
        return alone * _WIDER_BY_SERIES
    return max(alone, statistics.stdev(means) / math.sqrt(len(means)))


def _margin(turns: Sequence[tuple[float, float]]) -> float:
    """How large a difference has to be to count: a part of the shorter call."""
    baseline, candidate = (statistics.median(turn[side] for turn in turns) for side in (0, 1))
    return MARGIN + BETWEEN_PROCESSES_US / min(baseline, candidate)


def _weighted(weights: Sequence[float], estimates: Sequence[_Estimate]) -> _Estimate:
    """Weighted mean of speedups, and the error of its logarithm."""
    parts = [(weight * e.speedup, e) for weight, e in zip(weights, estimates, strict=True) if weight > 0]
    total = math.fsum(part for part, _ in parts)
    speedup = total / math.fsum(weights)
    margin = math.fsum(part * e.margin for part, e in parts) / total
    variances = [((part / total * e.log_error) ** 2, e.freedom) for part, e in parts]
    variance = math.fsum(v for v, _ in variances)
    if math.isinf(variance) or variance == 0:
        return _Estimate(speedup, math.sqrt(variance), 0, margin)
    freedom = 1 / math.fsum((v / variance) ** 2 / freedom for v, freedom in variances)
    return _Estimate(speedup, math.sqrt(variance), freedom, margin)


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors Student's t reaches to either side at a level of confidence.

    That is sqrt(freedom) * tan(angle), where the part inside the angle is CONFIDENCE; the angle is found by halving.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        if _inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(high)


def _inside(angle: float, freedom: int) -> float:
    """The probability that Student's t is within sqrt(freedom) * tan(angle), by the finite series of Abramowitz and
    Stegun (Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    cosine, square = math.cos(angle), math.cos(angle) ** 2
    term, total = cosine if odd else 1.0, 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (k - 1) / k
    within = total * math.sin(angle)
    return (within + angle) * 2 / math.pi if odd else within
