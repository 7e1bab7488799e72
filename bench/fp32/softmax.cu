// Softmax, fp32: rows of a matrix, with the row maximum subtracted.
//
// Shapes  input, out: N x C, row-major
// Moves   the input three times and the output once: 16 bytes and about 7 operations per element
// Naive   one block per row, in three passes over it (maximum, sum of the exponentials, result); trees in
//         shared memory that synchronise the block at every level; every exponential is computed twice
#include <cuda_runtime.h>

__global__ void softmax_kernel(float* out, const float* input, int C) {
    __shared__ float partial[256];
    const float* x = input + (size_t)blockIdx.x * C;
    float* y = out + (size_t)blockIdx.x * C;

    float largest = -INFINITY;
    for (size_t j = threadIdx.x; j < C; j += blockDim.x)
        largest = fmaxf(largest, x[j]);
    partial[threadIdx.x] = largest;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + stride]);
        __syncthreads();
    }
    largest = partial[0];
    __syncthreads();

    float sum = 0.0f;
    for (size_t j = threadIdx.x; j < C; j += blockDim.x)
        sum += expf(x[j] - largest);
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    sum = partial[0];

    for (size_t j = threadIdx.x; j < C; j += blockDim.x)
        y[j] = expf(x[j] - largest) / sum;
}

extern "C" void softmax(float* out, const float* input, int N, int C) {
    softmax_kernel<<<N, 256>>>(out, input, C);
}
