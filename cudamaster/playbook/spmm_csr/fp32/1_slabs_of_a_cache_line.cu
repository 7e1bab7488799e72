// idea: Work through X in slabs of one cache line, so that L1 holds what is gathered
// why: Every entry needs a row of X. The baseline fetches these rows from the L2 cache 128 bytes at a time,
//      for each entry anew: twenty times as much as it writes. All blocks that run at a time now work on the
//      same 32 columns of X, one cache line of each of its rows, which L1 can hold for the most part: rows of
//      A are the fast index of the grid, slabs the slow one. Eight neighbouring lanes share a row of A and
//      make four columns each, by 16-byte loads, so that one column index and one value serve 16 bytes
//      instead of 4; the block loads both into shared memory once. Results are written as streams, not to
//      push X out of the caches. A K that is no multiple of four, or matrices that are not aligned, take
//      scalar loads.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kLanes = 8;                // lanes that share a row
constexpr int kWidth = 4;                // columns that a lane makes
constexpr int kSlab = kLanes * kWidth;   // columns that a block makes
constexpr int kRows = kThreads / kLanes; // rows that a block makes
constexpr int kStaged = 768;             // entries in shared memory, of about 655 that 32 rows have

// Four columns of a row of X or Y from `at` on, of which `left` exist.
template <bool kVectors> __device__ float4 load_columns(const float* at, long long left) {
    if constexpr (kVectors)
        return *(const float4*)at;
    else
        return make_float4(at[0], left > 1 ? at[1] : 0.0f, left > 2 ? at[2] : 0.0f, left > 3 ? at[3] : 0.0f);
}

template <bool kVectors> __device__ void store_columns(float* at, long long left, float4 v) {
    if constexpr (kVectors) {
        __stcs((float4*)at, v);
    } else {
        at[0] = v.x;
        if (left > 1)
            at[1] = v.y;
        if (left > 2)
            at[2] = v.z;
        if (left > 3)
            at[3] = v.w;
    }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    spmm_csr_kernel_optimized(int rows, int K, const float* __restrict__ values,
                              const int* __restrict__ col_indices, const int* __restrict__ row_offsets,
                              const float* __restrict__ X, float* __restrict__ Y) {
    __shared__ int2 staged[kStaged]; // column, and the bits of the value
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
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = block_begin; chunk < block_end; chunk += kStaged) {
            __syncthreads();
            for (int i = threadIdx.x; i < kStaged && chunk + i < block_end; i += kThreads)
                staged[i] = make_int2(col_indices[chunk + i], __float_as_int(values[chunk + i]));
            __syncthreads();
            int from = (int)((begin > chunk ? begin : chunk) - chunk);
            int to = inside ? (int)((end < chunk + kStaged ? end : chunk + kStaged) - chunk) : 0;
#pragma unroll 4
            for (int i = from; i < to; ++i) {
                int2 entry = staged[i];
                float value = __int_as_float(entry.y);
                float4 x = load_columns<kVectors>(X + entry.x * (size_t)K + k, K - k);
                sum.x += value * x.x;
                sum.y += value * x.y;
                sum.z += value * x.z;
                sum.w += value * x.w;
            }
        }
        if (inside)
            store_columns<kVectors>(Y + row * (size_t)K + k, K - k, sum);
    }
}

extern "C" void spmm_csr_optimized(int rows, int K, const float* values, const int* col_indices,
                                   const int* row_offsets, const float* X, float* Y) {
    int slabs = (K - 1) / kSlab + 1;
    dim3 grid((rows - 1) / kRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_csr_kernel_optimized<true><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
    else
        spmm_csr_kernel_optimized<false><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
}
