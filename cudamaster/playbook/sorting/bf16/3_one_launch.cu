// idea: One launch: all blocks sort the same samples, so each knows where its keys belong
// why: Step 2 waits for three launches, and each search in a merge is a chain of loads from L2. Keys as
//      unsigned integers in the order of the values make a comparison a minimum and a maximum. Here a block
//      sorts a run of 512 elements and, beside it, 1024 samples of the whole array, which all blocks take
//      alike. So without asking each other they have the same splitters of 128 buckets, and find by binary
//      search where the buckets begin in their runs. After one barrier of the grid a block fetches the
//      segments of its bucket, sorts them and writes them; where they go is the sum of what lies before
//      them in the runs. Keys that are equal to several splitters are shared among those buckets, so few
//      values are no worse than many. Should a bucket be too large for a block, each key of it finds its
//      place by binary search: slow, and not seen in any input of the task. The bitonic sorts turn keys
//      over where others turn directions, keep the larger or the smaller key by two instructions, and have
//      each distance once in the code, as instructions come from cold memory, too. Up to 8192 elements the
//      blocks are a cluster, whose barrier takes 0.4 µs where that of the grid takes 1.1; a cooperative
//      launch takes 0.4 µs more than another. Up to 2048 elements one block sorts, with two keys in a word.
//      Of more than 65536 elements, each of the 65536 possible values is counted: a block counts half of
//      the values in shared memory, the last block finds which occur and where they begin, and a second
//      launch writes them. So each element is read twice, by two blocks, and written once. On an H200
//      65536 elements take 21 µs, where an empty launch takes 9 and CUB 43; sorted, reversed and equal
//      inputs and inputs of two values or extremes take 19 to 19.5. 4096 take 17.2 (CUB 18), 2048 14.8,
//      where a cluster took 17.8. 2^17 take 38 µs (CUB 45), 2^20 40 (CUB 52), 2^26 153 (CUB 767), where
//      sorting by digits took 42, 47 and 1340; with bit patterns at random, which have most of the
//      values, 2^17 take 70 (CUB 46), 2^20 84 (CUB 54), 2^26 204 (CUB 786). To count 65536 elements with
//      counters in memory took 26, and 43 to 67 with one value or two, as all additions met at the same
//      counters. What binds it now is as in fp32, as keys of 16 bits have registers of 32; of long arrays
//      it is the counting, 113 µs at 2^26.
// flags: -O3
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef unsigned short Element; // the bits

constexpr int kItems = 4; // keys of a thread
constexpr int kThreads = 512;
constexpr int kRoom = kItems * kThreads; // keys that a block can sort
constexpr int kLeast = 256;              // elements up to which eight blocks compare each with all
constexpr int kLess = 1024;              // and a cluster of kCluster
constexpr int kFewThreads = 512;         // of a cluster that counts
constexpr int kRun = 512;                // elements that a block takes at first, at most
constexpr int kRuns = 128;               // at most
constexpr int kSamples = 1024;           // at most
constexpr int kOversampling = 16;        // samples for each bucket, as far as there are so many
constexpr int kCluster = 16;             // blocks, at most
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kPadding = 0xfffffffeu; // beyond the key of infinity
constexpr unsigned int kNone = 0xffffffffu;    // no key

struct alignas(kItems * sizeof(Element)) Chunk {
    Element at[kItems];
};

__device__ __align__(16) unsigned int device_runs[kRuns * kRun];
__device__ __align__(16) unsigned int device_starts[kRuns * kRuns]; // of each bucket in each run
__device__ __align__(16) unsigned int device_cells[kRuns * kRoom];  // a few keys of a bucket from each run
__device__ unsigned int device_pieces[kRuns * kRun];                // of buckets too large for a block

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int to_key(Element bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}
__device__ Element to_value(unsigned int key) {
    return (Element)(key ^ ((key & 0x8000u) ? 0x8000u : 0xffffu));
}

// Orders pairs of a thread's keys.
template <int kDistance> __device__ __forceinline__ void order_own(unsigned int (&key)[kItems]) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        if ((k & kDistance) != 0)
            continue;
        unsigned int low = min(key[k], key[k + kDistance]);
        key[k + kDistance] = max(key[k], key[k + kDistance]);
        key[k] = low;
    }
}

// The larger of two keys or the smaller one. As two instructions with a predicate; of a choice in C++ nvcc makes
// three, and most instructions on integers are done at half the rate of others.
__device__ __forceinline__ void keep(unsigned int& key, unsigned int other, bool larger) {
    asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p max.u32 %0, %0, %1;\n\t@!p min.u32 %0, %0, "
        "%1;\n\t}"
        : "+r"(key)
        : "r"(other), "r"((unsigned int)larger));
}

// Orders pairs of keys of the thread and of another one of its warp.
template <int kLanes> __device__ __forceinline__ void order_in_warp(unsigned int (&key)[kItems]) {
    bool larger = (threadIdx.x & kLanes) != 0;
    unsigned int other[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        other[k] = __shfl_xor_sync(kFullMask, key[k], kLanes);
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        keep(key[k], other[k], larger);
}

// Bitonic sort of `part` keys, a power of two from 128 to 2048 or none, by as many threads as hold them. Other threads
// of the block sort others beside them: all meet at the barriers that the largest sort needs. Threads whose keys are
// to descend turn over all bits of them. Each size of runs begins at its own distance: a loop over few instructions,
// as those that nobody has executed before come from memory, too.
__device__ void sort_keys(unsigned int (&key)[kItems], unsigned int (&tile)[2][kItems][kThreads], int part,
                          int largest) {
    int side = 0;
    unsigned int turned = 0;
#pragma unroll 1
    for (int size = kItems; size <= largest; size *= 2) {
        bool sorts = size <= part; // the same in a whole warp
        unsigned int turn = size < part && (threadIdx.x * kItems & size) != 0 ? ~0u : 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            key[k] ^= turned ^ turn;
        turned = turn;
#pragma unroll 1
        for (int lanes = size / kItems / 2; lanes >= 32; lanes /= 2) { // with a thread of another warp
            if (sorts)
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    tile[side][k][threadIdx.x] = key[k];
            __syncthreads();
            bool larger = (threadIdx.x & lanes) != 0;
            if (sorts)
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    keep(key[k], tile[side][k][threadIdx.x ^ lanes], larger);
            side ^= 1;
        }
        if (!sorts)
            continue;
        switch (min(size, 128)) {
        case 128:
            order_in_warp<16>(key);
        case 64:
            order_in_warp<8>(key);
        case 32:
            order_in_warp<4>(key);
        case 16:
            order_in_warp<2>(key);
        case 8:
            order_in_warp<1>(key);
            order_own<2>(key);
            order_own<1>(key);
            break;
        default: // the keys of a thread
            order_own<2>(key);
            order_own<1>(key);
            if (key[1] > key[2]) {
                unsigned int larger = key[1];
                key[1] = key[2];
                key[2] = larger;
            }
        }
    }
}

__device__ unsigned int warp_sum_to(unsigned int value) {
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int other = __shfl_up_sync(kFullMask, value, distance);
        value += threadIdx.x % 32 >= distance ? other : 0;
    }
    return value;
}

