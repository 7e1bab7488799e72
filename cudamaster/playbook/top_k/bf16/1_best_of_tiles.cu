// idea: One launch that keeps the best of each tile, the last block keeps the best of those
// why: The baseline sorts everything in log2(N) launches, the last of which merge with a few threads or a
//      single one. Most of that order is not asked for. Here value and index make one 64-bit key, smaller
//      for what comes first, so that no two are equal and ties need no care. A block sorts its tile of 2048
//      keys in shared memory only as far as runs of k, rounded up to a power of two; of two runs sorted in
//      opposite directions, the smaller keys of each pair of places are the better half, which is sorted in
//      log2(k) further steps, until one run is left. Each block leaves its run and draws a ticket, and the
//      block with the last ticket does the same with all runs. Steps over short distances stay within a
//      warp and need no barrier of the block. The ticket counter wraps to zero by itself. More runs than
//      that block can hold are halved by further launches, and for k above 1024 sorted tiles are merged.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef unsigned long long Key;

constexpr int kThreads = 1024;
constexpr int kTile = 2048;
constexpr int kSurvivors = 4096; // keys that the last block can take
constexpr int kShortestRun = 32;
constexpr int kLongestRun = kTile / 2; // so that a launch leaves at most half of the keys
constexpr Key kNone = ~0ull;           // after every key

__device__ Key survivors[kSurvivors];
__device__ unsigned int tickets; // zero between calls

// Smaller for larger values, for equal ones (-0 and +0 are) by index.
__device__ Key top_k_key(__nv_bfloat16 value, unsigned int index) {
    unsigned int bits = __float_as_uint(__bfloat162float(value) + 0.0f); // -0 becomes +0
    unsigned int ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (Key)~ascending << 32 | index;
}

// Before a step of a bitonic network over `distance`; the step before it was over `before`. The 32 pairs of a
// warp are in 64 places of their own where a distance is at most 32.
__device__ void top_k_barrier(int before, int distance) {
    if (max(before, distance) > 32)
        __syncthreads();
    else
        __syncwarp();
}

__device__ void top_k_order(Key* keys, int low, int high, bool ascending) {
    Key a = keys[low], b = keys[high];
    if ((a > b) == ascending) {
        keys[low] = b;
        keys[high] = a;
    }
}

// Sorts runs of `run` keys, each in the direction opposite to that of the one before. All sizes are powers of
// two.
__device__ void top_k_sort_runs(Key* keys, int size, int run) {
    int before = kTile;
    for (int length = 2; length <= run; length *= 2) {
        for (int distance = length / 2; distance > 0; distance /= 2) {
            top_k_barrier(before, distance);
            before = distance;
            for (int pair = threadIdx.x; pair < size / 2; pair += kThreads) {
                int low = 2 * pair - (pair & (distance - 1));
                top_k_order(keys, low, low + distance, (low & length) == 0);
            }
        }
    }
}

// From runs sorted in opposite directions in turn to the best `run` keys of all, in order in the first
// places.
__device__ void top_k_halve_runs(Key* keys, int size, int run) {
    int log_half = 31 - __clz(run / 2);
    for (int spacing = run; spacing < size; spacing *= 2) {
        // The smaller of each pair of places: in a pair of runs one ascends and the other descends, so these
        // are the smallest half of their keys. They stay in the place of the first run.
        int left = size / spacing / 2;
        __syncthreads();
        for (int place = threadIdx.x; place < left * run; place += kThreads) {
            int first = (place >> (log_half + 1)) * 2 * spacing + (place & (run - 1));
            keys[first] = min(keys[first], keys[first + spacing]);
        }
        int before = kTile;
        for (int distance = run / 2; distance > 0; distance /= 2) {
            top_k_barrier(before, distance);
            before = distance;
            for (int pair = threadIdx.x; pair < left * run / 2; pair += kThreads) {
                int number = pair >> log_half, inside = pair & (run / 2 - 1);
                int low = number * 2 * spacing + 2 * inside - (inside & (distance - 1));
                top_k_order(keys, low, low + distance, number % 2 == 0);
            }
        }
    }
    __syncthreads();
}

