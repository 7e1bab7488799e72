"""The source guard: each cheat is refused by the check that is there for it, and odd but honest code passes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudamaster.guards.lexer import Kind, lex
from cudamaster.guards.names import KEYWORDS
from cudamaster.guards.preprocess import preprocess
from cudamaster.guards.signature import Signature, canonical_type, compiler_check, refused_by_compiler
from cudamaster.guards.source import check_source, device_names, left_to_compiler
from cudamaster.guards.text import SIZE_LIMIT, read_region

from .support import CUDA_HEADERS, HONEST, SIGNATURE, judge, needs_nvcc, region

# name: (code, part of the reason)
CHEATS: dict[str, tuple[str, str]] = {
    # state on the host side
    "mutable global": (region("int calls;"), "mutable global"),
    "static global": (region("static float last[4];"), "mutable global"),
    "global in a namespace": (region("namespace a { namespace { int calls = 0; } }"), "mutable global"),
    "pointer to const is mutable": (region("const float* seen = nullptr;"), "mutable global"),
    "array of pointers to const": (region("const float* seen[2];"), "mutable global"),
    "function pointer": (region("void (*hook)(int);"), "mutable global"),
    "object of a struct": (region("struct S { int v; } s;"), "mutable global"),
    "global with a constructor": (region("struct S { S(); int v; }; S s(3);"), "mutable global"),
    "global lambda": (region("auto f = [k = 0]() mutable { return ++k; };"), "mutable global"),
    "template variable": (region("template <int N> int counter = 0;"), "mutable global"),
    "inline variable": (region("inline int counter = 0;"), "mutable global"),
    "anonymous union": (region("static union { int a; float b; };"), "anonymous"),
    "reference to the heap": (region("static int& cell = *new int(0);"), "mutable global"),
    "const pointer to the heap": (region("static int* const cell = new int(0);"), "computed once"),
    "const pointer from a call": (
        region("#include <cstdlib>\nint* const cell = (int*)malloc(4);"),
        "computed once",
    ),
    "pointer to a compound literal": (region("static int* const cell = (int[]){0};"), "computed once"),
    "static local": (region(body="static int calls = 0; if (calls++) return;"), "keeps calls"),
    "static local in a lambda": (
        region(body="auto f = [] { static int c; return c++; }; if (f()) return;"),
        "keeps c",
    ),
    "static local in a template": (region("template <typename T> T f() { static T v{}; return v; }"), "keeps v"),
    "static local of a host device function": (
        region("__host__ __device__ int f() { static int v; return v++; }"),
        "keeps v",
    ),
    "static local of a conversion": (
        region("struct S { operator int() const; }; S::operator int() const { static int c; return c++; }"),
        "keeps c",
    ),
    "thread_local": (region(body="thread_local int calls; calls++;"), "keeps calls"),
    "static const of a parameter": (region(body="static const int first = n;"), "computed once"),
    "static const of a call": (
        region("int f(int);", "static const int first = f(3);"),
        "computed once",
    ),
    "static const of one's own root": (
        region("static float sqrtf(const float* x) { return x[0]; }", "static const float first = sqrtf(x);"),
        "computed once",
    ),
    "static const of a root in a struct": (
        region("struct S { float v; float sqrt() { static const float first = sqrt(); return v + first; } };"),
        "computed once",
    ),
    "static const of limits of one's own": (
        region(
            "namespace a { struct std { template <class T> struct numeric_limits { static T max(); }; };\n"
            "int f() { static const int first = std::numeric_limits<int>::max(); return first; } }"
        ),
        "computed once",
    ),
    "static const of limits of one's own type": (
        region(
            "#include <limits>\nstruct T {}; template <> struct std::numeric_limits<T> { static int max(); };\n"
            "int f() { static const int first = std::numeric_limits<T>::max(); return first; }"
        ),
        "computed once",
    ),
    "static const of another namespace std": (
        region("namespace a { int max(int); namespace std = ::a; static const int first = std::max(3); }"),
        "computed once",
    ),
    "static const of a parameter's root": (
        region(body="static const float first = sqrtf(x[0]);"),
        "computed once",
    ),
    "static const of a template's parameter": (
        region("template <class exp> int f() { static const int first = exp(3); return first; }"),
        "computed once",
    ),
    "static const of a lambda": (
        region(
            body="auto g = [max = [](int v) { return v; }] { static const int first = max(3); return first; }; g();"
        ),
        "computed once",
    ),
    "static data member": (region("struct S { static int v; }; int S::v = 0;"), "v is a static data member"),
    "inline static data member": (region("struct S { inline static int v = 0; };"), "static data member"),
    "mutable member": (region("struct S { mutable int v; };"), "mutable member"),
    "managed memory": (region("__managed__ int calls;"), "managed"),
    "extern variable": (region("extern int optind;"), "outside"),
    "static in a launch configuration": (
        region(body="copy_kernel_optimized<<<1, [] { static int c; return ++c; }()>>>(x, y, n);"),
        "keeps c",
    ),
    "static where nobody looks": (
        region("__global__ void __launch_bounds__([] { static int c; return ++c; }()) f_kernel_optimized() {}"),
        "static is not understood",
    ),
    "device variable as a host counter": (
        region("__device__ int calls;", "if (calls++) return;"),
        "host code uses the device variable calls",
    ),
    "device variable through ::": (
        region("__device__ int n;", "::n = 3;"),
        "host code uses the device variable n",
    ),
    "device variable in a launch": (
        region("__device__ int calls;", "copy_kernel_optimized<<<1, calls++>>>(x, y, n);"),
        "host code uses the device variable calls",
    ),
    "write to a device variable inside a symbol call": (
        region("__device__ int calls;", "void* p; cudaGetSymbolAddress(&p, (calls = 3, calls));"),
        "host code uses the device variable calls",
    ),
    "device mark of a lambda in a default argument": (
        region("static int f(int = [] __device__ { return 1; }()) { static int c; return c++; }"),
        "keeps c",
    ),
    "device mark of a lambda in a type": (region("decltype([] __device__ { return 1; }()) calls;"), "mutable global"),
    "stand-in for a symbol call": (
        region("__device__ int calls; static void cudaGetSymbolSize(int& v) { v++; }", "cudaGetSymbolSize(calls);"),
        "belongs to CUDA",
    ),
    "local stand-in for a symbol call": (
        region("__device__ int calls;", "auto cudaGetSymbolSize = [](int& v) { v++; }; cudaGetSymbolSize(calls);"),
        "belongs to CUDA",
    ),
    "macro bomb": (
        region(
            "#define A0 int a(int);\n" + "".join(f"#define A{i} {f'A{i - 1} ' * 10}\n" for i in range(1, 12)) + "A11\n"
        ),
        "expand",
    ),
    "macro mine": (
        region(
            "#define A0 int a(int);\n" + "".join(f"#define A{i} {f'A{i - 1} ' * 10}\n" for i in range(1, 7)) + "A6\n"
        ),
        "too much text",
    ),
    # hidden by macros, branches and spelling
    "static by a macro": (region("#define KEEP static int\nKEEP calls;"), "mutable global"),
    "static by pasting": (region("#define CAT(a, b) a##b\nCAT(sta, tic) int calls;"), "mutable global"),
    "static by continuation": (region(body="sta\\\ntic int calls; calls++;"), "keeps calls"),
    "in the branch that is compiled": (
        region("#ifdef __CUDACC__\nint calls;\n#endif"),
        "mutable global",
    ),
    "branch on the optimiser": (region("#ifdef __OPTIMIZE__\nint calls;\n#endif"), "__OPTIMIZE__"),
    "another compiler's macro": (region("#define _WIN32 1\n#ifdef _WIN32\nint calls;\n#endif"), "belongs to the"),
    "branch on the device": (region("#ifdef MSKB_CPU_DEVICE\nint calls;\n#endif"), "MSKB_CPU_DEVICE"),
    "branch on the build": (region("#if CUDAMASTER_CPU_OBSERVED\nint calls;\n#endif"), "CUDAMASTER_CPU_OBSERVED"),
    "call of the CPU device": (region(body="cudamaster_cpu_yield();"), "belongs to the harness"),
    "branch on a header": (region("#if __has_include(<thread>)\n#endif"), "__has_include"),
    "library in an untaken branch": (region("#if 0\n#include <cublas_v2.h>\n#endif"), "does the task"),
    "name in an untaken branch": (region("#ifdef NEVER\nint f() { return fork(); }\n#endif"), "fork"),
    "name in a macro body": (region("#define F getenv"), "getenv"),
    "call by pasting": (region("#define CAT(a, b) a##b", 'CAT(get, env)("HOME");'), "getenv"),
    "line directive": (region('#line 1 "other.h"\nint calls;'), "line directive"),
    "line marker": (region('# 1 "other.h"\nint calls;'), "line directive"),
    "line marker in a raw string": (region('const char* const s = R"(\n# 1 "other.h"\n)";\nint c;'), "line directive"),
    "digraph": (region("%:define A 1"), "digraph"),
    "trigraph": (region("??=define A 1"), "trigraph"),
    "raw string with a continuation": (region('const char* const s = R"a(x)\\\na")a";'), "raw string"),
    "unfinished comment": (region() + "/* ", "unterminated"),
    "code that nobody understands": (region("a b ( ] { calls;"), "not understood"),
    # the region's markers
    "end marker": (region("// <<< CANDIDATE REGION"), "marker"),
    "end marker in a string": (region('const char* const s = "<<< CANDIDATE REGION";'), "marker"),
    "begin marker, spelt differently": (region("/*>>>  candidate  region*/"), "marker"),
    # headers
    "thread": (region(includes="#include <thread>\n"), "thread is not allowed"),
    "iostream": (region(includes="#include <iostream>\n"), "iostream is not allowed"),
    "fstream": (region(includes="#include <fstream>\n"), "fstream is not allowed"),
    "unistd": (region(includes="#include <unistd.h>\n"), "unistd.h is not allowed"),
    "cublas": (region(includes="#include <cublas_v2.h>\n"), "does the task"),
    "cub": (region(includes="#include <cub/cub.cuh>\n"), "does the task"),
    "thrust": (region(includes="#include <thrust/sort.h>\n"), "does the task"),
    "cutlass": (region(includes='#include "cutlass/gemm/device/gemm.h"\n'), "does the task"),
    "absolute path": (region(includes='#include "/etc/passwd"\n'), "/etc/passwd is not allowed"),
    "path upwards": (region(includes="#include <cuda/std/../../cub/cub.cuh>\n"), "not allowed"),
    "computed header": (region(includes="#define H <thread>\n#include H\n"), "computed name"),
    "include_next": (region(includes="#include_next <math.h>\n"), "include_next"),
    "import": (region(includes="#import <math.h>\n"), "import"),
    "harness header": (region(includes='#include "mskb/harness.h"\n'), "not allowed"),
    # pragmas and macros
    "push_macro": (region('#pragma push_macro("x")'), "push_macro"),
    "redefine_extname": (region("#pragma redefine_extname f exit"), "redefine_extname"),
    "weak pragma": (region("#pragma weak malloc"), "weak"),
    "pragma operator": (region('_Pragma("weak malloc")'), "weak"),
    "pragma in a macro": (region('#define P _Pragma("GCC optimize(\\"O0\\")")\nP'), "GCC optimize"),
    "macro of a keyword": (region("#define const"), "belongs to the language"),
    "macro of a qualifier": (region("#define __global__"), "belongs to the language"),
    "macro of the runtime": (region("#define cudaMalloc(p, n) 0"), "belongs to the language"),
    "undef": (region("#undef __CUDA_ARCH__"), "belongs to the language"),
    # names
    "harness namespace": (region("namespace mskb { struct S {}; }"), "belongs to the harness"),
    "harness macro": (region("#define MSKB_CHECK(x)"), "belongs to the harness"),
    "baseline call": (region('extern "C" void task(const float*, float*, int);', "task(x, y, n);"), "harness's"),
    "oracle call": (region("void task_reference(int);", "task_reference(n);"), "harness's"),
    "getenv": (region(body='if (getenv("HOME")) return;'), "getenv"),
    "open": (region('extern "C" int open(const char*, int, ...);', 'open("/tmp/x", 0);'), "outside the region"),
    "fopen": (region(body='fopen("/tmp/x", "w");'), "fopen"),
    "dlopen": (region(body='dlopen("libcublas.so", 1);'), "dlopen"),
    "fork": (region(body="fork();"), "fork"),
    "library beside a function of its name": (region("int cub(int) { return 1; }", "cub::Sum();"), "cub"),
    "exit beside one's own": (region("void exit(float) {}", "exit(0);"), "exit"),
    "system": (region(body='system("true");'), "system"),
    "exit": (region(body="exit(0);"), "exit"),
    "atexit": (region("void late() {}", "atexit(late);"), "atexit"),
    "printf in a kernel": (region('__device__ void say() { printf("{}"); }'), "printf"),
    "printf": (region(body='printf("{}");'), "printf"),
    "pthread": (region(body="pthread_create(0, 0, 0, 0);"), "pthread_create"),
    "host callback": (region(body="cudaLaunchHostFunc(0, 0, 0);"), "cudaLaunchHostFunc"),
    "host node": (region(body="cudaGraphAddHostNode(0, 0, 0, 0, 0);"), "cudaGraphAddHostNode"),
    "persisting cache": (region(body="cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1);"), "cudaDeviceSetLimit"),
    "window": (region(body="cudaStreamSetAttribute(0, cudaStreamAttributeID(1), 0);"), "cudaStreamSetAttribute"),
    "device reset": (region(body="cudaDeviceReset();"), "cudaDeviceReset"),
    "entry point": (region(body="cudaGetDriverEntryPoint(0, 0, 0, 0);"), "cudaGetDriverEntryPoint"),
    "registration": (region(body="__cudaRegisterFatBinary(0);"), "__cudaRegisterFatBinary"),
    "load of the host's processor": (region(body="auto v = __builtin_ia32_lddqu((const char*)x);"), "host's processor"),
    "pointer of nvcc's own": (region(body="__nv_hdl_helper<int>::fp_caller = 0;"), "compiler's own"),
    "return address": (region(body="__builtin_return_address(0);"), "__builtin_return_address"),
    "library call": (region(body="cublasSgemm(0);"), "does the task"),
    "operator new": (region("void* operator new(size_t);"), "operator new"),
    "main": (region("int main() { return 0; }"), "main"),
    # attributes, assembly, linkage
    "constructor": (region("__attribute__((constructor)) void early() {}"), "constructor"),
    "constructor with a priority": (region("__attribute__((constructor(101))) void early() {}"), "constructor"),
    "destructor, bracket form": (region("[[gnu::destructor]] void late() {}"), "destructor"),
    "constructor with underscores": (region("__attribute__((unused, __constructor__)) void f() {}"), "constructor"),
    "section": (region('__attribute__((section(".init"))) void f() {}'), "section"),
    "weak": (region("__attribute__((weak)) void f() {}"), "weak"),
    "alias": (region('void f() __attribute__((alias("task_optimized")));'), "alias"),
    "ifunc": (region('void f() __attribute__((ifunc("g")));'), "ifunc"),
    "assembly at file scope": (region('asm(".globl x");'), "assembly"),
    "assembly in a host function": (region(body='asm volatile("syscall");'), "assembly"),
    "assembly in a host device function": (
        region('__host__ __device__ void f() { asm("nop"); }'),
        "assembly",
    ),
    "assembly name": (region('void f(int) __asm__("exit");'), "assembly"),
    "second C function": (region('extern "C" void helper(int n) {}'), "C linkage"),
    "C function in a block": (region('extern "C" { void helper(int n) {} }'), "C linkage"),
    "C declaration": (region('extern "C" int write(int, const void*, size_t);'), "outside the region"),
    "namespace std": (region("namespace std { struct S {}; }"), "not yours"),
    # kernels and the wrapper
    "kernel named like those of the harness": (
        region("__global__ void x_ZN4mskb(float* y) {}"),
        "belongs to the harness",
    ),
    "kernel with a mark of the harness's": (region("__global__ void sm$mskb(float* y) {}"), "belongs to the harness"),
    "kernel that is none": (region("__global__ int calls;"), "not understood"),
    "kernel in place of CUDA's function": (
        region('extern "C" __global__ void cudaFree(void* p) {}'),
        "belongs to CUDA",
    ),
    "kernel in place of a symbol call": (region("__global__ void cudaGetSymbolSize(int& v) {}"), "belongs to CUDA"),
    "lambda that is no kernel": (
        region(body="auto f = [] __global__ { static int c; return c++; }; f();"),
        "not understood",
    ),
    "no wrapper": ("__global__ void a_kernel_optimized(float* y) {}", "is not defined"),
    "wrapper without linkage": ("void task_optimized(const float* x, float* y, int n) {}", "extern C"),
    "wrapper in a namespace": (
        'namespace a { extern "C" void task_optimized(const float* x, float* y, int n) {} }',
        "at file scope",
    ),
    "two wrappers": (region() + 'extern "C" void task_optimized(const float* x, float* y, int n) {}', "2 times"),
    "static wrapper": (
        'extern "C" { static void task_optimized(const float* x, float* y, int n) {} }',
        "static, inline",
    ),
    "wrapper on the device": (
        'extern "C" __device__ void task_optimized(const float* x, float* y, int n) {}',
        "not a host function",
    ),
    "wrapper with an attribute that moves it": (
        'extern "C" __attribute__((section("x"))) void task_optimized(const float* x, float* y, int n) {}',
        "attribute",
    ),
    "wrapper called another way": (
        'extern "C" __attribute__((ms_abi)) void task_optimized(const float* x, float* y, int n) {}',
        "attribute",
    ),
    "wrapper declared with C++ linkage": (
        "void task_optimized(const float*, float*, int); void task_optimized(const float* x, float* y, int n) {}",
        "extern C",
    ),
    "other type": ('extern "C" void task_optimized(const float* x, float* y, long n) {}', "is due"),
    "wider float": ('extern "C" void task_optimized(const double* x, float* y, int n) {}', "is due"),
    "unsigned": ('extern "C" void task_optimized(const float* x, float* y, unsigned n) {}', "is due"),
    "one pointer more": ('extern "C" void task_optimized(const float** x, float* y, int n) {}', "is due"),
    "a pointer to anything": ('extern "C" void task_optimized(const void* x, float* y, int n) {}', "is due"),
    "other type by an alias": (
        'using Real = double; extern "C" void task_optimized(const Real* x, float* y, int n) {}',
        "is due",
    ),
    "other type by a macro": (
        '#define real double\nextern "C" void task_optimized(const real* x, float* y, int n) {}',
        "is due",
    ),
    "more than a default": (
        'extern "C" void task_optimized(const float* x, float* y, int n, int m = 3) {}',
        "4 parameters",
    ),
    "any number": ('extern "C" void task_optimized(const float* x, float* y, ...) {}', "is not understood|parameter"),
    "by reference": ('extern "C" void task_optimized(const float* x, float* y, int& n) {}', "is due"),
    "missing parameter": ('extern "C" void task_optimized(const float* x, float* y) {}', "2 parameters"),
    "returns a value": ('extern "C" int task_optimized(const float* x, float* y, int n) {}', "void"),
    "empty": (" \n", "empty"),
    "too large": (region("//" + "x" * SIZE_LIMIT), "larger"),
    "control character": (region("// \x01"), "control character"),
}

HONEST_SNIPPETS: dict[str, str] = {
    "plain": region(),
    "constants": region('constexpr int A = 3; const float B = 0.5f; static const char* const C = "c"; enum { D = 4 };'),
    "static constexpr local": region(
        body="static constexpr int steps[] = {1, 2}; static const float f[] = {1.f, -2.f};"
    ),
    "constexpr lambda": region("constexpr auto twice = [](int v) { return 2 * v; };"),
    "const dim3": region("const dim3 block(256); const dim3 other = dim3(1, 2);"),
    "name in a comment": region("// getenv, fork() and cublasSgemm are not used; see mskb"),
    "name in a string": region('const char* const s = "getenv fork";'),
    "ordinary words": region(
        body="int thread = 0, signal = 1, system = 2, clone[2] = {}, open = 3, time = 4; (void)clone;"
    ),
    "parameter named like a constant": region("__constant__ int n;"),
    "field named like a device variable": region("__device__ int size; struct S { int size; };", "S s; s.size = 3;"),
    "forward declarations": region(
        "__global__ void later_kernel_optimized(int*); static int f(int);"
        'extern "C" void task_optimized(const float*, float*, int);'
    ),
    "visible": region('__attribute__((visibility("default"))) void f() {}'),
    "kernel named like the task": region("__global__ void task(float* v) {}", "task<<<1, 1>>>(y);"),
    "host function named like the task": region(
        "static void task(float* v) {} static void task_reference(float* v) {}", "task(y); task_reference(y);"
    ),
    "device function named like the baseline": region("__device__ float task(float v) { return v; }"),
    "trailing continuation": region("#define SUM(a, b) \\\n    ((a) + \\\n     (b))"),
    "harmless attributes": region(
        "[[maybe_unused]] static __attribute__((always_inline)) inline int f() { return 1; }"
    ),
    "condition macro": region("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n#define X 1\n#endif"),
    "error macro": region(
        "#define cudaCheck(x) do { if ((x) != cudaSuccess) { (void)__FILE__; return; } } while (0)",
        "cudaCheck(cudaGetLastError());",
    ),
}


PIECES = ["{", "}", "(", ")", "<<<", ">>>", '"', "'", "\\\n", "#", "/*", "static ", "__device__ ", 'R"(', "asm(", "[["]


@pytest.mark.slow(but=[name for name in CHEATS if name != "macro bomb"])
@pytest.mark.parametrize("name", CHEATS)
def test_cheat_is_refused(name: str) -> None:
    """Each cheat meets the check that is there for it, and the refusal names a fix."""
    code, reason = CHEATS[name]
    refusal = judge(code)
    assert refusal is not None, "let through"
    assert any(part in refusal.reason for part in reason.split("|"))
    assert refusal.fix
    assert refusal.guard == "source"


@pytest.mark.parametrize("name", HONEST_SNIPPETS)
def test_honest_snippet_passes(name: str) -> None:
    """Things that look like a cheat and are none."""
    assert judge(HONEST_SNIPPETS[name]) is None


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_region_passes_without_headers(path: Path) -> None:
    """Odd honest regions pass where no CUDA header is installed."""
    assert judge(path.read_text()) is None


@pytest.mark.slow(but=["tensor_cores", "extended_lambdas"])
@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_region_passes_with_headers(path: Path) -> None:
    """With the real headers, whose macros are then expanded too."""
    assert judge(path.read_text(), headers=True) is None


@needs_nvcc
@pytest.mark.nvcc
def test_header_macro_hides_nothing() -> None:
    """A macro of a system header can paste a keyword: with the headers at hand it is seen."""
    code = region("__CONCAT(sta, tic) int calls;", includes="#include <cuda_runtime.h>\n#include <cstdlib>\n")
    refusal = judge(code, headers=True)
    assert refusal is not None
    assert "mutable global" in refusal.reason


@needs_nvcc
@pytest.mark.nvcc
def test_headers_are_really_read() -> None:
    """The two tests above would prove nothing if the headers were not found."""
    assert len(CUDA_HEADERS) == 2
    code = region("#if CUDART_VERSION > 1000 && defined(CUDART_CB)\nint calls;\n#endif")
    assert judge(code, headers=True) is not None
    assert judge(code) is None


def test_line_is_the_regions_own() -> None:
    """The refusal points at the line that the author wrote, macros and includes before it notwithstanding."""
    code = "#include <cstdint>\n#define A \\\n  1\n\n/* a\n comment */\nint calls = A;\n"
    refusal = judge(code)
    assert refusal is not None
    assert refusal.line == 7
    assert "(line 7)" in str(refusal)


def test_weaker_form_without_a_compiler() -> None:
    """Without a preprocessor macros that could hide something are refused, plain state is still found."""
    assert check_source(region(), SIGNATURE, None) is None
    hidden = check_source(region("#define KEEP static int"), SIGNATURE, None)
    assert hidden is not None
    assert "without a compiler" in hidden.reason
    assert check_source(region("int calls;"), SIGNATURE, None) is not None


def test_signature_is_compared_as_a_caller_sees_it() -> None:
    """Spelling and qualifiers do not count, what a caller would notice does."""
    same = ["const float*", "float const *", "const float * __restrict__", "float const* const", "const float []",
            "float*", "volatile float*", "float[16]"]  # fmt: skip
    assert {canonical_type(text) for text in same} == {("float", "*")}
    assert canonical_type("unsigned") == canonical_type("const uint32_t") == canonical_type("std::uint32_t")
    assert canonical_type("long unsigned int") == canonical_type("size_t")
    assert canonical_type("float**") != canonical_type("float*")
    assert canonical_type("float&") != canonical_type("float*")
    assert canonical_type("int") != canonical_type("long")
    assert canonical_type("const int* const*") == canonical_type("const int**")
    assert canonical_type("__nv_bfloat16*") == canonical_type("T*", {"T": "nv_bfloat16"})
    assert canonical_type("P", {"P": "const T*", "T": "float"}) == canonical_type("float*")


@pytest.mark.parametrize(
    "text",
    ["Ptr<float>", "typename A::type*", "float (*)", "float (*)[4]", "float[2][3]", "decltype(nullptr)", "auto", "A*",
     "std::conditional_t<true, float, int>*", "void (*)(int)", "my::int32_t", "unsigned __int128", "cuda::std::size_t"],
)  # fmt: skip
def test_what_text_does_not_tell_is_left_open(text: str) -> None:
    """Neither the same nor another type: the compiler is asked. `A` is an alias of an array."""
    assert canonical_type(text, {"A": "float[4]", "F": "float(int)"}) is None


def test_an_alias_does_not_name_what_the_standard_library_has() -> None:
    """An author's `byte` is int, and `std::byte` an enumeration all the same."""
    aliases = {"byte": "int"}
    assert canonical_type("byte", aliases) == canonical_type("::byte", aliases) == ("int",)
    assert canonical_type("std::byte", aliases) is canonical_type("::std::byte", aliases) is None
    assert canonical_type("const std::uint64_t*", aliases) == canonical_type("size_t*")