// How many of kCount sorted keys, a power of two, are below `key`.
template <int kCount> __device__ unsigned int below(const unsigned int* keys, unsigned int key) {
    unsigned int count = 0;
#pragma unroll
    for (int step = kCount / 2; step > 0; step /= 2)
        count += keys[count + step - 1] < key ? step : 0;
    return count + (keys[count] < key);
}

// Of two keys of 16 bits in a word.
__device__ __forceinline__ unsigned int larger_of(unsigned int a, unsigned int b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm("max.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
#else
    return __vmaxu2(a, b);
#endif
}
// Puts into eight places of each lane, where some have a key and all others 0, the value of the largest key before or
// there; `earlier` is that of what lies before the warp.
__device__ __forceinline__ void write_up(unsigned int (&words)[4], unsigned int earlier) {
    unsigned int most = larger_of(larger_of(words[0], words[1]), larger_of(words[2], words[3]));
    most = max(most & 0xffffu, most >> 16);
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int other = __shfl_up_sync(kFullMask, most, distance);
        most = threadIdx.x % 32 >= distance ? max(most, other) : most;
    }
    unsigned int key = __shfl_up_sync(kFullMask, most, 1);
    key = threadIdx.x % 32 > 0 ? max(key, earlier) : earlier;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        unsigned int first = max(key, words[j] & 0xffffu);
        key = max(first, words[j] >> 16);
        words[j] = (unsigned int)to_value(first) | (unsigned int)to_value(key) << 16;
    }
}

// Two parts of the barrier of a cluster. After a barrier of the block one warp tells for all of them that they are there:
// that takes a fence, which all others would wait for as well.
template <int kOfBlock> __device__ __forceinline__ void arrive_at_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x / 32 == kOfBlock / 32 - 1)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Counts one more if a key is below another. Of C++ nvcc makes three instructions, each of which waits for the one before.
__device__ __forceinline__ void add_if_below(unsigned int& count, unsigned int key, unsigned int other) {
    asm("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %1, %2;\n\t@p add.u32 %0, %0, 1;\n\t}"
        : "+r"(count)
        : "r"(key), "r"(other));
}
// How many of four keys are below `key`, in two counters.
__device__ __forceinline__ void add_four_below(unsigned int (&count)[2], uint4 keys, unsigned int key) {
    add_if_below(count[0], keys.x, key);
    add_if_below(count[1], keys.y, key);
    add_if_below(count[0], keys.z, key);
    add_if_below(count[1], keys.w, key);
}
// How many of those before place `place` of four keys equal `key`.
__device__ __forceinline__ unsigned int equal_before(uint4 keys, unsigned int key, int place) {
    return (place > 0 && keys.x == key) + (place > 1 && keys.y == key) + (place > 2 && keys.z == key);
}

// So few that each is compared with all: a block finds the places of its share.
template <int kBlocks, int kCompared>
__global__ void __launch_bounds__(kCompared) compare_all_bf16_kernel_optimized(Element* data, int N) {
    constexpr int kShare = kCompared / kBlocks, kTeam = kCompared / kShare, kVectors = kCompared / 4;
    __shared__ __align__(16) unsigned int keys[kCompared];
    int t = threadIdx.x;
    keys[t] = t < N ? to_key(data[t]) : kNone;
    __syncthreads();
    arrive_at_cluster<kCompared>();
    int own = blockIdx.x * kShare + t / kTeam;
    unsigned int key = keys[own], smaller[2] = {};
    const uint4* vectors = (const uint4*)keys;
#pragma unroll
    for (int k = 0; k < kVectors / kTeam; ++k) {
        int v = k * kTeam + t % kTeam;
        add_four_below(smaller, vectors[v], key + (v < own / 4));
    }
    unsigned int rank = smaller[0] + smaller[1];
    if (t % kTeam == 0)
        rank += equal_before(vectors[own / 4], key, own % 4);
#pragma unroll
    for (int distance = kTeam / 2; distance > 0; distance /= 2)
        rank += __shfl_xor_sync(kFullMask, rank, distance);
    wait_for_cluster();
    if (t % kTeam == 0 && own < N)
        data[rank] = to_value(key);
}

// Up to kFewThreads * 8 * kChunks elements, by a cluster. All blocks read all elements, and each counts how often the
// values of its share occur. It tells where each begins to the block whose slice of the array that is; there all else is
// the largest value before it. So blocks write equal parts, whatever the values are.
template <int kChunks>
__global__ void __launch_bounds__(kFewThreads)
    count_in_cluster_bf16_kernel_optimized(Element* data, int N, bool aligned) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kShare = (1 << 16) / kCluster, kOwnBins = kShare / kFewThreads, kWarps = kFewThreads / 32;
    constexpr unsigned int kSlice = kFewThreads * 8 * kChunks / kCluster;
    static_assert(kOwnBins % 4 == 0 && kSlice <= kFewThreads * 8,
                  "whole vectors, and one of a slice for a thread");
    __shared__ __align__(16) unsigned int bins[kShare];
    __shared__ __align__(16) Element begins[kSlice]; // keys
    __shared__ unsigned int sums[kWarps], largest[kWarps], totals[kCluster];
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned int t = threadIdx.x, lane = t % 32, warp = t / 32, block = blockIdx.x;
    // What is missing is a NaN, which goes to the end.
    uint4 chunk[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
        chunk[c] = make_uint4(0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu);
    if (aligned && N % 8 == 0) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            if ((int)(c * kFewThreads + t) * 8 < N)
                chunk[c] = ((const uint4*)data)[c * kFewThreads + t];
    } else {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            unsigned int raw[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                int i = (c * kFewThreads + t) * 8 + k;
                raw[k] = i < N ? data[i] : 0x7fff;
            }
            chunk[c] = make_uint4(raw[0] | raw[1] << 16, raw[2] | raw[3] << 16, raw[4] | raw[5] << 16,
                                  raw[6] | raw[7] << 16);
        }
    }
