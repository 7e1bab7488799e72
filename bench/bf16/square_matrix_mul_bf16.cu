// Square matrix mul, bf16 storage, fp32 accumulation: C = A B.
//
// Shapes  A, B, C: M x M, row-major
// Moves   6 M^2 bytes at least, 2 M^3 operations
// Naive   one element of C per thread: every product loads both of its factors, and only the caches know that
//         the threads of a 16 x 16 block share rows of A and columns of B; tensor cores stay idle
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void square_matrix_mul_bf16_kernel(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                              __nv_bfloat16* C, int M) {
    int blocks_across = (M - 1) / blockDim.x + 1;
    size_t row = blockIdx.x / blocks_across * (size_t)blockDim.y + threadIdx.y;
    size_t col = blockIdx.x % blocks_across * (size_t)blockDim.x + threadIdx.x;
    if (row >= M || col >= M)
        return;
    float sum = 0.0f;
    for (int k = 0; k < M; ++k)
        sum += __bfloat162float(A[row * M + k]) * __bfloat162float(B[(size_t)k * M + col]);
    C[row * M + col] = __float2bfloat16(sum);
}

extern "C" void square_matrix_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                       int M) {
    dim3 threads(16, 16);
    unsigned int blocks_across = (M - 1) / 16 + 1;
    square_matrix_mul_bf16_kernel<<<blocks_across * blocks_across, threads>>>(A, B, C, M);
}
