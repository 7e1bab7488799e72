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
