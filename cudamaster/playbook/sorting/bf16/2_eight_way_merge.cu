// idea: Merge eight runs per launch, and into a buffer that needs no allocation
// why: Every pairwise merge is a launch that reads and writes everything and waits for one chain of dependent
//      loads, its binary search. An element can find its place among eight runs as well as among two: seven
//      searches that don't depend on each other advance in step, so that their loads overlap and the chain is
//      no longer than before. Two launches then do the work of six. The second buffer becomes a device array
//      (an allocation remains for sizes beyond it), which spares cudaMalloc and cudaFree in every call.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kTile = 1024;
constexpr int kThreads = kTile / 2; // a thread for each compared pair
constexpr int kFan = 8;             // runs merged at once
constexpr int kMergeThreads = 128;
constexpr int kBufferElements = 1 << 20;

__device__ __nv_bfloat16 device_buffer[kBufferElements];

// Bitonic sort of one tile; the tail is filled up with infinity.
__global__ void sort_tiles_bf16_kernel_optimized(const __nv_bfloat16* from, __nv_bfloat16* to, int N) {
    __shared__ float tile[kTile];
    long long first = blockIdx.x * (long long)kTile;
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        tile[i] = first + i < N ? __bfloat162float(from[first + i]) : CUDART_INF_F;
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
        if (first + i < N)
            to[first + i] = __float2bfloat16(tile[i]);
}

// Merges groups of kFan neighbouring runs of `width` elements. Of equal elements those of the earlier run
// come first. No branch depends on the data: a search that is done, or that has no run, repeats a harmless
// load.
__global__ void __launch_bounds__(kMergeThreads)
    merge_runs_bf16_kernel_optimized(const __nv_bfloat16* from, __nv_bfloat16* to, int N, long long width) {
    long long i = blockIdx.x * (long long)kMergeThreads + threadIdx.x;
    if (i >= N)
        return;
    float value = __bfloat162float(from[i]);
    long long group = i / (width * kFan) * (width * kFan);
    int own = (int)((i - group) / width);
    const __nv_bfloat16* run[kFan];
    int length[kFan], before[kFan]; // before: elements of the run that go before this one
#pragma unroll
    for (int k = 0; k < kFan; ++k) {
        long long begin = group + k * width;
        bool searched = begin < N && k != own;
        long long left = N - begin;
        run[k] = searched ? from + begin : from;
        length[k] = searched ? (int)(left < width ? left : width) : 0;
        before[k] = 0;
    }
    for (int step = (int)width; step > 0; step /= 2) {
#pragma unroll
        for (int k = 0; k < kFan; ++k) {
            int next = before[k] + step;
            bool inside = next <= length[k];
            float other = __bfloat162float(run[k][inside ? next - 1 : 0]);
            bool goes_before = k < own ? other <= value : other < value;
            before[k] = inside && goes_before ? next : before[k];
        }
    }
    long long place =
        i - own * width; // in its group: place in its own run, and those before it in the others
#pragma unroll
    for (int k = 0; k < kFan; ++k)
        place += before[k];
    to[place] = __float2bfloat16(value);
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* data, int N) {
    if (N <= kTile) {
        sort_tiles_bf16_kernel_optimized<<<1, kThreads>>>(data, data, N);
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
