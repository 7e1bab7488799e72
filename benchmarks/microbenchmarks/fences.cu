// What a thread waits for at a fence of the whole GPU: nothing, stores, atomic additions, loads, and what comes behind it.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/fences.cu -o fences
//     ./fences
//
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#include "median.h"

namespace {

constexpr int kBlocks = 132, kSteps = 16;
constexpr size_t kApart = 1024, kOfBlock = kSteps * kApart; // words: a step's line, a block's stretch

enum Mode {
    kNothing,
    kAnswer,             // an atomic addition whose answer is used
    kFence,              // a fence alone
    kStoreFence,         // a store, a fence
    kStoresFence,        // eight stores to lines of their own, a fence
    kAddFence,           // an addition without an answer, a fence
    kAnswerFence,        // an addition whose answer is used, a fence
    kLoadFence,          // a load from L2, a fence
    kStoreFenceAnswer,   // a store, a fence, a ticket
    kAddFenceAnswer,     // an addition without an answer, a fence, a ticket
    kAnswerFenceAnswer,  // the same with an answer that nobody waits for before the fence
    kFenceAnswer,        // a fence, a ticket
    kStoreAnswer,        // a store and a ticket without a fence
    kStoreFenceStore,    // a store, a fence, a flag
    kStoreFenceFence,    // two fences behind one store
    kStoreFenceOfSystem, // a store, a fence of the system
    kStoreFenceOfBlock,  // a store, a fence of the block
    kLast
};
const char* const kNames[] = {"nothing",
                              "add with answer",
                              "fence",
                              "store, fence",
                              "8 stores, fence",
                              "add, fence",
                              "add with answer, fence",
                              "load, fence",
                              "store, fence, ticket",
                              "add, fence, ticket",
                              "add with late answer, fence, ticket",
                              "fence, ticket",
                              "store, ticket",
                              "store, fence, flag",
                              "store, fence, fence",
                              "store, fence of system",
                              "store, fence of block"};

__device__ __forceinline__ void add(float* to, float value) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__device__ __forceinline__ float answer(float* to, float value) {
    float old;
    asm volatile("atom.global.add.f32 %0, [%1], %2;" : "=f"(old) : "l"(to), "f"(value) : "memory");
    return old;
}
__device__ __forceinline__ float asked(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ void put(float* to, float value) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

// Each step's places lie `apart` words behind the last one's; a ticket is one word of the block. No value is ever 77, so what
// an answer adds to an address is 0, and the next step waits for it.
template <int kMode> __global__ void steps(float* words, float* tickets, size_t apart, float* cycles) {
    float* own = words + blockIdx.x * kOfBlock + threadIdx.x;
    float* ticket = tickets + blockIdx.x * 64;
    float sum = 0, late = 0;
    long long begin = clock64();
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
        float* at = own + i * apart + (sum == 77.0f);
        if (kMode == kAnswer || kMode == kAnswerFence)
            sum += answer(at, 0.0f);
        if (kMode == kAnswerFence)
            at += sum == 77.0f;
        if (kMode == kStoreFence || kMode == kStoreFenceAnswer || kMode >= kStoreAnswer)
            put(at, 0.0f);
        if (kMode == kStoresFence)
#pragma unroll
            for (int k = 0; k < 8; ++k)
                put(at + 32 * k, 0.0f);
        if (kMode == kAddFence || kMode == kAddFenceAnswer)
            add(at, 0.0f);
        if (kMode == kAnswerFenceAnswer)
            late = answer(at, 0.0f);
        if (kMode == kLoadFence)
            sum += asked(at);
        if (kMode == kStoreFenceOfSystem)
            __threadfence_system();
        else if (kMode == kStoreFenceOfBlock)
            __threadfence_block();
        else if (kMode >= kFence && kMode != kStoreAnswer)
            __threadfence();
        if (kMode == kStoreFenceFence)
            __threadfence();
        if (kMode == kStoreFenceStore)
            put(ticket, 0.0f);
        if ((kMode >= kStoreFenceAnswer && kMode <= kStoreAnswer) && threadIdx.x == 0)
            sum += answer(ticket, 0.0f);
        sum += late;
    }
    if (sum == 77.5f) // never
        put(own, sum);
    long long end = clock64();
    if (threadIdx.x == 0)
        cycles[blockIdx.x] = static_cast<float>(end - begin) / kSteps;
}

// A block's eight warps store or add, then one thread fences and takes a ticket for all of them.
template <int kKind> __global__ void of_block(float* words, float* tickets, float* cycles) {
    float* own = words + blockIdx.x * kOfBlock + threadIdx.x;
    float* ticket = tickets + blockIdx.x * 64;
    __shared__ float drawn;
    float sum = 0;
    __syncthreads();
    long long begin = clock64();
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
        float* at = own + i * kApart + (sum == 77.0f);
        if (kKind == 1 || kKind == 3)
            put(at, 0.0f);
        if (kKind == 2)
            add(at, 0.0f);
        __syncthreads();
        if (threadIdx.x == 0) {
            if (kKind != 3)
                __threadfence();
            drawn = answer(ticket, 0.0f);
        }
        __syncthreads();
        sum += drawn;
    }
    if (sum == 77.5f) // never
        put(own, sum);
    long long end = clock64();
    if (threadIdx.x == 0)
        cycles[blockIdx.x] = static_cast<float>(end - begin) / kSteps;
}

