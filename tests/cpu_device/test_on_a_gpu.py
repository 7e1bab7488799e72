"""The programs with known answers that hold the CPU device, on an H100 or H200: the answers are the hardware's."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest
from made_once import made_once

from cpu_device import test_clusters, test_cxx, test_graphs, test_ptx
from cudamaster.devices.cuda import find_gpu
from cudamaster.devices.nvcc import find_nvcc

KERNELS = Path(__file__).parent / "kernels"
STREAMS = ["stream", "polling", "turns", "halves", "state", "arrivals-of-copies", "incomplete"]
CHECKS = (
    [("ptx", check) for check in test_ptx.CHECKS]
    + [("ptx_waits", check) for check in ("stream", "own", "halves")]
    + [("ptx_bulk", check) for check in STREAMS]
    + [("ptx_ring", check) for check in ("ring", "shared")]
    + [("clusters", check) for check in test_clusters.CHECKS]
    + [("cxx", check) for check in test_cxx.CHECKS]
    + [("graphs", check) for check in test_graphs.CHECKS]
    + [("cxx_tensor", "")]
)


@pytest.fixture(scope="session")
def build_for_gpu(tmp_path_factory):
    """Builds a file of kernels/ once per session by nvcc."""

    @cache
    def make(name: str) -> Path:
        def build(folder: Path) -> None:
            target = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", f"-I{KERNELS}"]
            command = [str(find_nvcc()), *target, "-o", str(folder / name), str(KERNELS / f"{name}.cu"), "-lcuda"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2000:]

        return made_once(tmp_path_factory, f"{name}-gpu", build) / name

    return make


@pytest.mark.gpu
@pytest.mark.parametrize(("program", "check"), CHECKS)
def test_known_answers_are_the_hardwares(build_for_gpu, program, check):
    """Memory, atomics, collectives, barriers, copies, clusters, C++ forms and graphs."""
    gpu = find_gpu()
    if gpu is None or gpu.compute_capability != "9.0":
        pytest.skip("these programs are written for an H100 or H200")
    ran = subprocess.run(
        [str(build_for_gpu(program)), *([check] if check else [])],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-1500:] + ran.stderr[-1500:]
