// SpMV ELL, bf16 storage, fp32 accumulation: y = A x.
//
// Shapes  A: rows x cols in ELL (values and col_ids, rows x max_nnz_per_row, padding -1 at the ends of rows),
//         x: cols, y: rows
// Moves   about 6 bytes per entry, 2 operations per entry
// Naive   one thread per row: neighbouring threads read slots a whole row apart, and a long row keeps its
//         warp waiting
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void spmv_ell_bf16_kernel(int rows, int max_nnz_per_row, const __nv_bfloat16* values,
                                     const int* col_ids, const __nv_bfloat16* x, __nv_bfloat16* y) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int s = 0; s < max_nnz_per_row; ++s) {
        size_t slot = row * max_nnz_per_row + s;
        if (col_ids[slot] < 0)
            break;
        sum += __bfloat162float(values[slot]) * __bfloat162float(x[col_ids[slot]]);
    }
    y[row] = __float2bfloat16(sum);
}

extern "C" void spmv_ell_bf16(int rows, int max_nnz_per_row, const __nv_bfloat16* values, const int* col_ids,
                              const __nv_bfloat16* x, __nv_bfloat16* y) {
    int threads = 256;
    int blocks = (rows - 1) / threads + 1;
    spmv_ell_bf16_kernel<<<blocks, threads>>>(rows, max_nnz_per_row, values, col_ids, x, y);
}
