// What kinds of launches take, on the device and as whole calls: clusters, cooperative ones, barriers across the grid
// and the cluster, several launches, sums with and without an answer, instructions that come from memory.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/launches.cu -o launches
//     ./launches
//
// Every call finds the device idle and its caches cold, as a timed call does; kinds take turns. Times on the device are
// between events behind a kernel that keeps the device busy until all work is there. Medians, in microseconds, with the
// difference to an empty launch. results/gpu_model/microbenchmarks.md has what an H200 said.
#include <chrono>
#include <cooperative_groups.h>
#include <string>
#include "median.h"

namespace cg = cooperative_groups;

constexpr int kTurns = 25;

__global__ void keep_busy(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

__global__ void empty() {}

// A load of each thread, and a store.
__global__ void move(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] + 1.0f;
}

// Loads one behind the other, all from different lines.
template <int waits> __global__ void chase(float* out, const int* in) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < waits; ++i)
        at = in[at] + (at ^ 4096 << i);
    out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

__global__ void grid_barriers(int n) {
    auto all = cg::this_grid();
    for (int i = 0; i < n; ++i)
        all.sync();
}

__global__ void cluster_barriers(int n) {
    auto all = cg::this_cluster();
    for (int i = 0; i < n; ++i)
        all.sync();
}

// Sums over blocks behind a load: 0 none, 1 an addition of each block at one address, 2 with its answer used, 3 the last
// block of a ticket adds what the others left, 4 of each thread at its own address, 5 of each with the answer.
__global__ void sums(float* out, const float* in, unsigned* ticket, float* parts, int kind) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    if (kind == 4)
        atomicAdd(out + i, x);
    else if (kind == 5)
        parts[i] = atomicAdd(out + i, x);
    else if (threadIdx.x == 0) {
        if (kind == 0)
            parts[blockIdx.x] = x;
        else if (kind == 1)
            atomicAdd(out, x);
        else if (kind == 2)
            parts[blockIdx.x] = atomicAdd(out, x);
        else {
            parts[blockIdx.x] = x;
            __threadfence();
            if (atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1) {
                float sum = 0.0f;
                for (int b = 0; b < gridDim.x; b += 8)
                    sum += __ldcg(parts + b);
                out[0] = sum;
            }
        }
    }
}

// The first block clears and says so, the others look until it has.
__global__ void flagged(float* out, unsigned* flag, unsigned* seen) {
    if (blockIdx.x == 0) {
        out[threadIdx.x] = 0.0f;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicExch(flag, 1u);
        }
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0)
            __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f;
    if (threadIdx.x == 0 && atomicInc(seen, gridDim.x - 1) == gridDim.x - 1)
        atomicExch(flag, 0u);
}

// A launch that may begin while the one before ends.
__global__ void early(float* out, const float* in, bool first) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (first)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    else
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] + 1.0f;
}

// Instructions in a line, each executed once by one warp.
template <int n> __global__ void line(float* out, float factor) {
    float x[4] = {factor, 1.0f, 2.0f, 3.0f};
#pragma unroll
    for (int i = 0; i < n; ++i)
        x[i % 4] = x[i % 4] * factor + (float)(i % 1021);
    out[threadIdx.x] = x[0] + x[1] + x[2] + x[3];
}

// The same in a loop of 64.
__global__ void looped(float* out, float factor, int n) {
    float x[4] = {factor, 1.0f, 2.0f, 3.0f};
    for (int k = 0; k < n / 64; ++k)
#pragma unroll
        for (int i = 0; i < 64; ++i)
            x[i % 4] = x[i % 4] * factor + (float)(i % 1021);
    out[threadIdx.x] = x[0] + x[1] + x[2] + x[3];
}

template <class... A>
void launch(void (*kernel)(A...), int blocks, int threads, int cluster, bool cooperative, bool overlapping,
            A... a) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    cudaLaunchAttribute attributes[3];
    int n = 0;
    if (cluster > 1) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = cluster;
        attributes[n].val.clusterDim.y = attributes[n].val.clusterDim.z = 1;
        ++n;
    }
    if (cooperative) {
        attributes[n].id = cudaLaunchAttributeCooperative;
        attributes[n++].val.cooperative = 1;
    }
    if (overlapping) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    config.attrs = attributes;
    config.numAttrs = n;
    OK(cudaLaunchKernelEx(&config, kernel, a...));
}

struct Kind {
    std::string name;
    std::function<void()> call;
    std::vector<float> whole, device;
};

