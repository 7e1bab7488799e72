"""CUDA graphs that a call builds and runs, dependent launches, and what the runtime says of clusters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.devices.cpu.device import CpuDevice

KERNELS = Path(__file__).parent / "kernels"
CHECKS = ["captured", "by-hand", "refused", "gone", "dependent", "occupancy", "at-once"]


@pytest.mark.slow(but=[f"plain-{check}" for check in CHECKS])
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "sanitizer"])
def test_known_answers(build, check, debug):
    """Graphs captured and made by hand, what cannot be captured, destroyed streams, launch attributes, occupancy."""
    ran = build("graphs", debug=debug).run(check)
    assert ran.exit_code == 0, ran.stderr
    assert "AddressSanitizer" not in ran.stderr


def test_what_is_not_there_is_unsupported(tmp_path):
    """Nodes that call the host are named."""
    text = (
        "#include <cuda_runtime.h>\nvoid f(cudaGraph_t g) { cudaGraphAddHostNode(nullptr, g, nullptr, 0, nullptr); }\n"
    )
    compiled = CpuDevice().compile(text, [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is not None, compiled.log
    assert "cudaGraphAddHostNode" in compiled.unsupported


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_cuda(tmp_path):
    """nvcc takes the same program, which its device part alone would not show."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-rdc=true", "-c", "-o", str(tmp_path / "x.o"), str(KERNELS / "graphs.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