#pragma unroll
    for (int k = 0; k < kOwnBins / 4; ++k)
        ((uint4*)bins)[k * kFewThreads + t] = make_uint4(0, 0, 0, 0);
    if (t * 8 < kSlice)
        ((uint4*)begins)[t] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    arrive_at_cluster<kFewThreads>(); // and what others will write to is clear
    unsigned int first = block * kShare;
    unsigned int at = (unsigned int)__cvta_generic_to_shared(bins);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        unsigned int words[4] = {chunk[c].x, chunk[c].y, chunk[c].z, chunk[c].w};
#pragma unroll
        for (int k = 0; k < 4; ++k) { // two keys at a time, less the first of the share
            unsigned int signs = words[k] & 0x80008000u;
            unsigned int keys = words[k] ^ (0x80008000u | (signs - (signs >> 15))) ^ (first | first << 16);
            unsigned int low = keys & 0xffffu, high = keys >> 16;
            asm volatile("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %0, %1;\n\t@p red.shared.add.u32 [%2], 1;\n\t}"
                         :
                         : "r"(low), "r"((unsigned int)kShare), "r"(at + low * 4)
                         : "memory");
            asm volatile("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %0, %1;\n\t@p red.shared.add.u32 [%2], 1;\n\t}"
                         :
                         : "r"(high), "r"((unsigned int)kShare), "r"(at + high * 4)
                         : "memory");
        }
    }
    __syncthreads();

    // Where the values of a thread begin among those of the block.
    unsigned int each[kOwnBins], own = 0;
#pragma unroll
    for (int k = 0; k < kOwnBins / 4; ++k) {
        uint4 four = ((const uint4*)bins)[t * (kOwnBins / 4) + k];
        each[k * 4] = four.x, each[k * 4 + 1] = four.y, each[k * 4 + 2] = four.z, each[k * 4 + 3] = four.w;
        own += four.x + four.y + four.z + four.w;
    }
    unsigned int up_to = warp_sum_to(own);
    if (lane == 31)
        sums[warp] = up_to;
    __syncthreads();
    unsigned int of_warp = lane < kWarps ? sums[lane] : 0;
    unsigned int count = __reduce_add_sync(kFullMask, of_warp);
    unsigned int next = up_to - own + __reduce_add_sync(kFullMask, lane < warp ? of_warp : 0);
    wait_for_cluster();
    if (t < kCluster)
        *cluster.map_shared_rank(&totals[block], t) = count;
    cluster.sync(); // and all have read their elements
    next += __reduce_add_sync(kFullMask, lane < block ? totals[lane % kCluster] : 0);
#pragma unroll
    for (int k = 0; k < kOwnBins; ++k) {
        unsigned int place = next;
        next += each[k];
        for (; place < min(next, (unsigned int)N); place = (place / kSlice + 1) * kSlice)
            *cluster.map_shared_rank(&begins[place % kSlice], place / kSlice) =
                (Element)(first + t * kOwnBins + k);
    }
    cluster.sync();

    uint4 four = make_uint4(0, 0, 0, 0);
    if (t * 8 < kSlice)
        four = ((const uint4*)begins)[t];
    unsigned int words[4] = {four.x, four.y, four.z, four.w};
    unsigned int most = larger_of(larger_of(words[0], words[1]), larger_of(words[2], words[3]));
    most = __reduce_max_sync(kFullMask, max(most & 0xffffu, most >> 16));
    if (lane == 0)
        largest[warp] = most;
    __syncthreads();
    write_up(words, __reduce_max_sync(kFullMask, lane < warp ? largest[lane] : 0));
    int place = block * kSlice + t * 8;
    if (t * 8 < kSlice) {
        if (aligned && place + 8 <= N)
            *(uint4*)(data + place) = make_uint4(words[0], words[1], words[2], words[3]);
        else
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (place + j < N)
                    data[place + j] = (Element)(words[j / 2] >> (j % 2 * 16));
    }
#endif
}

constexpr int kBins = 2048;
constexpr int kSampled = kItems * kThreads; // samples whose bins are counted
constexpr int kCrowd = 1024;                // keys of a bin of samples, at most
constexpr int kReach = 32;                  // keys of a bin in a bucket, at most
constexpr unsigned int kExcess = 16;        // keys that had no room in a cell, at most
constexpr float kLeastSpan = 1e-35f, kMostSpan = 3e38f;

__device__ __forceinline__ float to_number(Element value) {
    return __uint_as_float((unsigned int)value << 16);
}
__device__ __forceinline__ float number_of(unsigned int key) {
    return to_number(to_value(key));
}
__device__ __forceinline__ unsigned int key_of(float number) {
    return to_key((Element)(__float_as_uint(number) >> 16));
}

// The bin of a number, from 0 to kBins - 1, where those from -shift / ratio on have a bin for each 1 / (ratio * kBins).
// The sum has the bin in its last bits.
__device__ __forceinline__ unsigned int bin_of(float number, float ratio, float shift) {
    float part = __saturatef(fmaf(number, ratio, shift));
    return __float_as_uint(fmaf(part, kBins - 1, 8388608.0f)) & (kBins - 1);
}

// The bin of a key that is `distance` above the least one.
__device__ __forceinline__ unsigned int bin_by(unsigned int distance, unsigned int step) {
    return min(step != 0 ? __umulhi(distance, step) : distance, (unsigned int)kBins - 1);
}
__device__ __forceinline__ unsigned int step_for(unsigned int width) { // how many keys there may be
    float ratio = __fdividef(kBins * 4294967296.0f, (float)width);
    return width > kBins ? __float2uint_rd(ratio) : 0;
}

// What lies before the four bins of this thread, and the largest of all.
__device__ __forceinline__ unsigned int sum_before(uint4 count, unsigned int (&sums)[4][kThreads / 32],
                                                   unsigned int& largest) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int own = count.x + count.y + count.z + count.w, up_to = warp_sum_to(own);
    unsigned int most = __reduce_max_sync(kFullMask, max(max(count.x, count.y), max(count.z, count.w)));
    if (lane == 31) {
        sums[2][warp] = up_to;
        sums[3][warp] = most;
    }
    __syncthreads();
    largest = __reduce_max_sync(kFullMask, sums[3][lane % (kThreads / 32)]);
    return up_to - own + __reduce_add_sync(kFullMask, lane < warp ? sums[2][lane] : 0);
}

