"""The object guard: what a compiler made is judged by its symbols, constructors and variables, whatever the source
guard thought of it. Every cheat here compiles."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from cudamaster.core.errors import DeviceError
from cudamaster.guards.object import check_object, localise
from cudamaster.guards.preprocess import NVCC_DEFINES, preprocess
from cudamaster.guards.source import device_names
from cudamaster.guards.symbols import CUDA_ALLOWED_SYMBOLS, CUDA_CONSTRUCTORS, CUDA_STATE, HOST_SYMBOLS, INSTEAD

from .support import CUDA_HEADERS, HONEST, KERNEL, NVCC, needs_nvcc

WRAPPER = 'extern "C" void task_optimized(const float* x, float* y, int n) '

HONEST_HOST = {
    "plain": WRAPPER + "{ y[0] = x[0] * n; }",
    "math and memory": "#include <cmath>\n#include <cstring>\n"
    + WRAPPER
    + "{ y[0] = std::exp(x[0]); std::memcpy(y, x, n); }",
    "containers": "#include <vector>\n#include <algorithm>\n"
    + WRAPPER
    + "{ std::vector<float> v(x, x + n); std::sort(v.begin(), v.end()); y[0] = v.at(0); }",
    "constants": 'static const int t[] = {1, 2, 3}; const char* const s[] = {"a", "b"};'
    + WRAPPER
    + "{ y[0] = t[n % 3] + s[n & 1][0]; }",
}

# name: (code, part of the reason); compiled by g++
CHEATS = {
    "getenv": ("#include <cstdlib>\n" + WRAPPER + '{ if (getenv("A")) y[0] = 1; }', "getenv"),
    "open": ('extern "C" int open(const char*, int, ...);' + WRAPPER + '{ y[0] = open("a", 0); }', "open"),
    "dlopen": ('extern "C" void* dlopen(const char*, int);' + WRAPPER + '{ if (dlopen("a", 1)) y[0] = 1; }', "dlopen"),
    "fork": ("#include <unistd.h>\n" + WRAPPER + "{ y[0] = fork(); }", "fork"),
    "exit": ("#include <cstdlib>\n" + WRAPPER + "{ exit(n); }", "exit"),
    "printf": ("#include <cstdio>\n" + WRAPPER + '{ printf("%d", n); }', "printf"),
    "puts": ("#include <cstdio>\n" + WRAPPER + '{ puts("{}"); }', "puts"),
    "write": ("#include <unistd.h>\n" + WRAPPER + '{ y[0] = write(1, "a", 1); }', "write"),
    "system": ("#include <cstdlib>\n" + WRAPPER + '{ y[0] = system("a"); }', "system"),
    "time": ("#include <ctime>\n" + WRAPPER + "{ y[0] = time(nullptr); }", "time"),
    "clock": ("#include <ctime>\n" + WRAPPER + "{ y[0] = clock(); }", "clock"),
    "thread": ("#include <thread>\n" + WRAPPER + "{ std::thread([=] { y[0] = 1; }).detach(); }", "calls"),
    "cublas": (
        'extern "C" int cublasCreate_v2(void*);' + WRAPPER + "{ y[0] = cublasCreate_v2(y); }",
        "cublasCreate_v2",
    ),
    "baseline": ('extern "C" void task(const float*, float*, int);' + WRAPPER + "{ task(x, y, n); }", "task"),
    "weak reference": ('extern "C" __attribute__((weak)) void task(int);' + WRAPPER + "{ if (task) task(n); }", "task"),
    "assembly name": ('int quiet(int) __asm__("raise");' + WRAPPER + "{ y[0] = quiet(n); }", "raise"),
    "global": ("int calls;" + WRAPPER + "{ y[0] = calls++; }", "calls"),
    "initialised global": ("int calls = 3;" + WRAPPER + "{ y[0] = calls++; }", "calls"),
    "static local": (WRAPPER + "{ static int calls; y[0] = calls++; }", "calls"),
    "static const set once": (WRAPPER + "{ static const int first = n; y[0] = first; }", "first"),
    "thread_local": (WRAPPER + "{ thread_local int calls; y[0] = calls++; }", "calls"),
    "constructor": ('__attribute__((constructor)) void early() { asm volatile(""); }' + WRAPPER + "{}", "early"),
    "constructor with a priority": (
        '__attribute__((constructor(200))) void early() { asm volatile(""); }' + WRAPPER + "{}",
        "early",
    ),
    "destructor": ('__attribute__((destructor)) void late() { asm volatile(""); }' + WRAPPER + "{}", "late"),
    "dynamic initialiser": (
        "int f(); int f() { return 3; } extern const int v = f() + (long)f;" + WRAPPER + "{}",
        "runs outside",
    ),
    "assembly section": ('asm(".section .preinit_array\\n.quad task_optimized\\n.text");' + WRAPPER + "{}", "preinit"),
    "init section": ('asm(".section .init,\\"ax\\"\\nnop\\n.text");' + WRAPPER + "{}", ".init"),
    "own section": ('__attribute__((section("mine"))) int v;' + WRAPPER + "{ y[0] = v; }", "section mine"),
    "executable data": ('asm(".section .text.x,\\"awx\\"\\nnop\\n.text");' + WRAPPER + "{}", "writable and executable"),
    "executable stack": ('asm(".section .note.GNU-stack,\\"x\\"\\n.text");' + WRAPPER + "{}", "executable stack"),
    "ifunc": (
        'extern "C" { void* pick() { return nullptr; } void chosen() __attribute__((ifunc("pick"))); }'
        + WRAPPER
        + "{}",
        "ifunc",
    ),
    "common": ('asm(".comm shared,4,4");' + WRAPPER + "{}", "common"),
    "absolute": ('asm(".globl fixed\\n.set fixed, 4096");' + WRAPPER + "{}", "absolute"),
    "operator new": ("#include <cstddef>\nvoid* operator new(size_t) { return 0; }" + WRAPPER + "{}", "_Znwm"),
    "main": ("int main() { return 0; }" + WRAPPER + "{}", "main"),
    "harness name": ('extern "C" void mskb_report(int) {}' + WRAPPER + "{}", "mskb_report"),
    "kernel of the harness": (
        'asm(".section .rodata\\n.string \\"_ZN4mskb11mask_kernelEv\\"\\n.text");' + WRAPPER + "{}",
        "harness's kernels",
    ),
    "no wrapper": ("void other() {}", "is not defined"),
    "static wrapper": ('extern "C" { __attribute__((used)) static void task_optimized() {} }', "no plain global"),
    "weak wrapper": ('extern "C" __attribute__((weak)) void task_optimized() {}', "no plain global"),
    "hidden wrapper": ('extern "C" __attribute__((visibility("hidden"))) void task_optimized() {}', "no plain global"),
    "wrapper as data": (
        'extern "C" { extern const int task_optimized; const int task_optimized = 3; }',
        "no plain global",
    ),
}

# cheats that only nvcc compiles
NVCC_CHEATS = {
    "late code": (
        "#include <cstdlib>\n"
        + KERNEL
        + "void late() {}"
        + WRAPPER
        + "{ copy_kernel_optimized<<<1, 1>>>(x, y, n); atexit(late); }",
        "atexit",
    ),
    "state beside a kernel": (
        KERNEL + "static int calls;" + WRAPPER + "{ if (calls++) copy_kernel_optimized<<<1, 1>>>(x, y, n); }",
        "calls",
    ),
    "constructor beside nvcc's": (
        KERNEL
        + '__attribute__((constructor)) void early() { asm volatile(""); }'
        + WRAPPER
        + "{ copy_kernel_optimized<<<1, 1>>>(x, y, n); }",
        "early",
    ),
    "managed": ("__managed__ int calls;" + WRAPPER + "{ y[0] = calls++; }", "managed"),
}


def compile_host(folder: Path, code: str, name: str = "candidate") -> Path:
    """An object file by g++."""
    target = folder / f"{name}.o"
    subprocess.run(
        ["g++", "-O2", "-std=c++17", "-x", "c++", "-", "-c", "-o", str(target)], input=code, text=True, check=True
    )
    return target


def compile_cuda(folder: Path, code: str, name: str, *flags: str) -> Path:
    """An object file by nvcc, for one architecture."""
    source, target = folder / f"{name}.cu", folder / f"{name}.o"
    source.write_text(code)
    subprocess.run(
        [NVCC or "nvcc", "-arch=sm_90", *flags, "-c", str(source), "-o", str(target)], check=True, capture_output=True
    )
    return target


@pytest.mark.parametrize("name", HONEST_HOST)
def test_honest_host_code(name: str, tmp_path: Path) -> None:
    """Memory, math, containers and constants are open."""
    assert (
        check_object(compile_host(tmp_path, HONEST_HOST[name]), "task_optimized", HOST_SYMBOLS, state=CUDA_STATE)
        is None
    )


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_is_refused(name: str, tmp_path: Path) -> None:
    """Each cheat meets the check that is there for it."""
    code, reason = CHEATS[name]
    refusal = check_object(compile_host(tmp_path, code), "task_optimized", HOST_SYMBOLS, state=CUDA_STATE)
    assert refusal is not None, "let through"
    assert reason in refusal.reason
    assert refusal.fix


def test_constructors_of_the_device_are_its_own(tmp_path: Path) -> None:
    """A constructor is fine exactly where the caller names it."""
    path = compile_host(tmp_path, CHEATS["constructor"][0])
    assert check_object(path, "task_optimized", HOST_SYMBOLS, constructors=["_Z5earlyv"]) is None
    assert check_object(path, "task_optimized", HOST_SYMBOLS, constructors=["_Z5early"]) is not None


def test_damaged_objects(tmp_path: Path) -> None:
    """Files that are no objects are refusals."""
    path = tmp_path / "candidate.o"
    for content in (b"", b"text", b"\x7fELF" + bytes(80)):
        path.write_bytes(content)
        assert check_object(path, "task_optimized", HOST_SYMBOLS) is not None
    whole = compile_host(tmp_path, HONEST_HOST["plain"]).read_bytes()
    for length in range(16, len(whole), 97):
        path.write_bytes(whole[:length])
        check_object(path, "task_optimized", HOST_SYMBOLS)
    assert check_object(tmp_path / "absent.o", "task_optimized", HOST_SYMBOLS) is not None


@pytest.mark.parametrize(
    "name",
    [
        "getenv",
        "open",
        "fopen",
        "dlopen",
        "fork",
        "exit_group",
        "printf",
        "puts",
        "write",
        "cublasSgemm_v2",
        "cudnnCreate",
        "pthread_create",
        "system",
        "time",
        "clock",
        "clock_gettime",
        "rand",
        "cudaLaunchHostFunc",
        "cudaStreamAddCallback",
        "cudaDeviceReset",
        "cudaSetDevice",
        "cudaDeviceSetLimit",
        "cudaIpcOpenMemHandle",
        "cudaGetDriverEntryPoint",
        "cudaProfilerStart",
        "cudaGraphAddHostNode",
        "cuInit",
        "cuLaunchKernel",
        "cudaMallocAsync_ptsz",
        "__cudaRegisterManagedVar",
        "__cxa_atexit",
    ],
)
def test_closed_symbols(name: str) -> None:
    """These cannot pass, whatever the compiler."""
    assert not any(re.fullmatch(pattern, name) for pattern in CUDA_ALLOWED_SYMBOLS)


@pytest.mark.parametrize(
    "name",
    [
        "cudaMalloc",
        "cudaFreeAsync",
        "cuTensorMapEncodeTiled",
        "memcpy",
        "memset",
        "expf",
        "sincosf",
        "fmaf",
        "_Znwm",
        "_ZdlPvm",
        "_ZdlPv",
        "__cudaRegisterFatBinary",
        "__cxa_throw",
        "_ZSt20__throw_length_errorPKc",
        "__stack_chk_fail",
    ],
)
def test_open_symbols(name: str) -> None:
    """These are needed by honest candidates."""
    assert any(re.fullmatch(pattern, name) for pattern in CUDA_ALLOWED_SYMBOLS)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_regions(path: Path, tmp_path: Path) -> None:
    """Odd honest regions compile, and their objects pass without optimisation, where nothing is folded away."""
    code = path.read_text()
    made = compile_cuda(tmp_path, code, path.stem, "-O0", "--extended-lambda")
    expanded = preprocess(code, "g++", CUDA_HEADERS, NVCC_DEFINES, prelude=["cuda_runtime.h"])
    assert isinstance(expanded, str)
    names = device_names(code, expanded)
    rules = {"constructors": CUDA_CONSTRUCTORS, "state": CUDA_STATE}
    assert check_object(made, "task_optimized", CUDA_ALLOWED_SYMBOLS, **rules, device=names) is None
    localise(made, "task_optimized", tmp_path / "local.o")
    assert visible(tmp_path / "local.o") == {"task_optimized"}
    if names:
        shadows = check_object(made, "task_optimized", CUDA_ALLOWED_SYMBOLS, **rules)
        assert shadows is None or "keeps" in shadows.reason


@pytest.mark.slow
@needs_nvcc
@pytest.mark.nvcc
def test_nvcc_cheats(tmp_path: Path) -> None:
    """nvcc's own constructor, atexit and variables are distinguished from the candidate's."""
    for name, (code, reason) in NVCC_CHEATS.items():
        made = compile_cuda(tmp_path, code, "candidate", "-O3")
        refusal = check_object(
            made, "task_optimized", CUDA_ALLOWED_SYMBOLS, constructors=CUDA_CONSTRUCTORS, state=CUDA_STATE
        )
        assert refusal is not None, f"{name} is let through"
        assert reason in refusal.reason, name


def visible(path: Path) -> set[str]:
    """Names that an object shows to others."""
    said = subprocess.run(["nm", "--defined-only", "-g", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in said.splitlines()}


# Two translation units that agree in names and differ in what the names mean.
CLASHING = """
inline int helper(int n) { return n + OFFSET; }
template <int N> int scaled(int n) { return n * N + OFFSET; }
struct Same { int v; Same(int n) : v(n + OFFSET) {} virtual ~Same() {} virtual int get() { return v; } };
inline int& cell() { static int value = OFFSET; return value; }
int visible_function(int n) { return n + OFFSET; }
inline float total(int n) {
    Same* same = new Same(n);
    float sum = helper(n) + scaled<2>(n) + same->get() + cell() + visible_function(n);
    delete same;
    return sum;
}
"""
CLASHING_CANDIDATE = "#define OFFSET 100\n" + CLASHING + WRAPPER + "{ y[0] = total(n); LAUNCH }"
CLASHING_HARNESS = (
    "#define OFFSET 0\n"
    + CLASHING
    + WRAPPER
    + """;
