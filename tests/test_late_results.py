"""Results that come late, early or not at all, where they are as dangerous as on a GPU.

A worker of the CPU device makes its calls on copies of the buffers, so that what is late arrives nowhere. Here it makes
them in place, on the memory that it shares with the judge, and a call that is not timed leads each series, as on a GPU.
"""

from pathlib import Path

import pytest
from plain_device import PlainCpuDevice
from small_cards import small_card

from cudamaster.audit import corpus, running
from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.judging.judge_process import Trial
from cudamaster.judging.verdicts import Judgement
from cudamaster.workbench.evaluation import Workbench

KINDS = {kind.name: kind for kind in corpus.load()}
CALLS = 40


def judged(task: str, precision: Precision, made: Candidate, seed: int) -> Judgement:
    """A judgement on a candidate that works in place; it has to get past the guards."""
    bench = Workbench(small_card(task), precision, PlainCpuDevice(), modelled=False, calls=CALLS, seed=seed)
    builder: Builder = bench._builder
    build = builder.build(made)
    assert build.worker is not None, build.detail
    request = JudgeRequest(
        candidate=(str(build.worker), "--in-place"), seed=seed, first_failure=True, others=("--lead",)
    )
    return bench._trials.run(Trial(request, bench.card.cases, 300))


def candidate(kind: str, task: str, precision: Precision) -> Candidate:
    made = running.candidate(KINDS[kind], running.Subject(small_card(task), precision, PlainCpuDevice()))
    assert isinstance(made, Candidate)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dot_product", "spmv_csr"])
def test_an_honest_kernel_may_work_in_place(task: str) -> None:
    bench = Workbench(small_card(task), Precision.FP32, PlainCpuDevice(), modelled=False)
    told = judged(task, Precision.FP32, bench.baseline, 1)
    assert told.status is Status.CORRECT, told.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "task", "precision"),
    [
        ("late_by_address", "spmv_csr", Precision.BF16),
        ("late_by_counter_2", "dot_product", Precision.FP32),
        ("late_by_counter_4", "dot_product", Precision.FP32),
        ("late_by_stamp", "spmv_csr", Precision.FP32),
        ("next_call", "dot_product", Precision.FP32),
        ("several_at_once", "dot_product", Precision.FP32),
        ("unmasks_the_next", "spmv_csr", Precision.BF16),
        ("rests_one_of_2_when_timed", "dot_product", Precision.FP32),
        ("rests_one_of_8_when_timed", "spmv_csr", Precision.BF16),
    ],
)
def test_what_comes_late_or_not_at_all_is_refused(kind: str, task: str, precision: Precision) -> None:
    """Each gets through all checks but those of timed calls."""
    made = candidate(kind, task, precision)
    for seed in (1, 2):
        told = judged(task, precision, made, seed)
        assert told.status is not Status.CORRECT
        assert "at a timed call" in told.detail or told.status is Status.FAULT, told.detail


def relu(name: str, **words: str) -> Candidate:
    """A kernel for the task relu that is kept beside this file, its words replaced."""
    code = (Path(__file__).parent / "late" / name).read_text()
    for word, text in words.items():
        code = code.replace(word, text)
    return Candidate("relu", Precision.FP32, code, CpuDevice().default_command)


def timed_relu(candidate: Candidate, calls: int, *others: str, **workers: Candidate) -> Judgement:
    """A judgement on it in one timed case, against a baseline or a rival of one's own if there is one."""
    card = small_card("relu")
    bench = Workbench(card, Precision.FP32, PlainCpuDevice(), modelled=False, calls=calls, seed=1)
    built = {}
    for role, made in {"candidate": candidate, **workers}.items():
        build = bench._builder.build(made)
        assert build.worker is not None, build.detail
        built[role] = (str(build.worker), "--in-place")
    request = JudgeRequest(**built, cases="sweep", seed=1, others=others)
    return bench._trials.run(Trial(request, [case for case in card.cases if case.sweep], 60))


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("lead", [False, True])
def test_a_call_that_is_not_timed_leads_a_series(lead: bool) -> None:
    """A candidate that faults in its call after the last that is timed: it gets there only if there are more."""
    warmups, calls, checks = 1, 8, 3
    told = timed_relu(
        relu("relu_that_tires.cu", LAST=str(checks + warmups + calls)), calls, *(["--lead"] if lead else [])
    )
    assert told.status is (Status.FAULT if lead else Status.CORRECT), told.detail


@pytest.mark.slow
def test_a_rival_is_led_whatever_the_baseline_takes() -> None:
    """The baseline's calls take long, and would do without the call that leads a series: a library's does not."""
    warmups, calls = 1, 8
    told = timed_relu(
        relu("relu_that_tires.cu", LAST="1000"),
        calls,
        "--lead",
        baseline=relu("relu_that_is_slow.cu"),
        rival=relu("relu_that_tires.cu", LAST=str(warmups + calls)),
    )
    assert told.status is Status.FAULT
    assert "compared with" in told.detail, told.detail


def test_the_call_that_leads_a_series_has_to_be_right() -> None:
    """Its time does not count, and it could do other work in place of its own."""
    told = judged("relu", Precision.FP32, relu("relu_that_knows_the_lead.cu", AHEAD="return"), 1)
    assert told.status is Status.WRONG
    assert "at a timed call" in told.detail


@pytest.mark.slow
def test_the_call_that_leads_a_series_counts_if_it_takes_far_longer() -> None:
    """What it does besides, such as to let the device rest, would be for the calls after it."""
    works = "for (volatile int k = 0; k < 10000; k = k + 1)"
    told = judged("relu", Precision.FP32, relu("relu_that_knows_the_lead.cu", AHEAD=works), 1)
    (timing,) = (case.timing for case in told.cases if case.timing is not None)
    assert len(timing.candidate_us) > CALLS


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_call_finds_nothing_that_calls_before_it_wrote_to_its_outputs(seed: int) -> None:
    """One that adds to its output has to clear it: a call that is not timed could clear those of all calls to come."""
    code = (Path(__file__).parent / "late/dot_product_cleared_ahead.cu").read_text()
    made = Candidate("dot_product", Precision.FP32, code, CpuDevice().default_command)
    told = judged("dot_product", Precision.FP32, made, seed)
    assert told.status is Status.CORRECT, told.detail


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_of_a_series_is_known_to_be_unwatched(seed: int) -> None:
    """It sees by the poison of calls to come that it is not in the last, and is as coarse as FP8 then."""
    code = (Path(__file__).parent / "late/coarse_unless_last.cu").read_text()
    made = Candidate("softmax_attention", Precision.BF16, code, CpuDevice().default_command)
    told = judged("softmax_attention", Precision.BF16, made, seed)
    assert told.status is Status.WRONG
    assert "at a timed call" in told.detail
