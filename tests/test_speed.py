"""Faster, same, slower or unsure: the right answer on noise like a GPU's, computed as in the cited sources."""

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cudamaster.core import speed
from cudamaster.core.speed import Change, Comparison, Interval, compare, overall

Pair = tuple[list[float], list[float]]
CALLS = 50


def turns(
    rng: random.Random, us: float, noise: float, *, hiccups: float = 0.0, slowdown: float = 1.0, calls: int = CALLS
) -> Pair:
    """Turns with a clock that drifts by percents of both sides, gaussian noise, some calls 1 to 8 times as long."""
    drift = 0.0
    sides: Pair = ([], [])
    for _ in range(calls):
        drift = 0.9 * drift + rng.gauss(0, 0.01)
        for side, factor in zip(sides, (1.0, slowdown), strict=True):
            call_us = us * factor * (1 + drift) * max(0.3, 1 + rng.gauss(0, noise))
            side.append(call_us * (rng.uniform(1, 8) if rng.random() < hiccups else 1))
    return sides


def repeated(make: Callable[[random.Random], Pair], times: int = 200) -> list[Comparison]:
    rng = random.Random(5)
    return [compare(*make(rng)) for _ in range(times)]


def changes(results: list[Comparison]) -> Counter[Change]:
    return Counter(result.change for result in results)


def reach(interval: Interval) -> float:
    """How far an interval goes from its middle, as a factor."""
    return math.sqrt(interval.high / interval.low)


@pytest.mark.parametrize(
    ("us", "noise", "hiccups"),
    [(500, 0.001, 0), (200, 0.005, 0), (50, 0.015, 0.01), (10, 0.03, 0.01), (10, 0.03, 0.05), (12, 0.07, 0.03)],
)
def test_a_kernel_against_itself_is_the_same(us: float, noise: float, hiccups: float) -> None:
    """At least 99 times in 100, from quiet long cases to calls of 10 µs as noisy as those of an H200."""
    results = repeated(lambda rng: turns(rng, us, noise, hiccups=hiccups))
    assert changes(results)[Change.SAME] >= 0.99 * len(results)


def test_means_could_not_say_so() -> None:
    """Why a speedup is not the ratio of means: on calls that hiccup that is off by percents, mostly."""
    results = repeated(lambda rng: turns(rng, 10, 0.03, hiccups=0.03))
    assert sum(abs(result.mean_ratio - 1) > 0.02 for result in results) > len(results) / 2
    means, typical = (sorted(reach(i) for i in found)[100] for found in
                      ([r.mean_interval for r in results], [r.interval for r in results]))  # fmt: skip
    assert typical < 1.04 < 1.3 < means


@pytest.mark.parametrize("calls", [50, 400])
def test_a_driver_that_is_busy_now_and_then_makes_no_difference(calls: int) -> None:
    """Series of calls that take ten times as long, on either side: what another program does to calls that allocate."""

    def held_up(rng: random.Random) -> Pair:
        sides = turns(rng, 150, 0.05, calls=calls)
        for side in sides:
            for first in range(0, calls, speed.SERIES):
                if rng.random() < 0.2:
                    side[first : first + speed.SERIES] = [us * 10 for us in side[first : first + speed.SERIES]]
        return sides

    seen = changes(repeated(held_up))
    assert seen[Change.FASTER] + seen[Change.SLOWER] <= 2, seen


@pytest.mark.parametrize("noise", [0.001, 0.005, 0.015])
@pytest.mark.parametrize(("slowdown", "change"), [(1.05, Change.SLOWER), (1 / 1.05, Change.FASTER)])
def test_five_percent_on_a_quiet_case_is_seen_every_time(noise: float, slowdown: float, change: Change) -> None:
    results = repeated(lambda rng: turns(rng, 100, noise, slowdown=slowdown))
    assert changes(results) == {change: len(results)}


def test_same_says_how_much_it_may_hide() -> None:
    """Five percent too small to be seen through the noise lies within the interval of whatever is called the same."""
    results = repeated(lambda rng: turns(rng, 10, 0.08, hiccups=0.03, slowdown=1.05))
    same = [result for result in results if result.change is Change.SAME]
    assert len(same) > 50
    assert sum(result.interval.low <= 1 / 1.05 for result in same) >= 0.99 * len(same)
    assert changes(results)[Change.FASTER] == 0


@pytest.mark.parametrize("calls", [5, 12, CALLS])
def test_intervals_hold_the_truth(calls: int) -> None:
    """Both intervals of a true speedup of 1.25, at least 99 times in 100 (they are meant to 999 times in 1000)."""
    results = repeated(lambda rng: turns(rng, 100, 0.02, slowdown=0.8, calls=calls))
    for intervals in ([r.interval for r in results], [r.mean_interval for r in results]):
        assert sum(i.low <= 1.25 <= i.high for i in intervals) >= 0.99 * len(intervals)


