// Gelu, the exact form, bf16 storage, fp32 arithmetic: output[i] = x * (1 + erf(x / sqrt(2))) / 2.
//
// Shapes  input, output: N
// Moves   4 bytes per element, four operations and an error function
// Naive   one thread per element, which loads and stores 2 bytes
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void gelu_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = __bfloat162float(input[i]);
    output[i] = __float2bfloat16(x * (1.0f + erff(0.70710678f * x)) / 2.0f);
}

extern "C" void gelu_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    gelu_bf16_kernel<<<blocks, threads>>>(output, input, N);
}
