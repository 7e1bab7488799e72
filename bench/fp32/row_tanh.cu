// Hyperbolic tangent of a row, fp32: out[i] = tanh(input[i]).
//
// Shapes  input, out: N
// Moves   8 bytes per element, a hyperbolic tangent
// Naive   one thread per element, which loads and stores 4 bytes
#include <cuda_runtime.h>

__global__ void row_tanh_kernel(float* out, const float* input, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float x = input[i];
    out[i] = tanhf(x);
}

extern "C" void row_tanh(float* out, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    row_tanh_kernel<<<blocks, threads>>>(out, input, N);
}
