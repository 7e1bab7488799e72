// idea: Several 16-byte loads in flight per thread
// why: Memory bandwidth is all that counts, and it takes tens of kilobytes in flight on every multiprocessor
//      to use it. With one element per thread a full multiprocessor has 4 KB in flight. Here a thread
//      requests four vectors of eight elements before it stores the first. Small matrices get one vector per
//      thread instead, so that there are blocks for all multiprocessors. A matrix is as good as a vector of
//      M * N elements; one that is not aligned to 16 bytes takes a scalar loop.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWidth = 8;                  // elements in 16 bytes
constexpr size_t kLarge = (size_t)1 << 22; // elements from which on a thread takes four vectors

template <int kVectors>
__global__ void matrix_copy_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, size_t elements) {
    bool aligned = (((size_t)A | (size_t)B) & 15) == 0;
    size_t vectors = aligned ? elements / kWidth : 0;
    size_t first = blockIdx.x * (size_t)(kThreads * kVectors) + threadIdx.x;
    uint4 loaded[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        size_t i = first + k * kThreads;
        if (i < vectors)
            loaded[k] = ((const uint4*)A)[i];
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        size_t i = first + k * kThreads;
        if (i < vectors)
            ((uint4*)B)[i] = loaded[k];
    }
    // What the vectors leave: at most seven elements, or all of them where they are not aligned.
    size_t thread = blockIdx.x * (size_t)kThreads + threadIdx.x;
    size_t threads = gridDim.x * (size_t)kThreads;
    for (size_t i = vectors * kWidth + thread; i < elements; i += threads)
        B[i] = A[i];
}

extern "C" void matrix_copy_bf16_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    size_t elements = (size_t)M * N;
    int vectors_per_thread = elements >= kLarge ? 4 : 1;
    size_t blocks = (elements - 1) / ((size_t)kThreads * kWidth * vectors_per_thread) + 1;
    if (vectors_per_thread == 4)
        matrix_copy_bf16_kernel_optimized<4><<<blocks, kThreads>>>(A, B, elements);
    else
        matrix_copy_bf16_kernel_optimized<1><<<blocks, kThreads>>>(A, B, elements);
}
