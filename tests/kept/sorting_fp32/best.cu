// idea: Integer keys and runs of full length, sampled searches, tiles sorted in registers
// why: The profile shows no unit busy and most instructions spent around the loads: 64-bit addresses, bounds,
//      and two comparisons per probe. Floats map to unsigned integers in the same order, so that "less, or
//      equal in an earlier run" becomes one comparison with a threshold; N is filled up to a power of two
//      with the largest key, so that no probe needs a bound. The dependent loads become fewer: each block
//      copies evenly spaced samples of every run to shared memory, all at once, and only the last steps of a
//      search go to memory, within one or two cache lines. In the tiles, four keys per thread make most
//      exchanges of the bitonic sort a minimum and a maximum in registers or a shuffle; few distances are
//      left for shared memory.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kItems = 4; // keys per thread
constexpr int kThreads = 256;
constexpr int kTile = kItems * kThreads;
constexpr int kFanBits = 4;        // at most 16 runs are merged at once
constexpr int kInStep = 8;         // searches advanced together; divides the fan, or is a multiple of it
constexpr int kSamples = 128;      // per run
constexpr int kMergeThreads = 256; // divides kTile, so that a block's keys are of one run
constexpr unsigned int kBufferKeys = 1 << 20;
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kPadding = 0xfffffffeu; // beyond the key of infinity

__device__ unsigned int device_buffers[2][kBufferKeys];

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int to_key(float value) {
    unsigned int bits = __float_as_uint(value);
    return bits ^ ((bits & 0x80000000u) ? 0xffffffffu : 0x80000000u);
}
__device__ float to_value(unsigned int key) {
    return __uint_as_float(key ^ ((key & 0x80000000u) ? 0x80000000u : 0xffffffffu));
}

__device__ unsigned int lesser(unsigned int a, unsigned int b) {
    return a < b ? a : b;
}
__device__ unsigned int greater(unsigned int a, unsigned int b) {
    return a < b ? b : a;
}

