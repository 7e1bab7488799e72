// row_sums, fp32: y[r] = sum of x[r][c] over c.
//
// Shapes  x: R x C; y: R
// Moves   4 bytes and 1 operation per element of x
// Naive   one thread per row, so neighbouring threads read elements that lie a whole row apart
#include <cuda_runtime.h>

__global__ void row_sums_kernel(const float* x, float* y, int R, int C) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R)
        return;
    float sum = 0.0f;
    for (int c = 0; c < C; ++c)
        sum += x[(size_t)r * C + c];
    y[r] = sum;
}

extern "C" void row_sums(const float* x, float* y, int R, int C) {
    row_sums_kernel<<<(R + 127) / 128, 128>>>(x, y, R, C);
}
