// 1D convolution (valid correlation), bf16 storage, fp32 sums: output[i] = sum of input[i + k] * kernel[k].
//
// Shapes  input: input_size, kernel: kernel_size, output: input_size - kernel_size + 1
// Moves   about 4 bytes and 2 * kernel_size operations per output
// Naive   one thread per output and two loads from the caches for every multiply-add
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void conv_1d_bf16_kernel(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                    __nv_bfloat16* output, int output_size, int kernel_size) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= output_size)
        return;
    float sum = 0.0f;
    for (int k = 0; k < kernel_size; ++k)
        sum += __bfloat162float(input[i + k]) * __bfloat162float(kernel[k]);
    output[i] = __float2bfloat16(sum);
}

extern "C" void conv_1d_bf16(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                             int input_size, int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    int threads = 256;
    int blocks = (output_size - 1) / threads + 1;
    conv_1d_bf16_kernel<<<blocks, threads>>>(input, kernel, output, output_size, kernel_size);
}
