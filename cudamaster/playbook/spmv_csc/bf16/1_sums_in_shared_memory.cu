// idea: Add into shared memory first, into ready fp32 sums once per block, and round in the same launch
// why: The baseline allocates its sums and frees them in every call, which takes several times as long as the
//      product, clears them by a memset, and needs a second kernel to round. With one thread per column,
//      neighbouring threads read entries that lie a whole column apart, and each of them makes an atomic
//      addition to one of few rows, which the L2 cache serialises. Here four neighbouring lanes share a
//      column and request up to eight entries each before they use the first. A block adds its columns'
//      entries to sums of its own in shared memory, then what is not zero to a device array that is zero
//      between calls, each block from another row on. After a barrier across the grid, for which the launch
//      is cooperative, the threads take the sums out, round them and leave zeros behind. Matrices with more
//      rows than fit are added up in global memory directly, and get memory of their own where the array is
//      too short.
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kLanes = 4; // lanes that share a column
constexpr int kBatch = 8; // entries that a lane requests at once
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 1024;
constexpr int kSharedRows = 8192;
constexpr int kFixedRows = 65536;

__device__ float fixed_sums[kFixedRows]; // zero between calls

// Adds the entries of the block's share of the columns to `sums`.
__device__ __forceinline__ void add_columns(int columns, const __nv_bfloat16* values, const int* row_indices,
                                            const int* col_offsets, const __nv_bfloat16* x, float* sums) {
    long long stride = (long long)gridDim.x * blockDim.x / kLanes;
    long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
    for (; column < columns; column += stride) {
        float factor = __bfloat162float(x[column]);
        long long end = col_offsets[column + 1];
        for (long long first = col_offsets[column] + threadIdx.x % kLanes; first < end;
             first += kBatch * kLanes) {
            int row[kBatch];
            float value[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                long long p = first + i * kLanes;
                row[i] = p < end ? row_indices[p] : -1;
                value[i] = p < end ? __bfloat162float(values[p]) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (row[i] >= 0)
                    atomicAdd(&sums[row[i]], value[i] * factor);
        }
    }
}

// `given_sums` is null where the fixed ones are enough.
__global__ void __launch_bounds__(kMaxThreads)
    spmv_csc_bf16_kernel_optimized(int rows, int columns, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_offsets, const __nv_bfloat16* x, __nv_bfloat16* y,
                                   float* given_sums) {
    __shared__ float block_sums[kSharedRows];
    float* sums = given_sums ? given_sums : fixed_sums;
    if (rows <= kSharedRows) {
        for (int i = threadIdx.x; i < rows; i += blockDim.x)
            block_sums[i] = 0.0f;
        __syncthreads();
        add_columns(columns, values, row_indices, col_offsets, x, block_sums);
        __syncthreads();
        int first_row = (int)((long long)rows * blockIdx.x / gridDim.x);
        for (int i = threadIdx.x; i < rows; i += blockDim.x) {
            int row = first_row + i < rows ? first_row + i : first_row + i - rows;
            if (block_sums[row] != 0.0f)
                atomicAdd(&sums[row], block_sums[row]);
        }
    } else {
        add_columns(columns, values, row_indices, col_offsets, x, sums);
    }
    cooperative_groups::this_grid().sync();
    long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += threads) {
        y[i] = __float2bfloat16(sums[i]);
        sums[i] = 0.0f;
    }
}

extern "C" void spmv_csc_bf16_optimized(int rows, int columns, const __nv_bfloat16* values,
                                        const int* row_indices, const int* col_offsets,
                                        const __nv_bfloat16* x, __nv_bfloat16* y) {
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
    float* given_sums = nullptr;
    if (rows > kFixedRows) {
        cudaMallocAsync(&given_sums, sizeof(float) * rows, 0);
        cudaMemsetAsync(given_sums, 0, sizeof(float) * rows, 0);
    }
    void* arguments[] = {&rows, &columns, &values, &row_indices, &col_offsets, &x, &y, &given_sums};
    cudaLaunchCooperativeKernel(spmv_csc_bf16_kernel_optimized, dim3(blocks), dim3(threads), arguments);
    if (given_sums)
        cudaFreeAsync(given_sums, 0);
}
