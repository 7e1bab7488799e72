// Dot product, bf16 storage, fp32 accumulation and result: out[0] = sum of X[i] * Y[i].
//
// Shapes  X, Y: N, out: 1 (fp32)
// Moves   4 bytes and 2 operations per element
// Naive   one element per thread, a tree in shared memory that synchronises the block at every level,
//         and one atomic addition per block; the result is cleared by a separate memset
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void dot_product_bf16_kernel(float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    __shared__ float partial[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    partial[threadIdx.x] = i < N ? __bfloat162float(X[i]) * __bfloat162float(Y[i]) : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride)
            partial[threadIdx.x] += partial[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, partial[0]);
}

extern "C" void dot_product_bf16(float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    int threads = 256;
    int blocks = (N + threads - 1) / threads;
    cudaMemset(out, 0, sizeof(float));
    dot_product_bf16_kernel<<<blocks, threads>>>(out, X, Y, N);
}
