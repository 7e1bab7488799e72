// Relu, fp32: output[i] = max(0, input[i]).
//
// Shapes  input, output: N
// Moves   8 bytes per element, one comparison
// Naive   one thread per element, which loads and stores 4 bytes
#include <cuda_runtime.h>

__global__ void relu_kernel(float* output, const float* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = input[i];
    output[i] = fmaxf(0.0f, x);
}

extern "C" void relu(float* output, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    relu_kernel<<<blocks, threads>>>(output, input, N);
}
