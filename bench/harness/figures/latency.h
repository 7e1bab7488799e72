// Latencies by a thread that follows pointers, each load waiting for the one before, and what L2 does at best: bytes a
// second, and atomics on different sectors and on one address.
#pragma once

#include <random>
#include <vector>
#include "harness/limits/measuring.h"

constexpr int kHops = 2048;

enum class Level { kL1, kL2 };

// Cycles of one load: a ring of 4-byte indices, whose first turn brings it to where it is to be found.
template <Level level>
__global__ void chase_kernel(const unsigned int* next, int warm, int hops, float* cycles,
                             unsigned int* result) {
    unsigned int at = 0;
    for (int i = 0; i < warm; ++i)
        at = level == Level::kL1 ? __ldca(next + at) : __ldcg(next + at);
    long long start = clock64();
    for (int i = 0; i < hops; ++i)
        at = level == Level::kL1 ? __ldca(next + at) : __ldcg(next + at);
    *cycles = static_cast<float>(clock64() - start) / static_cast<float>(hops);
    *result = at;
}

__global__ void chase_shared_kernel(int hops, float* cycles, unsigned int* result) {
    __shared__ unsigned int next[1024];
    for (int i = 0; i < 1024; ++i)
        next[i] = static_cast<unsigned int>(i + 33) % 1024;
    unsigned int at = 0;
    long long start = clock64();
    for (int i = 0; i < hops; ++i)
        at = next[at];
    *cycles = static_cast<float>(clock64() - start) / static_cast<float>(hops);
    *result = at;
}

// Clears L2 of what a chase before left there.
__global__ void overwrite_kernel(uint4* data, size_t vectors) {
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += threads)
        data[i] = make_uint4(1, 2, 3, 4);
}

struct Latencies {
    float shared = 0, l1 = 0, l2 = 0, memory = 0;
};

// A ring through `places` lines of 128 bytes in random order.
inline void ring(unsigned int* device, size_t places) {
    std::vector<unsigned int> order(places), next(places * 32, 0);
    for (size_t i = 0; i < places; ++i)
        order[i] = static_cast<unsigned int>(i);
    std::mt19937 random(7);
    for (size_t i = places - 1; i > 1; --i) // the ring begins at 0
        std::swap(order[i], order[1 + random() % i]);
    for (size_t i = 0; i < places; ++i)
        next[order[i] * 32] = order[(i + 1) % places] * 32;
    CHECKED(cudaMemcpy(device, next.data(), next.size() * sizeof(unsigned int), cudaMemcpyHostToDevice));
}

inline Latencies measure_latencies(size_t l2_bytes) {
    constexpr size_t kPlaces = 16384; // 2 MB, which all L2s hold
    unsigned int *data = nullptr, *result = nullptr;
    uint4* other = nullptr;
    float* cycles = nullptr;
    size_t vectors = 3 * l2_bytes / sizeof(uint4);
    CHECKED(cudaMalloc(&data, kPlaces * 128));
    CHECKED(cudaMalloc(&other, vectors * sizeof(uint4)));
    CHECKED(cudaMalloc(&result, sizeof *result));
    CHECKED(cudaMallocManaged(&cycles, sizeof *cycles));
    auto least = [&](const auto& launch) {
        float best = 1e30f;
        for (int repetition = 0; repetition < 5; ++repetition) {
            launch();
            CHECKED(cudaDeviceSynchronize());
            best = std::min(best, *cycles);
        }
        return best;
    };
    Latencies found;
    found.shared = least([&] { chase_shared_kernel<<<1, 1>>>(kHops, cycles, result); });
    ring(data, 64);
    found.l1 = least([&] { chase_kernel<Level::kL1><<<1, 1>>>(data, 64, kHops, cycles, result); });
    ring(data, kPlaces);
    found.l2 = least([&] { chase_kernel<Level::kL2><<<1, 1>>>(data, kPlaces, kHops, cycles, result); });
    found.memory = least([&] {
        overwrite_kernel<<<1024, 256>>>(other, vectors);
        chase_kernel<Level::kL2><<<1, 1>>>(data, 0, kHops, cycles, result);
    });
    for (void* each : {static_cast<void*>(data), static_cast<void*>(other), static_cast<void*>(result),
                       static_cast<void*>(cycles)})
        CHECKED(cudaFree(each));
    return found;
}

