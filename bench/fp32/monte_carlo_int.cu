// Monte Carlo integration, fp32: result[0] = (b - a) / N * sum of y_samples.
//
// Shapes  y_samples: N, result: 1
// Moves   4 bytes and 1 operation per sample
// Naive   one sample per thread, a tree in shared memory that synchronises the block at every level, and one
//         atomic addition per block; the result is cleared by a separate memset
#include <cuda_runtime.h>

__global__ void monte_carlo_int_kernel(const float* y_samples, float* result, float weight, int N) {
    __shared__ float partial[256];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    partial[threadIdx.x] = i < N ? y_samples[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(result, weight * partial[0]);
}

extern "C" void monte_carlo_int(const float* y_samples, float* result, float a, float b, int N) {
    float weight = (b - a) / N;
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    cudaMemset(result, 0, sizeof(float));
    monte_carlo_int_kernel<<<blocks, threads>>>(y_samples, result, weight, N);
}
