// idea: As many threads per row as its slots need, each with four slots in flight
// why: The baseline starts as many threads as there are rows, far too few to keep the memory busy. Each of
//      them walks its row slot by slot, a whole row away from its neighbour. Here 8, 32 or 128 neighbouring
//      threads share a row, after the width of the rows, and each requests the columns and values of four
//      slots before it needs the first, so that a row is read in one trip to memory and the elements of x in
//      another. Padding is read along with the entries, since waiting for its column before asking for its
//      value would cost a third trip.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kBatch = 4; // slots that a thread requests at once
constexpr unsigned kFullMask = 0xffffffffu;

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    spmv_ell_kernel_optimized(int rows, int max_nnz_per_row, const float* values, const int* col_ids,
                              const float* x, float* y) {
    long long row = (blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes;
    size_t start = (size_t)row * max_nnz_per_row;
    float sum = 0.0f;
    for (long long first = threadIdx.x % kLanes; row < rows && first < max_nnz_per_row;
         first += kBatch * kLanes) {
        int column[kBatch];
        float value[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            long long slot = first + k * kLanes;
            column[k] = slot < max_nnz_per_row ? col_ids[start + slot] : -1;
            value[k] = slot < max_nnz_per_row ? values[start + slot] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k)
            if (column[k] >= 0)
                sum += value[k] * x[column[k]];
        if (column[kBatch - 1] < 0)
            break; // nothing but padding is behind
    }
    constexpr int kInWarp = kLanes < 32 ? kLanes : 32;
    for (int distance = kInWarp / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(kFullMask, sum, distance, kInWarp);
    if (kLanes > 32) {
        __shared__ float warp_sums[kThreads / 32];
        if (threadIdx.x % 32 == 0)
            warp_sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = warp_sums[0] + warp_sums[1] + warp_sums[2] + warp_sums[3];
    }
    if (row < rows && threadIdx.x % kLanes == 0)
        y[row] = sum;
}

template <int kLanes>
void spmv_ell_launch(int rows, int max_nnz_per_row, const float* values, const int* col_ids, const float* x,
                     float* y) {
    int rows_per_block = kThreads / kLanes;
    int blocks = (rows - 1) / rows_per_block + 1;
    spmv_ell_kernel_optimized<kLanes><<<blocks, kThreads>>>(rows, max_nnz_per_row, values, col_ids, x, y);
}

extern "C" void spmv_ell_optimized(int rows, int max_nnz_per_row, const float* values, const int* col_ids,
                                   const float* x, float* y) {
    if (max_nnz_per_row <= 8 * kBatch)
        spmv_ell_launch<8>(rows, max_nnz_per_row, values, col_ids, x, y);
    else if (max_nnz_per_row <= 32 * kBatch)
        spmv_ell_launch<32>(rows, max_nnz_per_row, values, col_ids, x, y);
    else
        spmv_ell_launch<128>(rows, max_nnz_per_row, values, col_ids, x, y);
}