INTERFACES = {
    "no const": "float* x, float* y, int n",
    "const everywhere": "const float* const x, const float* y, const int n",
    "restricted": "const float* __restrict__ x, float* __restrict y, int n",
    "volatile": "volatile const float* x, float* y, int n",
    "other names": "const float* input, float* output, int count",
    "no names": "const float*, float*, int",
    "defaults": "const float* x, float* y = nullptr, int n = 1 << 4",
    "arrays": "const float x[], float y[16], int n",
    "other spelling": "float const *x, float y[], signed int n",
    "fixed width": "const float* x, float* y, std::int32_t n",
    "comments": "const float* x /* in */, float* y, // out\n int n",
    "maybe unused": "const float* x, float* y, [[maybe_unused]] int n",
}
HEADS = {
    "block": 'extern "C" {{ void task_optimized({0}) {{}} }}',
    "host": '__host__ extern "C" void task_optimized({0}) {{}}',
    "extern in a block": 'extern "C" {{ extern void task_optimized({0}) {{}} }}',
    "attribute": 'extern "C" __attribute__((visibility("default"), noinline)) void task_optimized({0}) {{}}',
    "declared before": 'extern "C" void task_optimized(const float*, float*, int);\n'
    'extern "C" void task_optimized({0}) {{}}',
    "linkage by its declaration": 'extern "C" {{ void task_optimized(const float*, float*, int); }}\n'
    "void task_optimized({0}) {{}}",
    "trailing return": 'extern "C" auto task_optimized({0}) -> void {{}}',
    "never throws": 'extern "C" void task_optimized({0}) noexcept {{}}',
}


