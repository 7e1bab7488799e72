"""What `tasks NAME --skeleton` prints is a start: guards and compiler accept it, and the harness finds it wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudamaster.build.source_guard import expand
from cudamaster.cli import main
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.guards.flags import Flags, parse_command
from cudamaster.guards.source import check_source
from cudamaster.tasks import cards, harness
from cudamaster.workbench.evaluation import Workbench


class Plain(CpuDevice):
    """The CPU device without its memory checker."""

    has_debug_build = False


@pytest.mark.slow
@pytest.mark.parametrize("precision", list(BENCHMARK_PRECISIONS))
def test_the_guards_let_the_skeleton_of_every_task_through(precision: Precision) -> None:
    device = Plain()
    flags = parse_command(device.default_command)
    assert isinstance(flags, Flags)
    for name in cards.names():
        card = cards.load(name)
        builder = Workbench(card, precision, device)._builder
        code = harness.skeleton(card, precision)
        expanded = expand(code, flags, device)
        assert isinstance(expanded, str), f"{name}: {expanded}"
        assert check_source(code, builder._signature, expanded) is None, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "precision"),
    [("max_pooling_2d", Precision.FP32), ("conv_1d", Precision.BF16), ("spmv_csr", Precision.BF16)],
)
def test_it_is_built_and_wrong(task: str, precision: Precision, tmp_path: Path) -> None:
    """Also where the number of results follows from more than one of the wrapper's sizes."""
    printed = CliRunner().invoke(main, ["tasks", task, "--skeleton", "--precision", precision.value])
    assert printed.exit_code == 0, printed.output
    bench = Workbench(cards.load(task), precision, Plain())
    verdict = bench.evaluate(Candidate(task, precision, printed.output, bench.baseline.command), check_only=True)
    assert verdict.status is Status.WRONG, verdict.detail
    assert "zero" in verdict.detail


def test_a_card_says_what_a_kernel_has_to_declare() -> None:
    shown = CliRunner().invoke(main, ["tasks", "spmv_csr"]).output
    assert "void spmv_csr_optimized(" in shown
    assert "void spmv_csr_bf16_optimized(" in shown
    assert "cols is always 2048 and is not a parameter" in shown
    assert "e+0" not in shown
    for_programs = CliRunner().invoke(main, ["tasks", "relu", "--skeleton", "--json"])
    assert "relu_optimized" in json.loads(for_programs.stdout)["skeleton"]
    nameless = CliRunner().invoke(main, ["tasks", "--skeleton"])
    assert nameless.exit_code != 0
    assert "is for one task" in nameless.output
