"""CpuDevice: what a compile, a link and a run report, and what a candidate's object may call."""

import re
import subprocess

import pytest

from cudamaster.core.errors import DeviceError
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cpu.symbols import allowed
from cudamaster.devices.cpu.unsupported import is_foreign_header, unsupported_in

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


def test_errors_name_the_given_lines(tmp_path):
    """A compile error is no exception, and points into the text that was handed over."""
    compiled = CpuDevice().compile(KERNEL + "void f(float* x) {\n  k<<<1, 1>>>(y);\n}\n", [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is None
    assert "candidate.cu:3:" in compiled.log


@pytest.mark.parametrize(
    "body",
    [
        'asm volatile("tcgen05.wait::ld.sync.aligned;");',
        "cudaMemPool_t pool;",
        "float x = __vadd4(1, 2);",
        "cooperative_groups::wait(0);",
    ],
)
def test_unsupported_is_no_compile_error(tmp_path, body):
    """What CUDA has and this device lacks says nothing about the candidate."""
    source = f"#include <cooperative_groups.h>\nvoid f() {{ {body} }}\n"
    compiled = CpuDevice().compile(source, [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is not None
    assert "line 2" in compiled.unsupported


@pytest.mark.parametrize("body", ["int x = height;", "cudaMallocc(0, 1);", "cudaMemPool_t pool; int x = undeclared;"])
def test_ordinary_mistakes_stay_compile_errors(tmp_path, body):
    """A name that CUDA has not either is the candidate's mistake, also beside one that CUDA has."""
    compiled = CpuDevice().compile(f"void f() {{ {body} }}\n", [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is None


def test_too_much_static_shared_memory_is_a_compile_error(tmp_path):
    """nvcc refuses more than 48 KB of static shared memory, and so does this device."""
    source = (
        "template <int N> __global__ void k(float* x) {{ __shared__ float s[N]; s[0] = x[0]; x[1] = s[x == 0]; }}\n"
    )
    source = source.replace("{{", "{").replace("}}", "}") + "void f() { k<COUNT><<<1, 1>>>(nullptr); }\n"
    device = CpuDevice()
    assert device.compile(source, ["-DCOUNT=12288"], "fits", tmp_path).object is not None
    refused = device.compile(source, ["-DCOUNT=12289"], "refused", tmp_path)
    assert refused.object is None
    assert "too much shared data" in refused.log


@pytest.mark.slow
def test_candidate_calls_only_what_is_allowed(build):
    """The test kernels use about everything, and their object carries no symbol beyond the list."""
    rules = [re.compile(rule) for rule in allowed(debug=False)]
    program = build("features")
    listed = subprocess.run(
        ["nm", "-u", str(program.folder / "features.o")], capture_output=True, text=True, check=True
    ).stdout.split()
    names = [name for name in listed if name not in {"U", "w"}]
    assert "cudamaster_cpu_launch" in names
    assert [name for name in names if not any(rule.fullmatch(name) for rule in rules)] == []


@pytest.mark.parametrize(
    "name",
    ["getenv", "open", "fopen", "dlopen", "fork", "system", "exit", "_exit", "socket", "mmap", "syscall", "execve"],
)
def test_dangerous_symbols_are_not_allowed(name):
    """Nothing that reaches outside the process is on the list."""
    assert not any(re.fullmatch(rule, name) for rule in allowed(debug=True))


def test_only_standard_macros_and_level_count():
    """Of nvcc's flags -D, -std and -O count; an -O for ptxas does not."""
    flags = ["-O2", "-arch=sm_90a", "-D", "N=4", "-DM", "-Xptxas", "-O1", "-use_fast_math", "--std=c++20", "-lineinfo"]
    assert toolchain.candidate_flags(flags) == ["-std=c++20", "-O2", "-DN=4", "-DM"]
    assert toolchain.candidate_flags(["-std=c++14"]) == ["-std=c++17", "-O3"]


def test_missing_compiler_says_what_to_do(monkeypatch, tmp_path):
    """No compiler is the user's fault to mend, with the fix in the message."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match="Install g\\+\\+"):
        CpuDevice().compile(KERNEL, [], "candidate", tmp_path)


def test_crash_of_the_host_is_a_signal(tmp_path):
    """A fault outside any kernel is not dressed up as one."""
    device = CpuDevice()
    source = "int main() { cudaFree(nullptr); *reinterpret_cast<volatile int*>(8) = 1; }\n"
    compiled = device.compile(source, [], "crash", tmp_path)
    assert compiled.object is not None
    linked = device.link([compiled.object], tmp_path / "crash")
    ran = device.execute([str(linked.object)], 20)
    assert ran.exit_code is None
    assert ran.signal == 11


def test_hardware_is_marked_as_emulated():
    """Nobody can take these figures for a GPU's."""
    hardware = CpuDevice().hardware()
    assert hardware.emulated
    assert "emulated" in hardware.name


def test_header_lists():
    """Headers of CUDA that are not provided are foreign; the standard library's and the user's are not."""
    assert is_foreign_header("cuda/semaphore")
    assert is_foreign_header("cublas_v2.h")
    assert not is_foreign_header("cuda_bf16.h")
    assert not is_foreign_header("cooperative_groups/reduce.h")
    assert not is_foreign_header("vector")
    assert not is_foreign_header("my_kernels.h")
    assert unsupported_in("") is None
