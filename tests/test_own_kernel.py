"""A kernel that somebody brings: a host function of its own name, kernels of any name, parameters of many types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cudamaster.core.errors import CardError
from cudamaster.core.values import Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.guards.renaming import as_candidate
from cudamaster.guards.signature import canonical_type
from cudamaster.tasks import cards, harness
from cudamaster.workbench.evaluation import Workbench

CARD = """
id: 1
name: masked_means
wrapper: launch_stats
title: Masked means
category: own
summary: Of each row the elements that are masked, and their mean in double, scaled; their scaled values in half too.
formula: means[i] = scale * sum_j mask[i][j] x[i][j] / max(1, counts[i])
precisions: [fp32]
sizes: {rows: null, cols: null, scale: 0.75, absolute: 0}
parameters:
  - {name: x, type: T, role: input, shape: [rows, cols], meaning: values}
  - {name: mask, type: unsigned char, role: input, shape: [rows, cols], meaning: 1 for what counts}
  - {name: shift, type: long long, role: input, shape: [cols], meaning: what is added to the values of a column}
  - {name: counts, type: long long, role: output, shape: [rows], check: exact, cost: cols, meaning: elements that count}
  - {name: means, type: double, role: output, shape: [rows], cost: cols, meaning: their mean}
  - {name: flags, type: bool, role: output, shape: [rows], check: exact, cost: cols, meaning: whether there are any}
  - {name: scaled, type: half, role: output, shape: [rows, cols], meaning: each value times scale}
  - {name: scale, type: double, meaning: the factor}
  - {name: absolute, type: bool, meaning: whether absolute values are taken}
  - {name: rows, type: int, meaning: rows}
  - {name: cols, type: size_t, meaning: columns}
  - {name: stream, type: stream, meaning: where it runs}
inputs: ["uniform(x, -1, 1)", "integers(mask, 0, 1)", "uniform(shift, -3, 4)"]
sweep: [{rows: 96, cols: 200}]
verify: [{rows: 1, cols: [1, 33]}, {rows: 3, cols: [7, 256], absolute: 1, scale: -2.5}]
held_out: [{rows: [1, 9], cols: [1, 300], scale: [-2.0, 2.0], absolute: [0, 1]}]
held_out_large: [{rows: [60, 90], cols: [100, 200], scale: [-2.0, 2.0], absolute: [0, 1]}]
weight: rows * cols
floor: {bytes_read: 5 * rows * cols + 8 * cols, bytes_written: 2 * rows * cols + 17 * rows, operations: 2 * rows * cols}
"""
REFERENCE = """
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> struct Row {
    double sum = 0, size = 0, count = 0;
    Row(const T* x, const unsigned char* mask, const long long* shift, bool absolute, size_t row, size_t cols) {
        for (size_t j = 0; j < cols; ++j)
            if (mask[row * cols + j]) {
                double value = mskb::to_double(x[row * cols + j]) + mskb::to_double(shift[j]);
                sum += absolute ? std::abs(value) : value, size += std::abs(value), ++count;
            }
    }
};

