// Matrix mul, fp32: C = A B.
//
// Shapes  A: M x K, B: K x N, C: M x N, row-major
// Moves   4 (M K + K N + M N) bytes at least, 2 M N K operations
// Naive   one element of C per thread: every product loads both of its factors, and only the caches know that
//         the threads of a 16 x 16 block share rows of A and columns of B
#include <cuda_runtime.h>

__global__ void matrix_mul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    int blocks_across = (N - 1) / blockDim.x + 1;
    size_t row = blockIdx.x / blocks_across * (size_t)blockDim.y + threadIdx.y;
    size_t col = blockIdx.x % blocks_across * (size_t)blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k)
        sum += A[row * K + k] * B[(size_t)k * N + col];
    C[row * N + col] = sum;
}

extern "C" void matrix_mul(const float* A, const float* B, float* C, int M, int N, int K) {
    dim3 threads(16, 16);
    unsigned int blocks_across = (N - 1) / 16 + 1;
    unsigned int blocks_down = (M - 1) / 16 + 1;
    matrix_mul_kernel<<<blocks_across * blocks_down, threads>>>(A, B, C, M, N, K);
}
