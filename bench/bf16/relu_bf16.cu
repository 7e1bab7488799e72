// Relu, bf16 storage, fp32 arithmetic: output[i] = max(0, input[i]).
//
// Shapes  input, output: N
// Moves   4 bytes per element, one comparison
// Naive   one thread per element, which loads and stores 2 bytes
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void relu_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = __bfloat162float(input[i]);
    output[i] = __float2bfloat16(fmaxf(0.0f, x));
}

extern "C" void relu_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    relu_bf16_kernel<<<blocks, threads>>>(output, input, N);
}
