// SpMM COO, bf16 storage, fp32 accumulation: Y = A X.
//
// Shapes  A: rows x cols in COO (values[nnz], row_indices[nnz], col_indices[nnz]), X: cols x K, Y: rows x K
// Moves   a row of X for each entry, and adds it to a row of fp32 sums; 2 * K operations per entry
// Naive   one thread per entry and column of X, which adds its product to an fp32 sum by an atomic addition
//         of its own; the sums are allocated and cleared in the call, and a second kernel rounds them
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmm_coo_bf16_kernel(int K, const __nv_bfloat16* values, const int* row_indices,
                                     const int* col_indices, const __nv_bfloat16* X, float* sums) {
    size_t p = blockIdx.x;
    size_t row = row_indices[p], col = col_indices[p];
    float value = __bfloat162float(values[p]);
    size_t stride = gridDim.y * (size_t)blockDim.x;
    for (size_t k = blockIdx.y * (size_t)blockDim.x + threadIdx.x; k < K; k += stride)
        atomicAdd(&sums[row * K + k], value * __bfloat162float(X[col * K + k]));
}

__global__ void spmm_coo_round_bf16_kernel(size_t elements, const float* sums, __nv_bfloat16* Y) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < elements)
        Y[i] = __float2bfloat16(sums[i]);
}

extern "C" void spmm_coo_bf16(int rows, int nnz, int K, const __nv_bfloat16* values, const int* row_indices,
                              const int* col_indices, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    size_t elements = (size_t)rows * K;
    float* sums = nullptr;
    cudaMalloc(&sums, sizeof(float) * elements);
    cudaMemset(sums, 0, sizeof(float) * elements);
    int threads = 256;
    int blocks = (K - 1) / threads + 1;
    dim3 grid(nnz, blocks < 65535 ? blocks : 65535);
    if (nnz > 0)
        spmm_coo_bf16_kernel<<<grid, threads>>>(K, values, row_indices, col_indices, X, sums);
    spmm_coo_round_bf16_kernel<<<(elements - 1) / threads + 1, threads>>>(elements, sums, Y);
    cudaFree(sums);
}
