"""The model of a GPU at work on the CPU device: real kernels are counted, ranked, profiled and shown as modelled."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from small_cards import small_card

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.records import from_json, to_json
from cudamaster.core.values import Candidate, CaseVerdict, Precision, ProfileMode, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.models.playbook import PlaybookModel
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

KERNELS = sorted((resources.package() / "playbook" / "spmv_csr" / "fp32").glob("*.cu"))


@pytest.fixture(scope="module")
def bench() -> Workbench:
    """spmv_csr with all its timed cases, which the CPU device runs in a second."""
    return Workbench(cards.load("spmv_csr"), Precision.FP32, CpuDevice(), seed=7)


@pytest.fixture(scope="module")
def verdicts(bench: Workbench) -> list[Verdict]:
    """Those of the playbook's kernels."""
    steps = PlaybookModel().steps("spmv_csr", "fp32")
    command = bench.device.default_command
    return [bench.evaluate(Candidate("spmv_csr", Precision.FP32, step.code, command)) for step in steps]


@pytest.fixture(scope="module")
def of_baseline(bench: Workbench) -> Verdict:
    """That of the baseline as a candidate; a workbench with the same seed gives the same one."""
    return bench.evaluate(bench.baseline)


@pytest.mark.slow
def test_kernels_that_are_faster_on_an_h200_are_faster_by_the_model(verdicts: list[Verdict]) -> None:
    """All four were measured 1.1 to 1.3 times as fast there; by the host's clock they are slower."""
    assert len(verdicts) == 4
    assert all(verdict.score is not None and 1.02 < verdict.score < 2 for verdict in verdicts)
    assert all(verdict.complete and verdict.mark == "modelled" for verdict in verdicts)


@pytest.mark.slow
def test_the_baseline_against_itself_is_no_change(of_baseline: Verdict) -> None:
    assert (of_baseline.score, of_baseline.mark) == (1.0, "modelled")


@pytest.mark.slow
def test_modelled_times_depend_on_kernel_and_seed_alone(verdicts: list[Verdict], bench: Workbench) -> None:
    again = Workbench(bench.card, Precision.FP32, CpuDevice(), seed=7)
    code = KERNELS[0].read_text()
    second = again.evaluate(Candidate("spmv_csr", Precision.FP32, code, bench.device.default_command))

    def values_of(verdict: Verdict) -> list[CaseVerdict]:
        return [case for case in verdict.cases if case.sweep]

    assert [case.modelled for case in values_of(second)] == [case.modelled for case in values_of(verdicts[0])]
    assert (second.score, second.modelled) == (verdicts[0].score, verdicts[0].modelled)


@pytest.mark.slow
def test_a_verdict_on_modelled_times_is_recorded_whole() -> None:
    bench = Workbench(small_card("spmv_csr"), Precision.FP32, CpuDevice(), seed=7)
    step = PlaybookModel().steps("spmv_csr", "fp32")[0]
    verdict = bench.evaluate(Candidate("spmv_csr", Precision.FP32, step.code, bench.device.default_command))
    assert verdict.score is not None
    assert from_json(Verdict, json.loads(json.dumps(to_json(verdict)))) == verdict
    assert all(case.timing is None for case in verdict.cases)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [ProfileMode.FILTERED, ProfileMode.FULL, ProfileMode.CUDAFORGE24])
def test_the_planner_gets_a_modelled_profile(bench: Workbench, of_baseline: Verdict, mode: ProfileMode) -> None:
    bench = Workbench(bench.card, Precision.FP32, CpuDevice(), seed=7, profile=mode)
    findings = bench.findings(bench.baseline, of_baseline)
    assert findings.modelled is not None
    assert findings.bottleneck is not None
    assert findings.breakdown["whole call"] > findings.breakdown["kernels"] > 0
    assert "modelled" in findings.note
    assert findings.kernel == "spmv_csr_kernel_optimized"
    if mode is not ProfileMode.FILTERED:
        assert "The model does not give" in findings.note


@pytest.mark.slow
def test_calibrated_thresholds_are_those_of_the_modelled_gpu(bench: Workbench, of_baseline: Verdict) -> None:
    calibrated = Workbench(bench.card, Precision.FP32, CpuDevice(), seed=7, thresholds="calibrated")
    findings = calibrated.findings(bench.baseline, of_baseline)
    assert "NVIDIA H200" in findings.thresholds


@pytest.mark.slow
def test_too_heavy_cases_have_modelled_times() -> None:
    """Matrices of 4096 x 4096 are never multiplied wholly here."""
    bench = Workbench(cards.load("square_matrix_mul"), Precision.FP32, CpuDevice(), seed=7)
    verdict = bench.evaluate(bench.baseline)
    heaviest = max((case for case in verdict.cases if case.sweep), key=lambda case: case.weight)
    assert heaviest.skipped is not None
    assert heaviest.modelled is not None
    assert heaviest.modelled.baseline_us > 1000
    assert verdict.complete


@pytest.mark.slow
def test_a_kernel_that_does_nothing_where_it_is_not_run_has_no_time_there() -> None:
    """It is right at all sizes that this device runs, and the others are not checked."""
    bench = Workbench(cards.load("square_matrix_mul"), Precision.FP32, CpuDevice(), seed=7)
    head, brace, body = bench.baseline.code.partition("int M) {\n    dim3")
    assert brace
    code = f"{head}int M) {{\n    if (M > 3000)\n        return;\n    dim3{body}"
    verdict = bench.evaluate(Candidate("square_matrix_mul", Precision.FP32, code, bench.baseline.command))
    heaviest = max((case for case in verdict.cases if case.sweep), key=lambda case: case.weight)
    assert verdict.correct
    assert heaviest.skipped is not None
    assert heaviest.not_modelled is not None
    assert "reads 0 bytes" in heaviest.not_modelled
    assert verdict.score is None  # what it would gain where it does nothing counts for no other
    assert heaviest.label in verdict.detail
    assert not verdict.complete


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """spmv_csr has a single timed case."""
    card = small_card("spmv_csr")
    monkeypatch.setattr(cards, "load", lambda name: card)
    return iter(())


COMMANDS = {
    "evaluate": ["evaluate", "spmv_csr", str(KERNELS[0])],
    "compare": ["compare", str(KERNELS[0]), str(KERNELS[1]), "--task", "spmv_csr"],
    "profile": ["profile", "spmv_csr", str(KERNELS[0])],
    "prompt": ["prompt", "spmv_csr", "--role", "planner", "--candidate", str(KERNELS[0])],
}


@pytest.mark.slow(but=["profile"])
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_say_that_they_are_modelled(command: str) -> None:
    ran = CliRunner().invoke(main, [*COMMANDS[command], "--device", "cpu", "--seed", "7"])
    assert "modelled" in ran.stdout, (ran.stdout, ran.exception)
    assert "of an NVIDIA H200" in ran.stdout
    assert "emulated" not in ran.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_verdict_for_programs_says_that_it_is_modelled() -> None:
    ran = CliRunner().invoke(main, [*COMMANDS["evaluate"], "--device", "cpu", "--json"])
    verdict = json.loads(ran.stdout)
    assert verdict["modelled"]["gpu"] == "NVIDIA H200"
    assert verdict["emulated"] is True
    timed = [case for case in verdict["cases"] if case["sweep"]]
    assert timed[0]["timing"] is None
    assert timed[0]["modelled"]["candidate_us"] > 0