// Key i of a bucket. A run whose keys of the bucket are in a cell has kInCell in `from`, another one the place of the
// first of them. The first word of a cell says where its keys begin in the run, and how many there are; the first
// halves of all cells of a bucket lie before the second ones, which are empty as a rule.
constexpr unsigned int kInCell = 1u << 31;
__device__ __forceinline__ unsigned int fetch(const unsigned int* place, const unsigned int* from,
                                              unsigned int i, int half_bits) {
    unsigned int segment = below<kRuns>(place, i + 1) - 1, first = from[segment];
    unsigned int slot = i - place[segment];
    if ((first & kInCell) == 0)
        return __ldcg(&device_runs[first + slot]);
    ++slot;
    unsigned int half = slot >> half_bits;
    return __ldcg(&device_cells[blockIdx.x * kRoom + half * (kRoom / 2) + (segment << half_bits) + slot -
                                (half << half_bits)]);
}

__global__ void __launch_bounds__(kThreads)
    sort_in_one_bf16_kernel_optimized(Element* data, int N, int run_length, int sample_count, bool aligned) {
    __shared__ unsigned int tile[2][kItems][kThreads];
    __shared__ __align__(16) unsigned int samples[kSamples], run[kRun];
    __shared__ unsigned int splitters[kRuns];
    __shared__ __align__(16) unsigned int place[kRuns], from[kRuns]; // of a segment: here, and in its run
    __shared__ unsigned int total, before, extras;
    __shared__ __align__(16) unsigned int bins[kBins + 4], counts[kRuns], padded[kRoom + 2 * kReach];
    __shared__ __align__(4) unsigned char bucket_of[kBins + 4];
    __shared__ unsigned int sums[4][kThreads / 32];
    int t = threadIdx.x, blocks = gridDim.x, block = blockIdx.x, lane = t % 32, warp = t / 32;
    int length = min(run_length, N - block * run_length), mine = t * kItems - max(sample_count, run_length);
    bool sorts = mine < 0 ? t * kItems < sample_count : mine < run_length;
    unsigned int key[kItems];

    // Without a sort: each block counts the same samples by bins of their values, and so has buckets of which each
    // is some bins. A key goes to the cell of its bucket and this run, in whatever order.
    bool binned = run_length == kRun, tried = binned, by_key = false, few = false;
    int half_bits = __clz(blocks - 1) - 22; // so that the cells of a bucket take kRoom words at most
    unsigned int cell = 2u << half_bits;
    unsigned int* placed = &padded[kReach];
    if (binned) {
        // A warp has samples of the whole array, so the extremes of one warp are near those of another, and one with
        // an outlier is not asked.
        int spread = lane * (kThreads / 32) + warp;
        unsigned int jitter = spread * 2654435761u >> 26;
        unsigned int first = (spread * 64u + jitter) * (N / kItems) / (kThreads * 64u) * kItems;
        Chunk chunk;
        Element own_value = data[block * run_length + min(t, length - 1)];
        if (aligned)
            chunk = *(const Chunk*)(data + first);
        else
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                chunk.at[k] = data[first + k];
        *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
        *(uint4*)&placed[t * 4] = make_uint4(kPadding, kPadding, kPadding, kPadding);
        if (t < kRuns)
            counts[t] = 0;
        if (t == 0)
            extras = 0;
        float number[kItems];
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            number[k] = to_number(chunk.at[k]);
        float low = fminf(fminf(number[0], number[1]), fminf(number[2], number[3]));
        float high = fmaxf(fmaxf(number[0], number[1]), fmaxf(number[2], number[3]));
        unsigned int least = __reduce_min_sync(kFullMask, key_of(low));
        unsigned int most = __reduce_max_sync(kFullMask, key_of(high));
        if (lane == 0) {
            sums[0][warp] = least;
            sums[1][warp] = most;
        }
        __syncthreads();
        least = sums[0][lane % (kThreads / 32)];
        most = sums[1][lane % (kThreads / 32)];
        low = number_of(__reduce_max_sync(kFullMask, least));
        float span = number_of(__reduce_min_sync(kFullMask, most)) - low;
        unsigned int own = to_key(own_value), own_bin = 0, to = 0, largest = 0;
        bool many = false; // keys in its bin, equal to the smallest, where -0 is +0
        float smallest = 0;
        uint4 count = {};
        by_key = !(span > kLeastSpan && span < kMostSpan);
        if (!by_key) {
            float ratio = __fdividef(2.0f / 3, span), shift = (0.25f * span - low) * ratio;
            own_bin = bin_of(to_number(own_value), ratio, shift);
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                atomicAdd(&bins[bin_of(number[k], ratio, shift)], 1u);
            __syncthreads();
            count = *(const uint4*)&bins[t * 4];
            to = sum_before(count, sums, largest);
            by_key = largest * N > kSampled * kCrowd;
        }
        if (by_key) { // a few values, or others that are close to each other
            *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
            least = __reduce_min_sync(kFullMask, least);
            most = __reduce_max_sync(kFullMask, most);
            unsigned int step = step_for(most - least + 1), bin[kItems];
            own_bin = bin_by(min(max(own, least), most) - least, step);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                key[k] = to_key(chunk.at[k]);
                bin[k] = bin_by(min(max(key[k], least), most) - least, step);
                atomicAdd(&bins[bin[k]], 1u);
            }
            __syncthreads();
            count = *(const uint4*)&bins[t * 4];
            to = sum_before(count, sums, largest);
            few = largest * N > kSampled * kCrowd;
            if (few) { // if a bin with too many has equal samples, all of its buckets share such keys
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    if (bins[bin[k]] * N > kSampled * kCrowd)
                        atomicMin(&placed[bin[k]], key[k]);
                __syncthreads();
                bool mixed = false;
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    mixed = mixed ||
                            (bins[bin[k]] * N > kSampled * kCrowd && number_of(placed[bin[k]]) != number[k]);
                many = bins[own_bin] * N > kSampled * kCrowd;
                smallest = number_of(placed[own_bin]);
                binned = !__syncthreads_or(mixed);
                *(uint4*)&placed[t * 4] = make_uint4(kPadding, kPadding, kPadding, kPadding);
            }
        }
        unsigned int top = blocks - 1; // beyond the last sample, too
        unsigned int b0 = min(to * blocks / kSampled, top);
        unsigned int b1 = min((to += count.x) * blocks / kSampled, top);
        unsigned int b2 = min((to += count.y) * blocks / kSampled, top);
        unsigned int b3 = min((to + count.z) * blocks / kSampled, top);
        *(unsigned int*)&bucket_of[t * 4] = b0 | b1 << 8 | b2 << 16 | b3 << 24;
        if (t == 0)
            bucket_of[kBins] = top;
        if (!binned) {
            int step = kSampled / sample_count;
            if (spread % step == 0)
                *(uint4*)&samples[spread / step * kItems] = make_uint4(key[0], key[1], key[2], key[3]);
            run[t] = t < length ? own : kPadding;
        }
        __syncthreads();
        *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
        if (binned) {
            unsigned int bucket = bucket_of[own_bin], slot = 0;
            if (many) {
                unsigned int last = bucket_of[own_bin + 1], share = t * (last - bucket + 1) / kThreads;
                float own_number = to_number(own_value);
                bucket = own_number < smallest ? bucket : own_number > smallest ? last : bucket + share;
            }
            if (t < length) {
                slot = atomicAdd(&counts[bucket], 1u) + 1;
                if (slot < cell)
                    placed[bucket * cell + slot] = own;
            }
            __syncthreads();
            if (t < 32) {
                uint4 size = *(const uint4*)&counts[t * 4];
                unsigned int sum = size.x + size.y + size.z + size.w, start = warp_sum_to(sum) - sum;
                unsigned int sizes[4] = {size.x, size.y, size.z, size.w};
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if (t * 4 + k < blocks)
                        placed[(t * 4 + k) * cell] = start | sizes[k] << 16;
                    splitters[t * 4 + k] = start;
                    start += sizes[k];
                }
            }
            __syncthreads();
            unsigned int to_bucket = t * 4 >> (half_bits + 1), at = t * 4 & (cell - 1),
                         half = at >> half_bits;
            at += (block << half_bits) - (half << half_bits) + half * (kRoom / 2) + to_bucket * kRoom;
            if (to_bucket < blocks)
                *(uint4*)&device_cells[at] = *(const uint4*)&placed[t * 4];
            // Keys of a cell that is too small are together elsewhere.
            if (t < length && counts[bucket] >= cell)
                device_runs[block * run_length + splitters[bucket] + slot - 1] = own;
        }
    } else {
        *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
    }

    if (!binned) {
        // Each block sorts the same samples, and its own run beside them. Samples are chunks, as a chunk takes no more
        // time than an element.
        unsigned int jitter = t * 2654435761u >> 26;
        unsigned int first = (t * 64u + jitter) * (N / kItems) / (sample_count / kItems * 64u) * kItems;
        if (mine >= 0)
            first = block * run_length + mine;
        Chunk chunk = {};
        bool whole = mine < 0 || mine + kItems <= length;
        if (tried) {
            uint4 keys = {};
            if (sorts)
                keys = *(const uint4*)(mine < 0 ? &samples[t * kItems] : &run[mine]);
            key[0] = keys.x, key[1] = keys.y, key[2] = keys.z, key[3] = keys.w;
            __syncthreads();
        } else if (sorts && aligned && whole)
            chunk = *(const Chunk*)(data + first);
        else
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                if (sorts && (mine < 0 || mine + k < length))
                    chunk.at[k] = data[first + k];
        if (!tried)
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                key[k] = mine < 0 || mine + k < length ? to_key(chunk.at[k]) : kPadding;
        // The same in a whole warp, which nvcc cannot know: without it each shuffle has a way for divergent threads.
        int part = __reduce_max_sync(kFullMask, !sorts ? 0 : mine < 0 ? sample_count : run_length);
        sort_keys(key, tile, part, max(sample_count, run_length));
        if (sorts) {
            uint4 keys = make_uint4(key[0], key[1], key[2], key[3]);
            *(uint4*)(mine < 0 ? &samples[t * kItems] : &run[mine]) = keys;
            if (mine >= 0)
                *(uint4*)&device_runs[block * run_length + mine] = keys;
        }
        for (int i = run_length + t; i < kRun; i += kThreads)
            run[i] = kPadding;
        __syncthreads();

        // Where the buckets begin in the run. Buckets that begin with the same key share those that are equal.
        if (t < kRuns)
            splitters[t] = t < blocks ? samples[t * sample_count / blocks] : kPadding;
        __syncthreads();
        if (t < blocks) {
            unsigned int splitter = splitters[t];
            unsigned int start = below<kRun>(run, splitter);
            if (t > 0 && start < (unsigned int)length && run[start] == splitter) {
                unsigned int end = below<kRun>(run, splitter + 1);
                unsigned int first = max(below<kRuns>(splitters, splitter), 1u);
                unsigned int sharing = below<kRuns>(splitters, splitter + 1) - first;
                start += (end - start) * (t - first) / sharing;
            }
            device_starts[t * kRuns + block] = t > 0 ? start : 0;
        }
    }
    cooperative_groups::this_grid().sync();

    // Four words of a cell are a thread's, and one of those few that had no room there.
    bool from_cells = binned, more = false;
    unsigned int count = 0, skip = 0, extra = kPadding;
    if (t < kReach)
        padded[t] = 0;
    if (binned) {
        unsigned int in_half = t * 4 & (kRoom / 2 - 1), header = 0;
        uint4 words = __ldcg((const uint4*)&device_cells[block * kRoom + t * 4]);
        bool any = in_half >> half_bits < blocks;
        bool begins = any && t < kThreads / 2 && (in_half & ((1 << half_bits) - 1)) == 0;
        if (begins) {
            header = words.x;
            splitters[in_half >> half_bits] = header;
        }
        key[0] = any && !begins ? words.x : kPadding;
        key[1] = any ? words.y : kPadding;
        key[2] = any ? words.z : kPadding;
        key[3] = any ? words.w : kPadding;
        unsigned int least = min(min(key[0], key[1]), min(key[2], key[3])), most = 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            most = max(most, key[k] != kPadding ? key[k] : 0);
        least = __reduce_min_sync(kFullMask, least);
        most = __reduce_max_sync(kFullMask, most);
        unsigned int sum = __reduce_add_sync(kFullMask, header); // of both parts
        if (lane == 0) {
            sums[0][warp] = least;
            sums[1][warp] = most;
            sums[2][warp] = sum;
        }
        more = __syncthreads_or(header >> 16 >= cell);
        sum = lane < kThreads / 32 ? sums[2][lane] : 0;
        count = __reduce_add_sync(kFullMask, sum >> 16);
        skip = __reduce_add_sync(kFullMask, sum & 0xffffu);
        if (more) {
            unsigned int excess = header >> 16 >= cell ? (header >> 16) - cell + 1 : 0;
            const unsigned int* keys =
                &device_runs[(in_half >> half_bits) * run_length + (header & 0xffffu) + cell - 1];
            from_cells = !__syncthreads_or(excess > kExcess);
            unsigned int to = from_cells && excess > 0 ? atomicAdd(&extras, excess) : 0;
            for (unsigned int i = 0; from_cells && i < excess; i += 4) {
                unsigned int next[4];
#pragma unroll
                for (unsigned int k = 0; k < 4; ++k)
                    next[k] = i + k < excess ? __ldcg(&keys[i + k]) : kPadding;
#pragma unroll
                for (unsigned int k = 0; k < 4; ++k)
                    if (i + k < excess && to + i + k < kThreads)
                        tile[0][0][to + i + k] = next[k];
            }
            __syncthreads();
            from_cells = from_cells && extras <= kThreads && count <= kRoom;
            extra = from_cells && t < extras ? tile[0][0][t] : kPadding;
            least = min(least, __reduce_min_sync(kFullMask, extra));
            most = max(most, __reduce_max_sync(kFullMask, extra != kPadding ? extra : 0));
            if (lane == 0) {
                sums[0][warp] = least;
                sums[1][warp] = most;
            }
            __syncthreads();
        }
    }
    if (!from_cells) {
        extra = kPadding;
        more = false;
        // The bucket has a segment of each run.
        if (t < 32) {
            constexpr int kEach = kRuns / 32;
            unsigned int start[kEach], size[kEach], sum = 0, skipped = 0;
#pragma unroll
            for (int k = 0; k < kEach; ++k) {
                int i = t * kEach + k;
                unsigned int end = 0;
                start[k] = 0;
                if (i < blocks && binned) {
                    unsigned int header = splitters[i];
                    start[k] = header & 0xffffu;
                    end = start[k] + (header >> 16);
                } else if (i < blocks) {
                    start[k] = __ldcg(&device_starts[block * kRuns + i]);
                    end = min(run_length, N - i * run_length);
                    if (block + 1 < blocks)
                        end = __ldcg(&device_starts[(block + 1) * kRuns + i]);
                }
                size[k] = end - start[k];
                sum += size[k];
                skipped += start[k];
            }
            unsigned int up_to = warp_sum_to(sum);
            skipped = __reduce_add_sync(kFullMask, skipped);
            unsigned int next = up_to - sum;
#pragma unroll
            for (int k = 0; k < kEach; ++k) {
                int i = t * kEach + k;
                place[i] = next;
                from[i] = binned && size[k] < cell ? kInCell : i * run_length + start[k];
                next += size[k];
            }
            if (t == 31) {
                total = up_to;
                before = skipped;
            }
        }
        __syncthreads();
        count = total;
        skip = before;
        if (count > kRoom) { // hardly ever: pieces are sorted, and each key looks for its place in the others
            unsigned int* pieces = device_pieces + skip;
            for (unsigned int piece = 0; piece < count; piece += kRoom) {
#pragma unroll
                for (int k = 0; k < kItems; ++k) {
                    unsigned int i = piece + k * kThreads + t;
                    key[k] = i < count ? fetch(place, from, i, half_bits) : kPadding;
                }
                sort_keys(key, tile, kRoom, kRoom);
                __syncthreads();
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    if (piece + t * kItems + k < count)
                        pieces[piece + t * kItems + k] = key[k];
            }
            __syncthreads();
            for (unsigned int i = t; i < count; i += kThreads) {
                unsigned int own = i / kRoom, own_key = __ldcg(&pieces[i]), rank = i % kRoom;
                for (unsigned int other = 0; other * kRoom < count; ++other) {
                    unsigned int low = other * kRoom, high = min(low + kRoom, count), first = low;
                    while (low < high && other != own) {
                        unsigned int middle = (low + high) / 2;
                        bool earlier = __ldcg(&pieces[middle]) < own_key + (other < own);
                        low = earlier ? middle + 1 : low;
                        high = earlier ? high : middle;
                    }
                    rank += other != own ? low - first : 0;
                }
                data[skip + rank] = to_value(own_key);
            }
            return;
        }
        unsigned int least = ~0u, most = 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            unsigned int i = k * kThreads + t;
            key[k] = kPadding;
            if ((k & ~1) * kThreads < (int)count) { // two together, so that they wait for each other's loads
                unsigned int next = fetch(place, from, min(i, count - 1), half_bits);
                key[k] = i < count ? next : kPadding;
                most = max(most, next);
                least = min(least, next);
            }
        }
        least = __reduce_min_sync(kFullMask, least);
        most = __reduce_max_sync(kFullMask, most);
        if (lane == 0) {
            sums[0][warp] = least;
            sums[1][warp] = most;
        }
        __syncthreads();
    }
    unsigned int least = __reduce_min_sync(kFullMask, sums[0][lane % (kThreads / 32)]);
    unsigned int most = __reduce_max_sync(kFullMask, sums[1][lane % (kThreads / 32)]);
    data += skip;

    // Bins of this bucket: of single keys, where there are few from the least to the largest, with several bins for
    // each so that equal ones do not wait for each other; else even parts of the values, or of the keys.
    constexpr int kAll = kItems + 1;
    unsigned int all[kAll] = {key[0], key[1], key[2], key[3], extra}, bin[kAll], rank[kAll], largest;
    bool single = most - least < kBins, two = false;
    if (!single && few) {
        bool other = false;
#pragma unroll
        for (int k = 0; k < kAll; ++k)
            other = other || (number_of(all[k]) != number_of(least) && number_of(all[k]) != number_of(most) &&
                              all[k] != kPadding);
        two = !__syncthreads_or(other);
    }
    if (single || two) {
        int shift = two ? 10 : __clz(most - least) - (31 - 10); // of kBins
        unsigned int mask = (1u << shift) - 1;
#pragma unroll
        for (int k = 0; k < kAll; ++k) {
            unsigned int which = two ? number_of(all[k]) != number_of(least) : all[k] - least;
            bin[k] = which << shift | ((k * kThreads + t) & mask);
        }
    } else {
        float low = number_of(least), span = number_of(most) - low, ratio = __fdividef(kBins - 1, span);
        if (!by_key && span > kLeastSpan && span < kMostSpan) {
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                if (k < kItems || more)
                    bin[k] = __float_as_uint(fmaf(number_of(all[k]) - low, ratio, 8388608.0f)) & (kBins - 1);
        } else {
            unsigned int step = step_for(most - least + 1);
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                if (k < kItems || more)
                    bin[k] = bin_by(all[k] - least, step);
        }
    }
