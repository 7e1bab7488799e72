// SpMV CSC, bf16 storage, fp32 accumulation: y = A x.
//
// Shapes  A: rows x columns in CSC (values[nnz], row_indices[nnz], col_offsets[columns + 1]), x: columns, y:
//         rows
// Moves   about 6 bytes per entry, 2 operations per entry
// Naive   one thread per column, which adds each product to an fp32 sum by an atomic addition: neighbouring
//         threads read entries a whole column apart, and a long column keeps its warp waiting; the sums are
//         allocated and cleared in the call, and a second kernel rounds them
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmv_csc_bf16_kernel(int columns, const __nv_bfloat16* values, const int* row_indices,
                                     const int* col_offsets, const __nv_bfloat16* x, float* sums) {
    size_t column = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (column >= columns)
        return;
    for (int p = col_offsets[column]; p < col_offsets[column + 1]; ++p)
        atomicAdd(&sums[row_indices[p]], __bfloat162float(values[p]) * __bfloat162float(x[column]));
}

__global__ void spmv_csc_round_bf16_kernel(int rows, const float* sums, __nv_bfloat16* y) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row < rows)
        y[row] = __float2bfloat16(sums[row]);
}

extern "C" void spmv_csc_bf16(int rows, int columns, const __nv_bfloat16* values, const int* row_indices,
                              const int* col_offsets, const __nv_bfloat16* x, __nv_bfloat16* y) {
    float* sums = nullptr;
    cudaMalloc(&sums, sizeof(float) * rows);
    cudaMemset(sums, 0, sizeof(float) * rows);
    int threads = 256;
    int blocks = (columns - 1) / threads + 1;
    spmv_csc_bf16_kernel<<<blocks, threads>>>(columns, values, row_indices, col_offsets, x, sums);
    spmv_csc_round_bf16_kernel<<<(rows - 1) / threads + 1, threads>>>(rows, sums, y);
    cudaFree(sums);
}