@pytest.mark.parametrize("name", INTERFACES)
def test_what_is_called_the_same_way_is_accepted(name: str) -> None:
    """Parameters as a C caller sees them: by number and type."""
    code = f'#include <cstdint>\nextern "C" void task_optimized({INTERFACES[name]}) {{}}'
    assert judge(code) is None
    assert left_to_compiler(code, SIGNATURE, None) == ()


@pytest.mark.parametrize("name", HEADS)
def test_whatever_gives_the_wrapper_its_linkage(name: str) -> None:
    """Each way to define one function of C linkage."""
    assert judge(HEADS[name].format("float* x, float* y, int n")) is None


def test_a_refusal_names_what_differs_and_what_is_due() -> None:
    refusal = judge('extern "C" void task_optimized(float* x, float* y, size_t n = 0) {}')
    assert refusal is not None
    assert "'size_t n = 0' where int n is due" in refusal.reason
    assert str(SIGNATURE) in refusal.fix


def test_what_the_compiler_is_asked() -> None:
    """The parameters that the text does not tell, by their places, in words that no region can redefine."""
    code = (
        "template <class T> using Ptr = T*;\n"
        'extern "C" void task_optimized(Ptr<const float> x, float* y, decltype(sizeof(0)) n) {}'
    )
    assert judge(code) is None
    undecided = left_to_compiler(code, SIGNATURE, None)
    assert [(one.at, one.written) for one in undecided] == [(0, "Ptr<const float> x"), (2, "decltype(sizeof(0)) n")]
    asked = compiler_check(SIGNATURE, undecided)
    names = {token.text for token in lex(asked).tokens if token.kind is Kind.NAME}
    assert {name for name in names if "mskb" not in name} <= {*KEYWORDS, "task_optimized"}
    assert (
        refused_by_compiler("candidate.cu:30: error: static assertion failed: mskb_parameter_2", undecided)
        == undecided[1]
    )
    assert refused_by_compiler("error: expected ;", undecided) is None


