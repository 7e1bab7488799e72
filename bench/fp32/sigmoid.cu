// Sigmoid, fp32: out[i] = 1 / (1 + exp(-input[i])).
//
// Shapes  input, out: N
// Moves   8 bytes per element, an exponential, an addition and a division
// Naive   one thread per element, which loads and stores 4 bytes
#include <cuda_runtime.h>

__global__ void sigmoid_kernel(float* out, const float* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = input[i];
    out[i] = 1.0f / (1.0f + expf(-x));
}

extern "C" void sigmoid(float* out, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    sigmoid_kernel<<<blocks, threads>>>(out, input, N);
}
