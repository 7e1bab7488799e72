// idea: Work through X in slabs of one cache line, so that L1 holds what is gathered
// why: Every entry needs a row of X. The baseline fetches these rows from the L2 cache 64 bytes at a time,
//      for each entry anew, twenty times as much as it writes, and each thread does so for two bytes. All
//      blocks that run at a time now work on the same 64 columns of X, one cache line of each of its rows,
//      which L1 can hold for the most part: rows of A are the fast index of the grid, slabs the slow one.
//      Eight neighbouring lanes share a row of A and make eight columns each, by 16-byte loads, so that one
//      column index and one value serve 16 bytes instead of 2; the block loads both into shared memory once.
//      Results are written as streams, not to push X out of the caches. A K that is no multiple of eight, or
//      matrices that are not aligned, take scalar loads.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kLanes = 8;                // lanes that share a row
constexpr int kWidth = 8;                // columns that a lane makes
constexpr int kSlab = kLanes * kWidth;   // columns that a block makes
constexpr int kRows = kThreads / kLanes; // rows that a block makes
constexpr int kStaged = 768;             // entries in shared memory, of about 655 that 32 rows have

// Adds `value` times eight columns of a row of X from `at` on, of which `left` exist.
template <bool kVectors>
__device__ void add_columns(float* sum, float value, const __nv_bfloat16* at, long long left) {
    if constexpr (kVectors) {
        uint4 pairs = *(const uint4*)at;
        unsigned int pair[kWidth / 2] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) {
            // A bf16 number is the upper half of the same number in fp32.
            sum[2 * i] += value * __uint_as_float(pair[i] << 16);
            sum[2 * i + 1] += value * __uint_as_float(pair[i] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            sum[i] += i < left ? value * __bfloat162float(at[i]) : 0.0f;
    }
}

template <bool kVectors> __device__ void store_columns(__nv_bfloat16* at, long long left, const float* sum) {
    __align__(16) __nv_bfloat16 rounded[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
        rounded[i] = __float2bfloat16(sum[i]);
    if constexpr (kVectors) {
        __stcs((uint4*)at, *(const uint4*)rounded);
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            if (i < left)
                at[i] = rounded[i];
    }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    spmm_csr_bf16_kernel_optimized(int rows, int K, const __nv_bfloat16* __restrict__ values,
                                   const int* __restrict__ col_indices, const int* __restrict__ row_offsets,
                                   const __nv_bfloat16* __restrict__ X, __nv_bfloat16* __restrict__ Y) {
    __shared__ int2 staged[kStaged]; // column, and the bits of the value in fp32
    long long first_row = (long long)blockIdx.x * kRows;
    long long last_row = first_row + kRows < rows ? first_row + kRows : rows;
    long long block_begin = row_offsets[first_row], block_end = row_offsets[last_row];
    long long row = first_row + threadIdx.x / kLanes;
    long long begin = row < rows ? row_offsets[row] : block_end;
    long long end = row < rows ? row_offsets[row + 1] : block_end;
    long long slab_stride = (long long)gridDim.y * kSlab;
    for (long long slab = (long long)blockIdx.y * kSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kWidth;
        bool inside = row < rows && k < K;
        float sum[kWidth] = {};
        for (long long chunk = block_begin; chunk < block_end; chunk += kStaged) {
            __syncthreads();
            for (int i = threadIdx.x; i < kStaged && chunk + i < block_end; i += kThreads)
                staged[i] =
                    make_int2(col_indices[chunk + i], __float_as_int(__bfloat162float(values[chunk + i])));
            __syncthreads();
            int from = (int)((begin > chunk ? begin : chunk) - chunk);
            int to = inside ? (int)((end < chunk + kStaged ? end : chunk + kStaged) - chunk) : 0;
#pragma unroll 4
            for (int i = from; i < to; ++i) {
                int2 entry = staged[i];
                add_columns<kVectors>(sum, __int_as_float(entry.y), X + entry.x * (size_t)K + k, K - k);
            }
        }
        if (inside)
            store_columns<kVectors>(Y + row * (size_t)K + k, K - k, sum);
    }
}

extern "C" void spmm_csr_bf16_optimized(int rows, int K, const __nv_bfloat16* values, const int* col_indices,
                                        const int* row_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    int slabs = (K - 1) / kSlab + 1;
    dim3 grid((rows - 1) / kRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_csr_bf16_kernel_optimized<true>
            <<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
    else
        spmm_csr_bf16_kernel_optimized<false>
            <<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
}