#pragma unroll
    for (int k = 0; k < kAll; ++k)
        rank[k] = all[k] != kPadding ? atomicAdd(&bins[bin[k]], 1u) : 0;
    __syncthreads();
    uint4 in_bin = *(const uint4*)&bins[t * 4];
    unsigned int start = sum_before(in_bin, sums, largest);
    *(uint4*)&bins[t * 4] = make_uint4(start, start + in_bin.x, start + in_bin.x + in_bin.y,
                                       start + in_bin.x + in_bin.y + in_bin.z);
    if (t < kReach)
        placed[count + t] = ~0u;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kAll; ++k)
        if (all[k] != kPadding)
            placed[bins[bin[k]] + rank[k]] = all[k];
    __syncthreads();
    // Those of other bins are in order: only those of the same one can be at the wrong side.
    unsigned int reach = single || two ? 0 : max(largest, 1u) - 1;
    if (reach < kReach) {
#pragma unroll 1
        for (int i = t; i < (int)count; i += kThreads) {
            unsigned int own = placed[i];
            int to = i;
#pragma unroll 1
            for (int distance = 1; distance <= (int)reach; distance += 4)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    to += placed[i + distance + j] < own;
                    to -= placed[i - distance - j] > own;
                }
            data[to] = to_value(own);
        }
        return;
    }
    int part = kRun / 2;
    while (part < (int)count)
        part *= 2;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        int i = k * (part / kItems) + t;
        key[k] = t < part / kItems && i < (int)count ? placed[i] : kPadding;
    }
    sort_keys(key, tile, __reduce_max_sync(kFullMask, t < part / kItems ? part : 0), part);
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        if (t * kItems + k < (int)count)
            data[t * kItems + k] = to_value(key[k]);
}

