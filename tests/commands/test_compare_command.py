"""`compare`: which of two kernels is faster."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import KERNEL, run

from cudamaster.cli.compare import compare
from cudamaster.core.values import Precision, Status, Verdict
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.workbench.evaluation import Workbench


@pytest.mark.slow
def test_a_kernel_compared_with_itself_is_the_same() -> None:
    """On a device with modelled times, only these exist, and the help says so."""
    done = run("compare", str(KERNEL), str(KERNEL), "--task", "relu", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "Only a kernel compared with its own text is the same" in " ".join(run("compare", "--help").stdout.split())


def variants(folder: Path, **edits: tuple[str, str]) -> dict[str, str]:
    """Files with the baseline of spmv_csr, each with an edit."""
    code = baseline_region(cards.load("spmv_csr"), Precision.FP32)
    files = {}
    for name, (old, new) in edits.items():
        assert old in code
        files[name] = str(folder / f"{name}.cu")
        Path(files[name]).write_text(code.replace(old, new))
    return files


OF_SPMV = ["--task", "spmv_csr", "--device", "cpu"]


@pytest.mark.slow
def test_compare_says_which_is_faster(tmp_path: Path) -> None:
    """Its exit code says it too: a kernel that works three times is slower."""
    launch = "    spmv_csr_kernel_optimized<<<"
    files = variants(tmp_path, fast=("", ""), slow=(launch, f"    for (int k = 0; k < 3; ++k)\n    {launch}"))
    slower = run("compare", files["fast"], files["slow"], *OF_SPMV, "--calls", "10")
    assert slower.returncode == 11, slower.stdout + slower.stderr
    assert "slower" in slower.stdout


@pytest.mark.slow
def test_compare_names_the_one_that_is_wrong(tmp_path: Path) -> None:
    """A wrong kernel is neither faster nor slower."""
    files = variants(tmp_path, fast=("", ""), wrong=("y[row] = sum", "y[row] = 0 * sum"))
    wrong = run("compare", files["fast"], files["wrong"], *OF_SPMV)
    assert wrong.returncode == 1
    assert f"{files['wrong']}: wrong" in wrong.stdout


def test_compare_is_unsure_where_nothing_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are right, and no case has a time: a GPU that is too hot, a kernel that cannot be modelled."""
    untimed = Verdict("c0ffee", "cpu", True, Status.CORRECT, "11 cases right")
    monkeypatch.setattr(Workbench, "compare", lambda *_: (untimed, untimed))
    words = ["compare", str(KERNEL), str(KERNEL), "--task", "relu", "--device", "cpu"]
    for more in ([], ["--json"]):
        done = CliRunner().invoke(compare, [*words[1:], *more])
        assert done.exit_code == 12, done.output
        assert more or "unsure" in done.output
