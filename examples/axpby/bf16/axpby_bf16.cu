// axpby, bf16 storage, fp32 arithmetic: y = alpha * x + beta * y.
//
// Shapes  x, y: N
// Moves   6 bytes and 3 operations per element
// Naive   one element per thread, so a thread has no more than 4 bytes of loads in flight
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void axpby_bf16_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, float alpha, float beta, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    y[i] = __float2bfloat16(alpha * __bfloat162float(x[i]) + beta * __bfloat162float(y[i]));
}

extern "C" void axpby_bf16(const __nv_bfloat16* x, __nv_bfloat16* y, float alpha, float beta, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    axpby_bf16_kernel<<<blocks, threads>>>(x, y, alpha, beta, N);
}