// Leaves the best `run` keys of each tile, of input or of `from`, in `to` or, where they are few enough, has
// the last block make the result of them.
__global__ void __launch_bounds__(kThreads)
    top_k_bf16_kernel_optimized(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input,
                                const Key* from, Key* to, long long count, int k, int run) {
    __shared__ Key keys[kSurvivors];
    __shared__ bool is_last;
    long long first = (long long)blockIdx.x * kTile;
    int here = min(count - first, (long long)kTile);
    int size = run;
    while (size < here)
        size *= 2;
    for (int i = threadIdx.x; i < size; i += kThreads)
        keys[i] = i >= here ? kNone : from ? from[first + i] : top_k_key(input[first + i], first + i);
    top_k_sort_runs(keys, size, run);
    top_k_halve_runs(keys, size, run);

    if (gridDim.x > 1) {
        Key* left = (to ? to : survivors) + (long long)blockIdx.x * run;
        for (int i = threadIdx.x; i < run; i += kThreads)
            left[i] = keys[i];
        if (to)
            return;      // another launch follows
        __threadfence(); // the keys are there before the ticket is drawn
        __syncthreads();
        if (threadIdx.x == 0)
            is_last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
        __syncthreads();
        if (!is_last)
            return;
        __threadfence(); // and the ticket is drawn before the keys are read
        here = gridDim.x * run;
        size = run;
        while (size < here)
            size *= 2;
        // All runs ascend; every second one is turned round.
        for (int i = threadIdx.x; i < size; i += kThreads)
            keys[i & run ? i ^ (run - 1) : i] = i < here ? __ldcg(&survivors[i]) : kNone;
        top_k_halve_runs(keys, size, run);
    }
    for (int i = threadIdx.x; i < k; i += kThreads) {
        int index = (int)(keys[i] & 0xffffffffu);
        top_k_indices[i] = index;
        top_k_values[i] = input[index];
    }
}

// For large k: sorts tiles of the input.
__global__ void __launch_bounds__(kThreads)
    top_k_tiles_bf16_kernel_optimized(const __nv_bfloat16* input, Key* to, long long count) {
    __shared__ Key keys[kTile];
    long long first = (long long)blockIdx.x * kTile;
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        keys[i] = first + i < count ? top_k_key(input[first + i], first + i) : kNone;
    top_k_sort_runs(keys, kTile, kTile);
    __syncthreads();
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        to[first + i] = keys[i];
}

// Merges neighbouring runs of `width` keys: each key finds its own place. `count` is a multiple of kTile.
__global__ void __launch_bounds__(kThreads)
    top_k_merge_bf16_kernel_optimized(const Key* from, Key* to, long long count, long long width) {
    long long i = (long long)blockIdx.x * kThreads + threadIdx.x;
    if (i >= count)
        return;
    Key key = from[i];
    long long run = i / width;
    bool is_left = run % 2 == 0;
    long long sibling = min((is_left ? run + 1 : run - 1) * width, count);
    long long low = sibling, high = min(sibling + width, count);
    while (low < high) {
        long long middle = (low + high) / 2;
        // Of keys that are equal, as those beyond the input are, the left run's come first.
        if (is_left ? from[middle] < key : from[middle] <= key)
            low = middle + 1;
        else
            high = middle;
    }
    to[(run & ~1LL) * width + i % width + (low - sibling)] = key;
}

__global__ void __launch_bounds__(kThreads)
    top_k_first_bf16_kernel_optimized(__nv_bfloat16* top_k_values, int* top_k_indices,
                                      const __nv_bfloat16* input, const Key* keys, int k) {
    long long i = (long long)blockIdx.x * kThreads + threadIdx.x;
    if (i >= k)
        return;
    int index = (int)(keys[i] & 0xffffffffu);
    top_k_indices[i] = index;
    top_k_values[i] = input[index];
}

void top_k_bf16_small(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input, int N,
                      int k) {
    int run = kShortestRun;
    while (run < k)
        run *= 2;
    Key* from = nullptr;
    long long count = N;
    while (true) {
        long long tiles = (count - 1) / kTile + 1;
        Key* to = nullptr;
        if (tiles * run > kSurvivors)
            cudaMallocAsync(&to, sizeof(Key) * tiles * run, 0);
        top_k_bf16_kernel_optimized<<<tiles, kThreads>>>(top_k_values, top_k_indices, input, from, to, count,
                                                         k, run);
        if (from)
            cudaFreeAsync(from, 0);
        if (!to)
            return;
        from = to;
        count = tiles * run;
    }
}

void top_k_bf16_large(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input, int N,
                      int k) {
    long long tiles = (N - 1) / kTile + 1, count = tiles * kTile;
    Key* from = nullptr;
    Key* to = nullptr;
    cudaMallocAsync(&from, sizeof(Key) * count, 0);
    cudaMallocAsync(&to, sizeof(Key) * count, 0);
    top_k_tiles_bf16_kernel_optimized<<<tiles, kThreads>>>(input, from, N);
    for (long long width = kTile; width < count; width *= 2) {
        top_k_merge_bf16_kernel_optimized<<<count / kThreads, kThreads>>>(from, to, count, width);
        Key* swapped = from;
        from = to;
        to = swapped;
    }
    top_k_first_bf16_kernel_optimized<<<(k - 1) / kThreads + 1, kThreads>>>(top_k_values, top_k_indices,
                                                                            input, from, k);
    cudaFreeAsync(from, 0);
    cudaFreeAsync(to, 0);
}

extern "C" void top_k_bf16_optimized(__nv_bfloat16* top_k_values, int* top_k_indices,
                                     const __nv_bfloat16* input, int N, int k) {
    if (k <= kLongestRun)
        top_k_bf16_small(top_k_values, top_k_indices, input, N, k);
    else
        top_k_bf16_large(top_k_values, top_k_indices, input, N, k);
}
