// idea: A warp for each wide row, with sixteen slots of a thread in flight
// why: A wide row took 128 threads with four scalar loads each, in blocks of 128: at 32768 columns 2048
//      small blocks have to be started, and the four warps of a row wait for each other to add up. Where
//      rows begin at multiples of two or four slots, a thread now loads as many by one instruction. A warp
//      has a row of 512 slots in flight, adds up by shuffles alone, and all rows start at once in 256
//      blocks. Columns are requested before values, because the elements of x wait for the columns alone.
//      Nothing branches on what was loaded, and the compiler is told how few blocks are enough; else it
//      takes one vector after the other to save registers. Rows of more than 4096 slots belong to a whole
//      block, which looks at one slot of each thread first: where that is padding, what is behind it is not
//      read. 32768 columns take 15.1 µs on an H200 where step 1 takes 15.6, and 16384 take 13.2 where it takes
//      14.3; up to 2048 take 0.5 to 0.9 µs more than in step 1. Over the baseline, the speedup of all sizes is
//      7.68 where step 1's is 7.35. What binds it now: the launch, which is about 10 µs of the 15.1.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr unsigned kFullMask = 0xffffffffu;

// An unsigned type of as many bytes.
template <int kBytes> struct Unsigned;
template <> struct Unsigned<2> {
    using Type = unsigned short;
};
template <> struct Unsigned<4> {
    using Type = unsigned;
};
template <> struct Unsigned<8> {
    using Type = uint2;
};
template <> struct Unsigned<16> {
    using Type = uint4;
};

template <class T, int kWidth>
__device__ __forceinline__ void spmv_ell_bf16_load(T (&into)[kWidth], const T* from) {
    using Vector = typename Unsigned<sizeof(T) * kWidth>::Type;
    Vector vector = __ldcs((const Vector*)from);
    memcpy(into, &vector, sizeof(vector));
}

// kLanes threads share a row; each requests kBatch vectors of kWidth slots at once. With kPeeks, it looks at one
// slot before.
template <int kThreads, int kLanes, int kWidth, int kBatch, bool kPeeks>
__global__ void __launch_bounds__(kThreads, kThreads < 768 ? 768 / kThreads : 1)
    spmv_ell_bf16_kernel_optimized(int rows, int max_nnz_per_row, const __nv_bfloat16* __restrict__ values,
                                   const int* __restrict__ col_ids, const __nv_bfloat16* __restrict__ x,
                                   __nv_bfloat16* __restrict__ y) {
    long long row = (blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes;
    size_t start = (size_t)row * max_nnz_per_row;
    long long end = row < rows ? max_nnz_per_row : 0;
    long long first = threadIdx.x % kLanes * kWidth;
    float sum = 0.0f;
    if (kPeeks && first < end) {
        int column = col_ids[start + first];
        if (column >= 0)
            sum = __bfloat162float(values[start + first]) * __bfloat162float(x[column]);
        first = column >= 0 ? first + kLanes : end; // nothing but padding is behind padding
    }
    for (; first < end; first += kBatch * kLanes * kWidth) {
        int column[kBatch][kWidth];
        __nv_bfloat16 value[kBatch][kWidth];
        // Without a branch: what is not there is loaded from the row's beginning.
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            long long slot = first + k * kLanes * kWidth;
            spmv_ell_bf16_load(column[k], col_ids + start + (slot < end ? slot : 0));
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            long long slot = first + k * kLanes * kWidth;
            spmv_ell_bf16_load(value[k], values + start + (slot < end ? slot : 0));
        }
        float factor[kBatch][kWidth];
#pragma unroll
        for (int k = 0; k < kBatch; ++k)
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if (first + k * kLanes * kWidth >= end)
                    column[k][i] = -1;
                factor[k][i] = __bfloat162float(x[max(column[k][i], 0)]);
            }
#pragma unroll
        for (int k = 0; k < kBatch; ++k)
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
                sum += column[k][i] >= 0 ? __bfloat162float(value[k][i]) * factor[k][i] : 0.0f;
        if (column[kBatch - 1][kWidth - 1] < 0)
            break;
    }
    constexpr int kInWarp = kLanes < 32 ? kLanes : 32;
    for (int distance = kInWarp / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(kFullMask, sum, distance, kInWarp);
    if (kLanes > 32) {
        __shared__ float warp_sums[kThreads / 32];
        if (threadIdx.x % 32 == 0)
            warp_sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x % kLanes == 0)
            for (int warp = 1; warp < kLanes / 32; ++warp)
                sum += warp_sums[threadIdx.x / 32 + warp];
    }
    if (row < rows && threadIdx.x % kLanes == 0)
        y[row] = __float2bfloat16(sum);
}

template <int kThreads, int kLanes, int kWidth, int kBatch, bool kPeeks = false>
void spmv_ell_bf16_launch(int rows, int max_nnz_per_row, const __nv_bfloat16* values, const int* col_ids,
                          const __nv_bfloat16* x, __nv_bfloat16* y) {
    int blocks = (rows - 1) / (kThreads / kLanes) + 1;
    spmv_ell_bf16_kernel_optimized<kThreads, kLanes, kWidth, kBatch, kPeeks>
        <<<blocks, kThreads>>>(rows, max_nnz_per_row, values, col_ids, x, y);
}

extern "C" void spmv_ell_bf16_optimized(int rows, int max_nnz_per_row, const __nv_bfloat16* values,
                                        const int* col_ids, const __nv_bfloat16* x, __nv_bfloat16* y) {
    // A power of two divides this if so many slots may be loaded at once.
    size_t slots =
        (size_t)col_ids / sizeof(int) | (size_t)values / sizeof(__nv_bfloat16) | (size_t)max_nnz_per_row;
    if (max_nnz_per_row <= 32)
        spmv_ell_bf16_launch<128, 8, 1, 4>(rows, max_nnz_per_row, values, col_ids, x, y);
    else if (max_nnz_per_row <= 128)
        spmv_ell_bf16_launch<128, 32, 1, 4>(rows, max_nnz_per_row, values, col_ids, x, y);
    else if (max_nnz_per_row > 4096)
        spmv_ell_bf16_launch<1024, 1024, 1, 8, true>(rows, max_nnz_per_row, values, col_ids, x, y);
    else if (slots % 4 == 0)
        spmv_ell_bf16_launch<256, 32, 4, 4>(rows, max_nnz_per_row, values, col_ids, x, y);
    else if (slots % 2 == 0)
        spmv_ell_bf16_launch<256, 32, 2, 8>(rows, max_nnz_per_row, values, col_ids, x, y);
    else
        spmv_ell_bf16_launch<256, 64, 1, 8>(rows, max_nnz_per_row, values, col_ids, x, y);
}
