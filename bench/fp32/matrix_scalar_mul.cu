// Matrix scalar mul, fp32: B = scalar * A.
//
// Shapes  A, B: M x N, row-major
// Moves   8 bytes and 1 operation per element
// Naive   one element per thread, so a thread has no more than 4 bytes of loads in flight
#include <cuda_runtime.h>

__global__ void matrix_scalar_mul_kernel(const float* A, float* B, float scalar, int M, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= (size_t)M * N)
        return;
    B[i] = scalar * A[i];
}

extern "C" void matrix_scalar_mul(const float* A, float* B, float scalar, int M, int N) {
    int threads = 256;
    size_t blocks = ((size_t)M * N - 1) / threads + 1;
    matrix_scalar_mul_kernel<<<blocks, threads>>>(A, B, scalar, M, N);
}
