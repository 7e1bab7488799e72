"""Errors where a GPU would fault, each naming kernel, block and thread."""

import subprocess
from pathlib import Path

import pytest

from cudamaster.devices.cpu import toolchain

FAULT = "cuda device fault: kernel"


@pytest.mark.parametrize(
    ("what", "exit_code", "words"),
    [
        ("barrier", 9, ["deadlock", "barrier_kernel, block (0,", "waits in a block barrier", "cudaErrorLaunchFailure"]),
        ("lanes", 9, ["__ballot_sync(mask 0xffffffff)", "lanes 0x00000008", "thread (0,0,0)"]),
        (
            "far-write",
            70,
            [FAULT + " write_kernel, block (0,0,0), thread (0,0,0): illegal memory access", "past the end"],
        ),
        ("near-write", 9, ["write 0 bytes past the end of the allocation of 400 bytes", "cudaErrorIllegalAddress"]),
        ("before-write", 70, [FAULT, "illegal memory access", "before the allocation of 400 bytes"]),
        ("far-dynamic-shared", 70, [FAULT, "shared memory"]),
        ("dynamic-shared", 9, ["past the end of dynamic shared memory"]),
        ("stack", 70, [FAULT + " stack_kernel, block (0,0,0), thread (2,0,0): stack overflow"]),
        ("assert", 70, [FAULT + " assert_kernel, block (0,0,0), thread (5,0,0)", "n == 0"]),
        ("divide", 70, [FAULT, "division by zero"]),
        ("grid", 70, [FAULT]),
    ],
)
def test_fault_is_reported(build, what, exit_code, words):
    """The report names the place; the process ends with the fault's code, or the host sees a CUDA error that stays."""
    ran = build("faults").run(what)
    assert ran.exit_code == exit_code, ran.stderr
    for word in words:
        assert word in ran.stderr


def test_allocations_lie_far_apart(build):
    """An access some megabytes beyond one is in no other: it faults, wherever the system puts them."""
    assert build("faults").run("far-apart").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("read", ["AddressSanitizer: heap-buffer-overflow", "READ of size 4", "read_kernel, block (0,0,0)"]),
        ("near-write", ["AddressSanitizer: heap-buffer-overflow", "WRITE of size 4"]),
        ("dynamic-shared", ["AddressSanitizer", "WRITE of size 4"]),
        ("static-shared", ["AddressSanitizer: heap-buffer-overflow", "READ of size 4"]),
        ("stack", ["stack overflow"]),
        ("host-stack", [FAULT + " read_kernel", "AddressSanitizer: use-after-poison", "READ of size 4"]),
        ("host-heap", [FAULT + " read_kernel", "AddressSanitizer: use-after-poison", "READ of size 4"]),
        (
            "vector-of-2",
            [FAULT, "vector_kernel", "misaligned address", "struct int2'", "8 bytes of alignment", "faults.cu:"],
        ),
        ("vector-of-4", ["struct int4'", "16 bytes of alignment"]),
    ],
)
def test_sanitizer_sees_one_element_too_far(build, what, words):
    """The debug build stops at the first byte outside, in device memory and in shared memory."""
    ran = build("faults", debug=True).run(what)
    assert ran.exit_code == 70, ran.stderr
    for word in words:
        assert word in ran.stderr


@pytest.mark.slow(but=["host-read-plain", "host-write-plain", "host-sort-plain"])
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "sanitizer"])
@pytest.mark.parametrize(
    "what",
    [
        "host-read",
        "host-write",
        "host-read-after-launch",
        "host-write-after-memset",
        "host-read-after-touch",
        "host-sort",
    ],
)
def test_host_code_may_not_touch_device_memory(build, what, debug):
    """A GPU's memory is none of the host's, also where a kernel or the runtime has just used it."""
    ran = build("faults", debug=debug).run(what)
    assert ran.exit_code == 70, ran.stderr
    assert "cuda device fault: host code accessed device memory" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", ["aligned-vectors", "host-untouched"])
def test_sanitizer_leaves_honest_kernels_alone(build, what):
    """Aligned vectors are no fault, nor are host addresses that are not dereferenced."""
    ran = build("faults", debug=True).run(what)
    assert ran.exit_code == 0, ran.stderr


def test_reversed_order_reveals_a_missing_barrier(build):
    """A race that ascending order hides gives wrong results in descending order."""
    assert build("faults").run("race").exit_code == 0
    assert build("faults").run("race", reversed_threads=True).exit_code == 3


def test_endless_kernel_is_killed_at_the_limit(build):
    """A kernel that never ends is stopped with its process group."""
    ran = build("faults").run("spin", limit_s=1)
    assert ran.expired
    assert ran.exit_code is None
    assert ran.seconds < 10


@pytest.mark.slow
def test_thread_that_keeps_others_from_starting_is_named(build):
    """A loop that waits for a later thread's plain store does not end here; the log of the timeout says so."""
    ran = build("faults").run("wait", limit_s=5)
    assert ran.expired
    assert "kernel wait_kernel, block (0,0,0), thread (0,0,0): has run for 3 s" in ran.stderr


@pytest.mark.slow
def test_a_thread_that_has_not_begun_is_not_looked_at(tmp_path: Path) -> None:
    """A launch of many blocks at once on a busy machine: after a second the host looks, and some have no thread yet."""
    program = tmp_path / "look.cpp"
    program.write_text(
        '#include "executor.h"\n'
        "int main() {\n"
        "    executor::Worker worker;\n"
        "    executor::Watch().look(worker, CudamasterCpuLaunch{});\n"
        "}\n"
    )
    words = [toolchain.compiler(), "-std=c++17", f"-I{toolchain.INCLUDE}", f"-I{toolchain.RUNTIME}"]
    subprocess.run([*words, program, toolchain.RUNTIME / "watch.cpp", "-o", tmp_path / "look"], check=True)
    subprocess.run([tmp_path / "look"], check=True)