int main() {
    float x[1] = {0}, y[1] = {0};
    if (total(1) != 5 + x[0]) return 1;
    task_optimized(x, y, 1);
    if (y[0] != 1 + 100 + 2 + 100 + 1 + 100 + 100 + 1 + 100) return 2;
    if (total(1) != 5) return 3;
    LAUNCH
    return 0;
}
"""
)
KERNELS = """
template <int N> __global__ void same_kernel_optimized(int* p) { *p = N + OFFSET; }
__global__ void plain_kernel_optimized(int* p) { *p = OFFSET; }
__device__ int buffer;
"""
LAUNCHES = """
    int* p;
    cudaGetSymbolAddress((void**)&p, buffer);
    same_kernel_optimized<3><<<1, 1>>>(p);
    plain_kernel_optimized<<<1, 1>>>(p);
"""


def clashing(text: str, *, kernels: bool) -> str:
    """The clashing text with or without kernels."""
    text = text.replace("LAUNCH", LAUNCHES if kernels else "")
    return text.replace("inline int helper", KERNELS + "inline int helper") if kernels else text


@pytest.mark.parametrize("order", [1, -1])
def test_localised_names_do_not_meet(order: int, tmp_path: Path) -> None:
    """Inline functions, templates, virtual tables and statics of the candidate stay its own, in either link order."""
    harness = compile_host(tmp_path, clashing(CLASHING_HARNESS, kernels=False), "harness")
    candidate = compile_host(tmp_path, clashing(CLASHING_CANDIDATE, kernels=False))
    local = tmp_path / "local.o"
    localise(candidate, "task_optimized", local)
    assert visible(local) == {"task_optimized"}
    program = tmp_path / "program"
    subprocess.run(["g++", *map(str, [harness, local][::order]), "-o", str(program)], check=True)
    assert subprocess.run([program], check=False).returncode == 0
    plain = subprocess.run(["g++", str(harness), str(candidate), "-o", str(program)], check=False, capture_output=True)
    assert plain.returncode != 0, "without localising the two do not even link"


@pytest.mark.slow
@needs_nvcc
@pytest.mark.nvcc
def test_localised_kernels_do_not_meet(tmp_path: Path) -> None:
    """Kernels of one name register twice: the program links, starts without a GPU, and holds both launch stubs."""
    harness = compile_cuda(tmp_path, clashing(CLASHING_HARNESS, kernels=True), "harness", "-Xcompiler", "-O0")
    candidate = compile_cuda(tmp_path, clashing(CLASHING_CANDIDATE, kernels=True), "candidate", "-Xcompiler", "-O0")
    local, program = tmp_path / "local.o", tmp_path / "program"
    localise(candidate, "task_optimized", local)
    assert visible(local) == {"task_optimized"}
    subprocess.run([NVCC or "nvcc", str(local), str(harness), "-o", str(program)], check=True)
    assert subprocess.run([program], check=False).returncode == 0
    names = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    for stub in ("__device_stub__Z22plain_kernel_optimizedPi", "__device_stub__Z21same_kernel_optimizedILi3EEvPi"):
        assert sum(stub in name and " b " not in name.lower() for name in names) == 2


def test_exit_is_no_exit_any_more(tmp_path: Path) -> None:
    """nvcc's objects may refer to it: through whatever pointer it is called, the process is aborted, and nothing that
    the program has for its end is run."""
    leaving = "#include <cstdlib>\n" + WRAPPER + "{ void (*volatile leave)(int) = n ? exit : abort_; leave(0); }"
    candidate = compile_host(tmp_path, leaving.replace("extern", "static void abort_(int) { abort(); }\nextern", 1))
    harness = compile_host(
        tmp_path,
        "#include <cstdlib>\n#include <unistd.h>\n" + WRAPPER + ";static void late() { _exit(7); }"
        "int main() { atexit(late); task_optimized(nullptr, nullptr, 1); }",
        "harness",
    )
    ends = {}
    for name, instead in {"as it is": {}, "as it is linked": INSTEAD}.items():
        local, program = tmp_path / "local.o", tmp_path / "program"
        localise(candidate, "task_optimized", local, instead)
        subprocess.run(["g++", str(harness), str(local), "-o", str(program)], check=True)
        ends[name] = subprocess.run([program], check=False).returncode
    assert ends == {"as it is": 7, "as it is linked": -signal.SIGABRT}


def test_localise_without_an_object(tmp_path: Path) -> None:
    """A linker that says no is an error of the machine, with its words."""
    with pytest.raises(DeviceError):
        localise(tmp_path / "absent.o", "task_optimized", tmp_path / "out.o")
