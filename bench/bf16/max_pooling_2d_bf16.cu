// 2D max pooling, bf16: output[n][c][y][x] = largest input in the window at (y, x).
//
// Shapes  input: N x C x H x W, output: N x C x H_out x W_out
// Moves   2 bytes in per input element and out per output, kernel_size^2 comparisons per output
// Naive   one thread per output: every element is loaded again for each window that covers it, each load
//         behind a test for the border, and the four indices come from 64-bit divisions
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void max_pooling_2d_bf16_kernel(const __nv_bfloat16* input, __nv_bfloat16* output,
                                           long long planes, int H, int W, int H_out, int W_out,
                                           int kernel_size, int stride, int padding) {
    long long index = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (index >= planes * H_out * W_out)
        return;
    int x_out = index % W_out;
    int y_out = index / W_out % H_out;
    const __nv_bfloat16* plane = input + index / W_out / H_out * H * W;
    float largest = -INFINITY;
    for (int i = 0; i < kernel_size; ++i) {
        for (int j = 0; j < kernel_size; ++j) {
            long long y = (long long)y_out * stride - padding + i;
            long long x = (long long)x_out * stride - padding + j;
            if (y >= 0 && y < H && x >= 0 && x < W)
                largest = fmaxf(largest, __bfloat162float(plane[y * W + x]));
        }
    }
    output[index] = __float2bfloat16(largest);
}

extern "C" void max_pooling_2d_bf16(const __nv_bfloat16* input, __nv_bfloat16* output, int N, int C, int H,
                                    int W, int kernel_size, int stride, int padding) {
    int H_out = (H + 2 * padding - kernel_size) / stride + 1;
    int W_out = (W + 2 * padding - kernel_size) / stride + 1;
    long long planes = (long long)N * C;
    int threads = 256;
    int blocks = (planes * H_out * W_out + threads - 1) / threads;
    max_pooling_2d_bf16_kernel<<<blocks, threads>>>(input, output, planes, H, W, H_out, W_out, kernel_size,
                                                    stride, padding);
}
