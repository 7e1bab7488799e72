// Matrix transpose, fp32: B = A^T.
//
// Shapes  A: M x N, B: N x M, row-major
// Moves   8 bytes per element
// Naive   one element per thread: neighbouring threads read neighbours of a row and write them a whole row
//         of B apart
#include <cuda_runtime.h>

__global__ void matrix_transpose_kernel(const float* A, float* B, int M, int N) {
    int blocks_across = (N - 1) / blockDim.x + 1;
    size_t row = blockIdx.x / blocks_across * (size_t)blockDim.y + threadIdx.y;
    size_t col = blockIdx.x % blocks_across * (size_t)blockDim.x + threadIdx.x;
    if (row >= M || col >= N)
        return;
    B[col * M + row] = A[row * N + col];
}

extern "C" void matrix_transpose(const float* A, float* B, int M, int N) {
    dim3 threads(16, 16);
    unsigned int blocks_across = (N - 1) / 16 + 1;
    unsigned int blocks_down = (M - 1) / 16 + 1;
    matrix_transpose_kernel<<<blocks_across * blocks_down, threads>>>(A, B, M, N);
}
