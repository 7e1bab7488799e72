"""How sure a modelled speedup is: its interval, the chance that it is one, and what a search makes of that."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from cudamaster.core import modelled
from cudamaster.core.likelihood import LEVEL, LIKELY, Errors, Makeup, in_percent
from cudamaster.core.records import from_json, to_json
from cudamaster.core.speed import Change
from cudamaster.core.values import CaseVerdict, GpuModel, Modelled, Status, Verdict

# Round figures: nine of ten are within the reach, half within 0.4 of it.
ERRORS = Errors(0.05, 0.5, 0.1, (0.5, 0.8, LEVEL, 0.99), (0.4, 0.8, 1.0, 2.0), ("atomics",), unlike=1.5)
MODEL = GpuModel("v7", "NVIDIA H200", 1.8, errors=ERRORS)


def makeup(around: float, dram: float, *means: str) -> Makeup:
    return Makeup({"launches": around, "DRAM": dram}, means)


def verdict(times: dict[str, tuple[float, float]], *means: str, model: GpuModel | None = MODEL) -> Verdict:
    """A kernel whose cases have a baseline of that many µs in DRAM, and that many of its own, beside 10 of a launch."""
    cases = []
    for label, (base, own) in times.items():
        first, second = makeup(10, base), makeup(10, own, *means)
        call = Modelled(first.whole_us, second.whole_us, base, own, "DRAM", first, second)
        cases.append(CaseVerdict(label, True, 1.0, Status.CORRECT, modelled=call))
    assert model is not None
    speed = modelled.of_cases([(case.weight, case.modelled) for case in cases if case.modelled], model)
    return Verdict(
        "k", "cpu", True, Status.CORRECT, "right", score=speed.speedup, speed=speed, cases=tuple(cases), modelled=model
    )


def test_the_reach_grows_with_what_differs() -> None:
    """By hand: of two calls of 20 and 15 µs, 5 µs differ."""
    same = makeup(10, 10)
    assert ERRORS.reach(same, same) == pytest.approx(0.05)
    assert ERRORS.reach(same, makeup(10, 5)) == pytest.approx(0.05 + 0.5 * 5 / 20)
    assert ERRORS.reach(makeup(10, 5), same) == ERRORS.reach(same, makeup(10, 5))
    # As long in all, but elsewhere.
    assert ERRORS.reach(same, Makeup({"launches": 10, "L2": 10})) == pytest.approx(0.05 + 0.5)
    assert ERRORS.reach(same, makeup(10, 10, "atomics")) == pytest.approx(0.05 + 0.1)


def test_it_is_longer_for_a_kernel_unlike_all_that_were_fitted() -> None:
    """Also where both have what is new: nothing is known of either."""
    first = makeup(10, 10, "clusters")
    assert ERRORS.reach(first, first) == pytest.approx(1.5 * 0.05)


@pytest.mark.parametrize(
    ("speedup", "reach"),
    [(1.5, math.nan), (math.nan, 0.1), (0.0, 0.1), (-1.0, 0.1), (math.inf, 0.1), (1.5, math.inf), (1.5, -0.1)],
)
def test_of_what_is_no_number_nothing_is_known(speedup: float, reach: float) -> None:
    """A damaged record, or a model of a GPU with absurd figures, must not make a kernel likely to be faster."""
    found = ERRORS.speed(speedup, reach)
    assert found.change is Change.UNSURE
    assert (found.interval.low, found.interval.high) == (0.0, math.inf)


def test_a_very_long_reach_does_not_overflow() -> None:
    assert ERRORS.speed(1.5, 1e4).change is Change.UNSURE


def test_the_reach_bends_where_half_is_known_and_means_count_once() -> None:
    """By hand: where `half` of the call differs, the middle term is half of the straight one."""
    bent = replace(ERRORS, half=0.25, known_means=("atomics", "clusters"))
    assert bent.reach(makeup(10, 10), makeup(10, 5)) == pytest.approx(0.05 + 0.5 * 0.25 / 2)
    both = makeup(10, 10, "atomics", "clusters")
    assert bent.reach(makeup(10, 10), both) == pytest.approx(0.05 + 0.1)


def test_cases_count_for_p_by_what_they_add_to_it() -> None:
    """By hand: speedups of 5 and 1 at equal weights, so the first has five sixths of P and of its reach."""
    one, other = (makeup(10, 90), makeup(10, 10)), (makeup(10, 10), makeup(10, 10))
    cases = [(1.0, Modelled(a.whole_us, b.whole_us, 1.0, 1.0, "DRAM", a, b)) for a, b in (one, other)]
    speed = modelled.of_cases(cases, MODEL)
    reach = 5 / 6 * ERRORS.reach(*one) + 1 / 6 * ERRORS.reach(*other)
    assert speed.interval.high / speed.speedup == pytest.approx(math.exp(reach))


def test_one_case_without_a_makeup_makes_p_as_unsure_as_any_kernel() -> None:
    known = Modelled(20, 15, 1.0, 1.0, "DRAM", makeup(10, 10), makeup(10, 5))
    bare = replace(known, candidate_makeup=None)
    speed = modelled.of_cases([(1.0, known), (1.0, bare)], MODEL)
    assert speed.chance is None
    assert speed.interval.high == pytest.approx(1.8 * speed.speedup)


def test_only_timed_cases_count_for_two_verdicts() -> None:
    """A case that is no part of P, on which the second kernel is much slower, changes nothing."""
    first, second = verdict({"N=8": (50, 10)}), verdict({"N=8": (50, 7)})
    slow = replace(verdict({"N=9": (50, 500)}).cases[0], sweep=False)
    assert modelled.against(first, replace(second, cases=(*second.cases, slow))) == modelled.against(first, second)


def test_a_chance_follows_from_the_shares() -> None:
    assert ERRORS.chance(1.0, 0.1) == 0.5
    assert ERRORS.chance(math.exp(0.1), 0.1) == pytest.approx(0.5 + LEVEL / 2)
    assert ERRORS.chance(math.exp(-0.1), 0.1) == pytest.approx(0.5 - LEVEL / 2)
    assert ERRORS.chance(math.exp(0.02), 0.1) == pytest.approx(0.5 + 0.25 / 2)
    assert ERRORS.chance(1e9, 0.1) == pytest.approx(0.995)  # never sure
    assert ERRORS.chance(2.0, 0.0) == 1


def test_one_rule_says_what_is_likely() -> None:
    reach = 0.1
    at_rule = math.exp(reach * 0.8)  # eight of ten are within that, so one of ten is beyond it on either side
    assert ERRORS.chance(at_rule, reach) == pytest.approx(LIKELY)
    assert ERRORS.speed(at_rule * 1.001, reach).change is Change.FASTER
    assert ERRORS.speed(at_rule / 1.001, reach).change is Change.UNSURE
    assert ERRORS.speed(1.001 / at_rule, reach).change is Change.UNSURE
    assert ERRORS.speed(0.999 / at_rule, reach).change is Change.SLOWER
    speed = ERRORS.speed(1.3, reach)
    assert (speed.interval.low, speed.interval.high) == (pytest.approx(1.3 / math.exp(reach)),
                                                         pytest.approx(1.3 * math.exp(reach)))  # fmt: skip


def test_two_kernels_are_compared_with_each_other_and_not_both_with_the_baseline() -> None:
    """Against a slow baseline both are 3 times as fast, give or take much; of each other the model knows more."""
    first, second = verdict({"N=8": (50, 10), "N=9": (70, 10)}), verdict({"N=8": (50, 7), "N=9": (70, 7)})
    found = modelled.against(first, second)
    assert found is not None
    assert first.speed is not None
    assert found.speedup == pytest.approx((second.score or 0) / (first.score or 1))
    assert found.interval.high / found.speedup == pytest.approx(math.exp(0.05 + 0.5 * 3 / 20))
    assert first.speed.interval.high / first.speed.speedup > 1.4
    assert found.change is Change.FASTER
    close = modelled.against(first, verdict({"N=8": (50, 9.7), "N=9": (70, 9.7)}))
    assert close is not None
    assert close.change is Change.UNSURE


def test_the_other_way_round_two_kernels_are_as_sure() -> None:
    """The first is faster at one size and the second at the other, and their makeups differ much at one of them."""
    first, second = verdict({"N=8": (500, 10), "N=9": (70, 35)}), verdict({"N=8": (500, 300), "N=9": (70, 2)})
    there, back = modelled.against(first, second), modelled.against(second, first)
    assert there is not None
    assert back is not None
    assert there.chance == pytest.approx(1 - (back.chance or 0))
    assert there.interval.high == pytest.approx(1 / back.interval.low)


def test_without_errors_or_makeups_nothing_is_said_of_two_kernels() -> None:
    """Records of before, and times of eager PyTorch."""
    older = GpuModel("v6", "NVIDIA H200", 1.8)
    known, bare = verdict({"N=8": (50, 10)}), verdict({"N=8": (50, 10)}, model=older)
    assert modelled.against(known, bare) is None
    cases = tuple(
        replace(case, modelled=replace(case.modelled, candidate_makeup=None)) for case in known.cases if case.modelled
    )
    assert modelled.against(replace(known, cases=cases), known) is None
    assert modelled.against(replace(known, score=None), known) is None
    assert bare.speed is not None
    assert bare.speed.chance is None
    assert bare.speed.interval.high == pytest.approx(1.8 * bare.speed.speedup)  # by the error of all kernels


def test_a_record_brings_its_errors_along() -> None:
    """What is read says what was written, whatever the model's errors are by then."""
    made = verdict({"N=8": (50, 10)}, "atomics")
    text = json.dumps(to_json(made))
    again = from_json(Verdict, json.loads(text))
    assert again == made
    assert modelled.against(again, again) == modelled.against(made, made)
    older = json.dumps(to_json(verdict({"N=8": (50, 10)}, model=GpuModel("v6", "NVIDIA H200", 1.8))))
    assert "errors" not in older
    assert "chance" not in older


