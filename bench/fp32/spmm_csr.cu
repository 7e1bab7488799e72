// SpMM CSR, fp32: Y = A X.
//
// Shapes  A: rows x cols in CSR (values[nnz], col_indices[nnz], row_offsets[rows + 1]), X: cols x K, Y: rows
//         x K
// Moves   a row of X for each entry, and a row of Y for each row of A; 2 * K operations per entry
// Naive   one thread per element of Y: every thread reads all entries of its row by itself, and each row of X
//         again from the L2 cache for each entry that needs it
#include <cuda_runtime.h>

__global__ void spmm_csr_kernel(int K, const float* values, const int* col_indices, const int* row_offsets,
                                const float* X, float* Y) {
    size_t row = blockIdx.x;
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride) {
        float sum = 0.0f;
        for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p)
            sum += values[p] * X[col_indices[p] * (size_t)K + k];
        Y[row * K + k] = sum;
    }
}

extern "C" void spmm_csr(int rows, int K, const float* values, const int* col_indices, const int* row_offsets,
                         const float* X, float* Y) {
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(rows, blocks < 65535 ? blocks : 65535);
    spmm_csr_kernel<<<grid, threads>>>(K, values, col_indices, row_offsets, X, Y);
}
