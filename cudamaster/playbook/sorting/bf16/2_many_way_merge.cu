// idea: No allocation and two launches: merge path within tiles, a sixteen-way merge between them
// why: After the sorted tiles of the first step most of the call is launches, one per pairwise merge, and an
//      allocation that costs more than all kernels together. The second buffer becomes a device array (an
//      allocation remains for sizes beyond it), tiles hold 4096 elements, and one launch merges sixteen of
//      them: an element finds its place by fifteen binary searches that don't depend on each other, several
//      advanced in step so that their loads overlap. Within a tile, warps sort 128 elements by shuffles and
//      the rest is merged in shared memory, each thread finding by binary search where its four outputs begin
//      (merge path).
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kItems = 4; // elements per thread
constexpr int kThreads = 1024;
constexpr int kTile = kItems * kThreads;
constexpr int kWarpRun = kItems * 32; // what a warp sorts by itself
constexpr int kFan = 16;              // runs merged at once
constexpr int kInStep = 8;            // searches advanced together
constexpr int kMergeThreads = 256;
constexpr int kBufferElements = 1 << 20;
constexpr unsigned kFullMask = 0xffffffffu;

__device__ __nv_bfloat16 device_buffer[kBufferElements];

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

// Sorts one tile per block; the tail is filled up with infinity.
__global__ void __launch_bounds__(kThreads)
    sort_tiles_bf16_kernel_optimized(const __nv_bfloat16* from, __nv_bfloat16* to, int N) {
    __shared__ float tile[2][kTile];
    int mine = threadIdx.x * kItems;
    long long tile_begin = blockIdx.x * (long long)kTile;
    long long left = N - tile_begin;
    int count = left < kTile ? (int)left : kTile;
    float item[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        item[k] = mine + k < count ? __bfloat162float(from[tile_begin + mine + k]) : CUDART_INF_F;
    sort_warp(item);
    int side = 0;
    for (int width = kWarpRun; width < count; width *= 2) {
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
        if (mine + k < count)
            to[tile_begin + mine + k] = __float2bfloat16(item[k]);
}

// Merges groups of kFan neighbouring runs of `width` elements. Of equal elements those of the earlier run
// come first.
__global__ void __launch_bounds__(kMergeThreads)
    merge_runs_bf16_kernel_optimized(const __nv_bfloat16* from, __nv_bfloat16* to, int N, long long width) {
    long long i = blockIdx.x * (long long)kMergeThreads + threadIdx.x;
    if (i >= N)
        return;
    float value = __bfloat162float(from[i]);
    long long group = i / (width * kFan) * (width * kFan);
    int own = (int)((i - group) / width);
    long long rank = i - group - own * width;
    for (int first = 0; first < kFan && group + first * width < N; first += kInStep) {
        const __nv_bfloat16* run[kInStep];
        int length[kInStep], before[kInStep];
#pragma unroll
        for (int k = 0; k < kInStep; ++k) {
            long long begin = group + (first + k) * width;
            long long left = begin < N ? N - begin : 0;
            run[k] = from + begin;
            length[k] = first + k == own ? 0 : (int)(left < width ? left : width);
            before[k] = 0;
        }
        for (int step = (int)width; step > 0; step /= 2) {
#pragma unroll
            for (int k = 0; k < kInStep; ++k) {
                int next = before[k] + step;
                if (next > length[k])
                    continue;
                float other = __bfloat162float(run[k][next - 1]);
                if (first + k < own ? other <= value : other < value)
                    before[k] = next;
            }
        }
#pragma unroll
        for (int k = 0; k < kInStep; ++k)
            rank += before[k];
    }
    to[group + rank] = __float2bfloat16(value);
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* data, int N) {
    if (N <= kTile) {
        int warps = (N - 1) / kWarpRun + 1;
        // The number of warps is rounded up to a power of two, for runs are merged in pairs.
        int threads = 32;
        while (threads < 32 * warps)
            threads *= 2;
        sort_tiles_bf16_kernel_optimized<<<1, threads>>>(data, data, N);
        return;
    }
    __nv_bfloat16* buffer = nullptr;
    if (N <= kBufferElements)
        cudaGetSymbolAddress((void**)&buffer, device_buffer);
    else
        cudaMalloc(&buffer, sizeof(__nv_bfloat16) * N);

    int passes = 0;
    for (long long width = kTile; width < N; width *= kFan)
        ++passes;
    // Start where an even or odd number of passes ends in `data`.
    __nv_bfloat16* from = passes % 2 == 0 ? data : buffer;
    __nv_bfloat16* to = passes % 2 == 0 ? buffer : data;
    sort_tiles_bf16_kernel_optimized<<<(N - 1) / kTile + 1, kThreads>>>(data, from, N);
    for (long long width = kTile; width < N; width *= kFan) {
        merge_runs_bf16_kernel_optimized<<<(N - 1) / kMergeThreads + 1, kMergeThreads>>>(from, to, N, width);
        __nv_bfloat16* swapped = from;
        from = to;
        to = swapped;
    }
    if (N > kBufferElements)
        cudaFree(buffer);
}