template <class T>
void masked_means_reference(const T* x, const unsigned char* mask, const long long* shift, mskb::Expected& counts,
                            mskb::Expected& means, mskb::Expected& flags, mskb::Expected& scaled, double scale,
                            bool absolute, int rows, size_t cols) {
    for (size_t k = 0; k < counts.wanted.size(); ++k)
        counts.set(k, Row<T>(x, mask, shift, absolute, counts.wanted[k], cols).count, 0);
    for (size_t k = 0; k < flags.wanted.size(); ++k)
        flags.set(k, Row<T>(x, mask, shift, absolute, flags.wanted[k], cols).count > 0, 0);
    for (size_t k = 0; k < means.wanted.size(); ++k) {
        Row<T> row(x, mask, shift, absolute, means.wanted[k], cols);
        double many = row.count > 0 ? row.count : 1;
        means.set(k, scale * row.sum / many, std::abs(scale) * row.size / many);
    }
    for (size_t k = 0; k < scaled.wanted.size(); ++k) {
        double value = scale * mskb::to_double(x[scaled.wanted[k]]);
        scaled.set(k, value, std::abs(value));
    }
}
"""
# Kernels are called like locals, members, parameters of a macro and functions of the runtime.
BASELINE = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <algorithm>

#define LAUNCH(kernel, n, ...) \
    kernel<<<(unsigned)(((n) + 255) / 256), 256, 0, stream>>>(__VA_ARGS__)

// scale: how the values are shifted
namespace mine {
struct State { double sum; long long count; };
enum class Do { sum, scale };
__constant__ const double kOnes[2] = {0.0, 1.0};

__device__ double shifted(float value, long long shift, bool absolute) {
    double sum = value + (double)shift;
    return absolute ? fabs(sum) : sum;
}

template <int B>
static __global__ void __launch_bounds__(B) sum(const float* x, const uint8_t* mask, const int64_t* shift,
                                                long long* counts, double* means, double scale, bool absolute,
                                                size_t cols, Do what = Do::sum) {
    __shared__ State state[B];
    size_t row = blockIdx.x;
    State own = {0, 0};
    for (size_t j = threadIdx.x; j < cols; j += B) {
        own.sum += kOnes[mask[row * cols + j]] * shifted(x[row * cols + j], shift[j], absolute);
        own.count += mask[row * cols + j];
    }
    state[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x > 0 || what != Do::sum)
        return;
    double sum = 0;
    long long count = 0;
    for (int k = 0; k < B; ++k)
        sum += state[k].sum, count += state[k].count;
    counts[row] = count;
    means[row] = scale * sum / (count > 0 ? count : 1);
}
} // namespace mine

__global__ void x(bool* flags, const long long* counts, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows)
        flags[i] = counts[i] > 0;
}

__global__ void scale(__half* scaled, const float* x, double scale, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        scaled[i] = __float2half((float)(scale * x[i]));
}

extern "C"
void launch_stats(const float* in, const uint8_t* mask, const int64_t* shift, long long* counts, double* means,
                  bool* flags, half* scaled, double factor, bool absolute, int rows, size_t cols,
                  cudaStream_t stream) {
    mine::sum<64><<<rows, 64, 0, stream>>>(in, mask, shift, counts, means, factor, absolute, cols);
    LAUNCH(x, std::max(rows, 1), flags, counts, rows);
    LAUNCH(scale, rows * cols, scaled, in, factor, rows * cols);
}
"""
# What to write in place of what, the status that follows, and what is said.
WRONG = [
    ("counts[row] = count;", "counts[row] = count + (row == 2);", Status.WRONG, "counts: 1 of 3 elements wrong"),
    ("scale * sum /", "(float)(scale * sum) /", Status.WRONG, "means: "),
    ("if (i < rows)", "if (i > 0 && i < rows)", Status.WRONG, "one element, 0; as it was before the call"),
    ("double* means,\n                  bool", "float* means,\n                  bool", Status.REJECTED,
     "the wrapper takes 'float* means' where double* means is due"),
]  # fmt: skip


