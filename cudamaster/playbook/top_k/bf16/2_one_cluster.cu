// idea: One cluster rules out whole groups by their best, and counts places instead of sorting
// why: Step 1 sorts runs of k in every tile and again in the last block, which waits for all others: 36 to 39 µs
//      for 128 of 65536. Most elements need no sorting to be ruled out. A cluster of 16 blocks keeps the whole
//      input in registers. Elements are taken in chunks of four; those at one place of the chunks of every
//      fourth warp are a group, whose best is the only one that others see. The rank of a group's best among the
//      256 is counted, not sorted for; k groups have something as good as the k-th, so nothing behind that is
//      among the k best. Few candidates are left, of sorted inputs too, because sixteen neighbours are of
//      sixteen groups, and the next sixteen of another block. With groups of whole warps, chunks of sorted
//      inputs stayed together: four candidates for each of the k groups. Ascending numbers in bf16, many of
//      which are equal, left 64 in some blocks and none in others, and took 19.0 instead of 16.8. Each block
//      sends its candidates to all others, and the place of each in the result is how many go before it. Value
//      and index make one key, so ties need no care, and where candidates of a block are too many, as where
//      large elements lie 256 apart, a search that counts keys in 32 parts a round finds another limit: 11 to 33
//      µs over an empty launch, where a bisection took 21 to 82. Three barriers of the cluster are all that
//      blocks wait for. Up to 2048 elements a warp counts for each element what goes before it, in as many
//      blocks as there are 32 elements. More than 65536 are filtered by a threshold from a sample of as many, at
//      uneven distances: at even ones it may be one column of a matrix, and 2^24 took 830 µs instead of 83; what
//      is left goes step 1's way, as k above 128 does. On an H200 128 of 65536 take 5.4 to 5.8 µs more than an
//      empty launch, whatever their order; step 1 took 36 µs in a run in which the empty launch took 9.8; 32 of
//      256 take 11.1 instead of 17.4. What binds it now: 1.6 µs until the first elements are there, and 0.3 to
//      0.6 for each of three barriers. Keys of 32 bits, which 16 bits of value and 16 of index would fit in,
//      gained 0.2 µs at most and end at 65536 elements.
// flags: -O3
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <utility>

namespace cg = cooperative_groups;

typedef unsigned long long Key;

constexpr int kThreads = 1024;
constexpr int kTile = 2048;
constexpr int kSurvivors = 4096; // keys that the last block can take
constexpr int kShortestRun = 32;
constexpr int kLongestRun = kTile / 2; // so that a launch leaves at most half of the keys
constexpr Key kNone = ~0ull;           // after every key
constexpr unsigned int kFullMask = 0xffffffffu;

constexpr int kDirect = 2048; // up to here a warp counts what goes before an element

constexpr int kBlocks = 16; // of the cluster
constexpr int kWarps = 16;  // of each block, and groups
constexpr int kClusterThreads = kWarps * 32;
constexpr int kGroups = kBlocks * kWarps;
constexpr int kWidth = 4;   // elements of a chunk
constexpr int kVectors = 2; // chunks of a thread
constexpr int kLine = 4;    // chunks
constexpr int kClusterSize = kBlocks * kClusterThreads * kVectors * kWidth;
constexpr int kTogether = 2;        // groups whose rank a warp finds
constexpr unsigned int kRoom = 128; // for candidates of a block
constexpr int kClusterLongest = kRoom;
constexpr int kPart = 32 / kBlocks; // lanes that look at the candidates of a block

constexpr unsigned int kKept = 1 << 20; // keys that there is memory for

constexpr int kFilterThreads = 256;
constexpr int kFilterItems = 32;
constexpr int kFilterTile = kFilterThreads * kFilterItems;

__device__ Key survivors[kSurvivors];
__device__ unsigned int tickets; // zero between calls
__device__ Key kept_keys[2 * kKept], kept_threshold;
__device__ unsigned int kept_count;

