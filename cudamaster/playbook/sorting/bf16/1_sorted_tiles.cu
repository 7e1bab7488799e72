// idea: Sort tiles in shared memory, then let every element find its own place in each merge
// why: The baseline starts from runs of one element, so it needs log2(N) launches, and merges a pair of runs
//      with a single thread, so that the last merge runs on one thread of the whole GPU. Tiles of 1024
//      elements sorted in shared memory replace the first ten launches. In the launches that are left every
//      element is its own thread: its place in the merged run is its place in its own run plus the number of
//      elements of the sibling run that go before it, and a binary search finds that number.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kTile = 1024;
constexpr int kThreads = kTile / 2; // a thread for each compared pair

// Bitonic sort of one tile; the tail is filled up with infinity.
__global__ void sort_tiles_bf16_kernel_optimized(__nv_bfloat16* data, int N) {
    __shared__ float tile[kTile];
    long long first = blockIdx.x * (long long)kTile;
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        tile[i] = first + i < N ? __bfloat162float(data[first + i]) : CUDART_INF_F;
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
            data[first + i] = __float2bfloat16(tile[i]);
}

// Merges neighbouring runs of `width` elements. Of equal elements those of the left run come first.
__global__ void merge_pairs_bf16_kernel_optimized(const __nv_bfloat16* from, __nv_bfloat16* to, int N,
                                                  int width) {
    long long i = blockIdx.x * (long long)kThreads + threadIdx.x;
    if (i >= N)
        return;
    float value = __bfloat162float(from[i]);
    long long run = i / width;
    bool is_left = run % 2 == 0;
    long long sibling = (is_left ? run + 1 : run - 1) * width;
    long long low = sibling < N ? sibling : N;
    long long high = sibling + width < N ? sibling + width : N;
    while (low < high) {
        long long middle = (low + high) / 2;
        float other = __bfloat162float(from[middle]);
        bool before = is_left ? other < value : other <= value;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    long long smaller = sibling < N ? low - sibling : 0;
    to[(run & ~1LL) * width + i % width + smaller] = __float2bfloat16(value);
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* data, int N) {
    sort_tiles_bf16_kernel_optimized<<<(N - 1) / kTile + 1, kThreads>>>(data, N);
    if (N <= kTile)
        return;
    __nv_bfloat16* buffer = nullptr;
    cudaMalloc(&buffer, sizeof(__nv_bfloat16) * N);
    __nv_bfloat16* from = data;
    __nv_bfloat16* to = buffer;
    for (long long width = kTile; width < N; width *= 2) {
        merge_pairs_bf16_kernel_optimized<<<(N - 1) / kThreads + 1, kThreads>>>(from, to, N, (int)width);
        __nv_bfloat16* swapped = from;
        from = to;
        to = swapped;
    }
    if (from != data)
        cudaMemcpyAsync(data, from, sizeof(__nv_bfloat16) * N, cudaMemcpyDeviceToDevice);
    cudaFree(buffer);
}
