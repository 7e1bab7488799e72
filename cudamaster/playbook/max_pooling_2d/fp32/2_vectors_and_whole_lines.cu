// idea: Sixteen bytes of columns to a thread, and results that leave in whole lines
// why: The step before loads 4 bytes at a time, three times for a window of three, and its time goes into
//      instructions and L2. Here a thread requests 16 bytes of each of its rows at once. What its windows
//      cover beside them comes from the next lanes by shuffles; only the ends of a warp load it. So an
//      input is loaded once, apart from rows that two strips share, which L2 has. The largest is found
//      down the columns first, so that shuffles and windows along a row are made once for a row of
//      results, not for each row of inputs; a pointer goes from row to row. A window of 3 without padding
//      takes 44.5 µs instead of 46.8 by that, for 16 x 3 planes of 608 x 608, the whole call on an H200;
//      the others gain up to 2 %. Places outside the plane are minus infinity. Rows of results are rarely
//      aligned (607 or 609 columns): they go to shared memory, and a warp stores a row in whole lines. If
//      rows are aligned, each thread stores its own results. A lane for each word, which needs no shared
//      memory, has stores that begin anywhere and touch five sectors for four: 51 µs where an earlier form
//      took 45, with a window of 3 and padding 1. The step before takes 74 there. Windows other than the
//      three that are compiled take one thread per output. Memory binds it now: 92 to 95 % of a copy of as
//      many bytes, on the device of an H200.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kWarp = 32;
constexpr int kWidth = 4;         // columns of a thread, in 16 bytes
constexpr int kMostThreads = 256; // of a block
constexpr int kBlocks = 4;        // of a multiprocessor, if they are that large, or more
constexpr int kRows = 4;          // rows of results of a thread
constexpr int kMostPlanes = 65535;

__device__ float none() {
    return __int_as_float(0xff800000);
}

// Neighbouring results of a thread.
template <int kCount> struct __align__(kCount * sizeof(float)) Outputs {
    float at[kCount];
};

// The largest of each window, kRows rows of results to a thread. If rows of the output are aligned to what a
// thread has, it stores its results itself (direct); otherwise they leave through shared memory.
// kAligned: rows of the input are aligned to vectors.
template <int kSize, int kStride, int kPadding, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, kBlocks)
    max_pooling_2d_kernel_optimized(const float* input, float* output, long long planes, int H, int W,
                                    int H_out, int W_out, unsigned int strips, bool direct) {
    constexpr int kInputRows = (kRows - 1) * kStride + kSize;
    constexpr int kAfter = kSize - kStride - kPadding;
    constexpr bool kBeyond = kStride == 1 && 2 * kPadding >= kSize; // a row has more results than columns
    constexpr int kBeside = kPadding > 0 ? 1 : kAfter;
    constexpr int kOut = kWidth / kStride;
    using Results = Outputs<kOut>;
    extern __shared__ __align__(16) unsigned char shared[];
    Results* results = (Results*)shared; // kRows rows of the block
    int lane = threadIdx.x % kWarp;
    int part = gridDim.x > strips ? blockIdx.x / strips : 0, first = (blockIdx.x - part * strips) * kRows;
    int thread = part * blockDim.x + threadIdx.x, j = thread * kWidth;
    int column = kAligned ? min(j, W - kWidth) : j; // loaded from here on
    int begin = part * blockDim.x * kOut, length = min(W_out - begin, (int)blockDim.x * kOut);
    // Only the ends of a warp load what lies beside them, kPadding elements before and kAfter behind.
    bool left = kPadding > 0 && lane == 0 && j > 0 && j <= W, right = kAfter > 0 && lane == kWarp - 1;
    for (long long plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        // A row of the thread's columns, and what lies beside the warp. Places outside the plane never win. Rows
        // outside it are clamped to its edge, which lies in the same window.
        float columns[kInputRows][kWidth], beside[kInputRows][kBeside];
        int y = first * kStride - kPadding;
        const float* line = input + (plane * H + max(y, 0)) * W + column;
#pragma unroll
        for (int i = 0; i < kInputRows; ++i, ++y) {
            if (kAligned) {
                float4 own = *(const float4*)line;
                columns[i][0] = own.x, columns[i][1] = own.y, columns[i][2] = own.z, columns[i][3] = own.w;
            } else {
#pragma unroll
                for (int c = 0; c < kWidth; ++c)
                    columns[i][c] = j + c < W ? line[c] : none();
            }
#pragma unroll
            for (int c = 0; c < kBeside; ++c) {
                beside[i][c] = none();
                if (left)
                    beside[i][c] = line[kBeyond ? j - column - 1 : -1];
                if (right && j + kWidth + c < W)
                    beside[i][c] = line[kWidth + c];
            }
            if (y >= 0 && y < H - 1)
                line += W;
        }
        float* to = output + (plane * H_out + first) * W_out + thread * kOut;
        // Down the columns first, so that what lies across is looked at once for a row of results.
#pragma unroll
        for (int k = 0; k < kRows; ++k, to += W_out) {
            float row[kPadding + kWidth + kAfter], side[kBeside];
#pragma unroll
            for (int c = 0; c < kWidth; ++c) {
                row[kPadding + c] = columns[k * kStride][c];
#pragma unroll
                for (int i = 1; i < kSize; ++i)
                    row[kPadding + c] = fmaxf(row[kPadding + c], columns[k * kStride + i][c]);
                if (kBeyond && j >= W)
                    row[kPadding + c] = none();
            }
#pragma unroll
            for (int c = 0; c < kBeside; ++c) {
                side[c] = beside[k * kStride][c];
#pragma unroll
                for (int i = 1; i < kSize; ++i)
                    side[c] = fmaxf(side[c], beside[k * kStride + i][c]);
            }
            if (kPadding > 0) {
                float before = __shfl_up_sync(~0u, row[kPadding + kWidth - 1], 1);
                row[0] = lane > 0 ? before : j > 0 ? side[0] : none();
            }
#pragma unroll
            for (int c = 0; c < kAfter; ++c) {
                float after = __shfl_down_sync(~0u, row[kPadding + c], 1);
                row[kPadding + kWidth + c] = right ? side[c] : j + kWidth + c < W ? after : none();
            }
            Results u;
#pragma unroll
            for (int o = 0; o < kOut; ++o) {
                u.at[o] = row[o * kStride];
#pragma unroll
                for (int c = 1; c < kSize; ++c)
                    u.at[o] = fmaxf(u.at[o], row[o * kStride + c]);
            }
            if (!direct)
                results[k * blockDim.x + threadIdx.x] = u;
            else if (first + k < H_out && thread * kOut < W_out)
                *(Results*)to = u;
        }
        if (!direct) {
            __syncthreads();
            // A warp takes a row; its stores fill whole lines but for the ends of the row.
            for (int k = threadIdx.x / kWarp; k < kRows && first + k < H_out; k += blockDim.x / kWarp) {
                float* to = output + (plane * H_out + first + k) * W_out + begin;
                const float* from = (const float*)(results + k * blockDim.x);
                int e = lane - (int)((size_t)to / sizeof(float) % kWarp);
                if (e >= 0 && e < length)
                    to[e] = from[e];
#pragma unroll 4
                for (e += kWarp; e < length; e += kWarp)
                    to[e] = from[e];
            }
            if (plane + gridDim.y < planes)
                __syncthreads();
        }
    }
}

