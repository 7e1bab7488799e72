// Matrix vector mul, fp32: y = A x.
//
// Shapes  A: M x N, row-major, x: N, y: M
// Moves   4 bytes and 2 operations per element of A
// Naive   one thread per row: neighbouring threads read elements a whole row apart, and there are no more
//         threads than rows
#include <cuda_runtime.h>

__global__ void matrix_vector_mul_kernel(const float* A, const float* x, float* y, int M, int N) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row >= M)
        return;
    float sum = 0.0f;
    for (int j = 0; j < N; ++j)
        sum += A[row * N + j] * x[j];
    y[row] = sum;
}

extern "C" void matrix_vector_mul(const float* A, const float* x, float* y, int M, int N) {
    int threads = 256;
    int blocks = (M - 1) / threads + 1;
    matrix_vector_mul_kernel<<<blocks, threads>>>(A, x, y, M, N);
}
