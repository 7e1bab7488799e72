// idea: Add into shared memory first, and into y once per block
// why: With one thread per column, neighbouring threads read entries that lie a whole column apart, and each
//      of them makes an atomic addition to one of few rows, which the L2 cache serialises, after a memset
//      that every call waits for. Here four neighbouring lanes share a column and request up to eight entries
//      each before they use the first. A block adds its columns' entries to sums of its own in shared memory,
//      while y is cleared by the same threads; after a barrier across the grid, for which the launch is
//      cooperative, it adds what is not zero to y, each block from another row on. Matrices whose rows do not
//      fit are added to y directly.
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_runtime.h>

constexpr int kLanes = 4; // lanes that share a column
constexpr int kBatch = 8; // entries that a lane requests at once
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 1024;
constexpr int kSharedRows = 8192;

// Adds the entries of the block's share of the columns to `sums`.
__device__ __forceinline__ void add_columns(int columns, const float* values, const int* row_indices,
                                            const int* col_offsets, const float* x, float* sums) {
    long long stride = (long long)gridDim.x * blockDim.x / kLanes;
    long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
    for (; column < columns; column += stride) {
        float factor = x[column];
        long long end = col_offsets[column + 1];
        for (long long first = col_offsets[column] + threadIdx.x % kLanes; first < end;
             first += kBatch * kLanes) {
            int row[kBatch];
            float value[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                long long p = first + i * kLanes;
                row[i] = p < end ? row_indices[p] : -1;
                value[i] = p < end ? values[p] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (row[i] >= 0)
                    atomicAdd(&sums[row[i]], value[i] * factor);
        }
    }
}

__global__ void __launch_bounds__(kMaxThreads)
    spmv_csc_kernel_optimized(int rows, int columns, const float* values, const int* row_indices,
                              const int* col_offsets, const float* x, float* y) {
    __shared__ float sums[kSharedRows];
    bool in_shared = rows <= kSharedRows;
    long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += threads)
        y[i] = 0.0f;
    if (in_shared) {
        for (int i = threadIdx.x; i < rows; i += blockDim.x)
            sums[i] = 0.0f;
        __syncthreads();
        add_columns(columns, values, row_indices, col_offsets, x, sums);
    }
    cooperative_groups::this_grid().sync();
    if (!in_shared) {
        add_columns(columns, values, row_indices, col_offsets, x, y);
        return;
    }
    int first_row = (int)((long long)rows * blockIdx.x / gridDim.x);
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        int row = first_row + i < rows ? first_row + i : first_row + i - rows;
        if (sums[row] != 0.0f)
            atomicAdd(&y[row], sums[row]);
    }
}

extern "C" void spmv_csc_optimized(int rows, int columns, const float* values, const int* row_indices,
                                   const int* col_offsets, const float* x, float* y) {
    int device = 0, multiprocessors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A block on each multiprocessor, as large as the columns need; where they are few, on some.
    long long lanes = (long long)columns * kLanes;
    long long wanted = (lanes - 1) / multiprocessors + 1;
    int threads = wanted < kMinThreads   ? kMinThreads
                  : wanted < kMaxThreads ? (int)((wanted + 31) / 32 * 32)
                                         : kMaxThreads;
    long long needed = (lanes - 1) / threads + 1;
    int blocks = needed < multiprocessors ? (int)needed : multiprocessors;
    void* arguments[] = {&rows, &columns, &values, &row_indices, &col_offsets, &x, &y};
    cudaLaunchCooperativeKernel(spmv_csc_kernel_optimized, dim3(blocks), dim3(threads), arguments);
}
