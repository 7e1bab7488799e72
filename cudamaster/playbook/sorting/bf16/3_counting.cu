// idea: Count the 65536 possible values instead of comparing
// why: A bf16 has 16 bits, so the sorted array is fully described by how often each bit pattern occurs. One
//      launch counts them with atomic additions, spread over 65536 counters and once more by upper byte; in
//      the second, each block adds up the 256 coarse counters, reads the fine ones that fall into its part of
//      the output, marks where each key begins there, and fills the gaps by a running maximum. No element is
//      ever compared or moved, whatever the size. The counters have to be zero when a call starts: two sets
//      take turns, and the call that uses one clears the other on the side. Up to 1024 elements one block
//      sorts.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kTile = 1024;
constexpr int kThreads = kTile / 2; // a thread for each compared pair
constexpr unsigned kFullMask = 0xffffffffu;

constexpr int kCoarse = 256; // upper bytes
constexpr int kFine = 256;   // lower bytes for each
constexpr int kCountThreads = 512;
constexpr int kCountBlocks = 264; // at most: two for each of 132 multiprocessors
constexpr int kWriteThreads = 512;

// Set `turn` is all zero between calls, the other one is what the last call left.
__device__ __align__(16) unsigned int fine_counts[2][kCoarse * kFine];
__device__ unsigned int coarse_counts[2][kCoarse];
__device__ unsigned int turn;
__device__ unsigned int tickets; // zero between calls

// Bitonic sort of up to kTile elements by one block; the tail is filled up with infinity.
__global__ void sort_tile_bf16_kernel_optimized(__nv_bfloat16* data, int N) {
    __shared__ float tile[kTile];
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        tile[i] = i < N ? __bfloat162float(data[i]) : CUDART_INF_F;
    for (int size = 2; size <= kTile; size *= 2) {
        for (int distance = size / 2; distance > 0; distance /= 2) {
            __syncthreads();
            int low = 2 * threadIdx.x - threadIdx.x % distance;
            int high = low + distance;
            bool ascending = (low & size) == 0;
            float a = tile[low], b = tile[high];
            if ((a > b) == ascending) {
                tile[low] = b;
                tile[high] = a;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        if (i < N)
            data[i] = __float2bfloat16(tile[i]);
}

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int ordered(unsigned int bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}
__device__ unsigned int unordered(unsigned int key) {
    return key ^ ((key & 0x8000u) ? 0x8000u : 0xffffu);
}

__device__ unsigned int warp_inclusive_sum(unsigned int value) {
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int below = __shfl_up_sync(kFullMask, value, distance);
        if (threadIdx.x % 32 >= distance)
            value += below;
    }
    return value;
}

// Counts every key, and clears the other set of counters for the next call.
__global__ void __launch_bounds__(kCountThreads)
    count_keys_bf16_kernel_optimized(const __nv_bfloat16* data, int N) {
    __shared__ unsigned int block_counts[kCoarse];
    const unsigned short* bits = (const unsigned short*)data;
    long long stride = (long long)gridDim.x * kCountThreads;
    long long first = (long long)blockIdx.x * kCountThreads + threadIdx.x;
    unsigned int set = turn;
    unsigned int next = first < N ? bits[first] : 0;
    for (int c = threadIdx.x; c < kCoarse; c += kCountThreads)
        block_counts[c] = 0;
    __syncthreads();
    for (long long i = first; i < N; i += stride) {
        unsigned int key = ordered(next);
        next = i + stride < N ? bits[i + stride] : 0;
        atomicAdd(&fine_counts[set][key], 1u);
        atomicAdd(&block_counts[key / kFine], 1u);
    }
    for (long long i = first; i < kCoarse * kFine; i += stride)
        fine_counts[set ^ 1][i] = 0;
    if (blockIdx.x == 0)
        for (int c = threadIdx.x; c < kCoarse; c += kCountThreads)
            coarse_counts[set ^ 1][c] = 0;
    __syncthreads();
    for (int c = threadIdx.x; c < kCoarse; c += kCountThreads)
        if (block_counts[c] != 0)
            atomicAdd(&coarse_counts[set][c], block_counts[c]);
}

// Writes kWriteThreads elements of the output per block, one per thread.
__global__ void __launch_bounds__(kWriteThreads)
    write_sorted_bf16_kernel_optimized(__nv_bfloat16* data, int N) {
    __shared__ unsigned int coarse_begin[kCoarse];
    __shared__ unsigned int coarse_count[kCoarse];
    __shared__ unsigned int warp_results[kWriteThreads / 32];
    __shared__ unsigned int marks[kWriteThreads];
    __shared__ int first_bin, last_bin; // upper bytes of the block's first and last element
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned int set = turn;
    unsigned int begin = blockIdx.x * (unsigned int)kWriteThreads;
    unsigned int end = begin + kWriteThreads < (unsigned int)N ? begin + kWriteThreads : (unsigned int)N;
    marks[t] = 0;

    // Where each upper byte begins in the output.
    unsigned int count = t < kCoarse ? coarse_counts[set][t] : 0;
    unsigned int inclusive = warp_inclusive_sum(count);
    if (lane == 31)
        warp_results[warp] = inclusive;
    __syncthreads();
    if (t < kCoarse) {
        unsigned int start = inclusive - count;
        for (int w = 0; w < warp; ++w)
            start += warp_results[w];
        coarse_begin[t] = start;
        coarse_count[t] = count;
        if (start <= begin && begin < start + count)
            first_bin = t;
        if (start < end && end <= start + count)
            last_bin = t;
    }
    if (t == 0) {
        // All threads of this block have read `turn`: once that is so for every block, the sets change
        // places.
        __threadfence(); // the reads come before the ticket
        if (atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1)
            turn = set ^ 1;
    }
    __syncthreads();

    // A warp per upper byte, eight neighbouring fine counters per lane: mark where each key begins.
    for (int bin = first_bin + warp; bin <= last_bin; bin += kWriteThreads / 32) {
        if (coarse_count[bin] == 0)
            continue;
        const uint4* counts = (const uint4*)&fine_counts[set][bin * kFine + lane * 8];
        uint4 low = counts[0], high = counts[1];
        unsigned int fine[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        unsigned int sum = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k)
            sum += fine[k];
        unsigned int start = coarse_begin[bin] + warp_inclusive_sum(sum) - sum;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            unsigned int stop = start + fine[k];
            if (fine[k] != 0 && start < end && stop > begin)
                marks[(start > begin ? start : begin) - begin] = bin * kFine + lane * 8 + k;
            start = stop;
        }
    }
    __syncthreads();

    // Keys ascend, so the key at a position is the largest one marked up to there.
    unsigned int key = marks[t];
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int below = __shfl_up_sync(kFullMask, key, distance);
        if (lane >= distance && below > key)
            key = below;
    }
    if (lane == 31)
        warp_results[warp] = key;
    __syncthreads();
    for (int w = 0; w < warp; ++w)
        key = warp_results[w] > key ? warp_results[w] : key;
    if (begin + t < end)
        ((unsigned short*)data)[begin + t] = (unsigned short)unordered(key);
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* data, int N) {
    if (N <= kTile) {
        sort_tile_bf16_kernel_optimized<<<1, kThreads>>>(data, N);
        return;
    }
    int needed = (N - 1) / kCountThreads + 1;
    int blocks = needed < kCountBlocks ? needed : kCountBlocks;
    count_keys_bf16_kernel_optimized<<<blocks, kCountThreads>>>(data, N);
    write_sorted_bf16_kernel_optimized<<<(N - 1) / kWriteThreads + 1, kWriteThreads>>>(data, N);
}
