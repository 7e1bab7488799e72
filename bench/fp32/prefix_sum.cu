// Prefix sum, fp32, inclusive: output[i] = sum of input[0..i].
//
// Shapes  input, output: N
// Moves   8 bytes per element, N^2 / 2 additions
// Naive   one thread per output, which adds up everything from the start again
#include <cuda_runtime.h>

__global__ void prefix_sum_kernel(float* output, const float* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float sum = 0.0f;
    for (long long j = 0; j <= i; ++j)
        sum += input[j];
    output[i] = sum;
}

extern "C" void prefix_sum(float* output, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    prefix_sum_kernel<<<blocks, threads>>>(output, input, N);
}
