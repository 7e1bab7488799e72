// SpMM ELL, bf16 storage, fp32 accumulation: Y = A X.
//
// Shapes  A: rows x cols in ELL (values and col_ids, rows x max_nnz_per_row, padding -1 at the ends of rows),
//         X: cols x K, Y: rows x K
// Moves   a row of X for each entry, and a row of Y for each row of A; 2 * K operations per entry
// Naive   one thread per element of Y: every thread reads all entries of its row by itself, and each row of X
//         again from the L2 cache, two bytes at a time, for each entry that needs it
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmm_ell_bf16_kernel(int max_nnz_per_row, int K, const __nv_bfloat16* values,
                                     const int* col_ids, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    size_t row = blockIdx.x;
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride) {
        float sum = 0.0f;
        for (int s = 0; s < max_nnz_per_row; ++s) {
            size_t slot = row * max_nnz_per_row + s;
            if (col_ids[slot] < 0)
                break;
            sum += __bfloat162float(values[slot]) * __bfloat162float(X[col_ids[slot] * (size_t)K + k]);
        }
        Y[row * K + k] = __float2bfloat16(sum);
    }
}

extern "C" void spmm_ell_bf16(int rows, int max_nnz_per_row, int K, const __nv_bfloat16* values,
                              const int* col_ids, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(rows, blocks < 65535 ? blocks : 65535);
    spmm_ell_bf16_kernel<<<grid, threads>>>(max_nnz_per_row, K, values, col_ids, X, Y);
}
