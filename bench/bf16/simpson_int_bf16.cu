// Composite Simpson rule, bf16 storage, fp32 sum: result[0] = h/3 * (y_0 + 4 y_1 + 2 y_2 + ... + y_{N-1}).
//
// Shapes  y_samples: N, result: 1 (bf16, rounded once)
// Moves   2 bytes and 2 operations per sample
// Naive   one sample per thread, a tree in shared memory that synchronises the block at every level, and one
//         atomic addition per block; the fp32 sum is allocated in the call, cleared by a separate memset and
//         rounded by a kernel of its own
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void simpson_int_bf16_kernel(const __nv_bfloat16* y_samples, float* sum, int N) {
    __shared__ float partial[256];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float term = 0.0f;
    if (i == 0 || i == N - 1)
        term = __bfloat162float(y_samples[i]);
    else if (i < N - 1 && i % 2 == 1)
        term = 4.0f * __bfloat162float(y_samples[i]);
    else if (i < N - 2)
        term = 2.0f * __bfloat162float(y_samples[i]);
    partial[threadIdx.x] = term;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(sum, partial[0]);
}

__global__ void simpson_int_round_bf16_kernel(const float* sum, __nv_bfloat16* result, float h) {
    result[0] = __float2bfloat16(h / 3.0f * sum[0]);
}

extern "C" void simpson_int_bf16(const __nv_bfloat16* y_samples, __nv_bfloat16* result, float a, float b,
                                 int N) {
    float h = (b - a) / (N - 1);
    float* sum = nullptr;
    cudaMalloc(&sum, sizeof(float));
    cudaMemset(sum, 0, sizeof(float));
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    simpson_int_bf16_kernel<<<blocks, threads>>>(y_samples, sum, N);
    simpson_int_round_bf16_kernel<<<1, 1>>>(sum, result, h);
    cudaFree(sum);
}
