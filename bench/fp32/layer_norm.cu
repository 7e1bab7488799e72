// Layer norm, fp32: a vector normalised by its mean and variance, times a weight, plus a bias.
//
// Shapes  input, weight, bias, output: N
// Moves   24 bytes and about 8 operations per element
// Naive   two launches: one block finds the mean and then the variance, with trees in shared memory that
//         synchronise at every level, and leaves them in scratch that is allocated in the call; then one
//         element per thread
#include <cuda_runtime.h>

// The sum over the block, in all its threads.
__device__ float layer_norm_block_sum(float value) {
    __shared__ float partial[256];
    partial[threadIdx.x] = value;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    float sum = partial[0];
    __syncthreads();
    return sum;
}

__global__ void mean_and_variance_kernel(float* statistics, const float* input, int N) {
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x)
        sum += input[i];
    float mean = layer_norm_block_sum(sum) / N;
    float squares = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x) {
        float difference = input[i] - mean;
        squares += difference * difference;
    }
    float variance = layer_norm_block_sum(squares) / N;
    if (threadIdx.x == 0) {
        statistics[0] = mean;
        statistics[1] = variance;
    }
}

__global__ void layer_norm_kernel(float* output, const float* input, const float* weight, const float* bias,
                                  const float* statistics, float epsilon, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < N)
        output[i] = (input[i] - statistics[0]) / sqrtf(statistics[1] + epsilon) * weight[i] + bias[i];
}

extern "C" void layer_norm(float* output, const float* input, const float* weight, const float* bias,
                           float epsilon, int N) {
    float* statistics = nullptr;
    cudaMalloc(&statistics, 2 * sizeof(float));
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    mean_and_variance_kernel<<<1, threads>>>(statistics, input, N);
    layer_norm_kernel<<<blocks, threads>>>(output, input, weight, bias, statistics, epsilon, N);
    cudaFree(statistics);
}