constexpr int kValues = 1 << 16;
constexpr int kGroup = 256; // values next to each other
constexpr int kGroups = kValues / kGroup;
constexpr int kCountThreads = 1024;
constexpr int kCountBlocks = 132; // at most
constexpr int kSpreadThreads = kGroups;
constexpr int kSpreadVectors = 4; // of eight elements, of a thread, at most

// How often each value occurs, by its bits: first those with lowest bits 0, then those with 1, and so on. Behind them
// how often each group of values occurs, in the order of the values.
__device__ __align__(16) unsigned int device_counts[kValues + kGroups];

// Counts a value if it is one of this block's.
template <int kShift>
__device__ __forceinline__ void count_one(unsigned int bins, unsigned int raw, unsigned int part) {
    unsigned int lowest = raw & ((1u << kShift) - 1), bin = bins + (raw >> kShift) * 4;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %0, %1;\n\t@p red.shared.add.u32 [%2], 1;\n\t}"
                 :
                 : "r"(lowest), "r"(part), "r"(bin)
                 : "memory");
}

// How often each value occurs. Blocks share the values by their lowest bits, as the shared memory of one has no room
// for counters of all, and the elements by where they are.
template <int kShift>
__global__ void __launch_bounds__(kCountThreads)
    count_values_bf16_kernel_optimized(const Element* data, int N) {
    extern __shared__ __align__(16) unsigned int bins[];
    __shared__ unsigned int groups[kGroups];
    constexpr int kParts = 1 << kShift, kHeld = kValues / kParts, kPairs = kHeld / 2;
    static_assert(kPairs / kGroups >= 32, "a warp adds up pairs of one group");
    unsigned int part = blockIdx.x % kParts;
    int t = threadIdx.x, block = blockIdx.x / kParts, blocks = gridDim.x / kParts;
    for (int i = t; i < kHeld / 4; i += kCountThreads)
        ((uint4*)bins)[i] = make_uint4(0, 0, 0, 0);
    if (t < kGroups)
        groups[t] = 0;
    __syncthreads();
    unsigned int at = (unsigned int)__cvta_generic_to_shared(bins);
    int head = min(N, (int)((16 - (size_t)data % 16) % 16 / 2));
    const uint4* vectors = (const uint4*)(data + head);
    int count = (N - head) / 8;
    if (block == 0) {
        if (t < head)
            count_one<kShift>(at, data[t], part);
        if (t < (N - head) % 8)
            count_one<kShift>(at, data[head + count * 8 + t], part);
    }
    constexpr int kEach = 4;
    for (long long first = (long long)block * kCountThreads * kEach + t; first < count;
         first += (long long)blocks * kCountThreads * kEach) {
        uint4 v[kEach];
#pragma unroll
        for (int k = 0; k < kEach; ++k)
            if (first + k * kCountThreads < count)
                v[k] = vectors[first + k * kCountThreads];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
            if (first + k * kCountThreads >= count)
                continue;
            unsigned int words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                count_one<kShift>(at, words[j] & 0xffffu, part);
                count_one<kShift>(at, words[j] >> 16, part);
            }
        }
    }
    __syncthreads();
    // Two counters by one addition: none of them overflows.
    for (int i = t; i < kPairs; i += kCountThreads) {
        uint2 pair = ((const uint2*)bins)[i];
        unsigned int sum = __reduce_add_sync(kFullMask, pair.x + pair.y);
        if (sum == 0)
            continue;
        if ((pair.x | pair.y) != 0)
            atomicAdd((unsigned long long*)&device_counts[part * kHeld + i * 2],
                      (unsigned long long)pair.y << 32 | pair.x);
        if (t % 32 == 0)
            atomicAdd(&groups[i / (kPairs / kGroups)], sum);
    }
    __syncthreads();
    if (t < kGroups && groups[t] != 0)
        atomicAdd(&device_counts[kValues + to_key((Element)(t * kGroup)) / kGroup], groups[t]);
}

