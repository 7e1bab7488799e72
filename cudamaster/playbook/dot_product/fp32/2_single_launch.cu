// idea: One launch: the last block to finish adds up the partial sums
// why: At these sizes a call is mostly launch overhead, and clearing the result is a second launch in front
// of
//      the kernel. Each block leaves its partial sum in a device array and takes a ticket; the block that
//      draws the last ticket adds the partial sums and writes the result, so nothing has to be cleared. The
//      ticket counter wraps to zero by itself (atomicInc), which leaves it ready for the next call.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 528; // four blocks on each of 132 multiprocessors
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float partial_sums[kMaxBlocks];
__device__ unsigned int tickets; // zero between calls

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(kFullMask, value, distance);
    return value;
}

// The sum over the block, in thread 0.
__device__ float block_sum(float value) {
    __shared__ float warp_sums[kThreads / 32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < kThreads / 32 ? warp_sums[threadIdx.x] : 0.0f;
    return threadIdx.x < 32 ? warp_sum(value) : 0.0f;
}

// Stores the block's partial sum; true in every thread of the block that is last to do so.
__device__ bool last_to_store(float sum) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial_sums[blockIdx.x] = sum;
        __threadfence(); // the sum is visible before the ticket is drawn
        last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    return last;
}

__global__ void dot_product_kernel_optimized(float* out, const float* X, const float* Y, int N) {
    long long stride = (long long)gridDim.x * kThreads;
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * kThreads + threadIdx.x; i < N; i += stride)
        sum += X[i] * Y[i];
    if (!last_to_store(block_sum(sum)))
        return;
    __threadfence(); // no partial sum is read before the last ticket was drawn
    sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += kThreads)
        sum += *(volatile float*)&partial_sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[0] = sum;
}

extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {
    int needed = (N - 1) / kThreads + 1;
    int blocks = needed < kMaxBlocks ? needed : kMaxBlocks;
    dot_product_kernel_optimized<<<blocks, kThreads>>>(out, X, Y, N);
}