// Bitonic sort of one tile; thread t holds keys 4t to 4t+3. Writes whole tiles of keys, or where `keys` is
// null the values themselves.
__global__ void __launch_bounds__(kThreads)
    sort_tiles_kernel_optimized(float* data, unsigned int* keys, int N) {
    __shared__ unsigned int tile[2][kItems][kThreads];
    int mine = threadIdx.x * kItems;
    unsigned int first = blockIdx.x * (unsigned int)kTile + mine;
    unsigned int key[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        key[k] = first + k < (unsigned int)N ? to_key(data[first + k]) : kPadding;

    int side = 0;
    for (int size = 2; size <= kTile; size *= 2) {
        for (int distance = size / 2; distance >= kItems; distance /= 2) {
            bool smaller = ((mine & size) == 0) == ((mine & distance) == 0);
            int lanes = distance / kItems;
            if (lanes >= 32) {
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    tile[side][k][threadIdx.x] = key[k];
                __syncthreads();
            }
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                unsigned int other = lanes >= 32 ? tile[side][k][threadIdx.x ^ lanes]
                                                 : __shfl_xor_sync(kFullMask, key[k], lanes);
                key[k] = smaller ? lesser(key[k], other) : greater(key[k], other);
            }
            if (lanes >= 32)
                side ^= 1;
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
                unsigned int low = lesser(key[k], key[k + distance]);
                unsigned int high = greater(key[k], key[k + distance]);
                key[k] = ascending ? low : high;
                key[k + distance] = ascending ? high : low;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        if (keys != nullptr)
            keys[first + k] = key[k];
        else if (first + k < (unsigned int)N)
            data[first + k] = to_value(key[k]);
    }
}

// Merges groups of `fan` neighbouring runs of `width` keys, all of full length. Of equal keys those of the
// earlier run come first. Writes keys, or where `to` is null the N values.
__global__ void __launch_bounds__(kMergeThreads)
    merge_runs_kernel_optimized(const unsigned int* from, unsigned int* to, float* data, int N,
                                unsigned int width, unsigned int fan) {
    __shared__ unsigned int samples[kSamples << kFanBits];
    unsigned int i = blockIdx.x * (unsigned int)kMergeThreads + threadIdx.x;
    unsigned int group = i & ~(width * fan - 1);
    unsigned int own = (i - group) / width;
    unsigned int spacing = width / kSamples;
    unsigned int key = from[i];
    // Sample j of a run is the last key of its stretch j.
    for (unsigned int s = threadIdx.x; s < fan * kSamples; s += kMergeThreads)
        samples[s] = from[group + (s + 1) * spacing - 1];
    __syncthreads();

    unsigned int place =
        i - own * width; // in its group: place in its own run, and those before it in the others
    for (unsigned int first_run = 0; first_run < fan; first_run += kInStep) {
        unsigned int before[kInStep];    // keys of the run that go before this one
        unsigned int threshold[kInStep]; // those are the ones below it
#pragma unroll
        for (unsigned int k = 0; k < kInStep; ++k) {
            unsigned int run = first_run + k;
            bool searched = run < fan && run != own;
            threshold[k] = searched ? key + (run < own) : 0;
            before[k] = 0;
        }
#pragma unroll
        for (unsigned int step = kSamples / 2; step > 0; step /= 2) { // `before` counts stretches
#pragma unroll
            for (unsigned int k = 0; k < kInStep; ++k) {
                unsigned int run = first_run + k < fan ? first_run + k : 0;
                unsigned int next = before[k] + step;
                before[k] = samples[run * kSamples + next - 1] < threshold[k] ? next : before[k];
            }
        }
        const unsigned int* run_keys[kInStep];
#pragma unroll
        for (unsigned int k = 0; k < kInStep; ++k) {
            unsigned int run = first_run + k < fan ? first_run + k : 0;
            before[k] *= spacing;
            run_keys[k] = from + group + run * width;
        }
        for (unsigned int step = spacing / 2; step > 0; step /= 2) { // within one stretch
#pragma unroll
            for (unsigned int k = 0; k < kInStep; ++k) {
                unsigned int next = before[k] + step;
                before[k] = run_keys[k][next - 1] < threshold[k] ? next : before[k];
            }
        }
        // The steps reach all but the last key of a run; whether that goes before is still open.
#pragma unroll
        for (unsigned int k = 0; k < kInStep; ++k)
            place += before[k] + (run_keys[k][before[k]] < threshold[k]);
    }
    if (to != nullptr)
        to[place] = key;
    else if (place < (unsigned int)N)
        data[place] = to_value(key);
}

extern "C" void sorting_optimized(float* data, int N) {
    int doublings = 0; // of the width of a run, until there is one
    while (((long long)kTile << doublings) < N)
        ++doublings;
    if (doublings == 0) {
        sort_tiles_kernel_optimized<<<1, kThreads>>>(data, nullptr, N);
        return;
    }
    unsigned int padded = (unsigned int)kTile << doublings;
    unsigned int* buffers = nullptr;
    if (padded <= kBufferKeys)
        cudaGetSymbolAddress((void**)&buffers, device_buffers);
    else
        cudaMalloc(&buffers, 2 * sizeof(unsigned int) * (size_t)padded);

    sort_tiles_kernel_optimized<<<padded / kTile, kThreads>>>(data, buffers, N);
    int passes = (doublings - 1) / kFanBits + 1;
    unsigned int width = kTile;
    for (int pass = 0; pass < passes; ++pass) {
        // What is left to double, spread evenly over the passes that are left.
        int bits = (doublings - 1) / (passes - pass) + 1;
        unsigned int* from = buffers + (pass % 2) * (size_t)padded;
        unsigned int* to = pass == passes - 1 ? nullptr : buffers + (1 - pass % 2) * (size_t)padded;
        merge_runs_kernel_optimized<<<padded / kMergeThreads, kMergeThreads>>>(from, to, data, N, width,
                                                                               1u << bits);
        width <<= bits;
        doublings -= bits;
    }
    if (padded > kBufferKeys)
        cudaFree(buffers);
}