def test_wrapper_with_no_parameters() -> None:
    """(void) is an empty list."""
    code = 'extern "C" void task_optimized(void) {}'
    assert check_source(code, Signature("task_optimized", ()), None) is None
    assert check_source(code, SIGNATURE, None) is not None


# The object guard leaves them to this one: nvcc itself refers to exit (symbols.py). Through a pointer it can be called
# all the same, and is then no exit any more.
LEAVING = {
    "plain": ("", "exit(0);"),
    "global": ("", "::exit(0);"),
    "of std": ("", "std::exit(0);"),
    "spaced": ("", "std :: exit /* */ (0);"),
    "continued": ("", "ex\\\nit(0);"),
    "macro": ("#define LEAVE exit(0)", "LEAVE;"),
    "macro of the name": ("#define LEAVE exit", "LEAVE(0);"),
    "macro with a parameter": ("#define CALL(f) f(0)", "CALL(exit);"),
    "pasted": ("#define CAT(a, b) a##b", "CAT(ex, it)(0);"),
    "using": ("using std::exit;", "exit(0);"),
    "using namespace": ("using namespace std;", "exit(0);"),
    "declared": ('extern "C" void exit(int);', "exit(0);"),
    "declared in a block": ('extern "C" { [[noreturn]] void exit(int) noexcept; }', ""),
    "declared inside": ("", "void exit(int); exit(0);"),
    "in a helper": ("template <class T> static void leave(T v) { if (v) exit(v); }", "leave(n);"),
    "in a check": ("#define CHECK(c) do { if (c) { exit(EXIT_FAILURE); } } while (0)", "CHECK(cudaGetLastError());"),
    "in a branch that is not taken": ("#if 0\nvoid f() { exit(0); }\n#endif", ""),
    "at once": ("", "_exit(0);"),
    "at once, of std": ("", "std::_Exit(0);"),
    "quick": ("", "quick_exit(0);"),
    "quick, by its address": ("", "auto f = &std::quick_exit; f(0);"),
    "built in": ("", "__builtin_exit(0);"),
    "by another name": ('void leave(int) __asm__("exit");', "leave(0);"),
}  # fmt: skip


