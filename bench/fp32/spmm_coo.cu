// SpMM COO, fp32: Y = A X.
//
// Shapes  A: rows x cols in COO (values[nnz], row_indices[nnz], col_indices[nnz]), X: cols x K, Y: rows x K
// Moves   a row of X for each entry, and adds it to a row of Y; 2 * K operations per entry
// Naive   one thread per entry and column of X, which adds its product to Y by an atomic addition of its own;
//         Y is cleared by a separate memset
#include <cuda_runtime.h>

__global__ void spmm_coo_kernel(int K, const float* values, const int* row_indices, const int* col_indices,
                                const float* X, float* Y) {
    size_t p = blockIdx.x;
    size_t row = row_indices[p], col = col_indices[p];
    float value = values[p];
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride)
        atomicAdd(&Y[row * K + k], value * X[col * K + k]);
}

extern "C" void spmm_coo(int rows, int nnz, int K, const float* values, const int* row_indices,
                         const int* col_indices, const float* X, float* Y) {
    cudaMemset(Y, 0, sizeof(float) * rows * K);
    if (nnz == 0)
        return;
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(nnz, blocks < 65535 ? blocks : 65535);
    spmm_coo_kernel<<<grid, threads>>>(K, values, row_indices, col_indices, X, Y);
}
