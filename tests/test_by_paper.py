"""The paper's protocol: calls one after the other, and its absolute 1e-5."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from attacks import attack
from click.testing import CliRunner
from small_cards import small_card

from cudamaster.build.building import Builder
from cudamaster.cli import main
from cudamaster.cli.evaluate import show_paper
from cudamaster.cli.output import console
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.choose import choose
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.judging.paper_protocol import ALLOWED, PaperCase, PaperScore
from cudamaster.judging.report_lines import Time, of
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench


def bench(task: str, precision: Precision = Precision.FP32) -> Workbench:
    return Workbench(small_card(task), precision, choose(), calls=20)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["spmv_csr", "sorting"])
def test_a_kernel_is_timed_and_compared_at_every_size(task: str) -> None:
    """Here the baseline itself, so that its outputs are the baseline's but for the order of its sums."""
    where = bench(task)
    paper = where.by_paper(where.baseline)
    assert paper.status is Status.CORRECT
    assert [case.label for case in paper.cases] == [case.label for case in where.card.cases if case.sweep]
    assert all(case.baseline_us > 0 and case.candidate_us > 0 for case in paper.cases)
    assert paper.within
    assert paper.score is not None


@pytest.mark.slow
def test_what_our_checks_allow_may_be_further_than_an_absolute_limit() -> None:
    """Sums of blocks that are off by three units in their last place are right; a whole sum is then off by over 1e-5.

    All are off upwards: off by a factor, their sum could be near zero, and its error within that of another order.
    """
    where = bench("dot_product")
    code = where.baseline.code.replace(
        "atomicAdd(out, partial[0]);", "atomicAdd(out, partial[0] + 4e-7f * fabsf(partial[0]));"
    )
    assert code != where.baseline.code
    candidate = Candidate("dot_product", Precision.FP32, code, where.baseline.command)
    assert where.evaluate(candidate, check_only=True).correct
    paper = where.by_paper(candidate)
    assert paper.status is Status.CORRECT
    assert not paper.within


def test_a_wrong_kernel_has_no_score() -> None:
    """Our checks come first, of each size."""
    where = bench("dot_product")
    code = where.baseline.code.replace("i < N ?", "i < N - 1 ?")
    assert code != where.baseline.code
    paper = where.by_paper(Candidate("dot_product", Precision.FP32, code, where.baseline.command))
    assert paper.status is Status.WRONG
    assert paper.score is None
    assert not paper.within
    assert not paper.cases


ODD = "    if (N % 2 != 0)\n        {0};\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "status"),
    [("return", Status.WRONG), ("cudaMemset(out - (1 << 20), 0, 1 << 12)", Status.FAULT)],
    ids=["wrong", "fault"],
)
def test_what_is_right_at_the_listed_sizes_alone_is_told_and_timed(wrong: str, status: Status) -> None:
    """Of a kernel that does not know odd sizes: ours says so, and the listed sizes have a verdict of their own."""
    where = bench("dot_product")
    head = where.card.declaration(Precision.FP32) + " {\n"
    assert head in where.baseline.code
    code = where.baseline.code.replace(head, head + ODD.format(wrong))
    candidate = Candidate("dot_product", Precision.FP32, code, where.baseline.command)
    assert where.evaluate(candidate).status is status
    paper = where.by_paper(candidate)
    assert (paper.status, paper.correct) == (Status.CORRECT, True)
    assert [case.label for case in paper.cases] == [case.label for case in where.card.cases if case.sweep]
    assert paper.score is not None


