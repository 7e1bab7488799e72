// SpMM CSC, fp32: Y = A X.
//
// Shapes  A: rows x columns in CSC (values[nnz], row_indices[nnz], col_offsets[columns + 1]), X: columns x K,
//         Y: rows x K
// Moves   adds to a row of Y for each entry; 2 * K operations per entry
// Naive   one thread per element of X, which walks its column of A and adds each product to Y by an atomic
//         addition; Y is cleared by a separate memset
#include <cuda_runtime.h>

__global__ void spmm_csc_kernel(int K, const float* values, const int* row_indices, const int* col_offsets,
                                const float* X, float* Y) {
    size_t column = blockIdx.x;
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride) {
        float x = X[column * K + k];
        for (int p = col_offsets[column]; p < col_offsets[column + 1]; ++p)
            atomicAdd(&Y[row_indices[p] * (size_t)K + k], values[p] * x);
    }
}

extern "C" void spmm_csc(int rows, int columns, int K, const float* values, const int* row_indices,
                         const int* col_offsets, const float* X, float* Y) {
    cudaMemset(Y, 0, sizeof(float) * rows * K);
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(columns, blocks < 65535 ? blocks : 65535);
    spmm_csc_kernel<<<grid, threads>>>(K, values, row_indices, col_offsets, X, Y);
}