def test_drift_of_both_sides_is_no_noise() -> None:
    """A clock that falls to a half within the run costs nothing, since both calls of a turn see it."""
    baseline_us, candidate_us = turns(random.Random(1), 100, 0.002)
    falling = [1 + i / CALLS for i in range(CALLS)]
    slowed = [[us * f for us, f in zip(side, falling, strict=True)] for side in (baseline_us, candidate_us)]
    assert reach(compare(*slowed).interval) == pytest.approx(reach(compare(baseline_us, candidate_us).interval))


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_few_noisy_turns_decide_nothing(calls: int) -> None:
    """The CPU device takes few calls, and they are noisy: nothing is concluded, and nothing fails."""
    results = repeated(lambda rng: turns(rng, 300, 0.1, hiccups=0.05, calls=calls))
    assert changes(results)[Change.UNSURE] >= 0.99 * len(results)


def test_five_turns_show_a_large_effect() -> None:
    """On the CPU device eight times as fast is seen with five calls."""
    results = repeated(lambda rng: turns(rng, 300, 0.08, slowdown=1 / 8, calls=5))
    assert changes(results)[Change.FASTER] >= 0.9 * len(results)


def test_one_turn_knows_nothing() -> None:
    result = compare([8.0], [4.0])
    assert (result.speedup, result.mean_ratio) == pytest.approx((2, 2))
    assert result.change is Change.UNSURE
    assert result.interval == result.mean_interval == Interval(0.0, math.inf)


@pytest.mark.parametrize(
    ("baseline_us", "factor", "change"),
    [
        (1000.0, 1.0, Change.SAME),
        (1000.0, 1.005, Change.SAME),
        (1000.0, 1.02, Change.SLOWER),
        (1000.0, 0.8, Change.FASTER),
        (20.0, 1.03, Change.SAME),
        (20.0, 1.045, Change.SLOWER),
        (10.0, 1.055, Change.SAME),
        (10.0, 1.08, Change.SLOWER),
    ],
)
def test_without_variance_the_margin_decides(baseline_us: float, factor: float, change: Change) -> None:
    """Half a percent is no change however sure it is, two percent is one; of a short call it takes more."""
    result = compare([baseline_us] * 7, [baseline_us * factor] * 7)
    assert result.change is change
    assert result.interval.low == result.interval.high == pytest.approx(1 / factor)


def test_a_small_sample_by_hand() -> None:
    """Ratios 1, 2 and 4: logarithms with mean and deviation ln 2, t of 31.599 with two degrees of freedom.

    Errors are 1.2 times as large, as the turns are too few to compare series.
    """
    result = compare([10.0, 20.0, 40.0], [10.0, 10.0, 10.0])
    assert result.mean_ratio == pytest.approx(7 / 3)
    assert result.speedup == pytest.approx(2)
    far = 2 ** (1.2 * 31.599 / math.sqrt(3))
    assert (result.interval.low, result.interval.high) == pytest.approx((2 / far, 2 * far), rel=1e-4)
    # Of the means: baselines over their mean are 3/7, 6/7 and 12/7, their deviation sqrt(3/7).
    far = math.exp(1.2 * 31.599 * math.sqrt(3 / 7) / math.sqrt(3))
    assert result.mean_interval.high == pytest.approx(7 / 3 * far, rel=1e-4)
    assert result.change is Change.UNSURE


def test_trimming_by_hand() -> None:
    """Ten turns lose two on each side, which come back as the outermost of those kept for the variance."""
    powers = [9, 0, 1, -8, 2, 0, -8, 1, 9, 2]
    result = compare([10.0 * 2**power for power in powers], [10.0] * 10)
    error = math.sqrt(8 / 9) * math.sqrt(10) / 6  # winsorised: 0 0 0 0 1 1 2 2 2 2
    far = 2 ** (1.2 * 6.8688 * error)  # t with 6 - 1 degrees of freedom
    assert (result.interval.low, result.interval.high) == pytest.approx((2 / far, 2 * far), rel=1e-4)


@pytest.mark.parametrize(("freedom", "t"), [(1, 636.619), (2, 31.599), (4, 8.610), (29, 3.659), (120, 3.373)])
def test_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert speed.t_quantile(freedom) == pytest.approx(t, abs=6e-4)


def test_p_weighs_cases_as_the_paper_does() -> None:
    """P = sum(T*S)/sum(T), the error of a case counts by its part of the sum, and a case without weight not at all."""
    noisy = ([10.0, 20.0, 40.0], [10.0, 10.0, 10.0])  # typical turn 2
    result = overall([(3.0, *noisy), (1.0, [8.0] * 3, [2.0] * 3), (0.0, [5.0], [9.0])])
    assert result.mean_ratio == pytest.approx((3 * 7 / 3 + 4) / 4)
    assert result.speedup == pytest.approx((3 * 2 + 4) / 4)
    far = 2 ** (1.2 * 31.599 / math.sqrt(3) * 6 / 10)
    assert result.interval.high == pytest.approx(2.5 * far, rel=1e-4)