// Any window: one thread per output.
__global__ void max_pooling_2d_any_kernel_optimized(const float* input, float* output, long long planes,
                                                    int H, int W, int H_out, int W_out, int kernel_size,
                                                    int stride, int padding) {
    long long index = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (index >= planes * H_out * W_out)
        return;
    long long left = index % W_out * stride - padding, top = index / W_out % H_out * stride - padding;
    int x_begin = max(left, 0LL), x_end = min(left + kernel_size, (long long)W);
    int y_begin = max(top, 0LL), y_end = min(top + kernel_size, (long long)H);
    const float* plane = input + index / W_out / H_out * H * W;
    float largest = plane[(long long)y_begin * W + x_begin];
    for (int y = y_begin; y < y_end; ++y)
        for (int x = x_begin; x < x_end; ++x)
            largest = fmaxf(largest, plane[(long long)y * W + x]);
    output[index] = largest;
}

template <int kSize, int kStride, int kPadding>
void max_pooling_2d_launch(const float* input, float* output, long long planes, int H, int W, int H_out,
                           int W_out) {
    constexpr int kOut = kWidth / kStride; // results
    int vectors = (W_out - 1) / kOut + 1, parts = (vectors - 1) / kMostThreads + 1;
    int threads = ((vectors - 1) / parts / kWarp + 1) * kWarp;
    int strips = (H_out - 1) / kRows + 1;
    auto kernel = max_pooling_2d_kernel_optimized<kSize, kStride, kPadding, false>;
    if (W % kWidth == 0 && (size_t)input % 16 == 0)
        kernel = max_pooling_2d_kernel_optimized<kSize, kStride, kPadding, true>;
    bool direct = W_out % kOut == 0 && (size_t)output % 16 == 0;
    size_t bytes = direct ? 0 : kRows * threads * kOut * sizeof(float);
    dim3 blocks(strips * parts, planes < kMostPlanes ? planes : kMostPlanes);
    kernel<<<blocks, threads, bytes>>>((const float*)input, (float*)output, planes, H, W, H_out, W_out,
                                       strips, direct);
}

extern "C" void max_pooling_2d_optimized(const float* input, float* output, int N, int C, int H, int W,
                                         int kernel_size, int stride, int padding) {
    int H_out = (H + 2 * padding - kernel_size) / stride + 1;
    int W_out = (W + 2 * padding - kernel_size) / stride + 1;
    long long planes = (long long)N * C;
    auto window = [&](int size, int step, int around) {
        return kernel_size == size && stride == step && padding == around;
    };
    if (window(2, 1, 0))
        max_pooling_2d_launch<2, 1, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(2, 1, 1))
        max_pooling_2d_launch<2, 1, 1>(input, output, planes, H, W, H_out, W_out);
    else if (window(3, 1, 0))
        max_pooling_2d_launch<3, 1, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(3, 1, 1))
        max_pooling_2d_launch<3, 1, 1>(input, output, planes, H, W, H_out, W_out);
    else if (window(4, 2, 0))
        max_pooling_2d_launch<4, 2, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(4, 2, 1))
        max_pooling_2d_launch<4, 2, 1>(input, output, planes, H, W, H_out, W_out);
    else {
        int threads = 256;
        int blocks = (planes * H_out * W_out - 1) / threads + 1;
        max_pooling_2d_any_kernel_optimized<<<blocks, threads>>>(input, output, planes, H, W, H_out, W_out,
                                                                 kernel_size, stride, padding);
    }
}
