// SpMV COO, fp32: y = A x.
//
// Shapes  A: rows x cols in COO (values[nnz], row_indices[nnz], col_indices[nnz]), x: cols, y: rows
// Moves   about 12 bytes per entry, 2 operations per entry
// Naive   one thread per entry, which adds its product to y by an atomic addition of its own; y is cleared by
//         a separate memset
#include <cuda_runtime.h>

__global__ void spmv_coo_kernel(int nnz, const float* values, const int* row_indices, const int* col_indices,
                                const float* x, float* y) {
    size_t p = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (p < nnz)
        atomicAdd(&y[row_indices[p]], values[p] * x[col_indices[p]]);
}

extern "C" void spmv_coo(int rows, int nnz, const float* values, const int* row_indices,
                         const int* col_indices, const float* x, float* y) {
    cudaMemset(y, 0, sizeof(float) * rows);
    if (nnz == 0)
        return;
    int threads = 256;
    int blocks = (nnz - 1) / threads + 1;
    spmv_coo_kernel<<<blocks, threads>>>(nnz, values, row_indices, col_indices, x, y);
}