// Smaller for larger values, for equal ones (-0 and +0 are) by index.
__device__ Key top_k_key(__nv_bfloat16 value, unsigned int index) {
    unsigned int bits = __float_as_uint(__bfloat162float(value) + 0.0f); // -0 becomes +0
    unsigned int ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (Key)~ascending << 32 | index;
}

__global__ void __launch_bounds__(kThreads)
    top_k_direct_bf16_kernel_optimized(__nv_bfloat16* top_k_values, int* top_k_indices,
                                       const __nv_bfloat16* input, int N, int k) {
    __shared__ Key keys[kDirect];
    int size = (N + 31) / 32 * 32;
    for (int i = threadIdx.x; i < size; i += kThreads)
        keys[i] = i < N ? top_k_key(input[i], i) : kNone;
    __syncthreads();
    int own = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (own >= N)
        return;
    Key key = keys[own];
    unsigned int before = 0;
    for (int i = lane; i < size; i += 32)
        before += keys[i] < key;
    before = __reduce_add_sync(kFullMask, before);
    if (lane == 0 && before < (unsigned int)k) {
        top_k_values[before] = input[own];
        top_k_indices[before] = own;
    }
}

struct alignas(kWidth * sizeof(__nv_bfloat16)) Chunk {
    __nv_bfloat16 at[kWidth];
};

// The k best of up to kClusterSize elements, by one cluster. With `threshold` it takes as many elements out of
// N, spread over it, and leaves only a key that at least k of them don't go behind.
__global__ void __launch_bounds__(kClusterThreads)
    top_k_cluster_bf16_kernel_optimized(__nv_bfloat16* top_k_values, int* top_k_indices,
                                        const __nv_bfloat16* input, int N, int k, bool aligned,
                                        Key* threshold) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kItems = kVectors * kWidth;
    constexpr int kEach = kGroups / 32; // of a lane, where a warp looks at the best of all groups
    __shared__ Chunk tile[kVectors * 32][kWarps + 1];
    __shared__ Key best_of_warp[kWarps][kWidth], own_best[kWarps], best[kGroups];
    __shared__ Key own_candidates[kRoom],
        candidates[kBlocks][kRoom + 1]; // an odd length spreads over the banks
    __shared__ __nv_bfloat16 own_values[kRoom];
    __shared__ unsigned int own_count, counts[2][kBlocks], own_parts[32], parts[2][kBlocks][33];
    __shared__ Key kth;
    cg::cluster_group cluster = cg::this_cluster();
    int block = blockIdx.x, t = threadIdx.x, warp = t / 32, lane = t % 32;
    auto started = cluster.barrier_arrive();

    // Lines of four chunks take turns over the blocks. Of a block's chunks, neighbours go to different warps.
    auto place = [&](int i) { return ((i / kLine * kBlocks + block) * kLine + i % kLine) * kWidth; };
    auto index_of = [&](unsigned int i) -> unsigned int {
        if (!threshold)
            return i;
        // Not at even distances, as a sample of one column of a matrix would tell little.
        unsigned int room = N / kClusterSize;
        return (unsigned long long)N * i / kClusterSize + __umulhi(i * 2654435761u, room);
    };
    Chunk chunks[kVectors];
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
        unsigned int first = place(c * kClusterThreads + t);
        if (!threshold && aligned && first + kWidth <= (unsigned int)N)
            chunks[c] = *(const Chunk*)(input + first);
        else
#pragma unroll
            for (int v = 0; v < kWidth; ++v) {
                unsigned int index = index_of(first + v);
                chunks[c].at[v] = input[index < (unsigned int)N ? index : 0];
            }
    }
#pragma unroll
    for (int c = 0; c < kVectors; ++c)
        tile[(c * kClusterThreads + t) / kWarps][t % kWarps] = chunks[c];
    if (t == 0)
        own_count = 0;
    __syncthreads();
    Key keys[kItems], smallest[kWidth]; // of one place in all chunks
#pragma unroll
    for (int v = 0; v < kWidth; ++v)
        smallest[v] = kNone;
