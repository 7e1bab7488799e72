// Reverse array, bf16: output[i] = input[N-1-i].
//
// Shapes  input, output: N
// Moves   4 bytes per element
// Naive   one element per thread, so a thread has no more than 2 bytes of loads in flight
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void reverse_array_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    output[i] = input[N - 1 - i];
}

extern "C" void reverse_array_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    reverse_array_bf16_kernel<<<blocks, threads>>>(output, input, N);
}
