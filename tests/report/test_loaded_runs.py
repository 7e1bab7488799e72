"""Holds the reading of run folders to what they say, as far as each of them got."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import SIZES, command, kept_of, kernel, only, plan, run, runs, script
from search_stand_ins import COMMAND, code

from cudamaster.core.values import Bottleneck, GpuModel, Hardware, ProfileMode, Status
from cudamaster.report.data import RunProgress
from cudamaster.report.loading import load
from cudamaster.report.numbers import groups
from cudamaster.runs.record import hash_of
from cudamaster.tasks import cards


def test_a_finished_run_in_full(tmp_path: Path) -> None:
    """P and its interval, the winner's idea, author, code, flags, sizes, classes, changes of metrics, and cost."""
    result = only(run(tmp_path / "run", outcomes=(2.0, "wrong", 3.0, 2.5)))
    assert (result.task, result.category, result.precision) == (
        "dot_product",
        cards.load("dot_product").category,
        "fp32",
    )
    assert (result.progress, result.status, result.correct, result.improved) == (
        RunProgress.FINISHED, Status.CORRECT, True, True
    )  # fmt: skip
    assert result.score == pytest.approx(3.0, rel=0.01)
    assert result.speed is not None
    assert result.speed.interval.low < 3.0 < result.speed.interval.high
    assert (result.idea, result.round, result.author) == ("idea 2", 3, "scripted")
    assert [told.idea for told in result.rounds] == [f"idea {n}" for n in range(4)]
    assert [told.status for told in result.rounds] == ["correct", "wrong", "correct", "correct"]
    assert [told.accepted for told in result.rounds] == [True, False, True, False]
    assert result.best is not None
    assert result.baseline is not None
    assert result.best.code.startswith("// correct 3.0")
    assert result.baseline.code.startswith("// correct 1.0")
    assert "+// correct 3.0 k2" in result.diff
    assert (result.flags_added, result.flags_removed) == (("--use_fast_math",), ())
    assert [(case.label, case.sizes, case.weight) for case in result.cases] == [
        (f"N={n}", {"N": n}, n) for n, _ in SIZES
    ]
    for case, (_, us) in zip(result.cases, SIZES, strict=True):
        assert case.baseline_us == pytest.approx(us, rel=0.01)
        assert case.candidate_us == pytest.approx(us / 3, rel=0.01)
        assert case.over_floor == pytest.approx(2.0, rel=0.02)
    assert result.before is not None
    assert result.after is not None
    assert (result.before.bottleneck, result.after.bottleneck) == (Bottleneck.LATENCY, Bottleneck.BANDWIDTH)
    assert result.after.throughputs is not None
    assert result.after.throughputs.dram == 60.0
    assert result.after.limits is not None
    assert (result.after.limits.compute, result.after.limits.source) == (30.0, "paper")
    assert result.changes
    assert all(
        change.relative == pytest.approx((change.after - change.before) / change.before) for change in result.changes
    )
    calls = len(script(2.0, "wrong", 3.0, 2.5))
    assert (result.cost.calls, result.cost.dollars, result.cost.tokens) == (calls, 0.25 * calls, 15 * calls)
    assert result.cost.minutes is not None
    assert (result.configuration.rounds, result.configuration.profile) == (4, ProfileMode.FILTERED)
    assert result.notes == ("a NOTE",)
    assert result.remarks == ()


def test_a_run_without_a_correct_kernel_has_no_p(tmp_path: Path) -> None:
    """The baseline is right and stays the best, and is no success of the run."""
    result = only(run(tmp_path / "run", outcomes=("wrong", "compile_error")))
    assert (result.correct, result.improved, result.score, result.best) == (False, False, None, None)
    assert result.status is Status.COMPILE_ERROR
    (group,) = groups(load([tmp_path]))
    assert [point.share for point in group.success] == [0, 0, 0, 0, 0]


def test_a_correct_kernel_that_is_slower_is_correct_and_no_more(tmp_path: Path) -> None:
    """P below 1 is shown, the baseline stays the best, and the task is a success only at the threshold 0."""
    result = only(run(tmp_path / "run", outcomes=("wrong", 0.5, 0.7)))
    assert result.score == pytest.approx(0.7, rel=0.01)
    assert (result.correct, result.improved, result.idea) == (True, False, "idea 2")
    (group,) = groups(load([tmp_path]))
    assert [point.share for point in group.success] == [1, 0, 0, 0, 0]


def test_the_baseline_given_back_is_no_kernel_of_the_runs_own(tmp_path: Path) -> None:
    replies = [plan("nothing"), code(kernel(score=1.0, tag="baseline")), command(COMMAND)]
    result = only(run(tmp_path / "run", outcomes=(1.0,), replies=replies))
    assert (result.correct, result.score) == (False, None)