#pragma unroll
    for (int c = 0; c < kVectors; ++c) {
        chunks[c] = tile[c * 32 + lane][warp];
        unsigned int first = place((c * 32 + lane) * kWarps + warp);
#pragma unroll
        for (int v = 0; v < kWidth; ++v) {
            unsigned int index = index_of(first + v);
            // What lies beyond the input has keys of its own, too, behind all others.
            Key key = index < (unsigned int)N ? top_k_key(chunks[c].at[v], index) : kNone << 32 | index;
            keys[c * kWidth + v] = key;
            smallest[v] = min(smallest[v], key);
        }
    }
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
        unsigned int upper = __reduce_min_sync(kFullMask, (unsigned int)(smallest[v] >> 32));
        unsigned int lower =
            __reduce_min_sync(kFullMask, smallest[v] >> 32 == upper ? (unsigned int)smallest[v] : ~0u);
        if (lane == v)
            best_of_warp[warp][v] = (Key)upper << 32 | lower;
    }
    __syncthreads();
    cluster.barrier_wait(std::move(started)); // all blocks are there: their shared memory may be written
    if (t < kBlocks * kWarps) {
        // A group is one place in the chunks of every fourth warp, so that sixteen neighbours are of sixteen groups.
        int group = t % kWarps;
        Key key = kNone;
#pragma unroll
        for (int other = 0; other < kWarps; other += kWarps / kWidth)
            key = min(key, best_of_warp[other + group / kWidth][group % kWidth]);
        if (t < kWarps)
            own_best[t] = key;
        cluster.map_shared_rank(best, t / kWarps)[block * kWarps + group] = key;
    }
    cluster.sync();

    // k groups have something as good as the k-th of their best. So it, or something before it, is the k-th
    // of all elements.
    if (warp < kWarps / kTogether) {
        Key all[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i)
            all[i] = best[i * 32 + lane];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
            Key key = own_best[warp * kTogether + j];
            unsigned int before = 0;
#pragma unroll
            for (int i = 0; i < kEach; ++i)
                before += all[i] < key;
            before = __reduce_add_sync(kFullMask, before);
            if (before != (unsigned int)k - 1)
                continue;
            if (threshold && lane == 0)
                *threshold = key;
            if (!threshold && lane < kBlocks)
                *cluster.map_shared_rank(&kth, lane) = key;
        }
    }
    if (threshold)
        return;
    cluster.sync();

    // All blocks get all candidates. Should a block have too many, as where each 256th element is large, a search finds
    // another limit for them, and all begin again.
    Key limit = kth;
    unsigned int here;
    for (int round = 0;; ++round) {
#pragma unroll
        for (int j = 0; j < kItems; ++j)
            if (keys[j] <= limit) {
                unsigned int i = atomicAdd(&own_count, 1u);
                if (i < kRoom) {
                    own_candidates[i] = keys[j];
                    own_values[i] = chunks[j / kWidth].at[j % kWidth];
                }
            }
        __syncthreads();
        here = own_count;
        // A warp for each block.
        Key* target = cluster.map_shared_rank(candidates[block], warp);
        for (unsigned int i = lane; i < min(here, kRoom); i += 32)
            target[i] = own_candidates[i];
        if (lane == 0)
            *cluster.map_shared_rank(&counts[round][block], warp) = here;
        cluster.sync();
        unsigned int most = __reduce_max_sync(kFullMask, counts[round][lane % kBlocks]);
        if (most <= kRoom) {
            // Two of the block's own at a time, held against all. A pair of lanes has the candidates of a block.
            unsigned int other = lane / kPart, others = counts[round][other];
            for (unsigned int i = warp; i < here; i += 2 * kWarps) {
                bool second = i + kWarps < here;
                Key key[2] = {own_candidates[i], second ? own_candidates[i + kWarps] : 0};
                unsigned int before[2] = {0, 0};
#pragma unroll 4
                for (unsigned int j = lane % kPart; j < others; j += kPart) {
                    Key candidate = candidates[other][j];
                    before[0] += candidate < key[0];
                    before[1] += candidate < key[1];
                }
                before[0] = __reduce_add_sync(kFullMask, before[0]);
                before[1] = __reduce_add_sync(kFullMask, before[1]);
                unsigned int rank = lane == 0 ? before[0] : before[1];
                if (lane < 1 + second && rank < (unsigned int)k) {
                    top_k_values[rank] = own_values[i + lane * kWarps];
                    top_k_indices[rank] = (unsigned int)(lane == 0 ? key[0] : key[1]);
                }
            }
            return;
        }
        // Keys between `low` and `high` are counted in 32 even parts. The k-th one is in the part in which the count
        // of all blocks gets to k, and so are the limits to choose from.
        Key low = 0, high = limit;
        unsigned int before_low = 0; // of a lane's block
        for (int side = 0;; side ^= 1) {
            int shift = max(0, 59 - __clzll(high - low)), other = lane % kBlocks;
            if (t < 32)
                own_parts[t] = 0;
            if (t == 0)
                own_count = 0;
            __syncthreads();
#pragma unroll
            for (int j = 0; j < kItems; ++j)
                if (keys[j] >= low && keys[j] <= high)
                    atomicAdd(&own_parts[(keys[j] - low) >> shift], 1u);
            __syncthreads();
            cluster.map_shared_rank(parts[side][block], warp)[lane] = own_parts[lane];
            cluster.sync();
            unsigned int up_to = 0; // in this lane's part, and then up to it
            for (int from = 0; from < kBlocks; ++from)
                up_to += parts[side][from][lane];
            for (int distance = 1; distance < 32; distance *= 2) {
                unsigned int before = __shfl_up_sync(kFullMask, up_to, distance);
                up_to += lane >= distance ? before : 0;
            }
            up_to += __reduce_add_sync(kFullMask, lane < kBlocks ? before_low : 0);
            int part = __popc(__ballot_sync(kFullMask, up_to < (unsigned int)k));
            for (int before = 0; before < part; ++before)
                before_low += parts[side][other][before];
            most = before_low + parts[side][other][part];
            Key last = ((Key)(part + 1) << shift) - 1;
            limit = last > high - low ? high : low + last;
            low += (Key)part << shift;
            most = __reduce_max_sync(kFullMask, most);
            if (most <= kRoom)
                break;
            high = limit;
        }
    }
