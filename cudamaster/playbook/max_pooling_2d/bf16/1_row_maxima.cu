// idea: A thread walks down a column of outputs and keeps the maxima of its rows
// why: The baseline reads every element once for each window that covers it, each time behind four
//      comparisons, and finds its place by three 64-bit divisions. Here the largest of the window's part of
//      a row is made once and stays in a register for all windows that share the row, so that a window of 3
//      costs three loads instead of nine; the loads of a warp are neighbours. The block finds its place by
//      one division. An index outside the plane is clamped to its edge: the edge lies inside the same
//      window, so that it changes no maximum and needs no test. All loads of the eight outputs of a thread
//      are independent and wait together. The usual windows are compiled with sizes as constants, the
//      others take a loop over the part of the window that lies inside.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreadsX = 32;
constexpr int kThreadsY = 8;
constexpr int kRows = 8; // outputs of a thread, one below the other
constexpr int kMaxBlocksY = 65535;

template <int kSize, int kStride>
__global__ void __launch_bounds__(kThreadsX* kThreadsY)
    max_pooling_2d_bf16_kernel_optimized(const __nv_bfloat16* input, __nv_bfloat16* output, long long planes,
                                         int H, int W, int H_out, int W_out, int padding, int blocks_x) {
    int x_out = blockIdx.x % blocks_x * kThreadsX + threadIdx.x;
    int first = (blockIdx.x / blocks_x * kThreadsY + threadIdx.y) * kRows;
    if (x_out >= W_out || first >= H_out)
        return;
    int x[kSize]; // columns of the window
#pragma unroll
    for (int j = 0; j < kSize; ++j)
        x[j] = min(max(x_out * kStride - padding + j, 0), W - 1);
    for (long long plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        const __nv_bfloat16* from = input + plane * H * W;
        __nv_bfloat16* to = output + plane * H_out * W_out;
        constexpr int kInputRows = (kRows - 1) * kStride + kSize;
        float row_largest[kInputRows];
#pragma unroll
        for (int i = 0; i < kInputRows; ++i) {
            const __nv_bfloat16* row =
                from + (long long)min(max(first * kStride - padding + i, 0), H - 1) * W;
            row_largest[i] = __bfloat162float(row[x[0]]);
#pragma unroll
            for (int j = 1; j < kSize; ++j)
                row_largest[i] = fmaxf(row_largest[i], __bfloat162float(row[x[j]]));
        }
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            float largest = row_largest[k * kStride];
#pragma unroll
            for (int i = 1; i < kSize; ++i)
                largest = fmaxf(largest, row_largest[k * kStride + i]);
            if (first + k < H_out)
                to[(long long)(first + k) * W_out + x_out] = __float2bfloat16(largest);
        }
    }
}

// Any window: one thread per output.
__global__ void max_pooling_2d_any_bf16_kernel_optimized(const __nv_bfloat16* input, __nv_bfloat16* output,
                                                         long long planes, int H, int W, int H_out, int W_out,
                                                         int kernel_size, int stride, int padding) {
    long long index = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (index >= planes * H_out * W_out)
        return;
    long long left = index % W_out * stride - padding, top = index / W_out % H_out * stride - padding;
    int x_begin = max(left, 0LL), x_end = min(left + kernel_size, (long long)W);
    int y_begin = max(top, 0LL), y_end = min(top + kernel_size, (long long)H);
    const __nv_bfloat16* plane = input + index / W_out / H_out * H * W;
    float largest = __bfloat162float(plane[(long long)y_begin * W + x_begin]);
    for (int y = y_begin; y < y_end; ++y)
        for (int x = x_begin; x < x_end; ++x)
            largest = fmaxf(largest, __bfloat162float(plane[(long long)y * W + x]));
    output[index] = __float2bfloat16(largest);
}

template <int kSize, int kStride>
void max_pooling_2d_bf16_launch(const __nv_bfloat16* input, __nv_bfloat16* output, long long planes, int H,
                                int W, int H_out, int W_out, int padding) {
    int blocks_x = (W_out - 1) / kThreadsX + 1;
    int blocks_y = (H_out - 1) / (kThreadsY * kRows) + 1;
    dim3 blocks(blocks_x * blocks_y, planes < kMaxBlocksY ? planes : kMaxBlocksY);
    dim3 threads(kThreadsX, kThreadsY);
    max_pooling_2d_bf16_kernel_optimized<kSize, kStride>
        <<<blocks, threads>>>(input, output, planes, H, W, H_out, W_out, padding, blocks_x);
}

extern "C" void max_pooling_2d_bf16_optimized(const __nv_bfloat16* input, __nv_bfloat16* output, int N, int C,
                                              int H, int W, int kernel_size, int stride, int padding) {
    int H_out = (H + 2 * padding - kernel_size) / stride + 1;
    int W_out = (W + 2 * padding - kernel_size) / stride + 1;
    long long planes = (long long)N * C;
    if (kernel_size == 2 && stride == 1)
        max_pooling_2d_bf16_launch<2, 1>(input, output, planes, H, W, H_out, W_out, padding);
    else if (kernel_size == 3 && stride == 1)
        max_pooling_2d_bf16_launch<3, 1>(input, output, planes, H, W, H_out, W_out, padding);
    else if (kernel_size == 4 && stride == 2)
        max_pooling_2d_bf16_launch<4, 2>(input, output, planes, H, W, H_out, W_out, padding);
    else {
        int threads = 256;
        int blocks = (planes * H_out * W_out - 1) / threads + 1;
        max_pooling_2d_any_bf16_kernel_optimized<<<blocks, threads>>>(input, output, planes, H, W, H_out,
                                                                      W_out, kernel_size, stride, padding);
    }
}
