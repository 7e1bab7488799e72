// SpMV CSC, fp32: y = A x.
//
// Shapes  A: rows x columns in CSC (values[nnz], row_indices[nnz], col_offsets[columns + 1]), x: columns, y:
//         rows
// Moves   about 8 bytes per entry, 2 operations per entry
// Naive   one thread per column, which adds each product to y by an atomic addition: neighbouring threads
//         read entries a whole column apart, and a long column keeps its warp waiting; y is cleared by a
//         separate memset
#include <cuda_runtime.h>

__global__ void spmv_csc_kernel(int columns, const float* values, const int* row_indices,
                                const int* col_offsets, const float* x, float* y) {
    size_t column = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (column >= columns)
        return;
    for (int p = col_offsets[column]; p < col_offsets[column + 1]; ++p)
        atomicAdd(&y[row_indices[p]], values[p] * x[column]);
}

extern "C" void spmv_csc(int rows, int columns, const float* values, const int* row_indices,
                         const int* col_offsets, const float* x, float* y) {
    cudaMemset(y, 0, sizeof(float) * rows);
    int threads = 256;
    int blocks = (columns - 1) / threads + 1;
    spmv_csc_kernel<<<blocks, threads>>>(columns, values, row_indices, col_offsets, x, y);
}
