"""`harness`: one file that a person fills in, builds and judges with."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from command_line import run

from cudamaster.core import resources
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards


def test_the_harness_is_one_file_that_builds_alone(tmp_path: Path) -> None:
    """`harness` writes what a person can fill in; an unreachable region file is a usage error."""
    target = tmp_path / "h.cu"
    assert run("harness", "sorting", "--precision", "bf16", "-o", str(target)).returncode == 0
    text = target.read_text()
    assert text.count(">>> CANDIDATE REGION") == 1
    assert "nvcc" in text[:900]
    assert "sorting_bf16_optimized" in text
    assert run("harness", "sorting", "--region", "nowhere.cu").returncode == 2


@pytest.mark.slow
def test_a_harness_that_was_filled_in_is_a_kernel(tmp_path: Path) -> None:
    """Its region is judged, and line numbers are the file's; for another precision the error says what to add."""
    target = tmp_path / "h.cu"
    assert run("harness", "vector_add", "-o", str(target)).returncode == 0
    words = ("evaluate", "vector_add", str(target), "--device", "cpu", "--check-only")
    assert run(*words).returncode == 0
    lines = target.read_text().split("\n")
    at = next(number for number, line in enumerate(lines, 1) if "void vector_add_kernel_optimized" in line)
    target.write_text("\n".join([*lines[:at], "    nonsense;", *lines[at:]]))
    wrong = run(*words)
    assert wrong.returncode == 1
    assert f":{at + 1}:5: error" in wrong.stdout
    other = run(*words, "--precision", "bf16")
    assert other.returncode == 2
    assert other.stderr.endswith("it has vector_add_optimized. Add --precision fp32.\n")


def test_the_line_in_a_harness_finds_its_files(tmp_path: Path) -> None:
    """Away from the checkout and under a name of one's own too; a folder may have a space in its name."""
    (tmp_path / "my kernels").mkdir()
    done = run("harness", "relu", "-o", "my kernels/h.cu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "my kernels" / "h.cu").read_text()
    words = shlex.split(next(line for line in text.splitlines() if " nvcc " in line))
    sources = [word for word in words if word.endswith(".cu")]
    assert sources[0] == "my kernels/h.cu"
    assert [(tmp_path / word).is_file() for word in sources] == [True] * 3
    assert all((tmp_path / word[2:]).is_dir() for word in words if word.startswith("-I"))
    assert words[-4:] == ["-o", "my kernels/h", "&&", "./my kernels/h"]
    in_the_checkout = run("harness", "relu", cwd=resources.root()).stdout
    assert "-Ibench/include -Ibench relu_harness.cu bench/harness/judge.cu" in in_the_checkout


@pytest.mark.slow
def test_the_harness_of_one_file_judges_by_itself(tmp_path: Path) -> None:
    """Built in one piece, it starts itself as the workers of baseline and candidate."""
    device, target = CpuDevice(), tmp_path / "h.cu"
    assert run("harness", "spmv_csr", "-o", str(target)).returncode == 0
    sources = {"h": target, **{name: resources.bench() / "harness" / f"{name}.cu" for name in ("judge", "worker")}}
    objects = []
    for name, source in sources.items():
        compiled = device.compile(source.read_text(), ["-O1", "-std=c++17"], name, tmp_path)
        assert compiled.object is not None, compiled.log
        objects.append(compiled.object)
    linked = device.link(objects, tmp_path / "harness")
    assert linked.object is not None, linked.log
    done = subprocess.run([linked.object, "--cases", "verify"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert lines[-1]["event"] == "end"
    cases = sum(not case.sweep for case in cards.load("spmv_csr").cases)
    assert sum(line["event"] == "check" and line["ok"] for line in lines) == 3 * cases > 0
    for senseless in ("--calls abc", "--calls -1", "--calls 1e99", "--calls 99999999999999999999", "--seed 1x",
                      "--call-limit nan", "--cases some", "--pairs 0", "--calls"):  # fmt: skip
        done = subprocess.run([linked.object, *senseless.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 64, senseless
        assert "cannot read --" in done.stderr


def test_the_harness_does_not_replace_the_kernel(tmp_path: Path) -> None:
    """A kernel given as the region is not overwritten by its harness."""
    kernel = tmp_path / "mine.cu"
    kernel.write_text("// mine\n")
    done = run("harness", "sorting", "--region", str(kernel), "-o", str(kernel))
    assert done.returncode == 2
    assert kernel.read_text() == "// mine\n"