def test_a_jump_counts_with_the_lower_measurement_and_its_sizes(tmp_path: Path) -> None:
    """A score above 8 is measured again; sizes and P are of the same one of both."""
    result = only(run(tmp_path / "run", outcomes=(20.0,)))
    assert result.score == pytest.approx(20.0, rel=0.01)
    assert any("measured again" in note for note in result.notes)
    assert [case.speedup for case in result.cases] == pytest.approx([20.0] * 3, rel=0.01)


def test_unknown_prices_and_tokens_are_unknown(tmp_path: Path) -> None:
    """One call without a price makes the sum unknown, and never 0."""
    path = run(tmp_path / "run")
    exchange = path / "exchanges" / "0001_planner.json"
    from cudamaster.runs.folder import write_record
    from cudamaster.runs.record import Exchange, decoded

    kept = decoded(Exchange, exchange)
    usage = replace(kept.reply.usage, dollars=None, prompt_tokens=None)
    write_record(exchange, replace(kept, reply=replace(kept.reply, usage=usage)))
    cost = only(path).cost
    assert (cost.dollars, cost.tokens, cost.prompt_tokens) == (None, None, None)
    assert cost.completion_tokens == 30
    (path / "sessions.json").unlink()
    assert (only(path).cost.minutes, only(path).cost.gpu_seconds) == (None, None)


def test_a_killed_run_is_reported_as_far_as_it_got(tmp_path: Path) -> None:
    """Its best so far counts and is called partial."""
    path = run(tmp_path / "run", outcomes=(2.0, 3.0), replies=script(2.0))
    report = load([path])
    (result,) = report.results
    assert result.progress is RunProgress.STOPPED
    assert "asking the planner agent (scripted)" in str(result.stopped_at)
    assert result.score == pytest.approx(2.0, rel=0.01)
    (problem,) = report.problems
    assert "partial" in problem.what
    assert not problem.serious
    assert groups(report)[0].partial == 1


def test_a_run_killed_before_its_first_kernel_is_missing_and_no_failure(tmp_path: Path) -> None:
    """It says nothing about the model: it counts for no tau and is named."""
    runs(tmp_path / "runs", {"gelu": (2.0, 2.0)})
    run(tmp_path / "runs" / "relu", "relu", outcomes=(2.0, 3.0), replies=[plan("x")])
    report = load([tmp_path / "runs"])
    assert [result.task for result in report.results] == ["gelu"]
    assert [(one.task, "was stopped before it had judged a kernel" in one.why) for one in report.missing] == [
        ("relu", True)
    ]
    (group,) = groups(report)
    assert (group.tasks, group.success[0].share) == (1, 1.0)
    assert [one.name for one in group.missing] == ["relu_fp32"]


def test_another_task_card_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a card that was changed since keeps its P, marked."""
    path = run(tmp_path / "run")
    from cudamaster.runs.folder import write_record
    from cudamaster.runs.record import read_manifest

    write_record(path / "run.json", replace(read_manifest(path), card_hash="0000000000000000"))
    assert only(path).remarks[0].startswith("other card:")


def test_a_run_from_before_does_not_hold_what_hides_a_case(tmp_path: Path) -> None:
    """Its best has a P over the cases that could be modelled; its speed at the others is unknown."""
    emulated = Hardware("CPU device", {}, emulated=True, modelled=GpuModel("v6", "NVIDIA H200"))
    path = run(tmp_path / "run", outcomes=(3.0,), hardware=emulated)
    assert only(path).improved
    best = json.loads((path / "best.json").read_text())["candidate"]
    for why, counts in (("the baseline: a reason", True), ("the traced call took too long", False)):
        file = path / "verdicts" / f"{best}.json"
        verdict = json.loads(file.read_text())
        verdict.pop("hash")
        verdict["cases"][-1] |= {"modelled": None, "speed": None, "not_modelled": why}
        file.write_text(json.dumps({**verdict, "hash": hash_of(verdict)}))
        for result in (only(path), only(kept_of(path, tmp_path / f"kept{counts}", form=1))):
            assert result.correct
            assert (result.improved, result.score is not None) == (counts, counts)


def test_a_card_that_only_checks_less_is_told_and_p_stays() -> None:
    """The kept runs of a sparse task are by an earlier form of its card."""
    kept = Path(__file__).parent.parent.parent / "results" / "h200" / "spmv_csr_bf16"
    (remark,) = (remark for remark in only(kept).remarks if "card" in remark)
    assert remark == (
        "fewer checks: by an earlier form of the task card, which times the same (the card says so) and checks fewer "
        "cases"
    )
    assert only(kept).score is not None
