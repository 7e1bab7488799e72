// idea: Search samples in shared memory first, and sort tiles by merge path
// why: What is left of the merge is the chain of dependent loads of its binary searches, most of them misses
// in
//      the first-level cache. Each block copies 64 evenly spaced samples of every run to shared memory, all
//      at once; the upper steps of all searches stay there, and only the last few go to memory, within one or
//      two cache lines. The number of runs merged at once is chosen so that all launches do the same work. In
//      the tiles, warps sort 128 elements by shuffles, without barriers, and each thread then finds by binary
//      search where its four outputs of the next merge begin (merge path): fewer steps than the bitonic
//      network.
// flags: -O3
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kItems = 4; // elements per thread
constexpr int kThreads = 256;
constexpr int kTile = kItems * kThreads;
constexpr int kWarpRun = kItems * 32; // what a warp sorts by itself
constexpr int kFanBits = 4;           // at most 16 runs are merged at once
constexpr int kInStep = 8;            // searches advanced together
constexpr int kSamples = 64;          // per run
constexpr int kMergeThreads = 256;    // divides kTile, so that a block's elements are of one run
constexpr int kBufferElements = 1 << 20;
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float device_buffer[kBufferElements];

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
__global__ void __launch_bounds__(kThreads) sort_tiles_kernel_optimized(const float* from, float* to, int N) {
    __shared__ float tile[2][kTile];
    int mine = threadIdx.x * kItems;
    long long tile_begin = blockIdx.x * (long long)kTile;
    long long left = N - tile_begin;
    int count = left < kTile ? (int)left : kTile;
    float item[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        item[k] = mine + k < count ? from[tile_begin + mine + k] : CUDART_INF_F;
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
            to[tile_begin + mine + k] = item[k];
}

// Merges groups of `fan` neighbouring runs of `width` elements. Of equal elements those of the earlier run
// come first. No branch depends on the data: a search that is done, or that has no run, repeats a harmless
// load.
__global__ void __launch_bounds__(kMergeThreads)
    merge_runs_kernel_optimized(const float* from, float* to, int N, long long width, int fan) {
    __shared__ float samples[kSamples << kFanBits];
    long long first = blockIdx.x * (long long)kMergeThreads, i = first + threadIdx.x;
    long long group = first / (width * fan) * (width * fan);
    int own = (int)((first - group) / width);
    int spacing = (int)(width / kSamples);
    float value = i < N ? from[i] : 0.0f;
    // Sample j of a run is the last element of its stretch j.
    for (int s = threadIdx.x; s < fan * kSamples; s += kMergeThreads) {
        long long source = group + s / kSamples * width + (s % kSamples + 1LL) * spacing - 1;
        samples[s] = source < N ? from[source] : 0.0f;
    }
    __syncthreads();
    if (i >= N)
        return;

    long long place =
        i - own * width; // in its group: place in its own run, and those before it in the others
    for (int first_run = 0; first_run < fan; first_run += kInStep) {
        const float* run[kInStep];
        int length[kInStep], before[kInStep]; // before: elements of the run that go before this one
#pragma unroll
        for (int k = 0; k < kInStep; ++k) {
            int r = first_run + k;
            long long begin = group + r * width;
            bool searched = r < fan && r != own && begin < N;
            long long left = N - begin;
            run[k] = searched ? from + begin : from;
            length[k] = searched ? (int)(left < width ? left : width) : 0;
            before[k] = 0;
        }
#pragma unroll
        for (int step = kSamples; step > 0; step /= 2) { // `before` counts stretches
#pragma unroll
            for (int k = 0; k < kInStep; ++k) {
                int next = before[k] + step;
                bool inside = next <= kSamples && next * (long long)spacing <= length[k];
                float other = samples[inside ? (first_run + k) * kSamples + next - 1 : 0];
                bool goes_before = first_run + k < own ? other <= value : other < value;
                before[k] = inside && goes_before ? next : before[k];
            }
        }
#pragma unroll
        for (int k = 0; k < kInStep; ++k)
            before[k] *= spacing;
        for (int step = spacing / 2; step > 0; step /= 2) { // within one stretch
#pragma unroll
            for (int k = 0; k < kInStep; ++k) {
                int next = before[k] + step;
                bool inside = next <= length[k];
                float other = run[k][inside ? next - 1 : 0];
                bool goes_before = first_run + k < own ? other <= value : other < value;
                before[k] = inside && goes_before ? next : before[k];
            }
        }
#pragma unroll
        for (int k = 0; k < kInStep; ++k)
            place += before[k];
    }
    to[place] = value;
}

extern "C" void sorting_optimized(float* data, int N) {
    if (N <= kTile) {
        int warps = (N - 1) / kWarpRun + 1;
        // The number of warps is rounded up to a power of two, for runs are merged in pairs.
        int threads = 32;
        while (threads < 32 * warps)
            threads *= 2;
        sort_tiles_kernel_optimized<<<1, threads>>>(data, data, N);
        return;
    }
    float* buffer = nullptr;
    if (N <= kBufferElements)
        cudaGetSymbolAddress((void**)&buffer, device_buffer);
    else
        cudaMalloc(&buffer, sizeof(float) * N);

    int doublings = 0; // of the width of a run, until there is one
    while (((long long)kTile << doublings) < N)
        ++doublings;
    int passes = (doublings - 1) / kFanBits + 1;
    int fan = 1 << ((doublings - 1) / passes + 1);
    // Start where an even or odd number of passes ends in `data`.
    float* from = passes % 2 == 0 ? data : buffer;
    float* to = passes % 2 == 0 ? buffer : data;
    sort_tiles_kernel_optimized<<<(N - 1) / kTile + 1, kThreads>>>(data, from, N);
    long long width = kTile;
    for (int pass = 0; pass < passes; ++pass) {
        merge_runs_kernel_optimized<<<(N - 1) / kMergeThreads + 1, kMergeThreads>>>(from, to, N, width, fan);
        width *= fan;
        float* swapped = from;
        from = to;
        to = swapped;
    }
    if (N > kBufferElements)
        cudaFree(buffer);
}
