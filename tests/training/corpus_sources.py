"""CUDA sources that a corpus is made of in tests, with licences."""

from __future__ import annotations

MIT = """MIT License

Copyright (c) 2021 Ada Example <ada@example.org>

Permission is hereby granted, free of charge, to any person obtaining a copy of this software, to deal in it.
"""
GPL_HEAD = """/* Copyright (C) 2019 Grace Example
 * This program is free software; you can redistribute it and/or modify it under the terms of the
 * GNU General Public License as published by the Free Software Foundation; either version 3 of the
 * License, or (at your option) any later version. */
"""
# Two kernels that share a launcher, one that is alone, what they need, and what nobody needs.
HISTOGRAM = """// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2020 The Histogram Authors

#include <cuda_runtime.h>
#include "bins.h"

#define UNUSED_LIMIT 12
#define CHECK(call) check_status((call), __FILE__, __LINE__)
#ifdef WIDE_BINS
#define BINS 1024
#else
#define BINS 256
#endif

namespace counting {
namespace {

constexpr int kThreads = 128; // of a block
constexpr int kNobody = 5;

void check_status(cudaError_t status, const char* file, int line) {
    if (status != cudaSuccess) throw file;
}

// The bin of a value.
__device__ __forceinline__ int bin_of(float value) {
    return min(max(static_cast<int>(value * BINS), 0), BINS - 1);
}

__device__ int nobody_calls_this(int value) { return value + kNobody; }

} // namespace

// Counts in shared memory first.
template <int kPerThread>
__global__ void __launch_bounds__(kThreads) count_kernel(const float* values, unsigned* bins, int n) {
    __shared__ unsigned local[BINS];
    for (int i = threadIdx.x; i < BINS; i += kThreads) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
        atomicAdd(&local[bin_of(values[i])], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += kThreads) atomicAdd(&bins[i], local[i]);
}

__global__ void clear_kernel(unsigned* bins) { bins[blockIdx.x * blockDim.x + threadIdx.x] = 0; }

void histogram(const float* values, unsigned* bins, int n) {
    clear_kernel<<<BINS / kThreads, kThreads>>>(bins);
    count_kernel<4><<<132, kThreads>>>(values, bins, n);
    CHECK(cudaGetLastError());
}

__global__ void alone_kernel(float* x) { x[threadIdx.x] *= 2.0f; }

} // namespace counting
"""


def kernel(name: str, body: str, head: str = "") -> str:
    return f"""{head}#include <cuda_runtime.h>
// Does {name}.
__global__ void {name}_kernel(float* out, const float* in, int n) {{
    extern __shared__ float staged[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{body}
}}
void {name}(float* out, const float* in, int n) {{ {name}_kernel<<<(n + 255) / 256, 256, 1024>>>(out, in, n); }}
"""


SCAN = kernel(
    "scan",
    """    float sum = i < n ? in[i] : 0.0f;
    for (int step = 1; step < 32; step *= 2) {
        float other = __shfl_up_sync(0xffffffffu, sum, step);
        if ((threadIdx.x & 31) >= step) sum += other;
    }
    if ((threadIdx.x & 31) == 31) staged[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (i < n) out[i] = sum + (threadIdx.x >> 5 ? staged[(threadIdx.x >> 5) - 1] : 0.0f);""",
)
MEDIAN = kernel(
    "median",
    """    while (i < n) {
        float a = in[max(i - 1, 0)], b = in[i], c = in[min(i + 1, n - 1)];
        out[i] = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
        i += gridDim.x * blockDim.x;
    }""",
)
# As MEDIAN with other names and numbers.
MEDIAN_AGAIN = (
    MEDIAN.replace("median", "middle").replace("256", "512").replace("b =", "centre =").replace(", b", ", centre")
)