// How often each of eight values occurs, that begin with a multiple of eight.
template <int kShift> __device__ __forceinline__ void counts_of(unsigned int key, unsigned int (&count)[8]) {
    constexpr int kParts = 1 << kShift, kHeld = kValues / kParts, kEach = 8 / kParts;
    bool turned = (key & 0x8000u) == 0; // negative ones have their bits in descending order
    unsigned int raw = turned ? (key ^ 0xffffu) - 7 : key ^ 0x8000u, found[8];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        const unsigned int* from = &device_counts[part * kHeld + (raw >> kShift)];
        if constexpr (kEach == 4) {
            uint4 four = *(const uint4*)from;
            found[part] = four.x, found[kParts + part] = four.y;
            found[2 * kParts + part] = four.z, found[3 * kParts + part] = four.w;
        } else {
#pragma unroll
            for (int k = 0; k < kEach; ++k)
                found[k * kParts + part] = from[k];
        }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k)
        count[k] = turned ? found[7 - k] : found[k];
}

// Writes the values. A block has a share of the array: it finds the groups that are there, puts each value where it
// begins, and all else is the largest value before it.
template <int kShift>
__global__ void __launch_bounds__(kSpreadThreads)
    spread_values_bf16_kernel_optimized(Element* data, int N, int vectors, bool aligned) {
    constexpr int kSpreadWarps = kSpreadThreads / 32;
    __shared__ __align__(16) Element begins[kSpreadThreads * 8 * kSpreadVectors]; // as keys
    __shared__ unsigned int starts[kGroups + 1], sums[kSpreadWarps], largest[kSpreadVectors * kSpreadWarps];
    __shared__ int bounds[2];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned int share = kSpreadThreads * vectors * 8;
    unsigned int begin = blockIdx.x * share, end = min((unsigned int)N, begin + share);
    unsigned int count = device_counts[kValues + t], up_to = warp_sum_to(count);
    for (int k = 0; k < vectors; ++k)
        ((uint4*)begins)[k * kSpreadThreads + t] = make_uint4(0, 0, 0, 0);
    if (lane == 31)
        sums[warp] = up_to;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kSpreadWarps; ++w)
        up_to += w < warp ? sums[w] : 0;
    starts[t + 1] = up_to;
    if (t == 0)
        starts[0] = 0;
    if (up_to - count <= begin && begin < up_to)
        bounds[0] = t;
    if (up_to - count < end && end <= up_to)
        bounds[1] = t;
    __syncthreads();
    int last = bounds[1];
    for (int group = bounds[0] + warp; group <= last; group += kSpreadWarps) {
        unsigned int next = starts[group];
        if (starts[group + 1] == next)
            continue;
        unsigned int key = group * kGroup + lane * 8, each[8], own = 0;
        counts_of<kShift>(key, each);
#pragma unroll
        for (int k = 0; k < 8; ++k)
            own += each[k];
        next += warp_sum_to(own) - own;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            unsigned int place = max(next, begin);
            next += each[k];
            if (place < min(next, end))
                begins[place - begin] = (Element)(key + k);
        }
    }
    __syncthreads();
    for (int k = 0; k < vectors; ++k) {
        uint4 words = ((const uint4*)begins)[k * kSpreadThreads + t];
        unsigned int most = larger_of(larger_of(words.x, words.y), larger_of(words.z, words.w));
        most = __reduce_max_sync(kFullMask, max(most & 0xffffu, most >> 16));
        if (lane == 0)
            largest[k * kSpreadWarps + warp] = most;
    }
    __syncthreads();
    for (int k = 0; k < vectors; ++k) {
        uint4 four = ((const uint4*)begins)[k * kSpreadThreads + t];
        unsigned int words[4] = {four.x, four.y, four.z, four.w};
        unsigned int earlier = lane < k * kSpreadWarps + warp ? largest[lane] : 0;
        earlier = __reduce_max_sync(kFullMask, earlier);
        if (largest[k * kSpreadWarps + warp] == 0) { // no value begins in what the warp writes
#pragma unroll
            for (int j = 0; j < 4; ++j)
                words[j] = (unsigned int)to_value(earlier) * 0x10001u;
        } else {
            write_up(words, earlier);
        }
        unsigned int place = begin + (k * kSpreadThreads + t) * 8;
        if (aligned && place + 8 <= end)
            *(uint4*)(data + place) = make_uint4(words[0], words[1], words[2], words[3]);
        else
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (place + j < end)
                    data[place + j] = (Element)(words[j / 2] >> (j % 2 * 16));
    }
}

