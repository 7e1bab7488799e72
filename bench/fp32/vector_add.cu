// Vector add, fp32: C = A + B.
//
// Shapes  A, B, C: N
// Moves   12 bytes and 1 operation per element
// Naive   one element per thread, so a thread has no more than 8 bytes of loads in flight
#include <cuda_runtime.h>

__global__ void vector_add_kernel(const float* A, const float* B, float* C, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    C[i] = A[i] + B[i];
}

extern "C" void vector_add(const float* A, const float* B, float* C, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    vector_add_kernel<<<blocks, threads>>>(A, B, C, N);
}
