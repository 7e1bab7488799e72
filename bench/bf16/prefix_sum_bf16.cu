// Prefix sum, bf16 storage, fp32 sums, inclusive: output[i] = sum of input[0..i].
//
// Shapes  input, output: N
// Moves   4 bytes per element, N^2 / 2 additions
// Naive   one thread per output, which adds up everything from the start again
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void prefix_sum_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float sum = 0.0f;
    for (long long j = 0; j <= i; ++j)
        sum += __bfloat162float(input[j]);
    output[i] = __float2bfloat16(sum);
}

extern "C" void prefix_sum_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    prefix_sum_bf16_kernel<<<blocks, threads>>>(output, input, N);
}
