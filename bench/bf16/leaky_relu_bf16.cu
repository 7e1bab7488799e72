// Leaky relu, bf16 storage, fp32 arithmetic: output[i] = x where x > 0, else alpha * x.
//
// Shapes  input, output: N
// Moves   4 bytes per element, a comparison and a multiplication
// Naive   one thread per element, which loads and stores 2 bytes
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void leaky_relu_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input, int N,
                                       float alpha) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = __bfloat162float(input[i]);
    output[i] = __float2bfloat16(x > 0.0f ? x : alpha * x);
}

extern "C" void leaky_relu_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N, float alpha) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    leaky_relu_bf16_kernel<<<blocks, threads>>>(output, input, N, alpha);
}
