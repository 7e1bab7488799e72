// Mean squared error, bf16 storage, fp32 accumulation and result: loss[0] = mean of (X[i] - Y[i])^2.
//
// Shapes  X, Y: N, loss: 1 (fp32)
// Moves   4 bytes per element, 3 operations
// Naive   one element per thread, a tree in shared memory that synchronises the block at every level,
//         and one atomic addition per block; the result is cleared by a separate memset
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void mse_loss_bf16_kernel(float* loss, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    __shared__ float partial[256];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float term = 0.0f;
    if (i < N) {
        float difference = __bfloat162float(X[i]) - __bfloat162float(Y[i]);
        term = difference * difference;
    }
    partial[threadIdx.x] = term;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(loss, partial[0] / N);
}

extern "C" void mse_loss_bf16(float* loss, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    cudaMemset(loss, 0, sizeof(float));
    mse_loss_bf16_kernel<<<blocks, threads>>>(loss, X, Y, N);
}
