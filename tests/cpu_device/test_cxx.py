"""C++ forms of barriers, pipelines, copies, clusters, atomics: known answers, and kernels that wait too little."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.devices.cpu.device import CpuDevice

KERNELS = Path(__file__).parent / "kernels"
CHECKS = ["barrier", "bytes", "ptx", "pipeline", "roles", "thread", "group", "cluster", "atomics"]


@pytest.fixture(scope="module")
def checked(build_checked):
    """The program under the checker."""
    return build_checked("cxx")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_known_answers(build, check, reversed_threads):
    """cuda::barrier, cuda::pipeline of all kinds, cuda::ptx, cooperative groups and cuda::atomic_ref."""
    ran = build("cxx").run(check, reversed_threads=reversed_threads)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.parametrize("check", CHECKS)
def test_honest_kernels_raise_nothing(checked, check):
    """The checker has nothing to say of them."""
    assert checked.found(check) == (set(), "")


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_known_answers_under_the_sanitizer(build, check):
    """Neither has the sanitizer."""
    ran = build("cxx", debug=True).run(check)
    assert (ran.exit_code, "AddressSanitizer" in ran.stderr) == (0, False), ran.stderr


@pytest.mark.parametrize(
    "name", ["barrier-no-wait", "bytes-no-expect", "pipeline-no-wait", "thread-no-wait", "group-no-wait"]
)
def test_too_little_waiting_is_found_and_seen(build, checked, name):
    """The data are late: the kernel is wrong, or its block ends before they come; and the checker names the access."""
    assert build("cxx").run(name).exit_code == (9 if name == "bytes-no-expect" else 3)
    kinds, said = checked.found(name)
    assert "early" in kinds, said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pipeline-no-release", "64 arrivals and 0 bytes are missing"),
        ("cluster-no-sync", "an mbarrier that was not initialised"),
    ],
)
def test_a_kernel_that_cannot_go_on_says_why(build, name, words):
    """A stage that nobody releases, and a block that is not awaited before its barrier is used."""
    ran = build("cxx").run(name, limit_s=20)
    assert ran.exit_code == 9
    assert words in ran.stderr


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda/barrier>\n__device__ cuda::barrier<cuda::thread_scope_device> b;\n",
        "#include <cuda/atomic>\nstruct S { int a[3]; } s;\n__device__ void f() { cuda::atomic_ref<S>(s).load(); }\n",
    ],
)
def test_what_is_not_there_is_unsupported(tmp_path, text):
    """Scopes and types beyond what there is are named."""
    compiled = CpuDevice().compile(text, [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is not None, compiled.log


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_cuda(tmp_path):
    """nvcc and its libcu++ take the same program."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(KERNELS / "cxx.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