@pytest.fixture
def card(tmp_path: Path) -> cards.TaskCard:
    for name, text in (
        ("tasks/masked_means.yaml", CARD),
        ("reference/masked_means.h", REFERENCE),
        ("fp32/masked_means.cu", BASELINE),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return cards.load(str(tmp_path / "tasks" / "masked_means.yaml"))


@pytest.mark.slow
def test_it_is_judged_as_any_other(card: cards.TaskCard) -> None:
    """The baseline under its new names is right. Wrong elements of each type are found, and a wrong type is named."""
    region = harness.baseline_region(card, Precision.FP32)
    assert "void launch_stats_optimized(" in region
    assert region.count("scale_optimized") == 2  # where it is defined, and launched by a macro
    assert "mine::sum_optimized<64><<<" in region
    assert "LAUNCH(x_optimized," in region
    assert "Do::sum" in region

    bench = Workbench(card, Precision.FP32, CpuDevice(), calls=1, modelled=False)
    verdict = bench.evaluate(bench.baseline)
    assert verdict.status is Status.CORRECT, verdict

    for before, after, status, said in WRONG:
        assert before in region
        verdict = bench.evaluate(replace(bench.baseline, code=region.replace(before, after)), check_only=True)
        assert (verdict.status, said in verdict.detail) == (status, True), verdict.detail


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (
            "integers(mask, 0, 1)",
            "integers(mask, 0, 300)",
            r"unsigned char, from 0 to 255, and .* 0 \.\. 300",
        ),
        ("uniform(shift, -3, 4)", "spiked(shift, -3, 4)", "spiked cannot fill shift, which is of long long"),
        ("uniform(shift, -3, 4)", "uniform(shift, 0, 1)", "every element of shift, of long long, is 0"),
        ("uniform(shift, -3, 4)", "uniform(shift, -3, 4, 1e30)", r"of long long, .* uniform makes -4e\+30 \.\. 4e\+30"),
        ("uniform(x, -1, 1)", "uniform(x, -1, 1, -5)", "outliers of x are -5 times as large .* 1 is the least"),
        ("uniform(x, -1, 1)", "uniform(x, -1, 1, 0)", "outliers of x are 0 times as large .* 1 is the least"),
        ("uniform(x, -1, 1)", "uniform(x, -1, 1, 1e39)", r"outliers of x are up to 1e\+39 .* float holds at most 3\.4"),
        ("absolute: 0}", "absolute: 2}", "absolute is 2 in case .* bool holds whole numbers from 0 to 1"),
        ("shape: [cols],", "shape: [cols], length: rows,", "give its length or its shape, not both"),
        ("type: stream,", "type: stream, role: input, length: rows,", "a stream is a scalar"),
        ("wrapper: launch_stats", "wrapper: launch stats", "wrapper"),
    ],
)
def test_a_card_that_its_types_do_not_fit_is_refused(before: str, after: str, why: str, tmp_path: Path) -> None:
    assert before in CARD
    path = tmp_path / "masked_means.yaml"
    path.write_text(CARD.replace(before, after))
    with pytest.raises(CardError, match=why):
        cards.load(str(path))


def test_only_kernels_and_the_wrapper_are_renamed() -> None:
    """Each `@` is where a name is a kernel's or the wrapper's."""
    marked = r"""
#define LAUNCH(kernel, n) kernel<<<n, 1>>>(n)
#define BOTH(n) mine::k@<<<n, \
    1>>>(n), exp@<<<1, n>>>(n), exp(n)
#define NAME run@
namespace mine {
enum class Op { k, exp };
struct State { float k; __device__ float get() { return k; } };
template <int B> __launch_bounds__(B) __global__ void k@(int n) { for (int k = n; k > 0; --k) exp(k * 2.0f); }
template __global__ void k@<8>(int n);
} // namespace mine
namespace m = mine;
__global__ void __launch_bounds__(64) exp@(int n); // exp and run
__global__ void exp@(int exp) { State s{.k = exp}; s.k = exp + std::exp(1.0) + (m::Op::exp == m::Op::k); }
static void run@(double) {}
extern "C" void NAME(int n, State* s) {
    run@(2.0), s->run(1), "exp";
    m::k@<4><<<n, 1>>>(n);
    using mine::k@;
    cudaFuncSetAttribute(k@<16>, cudaFuncAttributeMaxDynamicSharedMemorySize, n);
    LAUNCH(exp@, n);
    void* launched = (void*)&exp@;
    auto [k, run] = pair(s);
    if (int exp = n) k<exp>(run);
}
"""
    assert as_candidate(marked.replace("@", ""), "run") == marked.replace("@", "_optimized")
    assert "// exp_optimized and run_optimized" in as_candidate(marked.replace("@", ""), "run", comments=True)


def test_one_type_has_many_names() -> None:
    for names in (
        ["long long", "const int64_t", "std::int64_t", "long long int", "long", "ptrdiff_t"],
        ["size_t", "unsigned long long", "uint64_t", "unsigned long int"],
        ["unsigned char*", "const uint8_t*", "std::uint8_t*", "unsigned char[]"],
        ["__half*", "const half*", "nv_half*"],
        ["cudaStream_t", "CUstream", "struct CUstream_st*", "const cudaStream_t"],
    ):
        assert len({canonical_type(name) for name in names} - {None}) == 1, names
    different = ["unsigned char", "char", "signed char", "bool", "int", "unsigned", "long", "size_t", "float", "double"]
    assert len({canonical_type(name) for name in different}) == len(different)
