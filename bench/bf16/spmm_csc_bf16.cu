// SpMM CSC, bf16 storage, fp32 accumulation: Y = A X.
//
// Shapes  A: rows x columns in CSC (values[nnz], row_indices[nnz], col_offsets[columns + 1]), X: columns x K,
//         Y: rows x K
// Moves   adds to a row of fp32 sums for each entry; 2 * K operations per entry
// Naive   one thread per element of X, which walks its column of A and adds each product to an fp32 sum by an
//         atomic addition; the sums are allocated and cleared in the call, and a second kernel rounds them
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmm_csc_bf16_kernel(int K, const __nv_bfloat16* values, const int* row_indices,
                                     const int* col_offsets, const __nv_bfloat16* X, float* sums) {
    size_t column = blockIdx.x;
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride) {
        float x = __bfloat162float(X[column * K + k]);
        for (int p = col_offsets[column]; p < col_offsets[column + 1]; ++p)
            atomicAdd(&sums[row_indices[p] * (size_t)K + k], __bfloat162float(values[p]) * x);
    }
}

__global__ void spmm_csc_round_bf16_kernel(size_t elements, const float* sums, __nv_bfloat16* Y) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < elements)
        Y[i] = __float2bfloat16(sums[i]);
}

extern "C" void spmm_csc_bf16(int rows, int columns, int K, const __nv_bfloat16* values,
                              const int* row_indices, const int* col_offsets, const __nv_bfloat16* X,
                              __nv_bfloat16* Y) {
    size_t elements = (size_t)rows * K;
    float* sums = nullptr;
    cudaMalloc(&sums, sizeof(float) * elements);
    cudaMemset(sums, 0, sizeof(float) * elements);
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(columns, blocks < 65535 ? blocks : 65535);
    spmm_csc_bf16_kernel<<<grid, threads>>>(K, values, row_indices, col_offsets, X, sums);
    spmm_csc_round_bf16_kernel<<<(elements - 1) / threads + 1, threads>>>(elements, sums, Y);
    cudaFree(sums);
}
