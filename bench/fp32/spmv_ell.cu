// SpMV ELL, fp32: y = A x.
//
// Shapes  A: rows x cols in ELL (values and col_ids, rows x max_nnz_per_row, padding -1 at the ends of rows),
//         x: cols, y: rows
// Moves   about 8 bytes per entry, 2 operations per entry
// Naive   one thread per row: neighbouring threads read slots a whole row apart, and a long row keeps its
//         warp waiting
#include <cuda_runtime.h>

__global__ void spmv_ell_kernel(int rows, int max_nnz_per_row, const float* values, const int* col_ids,
                                const float* x, float* y) {
    size_t row = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int s = 0; s < max_nnz_per_row; ++s) {
        size_t slot = row * max_nnz_per_row + s;
        if (col_ids[slot] < 0)
            break;
        sum += values[slot] * x[col_ids[slot]];
    }
    y[row] = sum;
}

extern "C" void spmv_ell(int rows, int max_nnz_per_row, const float* values, const int* col_ids,
                         const float* x, float* y) {
    int threads = 256;
    int blocks = (rows - 1) / threads + 1;
    spmv_ell_kernel<<<blocks, threads>>>(rows, max_nnz_per_row, values, col_ids, x, y);
}
