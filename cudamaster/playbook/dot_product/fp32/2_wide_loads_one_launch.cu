// idea: One launch of 16-byte loads that are all in flight together
// why: Scalar loads in a loop of unknown length keep few bytes in flight, so the trip to memory is made
//      several times over. With float4 loads a thread has its elements requested before it multiplies the
//      first, and waits once. Launch bounds of two blocks per multiprocessor leave it the registers for that.
//      There are no more blocks, so the additions to the one result, which the L2 cache serialises, stay few.
//      Loops are not unrolled: with cold caches the code comes from memory, too. Vectors that are not aligned
//      to 16 bytes take a scalar loop. Clearing the result was a launch of its own; here the blocks add to a
//      device variable that is zero between calls, and then draw a ticket; the block with the last ticket
//      takes the total out, which leaves zero behind. The ticket counter wraps to zero by itself. On an H100
//      this takes 14.6 µs at 1048576, where two pairs of loads at a time and blocks whose size follows N took
//      15.2; over all sizes the two count as the same (1.04). An empty launch is 10 of it, the bytes 2.7.
//      What binds it now: the launch, the bytes, and 1 µs for the end (on the device, measured on an H200 by
//      leaving it out).
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>

constexpr int kThreads = 512;
constexpr int kVectors = 4;     // float4 pairs that a thread requests at once
constexpr int kMaxBlocks = 264; // two on each of 132 multiprocessors
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float total;          // zero between calls
__device__ unsigned int tickets; // likewise

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

__device__ float dot4(float4 a, float4 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// A thread's share of the sum.
__device__ float thread_sum(const float* X, const float* Y, int N) {
    bool aligned = (((size_t)X | (size_t)Y) & 15) == 0;
    int vectors = aligned ? N / 4 : 0;
    const float4* x4 = (const float4*)X;
    const float4* y4 = (const float4*)Y;
    float sum = 0.0f;
    long long threads = (long long)gridDim.x * kThreads;
    long long thread = (long long)blockIdx.x * kThreads + threadIdx.x;
#pragma unroll 1
    for (long long first = thread; first < vectors; first += threads * kVectors) {
        float4 x[kVectors], y[kVectors];
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
            long long i = first + k * threads;
            bool inside = i < vectors;
            x[k] = inside ? x4[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            y[k] = inside ? y4[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int k = 0; k < kVectors; ++k)
            sum += dot4(x[k], y[k]);
    }
    // What the vectors leave: at most three elements, or all of them where they are not aligned.
#pragma unroll 1
    for (long long i = 4LL * vectors + thread; i < N; i += threads)
        sum += X[i] * Y[i];
    return sum;
}

__global__ void __launch_bounds__(kThreads, 2)
    dot_product_kernel_optimized(float* out, const float* X, const float* Y, int N) {
    float sum = block_sum(thread_sum(X, Y, N));
    if (threadIdx.x != 0)
        return;
    atomicAdd(&total, sum);
    __threadfence(); // the addition is done before the ticket is drawn
    if (atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence(); // and the additions of all others are, before the total is taken
        out[0] = atomicExch(&total, 0.0f);
    }
}

extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {
    int needed = (N - 1) / (kThreads * 4) + 1;
    int blocks = needed < kMaxBlocks ? needed : kMaxBlocks;
    dot_product_kernel_optimized<<<blocks, kThreads>>>(out, X, Y, N);
}
