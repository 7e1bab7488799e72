// idea: Request all entries of a row at once
// why: A loop over a row's entries makes one trip to memory per turn: the next entries are requested after
//      the last ones arrived. Here a lane requests its next few columns and values together, guarded by
//      predicates in place of a loop condition, so that a row of usual length costs one trip for its entries
//      and one for the gather from x.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kLanes = 4;   // lanes that share a row
constexpr int kEntries = 8; // entries that a lane requests at once
constexpr unsigned kFullMask = 0xffffffffu;

__global__ void __launch_bounds__(kThreads)
    spmv_csr_kernel_optimized(int rows, const float* __restrict__ values, const int* __restrict__ col_indices,
                              const int* __restrict__ row_offsets, const float* __restrict__ x,
                              float* __restrict__ y) {
    int row = (int)((blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes);
    int lane = threadIdx.x % kLanes;
    int begin = row < rows ? row_offsets[row] : 0;
    int end = row < rows ? row_offsets[row + 1] : 0;
    float sum = 0.0f;
    for (int first = begin + lane; first < end; first += kLanes * kEntries) {
        int column[kEntries];
        float value[kEntries];
#pragma unroll
        for (int k = 0; k < kEntries; ++k) {
            int p = first + k * kLanes;
            column[k] = p < end ? col_indices[p] : 0;
            value[k] = p < end ? values[p] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < kEntries; ++k)
            if (first + k * kLanes < end)
                sum += value[k] * x[column[k]];
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(kFullMask, sum, distance, kLanes);
    if (row < rows && lane == 0)
        y[row] = sum;
}

extern "C" void spmv_csr_optimized(int rows, const float* values, const int* col_indices,
                                   const int* row_offsets, const float* x, float* y) {
    int rows_per_block = kThreads / kLanes;
    int blocks = (rows - 1) / rows_per_block + 1;
    spmv_csr_kernel_optimized<<<blocks, kThreads>>>(rows, values, col_indices, row_offsets, x, y);
}
