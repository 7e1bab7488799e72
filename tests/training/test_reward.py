"""Rewards: the formulas of the CUDA-L1 and CUDA-L2 papers with numbers worked by hand, and what earns nothing."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_verdicts import MODEL, case, check, modelled_case, modelled_verdict, rounds, verdict

from cudamaster.core.errors import UsageError
from cudamaster.core.records import from_json
from cudamaster.core.values import OF_BASELINE, RACES_UNSEEN, Candidate, CaseVerdict, Precision, Status, Timing, Verdict
from cudamaster.training import reward
from cudamaster.training.reward import Measured, Rule, measured, toward_one

RECORDED = Path(__file__).parents[2] / "results" / "h200"
PAPER = Rule(within_interval=False)  # the paper's protocol and nothing else
STEADY = [1.2] * 14


# ---- the protocol


@pytest.mark.parametrize(
    ("speedup", "rounded"),
    [
        (1.118, 1.11),  # both are the paper's examples
        (0.992, 1.00),
        (1.0, 1.0),
        (1.15, 1.15),  # 114.999... hundredths in binary
        (1.9999999999999998, 2.0),
        (0.985, 0.99),
        (0.001, 0.01),
        (537.129, 537.12),
    ],
)
def test_speedups_are_rounded_toward_one(speedup: float, rounded: float) -> None:
    assert toward_one(speedup) == rounded


def test_a_speedup_is_the_median_of_seven_means() -> None:
    """Pairs in order of time have the means 1.11, 1.12, 1.10, 1.16, 1.12, 1.13 and 1.09: the fourth largest is 1.12."""
    ratios = [1.10, 1.12, 1.11, 1.13, 1.09, 1.11, 1.15, 1.17, 1.10, 1.14, 1.13, 1.13, 1.08, 1.10]
    found = measured(verdict(case(ratios)), Rule())
    assert (found.speedup, found.why) == (1.12, "")
    (only,) = found.cases
    means = [1.11, 1.12, 1.10, 1.16, 1.12, 1.13, 1.09]
    assert (only.label, only.rounds) == ("N=8", 14)
    assert only.variance == pytest.approx(statistics.pvariance(means))


@pytest.mark.parametrize(("step", "kept"), [(0.14, True), (0.15, False)])
def test_a_variance_above_0_005_discards(step: float, kept: bool) -> None:
    """Of 7 means, 3 are higher by d: their variance is 12/49 d^2, which is 0.0048 for 0.14 and 0.0055 for 0.15."""
    found = measured(verdict(case([1.0, 1.0 + step] * 3 + [1.0])), PAPER)
    assert (found.speedup == 1.0) is kept
    assert ("too noisy" in found.why) is not kept


def test_the_limit_is_absolute_as_in_the_paper_or_relative() -> None:
    """At P = 5 the same relative noise has 25 times the variance: 12/49 0.7^2 = 0.12; of parts of 5.3, 0.0043."""
    fast = verdict(case([5.0, 5.7] * 3 + [5.0]))
    assert measured(fast, PAPER).speedup is None
    assert measured(fast, Rule(relative=True)).speedup == 5.0


def test_buckets_are_in_order_of_time() -> None:
    """The same rounds are steady where they alternate, and drift where they do not."""
    ratios = [1.0, 1.3] * 49
    assert measured(verdict(case(ratios)), PAPER).speedup == 1.15
    assert "too noisy" in measured(verdict(case(sorted(ratios))), PAPER).why


def test_fewer_rounds_than_buckets_say_nothing() -> None:
    assert measured(verdict(case([1.2] * 6)), Rule()) == Measured(None, "case N=8: 6 rounds do not fill 7 buckets")
    assert measured(verdict(case([1.2] * 7)), Rule()).speedup == 1.2


def test_cases_are_weighted_and_rounded_once() -> None:
    """(1 * 1.5 + 3 * 0.996) / 4 = 1.122. With 0.996 rounded by itself, to 1, it would be 1.125."""
    both = verdict(case([1.5] * 7, "small", 1.0), case([0.996] * 7, "large", 3.0))
    assert measured(both, Rule()).speedup == 1.12
    assert measured(both, Rule(), ["small"]).speedup == 1.5
    assert measured(both, Rule(), ["large"]).speedup == 1.0


def test_one_noisy_case_discards_all() -> None:
    noisy = verdict(case(STEADY, "a"), case([1.0] * 7 + [2.0] * 7, "b"))
    assert measured(noisy, PAPER).speedup is None
    assert measured(noisy, PAPER, ["a"]).speedup == 1.2


def test_a_kernel_that_is_slow_now_and_then_gains_nothing() -> None:
    """Twice as fast in four calls of five and five times as slow in one: 10 / 14 = 0.71 times the throughput."""
    calls = Timing((10.0,) * 70, (5.0, 5.0, 5.0, 5.0, 50.0) * 14)
    lazy = verdict(replace(case(STEADY), timing=calls))
    assert measured(lazy, PAPER).speedup == 1.64  # the mean of ratios: (4 * 2 + 0.2) / 5
    assert measured(lazy, Rule()).speedup < 0.8  # type: ignore[operator]


def test_modelled_times_are_ratios_without_rounds() -> None:
    told = modelled_verdict(modelled_case(1.5, "a", 1.0), modelled_case(1.1, "b", 3.0))
    assert measured(told, Rule()).speedup == 1.2
    assert measured(told, Rule(), ["a"]).speedup == 1.5


# ---- what is said about the recorded verdicts


def recorded() -> list[Verdict]:
    found = []
    for path in sorted(RECORDED.glob("spmv_csr_*/verdicts/*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        del content["hash"]
        found.append(from_json(Verdict, content))
    return found


def test_recorded_verdicts_earn_what_their_module_says() -> None:
    """The figures of the docstring of reward.py and of docs/rewards.md."""
    verdicts = recorded()
    kernels = [each for each in verdicts if each.sanitizers]
    baselines = [each for each in verdicts if not each.sanitizers]
    assert (len(kernels), len(baselines)) == (6, 2)
    rewards = [measured(each, Rule()).speedup for each in kernels]
    assert rewards == [1.06, 1.13, 1.22, 1.11, 1.29, 1.19]
    assert [measured(each, Rule()).speedup for each in baselines] == [None, None]

    plain = [one for each in kernels for one in measured(each, PAPER).cases]
    relative = [[one.variance for one in measured(each, Rule(relative=True)).cases] for each in kernels]
    assert len(plain) == 36
    assert round(max(one.variance for one in plain), 4) == 0.0045
    assert round(max(max(each) for each in relative), 4) == 0.0026
    discarded = {P: sum(any(part * P * P > 0.005 for part in each) for each in relative) for P in (2, 3)}
    assert discarded == {2: 4, 3: 6}
    capped = [one for each in kernels for one in measured(each, Rule()).cases]
    assert sum(one.speedup < other.speedup for one, other in zip(capped, plain, strict=True)) == 2
    loose = Rule(variance_limit=1.0)
    assert sum(one.variance > 0.005 for each in baselines for one in measured(each, loose).cases) == 9


# ---- what earns nothing

GOOD = verdict(case(STEADY, "a"), case(STEADY, "b"))
MODELLED = modelled_verdict(modelled_case(1.2, "a"), modelled_case(1.2, "b"))


def changed(made: Verdict, **more: Any) -> Verdict:
    """The verdict with its second case changed."""
    return replace(made, cases=(made.cases[0], replace(made.cases[1], **more)))


def test_what_the_cases_below_begin_with_earns_a_reward() -> None:
    assert measured(GOOD, Rule()).speedup == measured(MODELLED, Rule()).speedup == 1.2


REFUSED = [
    *(replace(GOOD, status=status) for status in Status if status not in (Status.CORRECT, Status.UNSUPPORTED)),
    replace(GOOD, status=Status.REJECTED, score=None, speed=None, detail="The reviewer calls it a trick"),
    changed(GOOD, status=Status.WRONG),
    changed(GOOD, outputs=(check(mismatches=1),)),
    replace(GOOD, cases=(*GOOD.cases, CaseVerdict("held out", False, 0.0, Status.WRONG))),
    replace(GOOD, sanitizers={"memcheck": "clean", "racecheck": "a race at line 3"}),
    replace(GOOD, score=math.nan),
    replace(GOOD, score=math.inf),
    replace(GOOD, score=-1.0),
    *(changed(GOOD, timing=Timing((2.0,) * 14, (*(1.0,) * 13, us))) for us in (0.0, -1.0, math.nan, math.inf)),
    *(changed(GOOD, timing=Timing((*(2.0,) * 13, us), (1.0,) * 14)) for us in (0.0, -1.0, math.nan, math.inf)),
    changed(GOOD, timing=Timing((2.0,) * 14, (1.0,) * 13)),
    changed(MODELLED, modelled=None, not_modelled="it cannot be counted"),
    changed(MODELLED, modelled=replace(modelled_case(1.0).modelled, candidate_us=0.0)),
]
UNKNOWN = [
    replace(GOOD, status=Status.UNSUPPORTED),
    replace(
        GOOD, score=None, speed=None
    ),  # as where a second measurement did not confirm it: the times are still there
    replace(GOOD, complete=False),
    replace(GOOD, emulated=True),
    replace(GOOD, cases=()),
    replace(GOOD, cases=(GOOD.cases[0], GOOD.cases[0])),
    replace(GOOD, notes=(f"{RACES_UNSEEN}: stopped",)),
    replace(GOOD, modelled=MODEL),  # measured times in a verdict that says they are modelled
    replace(MODELLED, modelled=None, emulated=False),  # and the other way round
    changed(GOOD, timing=None),
    changed(GOOD, timing=rounds([])),
    changed(GOOD, skipped="too little memory", status=None, timing=None),
    changed(GOOD, skipped="too little memory", status=None),
    changed(GOOD, skipped="too little memory"),
    changed(GOOD, status=None),
    changed(GOOD, weight=math.nan),
    changed(GOOD, weight=-0.5),
    replace(GOOD, cases=tuple(replace(each, weight=0.0) for each in GOOD.cases)),
    changed(MODELLED, skipped="too long for this device", status=None),
    changed(MODELLED, modelled=None, not_modelled=f"{OF_BASELINE}too long"),
]


@pytest.mark.parametrize("made", REFUSED)
def test_a_kernel_that_is_to_blame_earns_nothing(made: Verdict) -> None:
    found = measured(made, Rule(unchecked=True))
    assert found.speedup == 0
    assert found.why
    assert measured(made, Rule(), ["a", "b"]).speedup == 0


@pytest.mark.parametrize("made", UNKNOWN)
def test_where_nobody_is_to_blame_there_is_no_reward(made: Verdict) -> None:
    found = measured(made, Rule())
    assert found.speedup is None
    assert found.why


def test_named_cases_have_to_be_there() -> None:
    assert measured(GOOD, Rule(), ["a", "c"]) == Measured(None, "it has no timed case c")
    assert measured(GOOD, Rule(), []).speedup is None
    half = changed(replace(GOOD, complete=False), skipped="too little memory", status=None, timing=None)
    assert measured(half, Rule(), ["a"]).speedup == 1.2, "what was not run does not count here"
    assert measured(half, Rule(), ["b"]).speedup is None


def test_cases_that_are_too_long_for_the_cpu_device_count_only_where_that_is_asked_for() -> None:
    long = changed(MODELLED, skipped="too long for this device", status=None)
    assert measured(long, Rule()).speedup is None
    assert measured(long, Rule(unchecked=True)).speedup == 1.2
    assert measured(changed(GOOD, skipped="too long", status=None), Rule(unchecked=True)).speedup is None


@pytest.mark.parametrize(
    "fields",
    [
        {"buckets": 1},
        {"smoothing": 0.0},
        {"smoothing": math.nan},
        {"variance_limit": -0.1},
        {"variance_limit": math.nan},
        {"agreement": -1.0},
        {"length_penalty": math.inf},
        {"jump_factor": 0.5},
        {"jump_above": math.nan},
    ],
)
def test_a_rule_of_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Rule(**fields)


times = st.floats(allow_nan=True, allow_infinity=True)
pairs = st.lists(st.tuples(times, times), max_size=30)


@given(pairs, st.sampled_from(sorted(Status)), st.booleans())
def test_no_times_make_a_wrong_kernel_or_no_time_earn(
    samples: list[tuple[float, float]], status: Status, complete: bool
) -> None:
    before, after = tuple(a for a, _ in samples), tuple(b for _, b in samples)
    made = replace(GOOD, status=status, complete=complete)
    made = replace(made, cases=(replace(GOOD.cases[0], timing=Timing(before, after)),))
    found = measured(made, Rule())
    assert found.speedup is None or (math.isfinite(found.speedup) and found.speedup >= 0)
    if status is not Status.CORRECT or not all(us > 0 and math.isfinite(us) for us in (*before, *after)):
        assert not found.speedup


@given(st.floats(1e-6, 1e9))
def test_rounding_never_moves_away_from_one(speedup: float) -> None:
    rounded = toward_one(speedup)
    assert abs(rounded - 1) <= abs(speedup - 1) + 1e-11 * speedup
    assert abs(rounded - speedup) < 0.01 + 1e-11 * speedup
    assert (rounded - 1) * (speedup - 1) >= 0


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(0.0, 1e300)), min_size=1, max_size=6), st.randoms())
def test_the_order_of_cases_makes_no_difference(parts: list[tuple[float, float]], random: Any) -> None:
    cases = [case([ratio] * 7, f"N={place}", weight) for place, (ratio, weight) in enumerate(parts)]
    mixed = random.sample(cases, len(cases))
    one, other = (measured(replace(GOOD, cases=tuple(each)), Rule()) for each in (cases, mixed))
    assert one.speedup == other.speedup
    if one.speedup is not None:
        assert min(map(toward_one, (ratio for ratio, _ in parts))) <= one.speedup + 0.01
        assert one.speedup <= max(map(toward_one, (ratio for ratio, _ in parts))) + 0.01


# ---- jumps


@pytest.mark.parametrize(
    ("speedup", "best", "is_leap"),
    [
        (2.0, 1.0, False),
        (2.01, 1.0, True),
        (8.0, 7.0, False),
        (8.01, 7.0, True),
        (8.5, 9.0, False),
        (math.nan, 1.0, False),
    ],
)
def test_a_leap_is_above_twice_the_best_or_above_eight(speedup: float, best: float, is_leap: bool) -> None:
    assert (reward.leap(speedup, best, Rule()) is not None) is is_leap


@pytest.mark.parametrize(
    ("first", "second", "agrees"),
    [(4.0, 4.0, True), (5.0, 4.0, True), (5.01, 4.0, False), (4.0, 5.01, False), (4.0, None, False), (4.0, 0.0, False)],
)
def test_a_second_measurement_confirms_within_a_quarter(first: float, second: float | None, agrees: bool) -> None:
    assert reward.confirmed(first, Measured(second), Rule()) is agrees


# ---- what becomes of rewards in a group


def test_equation_4_with_numbers_by_hand() -> None:
    """Mean 4, deviation sqrt((9 + 4 + 1 + 0 + 36) / 5) = sqrt(10)."""
    root = math.sqrt(10)
    assert reward.normalised([1, 2, 3, 4, 10]) == pytest.approx([-3 / root, -2 / root, -1 / root, 0, 6 / root])


def test_equation_6_clips_the_same_to_k() -> None:
    root = math.sqrt(10)
    assert reward.smoothed([1, 2, 3, 4, 10]) == pytest.approx([-3 / root, -2 / root, -1 / root, 0, 1.5])
    assert reward.smoothed([1, 2, 3, 4, 10], k=0.5) == pytest.approx([-0.5, -0.5, -1 / root, 0, 0.5])


def test_advantages_are_smoothed_then_normalised_and_unknown_rewards_take_no_part() -> None:
    """The group of equations 6 and 4 above, with two samples of which nothing is known."""
    found = reward.advantages([1, None, 2, 3, 4, None, 10], 0.5)
    smooth = [-0.5, -0.5, -1 / math.sqrt(10), 0, 0.5]
    mean, deviation = statistics.fmean(smooth), statistics.pstdev(smooth)
    expected = [(each - mean) / deviation for each in smooth]
    assert (found[1], found[5]) == (None, None)
    assert [each for each in found if each is not None] == pytest.approx(expected)
    assert reward.advantages([None, None], 1.5) == [None, None]


def test_equal_rewards_and_none_at_all_teach_nothing() -> None:
    assert reward.normalised([1.1] * 8) == reward.smoothed([1.1] * 8) == (0.0,) * 8
    assert reward.normalised([]) == ()
    with pytest.raises(ValueError, match="finite"):
        reward.smoothed([1.0, math.nan])


@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=16))
def test_what_comes_of_a_group_is_finite_centred_and_in_order(rewards: list[float]) -> None:
    found = reward.normalised(rewards)
    assert all(map(math.isfinite, found))
    assert abs(math.fsum(found)) < 1e-6
    assert all(one <= other for a, one in zip(rewards, found, strict=True)
               for b, other in zip(rewards, found, strict=True) if a < b)  # fmt: skip
    assert all(abs(each) <= 1.5 for each in reward.smoothed(rewards))


# ---- CUDA-L2

KERNEL = Candidate("t", Precision.FP16, "int a = 1; // a comment costs nothing\n", "nvcc")  # 5 tokens


def test_equation_3_with_numbers_by_hand() -> None:
    """((1.2 - 10 * 0.001) + (1.0 - 10 * 0.002)) / 2 - 0.001 * 5 = 1.085 - 0.005."""
    first = case([1.2] * 7, "a", 1.0, outputs=(check(0.001), check(0.0)))
    second = case([1.0] * 7, "b", 9.0, outputs=(check(0.002),))
    rule = Rule(deviation_penalty=10.0, length_penalty=0.001)
    told = verdict(first, second, candidate=KERNEL.id)
    assert reward.hgemm_reward(KERNEL, told, rule).speedup == pytest.approx(1.08)
    assert reward.hgemm_reward(KERNEL, told, rule, ["a"]).speedup == pytest.approx(1.2 - 0.01 - 0.005)
    other = replace(told, cases=(first, replace(second, outputs=())))
    assert reward.hgemm_reward(KERNEL, other, rule, ["a"]).speedup == pytest.approx(1.2 - 0.01 - 0.005)


def test_equation_3_gives_a_right_kernel_no_less_than_a_wrong_one() -> None:
    told = verdict(case([1.2] * 7), candidate=KERNEL.id)
    assert reward.hgemm_reward(KERNEL, told, Rule(length_penalty=1.0)).speedup == 0
    for made in REFUSED:
        assert reward.hgemm_reward(KERNEL, replace(made, candidate=KERNEL.id), Rule()).speedup == 0
    for error, found in ((math.nan, 0), (math.inf, 0), (-1.0, 0)):
        wrong = verdict(case([1.2] * 7, outputs=(check(error),)), candidate=KERNEL.id)
        assert reward.hgemm_reward(KERNEL, wrong, Rule()).speedup == found
    unseen = verdict(case([1.2] * 7, outputs=()), candidate=KERNEL.id)
    assert reward.hgemm_reward(KERNEL, unseen, Rule()).speedup is None
    with pytest.raises(ValueError, match="beside the candidate"):
        reward.hgemm_reward(KERNEL, GOOD, Rule())
