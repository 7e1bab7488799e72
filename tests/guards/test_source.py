"""The source guard: each cheat is refused by the check that is there for it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudamaster.guards.source import check_source, device_names
from cudamaster.guards.text import SIZE_LIMIT, read_region

from .support import HONEST, SIGNATURE, judge, region

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
    "const pointer from a call": (region("#include <cstdlib>\nint* const cell = (int*)malloc(4);"), "computed once"),
    "pointer to a compound literal": (region("static int* const cell = (int[]){0};"), "computed once"),
    "static local": (region(body="static int calls = 0; if (calls++) return;"), "keeps calls"),
    "static local in a lambda": (region(body="auto f = [] { static int c; return c++; }; if (f()) return;"), "keeps c"),
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
    "static const of a call": (region("int f(int);", "static const int first = f(3);"), "computed once"),
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
    "static const of a parameter's root": (region(body="static const float first = sqrtf(x[0]);"), "computed once"),
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
    "device variable through ::": (region("__device__ int n;", "::n = 3;"), "host code uses the device variable n"),
    "device variable in a launch": (
        region("__device__ int calls;", "copy_kernel_optimized<<<1, calls++>>>(x, y, n);"),
        "host code uses the device variable calls",
    ),
    "write to a device variable inside a symbol call": (
        region("__device__ int calls;", "void* p; cudaGetSymbolAddress(&p, (calls = 3, calls));"),
        "host code uses the device variable calls",
    ),
    "device variable by a default member": (
        region("__device__ int calls; struct S { int* p = &calls; };", "S s; ++*s.p;"),
        "host code may come to use the device variable calls",
    ),
    "device variable by a constant pointer": (
        region("__device__ int calls; constexpr int* p = &calls;", "++*p;"),
        "host code may come to use the device variable calls",
    ),
    "device variable by a constant reference": (
        region("__device__ int calls; constexpr int& p = calls;", "++p;"),
        "host code may come to use the device variable calls",
    ),
    "device variable by a static member": (
        region("__device__ int calls; struct S { static constexpr int* p = &calls; };", "++*S::p;"),
        "host code may come to use the device variable calls",
    ),
    "device variable by a template argument": (
        region(
            "__device__ int calls; template <int* P> struct S { static void f() { ++*P; } }; using T = S<&calls>;",
            "T::f();",
        ),
        "host code may come to use the device variable calls",
    ),
    "device variable by a template's default": (
        region("__device__ int calls; template <int* P = &calls> void f() { ++*P; }", "f<>();"),
        "host code may come to use the device variable calls",
    ),
    "device variable by a default argument": (
        region("__device__ int calls; void f(int* p = &calls); void f(int* p) { ++*p; }", "f();"),
        "host code may come to use the device variable calls",
    ),
    "device variable through a constructor in a symbol call": (
        region(
            "__device__ int calls; struct S { int* p; S(int* q) : p(q) { ++*q; } };",
            "void* p; cudaGetSymbolAddress(&p, *S{&calls}.p);",
        ),
        "host code uses the device variable calls",
    ),
    "device variable through a conversion in a symbol call": (
        region(
            "__device__ int calls; struct S { S(int& q) { ++q; } };", "void* p; cudaGetSymbolAddress(&p, (S)calls);"
        ),
        "host code uses the device variable calls",
    ),
    "device variable through an operator in a symbol call": (
        region(
            "__device__ int calls; struct S {}; int& operator+(S, int& q) { return ++q; }",
            "void* p; cudaGetSymbolAddress(&p, S() + calls);",
        ),
        "host code uses the device variable calls",
    ),
    "device variable through its own operator &": (
        region(
            "struct S { int n; S* operator&() { ++n; return this; } }; __device__ S calls;",
            "void* p; cudaGetSymbolAddress(&p, *&calls);",
        ),
        "host code uses the device variable calls",
    ),
    "device variable behind what looks like an arrow": (
        region("__device__ int calls;", "int n = 5; bool more = n-->calls++;"),
        "host code uses the device variable calls",
    ),
    "device variable with the name of a parameter's parameter": (
        region("__device__ int calls; void f(int (*g)(int calls)) { ++calls; }", "f(nullptr);"),
        "host code uses the device variable calls",
    ),
    "device variable with the name of a parameter of what is returned": (
        region("__device__ int calls; int (*f())(int calls) { ++calls; return nullptr; }", "f();"),
        "host code uses the device variable calls",
    ),
    "device variable through an index": (
        region(
            "__device__ int calls; struct S { int& operator[](int* q) { return ++*q; } };",
            "void* p; S s; cudaGetSymbolAddress(&p, s[&calls]);",
        ),
        "host code uses the device variable calls",
    ),
    "device variable through a condition in a symbol call": (
        region("__device__ int calls, other;", "void* p; cudaGetSymbolAddress(&p, calls ? other : other);"),
        "host code uses the device variable calls",
    ),
    "device variable as an index in a symbol call": (
        region("__device__ int calls, other[4];", "void* p; cudaGetSymbolAddress(&p, other[calls]);"),
        "host code uses the device variable calls",
    ),
    "device variable through its own operator []": (
        region(
            "struct S { int n; S& operator[](int) { ++n; return *this; } }; __device__ S calls;",
            "void* p; cudaGetSymbolAddress(&p, calls[0]);",
        ),
        "host code uses the device variable calls",
    ),
    "device variable as an argument of a function in a symbol call": (
        region(
            "__device__ int calls, other; int& f(int& q) { ++q; return q; }",
            "void* p; cudaGetSymbolAddress(&p, f(calls));",
        ),
        "host code uses the device variable calls",
    ),
    "device variable as an argument of a function": (
        region("__device__ int calls; void f(int& q) { ++q; }", "f(calls);"),
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
    "in the branch that is compiled": (region("#ifdef __CUDACC__\nint calls;\n#endif"), "mutable global"),
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
    "assembly in a host device function": (region('__host__ __device__ void f() { asm("nop"); }'), "assembly"),
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


def test_device_names_are_found() -> None:
    """What the object guard has to know: device variables, static locals of kernels."""
    code = region(
        "__device__ int a; namespace s { __constant__ float b[2]; } __device__ int f() { static int c; return c; }"
    )
    names = device_names(code, None)
    assert names == {"a", "b", "c"}


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
