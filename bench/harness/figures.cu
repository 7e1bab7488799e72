// What the model of a GPU knows of it beside its limits, measured: latencies, L2, atomics, more units, where threads meet,
// and what calls of the runtime cost. One JSON object on stdout, under the names of cudamaster/modelling/gpu.py; rates are of one SM
// and clock where they are there. limits.cu has the rest.
#include <cstdio>
#include "harness/limits/arithmetic.h"
#include "harness/figures/latency.h"
#include "harness/figures/runtime.h"
#include "harness/figures/together.h"

namespace {

// One step is a rotation: no two of them can be made one as easily as two additions.
struct Integer {
    using Value = unsigned int;
    static constexpr int kOperations = 1;
    static __device__ void step(unsigned int& x) { asm("shf.l.wrap.b32 %0, %0, %0, 7;" : "+r"(x)); }
};
struct Fp64 {
    using Value = double;
    static constexpr int kOperations = 1;
    static __device__ void step(double& x) { x = fma(x, x, x); }
};
// Values that differ from lane to lane: exchanging one that does not is nothing to do, and the assembler knows.
__global__ void __launch_bounds__(kThreads) shuffle_kernel(int iterations, int zero, int* result) {
    int x[kChains];
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
        x[chain] = zero + static_cast<int>(threadIdx.x) * (chain + 1);
#pragma unroll 1
    for (int i = 0; i < iterations; ++i)
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain)
            x[chain] = __shfl_sync(0xffffffffu, x[chain], x[chain]);
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
        if (x[chain] == -12345) // never
            *result = x[chain];
}

// Threads a second.
double shuffle_rate(int processors) {
    int* result = nullptr;
    CHECKED(cudaMalloc(&result, sizeof *result));
    int grid = one_wave(shuffle_kernel, kThreads, processors);
    double rate =
        best_rate([&](int iterations) { shuffle_kernel<<<grid, kThreads>>>(iterations, 0, result); });
    CHECKED(cudaFree(result));
    return rate * grid * kThreads * kChains;
}

// Products of 16 x 8 x 16 by mma.sync, as kernels without wgmma have them; eight chains of sums a warp.
__global__ void __launch_bounds__(128) matrix_kernel(int iterations, unsigned int zero, float* result) {
    float d[kChains][4] = {};
    // Registers of their own for both factors, as in a kernel; all are zero.
    unsigned int a[4], b[2];
#pragma unroll
    for (int k = 0; k < 4; ++k)
        a[k] = zero * (k + 1);
    b[0] = zero * 5, b[1] = zero * 6;
#pragma unroll 1
    for (int i = 0; i < iterations; ++i)
#pragma unroll
        for (int k = 0; k < kChains; ++k)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                "{%8, %9}, {%0, %1, %2, %3};"
                : "+f"(d[k][0]), "+f"(d[k][1]), "+f"(d[k][2]), "+f"(d[k][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kChains; ++k)
        sum += d[k][0] + d[k][1] + d[k][2] + d[k][3];
    if (sum == 12345.0f) // never
        *result = sum;
}

// Operations per second, a multiplication and an addition being two.
double matrix_rate(int processors) {
    float* result = nullptr;
    CHECKED(cudaMalloc(&result, sizeof *result));
    int grid = one_wave(matrix_kernel, 128, processors);
    double rate = best_rate([&](int iterations) { matrix_kernel<<<grid, 128>>>(iterations, 0, result); });
    CHECKED(cudaFree(result));
    return rate * grid * 4 * kChains * 2 * 16 * 8 * 16;
}

int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    CHECKED(cudaGetDevice(&device));
    CHECKED(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

void say(const char* name, double value, const char* end = ", ") {
    std::printf("\"%s\": %.6g%s", name, value, end);
}

} // namespace

int main() {
    int processors = attribute(cudaDevAttrMultiProcessorCount);
    size_t l2_bytes = static_cast<size_t>(attribute(cudaDevAttrL2CacheSize));
    double clock_mhz = sm_clock_mhz(processors);
    double per_clock = 1e-6 / (clock_mhz * processors);
    std::printf("{");
    say("blocks_per_sm", attribute(cudaDevAttrMaxBlocksPerMultiprocessor));
    say("reserved_shared_bytes", attribute(cudaDevAttrReservedSharedMemoryPerBlock));
    say("integer_lanes", unit_rate<Integer>(processors) * per_clock);
    say("fp64_lanes", unit_rate<Fp64>(processors) * per_clock);
    say("shuffle_lanes", shuffle_rate(processors) * per_clock);
    say("matrix_operations", matrix_rate(processors) * per_clock);
    Latencies latencies = measure_latencies(l2_bytes);
    say("shared_latency_cycles", latencies.shared);
    say("l1_latency_cycles", latencies.l1);
    say("l2_latency_cycles", latencies.l2);
    say("memory_latency_cycles", latencies.memory);
    say("l2_bytes_per_s", l2_rate(processors, l2_bytes));
    Atomics atomics = measure_atomics(processors, l2_bytes, clock_mhz);
    say("atomic_sectors_per_clock", atomics.sectors_per_clock);
    say("same_address_per_clock", atomics.same_address_per_clock);
    Runtime runtime = measure_runtime(clock_mhz);
    say("empty_call_us", runtime.empty_call);
    say("empty_device_us", runtime.empty_device);
    say("launch_host_us", runtime.launch_host);
    say("gap_us", runtime.gap);
    say("memset_host_us", runtime.memset_host);
    say("memset_device_us", runtime.memset_device);
    say("small_alloc_us", runtime.small_alloc);
    say("alloc_us", runtime.alloc);
    say("synchronise_us", runtime.synchronise);
    say("host_bytes_per_s", runtime.host_bytes_per_s);
    Together together = measure_together(processors, attribute(cudaDevAttrComputeCapabilityMajor), clock_mhz);
    say("start_cycles", together.start);
    say("barrier_cycles", together.barrier);
    say("barrier_warp_cycles", together.barrier_warp);
    say("grid_barrier_cycles", together.grid_barrier);
    say("fence_cycles", together.fence);
    say("ticket_cycles", together.ticket);
    if (together.cluster_barrier > 0) {
        say("cluster_barrier_cycles", together.cluster_barrier);
        say("cluster_barrier_warp_cycles", together.cluster_barrier_warp);
        say("remote_latency_cycles", together.remote_latency);
        say("remote_cycles", together.remote);
    }
    say("clock_mhz", sm_clock_mhz(processors), "}\n");
    return 0;
}
