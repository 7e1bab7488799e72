// What threads wait for when they meet: barriers of a block, a cluster and the grid, another block's shared memory, fences,
// and the start of the next block. Cycles of an SM.
#pragma once

#include <cooperative_groups.h>
#include <vector>
#include "harness/figures/runtime.h"

constexpr int kMeetings = 256;
constexpr int kApart = 1024; // words

// Cycles of one pass of `step`, by the first thread of each block.
template <class Step> static __device__ void timed(float* cycles, const Step& step) {
    step(0);
    long long start = clock64();
    for (int i = 0; i < kMeetings; ++i)
        step(i);
    if (threadIdx.x == 0)
        cycles[blockIdx.x] = static_cast<float>(clock64() - start) / kMeetings;
}

static __global__ void block_barrier_kernel(float* cycles) {
    timed(cycles, [](int) { __syncthreads(); });
}

static __global__ void grid_barrier_kernel(float* cycles) {
    auto grid = cooperative_groups::this_grid();
    timed(cycles, [&](int) { grid.sync(); });
}

// A store that others may see, and a fence. Slices of L2 are more or less far away, so each pass has a line of its own.
static __global__ void fence_kernel(float* cycles, volatile unsigned int* words) {
    timed(cycles, [&](int i) {
        words[i * kApart] = 0;
        __threadfence();
    });
}

// An atomic whose answer says where the next one goes: a ticket.
static __global__ void ticket_kernel(float* cycles, unsigned int* words) {
    unsigned int at = 0;
    timed(cycles, [&](int i) { at = atomicAdd(words + i * kApart + at, 0u); });
    if (at != 0) // never
        *cycles = 0;
}

// Clusters are known from compute capability 9.0 on.
static __global__ void cluster_barrier_kernel(float* cycles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    auto cluster = cooperative_groups::this_cluster();
    timed(cycles, [&](int) { cluster.sync(); });
#endif
}

// Follows indices in the shared memory of the next block, or loads that do not wait for each other.
static __global__ void remote_kernel(float* cycles, unsigned int* result, bool chained) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    __shared__ unsigned int next[1024];
    auto cluster = cooperative_groups::this_cluster();
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        next[i] = static_cast<unsigned int>(i + 33) % 1024;
    cluster.sync();
    const unsigned int* other = cluster.map_shared_rank(next, cluster.block_rank() ^ 1);
    unsigned int at = threadIdx.x, sum = 0;
    if (chained)
        timed(cycles, [&](int) { at = other[at]; });
    else
        timed(cycles, [&](int i) { sum += other[(threadIdx.x + 32 * i) % 1024]; });
    if (at + sum == 0xdeadbeefu) // never
        *result = at;
    cluster.sync();
#endif
}

struct Together {
    double start = 0, barrier = 0, barrier_warp = 0, grid_barrier = 0, fence = 0, ticket = 0;
    // 0 without clusters.
    double cluster_barrier = 0, cluster_barrier_warp = 0, remote_latency = 0, remote = 0;
};

inline Together measure_together(int processors, int major, double clock_mhz) {
    constexpr int kFew = 32, kMany = 1024, kPair = 2;
    float* cycles = nullptr;
    unsigned int *result = nullptr, *words = nullptr;
    CHECKED(cudaMallocManaged(&cycles, processors * sizeof *cycles));
    CHECKED(cudaMalloc(&words, kMeetings * kApart * sizeof *words));
    CHECKED(cudaMemset(words, 0, kMeetings * kApart * sizeof *words));
    CHECKED(cudaMalloc(&result, sizeof *result));
    CHECKED(cudaMemset(result, 0, sizeof *result));
    auto least = [&](const auto& launch) {
        float best = 1e30f;
        for (int repetition = 0; repetition < 5; ++repetition) {
            launch();
            CHECKED(cudaDeviceSynchronize());
            best = std::min(best, cycles[0]);
        }
        return static_cast<double>(best);
    };
    auto attributed = [&](int blocks, int threads, cudaLaunchAttribute attribute, auto kernel,
                          auto... arguments) {
        cudaLaunchConfig_t config = {};
        config.gridDim = blocks;
        config.blockDim = threads;
        config.attrs = &attribute;
        config.numAttrs = 1;
        return least([&] { CHECKED(cudaLaunchKernelEx(&config, kernel, arguments...)); });
    };
    Together found;
    double few = least([&] { block_barrier_kernel<<<1, kFew>>>(cycles); });
    double many = least([&] { block_barrier_kernel<<<1, kMany>>>(cycles); });
    found.barrier_warp = (many - few) / ((kMany - kFew) / 32.0);
    found.barrier = few - found.barrier_warp;
    found.fence = least([&] { fence_kernel<<<1, 1>>>(cycles, words); });
    found.ticket = least([&] { ticket_kernel<<<1, 1>>>(cycles, words); });
    cudaLaunchAttribute whole_grid = {};
    whole_grid.id = cudaLaunchAttributeCooperative;
    whole_grid.val.cooperative = 1;
    found.grid_barrier = attributed(processors, 256, whole_grid, grid_barrier_kernel, cycles);
    if (major >= 9) {
        cudaLaunchAttribute pair = {};
        pair.id = cudaLaunchAttributeClusterDimension;
        pair.val.clusterDim.x = kPair;
        pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
        few = attributed(kPair, kFew, pair, cluster_barrier_kernel, cycles);
        many = attributed(kPair, kMany, pair, cluster_barrier_kernel, cycles);
        found.cluster_barrier_warp = (many - few) / ((kMany - kFew) / 32.0);
        found.cluster_barrier = few - found.cluster_barrier_warp;
        found.remote_latency = attributed(kPair, kFew, pair, remote_kernel, cycles, result, true);
        constexpr int kWarps = 8;
        found.remote = attributed(kPair, 32 * kWarps, pair, remote_kernel, cycles, result, false) / kWarps;
    }
    // Rounds of empty blocks on all SMs.
    auto blocks = [&](int rounds) {
        return median_device_us(clock_mhz, [&] { nothing_kernel<<<rounds * processors, 128>>>(); });
    };
    constexpr int kRounds = 100;
    found.start = (blocks(2 * kRounds) - blocks(kRounds)) / kRounds * clock_mhz;
    CHECKED(cudaFree(cycles));
    CHECKED(cudaFree(words));
    CHECKED(cudaFree(result));
    return found;
}
