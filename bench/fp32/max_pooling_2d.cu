// 2D max pooling, fp32: output[n][c][y][x] = largest input in the window at (y, x).
//
// Shapes  input: N x C x H x W, output: N x C x H_out x W_out
// Moves   4 bytes in per input element and out per output, kernel_size^2 comparisons per output
// Naive   one thread per output: every element is loaded again for each window that covers it, each load
//         behind a test for the border, and the four indices come from 64-bit divisions
#include <cuda_runtime.h>

__global__ void max_pooling_2d_kernel(const float* input, float* output, long long planes, int H, int W,
                                      int H_out, int W_out, int kernel_size, int stride, int padding) {
    long long index = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (index >= planes * H_out * W_out)
        return;
    int x_out = index % W_out;
    int y_out = index / W_out % H_out;
    const float* plane = input + index / W_out / H_out * H * W;
    float largest = -INFINITY;
    for (int i = 0; i < kernel_size; ++i) {
        for (int j = 0; j < kernel_size; ++j) {
            long long y = (long long)y_out * stride - padding + i;
            long long x = (long long)x_out * stride - padding + j;
            if (y >= 0 && y < H && x >= 0 && x < W)
                largest = fmaxf(largest, plane[y * W + x]);
        }
    }
    output[index] = largest;
}

extern "C" void max_pooling_2d(const float* input, float* output, int N, int C, int H, int W, int kernel_size,
                               int stride, int padding) {
    int H_out = (H + 2 * padding - kernel_size) / stride + 1;
    int W_out = (W + 2 * padding - kernel_size) / stride + 1;
    long long planes = (long long)N * C;
    int threads = 256;
    int blocks = (planes * H_out * W_out + threads - 1) / threads;
    max_pooling_2d_kernel<<<blocks, threads>>>(input, output, planes, H, W, H_out, W_out, kernel_size, stride,
                                               padding);
}
