"""Honest C++ and CUDA that a grammar could stumble over, or that looks like a cheat: none of it may be refused."""

from pathlib import Path

import pytest

from .support import HONEST, judge, needs_nvcc, region

SHAPES = {
    "requires": region("template <typename T> requires (sizeof(T) == 4) __global__ void r_kernel_optimized(T* p) {}"),
    "op launch": region(
        "template <class F> __global__ void f_kernel_optimized(F f, int n) { f(n); }",
        "f_kernel_optimized<<<1, 2>>>([=] __device__ (int i) { y[i] = 0; }, n);",
    ),
    "ptr to kernel": region(
        "using Kernel = void (*)(const float*, float*, int);",
        "constexpr Kernel kernels[] = {copy_kernel_optimized}; Kernel k = kernels[0]; k<<<1, 2>>>(x, y, n);",
    ),
    "static const kernels": region(
        "",
        "static constexpr void (*table[])(const float*, float*, int) = {copy_kernel_optimized}; "
        "table[0]<<<1,1>>>(x,y,n);",
    ),
    "class": region(
        "class Plan { public: explicit Plan(int n) : n_(n) {} ~Plan() = default; int blocks() const { "
        "return n_; } static int round(int v) { return v; } private: int n_ = 0; };",
        "Plan p(n); (void)p.blocks();",
    ),
    "raii": region(
        "struct Buffer { float* p = nullptr; explicit Buffer(size_t n) { "
        "cudaMallocAsync(&p, n * sizeof(float), 0); } ~Buffer() { cudaFreeAsync(p, 0); } "
        "Buffer(const Buffer&) = delete; Buffer& operator=(const Buffer&) = delete; "
        "operator float*() const { return p; } };",
        "Buffer b(n);",
    ),
    "spec": region(
        "template <int N> struct Log { static constexpr int value = 1 + Log<N / 2>::value; }; "
        "template <> struct Log<1> { static constexpr int value = 0; };"
    ),
    "variadic": region("template <typename... A> __device__ void all(A&&... a) { ((a += 1), ...); }"),
    "friend": region("struct C { float r; friend __device__ C operator*(C a, C b) { return {a.r * b.r}; } };"),
    "const table host": region("static const float4 kOne = {1, 1, 1, 1}; const int kSizes[3] = {1, 2, 3};"),
    "if init": region(body="if (int m = n; m > 3) { switch (m) { case 4: break; default: break; } }"),
    "extern shared tmpl": region(
        "template <typename T> __device__ T* shared() { "
        "extern __shared__ __align__(16) unsigned char raw[]; return reinterpret_cast<T*>(raw); }"
    ),
    "goto/labels": region("__device__ int g(int i) { again: if (i++ < 3) goto again; return i; }"),
    "macro kernel": region(
        "#define MAKE(T) __global__ void make_##T##_kernel_optimized(T* p) { p[0] = T(0); }\nMAKE(float)\nMAKE(int)\n"
    ),
    "label named exit": region(
        "__global__ void leave(float* y) { if (y[0] > 0) goto exit; y[0] = 0; exit: return; }",
        "if (n < 0) goto kill; leave<<<1, 1>>>(y); kill: cudaGetLastError();",
    ),
    "own random": region(
        "struct Random { unsigned s; __device__ unsigned random() { return s = s * 1664525u + 1; } }; "
        "__device__ float raise(float v) { return v; } struct C { __device__ C clone() const { return {}; } }; "
        "__global__ void draw(float* y) { Random r{1}; y[0] = raise(r.random()); }"
    ),
    "branch on other compilers": region(
        "#if defined(_MSC_VER) || defined(__HIPCC__)\n#define FORCED __forceinline\n#else\n"
        "#define FORCED __forceinline__\n#endif\n#ifndef __CUDACC_RTC__\n#include <cstdint>\n#endif\n"
        "#ifdef __INTELLISENSE__\n#define LAUNCH(...)\n#else\n#define LAUNCH(...) <<<__VA_ARGS__>>>\n#endif\n"
        "__device__ FORCED float same(float v) { return v; } __global__ void k(float* y) { y[0] = same(y[0]); }",
        "k LAUNCH(1, 1)(y);",
    ),
    "if 0 apostrophe": region("#if 0\n// don't\n#endif"),
    "attr order": region("__global__ __launch_bounds__(256) void q_kernel_optimized(float* __restrict p) {}"),
    "static inline dev": region(
        "static __inline__ __device__ float2 mk(float a, float b) { return make_float2(a, b); }"
    ),
    "anon struct": region("union U { struct { unsigned short a, b; }; unsigned v; };"),
    "enum arr": region(
        "enum Mode : unsigned char { A, B }; template <Mode M> __global__ void m_kernel_optimized() {}",
        "m_kernel_optimized<Mode::A><<<1, 1>>>();",
    ),
    "shift": region(
        "template <int N> __global__ void s_kernel_optimized() {}",
        "s_kernel_optimized<(1 << 3)><<<(n >> 2), (1 << 5), 0, cudaStream_t(0)>>>();",
    ),
    "host memory": region("#include <memory>\n", "auto p = std::make_unique<int[]>(n);"),
    "typedef struct": region("typedef struct { float x, y; } vec2; typedef struct Node { int a; } Node;"),
    "device global struct": region(
        "struct Acc { float v; }; __device__ Acc accumulators[64]; __device__ volatile int flag = 0;"
    ),
    "wrapper ret": region("static __host__ cudaError_t go(const float* x) { return cudaSuccess; }", "(void)go(x);"),
    "namespace nested": region(
        "namespace a::b { template <class T> struct X { T t; }; inline namespace v1 { constexpr int z = 0; } }"
    ),
    "const auto": region("const auto kBlock = 256u; constexpr auto kWarp = 32;"),
    "std::function": region("#include <functional>\n", "std::function<int(int)> f = [](int v) { return v; }; f(1);"),
    "any name": region("__global__ void k(float* p) {}", "k<<<1, 1>>>(y);"),
    "static": region("static __global__ void s(float* p) {} __global__ static void t(float* p) {}"),
    "inline": region("inline __global__ void i(float* p) {}"),
    "anonymous": region("namespace { __global__ void hidden(float* p) {} }", "hidden<<<1, 1>>>(y);"),
    "scoped": region("namespace a::b { template <int N> __global__ void k(float* p) {} }", "a::b::k<4><<<1, 1>>>(y);"),
    "C linkage": region('extern "C" __global__ void c_kernel(float* p) {} extern "C" { __global__ void d(int* p) {} }'),
    "bounds anywhere": region(
        "__launch_bounds__(256) __global__ void a(float* p) {} "
        "__global__ __launch_bounds__(256, 2) void b(float* p) {} "
        "__global__ void __launch_bounds__(128) c(float* p) {} "
        "template <int N> void __global__ __launch_bounds__(N) d(float* p) {}"
    ),
    "specialised kernel": region(
        "template <typename T> __global__ void k(T* p) {} template <> __global__ void k<int>(int* p) {} "
        "template __global__ void k<double>(double*);"
    ),
    "befriended kernel": region("class Box { friend __global__ void open_it(Box b); int v; };"),
    "trailing return": region("__global__ auto k(float* p) -> void {}"),
    "kernel named like CUDA's": region("__global__ void cudaVectorAdd(float* p) {}", "cudaVectorAdd<<<1, 1>>>(y);"),
    "kernel named like the harness's": region(
        "__global__ void mask_kernel(float* p) {} __global__ void empty_kernel() {}"
    ),
    "kernel by a macro of names": region("#define K(n) __global__ void n##_k(float* p) {}\nK(a) K(b)"),
    "conversions": region(
        "namespace a { struct S { operator bool() const; operator float*(); template <class T> operator T&(); }; } "
        "a::S::operator bool() const { return true; } a::S::operator float*() { return nullptr; } "
        "template <class T> a::S::operator T&() { return *(T*)this; }"
    ),
    "noexcept": region().replace("int n) {\n    \n", "int n) noexcept {\n", 1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_passes(name: str) -> None:
    """Legal code is understood, or its misunderstanding does no harm."""
    assert judge(SHAPES[name]) is None


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
    "device variable that another one points at": region("__device__ int n; __device__ int* const p = &n;"),
    "device variable whose size is a constant": region(
        "__device__ int n[4]; enum { kSize = sizeof(n) }; static_assert(sizeof(n) == 16);", "(void)kSize;"
    ),
    "device variable in a static assertion": region("__device__ int n; static_assert(&n != nullptr);"),
    "member named like a device variable": region("__device__ int n; struct S { int n; };"),
    "device variable in a kernel's class": region(
        "__device__ int n[4]; struct S { const int* at; __device__ S() : at(n) {} };"
    ),
    "parameter of a prototype named like a device variable": region(
        "__device__ int v; void f(int v); void f(int v) {}"
    ),
    "device variables in symbol calls": region(
        "__device__ int v, w[4]; namespace mine { __device__ int u; }",
        "void* p; cudaGetSymbolAddress(&p, (v)); cudaGetSymbolAddress(&p, mine::u);"
        "cudaGetSymbolAddress(&p, n > 3 ? v : ::v); cudaMemcpyToSymbol((const void*)&v, &n, sizeof(w[0]));",
    ),
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