// Reads a buffer that L2 holds, past L1, again and again; each block begins elsewhere.
__global__ void l2_kernel(const uint4* data, int vectors, int turns, unsigned int* result) {
    unsigned int mixed = 0;
    int threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int turn = 0; turn < turns; ++turn) {
        int shift = (turn * 977) % gridDim.x * blockDim.x;
        for (int i = first; i < vectors; i += 4 * threads) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                int at = i + k * threads + shift;
                at -= at >= vectors ? vectors : 0;
                uint4 loaded = __ldcg(data + at);
                mixed |= loaded.x | loaded.y | loaded.z | loaded.w;
            }
        }
    }
    if (mixed == 0xdeadbeefu) // never
        *result = mixed;
}

// Bytes a second from an eighth of L2: a part that both halves of it hold.
inline double l2_rate(int processors, size_t l2_bytes) {
    uint4* data = nullptr;
    unsigned int* result = nullptr;
    double best = 0;
    constexpr int kTurns = 20;
    for (int threads : {256, 512, 1024}) {
        int grid = processors * 2048 / threads / 2;
        // A whole number of rounds of four loads, so that no thread asks for less than another.
        int round = 4 * grid * threads;
        int rounds = std::max(1, static_cast<int>(l2_bytes / 8 / sizeof(uint4)) / round);
        int vectors = rounds * round;
        CHECKED(cudaMalloc(&data, vectors * sizeof(uint4)));
        CHECKED(cudaMalloc(&result, sizeof *result));
        CHECKED(cudaMemset(data, 0, vectors * sizeof(uint4)));
        double seconds =
            least_seconds(10, [&] { l2_kernel<<<grid, threads>>>(data, vectors, kTurns, result); });
        double once = least_seconds(10, [&] { l2_kernel<<<grid, threads>>>(data, vectors, 2, result); });
        best = std::max(best, (kTurns - 2) * static_cast<double>(vectors) * sizeof(uint4) / (seconds - once));
        CHECKED(cudaFree(data));
        CHECKED(cudaFree(result));
    }
    return best;
}

// Adds to sectors in scattered order: no two lanes of a warp share one.
__global__ void scattered_kernel(float* data, unsigned int sectors, int turns) {
    unsigned int at = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u;
    for (int i = 0; i < turns; ++i) {
        at = at * 1664525u + 1013904223u;
        atomicAdd(data + (at >> 8) % sectors * 8, 1.0f);
    }
}

// One lane of each warp adds to the same word.
__global__ void hottest_kernel(float* data, int turns) {
    if (threadIdx.x % 32 == 0)
        for (int i = 0; i < turns; ++i)
            atomicAdd(data, 1.0f);
}

struct Atomics {
    double sectors_per_clock = 0, same_address_per_clock = 0;
};

inline Atomics measure_atomics(int processors, size_t l2_bytes, double clock_mhz) {
    constexpr int kThreadsOfBlock = 256;
    float* data = nullptr;
    unsigned int sectors = static_cast<unsigned int>(l2_bytes / 4 / 32);
    CHECKED(cudaMalloc(&data, static_cast<size_t>(sectors) * 32));
    CHECKED(cudaMemset(data, 0, static_cast<size_t>(sectors) * 32));
    int grid = one_wave(scattered_kernel, kThreadsOfBlock, processors);
    double all =
        best_rate([&](int turns) { scattered_kernel<<<grid, kThreadsOfBlock>>>(data, sectors, turns); });
    double one = best_rate([&](int turns) { hottest_kernel<<<grid, kThreadsOfBlock>>>(data, turns); });
    CHECKED(cudaFree(data));
    double clocks = clock_mhz * 1e6;
    return {all * grid * kThreadsOfBlock / clocks, one * grid * (kThreadsOfBlock / 32) / clocks};
}
