"""The self-test of the CPU device: a device that does not work ends commands, and no candidate is blamed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import built_already
import pytest

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.devices.cpu import selftest, toolchain
from cudamaster.devices.cpu.device import CpuDevice

# An honest kernel, with a collective of a warp.
KERNEL = """
__global__ void dot_kernel_optimized(float* out, const float* x, const float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32)
        sum += x[i] * y[i];
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0)
        *out = sum;
}
extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {
    dot_kernel_optimized<<<1, 32>>>(out, X, Y, N);
}
"""

# Registers that a call changes are taken for kept: what went wrong with AVX-512, for which the change of stacks had no
# names, on any processor.
_TAKEN_FOR_KEPT = " ".join(f"-fcall-saved-xmm{number}" for number in range(8, 16))


def miscompiler(folder: Path, only: str = "", hurried: str = "no such word") -> str:
    """A compiler that translates wrongly, where its command has the word `only`, or does not optimise: `hurried`.

    It is the self-test's own code that keeps values in those registers, so that executors need not be wrong.
    """
    if "clang" in toolchain.version() or not toolchain.instruction_set().startswith("x86-64"):
        pytest.skip("only g++ for x86-64 can be told to take a changed register for kept")
    path = folder / "miscompiler"
    path.write_text(
        f"#!/bin/sh\n{built_already.taken()}"
        f'case " $* " in *"{hurried}"*) exec {toolchain.compiler()} "$@" -O0 ;; esac\n'
        f'case " $* " in *"{only}"*) exec {toolchain.compiler()} "$@" {_TAKEN_FOR_KEPT} ;; esac\n'
        f'exec {toolchain.compiler()} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cudamaster WORDS` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


class Broken(CpuDevice):
    """A device that must not be asked to run anything."""

    def execute(self, *words: object, **more: object) -> None:  # type: ignore[override]
        """Fails."""
        raise AssertionError("the self-test was run again")


def test_a_pass_is_remembered():
    """The second time nothing is run; doctor tells of it."""
    selftest.require(CpuDevice())
    selftest._passed.clear()
    selftest.require(Broken())
    tested = selftest.remembered()
    assert tested is not None
    assert tested.failure is None
    assert tested.instruction_set == toolchain.instruction_set()
    (finding,) = [found for found in json.loads(command("doctor", "--json").stdout)["findings"]
                  if found["what"] == "CPU device"]  # fmt: skip
    assert finding["found"]
    assert "self-test passed" in finding["detail"]


@pytest.mark.slow
def test_a_broken_device_is_not_the_candidates_fault(tmp_path):
    """An honest kernel gets no verdict where the compiler is wrong: exit 4, compiler, processor and what failed."""
    kernel, cache = tmp_path / "kernel.cu", str(tmp_path / "cache")
    kernel.write_text(KERNEL)
    # Its plain build is the one to be told of: the others need not be good.
    broken = {"CXX": miscompiler(tmp_path, hurried="CUDAMASTER_CPU_OBSERVED"), "CUDAMASTER_CACHE": cache}
    evaluated = command("evaluate", "dot_product", str(kernel), "--device", "cpu", "--check-only", **broken)
    assert evaluated.returncode == 4, evaluated.stdout + evaluated.stderr
    assert "The CPU device does not work on this machine" in evaluated.stderr
    for named in ("shuffles", "in the plain build", broken["CXX"], toolchain.processor()):
        assert named in evaluated.stderr
    assert "dot_product" not in evaluated.stdout.replace(str(kernel), "")
    asked = command("doctor", "--json", **broken)
    assert asked.returncode == 4
    told = json.loads(asked.stdout)
    assert told["devices"]["cpu"] is False
    (detail,) = [found["detail"] for found in told["findings"] if found["what"] == "CPU device"]
    assert "self-test failed: in the plain build" in detail


@pytest.mark.slow
@pytest.mark.parametrize(("build", "word"), [("traced", "trace-pc"), ("fault checker", "CUDAMASTER_CPU_CHECKED")])
def test_each_build_is_tried(tmp_path, monkeypatch, build, word):
    """A compiler that is wrong in only one build is found there."""
    monkeypatch.setenv("CXX", miscompiler(tmp_path, word))
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path / "cache"))
    failure = selftest.failure_of(CpuDevice(), tmp_path, build)
    assert failure is not None
    assert failure.startswith(f"in the {build} build ")


def test_a_hang_a_crash_and_a_missed_race_are_failures(tmp_path):
    """Whatever a program does that is not the known results has a name."""
    assert CpuDevice().compile("int main() { return 0; }\n", [], "nothing", tmp_path).object is not None
    device = CpuDevice()
    for what, code in {
        "barriers ended with signal 11": 'puts("begins barriers"); fflush(stdout); *(volatile int*)8 = 1;',
        "barriers ended with exit code 3": "_Exit(3);",
        "element 1 is 2, not 3": 'puts("failed barriers: element 1 is 2, not 3"); return 1;',
    }.items():
        text = f"#include <cstdio>\n#include <cstdlib>\nint main() {{ {code} return 0; }}\n"
        compiled = device.compile(text, [], "program", tmp_path)
        assert compiled.object is not None, compiled.log
        linked = device.link([compiled.object], tmp_path / "program")
        assert what in str(selftest._wrong_results(device.execute([str(linked.object)], 20)))


def test_another_compiler_or_processor_is_another_test(tmp_path, monkeypatch):
    """What passed with one compiler on one processor says nothing of others."""
    before = selftest._key()
    monkeypatch.setattr(toolchain, "processor_fingerprint", lambda: "another")
    assert selftest._key() != before
    monkeypatch.undo()
    path = tmp_path / "g++"
    path.write_text(f'#!/bin/sh\nexec {toolchain.compiler()} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    assert selftest._key() != before


def test_a_record_that_cannot_be_read_is_none(monkeypatch, tmp_path):
    """A truncated cache, or one of another version, costs a self-test but ends no command."""
    monkeypatch.setattr(resources, "cache", lambda: tmp_path)
    selftest._record().parent.mkdir(parents=True)
    for text in ("", "{}", "[1]", '{"failure": null, "compiler": "g++"}'):
        selftest._record().write_text(text)
        assert selftest.remembered() is None


def test_no_compiler_is_said_as_before(monkeypatch):
    """If nothing can be compiled, the message says that."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match="no-such-compiler"):
        selftest.require(CpuDevice())


@pytest.mark.slow
def test_a_full_disk_is_nobodys_fault(tmp_path):
    """If the compiler runs out of disk space, neither the kernel nor the compiler is called wrong."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("making a mount namespace needs root")
    selftest.require(CpuDevice())
    kernel, small = tmp_path / "kernel.cu", tmp_path / "small"
    kernel.write_text(KERNEL)
    small.mkdir()
    for words in (["evaluate", "dot_product", str(kernel), "--device", "cpu"], ["doctor", "--self-test", "--json"]):
        script = f'mount --make-rprivate / && mount -t tmpfs -o size=16k tmpfs {small} && TMPDIR={small} exec "$@"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-m", "cudamaster", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 4, done.stdout + done.stderr
        assert "No space left on device" in done.stdout + done.stderr
        assert str(small) in done.stdout + done.stderr
    tested = selftest.remembered()
    assert tested is not None
    assert tested.failure is None, "what could not be tried is no failure"


def test_a_source_that_only_says_so_is_to_blame(tmp_path):
    """Words of a full disk in a compiler's log are believed where a disk is full."""
    compiled = CpuDevice().compile("#error No space left on device\n", [], "candidate", tmp_path)
    assert compiled.object is None
    assert "No space left on device" in compiled.log