@pytest.mark.slow(but=[*(f"{name}-False" for name in LEAVING), "pasted-True", "using-True"])
@pytest.mark.parametrize("headers", [False, pytest.param(True, marks=needs_nvcc)])
@pytest.mark.parametrize("name", LEAVING)
def test_no_spelling_of_a_call_of_exit_passes(name: str, headers: bool) -> None:
    """With the names of the real headers and without."""
    before, body = LEAVING[name]
    refusal = judge(region(f"#include <cstdlib>\n{before}\n", body), headers=headers)
    assert refusal is not None
    assert refusal.fix


def test_device_names_are_found() -> None:
    """What the object guard has to know: device variables, static locals of kernels."""
    code = region(
        "__device__ int a; namespace s { __constant__ float b[2]; } __device__ int f() { static int c; return c; }"
    )
    names = device_names(code, None)
    assert names == {"a", "b", "c"}


def test_preprocessor_errors_are_refusals() -> None:
    """An #error or a broken directive of the region comes back with its line."""
    refusal = judge(region("#error no"))
    assert refusal is not None
    assert refusal.line is not None


def test_closed_files_are_not_read(tmp_path: Path) -> None:
    """A file that the guard refuses is not opened before it is refused."""
    secret = tmp_path / "secret"
    secret.write_text("int the_secret;\n")
    for code in (f'#include "{secret}"', f"#include <{secret}>", f'#def\\\nine H\n#in\\\nclude "{secret}"'):
        expanded = preprocess(code, "g++", [], [])
        assert "the_secret" not in str(expanded)
    assert "the_secret" in str(preprocess("#include <cuda_runtime.h>", "g++", [fake(tmp_path)], []))


