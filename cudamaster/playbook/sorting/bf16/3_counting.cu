// idea: Count the 65536 possible values instead of comparing
// why: A bf16 has 16 bits, so the sorted array is fully described by how often each bit pattern occurs. One
//      launch counts them with atomic additions, spread over 65536 counters and once more by upper byte; the
//      second adds up the 256 coarse counters, and each block writes its part of the output from the counters
//      that fall into it. No element is ever compared or moved, whatever the size. The counters have to be
//      zero when a call starts: two sets take turns, and the call that uses one clears the other on the side.
//      Up to 4096 elements a single block with a merge sort in shared memory is quicker.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kItems = 4; // elements per thread of the small sort
constexpr int kThreads = 1024;
constexpr int kTile = kItems * kThreads;
constexpr int kWarpRun = kItems * 32; // what a warp sorts by itself
constexpr unsigned kFullMask = 0xffffffffu;

constexpr int kCoarse = 256; // upper bytes
constexpr int kFine = 256;   // lower bytes for each
constexpr int kCountThreads = 512;
constexpr int kCountBlocks = 264; // at most: two for each of 132 multiprocessors
constexpr int kWriteThreads = 512;

// Set `turn` is all zero between calls, the other one is what the last call left.
__device__ unsigned int fine_counts[2][kCoarse * kFine];
__device__ unsigned int coarse_counts[2][kCoarse];
__device__ unsigned int turn;
__device__ unsigned int tickets; // zero between calls

__device__ float keep(float mine, float other, bool smaller) {
    bool exchange = smaller ? other < mine : mine < other; // equal ones stay where they are
    return exchange ? other : mine;
}

// Bitonic sort of the elements of a warp, ascending; lane t holds elements kItems * t and following.
__device__ void sort_warp(float (&item)[kItems]) {
    int mine = threadIdx.x % 32 * kItems;
    for (int size = 2; size <= kWarpRun; size *= 2) {
        for (int distance = size / 2; distance >= kItems; distance /= 2) {
            bool smaller = ((mine & size) == 0) == ((mine & distance) == 0);
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                item[k] = keep(item[k], __shfl_xor_sync(kFullMask, item[k], distance / kItems), smaller);
        }
#pragma unroll
        for (int distance = kItems / 2; distance > 0; distance /= 2) {
            if (distance >= size)
                continue;
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                if ((k & distance) != 0)
                    continue;
                bool ascending = ((mine + k) & size) == 0;
                float a = item[k], b = item[k + distance];
                bool exchange = ascending ? b < a : a < b;
                item[k] = exchange ? b : a;
                item[k + distance] = exchange ? a : b;
            }
        }
    }
}

// The kItems outputs from `diagonal` on of merging two neighbouring runs in shared memory. Of equal elements
// those of the left run come first.
__device__ void merge_path(const float* left, int width, int diagonal, float (&item)[kItems]) {
    const float* right = left + width;
    int low = diagonal > width ? diagonal - width : 0;
    int high = diagonal < width ? diagonal : width;
    while (low < high) { // how many of the outputs before the diagonal come from the left run
        int middle = (low + high) / 2;
        if (right[diagonal - 1 - middle] < left[middle])
            high = middle;
        else
            low = middle + 1;
    }
    int l = low, r = diagonal - low;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        bool take_left = l < width && (r >= width || !(right[r] < left[l]));
        item[k] = take_left ? left[l] : right[r];
        l += take_left;
        r += !take_left;
    }
}

