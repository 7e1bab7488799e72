// Composite Simpson rule, fp32: result[0] = h/3 * (y_0 + 4 y_1 + 2 y_2 + ... + y_{N-1}).
//
// Shapes  y_samples: N, result: 1
// Moves   4 bytes and 2 operations per sample
// Naive   one sample per thread, a tree in shared memory that synchronises the block at every level, and one
//         atomic addition per block; the result is cleared by a separate memset
#include <cuda_runtime.h>

__global__ void simpson_int_kernel(const float* y_samples, float* result, float h, int N) {
    __shared__ float partial[256];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float term = 0.0f;
    if (i == 0 || i == N - 1)
        term = y_samples[i];
    else if (i < N - 1 && i % 2 == 1)
        term = 4.0f * y_samples[i];
    else if (i < N - 2)
        term = 2.0f * y_samples[i];
    partial[threadIdx.x] = term;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(result, h / 3.0f * partial[0]);
}

extern "C" void simpson_int(const float* y_samples, float* result, float a, float b, int N) {
    float h = (b - a) / (N - 1);
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    cudaMemset(result, 0, sizeof(float));
    simpson_int_kernel<<<blocks, threads>>>(y_samples, result, h, N);
}
