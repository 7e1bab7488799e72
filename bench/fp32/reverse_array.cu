// Reverse array, fp32: output[i] = input[N-1-i].
//
// Shapes  input, output: N
// Moves   8 bytes per element
// Naive   one element per thread, so a thread has no more than 4 bytes of loads in flight
#include <cuda_runtime.h>

__global__ void reverse_array_kernel(float* output, const float* input, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    output[i] = input[N - 1 - i];
}

extern "C" void reverse_array(float* output, const float* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    reverse_array_kernel<<<blocks, threads>>>(output, input, N);
}
