// Rates of the fp32, packed bf16 and special-function units, and the clock they run at: loops over registers, enough
// independent chains to hide latency, zeros as operands because these cost least power.
#pragma once

#include "measuring.h"

constexpr int kChains = 8;   // per thread
constexpr int kRepeats = 16; // of every chain in one iteration
constexpr int kThreads = 256;

// A step is one instruction: x = x * x + x, or 2 to the power of x. With one register for all three operands no step
// waits for the register file.
struct Fp32 {
    using Value = float;
    static constexpr int kOperations = 2;
    static __device__ void step(float& x) { x = fmaf(x, x, x); }
};
struct Bf16Pair {
    using Value = unsigned int;
    static constexpr int kOperations = 4;
    static __device__ void step(unsigned int& x) { asm("fma.rn.bf16x2 %0, %0, %0, %0;" : "+r"(x)); }
};
struct Special {
    using Value = float;
    static constexpr int kOperations = 1;
    static __device__ void step(float& x) { asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); }
};

template <class Unit>
__global__ void __launch_bounds__(kThreads)
    unit_kernel(int iterations, typename Unit::Value zero, typename Unit::Value* result) {
    typename Unit::Value x[kChains];
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
        x[chain] = zero * (chain + 1); // chains that begin alike could be made one
#pragma unroll 1
    for (int i = 0; i < iterations; ++i)
#pragma unroll
        for (int repeat = 0; repeat < kRepeats; ++repeat)
#pragma unroll
            for (int chain = 0; chain < kChains; ++chain)
                Unit::step(x[chain]);
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain)
        if (x[chain] == static_cast<typename Unit::Value>(12345)) // never, and the compiler does not know
            *result = x[chain];
}

template <class Unit> struct Launcher {
    int grid;
    typename Unit::Value* result;

    explicit Launcher(int processors) : grid(one_wave(unit_kernel<Unit>, kThreads, processors)) {
        CHECKED(cudaMalloc(&result, sizeof *result));
    }
    Launcher(const Launcher&) = delete;
    ~Launcher() { CHECKED(cudaFree(result)); }
    void operator()(int iterations) const { unit_kernel<Unit><<<grid, kThreads>>>(iterations, {}, result); }
};

// Operations per second of a unit on the whole GPU.
template <class Unit> double unit_rate(int processors) {
    Launcher<Unit> launch(processors);
    return best_rate(launch) * launch.grid * kThreads * kRepeats * kChains * Unit::kOperations;
}

static __global__ void wait_kernel(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

// Clock of the SMs in MHz: what a wait of two million cycles takes. The launch makes it look half a percent too slow.
inline double sm_clock_mhz(int processors) {
    constexpr long long kCycles = 2'000'000;
    return kCycles / least_seconds(10, [&] { wait_kernel<<<processors, kThreads>>>(kCycles); }) * 1e-6;
}
