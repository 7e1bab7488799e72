// Matrix power, fp32: B = A^P.
//
// Shapes  A, B: N x N, row-major
// Moves   12 N^2 bytes at least and 2 N^3 operations per multiplication, P-1 multiplications
// Naive   multiplies by A until the power is reached, a launch each, with one element per thread and every
//         factor of every product loaded from global memory; ping-pongs with a buffer allocated in the call
#include <cuda_runtime.h>

__global__ void matrix_power_multiply_kernel(const float* left, const float* right, float* product, int N) {
    int blocks_across = (N - 1) / blockDim.x + 1;
    size_t row = blockIdx.x / blocks_across * (size_t)blockDim.y + threadIdx.y;
    size_t col = blockIdx.x % blocks_across * (size_t)blockDim.x + threadIdx.x;
    if (row >= N || col >= N)
        return;
    float sum = 0.0f;
    for (int k = 0; k < N; ++k)
        sum += left[row * N + k] * right[(size_t)k * N + col];
    product[row * N + col] = sum;
}

extern "C" void matrix_power(const float* A, float* B, int N, int P) {
    size_t bytes = sizeof(float) * N * N;
    if (P == 1) {
        cudaMemcpy(B, A, bytes, cudaMemcpyDeviceToDevice);
        return;
    }
    float* buffer = nullptr;
    if (P > 2)
        cudaMalloc(&buffer, bytes);
    dim3 threads(16, 16);
    unsigned int blocks_across = (N - 1) / 16 + 1;
    const float* from = A;
    for (int power = 2; power <= P; ++power) {
        float* to = (P - power) % 2 == 0 ? B : buffer; // so that the last one is in B
        matrix_power_multiply_kernel<<<blocks_across * blocks_across, threads>>>(from, A, to, N);
        from = to;
    }
    cudaFree(buffer);
}
