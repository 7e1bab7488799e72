"""What may be an example to follow, which verdict counts, and which of two kernels is surely faster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from judged_kernels import baseline, kept, kernel, other_code, refused, scored, with_verdict

from cudamaster.core.speed import Change, Comparison, Interval
from cudamaster.core.values import RACES_UNSEEN, CaseVerdict, GpuModel, Status
from cudamaster.training.choosing import Standing, margin_of, surely_faster
from cudamaster.training.collecting import merged
from cudamaster.training.evaluating import tasks_of
from cudamaster.training.kernels import JudgedKernel

MODEL = GpuModel("v6", "NVIDIA H200", 1.85, 0.996)
SKIPPED = CaseVerdict("rows=9", sweep=False, weight=0.0, status=None, skipped="too little memory")


def on_gpu(of: JudgedKernel, gpu: str) -> JudgedKernel:
    return replace(of, provenance=replace(of.provenance, gpu=gpu))


def modelled(of: JudgedKernel) -> JudgedKernel:
    return with_verdict(on_gpu(of, "NVIDIA H200 (modelled)"), emulated=True, modelled=MODEL)


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.CORRECT])
def test_nothing_that_failed_is_an_example(status: Status) -> None:
    failed = refused(kernel(0), status)
    assert Standing([failed], modelled=True).why_not(failed)
    assert Standing([kernel(0)], modelled=False).is_example(kernel(0))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"complete": False}, "left out"),
        ({"cases": (*kernel(0).verdict.cases, SKIPPED)}, "left out"),
        ({"score": None, "speed": None}, "without a time"),
        ({"score": float("inf")}, "without a time"),
        ({"emulated": True}, "without a time"),
        ({"emulated": True, "modelled": MODEL}, "modelled"),
        ({"notes": (f"{RACES_UNSEEN}: it took too long",)}, "races"),
        ({"sanitizers": {"racecheck": "3 hazards"}}, "findings"),
        ({"cases": (replace(kernel(0).verdict.cases[0], status=Status.WRONG),)}, "findings"),
        ({"score": -3.0}, "findings"),
    ],
)
def test_right_is_not_enough(changes: dict[str, object], why: str) -> None:
    one = with_verdict(kernel(0), **changes)
    assert why in Standing([one], modelled=False).why_not(one)


def test_modelled_times_count_if_they_are_wanted() -> None:
    one = modelled(kernel(0))
    assert Standing([one], modelled=True).is_example(one)
    assert not Standing([with_verdict(one, complete=False)], modelled=True).is_example(
        with_verdict(one, complete=False)
    )


@pytest.mark.parametrize("gpu", [kernel(0).gpu, "NVIDIA A100"])
def test_a_blank_line_makes_no_other_kernel_of_a_refused_one(gpu: str) -> None:
    again = refused(on_gpu(other_code(kernel(0), f"{kernel(0).candidate.code}\n"), gpu))
    assert "refused" in Standing([kernel(0), again], modelled=False).why_not(kernel(0))


def test_a_task_of_the_data_is_not_held_out(tmp_path: Path) -> None:
    assert tasks_of(tmp_path) == set()
    (tmp_path / "kernels.jsonl").write_text(json.dumps(kernel(0).to_json()) + "\n")
    (tmp_path / "sft.jsonl").write_text('{"provenance": {"task": "elu"}}\n{"provenance": "a program"}\n')
    assert tasks_of(tmp_path) == {"spmv_csr", "elu"}


@pytest.mark.parametrize("status", [Status.WRONG, Status.FAULT, Status.REJECTED])
def test_a_kernel_that_another_device_found_wrong_is_no_example(status: Status) -> None:
    elsewhere = refused(on_gpu(kernel(0), "NVIDIA A100"), status)
    standing = Standing([kernel(0), elsewhere, kernel(1)], modelled=False)
    assert "another device" in standing.why_not(kernel(0))
    assert standing.is_example(kernel(1))
    # What a device cannot do, or is too slow for, says nothing about the kernel.
    slow = refused(on_gpu(kernel(0), "NVIDIA A100"), Status.TIMEOUT)
    assert Standing([kernel(0), slow], modelled=False).is_example(kernel(0))


def later(of: JudgedKernel) -> JudgedKernel:
    return replace(of, provenance=replace(of.provenance, started="2027-01-01T00:00:00+00:00"))


def test_of_two_verdicts_a_refusal_counts() -> None:
    for both in ([kernel(0), refused(kernel(0))], [refused(kernel(0)), later(kernel(0))]):
        (one,) = merged(both)
        assert one.verdict.status is Status.WRONG
    (one,) = merged([refused(kernel(0), Status.UNSUPPORTED), kernel(0)])
    assert one.verdict.correct


def test_of_two_that_passed_the_whole_one_counts_and_then_the_later_one_not_the_faster_one() -> None:
    slower = later(scored(kernel(0), 1.05, 0.01))
    for both in ([kernel(0), slower], [slower, kernel(0)]):
        assert merged(both) == [slower]
    assert merged([kernel(0), with_verdict(slower, complete=False)]) == [kernel(0)]
    without_samples = with_verdict(kernel(0), cases=())
    assert merged([without_samples, kernel(0)]) == merged([kernel(0), without_samples]) == [kernel(0)]


def test_two_gpus_are_two_kernels() -> None:
    assert len(merged([kernel(0), on_gpu(kernel(0), "NVIDIA A100"), modelled(kernel(0))])) == 3


def test_faster_is_said_where_intervals_lie_apart() -> None:
    # Measured on an H200: P of 1.11, 1.20 and 1.29, each known to 2 %.
    first, second, third = (kernel(number) for number in range(3))
    assert surely_faster(third, first)
    assert surely_faster(second, first)
    assert not surely_faster(first, third)
    assert not surely_faster(first, first)
    assert not surely_faster(scored(third, 1.29, 0.2), first)
    # Apart, but by less than two processes may differ.
    margin = margin_of(first)
    near = scored(first, first.verdict.score * (1 + margin / 2), 1e-4)
    assert 0.01 < margin < 0.1
    assert not surely_faster(near, scored(first, first.verdict.score, 1e-4))


def test_against_the_baseline_the_kernel_s_own_verdict_decides() -> None:
    assert surely_faster(kernel(0), baseline())
    same = scored(kernel(0), 1.005, 0.001)
    interval = same.verdict.speed.interval
    unsure = Comparison(1.005, interval, 1.005, interval, Change.SAME)  # within what processes differ by
    assert not surely_faster(with_verdict(same, speed=unsure), baseline())
    assert surely_faster(baseline(), scored(kernel(0), 0.8, 0.01))
    assert not surely_faster(baseline(), scored(kernel(0), 0.995, 0.01))


def test_only_what_was_measured_alike_is_compared() -> None:
    fast, slow = kernel(2), kernel(0)
    assert surely_faster(fast, slow)
    for change in ({"gpu": "NVIDIA A100"}, {"harness": "0.2.0"}, {"card_hash": "0"}, {"suite": "mine"}):
        assert not surely_faster(fast, replace(slow, provenance=replace(slow.provenance, **change)))
    assert not surely_faster(fast, with_verdict(slow, protocol={"calls": "7"}))
    fewer = tuple(case for case in slow.verdict.cases if case.label != "rows=32768")
    assert not surely_faster(fast, with_verdict(slow, cases=fewer))
    assert not surely_faster(with_verdict(fast, cases=()), with_verdict(slow, cases=()))
    assert not surely_faster(fast, other_code(slow, slow.candidate.code + "//\n", harness="0.1.0 (0123)"))


def test_a_modelled_gain_has_to_exceed_the_error_of_both() -> None:
    def of(score: float) -> JudgedKernel:
        one = scored(modelled(kernel(0)), score, 0.0)
        reach = Interval(score / MODEL.ratio_error, score * MODEL.ratio_error)
        return with_verdict(one, speed=Comparison(score, reach, score, reach, Change.FASTER))

    assert not surely_faster(of(3.3), of(1.0))
    assert surely_faster(of(3.5), of(1.0))


def test_what_a_kept_run_holds() -> None:
    found = kept()
    assert [one.verdict.score > 1 for one in found.kernels if not one.provenance.is_baseline] == [True] * 3
    assert {one.gpu for one in found.kernels} == {"NVIDIA H200"} == set(found.hardware)
    assert kernel(0).provenance.idea == "Eight lanes per row instead of one"
    assert kernel(0).provenance.author == "playbook"
    assert JudgedKernel.from_json(kernel(0).to_json()) == kernel(0)
