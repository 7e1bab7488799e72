// Bandwidths: reading, writing and copying a buffer far larger than the L2 cache, the best of several shapes.
#pragma once

#include <initializer_list>
#include "measuring.h"

template <int kLoads> __global__ void read_kernel(const uint4* data, size_t vectors, unsigned int* result) {
    unsigned int mixed = 0;
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (size_t first = thread; first < vectors; first += kLoads * threads) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            loaded[k] = first + k * threads < vectors ? data[first + k * threads] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            mixed |= loaded[k].x | loaded[k].y | loaded[k].z | loaded[k].w;
    }
    if (mixed == 0xdeadbeefu) // never: the buffer is zero, and the compiler does not know
        *result = mixed;
}

__global__ void write_kernel(uint4* data, size_t vectors, unsigned int value) {
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += threads)
        data[i] = make_uint4(value, value, value, value);
}

template <int kLoads> __global__ void copy_kernel(const uint4* from, uint4* to, size_t vectors) {
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (size_t first = thread; first < vectors; first += kLoads * threads) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            if (first + k * threads < vectors)
                loaded[k] = from[first + k * threads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            if (first + k * threads < vectors)
                to[first + k * threads] = loaded[k];
    }
}

// Bytes per second; `copy` counts what is read and what is written.
struct Bandwidths {
    double read = 0, write = 0, copy = 0;
};

inline Bandwidths measure_memory(int processors) {
    constexpr int kRepetitions = 6;
    size_t free_bytes = 0, total_bytes = 0;
    CHECKED(cudaMemGetInfo(&free_bytes, &total_bytes));
    size_t vectors = std::min<size_t>(size_t{4} << 30, free_bytes / 2) / sizeof(uint4) / 2 * 2;
    size_t bytes = vectors * sizeof(uint4), half = vectors / 2;
    uint4* data = nullptr;
    unsigned int* result = nullptr;
    CHECKED(cudaMalloc(&data, bytes));
    CHECKED(cudaMalloc(&result, sizeof *result));
    CHECKED(cudaMemset(data, 0, bytes));
    Bandwidths best;
    auto keep = [&](double& kept, const auto& launch) {
        kept = std::max(kept, bytes / least_seconds(kRepetitions, launch));
    };
    keep(best.write, [&] { CHECKED(cudaMemsetAsync(data, 0, bytes)); });
    keep(best.copy,
         [&] { CHECKED(cudaMemcpyAsync(data + half, data, bytes / 2, cudaMemcpyDeviceToDevice)); });
    for (int blocks : {8, 16, 64})
        for (int threads : {256, 512}) {
            int grid = processors * blocks;
            keep(best.read, [&] { read_kernel<4><<<grid, threads>>>(data, vectors, result); });
            keep(best.read, [&] { read_kernel<8><<<grid, threads>>>(data, vectors, result); });
            keep(best.write, [&] { write_kernel<<<grid, threads>>>(data, vectors, 0); });
            keep(best.copy, [&] { copy_kernel<2><<<grid, threads>>>(data, data + half, half); });
            keep(best.copy, [&] { copy_kernel<4><<<grid, threads>>>(data, data + half, half); });
        }
    CHECKED(cudaFree(data));
    CHECKED(cudaFree(result));
    return best;
}
