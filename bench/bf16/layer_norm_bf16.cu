// Layer norm, bf16 storage, fp32 arithmetic: a vector normalised by its mean and variance, times a weight,
// plus a bias.
//
// Shapes  input, weight, bias, output: N
// Moves   12 bytes and about 8 operations per element
// Naive   two launches: one block finds the mean and then the variance, with trees in shared memory that
//         synchronise at every level, and leaves them in scratch that is allocated in the call; then one
//         element per thread
#include <cuda_bf16.h>
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

__global__ void mean_and_variance_bf16_kernel(float* statistics, const __nv_bfloat16* input, int N) {
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x)
        sum += __bfloat162float(input[i]);
    float mean = layer_norm_block_sum(sum) / N;
    float squares = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x) {
        float difference = __bfloat162float(input[i]) - mean;
        squares += difference * difference;
    }
    float variance = layer_norm_block_sum(squares) / N;
    if (threadIdx.x == 0) {
        statistics[0] = mean;
        statistics[1] = variance;
    }
}

__global__ void layer_norm_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input,
                                       const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                       const float* statistics, float epsilon, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < N) {
        float normalised = (__bfloat162float(input[i]) - statistics[0]) / sqrtf(statistics[1] + epsilon);
        output[i] = __float2bfloat16(normalised * __bfloat162float(weight[i]) + __bfloat162float(bias[i]));
    }
}

extern "C" void layer_norm_bf16(__nv_bfloat16* output, const __nv_bfloat16* input,
                                const __nv_bfloat16* weight, const __nv_bfloat16* bias, float epsilon,
                                int N) {
    float* statistics = nullptr;
    cudaMalloc(&statistics, 2 * sizeof(float));
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    mean_and_variance_bf16_kernel<<<1, threads>>>(statistics, input, N);
    layer_norm_bf16_kernel<<<blocks, threads>>>(output, input, weight, bias, statistics, epsilon, N);
    cudaFree(statistics);
}
