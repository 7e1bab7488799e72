"""`evaluate`: a kernel out of a file or a pipe, right, wrong or refused."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command_line import KERNEL, run

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision
from cudamaster.library import kernel_file
from cudamaster.library.kernel_file import read_kernel
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region


def test_a_kernel_out_of_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input, a pipe with a writer, and one without, which must not block forever."""
    command = [sys.executable, "-m", "cudamaster", "harness", "relu", "--region"]
    text = baseline_region(cards.load("relu"), Precision.FP32)
    card = cards.load("relu")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=(text,))
    writing.start()
    assert read_kernel(pipe, card, "fp32") == text
    writing.join()
    monkeypatch.setattr(kernel_file, "_PIPE_LIMIT_S", 0.1)
    with pytest.raises(UsageError, match="nobody wrote to this pipe"):
        read_kernel(pipe, card, "fp32")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read_kernel(Path("-"), card, "fp32")
    told = subprocess.run([*command, "-"], input=text, capture_output=True, text=True, check=False)
    assert "relu_optimized" in told.stdout, told.stderr


ZEROS = (
    'extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) '
    "{ cudaMemset(out, 0, 4); }\n"
)


@pytest.mark.slow
def test_evaluate_a_wrong_kernel(tmp_path: Path) -> None:
    """Exit 1, the status, and which element is wrong."""
    kernel = tmp_path / "zeros.cu"
    kernel.write_text(ZEROS)
    done = run("evaluate", "dot_product", str(kernel), "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "wrong" in done.stdout
    assert "the only element; zero" in done.stdout
    assert "expected" in done.stdout
    assert "allowed" in done.stdout


@pytest.mark.slow
def test_a_wrong_kernel_is_wrong_for_programs_too(tmp_path: Path) -> None:
    kernel = tmp_path / "zeros.cu"
    kernel.write_text(ZEROS)
    as_json = run("evaluate", "dot_product", str(kernel), "--device", "cpu", "--json")
    assert as_json.returncode == 1, as_json.stderr
    assert json.loads(as_json.stdout)["status"] == "wrong"


@pytest.mark.slow
def test_a_right_kernel_timed_once_on_a_poor_terminal() -> None:
    """One call has no spread, and a terminal without µ still gets its table."""
    done = run("evaluate", "relu", str(KERNEL), "--device", "cpu", "--calls", "1",
               LC_ALL="C", PYTHONIOENCODING="ascii")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "?s:" in done.stdout
    assert "P = " in done.stdout
    assert "results are checked" in done.stdout


def test_a_refused_kernel_is_told_once(tmp_path: Path) -> None:
    """The reason is on one line, and nothing is said to be proven."""
    kernel = tmp_path / "empty.cu"
    kernel.write_text("")
    done = run("evaluate", "dot_product", str(kernel), "--device", "cpu")
    assert done.returncode == 1
    assert done.stdout.count("the region is empty") == 1
    assert "proven" not in done.stdout


@pytest.mark.slow
def test_sizes_of_ones_own_are_timed_in_place_of_the_tasks(tmp_path: Path) -> None:
    """All that the card checks is checked, too; sizes that are no case of it are named."""
    kernel = tmp_path / "baseline.cu"
    kernel.write_text(baseline_region(cards.load("spmv_csr"), Precision.FP32))
    words = ("evaluate", "spmv_csr", str(kernel), "--device", "cpu")
    done = run(*words, "--case", "rows=300,heavy_rows=3", "--case", "rows=2**6", "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert [case["label"] for case in verdict["cases"] if case["sweep"]] == ["rows=300,heavy_rows=3", "rows=64"]
    assert verdict["timed_at"] == ["rows=300,heavy_rows=3", "rows=2**6"]
    of_card = [case.label for case in cards.load("spmv_csr").cases if not case.sweep]
    assert [case["label"] for case in verdict["cases"]][: len(of_card)] == of_card
    for case, named in {
        "rows=300,heavy=3": "there is no size heavy. Sizes of spmv_csr are rows, nnz, empty_rows",
        "nnz=3": "rows missing, which has no default",
        "rows=300,heavy_rows=-1": "heavy_rows is -1, and has to be a whole number from 0 on",
        "rows=300,empty_rows=0.5": "empty_rows is 0.5, and has to be a whole number from 0 on",
        "cols=9,rows=9": "cols cannot be chosen: it is always 2048",
        "rows=0": "the weight of case rows=0 is 0",
        "rows": "--case",
    }.items():
        wrong = run(*words, "--case", case)
        assert wrong.returncode == 2
        assert named in wrong.stderr, wrong.stderr
    twice = run(*words, "--case", "rows=300", "--case", "rows=300")
    assert twice.returncode == 2
    assert "--case rows=300 is there twice" in twice.stderr
    none = run(*words, "--case", "rows=300", "--check-only")
    assert none.returncode == 2
    assert "Leave out --check-only or --case." in none.stderr


def test_a_matrix_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    """Fewer entries than rows, where no row may be empty: the card's expressions cannot say that."""
    kernel = tmp_path / "baseline.cu"
    kernel.write_text(baseline_region(cards.load("spmv_csr"), Precision.FP32))
    done = run("evaluate", "spmv_csr", str(kernel), "--device", "cpu", "--case", "rows=300,nnz=3")
    assert done.returncode not in (0, 1, 2)
    assert "a sparse matrix has fewer entries than rows, and none may be empty" in done.stderr, done.stderr
    assert "Leave out --case rows=300,nnz=3: if it works then, these sizes do not go together." in done.stderr


def test_other_sizes_make_another_card() -> None:
    """So nothing takes P over them for the task's."""
    card = cards.load("spmm_csr")
    other = card.timed_at([{"rows": 65536, "K": 4096, "heavy_rows": 3}])
    assert [case.label for case in other.cases if case.sweep] == ["rows=65536,K=4096,heavy_rows=3"]
    assert [case for case in other.cases if not case.sweep] == [case for case in card.cases if not case.sweep]
    assert other.hash != card.hash
    fractions = cards.load("batch_norm").timed_at([{"N": 64, "C": 8, "epsilon": 0.5, "low": -3, "high": 3.5}])
    assert [case.values["low"] for case in fractions.cases if case.sweep] == [-3]
    assert not other.times_as(card.hash)
    assert not other.timed_as
    assert (other.folder, other.path, other.source) == (card.folder, card.path, card.source)
