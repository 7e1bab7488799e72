// SpMV COO, bf16 storage, fp32 accumulation: y = A x.
//
// Shapes  A: rows x cols in COO (values[nnz], row_indices[nnz], col_indices[nnz]), x: cols, y: rows
// Moves   about 10 bytes per entry, 2 operations per entry
// Naive   one thread per entry, which adds its product to an fp32 sum by an atomic addition of its own; the
//         sums are allocated and cleared in the call, and a second kernel rounds them
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmv_coo_bf16_kernel(int nnz, const __nv_bfloat16* values, const int* row_indices,
                                     const int* col_indices, const __nv_bfloat16* x, float* sums) {
    size_t p = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (p < nnz)
        atomicAdd(&sums[row_indices[p]], __bfloat162float(values[p]) * __bfloat162float(x[col_indices[p]]));
}

__global__ void spmv_coo_round_bf16_kernel(int rows, const float* sums, __nv_bfloat16* y) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row < rows)
        y[row] = __float2bfloat16(sums[row]);
}

extern "C" void spmv_coo_bf16(int rows, int nnz, const __nv_bfloat16* values, const int* row_indices,
                              const int* col_indices, const __nv_bfloat16* x, __nv_bfloat16* y) {
    float* sums = nullptr;
    cudaMalloc(&sums, sizeof(float) * rows);
    cudaMemset(sums, 0, sizeof(float) * rows);
    int threads = 256;
    if (nnz > 0)
        spmv_coo_bf16_kernel<<<(nnz - 1) / threads + 1, threads>>>(nnz, values, row_indices, col_indices, x,
                                                                   sums);
    spmv_coo_round_bf16_kernel<<<(rows - 1) / threads + 1, threads>>>(rows, sums, y);
    cudaFree(sums);
}
