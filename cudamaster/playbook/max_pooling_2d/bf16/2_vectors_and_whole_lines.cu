// idea: Sixteen bytes of columns to a thread, and results that leave in whole lines
// why: The step before loads 2 bytes at a time, three times for a window of three, and its time goes into
//      instructions and L2. Here a thread requests 16 bytes of each of its rows at once. What its windows
//      cover beside them comes from the next lanes by shuffles; only the ends of a warp load it. So an
//      input is loaded once, apart from rows that two strips share, which L2 has. Elements are compared in
//      pairs, first down the columns, so that shuffles and windows along a row are made once for a row of
//      results, not for each row of inputs; a pointer goes from row to row. Both count: of 584
//      instructions for a window of 4 and strides of 2, 143 were integer products for addresses, and 16 x
//      3 planes of 608 x 608 took 26 µs, the whole call on an H200, where they take 23 now; a window of 3
//      without padding 34, and 29 now. Places outside the plane are minus infinity. Rows of results are
//      rarely aligned (607 or 609 columns): they go to shared memory, and a warp stores a row in whole
//      lines. If rows are aligned, each thread stores its own results. A lane for each word, which needs
//      no shared memory, has stores that begin anywhere and touch five sectors for four: 34 µs where an
//      earlier form took 28, with a window of 3 and padding 1. The step before takes 59 there. Windows
//      other than the three that are compiled take one thread per output. Memory binds it now: 86 to 96 %
//      of a copy of as many bytes, on the device of an H200.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef unsigned short Element; // the bits of a bf16
typedef unsigned int Pair;      // of neighbours

constexpr int kWarp = 32;
constexpr int kWidth = 8; // columns of a thread, in 16 bytes
constexpr int kPairs = kWidth / 2;
constexpr int kMostThreads = 128; // of a block
constexpr int kBlocks = 8;        // of a multiprocessor, if they are that large, or more
constexpr int kMostPlanes = 65535;
constexpr Pair kNone = 0xff80ff80u;                                  // minus infinity twice
template <int kStride> constexpr int kRowsAt = kStride == 1 ? 4 : 3; // rows of results of a thread

__device__ Pair larger(Pair a, Pair b) {
    __nv_bfloat162 largest = __hmax2(*(const __nv_bfloat162*)&a, *(const __nv_bfloat162*)&b);
    return *(const Pair*)&largest;
}

// The neighbours where one pair ends and the next begins.
__device__ Pair between(Pair a, Pair b) {
    return __byte_perm(a, b, 0x5432);
}

// The columns j and j + 1, if they lie before `end`.
__device__ Pair pair_at(const Element* line, int j, int end) {
    Pair pair = kNone;
    if (j < end)
        pair = __byte_perm(pair, line[j], 0x3254);
    if (j + 1 < end)
        pair = __byte_perm(pair, line[j + 1], 0x5410);
    return pair;
}

// Neighbouring results of a thread.
template <int kCount> struct __align__(kCount * sizeof(Pair)) Outputs {
    Pair at[kCount];
};