@pytest.mark.slow
def test_what_is_wrong_at_one_listed_size_is_named() -> None:
    """And nothing has a score, though it is right at all others."""
    where = Workbench(cards.load("vector_add"), Precision.FP32, CpuDevice(), calls=1)
    first, *others = (case for case in where.card.cases if case.sweep)
    assert others
    head = where.card.declaration(Precision.FP32) + " {\n"
    code = where.baseline.code.replace(head, f"{head}    if (N == {first.values['N']})\n        return;\n")
    paper = where.by_paper(Candidate("vector_add", Precision.FP32, code, where.baseline.command))
    assert paper.status is Status.WRONG
    assert f"(case {first.label})" in paper.detail
    assert paper.score is None


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_gives_both_verdicts(tmp_path: Path, as_json: bool) -> None:
    """The exit code is ours."""
    where = Workbench(cards.load("vector_add"), Precision.FP32, CpuDevice())
    head = where.card.declaration(Precision.FP32) + " {\n"
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(where.baseline.code.replace(head, head + ODD.format("return")))
    words = ["evaluate", "vector_add", str(kernel), "--device", "cpu", "--protocol", "paper", "--calls", "1"]
    done = CliRunner().invoke(main, [*words, "--json"] if as_json else words)
    assert done.exit_code == 1, done.output
    if as_json:
        told = json.loads(done.stdout)
        assert told["status"] == "wrong"
        assert told["by_listed_sizes"]["correct"] is True
        assert told["by_listed_sizes"]["status"] == "correct"
        assert told["by_paper"]["score"] is None  # which the CPU device has no times for
    else:
        assert done.stdout.startswith("wrong: ")
        assert "By the listed sizes alone: correct: " in done.output
        assert "The cpu device measures no times of its own" in done.output


@pytest.mark.slow
def test_calls_come_one_behind_the_other(tmp_path: Path) -> None:
    """Three warm-up calls, the timed ones, and one whose outputs are compared, all on the same inputs."""
    builder = Builder(small_card("dot_product"), Precision.FP32, CpuDevice())
    body = 'std::fprintf(stderr, "call of %d\\n", N);'
    seen = attack(builder, tmp_path, body, calls=20, more=["--paper", "--warmups", "3", "--pairs", "1"])
    assert seen.judgement.status is Status.CORRECT, seen.judgement.log
    assert not of(Time, seen.lines)
    checks = 3
    assert len(re.findall("call of 65536\n", seen.ran.stderr)) == checks + 3 + 20 + 1


def test_p_is_weighted_and_no_number_is_near_enough() -> None:
    cases = (PaperCase("N=1", 1.0, 10.0, 5.0, 0.0), PaperCase("N=3", 3.0, 30.0, 5.0, ALLOWED))
    paper = PaperScore(Status.CORRECT, "", cases)
    assert paper.score == pytest.approx((1 * 2 + 3 * 6) / 4)
    assert paper.within
    lost = PaperScore(Status.CORRECT, "", (*cases, PaperCase("N=4", 1.0, 1.0, 1.0, math.inf)))
    assert not lost.within
    for unknown in (PaperScore(Status.FAULT, "it crashed", cases), PaperScore(Status.CORRECT, "all were skipped")):
        assert unknown.score is None
        assert not unknown.within


def test_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    case = PaperCase("N=1", 1.0, 10.0, 5.0, 2e-4)
    show_paper(console(), PaperScore(Status.CORRECT, "1 case right", (case,)))
    show_paper(console(), PaperScore(Status.FAULT, "an illegal memory access"))
    said = capsys.readouterr().out
    assert "P = 2.00, outputs are further than 1e-5 from the baseline's at 1 of 1 sizes" in said
    assert "By the listed sizes alone: correct: 1 case right" in said
    assert "By the listed sizes alone: fault: an illegal memory access" in said
    assert said.count("By the paper's protocol") == 1


def test_it_is_refused_where_nothing_is_timed(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(bench("dot_product").baseline.code)
    words = ["evaluate", "dot_product", str(kernel), "--device", "cpu", "--protocol", "paper", "--check-only"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "nothing is timed" in done.output


@pytest.mark.gpu
def test_the_command_on_a_gpu(tmp_path: Path) -> None:
    """Both protocols in one answer; against itself a kernel is as fast by both."""
    kernel = tmp_path / "kernel.cu"
    kernel.write_text(bench("spmv_csr").baseline.code)
    done = CliRunner().invoke(main, ["evaluate", "spmv_csr", str(kernel), "--protocol", "paper", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["by_listed_sizes"]["correct"] is True
    assert told["by_paper"]["within"] is True
    assert 0.8 < told["by_paper"]["score"] < 1.25
    assert 0.8 < told["score"] < 1.25
