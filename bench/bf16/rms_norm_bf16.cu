// RMS norm, bf16 storage, fp32 arithmetic: a vector divided by its root mean square plus epsilon, times a
// weight, plus a bias.
//
// Shapes  input, weight, bias, output: N
// Moves   10 bytes and about 6 operations per element
// Naive   two launches: one block finds the root mean square, with a tree in shared memory that synchronises
//         at every level, and leaves it in a scratch number that is allocated in the call; then one element
//         per thread
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void root_mean_square_bf16_kernel(float* rms, const __nv_bfloat16* input, int N) {
    __shared__ float partial[256];
    float squares = 0.0f;
    for (size_t i = threadIdx.x; i < N; i += blockDim.x)
        squares += __bfloat162float(input[i]) * __bfloat162float(input[i]);
    partial[threadIdx.x] = squares;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        rms[0] = sqrtf(partial[0] / N);
}

__global__ void rms_norm_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input,
                                     const __nv_bfloat16* weight, const __nv_bfloat16* bias, const float* rms,
                                     float epsilon, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < N) {
        float normalised = __bfloat162float(input[i]) / (rms[0] + epsilon);
        output[i] = __float2bfloat16(normalised * __bfloat162float(weight[i]) + __bfloat162float(bias[i]));
    }
}

extern "C" void rms_norm_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, const __nv_bfloat16* weight,
                              const __nv_bfloat16* bias, float epsilon, int N) {
    float* rms = nullptr;
    cudaMalloc(&rms, sizeof(float));
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    root_mean_square_bf16_kernel<<<1, threads>>>(rms, input, N);
    rms_norm_bf16_kernel<<<blocks, threads>>>(output, input, weight, bias, rms, epsilon, N);
    cudaFree(rms);
}
