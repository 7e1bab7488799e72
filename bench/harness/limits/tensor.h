// Rate of the tensor cores for bf16 operands and fp32 sums. Only wgmma reaches the peak of compute capability 9.0, and
// only a build for sm_90a has it; elsewhere it is mma.sync, which is all there is on 8.x and 12.x.
#pragma once

#include <cstdint>
#include "measuring.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

constexpr int kWarpgroup = 128; // threads of a block
constexpr int kProducts = 8;    // instructions of a warp or warpgroup in one iteration

// Operations of one block in one iteration of the tensor kernel; the host's pass cannot know which was compiled.
__global__ void tensor_variant(bool* wgmma, double* operations) {
    *wgmma = HAS_WGMMA;
    *operations =
        HAS_WGMMA ? kProducts * 2.0 * 64 * 256 * 16 : kWarpgroup / 32 * kProducts * 2.0 * 16 * 8 * 16;
}

#if HAS_WGMMA

// Descriptor of a K-major tile without swizzle: matrices of 8 rows by 16 bytes, two of them side by side.
__device__ inline uint64_t descriptor(const void* tile) {
    uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
    return (address & 0x3ffff) >> 4 | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
}

#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define SUMS_64(i) SUMS_16(i), SUMS_16(i + 16), SUMS_16(i + 32), SUMS_16(i + 48)

__device__ inline void multiply(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, 1, 1, 1, 0, 0;"
        : SUMS_64(0), SUMS_64(64)
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(kWarpgroup)
    tensor_kernel(int iterations, unsigned int zero, float* result) {
    __shared__ alignas(128) unsigned int a[64 * 16 / 2];
    __shared__ alignas(128) unsigned int b[256 * 16 / 2];
    for (int i = threadIdx.x; i < 64 * 16 / 2; i += kWarpgroup)
        a[i] = zero;
    for (int i = threadIdx.x; i < 256 * 16 / 2; i += kWarpgroup)
        b[i] = zero;
    asm volatile("fence.proxy.async;" ::
                     : "memory"); // wgmma reads shared memory past the threads' own view of it
    __syncthreads();
    uint64_t left = descriptor(a), right = descriptor(b);
    float d[128] = {};
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < kProducts; ++k)
            multiply(d, left, right);
        // The wait leaves a gap, which the other warpgroups of the multiprocessor fill.
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 128; ++i)
        sum += d[i];
    if (sum == 12345.0f) // never
        *result = sum;
}

#else

__global__ void __launch_bounds__(kWarpgroup)
    tensor_kernel(int iterations, unsigned int zero, float* result) {
    float d[kProducts][4] = {};
#pragma unroll 1
    for (int i = 0; i < iterations; ++i)
#pragma unroll
        for (int k = 0; k < kProducts; ++k)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                "{%4, %4}, {%0, %1, %2, %3};"
                : "+f"(d[k][0]), "+f"(d[k][1]), "+f"(d[k][2]), "+f"(d[k][3])
                : "r"(zero));
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kProducts; ++k)
        sum += d[k][0] + d[k][1] + d[k][2] + d[k][3];
    if (sum == 12345.0f) // never
        *result = sum;
}

#endif

// Operations per second, a multiplication and an addition counting as two, and the instruction that did them.
struct TensorRate {
    double operations_per_s;
    const char* by;
};

inline TensorRate measure_tensor(int processors) {
    bool* wgmma = nullptr;
    double* operations = nullptr;
    float* result = nullptr;
    CHECKED(cudaMallocManaged(&wgmma, sizeof *wgmma));
    CHECKED(cudaMallocManaged(&operations, sizeof *operations));
    CHECKED(cudaMalloc(&result, sizeof *result));
    tensor_variant<<<1, 1>>>(wgmma, operations);
    CHECKED(cudaDeviceSynchronize());
    int grid = one_wave(tensor_kernel, kWarpgroup, processors);
    double rate =
        best_rate([&](int iterations) { tensor_kernel<<<grid, kWarpgroup>>>(iterations, 0, result); });
    TensorRate measured = {rate * grid * *operations, *wgmma ? "wgmma" : "mma.sync"};
    CHECKED(cudaFree(wgmma));
    CHECKED(cudaFree(operations));
    CHECKED(cudaFree(result));
    return measured;
}
