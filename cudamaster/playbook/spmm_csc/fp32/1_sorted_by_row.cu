// idea: Sort the entries by row, then sum rows in registers instead of by atomics
// why: The entries come column by column, so the baseline adds each product to Y by an atomic addition in the
//      L2 cache, many times as much traffic as the result is. Sorting the entries first costs one atomic
//      addition per entry instead of one per entry and column of X: each entry draws its number within its
//      row, rows get their places, in any order, and the entries go there. The number of entries has to be
//      read back from the device to know the size of the scratch memory. Then a row is summed in registers
//      and written once. Blocks that run at a time work on the same 32 columns of X, one cache line of each
//      of its rows, so that the caches hold what is gathered. Eight neighbouring lanes share a row of A and
//      make four columns each by 16-byte loads. Scratch memory is a device array of fixed size, and is
//      allocated only where the matrix needs more. A K that is no multiple of four, or matrices that are not
//      aligned, take scalar loads.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kLanes = 8;                 // lanes that share a row
constexpr int kWidth = 4;                 // columns that a lane makes
constexpr int kSlab = kLanes * kWidth;    // columns that a block makes
constexpr int kRows = kThreads / kLanes;  // rows that a block makes
constexpr int kStaged = 768;              // entries in shared memory, of about 655 that 32 rows of 20 have
constexpr size_t kFixedScratch = 1 << 21; // in pairs of ints
constexpr unsigned kFullMask = 0xffffffffu;

__device__ int2 fixed_scratch[kFixedScratch];

// Where the entries are sorted: those of a row are sorted[starts[row]] and the counts[row] - 1 behind it.
struct Scratch {
    int2* sorted; // column, and the bits of the value in fp32
    int* numbers; // of each entry within its row
    int* starts;
    int* counts; // of entries per row, and behind the last one how many places are taken
};

// Draws each entry's number within its row.
__global__ void number_entries_kernel_optimized(int nnz, const int* row_indices, int* numbers, int* counts) {
    size_t p = blockIdx.x * (size_t)kThreads + threadIdx.x;
    if (p < nnz)
        numbers[p] = atomicAdd(&counts[row_indices[p]], 1);
}

// Places for the rows of a block, one behind the other; the blocks get theirs in any order.
__global__ void place_rows_kernel_optimized(int rows, const int* counts, int* starts, int* taken) {
    __shared__ int warp_ends[kThreads / 32];
    __shared__ int block_start;
    long long row = blockIdx.x * (long long)kThreads + threadIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int count = row < rows ? counts[row] : 0;
    int end = count;
    for (int distance = 1; distance < 32; distance *= 2) {
        int before = __shfl_up_sync(kFullMask, end, distance);
        if (lane >= distance)
            end += before;
    }
    if (lane == 31)
        warp_ends[warp] = end;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int i = 0; i < kThreads / 32; ++i) {
            int length = warp_ends[i];
            warp_ends[i] = total;
            total += length;
        }
        block_start = atomicAdd(taken, total);
    }
    __syncthreads();
    if (row < rows)
        starts[row] = block_start + warp_ends[warp] + end - count;
}

__global__ void sort_entries_kernel_optimized(int columns, const float* values, const int* row_indices,
                                              const int* col_offsets, Scratch scratch) {
    long long column = (blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes;
    if (column >= columns)
        return;
    for (long long p = col_offsets[column] + threadIdx.x % kLanes; p < col_offsets[column + 1]; p += kLanes)
        scratch.sorted[scratch.starts[row_indices[p]] + scratch.numbers[p]] =
            make_int2((int)column, __float_as_int(values[p]));
}

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
    sum_rows_kernel_optimized(int rows, int K, const int2* __restrict__ sorted,
                              const int* __restrict__ starts, const int* __restrict__ counts,
                              const float* __restrict__ X, float* __restrict__ Y) {
    __shared__ int2 staged[kStaged];
    long long first_row = (long long)blockIdx.x * kRows;
    long long last_row = first_row + kRows < rows ? first_row + kRows - 1 : rows - 1;
    // The rows of a block lie one behind the other: kThreads, of which that is true, is a multiple of kRows.
    long long block_begin = starts[first_row], block_end = starts[last_row] + (long long)counts[last_row];
    long long row = first_row + threadIdx.x / kLanes;
    long long begin = row < rows ? starts[row] : block_end;
    long long end = row < rows ? begin + counts[row] : block_end;
    long long slab_stride = (long long)gridDim.y * kSlab;
    for (long long slab = (long long)blockIdx.y * kSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kWidth;
        bool inside = row < rows && k < K;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = block_begin; chunk < block_end; chunk += kStaged) {
            __syncthreads();
            for (int i = threadIdx.x; i < kStaged && chunk + i < block_end; i += kThreads)
                staged[i] = sorted[chunk + i];
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

extern "C" void spmm_csc_optimized(int rows, int columns, int K, const float* values, const int* row_indices,
                                   const int* col_offsets, const float* X, float* Y) {
    int nnz = 0;
    cudaMemcpy(&nnz, col_offsets + columns, sizeof(int), cudaMemcpyDeviceToHost);
    size_t needed = nnz + ((size_t)nnz + 2 * (size_t)rows) / 2 + 1; // pairs of ints
    int2* memory = nullptr;
    if (needed > kFixedScratch)
        cudaMallocAsync(&memory, sizeof(int2) * needed, 0);
    else
        cudaGetSymbolAddress((void**)&memory, fixed_scratch);
    int* ints = (int*)(memory + nnz);
    Scratch scratch = {memory, ints, ints + nnz, ints + nnz + rows};

    cudaMemsetAsync(scratch.counts, 0, sizeof(int) * ((size_t)rows + 1), 0);
    if (nnz > 0)
        number_entries_kernel_optimized<<<(nnz - 1) / kThreads + 1, kThreads>>>(
            nnz, row_indices, scratch.numbers, scratch.counts);
    place_rows_kernel_optimized<<<(rows - 1) / kThreads + 1, kThreads>>>(rows, scratch.counts, scratch.starts,
                                                                         scratch.counts + rows);
    if (nnz > 0)
        sort_entries_kernel_optimized<<<(columns - 1) / (kThreads / kLanes) + 1, kThreads>>>(
            columns, values, row_indices, col_offsets, scratch);
    int slabs = (K - 1) / kSlab + 1;
    dim3 grid((rows - 1) / kRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        sum_rows_kernel_optimized<true>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    else
        sum_rows_kernel_optimized<false>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    if (needed > kFixedScratch)
        cudaFreeAsync(memory, 0);
}
