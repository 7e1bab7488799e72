// idea: Add into fp32 sums that are ready before the call, and round them in the same launch
// why: The baseline allocates its sums and frees them in every call, which takes several times as long as the
//      product, clears them by a memset, and needs a second kernel to round. Here the sums lie in a device
//      array that is zero between calls: the threads of one cooperative launch add their entries to it, meet
//      at a barrier across the grid, then take the sums out, round them and leave zeros behind. A thread
//      requests eight entries at once, by 16-byte loads of their indices and 8-byte loads of their values;
//      entries that are not aligned to that, and the last ones, are loaded one by one. Matrices with more
//      rows than the array has get memory of their own.
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kVectors = 2; // vectors of four entries that a thread requests at once
constexpr int kEntries = 4 * kVectors;
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 1024;
constexpr int kFixedRows = 65536;

__device__ float fixed_sums[kFixedRows]; // zero between calls

// Rows and products of the entries that a thread has in hand; the row is -1 where there is none.
struct Products {
    int row[kEntries];
    float product[kEntries];
};

__device__ Products load_products(int nnz, const __nv_bfloat16* values, const int* row_indices,
                                  const int* col_indices, const __nv_bfloat16* x, bool aligned,
                                  long long first_vector, long long vector_stride) {
    Products products;
    int column[kEntries];
    float value[kEntries];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        long long vector = first_vector + k * vector_stride;
        int* rows4 = &products.row[4 * k];
        int* columns4 = &column[4 * k];
        float* values4 = &value[4 * k];
        if (aligned && vector < nnz / 4) {
            int4 r = ((const int4*)row_indices)[vector];
            int4 c = ((const int4*)col_indices)[vector];
            uint2 v = ((const uint2*)values)[vector];
            rows4[0] = r.x, rows4[1] = r.y, rows4[2] = r.z, rows4[3] = r.w;
            columns4[0] = c.x, columns4[1] = c.y, columns4[2] = c.z, columns4[3] = c.w;
            // A bf16 number is the upper half of the same number in fp32.
            values4[0] = __uint_as_float(v.x << 16), values4[1] = __uint_as_float(v.x & 0xffff0000u);
            values4[2] = __uint_as_float(v.y << 16), values4[3] = __uint_as_float(v.y & 0xffff0000u);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            long long p = 4 * vector + i;
            rows4[i] = p < nnz ? row_indices[p] : -1;
            columns4[i] = p < nnz ? col_indices[p] : 0;
            values4[i] = p < nnz ? __bfloat162float(values[p]) : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < kEntries; ++i)
        products.product[i] = products.row[i] >= 0 ? value[i] * __bfloat162float(x[column[i]]) : 0.0f;
    return products;
}

// `given_sums` is null where the fixed ones are enough.
__global__ void __launch_bounds__(kMaxThreads)
    spmv_coo_bf16_kernel_optimized(int rows, int nnz, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_indices, const __nv_bfloat16* x, __nv_bfloat16* y,
                                   float* given_sums) {
    float* sums = given_sums ? given_sums : fixed_sums;
    bool aligned = (((size_t)row_indices | (size_t)col_indices) & 15) == 0 && ((size_t)values & 7) == 0;
    long long threads = (long long)gridDim.x * blockDim.x;
    long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long vectors = ((long long)nnz + 3) / 4;

    for (long long first = thread; first < vectors; first += kVectors * threads) {
        Products products = load_products(nnz, values, row_indices, col_indices, x, aligned, first, threads);
#pragma unroll
        for (int i = 0; i < kEntries; ++i)
            if (products.row[i] >= 0)
                atomicAdd(&sums[products.row[i]], products.product[i]);
    }
    cooperative_groups::this_grid().sync();
    for (long long i = thread; i < rows; i += threads) {
        y[i] = __float2bfloat16(sums[i]);
        sums[i] = 0.0f;
    }
}

extern "C" void spmv_coo_bf16_optimized(int rows, int nnz, const __nv_bfloat16* values,
                                        const int* row_indices, const int* col_indices,
                                        const __nv_bfloat16* x, __nv_bfloat16* y) {
    int device = 0, multiprocessors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A block on each multiprocessor, as large as the entries need; where they are few, on some.
    int wanted = nnz / (kEntries * multiprocessors) + 1;
    int threads = wanted < kMinThreads   ? kMinThreads
                  : wanted < kMaxThreads ? (wanted + 31) / 32 * 32
                                         : kMaxThreads;
    int work = nnz > rows ? nnz : rows;
    int needed = (work - 1) / (kEntries * threads) + 1;
    int blocks = needed < multiprocessors ? needed : multiprocessors;
    float* given_sums = nullptr;
    if (rows > kFixedRows) {
        cudaMallocAsync(&given_sums, sizeof(float) * rows, 0);
        cudaMemsetAsync(given_sums, 0, sizeof(float) * rows, 0);
    }
    void* arguments[] = {&rows, &nnz, &values, &row_indices, &col_indices, &x, &y, &given_sums};
    cudaLaunchCooperativeKernel(spmv_coo_bf16_kernel_optimized, dim3(blocks), dim3(threads), arguments);
    if (given_sums)
        cudaFreeAsync(given_sums, 0);
}
