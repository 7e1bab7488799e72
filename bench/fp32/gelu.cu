// Gelu, the exact form, fp32: output[i] = x * (1 + erf(x / sqrt(2))) / 2.
//
// Shapes  input, output: N
// Moves   8 bytes per element, four operations and an error function
// Naive   one thread per element, which loads and stores 4 bytes
#include <cuda_runtime.h>

__global__ void gelu_kernel(float* output, const float* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = input[i];
    output[i] = x * (1.0f + erff(0.70710678f * x)) / 2.0f;
}

extern "C" void gelu(float* output, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    gelu_kernel<<<blocks, threads>>>(output, input, N);
}
