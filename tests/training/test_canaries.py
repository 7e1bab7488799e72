"""Canaries: dishonest kernels that have to earn nothing, and what happens when one does."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from made_verdicts import case, modelled_case, modelled_verdict, verdict
from plain_device import PlainCpuDevice
from small_cards import small_card

from cudamaster.audit import corpus
from cudamaster.audit.corpus import Expect
from cudamaster.core.errors import CanaryError, UsageError
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.tasks import cards
from cudamaster.training.canaries import Canaries
from cudamaster.training.reward import Rule
from cudamaster.workbench.evaluation import Workbench

BASELINE = Candidate("relu", Precision.FP32, "plain", "nvcc -O3 -c candidate.cu -o candidate.o")
CANARIES = Canaries(cards.load("relu"), Precision.FP32, BASELINE)


def test_canaries_are_the_kinds_that_have_to_be_refused() -> None:
    expected = {kind.name: kind.expect for kind in corpus.load()}
    assert len(CANARIES.all) > 100
    assert {expected[each.kind] for each in CANARIES.all} == {Expect.REFUSED}
    kinds = {each.kind: each.candidate for each in CANARIES.all}
    assert "first_structure" not in kinds, "relu has no sparse structure"
    assert kinds["zeros"].command == BASELINE.command
    assert kinds["linker_flag"].command != BASELINE.command


def test_a_kind_about_the_largest_size_is_about_the_largest_that_counts() -> None:
    """What is wrong at a size that nobody runs would be right, and earn a reward for that."""
    sizes = [case for case in cards.load("relu").cases if case.sweep]
    smallest = min(sizes, key=lambda case: case.weight)
    few = Canaries(cards.load("relu"), Precision.FP32, BASELINE, cases=[smallest.label])
    code = {each.kind: each.candidate.code for each in few.all}["small_sizes"]
    assert f"N == {smallest.values['N']}" in code
    all_code = {each.kind: each.candidate.code for each in CANARIES.all}["small_sizes"]
    assert f"N == {max(case.values['N'] for case in sizes)}" in all_code
    with pytest.raises(UsageError, match="No timed case of relu"):
        Canaries(cards.load("relu"), Precision.FP32, BASELINE, cases=["N=7"])


def test_all_have_their_turn_before_one_has_its_second() -> None:
    turns = -(-len(CANARIES.all) // 8)
    seen = [each.kind for turn in range(turns) for each in CANARIES.some(turn, 8)]
    assert set(seen) == {each.kind for each in CANARIES.all}
    assert len(set(seen[: len(CANARIES.all)])) == len(CANARIES.all)
    assert CANARIES.some(3, 8) == CANARIES.some(3, 8)
    assert len(CANARIES.some(0, 1000)) == len(CANARIES.all)


def test_one_that_earns_anything_stops_the_run() -> None:
    zeros = next(each for each in CANARIES.all if each.kind == "zeros")
    slow = verdict(case([0.4] * 14), candidate=zeros.candidate.id)
    refused = replace(slow, candidate=CANARIES.all[-1].candidate.id, status=Status.REJECTED)
    unknown = replace(slow, candidate=CANARIES.all[-2].candidate.id, emulated=True)
    (found,) = CANARIES.earned([refused, slow, unknown], Rule())
    assert (found.canary, found.reward) == (zeros, 0.4)
    with pytest.raises(CanaryError) as error:
        CANARIES.must_earn_nothing([refused, slow], Rule())
    assert "zeros (zeros) on relu (fp32): 0.40" in error.value.reason
    assert "cudamaster audit relu" in error.value.fix
    assert error.value.exit_code == 8
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    CANARIES.must_earn_nothing([refused, unknown], Rule())


def test_verdicts_on_other_kernels_say_nothing() -> None:
    CANARIES.must_earn_nothing([verdict(case([9.0] * 14), candidate="a sample's")], Rule())


def test_what_is_right_by_the_contract_may_not_gain() -> None:
    """Such a kind, and an honest one, are no canaries unless named; an honest one not even then."""
    named = [kind for kind in corpus.load() if kind.expect is not Expect.REFUSED]
    harmless = Canaries(cards.load("relu"), Precision.FP32, BASELINE, kinds=named)
    assert {each.expect for each in harmless.all} == {Expect.HARMLESS}
    one = harmless.all[0].candidate.id
    assert harmless.earned([modelled_verdict(modelled_case(1.1), candidate=one)], Rule()) == ()
    assert len(harmless.earned([modelled_verdict(modelled_case(1.2), candidate=one)], Rule())) == 1


def test_on_a_real_device_one_that_is_wrong_at_the_timed_size_earns_nothing() -> None:
    """By the judge of every sample, and not by an audit's, which looks for tricks."""
    bench = Workbench(small_card("relu"), Precision.FP32, PlainCpuDevice())
    canaries = Canaries(small_card("relu"), Precision.FP32, bench.baseline)
    (tried,) = (each.candidate for each in canaries.all if each.kind == "small_sizes")
    told = bench.evaluate(tried)
    assert told.status is Status.WRONG
    assert canaries.earned([told], Rule()) == ()
    canaries.must_earn_nothing([told], Rule())
