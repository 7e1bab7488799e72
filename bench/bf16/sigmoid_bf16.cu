// Sigmoid, bf16 storage, fp32 arithmetic: out[i] = 1 / (1 + exp(-input[i])).
//
// Shapes  input, out: N
// Moves   4 bytes per element, an exponential, an addition and a division
// Naive   one thread per element, which loads and stores 2 bytes
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void sigmoid_bf16_kernel(__nv_bfloat16* out, const __nv_bfloat16* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = __bfloat162float(input[i]);
    out[i] = __float2bfloat16(1.0f / (1.0f + expf(-x)));
}

extern "C" void sigmoid_bf16(__nv_bfloat16* out, const __nv_bfloat16* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    sigmoid_bf16_kernel<<<blocks, threads>>>(out, input, N);
}