#endif
}

// Leaves the keys that don't go behind the threshold in `left`, in any order, as long as there is room.
__global__ void __launch_bounds__(kFilterThreads)
    top_k_filter_bf16_kernel_optimized(const __nv_bfloat16* input, int N, bool aligned, const Key* threshold,
                                       Key* left, unsigned int* count, unsigned int room) {
    __shared__ unsigned int block_count, block_place;
    if (threadIdx.x == 0)
        block_count = 0;
    __syncthreads();
    Key limit = *threshold;
    unsigned int first = blockIdx.x * (unsigned int)kFilterTile + threadIdx.x * kWidth;
    Chunk chunks[kFilterItems / kWidth];
    bool whole = aligned && (blockIdx.x + 1ull) * kFilterTile <= (unsigned int)N;
    unsigned int kept = 0;
#pragma unroll
    for (int c = 0; c < kFilterItems / kWidth; ++c) {
        unsigned int i = first + c * kFilterThreads * kWidth;
        if (whole)
            chunks[c] = *(const Chunk*)(input + i);
        else
#pragma unroll
            for (int v = 0; v < kWidth; ++v)
                if (i + v < (unsigned int)N)
                    chunks[c].at[v] = input[i + v];
    }
#pragma unroll
    for (int j = 0; j < kFilterItems; ++j) {
        unsigned int i = first + j / kWidth * kFilterThreads * kWidth + j % kWidth;
        if (i < (unsigned int)N && top_k_key(chunks[j / kWidth].at[j % kWidth], i) <= limit)
            kept |= 1u << j;
    }
    unsigned int place = 0;
    if (kept)
        place = atomicAdd(&block_count, __popc(kept));
    __syncthreads();
    if (threadIdx.x == 0 && block_count > 0)
        block_place = atomicAdd(count, block_count);
    __syncthreads();
    if (!kept)
        return;
    place += block_place;
#pragma unroll
    for (int j = 0; j < kFilterItems; ++j) {
        unsigned int i = first + j / kWidth * kFilterThreads * kWidth + j % kWidth;
        if (!(kept >> j & 1))
            continue;
        if (place < room)
            left[place] = top_k_key(chunks[j / kWidth].at[j % kWidth], i);
        ++place;
    }
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

// Whether the cluster could be started: a GPU before sm_90 has none.
bool top_k_bf16_cluster(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input, int N,
                        int k, Key* threshold) {
    cudaFuncSetAttribute(top_k_cluster_bf16_kernel_optimized, cudaFuncAttributeNonPortableClusterSizeAllowed,
                         1);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(kClusterThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    bool aligned = (size_t)input % sizeof(Chunk) == 0;
    if (cudaLaunchKernelEx(&config, top_k_cluster_bf16_kernel_optimized, top_k_values, top_k_indices, input,
                           N, k, aligned, threshold) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

// From `input` or, where it is not null, of the `count` keys in `from`.
void top_k_bf16_small(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input, Key* from,
                      long long count, int k) {
    int run = kShortestRun;
    while (run < k)
        run *= 2;
    Key *kept = nullptr, *allocated = nullptr;
    cudaGetSymbolAddress((void**)&kept, kept_keys);
    int side = from ? 1 : 0;
    while (true) {
        long long tiles = (count - 1) / kTile + 1;
        Key* to = nullptr;
        bool allocates = tiles * run > kKept;
        if (allocates)
            cudaMallocAsync(&to, sizeof(Key) * tiles * run, 0);
        else if (tiles * run > kSurvivors)
            to = kept + side * kKept;
        side ^= 1;
        top_k_bf16_kernel_optimized<<<tiles, kThreads>>>(top_k_values, top_k_indices, input, from, to, count,
                                                         k, run);
        if (allocated)
            cudaFreeAsync(allocated, 0);
        if (!to)
            return;
        allocated = allocates ? to : nullptr;
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

// Takes out of many elements those that may be among the k best. Null if that can't be told or they are many.
Key* top_k_bf16_sample(const __nv_bfloat16* input, int N, int k, long long* count) {
    Key *keys = nullptr, *threshold = nullptr;
    unsigned int *left = nullptr, found = ~0u;
    cudaGetSymbolAddress((void**)&keys, kept_keys);
    cudaGetSymbolAddress((void**)&threshold, kept_threshold);
    cudaGetSymbolAddress((void**)&left, kept_count);
    cudaMemsetAsync(left, 0, sizeof(unsigned int), 0);
    if (top_k_bf16_cluster(nullptr, nullptr, input, N, k, threshold)) {
        bool aligned = (size_t)input % sizeof(Chunk) == 0;
        top_k_filter_bf16_kernel_optimized<<<(N - 1) / kFilterTile + 1, kFilterThreads>>>(
            input, N, aligned, threshold, keys, left, kKept);
        cudaMemcpy(&found, left, sizeof(unsigned int), cudaMemcpyDeviceToHost);
    }
    *count = found;
    return found <= kKept ? keys : nullptr;
}

extern "C" void top_k_bf16_optimized(__nv_bfloat16* top_k_values, int* top_k_indices,
                                     const __nv_bfloat16* input, int N, int k) {
    if (N <= kDirect) {
        top_k_direct_bf16_kernel_optimized<<<(N - 1) / (kThreads / 32) + 1, kThreads>>>(
            top_k_values, top_k_indices, input, N, k);
        return;
    }
    if (N <= kClusterSize && k <= kClusterLongest &&
        top_k_bf16_cluster(top_k_values, top_k_indices, input, N, k, nullptr))
        return;
    if (k > kLongestRun) {
        top_k_bf16_large(top_k_values, top_k_indices, input, N, k);
        return;
    }
    long long count = N;
    Key* from = nullptr;
    if (N > kClusterSize && k <= kClusterLongest)
        from = top_k_bf16_sample(input, N, k, &count);
    top_k_bf16_small(top_k_values, top_k_indices, input, from, from ? count : N, k);
}