def test_a_damaged_record_says_nothing_wrong_of_itself() -> None:
    """Shares without reaches, as only another program writes them, are no reason to fail."""
    assert replace(ERRORS, reaches=()).chance(2.0, 0.1) == 0.5
    assert replace(ERRORS, shares=(0.5,)).chance(2.0, 0.1) == 0.75


def test_what_ships_has_intervals_of_the_h200(tmp_path: Path) -> None:
    """And wider ones for other GPUs, of which nothing was measured."""
    from cudamaster.modelling import constants

    kept = constants.shipped().intervals
    assert kept is not None
    assert kept.gpu == "NVIDIA H200"
    assert kept.reaches[LEVEL] == pytest.approx(1)
    own, assumed = kept.errors(), kept.errors(assumed=True)
    assert list(own.reaches) == sorted(own.reaches)
    assert assumed.floor >= own.floor
    assert assumed.of_difference >= own.of_difference
    assert (own.assumed_of, assumed.assumed_of) == ("", "NVIDIA H200")
    said = GpuModel("v7", "NVIDIA A100 SXM", errors=assumed).described
    assert "its error is not known: no time was measured there" in said
    path = tmp_path / "constants.yaml"
    path.write_text(constants.to_yaml(constants.shipped()))
    assert constants.load(path) == constants.shipped()


@pytest.mark.parametrize(
    ("chance", "said"),
    [
        (0.898, "89%"),
        (0.9, "90%"),
        (0.29, "29%"),
        (0.102, "11%"),
        (0.1, "10%"),
        (0.5, "50%"),
        (0.0, "0%"),
        (1.0, "100%"),
    ],
)
def test_a_chance_that_does_not_suffice_is_not_printed_as_one_that_does(chance: float, said: str) -> None:
    assert in_percent(chance) == said
