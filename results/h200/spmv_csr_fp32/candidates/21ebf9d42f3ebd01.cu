// SpMV CSR, fp32: y = A x.
//
// Shapes  A: rows x cols in CSR (values[nnz], col_indices[nnz], row_offsets[rows + 1]), x: cols, y: rows
// Moves   about 8 bytes per entry, 2 operations per entry
// Naive   one thread per row: neighbouring threads read entries a whole row apart, and a long row
//         keeps its warp waiting
#include <cuda_runtime.h>

__global__ void spmv_csr_kernel_optimized(int rows, const float* values, const int* col_indices, const int* row_offsets,
                                const float* x, float* y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p)
        sum += values[p] * x[col_indices[p]];
    y[row] = sum;
}

extern "C" void spmv_csr_optimized(int rows, const float* values, const int* col_indices, const int* row_offsets,
                         const float* x, float* y) {
    int threads = 256;
    int blocks = (rows + threads - 1) / threads;
    spmv_csr_kernel_optimized<<<blocks, threads>>>(rows, values, col_indices, row_offsets, x, y);
}