template <int kShift> bool count_and_spread(Element* data, int N) {
    int bytes = kValues / (1 << kShift) * 4;
    if (cudaFuncSetAttribute(count_values_bf16_kernel_optimized<kShift>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    int most = kCountBlocks >> kShift, needed = (N - 1) / (kCountThreads * 8) + 1;
    int blocks = (needed < most ? needed : most) << kShift;
    count_values_bf16_kernel_optimized<kShift><<<blocks, kCountThreads, bytes>>>(data, N);
    int vectors = N < 1 << 21 ? 1 : kSpreadVectors, share = kSpreadThreads * vectors * 8;
    spread_values_bf16_kernel_optimized<kShift>
        <<<(unsigned int)((N - 1) / share + 1), kSpreadThreads>>>(data, N, vectors, (size_t)data % 16 == 0);
    return true;
}
void sort_by_counting(Element* data, int N) {
    void* counts = nullptr;
    cudaGetSymbolAddress(&counts, device_counts);
    cudaMemsetAsync(counts, 0, sizeof(device_counts), 0);
    if (!count_and_spread<1>(data, N))
        count_and_spread<2>(data, N); // half of the shared memory
}

// Whether a kernel could be started as a cluster: a GPU before sm_90 has none.
template <class Kernel, class... Arguments>
bool start_cluster(Kernel* kernel, int blocks, int threads, Arguments... arguments) {
    if (blocks > 8)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned int)blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

template <int kChunks> bool count_in_cluster(Element* data, int N) {
    return N <= kFewThreads * 8 * kChunks &&
           start_cluster(count_in_cluster_bf16_kernel_optimized<kChunks>, kCluster, kFewThreads, data, N,
                         (size_t)data % 16 == 0);
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* values, int N) {
    Element* data = (Element*)values;
    if (N <= kLeast && start_cluster(compare_all_bf16_kernel_optimized<8, kLeast>, 8, kLeast, data, N))
        return;
    if (N <= kLess &&
        start_cluster(compare_all_bf16_kernel_optimized<kCluster, kLess>, kCluster, kLess, data, N))
        return;
    if (count_in_cluster<1>(data, N) || count_in_cluster<4>(data, N))
        return;
    if (N <= kRuns * kRun) {
        bool aligned = (size_t)data % sizeof(Chunk) == 0;
        int run_length = N <= kCluster * kRun / 2 ? kRun / 2 : kRun, blocks = (N - 1) / run_length + 1;
        int sample_count = kCluster * kOversampling;
        while (sample_count < kSamples && sample_count < blocks * kOversampling)
            sample_count *= 2;
        void* arguments[] = {&data, &N, &run_length, &sample_count, &aligned};
        if (cudaLaunchCooperativeKernel((const void*)sort_in_one_bf16_kernel_optimized, dim3(blocks),
                                        dim3(kThreads), arguments, 0, 0) == cudaSuccess)
            return;
        cudaGetLastError(); // a small GPU does not hold all blocks at a time
    }
    sort_by_counting(data, N);
}
