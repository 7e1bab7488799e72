// Batch norm, bf16 storage, fp32 arithmetic: columns of a matrix normalised over its rows, then scaled by
// gamma and shifted by beta.
//
// Shapes  input, output: N x C, row-major; gamma, beta: C
// Moves   the input three times and the output once: 8 bytes and about 8 operations per element
// Naive   one block per column, in three passes over it (mean, variance, result), so that neighbouring
//         threads read elements a whole row apart; trees in shared memory that synchronise the block at every
//         level
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// The sum over the block, in all its threads.
__device__ float batch_norm_block_sum(float value) {
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

__global__ void batch_norm_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input,
                                       const __nv_bfloat16* gamma, const __nv_bfloat16* beta, float epsilon,
                                       int N, int C) {
    size_t j = blockIdx.x;
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x)
        sum += __bfloat162float(input[i * C + j]);
    float mean = batch_norm_block_sum(sum) / N;
    float squares = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x) {
        float difference = __bfloat162float(input[i * C + j]) - mean;
        squares += difference * difference;
    }
    float variance = batch_norm_block_sum(squares) / N;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x) {
        float normalised = (__bfloat162float(input[i * C + j]) - mean) / sqrtf(variance + epsilon);
        output[i * C + j] =
            __float2bfloat16(normalised * __bfloat162float(gamma[j]) + __bfloat162float(beta[j]));
    }
}

extern "C" void batch_norm_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, const __nv_bfloat16* gamma,
                                const __nv_bfloat16* beta, float epsilon, int N, int C) {
    batch_norm_bf16_kernel<<<C, 256>>>(output, input, gamma, beta, epsilon, N, C);
}
