// idea: Work through X in slabs of one cache line, with the slots staged in shared memory
// why: Every entry needs a row of X. The baseline fetches these rows from the L2 cache 128 bytes at a time,
//      and each thread reads every column index and value by itself for 4 bytes of X. Blocks that run at a
//      time now work on the same few slabs of 32 columns of X, one cache line of each of its rows, so that
//      the caches hold what is gathered: rows of A are the fast index of the grid, slabs the slow one. Eight
//      neighbouring lanes share a row of A and make four columns each, by 16-byte loads, so that one column
//      index and one value serve 16 bytes instead of 4; a block loads both into shared memory, 32 slots of 32
//      rows at a time, one warp for each row, whose vote finds where padding begins. Results are written as
//      streams, not to push X out of the caches. A K that is no multiple of four, or matrices that are not
//      aligned, take scalar loads.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kLanes = 8;                // lanes that share a row
constexpr int kWidth = 4;                // columns that a lane makes
constexpr int kSlab = kLanes * kWidth;   // columns that a block makes
constexpr int kRows = kThreads / kLanes; // rows that a block makes
constexpr int kSlots = 32;               // slots of a row in shared memory, one for each lane of a warp
constexpr unsigned kFullMask = 0xffffffffu;

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
    spmm_ell_kernel_optimized(int rows, int max_nnz_per_row, int K, const float* __restrict__ values,
                              const int* __restrict__ col_ids, const float* __restrict__ X,
                              float* __restrict__ Y) {
    __shared__ int2
        staged[kRows][kSlots + 1]; // column, and the bits of the value; padded against bank conflicts
    __shared__ int filled[kRows];  // entries of each row among them
    long long first_row = (long long)blockIdx.x * kRows;
    int local_row = threadIdx.x / kLanes;
    long long row = first_row + local_row;
    long long slab_stride = (long long)gridDim.y * kSlab;
    for (long long slab = (long long)blockIdx.y * kSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kWidth;
        bool inside = row < rows && k < K;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = 0; chunk < max_nnz_per_row; chunk += kSlots) {
            int lane = threadIdx.x % 32;
            __syncthreads();
            for (int r = threadIdx.x / 32; r < kRows; r += kThreads / 32) {
                bool exists = first_row + r < rows && chunk + lane < max_nnz_per_row;
                size_t slot = (first_row + r) * (size_t)max_nnz_per_row + chunk + lane;
                int column = exists ? col_ids[slot] : -1;
                float value = exists ? values[slot] : 0.0f;
                staged[r][lane] = make_int2(column, __float_as_int(value));
                unsigned entries = __ballot_sync(kFullMask, column >= 0);
                if (lane == 0)
                    filled[r] = __popc(entries);
            }
            __syncthreads();
            int entries = inside ? filled[local_row] : 0;
#pragma unroll 4
            for (int i = 0; i < entries; ++i) {
                int2 entry = staged[local_row][i];
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

extern "C" void spmm_ell_optimized(int rows, int max_nnz_per_row, int K, const float* values,
                                   const int* col_ids, const float* X, float* Y) {
    int slabs = (K - 1) / kSlab + 1;
    dim3 grid((rows - 1) / kRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_ell_kernel_optimized<true><<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
    else
        spmm_ell_kernel_optimized<false><<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
}
