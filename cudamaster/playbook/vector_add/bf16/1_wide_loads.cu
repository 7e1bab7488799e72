// idea: Eight elements per thread through 16-byte loads and stores
// why: A call at these sizes is little more than its launch. What is left to save are the instructions and
//      the requests to memory: a thread that moves 16 bytes at a time needs an eighth of both, and its two
//      loads keep 32 bytes in flight. Blocks are small, so that even short vectors spread over many
//      multiprocessors. Vectors that are not aligned to 16 bytes take a scalar loop.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kWidth = 8; // elements in 16 bytes

// Sums of bf16 pairs packed in 4 bytes; a bf16 is the upper half of a float.
__device__ unsigned int add2(unsigned int a, unsigned int b) {
    __nv_bfloat162 sum =
        __floats2bfloat162_rn(__uint_as_float(a << 16) + __uint_as_float(b << 16),
                              __uint_as_float(a & 0xffff0000u) + __uint_as_float(b & 0xffff0000u));
    return *(const unsigned int*)&sum;
}

__global__ void vector_add_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                 __nv_bfloat16* C, int N) {
    bool aligned = (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    int vectors = aligned ? N / kWidth : 0;
    long long thread = blockIdx.x * (long long)kThreads + threadIdx.x;
    if (thread < vectors) {
        uint4 a = ((const uint4*)A)[thread];
        uint4 b = ((const uint4*)B)[thread];
        ((uint4*)C)[thread] = make_uint4(add2(a.x, b.x), add2(a.y, b.y), add2(a.z, b.z), add2(a.w, b.w));
    }
    // What the vectors leave: at most seven elements, or all of them where they are not aligned.
    long long threads = gridDim.x * (long long)kThreads;
    for (long long i = (long long)kWidth * vectors + thread; i < N; i += threads)
        C[i] = __float2bfloat16(__bfloat162float(A[i]) + __bfloat162float(B[i]));
}

extern "C" void vector_add_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                          int N) {
    int blocks = (N - 1) / (kThreads * kWidth) + 1;
    vector_add_bf16_kernel_optimized<<<blocks, kThreads>>>(A, B, C, N);
}