def fake(folder: Path) -> Path:
    """A folder with a runtime header that has the secret in it."""
    (folder / "cuda_runtime.h").write_text("int the_secret;\n")
    return folder


def test_preprocess_keeps_qualifiers(tmp_path: Path) -> None:
    """A header that turns __global__ into nothing, as the CPU device's does, hides no kernel."""
    (tmp_path / "cuda_runtime.h").write_text("#define __global__\n#define __device__\n")
    code = region("__global__ void k(int) {}")
    expanded = preprocess(code, "g++", [tmp_path], [])
    assert isinstance(expanded, str)
    assert "__global__ void k(int)" in expanded
    assert check_source(code, SIGNATURE, expanded) is None
    kept = region("__global__ void k(int) {}", "auto f = [] __global__ { static int c; return c++; }; f();")
    refusal = check_source(kept, SIGNATURE, preprocess(kept, "g++", [tmp_path], []))  # type: ignore[arg-type]
    assert refusal is not None
    assert "not understood" in refusal.reason


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_never_raises(data: st.DataObject) -> None:
    """Regions with pieces cut out and put in give a refusal or pass, never an exception."""
    code = HONEST[data.draw(st.integers(0, len(HONEST) - 1))].read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(st.integers(0, len(code))), data.draw(st.integers(0, 40))
        piece = data.draw(st.one_of(st.text(max_size=6), st.sampled_from(PIECES)))
        code = code[:start] + piece + code[start + length :]
    for text in (code, data.draw(st.text())):
        answer = check_source(text, SIGNATURE, f'# 1 "candidate.cu"\n{text}')
        assert answer is None or answer.fix
        assert check_source(text, SIGNATURE, None) is None or answer is not None or "#" in text
        device_names(text, None)


def test_bytes_that_are_no_text() -> None:
    """Binary files and other encodings are refused before anything reads them."""
    assert read_region(b"\xef\xbb\xbfint a;\r\n") == "int a;\n"
    for raw in (b"\x7fELF\x00", b"int \xff;"):
        refusal = read_region(raw)
        assert not isinstance(refusal, str)
