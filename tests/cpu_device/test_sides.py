"""What nvcc refuses because it mixes host and device up, and what looks like that and is right.

Each line was given to nvcc 13.0 with the text before it, and refused or taken by it as it says here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cpu.sides import MixedSides, refuse_mixed_sides

BEFORE = """
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#define ON_DEVICE __device__ __forceinline__
float of_host(float x) { return x; }
constexpr int counted(int n) { return n + 1; }
template <class Value> Value handed_back(Value value) { return value; }
struct Held { static int go(int n) { return n; } };
__device__ float of_device(float x) { return __expf(x); }
__host__ __device__ float of_both(float x) { return x; }
ON_DEVICE float by_macro(float x) { return x; }
float max(float a, float b, float c) { return a + b + c; }
template <class Call> __host__ __device__ float applied(Call call, float x) { return call(x); }
constexpr float weights[3] = {1, 2, 3};
constexpr int counts[3] = {1, 2, 3};
__constant__ float constants[3];
constexpr int width = 3;
__global__ void other_kernel(float* p) { p[0] = 1; }
"""
KERNEL = "__global__ void kernel(float* p, float x, int n) {{ {} }}"
WRAPPER = "void wrapper(float* p, float x, int n) {{ {} }}"
NOT_ALLOWED = "is not allowed"
RELAXED = ["--expt-relaxed-constexpr"]


def said(text: str, flags: list[str] | None = None) -> str:
    """The mistake in the line behind the text before it; empty where there is none."""
    try:
        refuse_mixed_sides(BEFORE + text, flags or [])
    except MixedSides as error:
        return error.message if error.line == BEFORE.count("\n") + 1 else f"line {error.line}"
    return ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p[0] = of_host(x);", 'a __host__ function("of_host") from a __global__ function("kernel") is not allowed'),
        ("p[0] = counted(n);", 'a constexpr __host__ function("counted")'),
        ("constexpr int m = counted(3); p[0] = m;", 'a constexpr __host__ function("counted")'),
        ("p[0] = handed_back<int>(3);", '"handed_back"'),
        ("p[0] = Held::go(n);", '"go"'),
        ("auto f = [](float v) { return of_host(v); }; p[0] = f(x);", '"of_host"'),
        ("p[0] = memcmp(p, p + 1, 4);", '"memcmp"'),
        ("std::memmove(p, p + 1, 4);", '"memmove"'),
        ("qsort(p, n, 4, nullptr);", '"qsort"'),
        ("std::swap(p[0], p[1]);", '"swap"'),
        ("std::sort(p, p + n);", '"sort"'),
        ("p[0] = std::max(p[0], x);", 'a constexpr __host__ function("max")'),
        ("p[0] = std::numeric_limits<float>::infinity();", 'a constexpr __host__ function("infinity")'),
        ("p[0] = weights[1];", '"weights" is undefined'),
        ("p[0] = weights[n];", 'identifier "weights" is undefined in device code'),
        ("for (int i = 0; i < 3; ++i) p[i] = weights[i];", '"weights" is undefined'),
        ("for (float w : weights) p[0] += w;", '"weights" is undefined'),
        ("switch (n) { case 1: p[0] = counts[1]; }", 'identifier "counts" is undefined in device code'),
        ("if (counts[1] == 2) p[0] = x;", 'identifier "counts" is undefined in device code'),
        ("if constexpr (counts[1] == 2) p[0] = counts[0];", 'identifier "counts" is undefined in device code'),
        ("other_kernel(p);", "a __global__ function call must be configured"),
    ],
)
def test_device_code_has_nothing_of_the_hosts(line: str, words: str) -> None:
    assert words in said(KERNEL.format(line))


@pytest.mark.parametrize(
    "line",
    [
        "p[0] = of_device(x) + of_both(x) + by_macro(x);",
        "p[0] = max(x, 1.0f) + std::sqrt(x) + std::abs(x) + fminf(x, 2.0f);",
        "auto f = [](float v) { return v + 1; }; p[0] = applied(f, x) + f(x);",
        "auto of_host = [](float v) { return v + 1; }; p[0] = of_host(x);",
        "p[0] = width + constants[n];",
        "constexpr float w = weights[2]; p[0] = w;",
        "static_assert(counts[1] == 2); if constexpr (counts[1] == 2) p[0] = x;",
        "int own[counts[1]]; own[0] = n; p[0] = own[0]; enum { kSecond = counts[1] }; p[1] = kSecond;",
        "switch (n) { case counts[1]: p[0] = x; }",
        "const float weights[3] = {1, 2, 3}; p[0] = weights[n];",
        "memcpy(p, p + 1, 4); memset(p, 0, n); p[0] = std::move(x);",
        "p[0] = sizeof(of_host(x));",
    ],
)
def test_device_code_that_only_looks_so(line: str) -> None:
    assert said(KERNEL.format(line)) == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "p[0] = of_device(x);",
            'a __device__ function("of_device") from a __host__ function("wrapper") is not allowed',
        ),
        ("auto f = [&] { return of_device(x); }; f();", '"of_device"'),
        ("x = (of_device)(x);", '"of_device"'),
        ("x = __expf(x);", '"__expf"'),
        ("atomicAdd(p, x);", '"atomicAdd"'),
        ("n = __float_as_int(x);", '"__float_as_int"'),
        ("other_kernel(p);", "a __global__ function call must be configured"),
    ],
)
def test_host_code_has_nothing_of_the_devices(line: str, words: str) -> None:
    assert words in said(WRAPPER.format(line))


@pytest.mark.parametrize(
    "line",
    [
        "other_kernel<<<1, 32>>>(p);",
        "x = of_both(x) + of_host(x) + weights[n] + counted(n) + std::max(x, 1.0f);",
        "using Result = decltype(of_device(x)); Result r = 1; x = r;",
        "int many = 0; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&many, other_kernel, 128, 0);",
    ],
)
def test_host_code_that_only_looks_so(line: str) -> None:
    assert said(WRAPPER.format(line)) == ""


def test_what_is_for_both_sides_may_call_either() -> None:
    """nvcc warns, and no more."""
    assert said("__host__ __device__ float twice(float x) { return of_host(x) + of_host(x); }") == ""


def test_what_the_compiler_writes_itself_is_for_both_sides() -> None:
    assert said("struct Kept { Kept() = default; int n; }; " + KERNEL.format("p[0] = Kept().n;")) == ""


def test_one_of_several_arrays_of_a_name_may_be_the_devices() -> None:
    kernel = KERNEL.format("p[0] = weights[n];")
    assert said("namespace other { __constant__ float weights[3]; " + kernel + " }") == ""


def test_a_macro_of_the_name_may_be_anything() -> None:
    assert said("#define of_host(x) of_device(x)\n" + KERNEL.format("p[0] = of_host(x);")) == ""


def test_relaxed_constexpr_is_a_flag() -> None:
    line = KERNEL.format("p[0] = counted(n) + std::max(n, 3) + std::numeric_limits<float>::max();")
    assert NOT_ALLOWED in said(line)
    assert said(line, RELAXED) == ""
    assert "of_host" in said(KERNEL.format("p[0] = of_host(x);"), RELAXED)


def test_it_is_an_error_of_the_compiler(tmp_path: Path) -> None:
    source = "__device__ float twice(float x) { return 2 * x; }\n\nvoid run(float* p) { p[0] = twice(1); }\n"
    compiled = CpuDevice().compile(source, [], "candidate", tmp_path)
    assert compiled.object is None
    assert compiled.unsupported is None
    wanted = (
        'candidate.cu:3: error: calling a __device__ function("twice") from a __host__ function("run") is not allowed'
    )
    assert compiled.log == wanted
