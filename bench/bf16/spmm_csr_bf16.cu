// SpMM CSR, bf16 storage, fp32 accumulation: Y = A X.
//
// Shapes  A: rows x cols in CSR (values[nnz], col_indices[nnz], row_offsets[rows + 1]), X: cols x K, Y: rows
//         x K
// Moves   a row of X for each entry, and a row of Y for each row of A; 2 * K operations per entry
// Naive   one thread per element of Y: every thread reads all entries of its row by itself, and each row of X
//         again from the L2 cache, two bytes at a time, for each entry that needs it
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmm_csr_bf16_kernel(int K, const __nv_bfloat16* values, const int* col_indices,
                                     const int* row_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    size_t row = blockIdx.x;
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride) {
        float sum = 0.0f;
        for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p)
            sum += __bfloat162float(values[p]) * __bfloat162float(X[col_indices[p] * (size_t)K + k]);
        Y[row * K + k] = __float2bfloat16(sum);
    }
}

extern "C" void spmm_csr_bf16(int rows, int K, const __nv_bfloat16* values, const int* col_indices,
                              const int* row_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(rows, blocks < 65535 ? blocks : 65535);
    spmm_csr_bf16_kernel<<<grid, threads>>>(K, values, col_indices, row_offsets, X, Y);
}