// A load that comes from L1, and the same behind a fence, which makes L1 forget.
template <bool kFenced> __global__ void l1(const float* words, float* cycles, float* never) {
    float sum = 0;
    long long begin = clock64();
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
        float value;
        asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(value) : "l"(words + (sum == 77.0f)) : "memory");
        sum += value;
        if (kFenced)
            __threadfence();
    }
    if (sum == 77.5f)
        *never = sum;
    long long end = clock64();
    cycles[0] = static_cast<float>(end - begin) / kSteps;
}

// A whole launch: each block loads, and hands its sum on in one of the ways in which kernels do that.
__global__ void ending(const float* from, float* to, unsigned* ticket, int kind, float* never) {
    float value = from[blockIdx.x * blockDim.x + threadIdx.x];
    int all = __syncthreads_count(value == 77.0f);
    if (threadIdx.x)
        return;
    if (kind == 1 || kind == 2)
        put(to + 32 * blockIdx.x, static_cast<float>(all));
    if (kind >= 3)
        add(to, static_cast<float>(all));
    if (kind == 2 || kind == 4)
        __threadfence();
    if (kind == 2 || kind >= 4)
        if (atomicAdd(ticket, 1u) == 0xfffffff0u)
            *never = 1;
}

__global__ void fill(unsigned* p, size_t n) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x)
        p[i] = p[i] * 3 + 1;
}

constexpr size_t kFlush = 256u << 20;
unsigned* flushed;
void flush() {
    fill<<<528, 512>>>(flushed, kFlush / 4);
}

float *words, *tickets, *cycles;

float median(std::vector<float> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

// The median block of the median run. Cold: nothing of it is in L2.
template <class Launch> float cycles_of(const Launch& launch, int blocks, bool cold) {
    std::vector<float> runs;
    for (int run = 0; run < 10; ++run) {
        if (cold)
            flush();
        launch();
        std::vector<float> of_blocks(blocks);
        OK(cudaMemcpy(of_blocks.data(), cycles, blocks * sizeof(float), cudaMemcpyDeviceToHost));
        if (run)
            runs.push_back(median(of_blocks));
    }
    return median(runs);
}

template <int kMode> void line() {
    auto with = [](int blocks, int threads, size_t apart, bool cold) {
        return cycles_of([=] { steps<kMode><<<blocks, threads>>>(words, tickets, apart, cycles); }, blocks,
                         cold);
    };
    std::printf("%-36s %8.0f %8.0f %8.0f %8.0f %8.0f %8.0f %8.0f\n", kNames[kMode], with(1, 1, 0, false),
                with(1, 1, kApart, false), with(1, 1, kApart, true), with(1, 32, kApart, false),
                with(kBlocks, 1, kApart, false), with(kBlocks, 32, kApart, false),
                with(kBlocks, 32, kApart, true));
    std::fflush(stdout);
    if constexpr (kMode + 1 < kLast)
        line<kMode + 1>();
}

} // namespace

int main() {
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    OK(cudaMalloc(&words, (kBlocks + 1) * kOfBlock * sizeof(float)));
    OK(cudaMemset(words, 0, (kBlocks + 1) * kOfBlock * sizeof(float)));
    OK(cudaMalloc(&tickets, kBlocks * 64 * sizeof(float)));
    OK(cudaMemset(tickets, 0, kBlocks * 64 * sizeof(float)));
    OK(cudaMalloc(&cycles, kBlocks * sizeof(float)));
    OK(cudaMalloc(&flushed, kFlush));
    std::printf("cycles of a step             blocks x threads:  1x1 same     1x1 1x1 cold     1x32    132x1 "
                "  132x32     cold\n");
    line<0>();
    std::printf(
        "\neight warps, then one thread's fence and ticket, cycles of a step: 1 block, 132, 132 cold\n");
    auto block = [](const char* name, auto kernel) {
        auto with = [=](int blocks, bool cold) {
            return cycles_of([=] { kernel<<<blocks, 256>>>(words, tickets, cycles); }, blocks, cold);
        };
        std::printf("%-36s %8.0f %8.0f %8.0f\n", name, with(1, false), with(kBlocks, false),
                    with(kBlocks, true));
        std::fflush(stdout);
    };
    block("nothing before the fence", of_block<0>);
    block("a store of each thread", of_block<1>);
    block("an addition of each thread", of_block<2>);
    block("a store of each thread, no fence", of_block<3>);
    std::printf("\na load that L1 has, cycles: %.0f, with a fence behind it %.0f\n",
                cycles_of([] { l1<false><<<1, 1>>>(words, cycles, words); }, 1, false),
                cycles_of([] { l1<true><<<1, 1>>>(words, cycles, words); }, 1, false));
    std::printf("\nlaunches of 128 blocks of 256 threads, cold, us beyond an empty kernel's\n");
    const char* kinds[] = {"a load and a sum",      "stored",
                           "stored, fence, ticket", "added to one word",
                           "added, fence, ticket",  "added, ticket without a fence"};
    std::vector<std::vector<float>> runs(7);
    for (int turn = 0; turn < 9; ++turn) {
        runs[6].push_back(median_us([] { fill<<<128, 256>>>(flushed, 0); }, 9, flush));
        for (int kind = 0; kind < 6; ++kind)
            runs[kind].push_back(median_us(
                [=] {
                    ending<<<128, 256>>>(words, words + kOfBlock, reinterpret_cast<unsigned*>(tickets), kind,
                                         cycles);
                },
                9, flush));
    }
    for (int kind = 0; kind < 6; ++kind)
        std::printf("%-36s %6.2f\n", kinds[kind], median(runs[kind]) - median(runs[6]));
    OK(cudaDeviceSynchronize());
    return 0;
}
