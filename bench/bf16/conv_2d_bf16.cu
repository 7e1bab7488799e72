// 2D convolution (valid correlation), bf16 storage, fp32 accumulation:
// output[i][j] = sum of input[i + p][j + q] * kernel[p][q].
//
// Shapes  input: input_rows x input_cols, kernel: kernel_rows x kernel_cols,
//         output: (input_rows - kernel_rows + 1) x (input_cols - kernel_cols + 1)
// Moves   about 4 bytes and 2 * kernel_rows * kernel_cols operations per output
// Naive   one thread per output and two loads from the caches for every multiply-add
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void conv_2d_bf16_kernel(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                    __nv_bfloat16* output, int input_cols, int output_rows, int output_cols,
                                    int kernel_rows, int kernel_cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    // A grid has at most 65535 blocks along y; beyond that a block takes several strips of rows.
    for (long long i = blockIdx.y * (long long)blockDim.y + threadIdx.y; i < output_rows && j < output_cols;
         i += gridDim.y * (long long)blockDim.y) {
        float sum = 0.0f;
        for (int p = 0; p < kernel_rows; ++p)
            for (int q = 0; q < kernel_cols; ++q)
                sum += __bfloat162float(input[(i + p) * input_cols + j + q]) *
                       __bfloat162float(kernel[(long long)p * kernel_cols + q]);
        output[i * output_cols + j] = __float2bfloat16(sum);
    }
}

extern "C" void conv_2d_bf16(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                             int input_rows, int input_cols, int kernel_rows, int kernel_cols) {
    int output_rows = input_rows - kernel_rows + 1;
    int output_cols = input_cols - kernel_cols + 1;
    dim3 threads(32, 8);
    int strips = (output_rows - 1) / threads.y + 1;
    dim3 blocks((output_cols - 1) / threads.x + 1, strips < 65535 ? strips : 65535);
    conv_2d_bf16_kernel<<<blocks, threads>>>(input, kernel, output, input_cols, output_rows, output_cols,
                                             kernel_rows, kernel_cols);
}
