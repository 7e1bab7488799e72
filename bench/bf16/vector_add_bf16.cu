// Vector add, bf16 storage, fp32 arithmetic: C = A + B.
//
// Shapes  A, B, C: N
// Moves   6 bytes and 1 operation per element
// Naive   one element per thread, so a thread has no more than 4 bytes of loads in flight
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void vector_add_bf16_kernel(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                       int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    C[i] = __float2bfloat16(__bfloat162float(A[i]) + __bfloat162float(B[i]));
}

extern "C" void vector_add_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    vector_add_bf16_kernel<<<blocks, threads>>>(A, B, C, N);
}