// The largest of each window, kRows rows of results to a thread. If rows of the output are aligned to what a
// thread has, it stores its results itself (direct); otherwise they leave through shared memory.
// Rows of the input are aligned to vectors (kAligned), to pairs (paired) or to elements.
template <int kSize, int kStride, int kPadding, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, kBlocks)
    max_pooling_2d_bf16_kernel_optimized(const Element* input, Element* output, long long planes, int H,
                                         int W, int H_out, int W_out, unsigned int strips, bool direct,
                                         bool paired) {
    constexpr int kRows = kRowsAt<kStride>;
    constexpr int kInputRows = (kRows - 1) * kStride + kSize;
    constexpr int kAfter = kSize - kStride - kPadding;
    constexpr bool kBeyond = kStride == 1 && 2 * kPadding >= kSize; // a row has more results than columns
    constexpr int kOut = kPairs / kStride;
    using Results = Outputs<kOut>;
    extern __shared__ __align__(16) unsigned char shared[];
    Results* results = (Results*)shared; // kRows rows of the block
    int lane = threadIdx.x % kWarp;
    int part = gridDim.x > strips ? blockIdx.x / strips : 0, first = (blockIdx.x - part * strips) * kRows;
    int thread = part * blockDim.x + threadIdx.x, j = thread * kWidth;
    int column = kAligned ? min(j, W - kWidth) : j; // loaded from here on
    int begin = part * blockDim.x * 2 * kOut, length = min(W_out - begin, (int)blockDim.x * 2 * kOut);
    // Only the ends of a warp load what lies beside them.
    bool left = kPadding > 0 && lane == 0 && j > 0 && j <= W;
    bool right = kAfter > 0 && lane == kWarp - 1 && j + kWidth < W;
    for (long long plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        // A row of the thread's columns in pairs, and what lies beside the warp. Places outside the plane never
        // win. Rows outside it are clamped to its edge, which lies in the same window.
        Pair columns[kInputRows][kPairs], beside[kInputRows];
        int y = first * kStride - kPadding;
        const Element* line = input + (plane * H + max(y, 0)) * W + column;
#pragma unroll
        for (int i = 0; i < kInputRows; ++i, ++y) {
            beside[i] = kNone;
            if (kAligned) {
                uint4 own = *(const uint4*)line;
                columns[i][0] = own.x, columns[i][1] = own.y, columns[i][2] = own.z, columns[i][3] = own.w;
            }
#pragma unroll
            for (int q = 0; q < kPairs; ++q) {
                if (!kAligned && paired)
                    columns[i][q] = j + 2 * q < W ? *(const Pair*)(line + 2 * q) : kNone;
                if (!kAligned && !paired)
                    columns[i][q] = pair_at(line - column, j + 2 * q, W);
            }
            if (left)
                beside[i] = (Pair)line[kBeyond ? j - column - 1 : -1] << 16;
            if (right && kAfter == 1)
                beside[i] = kNone & 0xffff0000u | line[kWidth];
            if (right && kAfter > 1)
                beside[i] = kAligned ? *(const Pair*)(line + kWidth) : pair_at(line - column, j + kWidth, W);
            if (y >= 0 && y < H - 1)
                line += W;
        }
        Element* to = output + (plane * H_out + first) * W_out + thread * 2 * kOut;
        // Down the columns first, so that what lies across is looked at once for a row of results.
#pragma unroll
        for (int k = 0; k < kRows; ++k, to += W_out) {
            Pair row[kPairs + 2], side = beside[k * kStride];
#pragma unroll
            for (int q = 0; q < kPairs; ++q) {
                row[q + 1] = columns[k * kStride][q];
#pragma unroll
                for (int i = 1; i < kSize; ++i)
                    row[q + 1] = larger(row[q + 1], columns[k * kStride + i][q]);
                if (kBeyond && j >= W)
                    row[q + 1] = kNone;
            }
#pragma unroll
            for (int i = 1; i < kSize; ++i)
                side = larger(side, beside[k * kStride + i]);
            Pair before = __shfl_up_sync(~0u, row[kPairs], 1), after = __shfl_down_sync(~0u, row[1], 1);
            row[0] = lane > 0 ? before : side;
            row[kPairs + 1] = lane < kWarp - 1 && j + kWidth < W ? after : right ? side : kNone;
            Pair odd[kPairs + 1]; // pairs that begin at odd columns, from the one before the thread's own on
#pragma unroll
            for (int q = 0; q <= kPairs; ++q)
                odd[q] = between(row[q], row[q + 1]);
            Results u;
            if (kStride == 1) {
#pragma unroll
                for (int q = 0; q < kOut; ++q) {
                    u.at[q] = larger(row[q + 1], odd[q + 1 - kPadding]);
                    if (kSize == 3)
                        u.at[q] = larger(u.at[q], kPadding > 0 ? odd[q + 1] : row[q + 2]);
                }
            } else { // four columns, whose pairs are joined first
#pragma unroll
                for (int q = 0; q < kOut; ++q) {
                    const Pair* from = kPadding > 0 ? &odd[2 * q] : &row[2 * q + 1];
                    Pair a = larger(from[0], from[1]), b = larger(from[1], from[2]);
                    u.at[q] = larger(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
                }
            }
            if (!direct)
                results[k * blockDim.x + threadIdx.x] = u;
            else if (first + k < H_out && thread * 2 * kOut < W_out)
                *(Results*)to = u;
        }
        if (!direct) {
            __syncthreads();
            // A warp takes a row; its stores fill whole lines but for the ends of the row.
            for (int k = threadIdx.x / kWarp; k < kRows && first + k < H_out; k += blockDim.x / kWarp) {
                Element* to = output + (plane * H_out + first + k) * W_out + begin;
                const Element* from = (const Element*)(results + k * blockDim.x);
                int e = 2 * lane - (int)((size_t)to / sizeof(Element) % (2 * kWarp));
                if (e == -1)
                    to[0] = from[0];
                if (e >= 0 && e + 1 < length)
                    *(Pair*)(to + e) = from[e] | (Pair)from[e + 1] << 16;
                if (e >= 0 && e + 1 == length)
                    to[e] = from[e];
#pragma unroll 4
                for (e += 2 * kWarp; e + 1 < length; e += 2 * kWarp)
                    *(Pair*)(to + e) = from[e] | (Pair)from[e + 1] << 16;
                if (e + 1 == length)
                    to[e] = from[e];
            }
            if (plane + gridDim.y < planes)
                __syncthreads();
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

template <int kSize, int kStride, int kPadding>
void max_pooling_2d_bf16_launch(const __nv_bfloat16* input, __nv_bfloat16* output, long long planes, int H,
                                int W, int H_out, int W_out) {
    constexpr int kRows = kRowsAt<kStride>;
    constexpr int kOut = kWidth / kStride; // results
    int vectors = (W_out - 1) / kOut + 1, parts = (vectors - 1) / kMostThreads + 1;
    int threads = ((vectors - 1) / parts / kWarp + 1) * kWarp;
    int strips = (H_out - 1) / kRows + 1;
    auto kernel = max_pooling_2d_bf16_kernel_optimized<kSize, kStride, kPadding, false>;
    if (W % kWidth == 0 && (size_t)input % 16 == 0)
        kernel = max_pooling_2d_bf16_kernel_optimized<kSize, kStride, kPadding, true>;
    bool paired = W % 2 == 0 && (size_t)input % 4 == 0;
    bool direct = W_out % kOut == 0 && (size_t)output % 16 == 0;
    size_t bytes = direct ? 0 : kRows * threads * kOut * sizeof(__nv_bfloat16);
    dim3 blocks(strips * parts, planes < kMostPlanes ? planes : kMostPlanes);
    kernel<<<blocks, threads, bytes>>>((const Element*)input, (Element*)output, planes, H, W, H_out, W_out,
                                       strips, direct, paired);
}

extern "C" void max_pooling_2d_bf16_optimized(const __nv_bfloat16* input, __nv_bfloat16* output, int N, int C,
                                              int H, int W, int kernel_size, int stride, int padding) {
    int H_out = (H + 2 * padding - kernel_size) / stride + 1;
    int W_out = (W + 2 * padding - kernel_size) / stride + 1;
    long long planes = (long long)N * C;
    auto window = [&](int size, int step, int around) {
        return kernel_size == size && stride == step && padding == around;
    };
    if (window(2, 1, 0))
        max_pooling_2d_bf16_launch<2, 1, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(2, 1, 1))
        max_pooling_2d_bf16_launch<2, 1, 1>(input, output, planes, H, W, H_out, W_out);
    else if (window(3, 1, 0))
        max_pooling_2d_bf16_launch<3, 1, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(3, 1, 1))
        max_pooling_2d_bf16_launch<3, 1, 1>(input, output, planes, H, W, H_out, W_out);
    else if (window(4, 2, 0))
        max_pooling_2d_bf16_launch<4, 2, 0>(input, output, planes, H, W, H_out, W_out);
    else if (window(4, 2, 1))
        max_pooling_2d_bf16_launch<4, 2, 1>(input, output, planes, H, W, H_out, W_out);
    else {
        int threads = 256;
        int blocks = (planes * H_out * W_out - 1) / threads + 1;
        max_pooling_2d_any_bf16_kernel_optimized<<<blocks, threads>>>(input, output, planes, H, W, H_out,
                                                                      W_out, kernel_size, stride, padding);
    }
}