float middle(std::vector<float> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int main() {
    constexpr size_t kFlush = 256 << 20;
    float *flush, *out, *in, *parts;
    unsigned* words;
    OK(cudaMalloc(&flush, kFlush));
    OK(cudaMalloc(&out, 16 << 20));
    OK(cudaMalloc(&in, 16 << 20));
    OK(cudaMalloc(&parts, 16 << 20));
    OK(cudaMalloc(&words, 4096));
    OK(cudaMemset(in, 0, 16 << 20));
    OK(cudaMemset(words, 0, 4096));
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    OK(cudaFuncSetAttribute((const void*)cluster_barriers, cudaFuncAttributeNonPortableClusterSizeAllowed,
                            1));
    unsigned* flag = words + 256;
    std::vector<Kind> kinds;
    auto kind = [&](std::string name, std::function<void()> call) { kinds.push_back({name, call, {}, {}}); };
    kind("empty, 1 block", [&] { empty<<<1, 32>>>(); });
    kind("empty, 128 blocks of 256", [&] { empty<<<128, 256>>>(); });
    for (int c : {1, 2, 4, 8, 16})
        for (int blocks : {16, 128})
            kind("clusters of " + std::to_string(c) + ", " + std::to_string(blocks) + " blocks, no barrier",
                 [=] { launch(cluster_barriers, blocks, 256, c, false, false, 0); });
    for (int n : {1, 2, 4, 16})
        kind("clusters of 8, 128 blocks, barriers: " + std::to_string(n),
             [=] { launch(cluster_barriers, 128, 256, 8, false, false, n); });
    for (int blocks : {8, 32, 128, 264})
        for (int n : {0, 1, 2, 4})
            kind("cooperative, " + std::to_string(blocks) + " blocks of 256, barriers: " + std::to_string(n),
                 [=] { launch(grid_barriers, blocks, 256, 1, true, false, n); });
    for (int n : {1, 2})
        kind("cooperative, 128 blocks of 1024, barriers: " + std::to_string(n),
             [=] { launch(grid_barriers, 128, 1024, 1, true, false, n); });
    kind("move, 128 blocks", [=] { move<<<128, 256>>>(out, in); });
    kind("move, clusters of 8", [=] { launch(move, 128, 256, 8, false, false, out, (const float*)in); });
    kind("move, cooperative", [=] { launch(move, 128, 256, 1, true, false, out, (const float*)in); });
    kind("chase 2", [=] { chase<2><<<128, 256>>>(out, (const int*)in); });
    kind("chase 4", [=] { chase<4><<<128, 256>>>(out, (const int*)in); });
    kind("chase 8", [=] { chase<8><<<128, 256>>>(out, (const int*)in); });
    const char* kinds_of_sums[] = {"none",   "one address", "one address, answer",
                                   "ticket", "own address", "own address, answer"};
    for (int k = 0; k < 6; ++k)
        kind(std::string("sums of 128 blocks: ") + kinds_of_sums[k],
             [=] { sums<<<128, 256>>>(out, in, words, parts, k); });
    kind("flag of the first of 128 blocks", [=] { flagged<<<128, 256>>>(out, flag, words + 512); });
    kind("flag, 32 blocks", [=] { flagged<<<32, 256>>>(out, flag, words + 512); });
    kind("two moves", [=] {
        move<<<128, 256>>>(out, in);
        move<<<128, 256>>>(parts, out);
    });
    kind("two moves, the second early", [=] {
        early<<<128, 256>>>(out, in, true);
        launch(early, 128, 256, 1, false, true, parts, (const float*)out, false);
    });
    kind("three moves", [=] {
        move<<<128, 256>>>(out, in);
        move<<<128, 256>>>(parts, out);
        move<<<128, 256>>>(out, parts);
    });
    kind("memset and move", [=] {
        OK(cudaMemsetAsync(parts, 0, 4096));
        move<<<128, 256>>>(out, in);
    });
    kind("move, early attribute alone",
         [=] { launch(early, 128, 256, 1, false, true, out, (const float*)in, false); });
    kind("line of 64", [=] { line<64><<<1, 32>>>(out, 0.5f); });
    kind("line of 512", [=] { line<512><<<1, 32>>>(out, 0.5f); });
    kind("line of 1024", [=] { line<1024><<<1, 32>>>(out, 0.5f); });
    kind("line of 2048", [=] { line<2048><<<1, 32>>>(out, 0.5f); });
    kind("line of 4096", [=] { line<4096><<<1, 32>>>(out, 0.5f); });
    kind("line of 4096, 128 blocks of 256", [=] { line<4096><<<128, 256>>>(out, 0.5f); });
    kind("loop of 512", [=] { looped<<<1, 32>>>(out, 0.5f, 512); });
    kind("loop of 4096", [=] { looped<<<1, 32>>>(out, 0.5f, 4096); });
    kind("loop of 4096, 128 blocks of 256", [=] { looped<<<128, 256>>>(out, 0.5f, 4096); });
    for (int turn = -2; turn < kTurns; ++turn)
        for (Kind& each : kinds) {
            OK(cudaMemset(flush, turn, kFlush));
            OK(cudaDeviceSynchronize());
            auto start = std::chrono::steady_clock::now();
            each.call();
            OK(cudaDeviceSynchronize());
            std::chrono::duration<float, std::micro> whole = std::chrono::steady_clock::now() - start;
            OK(cudaMemset(flush, turn, kFlush));
            keep_busy<<<1, 1>>>(100000);
            OK(cudaEventRecord(e0));
            each.call();
            OK(cudaEventRecord(e1));
            OK(cudaDeviceSynchronize());
            float ms = 0;
            OK(cudaEventElapsedTime(&ms, e0, e1));
            if (turn >= 0) {
                each.whole.push_back(whole.count());
                each.device.push_back(ms * 1000);
            }
        }
    float base_whole = middle(kinds[0].whole), base_device = middle(kinds[0].device);
    printf("%-52s %7s %7s %7s %7s\n", "", "whole", "device", "+whole", "+device");
    for (Kind& each : kinds)
        printf("%-52s %7.2f %7.2f %7.2f %7.2f\n", each.name.c_str(), middle(each.whole), middle(each.device),
               middle(each.whole) - base_whole, middle(each.device) - base_device);
}