def test_many_cases_are_surer_than_one() -> None:
    """Four per cent that one case can't show is seen over nine of them, and equals stay equal."""
    rng = random.Random(3)
    for slowdown, change in ((1.04, Change.SLOWER), (1.0, Change.SAME)):
        cases = [turns(rng, 100, 0.06, hiccups=0.03, slowdown=slowdown) for _ in range(9)]
        result = overall([(1.0, *case) for case in cases])
        assert result.change is change
        alone = statistics.median(math.log(reach(compare(*case).interval)) for case in cases)
        assert math.log(reach(result.interval)) < alone / 2


def test_a_single_turn_of_one_case_leaves_p_unsure() -> None:
    result = overall([(1.0, [8.0] * 9, [2.0] * 9), (1.0, [8.0], [2.0])])
    assert result.speedup == pytest.approx(4)
    assert result.change is Change.UNSURE


def test_means_have_a_veto() -> None:
    """Slow calls that the typical turn misses but the means show: the kernel is not called faster."""
    rng = random.Random(2)
    for slowdown in (1.0, 0.95):
        baseline_us, candidate_us = turns(rng, 100, 0.005, slowdown=slowdown)
        with_slow_calls = [us * 4 if i % 6 == 0 else us for i, us in enumerate(candidate_us)]
        assert compare(baseline_us, candidate_us).change is not Change.UNSURE
        assert compare(baseline_us, with_slow_calls).change in (Change.UNSURE, Change.SLOWER)


TIMES = st.floats(1.0, 1e6)
SAMPLES = st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=30)
CLOSE = st.lists(st.tuples(st.floats(9.5, 10.5), st.floats(8.5, 10.5)), min_size=1, max_size=60)


def parts(samples: list[tuple[float, float]]) -> Pair:
    return [b for b, _ in samples], [c for _, c in samples]


@settings(max_examples=50)
@given(SAMPLES | CLOSE)
def test_swapping_sides_inverts_everything(samples: list[tuple[float, float]]) -> None:
    baseline_us, candidate_us = parts(samples)
    one, other = compare(baseline_us, candidate_us), compare(candidate_us, baseline_us)
    assume(_clear(one))
    assert one.mean_ratio * other.mean_ratio == pytest.approx(1)
    if one.interval.low > 0 and one.interval.high < 1e250:
        assert one.interval.low * other.interval.high == pytest.approx(1)
    swapped = {Change.FASTER: Change.SLOWER, Change.SLOWER: Change.FASTER}
    assert other.change is swapped.get(one.change, one.change)


@settings(max_examples=50)
@given(SAMPLES | CLOSE, st.randoms(use_true_random=False))
def test_the_order_of_series_does_not_matter(samples: list[tuple[float, float]], rng: random.Random) -> None:
    """Nor does that of the turns within one."""
    series = [samples[k : k + speed.SERIES] for k in range(0, len(samples), speed.SERIES)]
    rest = [series.pop()] if len(series[-1]) < speed.SERIES else []
    shuffled = [turn for part in rng.sample(series, len(series)) + rest for turn in rng.sample(part, len(part))]
    assert compare(*parts(shuffled)) == compare(*parts(samples))


def _clear(result: Comparison) -> bool:
    """Not on an edge of the rule, where the last digit decides."""
    edges = [1.0, 1 + speed.MARGIN, 1 / (1 + speed.MARGIN)]
    values = [*(v for i in (result.interval, result.mean_interval) for v in (i.low, i.high)), result.speedup]
    middle = math.sqrt(result.interval.low) * math.sqrt(result.interval.high)
    return not any(math.isclose(v, edge, rel_tol=1e-6) for v in [*values, middle] for edge in edges)


@pytest.mark.parametrize(
    ("baseline_us", "candidate_us"),
    [([], []), ([1.0, 2.0], [1.0]), ([0.0], [1.0]), ([1.0], [-1.0]), ([1.0], [math.nan]), ([math.inf], [1.0])],
)
def test_what_is_no_sample_is_refused(baseline_us: list[float], candidate_us: list[float]) -> None:
    with pytest.raises(ValueError, match=r"turn|positive"):
        compare(baseline_us, candidate_us)


@pytest.mark.parametrize("weights", [[], [0.0], [1.0, -0.5], [math.nan], [math.inf]])
def test_what_is_no_weight_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        overall([(weight, [2.0], [1.0]) for weight in weights])


def test_a_candidate_that_is_slow_now_and_then_is_judged_by_its_means() -> None:
    """One call in ten takes five times as long: the typical turn does not show it, and it counts."""
    rng = random.Random(8)
    baseline = [100 * rng.gauss(1, 0.005) for _ in range(200)]
    candidate = [100 * rng.gauss(1, 0.005) * (5 if turn % 10 == 3 else 1) for turn in range(200)]
    result = compare(baseline, candidate)
    assert result.speedup == result.mean_ratio < 0.8
    assert result.change is Change.SLOWER
