// idea: Larger tiles sorted in registers, and a buffer that needs no allocation
// why: cudaMalloc and cudaFree cost more than all kernels together, so the second buffer becomes a device
// array
//      (an allocation remains for sizes beyond it). Tiles of 4096 elements save two of the merge launches. In
//      the bitonic sort most exchanges are over short distances: with four elements per thread, distances up
//      to two stay in registers, those within a warp are shuffles, and only the longest go through shared
//      memory and need a barrier.
// flags: -O3
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kItems = 4; // elements per thread
constexpr int kThreads = 1024;
constexpr int kTile = kItems * kThreads;
constexpr int kMergeThreads = 256;
constexpr int kBufferElements = 1 << 20;
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float device_buffer[kBufferElements];

__device__ float keep(float mine, float other, bool smaller) {
    bool exchange = smaller ? other < mine : mine < other; // equal ones stay where they are
    return exchange ? other : mine;
}

// Bitonic sort of one tile; thread t holds elements 4t to 4t+3. The tail is filled up with infinity.
__global__ void __launch_bounds__(kThreads) sort_tiles_kernel_optimized(const float* from, float* to, int N) {
    __shared__ float tile[kItems][kThreads];
    long long first = blockIdx.x * (long long)kTile + threadIdx.x * kItems;
    float item[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        item[k] = first + k < N ? from[first + k] : CUDART_INF_F;

    int mine = threadIdx.x * kItems;
    for (int size = 2; size <= kTile; size *= 2) {
        for (int distance = size / 2; distance >= kItems; distance /= 2) {
            bool smaller = ((mine & size) == 0) == ((mine & distance) == 0);
            int lanes = distance / kItems;
            float other[kItems];
            if (lanes < 32) {
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    other[k] = __shfl_xor_sync(kFullMask, item[k], lanes);
            } else {
                __syncthreads();
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    tile[k][threadIdx.x] = item[k];
                __syncthreads();
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    other[k] = tile[k][threadIdx.x ^ lanes];
            }
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                item[k] = keep(item[k], other[k], smaller);
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
                bool swap = (b < a) == ascending;
                item[k] = swap ? b : a;
                item[k + distance] = swap ? a : b;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        if (first + k < N)
            to[first + k] = item[k];
}

// Merges neighbouring runs of `width` elements. Of equal elements those of the left run come first.
__global__ void merge_pairs_kernel_optimized(const float* from, float* to, int N, int width) {
    long long i = blockIdx.x * (long long)kMergeThreads + threadIdx.x;
    if (i >= N)
        return;
    float value = from[i];
    long long run = i / width;
    bool is_left = run % 2 == 0;
    long long sibling = (is_left ? run + 1 : run - 1) * width;
    long long low = sibling < N ? sibling : N;
    long long high = sibling + width < N ? sibling + width : N;
    while (low < high) {
        long long middle = (low + high) / 2;
        bool before = is_left ? from[middle] < value : from[middle] <= value;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    long long smaller = sibling < N ? low - sibling : 0;
    to[(run & ~1LL) * width + i % width + smaller] = value;
}

extern "C" void sorting_optimized(float* data, int N) {
    int tiles = (N - 1) / kTile + 1;
    if (tiles == 1) {
        sort_tiles_kernel_optimized<<<1, kThreads>>>(data, data, N);
        return;
    }
    float* buffer = nullptr;
    if (N <= kBufferElements)
        cudaGetSymbolAddress((void**)&buffer, device_buffer);
    else
        cudaMalloc(&buffer, sizeof(float) * N);

    int passes = 0;
    for (long long width = kTile; width < N; width *= 2)
        ++passes;
    // Start where an even or odd number of passes ends in `data`.
    float* from = passes % 2 == 0 ? data : buffer;
    float* to = passes % 2 == 0 ? buffer : data;
    sort_tiles_kernel_optimized<<<tiles, kThreads>>>(data, from, N);
    for (long long width = kTile; width < N; width *= 2) {
        merge_pairs_kernel_optimized<<<(N - 1) / kMergeThreads + 1, kMergeThreads>>>(from, to, N, (int)width);
        float* swapped = from;
        from = to;
        to = swapped;
    }
    if (N > kBufferElements)
        cudaFree(buffer);
}
