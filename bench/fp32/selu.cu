// Selu, fp32: output[i] = lambda * x where x > 0, else lambda * alpha * (exp(x) - 1).
//
// Shapes  input, output: N
// Moves   8 bytes per element, up to four operations, one of them an exponential
// Naive   one thread per element, which loads and stores 4 bytes
#include <cuda_runtime.h>

__global__ void selu_kernel(float* output, const float* input, int N, float alpha, float lambda) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = input[i];
    output[i] = x > 0.0f ? lambda * x : lambda * alpha * (expf(x) - 1.0f);
}

extern "C" void selu(float* output, const float* input, int N, float alpha, float lambda) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    selu_kernel<<<blocks, threads>>>(output, input, N, alpha, lambda);
}
