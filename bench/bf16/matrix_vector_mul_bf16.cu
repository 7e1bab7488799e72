// Matrix vector mul, bf16 storage, fp32 accumulation: y = A x.
//
// Shapes  A: M x N, row-major, x: N, y: M
// Moves   2 bytes and 2 operations per element of A
// Naive   one thread per row: neighbouring threads read elements a whole row apart, and there are no more
//         threads than rows
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void matrix_vector_mul_bf16_kernel(const __nv_bfloat16* A, const __nv_bfloat16* x,
                                              __nv_bfloat16* y, int M, int N) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row >= M)
        return;
    float sum = 0.0f;
    for (int j = 0; j < N; ++j)
        sum += __bfloat162float(A[row * N + j]) * __bfloat162float(x[j]);
    y[row] = __float2bfloat16(sum);
}

extern "C" void matrix_vector_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* x, __nv_bfloat16* y,
                                       int M, int N) {
    int threads = 256;
    int blocks = (M - 1) / threads + 1;
    matrix_vector_mul_bf16_kernel<<<blocks, threads>>>(A, x, y, M, N);
}
