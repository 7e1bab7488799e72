// Dot product, fp32: out[0] = sum of X[i] * Y[i].
//
// Shapes  X, Y: N, out: 1
// Moves   8 bytes and 2 operations per element
// Naive   one element per thread, a tree in shared memory that synchronises the block at every level,
//         and one atomic addition per block; the result is cleared by a separate memset
#include <cuda_runtime.h>

__global__ void dot_product_kernel(float* out, const float* X, const float* Y, int N) {
    __shared__ float partial[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    partial[threadIdx.x] = i < N ? X[i] * Y[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, partial[0]);
}

extern "C" void dot_product(float* out, const float* X, const float* Y, int N) {
    int threads = 256;
    int blocks = (N + threads - 1) / threads;
    cudaMemset(out, 0, sizeof(float));
    dot_product_kernel<<<blocks, threads>>>(out, X, Y, N);
}
