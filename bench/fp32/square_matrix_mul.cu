// Square matrix mul, fp32: C = A B.
//
// Shapes  A, B, C: M x M, row-major
// Moves   12 M^2 bytes at least, 2 M^3 operations
// Naive   one element of C per thread: every product loads both of its factors, and only the caches know that
//         the threads of a 16 x 16 block share rows of A and columns of B
#include <cuda_runtime.h>

__global__ void square_matrix_mul_kernel(const float* A, const float* B, float* C, int M) {
    int blocks_across = (M - 1) / blockDim.x + 1;
    size_t row = blockIdx.x / blocks_across * (size_t)blockDim.y + threadIdx.y;
    size_t col = blockIdx.x % blocks_across * (size_t)blockDim.x + threadIdx.x;
    if (row >= M || col >= M)
        return;
    float sum = 0.0f;
    for (int k = 0; k < M; ++k)
        sum += A[row * M + k] * B[(size_t)k * M + col];
    C[row * M + col] = sum;
}

extern "C" void square_matrix_mul(const float* A, const float* B, float* C, int M) {
    dim3 threads(16, 16);
    unsigned int blocks_across = (M - 1) / 16 + 1;
    square_matrix_mul_kernel<<<blocks_across * blocks_across, threads>>>(A, B, C, M);
}