// Sorts up to kTile elements with one block; the tail is filled up with infinity.
__global__ void __launch_bounds__(kThreads) sort_tile_bf16_kernel_optimized(__nv_bfloat16* data, int N) {
    __shared__ float tile[2][kTile];
    int mine = threadIdx.x * kItems;
    float item[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        item[k] = mine + k < N ? __bfloat162float(data[mine + k]) : CUDART_INF_F;
    sort_warp(item);
    int side = 0;
    for (int width = kWarpRun; width < N; width *= 2) {
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            tile[side][mine + k] = item[k];
        __syncthreads();
        int pair = mine & ~(2 * width - 1);
        merge_path(&tile[side][pair], width, mine - pair, item);
        side ^= 1;
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        if (mine + k < N)
            data[mine + k] = __float2bfloat16(item[k]);
}

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int ordered(unsigned int bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}
__device__ unsigned int unordered(unsigned int key) {
    return key ^ ((key & 0x8000u) ? 0x8000u : 0xffffu);
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

// Exclusive prefix sums of 256 counters, one per thread of the first eight warps; to be called by all
// threads.
__device__ unsigned int exclusive_sum(unsigned int count) {
    __shared__ unsigned int warp_sums[kCoarse / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int inclusive = count;
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int below = __shfl_up_sync(kFullMask, inclusive, distance);
        if (lane >= distance)
            inclusive += below;
    }
    if (lane == 31 && warp < kCoarse / 32)
        warp_sums[warp] = inclusive;
    __syncthreads();
    unsigned int before = 0;
    for (int w = 0; w < warp && w < kCoarse / 32; ++w)
        before += warp_sums[w];
    __syncthreads(); // warp_sums is used again by the next call
    return before + inclusive - count;
}

// Writes kWriteThreads elements of the output per block, one per thread.
__global__ void __launch_bounds__(kWriteThreads)
    write_sorted_bf16_kernel_optimized(__nv_bfloat16* data, int N) {
    __shared__ unsigned int coarse_begin[kCoarse + 1];
    __shared__ unsigned int fine_begin[kFine];
    __shared__ int first_bin, last_bin;
    int t = threadIdx.x;
    unsigned int set = turn;
    unsigned int coarse = t < kCoarse ? coarse_counts[set][t] : 0;
    unsigned int begin = blockIdx.x * (unsigned int)kWriteThreads;
    unsigned int end = begin + kWriteThreads < (unsigned int)N ? begin + kWriteThreads : (unsigned int)N;

    unsigned int coarse_first = exclusive_sum(coarse);
    if (t < kCoarse) {
        coarse_begin[t] = coarse_first;
        if (coarse_first <= begin && begin < coarse_first + coarse)
            first_bin = t;
        if (coarse_first < end && end <= coarse_first + coarse)
            last_bin = t;
    }
    if (t == 0) {
        coarse_begin[kCoarse] = N;
        // All threads of this block have read `turn`: when this is so for every block, the sets change
        // places.
        if (atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1)
            turn = set ^ 1;
    }
    __syncthreads();
    int from_bin = first_bin, to_bin = last_bin;
    unsigned int position = begin + t;
    for (int bin = from_bin; bin <= to_bin; ++bin) {
        unsigned int bin_begin = coarse_begin[bin], bin_end = coarse_begin[bin + 1];
        if (bin_begin == bin_end)
            continue;
        unsigned int fine = t < kFine ? fine_counts[set][bin * kFine + t] : 0;
        unsigned int fine_first = exclusive_sum(fine);
        if (t < kFine)
            fine_begin[t] = bin_begin + fine_first;
        __syncthreads();
        if (position >= bin_begin && position < bin_end && position < end) {
            int low = 0; // the last fine counter that begins at or before this position
            for (int step = kFine / 2; step > 0; step /= 2)
                if (fine_begin[low + step] <= position)
                    low += step;
            ((unsigned short*)data)[position] = (unsigned short)unordered(bin * kFine + low);
        }
        __syncthreads(); // fine_begin is filled anew
    }
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* data, int N) {
    if (N <= kTile) {
        int warps = (N - 1) / kWarpRun + 1;
        // The number of warps is rounded up to a power of two, for runs are merged in pairs.
        int threads = 32;
        while (threads < 32 * warps)
            threads *= 2;
        sort_tile_bf16_kernel_optimized<<<1, threads>>>(data, N);
        return;
    }
    int needed = (N - 1) / kCountThreads + 1;
    int blocks = needed < kCountBlocks ? needed : kCountBlocks;
    count_keys_bf16_kernel_optimized<<<blocks, kCountThreads>>>(data, N);
    write_sorted_bf16_kernel_optimized<<<(N - 1) / kWriteThreads + 1, kWriteThreads>>>(data, N);
}
