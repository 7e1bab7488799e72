// Matrix scalar mul, bf16 storage, fp32 arithmetic: B = scalar * A.
//
// Shapes  A, B: M x N, row-major
// Moves   4 bytes and 1 operation per element
// Naive   one element per thread, so a thread has no more than 2 bytes of loads in flight
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void matrix_scalar_mul_bf16_kernel(const __nv_bfloat16* A, __nv_bfloat16* B, __nv_bfloat16 scalar,
                                              int M, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= (size_t)M * N)
        return;
    B[i] = __float2bfloat16(__bfloat162float(scalar) * __bfloat162float(A[i]));
}

extern "C" void matrix_scalar_mul_bf16(const __nv_bfloat16* A, __nv_bfloat16* B, __nv_bfloat16 scalar, int M,
                                       int N) {
    int threads = 256;
    size_t blocks = ((size_t)M * N - 1) / threads + 1;
    matrix_scalar_mul_bf16_kernel<<<blocks, threads>>>(A, B, scalar, M, N);
}
