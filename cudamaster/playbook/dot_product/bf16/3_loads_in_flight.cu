// idea: 16-byte loads, all of a thread's loads in flight before the first use
// why: What is left is one trip to memory. Scalar loads in a loop of unknown length keep few bytes in flight,
// so
//      the trip is made several times over. With loads of eight elements, and enough blocks that each thread
//      has all its elements requested before it multiplies the first, the kernel waits once. Vectors that are
//      not aligned to 16 bytes take the scalar loop.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kVectors = 2; // eight elements of X and of Y per thread and step
constexpr int kMaxBlocks = 1056;
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

// Eight products of bf16 pairs packed in 16 bytes; a bf16 is the upper half of a float.
__device__ float dot2(unsigned a, unsigned b) {
    return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
           __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

__device__ float dot8(uint4 a, uint4 b) {
    return (dot2(a.x, b.x) + dot2(a.y, b.y)) + (dot2(a.z, b.z) + dot2(a.w, b.w));
}

__global__ void __launch_bounds__(kThreads)
    dot_product_bf16_kernel_optimized(float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    bool aligned = (((size_t)X | (size_t)Y) & 15) == 0;
    int vectors = aligned ? N / 8 : 0;
    const uint4* x8 = (const uint4*)X;
    const uint4* y8 = (const uint4*)Y;
    float sum = 0.0f;

    long long step = (long long)gridDim.x * kThreads * kVectors;
    for (long long first = (long long)blockIdx.x * kThreads * kVectors + threadIdx.x; first < vectors;
         first += step) {
        uint4 x[kVectors], y[kVectors];
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
            long long i = first + k * kThreads;
            bool inside = i < vectors;
            x[k] = inside ? x8[i] : make_uint4(0, 0, 0, 0);
            y[k] = inside ? y8[i] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < kVectors; ++k)
            sum += dot8(x[k], y[k]);
    }
    // What the vectors leave: at most seven elements, or all of them where they are not aligned.
    for (long long i = 8LL * vectors + (long long)blockIdx.x * kThreads + threadIdx.x; i < N;
         i += (long long)gridDim.x * kThreads)
        sum += __bfloat162float(X[i]) * __bfloat162float(Y[i]);

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

extern "C" void dot_product_bf16_optimized(float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y,
                                           int N) {
    int elements = kThreads * kVectors * 8;
    int needed = (N - 1) / elements + 1;
    int blocks = needed < kMaxBlocks ? needed : kMaxBlocks;
    dot_product_bf16_kernel_optimized<<<blocks, kThreads>>>(out, X, Y, N);
}
