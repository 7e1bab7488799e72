// idea: One launch: all blocks count the same samples, so each knows where its keys belong
// why: Step 2 waits for three launches, and each search in a merge is a chain of loads from L2. Here a block has 512
//      elements, by eights from the whole array where N is a multiple of 512, and, beside them, the same 2048 samples
//      of the array as all others. It counts the samples in even bins of their values and makes buckets of bins, one
//      for each block: so all agree without asking each other. What a block has of a bucket goes to a cell of 64
//      bytes; keys without room lie elsewhere. After one barrier of the grid a block reads the cells of its bucket in
//      one trip, counts the keys in bins, and compares the few that share one. Samples that crowd in a bin are
//      counted again by bins of keys. Where nearly all in such a bin are equal, blocks share them; else samples and
//      runs are sorted. If a bucket is too large for a block, all blocks merge what they had at first. Up to 8192
//      elements the blocks are a cluster; up to 4096 all 16 read and count all elements, and each places those of its
//      bins: what crowds there is mostly one key, which all blocks write, or bins of keys spread it, or samples are
//      ranked. Up to 1024 each key is compared with all. More than 65536 are sorted by digits of 8 bits, in tiles
//      that look back at what those before them have counted. Blocks load their next tile while they wait and write.
//      Where the order of keys with the same digit is free, one addition ranks a key, elsewhere eight votes; a digit
//      that all keys share is copied or skipped. The second array is the module's up to 2^26 elements. On an H200,
//      over an empty launch, 65536 elements take 6.6 µs, other orders 6.1 to 9.9, where two bitonic sorts a block
//      took 11.3; on the device 4096 take 3.4 and 1024 take 2.4. 2^26 take 1212 µs, equal keys 130, two values 1343
//      (CUB 1460, 1054 and 1138). What binds it now: of 10200 cycles at 65536 elements the barrier takes 2450 and the
//      first elements 1900, counting and placing 2600 before the barrier and 2300 after it, as latency of shared
//      memory, shuffles and barriers of the block.
// flags: -O3
#include <cooperative_groups.h>
#include <cuda_runtime.h>

typedef float Element;

constexpr int kItems = 4; // keys of a thread
constexpr int kThreads = 512;
constexpr int kRoom = kItems * kThreads; // keys that a block can sort
constexpr int kLeast = 256;              // elements up to which eight blocks compare each with all
constexpr int kLess = 1024;              // and a cluster of kCluster
constexpr int kFew = 4096;               // elements up to which a cluster counts all in bins
constexpr int kFewThreads = 512;
constexpr int kFewSamples = 128;
constexpr unsigned int kFewCrowd = 512; // keys of a part, beyond which the block's share is sorted
constexpr int kFewChunks = kFew / kFewThreads / kItems;
constexpr int kFewDiffer = 8;     // threads of a warp with unusual keys of a crowded bin, at most
constexpr int kRun = 512;         // elements that a block takes at first, at most
constexpr int kPiece = 8;         // of these that are neighbours, where N is a multiple of kRun
constexpr int kRuns = 128;        // at most
constexpr int kSamples = 1024;    // at most
constexpr int kOversampling = 16; // samples for each bucket, as far as there are so many
constexpr int kCluster = 16;      // blocks, at most
constexpr int kFewParts = kFewSamples / kCluster; // of a block's share of the samples
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kPadding = 0xfffffffeu; // beyond the key of infinity
constexpr unsigned int kNone = 0xffffffffu;    // no key
constexpr int kBins = 2048;
static_assert(kBins == 4 * kThreads && kFewThreads == kThreads, "each thread sums four bins");
constexpr unsigned int kReach = 32; // keys of a bin that are compared, at most
constexpr float kLeastSpan = 1e-35f, kMostSpan = 3e38f;

struct alignas(kItems * sizeof(Element)) Chunk {
    Element at[kItems];
};

__device__ __align__(16) unsigned int device_runs[kRuns * kRun];
__device__ __align__(16) unsigned int device_starts[kRuns * kRuns]; // of each bucket in each run
__device__ __align__(16) unsigned int device_cells[kRuns * kRoom];  // a few keys of a bucket from each run
__device__ __align__(16) unsigned int device_merged[kRuns * kRun];
// How many blocks know the size of their bucket, and in the upper half how many of these are too large.
__device__ unsigned int device_told;

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int to_key(float value) {
    unsigned int bits = __float_as_uint(value);
    return bits ^ ((bits & 0x80000000u) ? 0xffffffffu : 0x80000000u);
}
__device__ float to_value(unsigned int key) {
    return __uint_as_float(key ^ ((key & 0x80000000u) ? 0x80000000u : 0xffffffffu));
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

// So few that each is compared with all: a block finds the places of its share, two by a team of threads.
template <int kBlocks, int kCompared>
__global__ void __launch_bounds__(kCompared) compare_all_kernel_optimized(Element* data, int N) {
    constexpr int kShare = kCompared / kBlocks, kTeam = kCompared / (kShare / 2), kVectors = kCompared / 4;
    static_assert(kTeam <= 32 && kCompared < 1 << 16, "a team in a warp, two places in a word");
    __shared__ __align__(16) unsigned int keys[kCompared];
    int t = threadIdx.x;
    keys[t] = t < N ? to_key(data[t]) : kNone;
    __syncthreads();
    arrive_at_cluster<kCompared>();
    int own = blockIdx.x * kShare + t / kTeam * 2;
    unsigned int first = keys[own], second = keys[own + 1], below_first[2] = {}, below_second[2] = {};
    const uint4* vectors = (const uint4*)keys;
#pragma unroll
    for (int k = 0; k < kVectors / kTeam; ++k) {
        int v = k * kTeam + t % kTeam;
        uint4 four = vectors[v];
        add_four_below(below_first, four, first + (v < own / 4));
        add_four_below(below_second, four, second + (v < own / 4));
    }
    unsigned int ranks = below_first[0] + below_first[1] + (below_second[0] + below_second[1]) * 0x10000u;
    if (t % kTeam == 0) {
        uint4 four = vectors[own / 4];
        ranks += equal_before(four, first, own % 4) + equal_before(four, second, own % 4 + 1) * 0x10000u;
    }
#pragma unroll
    for (int distance = kTeam / 2; distance > 0; distance /= 2)
        ranks += __shfl_xor_sync(kFullMask, ranks, distance);
    wait_for_cluster();
    if (t % kTeam == 0) {
        if (own < N)
            data[ranks & 0xffffu] = to_value(first);
        if (own + 1 < N)
            data[ranks >> 16] = to_value(second);
    }
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

// The first chunk of a thread. Four neighbouring lanes have neighbouring ones, so that a warp has elements of the whole
// array.
__device__ __forceinline__ int few_chunk() {
    int lane = threadIdx.x % 32;
    return lane / 4 * (kFewThreads / 8) + threadIdx.x / 32 * 4 + lane % 4;
}

// Loads a thread's chunks of the array, which are kFewThreads chunks from each other. Beyond its end it is others, which
// leaves the largest and the least what they are. Gives the first one's number.
__device__ __forceinline__ int load_chunks(const Element* data, int N, bool aligned,
                                           Chunk (&chunk)[kFewChunks]) {
    static_assert((kLess & (kLess - 1)) == 0, "a mask gives places of elements");
    int own = few_chunk();
    if (aligned && N % kItems == 0) {
#pragma unroll
        for (int c = 0; c < kFewChunks; ++c) {
            int first = (c * kFewThreads + own) * kItems;
            chunk[c] = *(const Chunk*)(data + (first < N ? first : first & (kLess - 1)));
        }
    } else {
#pragma unroll
        for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                int i = (c * kFewThreads + own) * kItems + k;
                chunk[c].at[k] = data[i < N ? i : i & (kLess - 1)];
            }
    }
    return own;
}

// Bitonic sort of up to kFew keys. The 32 pairs of a warp are in 64 places of their own where a distance is at most 32.
__device__ void sort_listed(unsigned int (&keys)[kFew], int count) {
    int size = 64, before = kFew;
    while (size < count)
        size *= 2;
    for (int i = count + threadIdx.x; i < size; i += kFewThreads)
        keys[i] = kNone;
#pragma unroll 1
    for (int length = 2; length <= size; length *= 2)
#pragma unroll 1
        for (int distance = length / 2; distance > 0; distance /= 2) {
            if (max(before, distance) > 32)
                __syncthreads();
            else
                __syncwarp();
            before = distance;
            for (int pair = threadIdx.x; pair < size / 2; pair += kFewThreads) {
                int low = 2 * pair - (pair & (distance - 1));
                unsigned int a = keys[low], b = keys[low + distance];
                if ((a > b) == ((low & length) == 0)) {
                    keys[low] = b;
                    keys[low + distance] = a;
                }
            }
        }
    __syncthreads();
}

// What the ways to sort few keys have in shared memory, one after another. Here, as functions that are not part of a
// kernel's own code reach it more quickly than by a pointer.
struct FewMemory {
    alignas(16) unsigned int bins[kBins + 4];
    alignas(16) unsigned int padded[kFew + 2 * kReach];
    alignas(16) unsigned int others[kFew];
    alignas(16) unsigned int samples[kFewSamples];
    alignas(16) unsigned int sizes[kFewParts];
    uint2 splitters[kFewSamples]; // and their chunks
    alignas(16) unsigned int bounds[4];
    unsigned int sums[4][kFewThreads / 32], reaches[kFewThreads / 32], sum;
};
__shared__ FewMemory held;

// Where the keys of this block begin and end among the bins and in the array: at those bins that have the last key
// before an even share. `start` is what lies before the four bins of this thread.
__device__ __forceinline__ void find_share(uint4 count, unsigned int start, int N) {
    unsigned int up_to[5] = {start, start + count.x, start + count.x + count.y,
                             start + count.x + count.y + count.z,
                             start + count.x + count.y + count.z + count.w};
#pragma unroll
    for (unsigned int side = 0; side < 2; ++side) {
        unsigned int border = (blockIdx.x + side) * N / kCluster;
        if (up_to[0] < border && border <= up_to[4]) {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (up_to[k] < border && border <= up_to[k + 1]) {
                    held.bounds[side * 2] = threadIdx.x * 4 + k + 1;
                    held.bounds[side * 2 + 1] = up_to[k + 1];
                }
        }
    }
}

// Writes `count` keys that are in the order of their bins, each of which has up to `reach` others of its own. Of the two
// threads of a key one looks at those behind it, and the other one at those before it with all bits turned over. Places
// in the array may be further on by a number for each key.
template <bool kFurther>
__device__ __forceinline__ void write_in_reach(Element* sorted, const unsigned int* placed, int count,
                                               int reach, const unsigned short* further) {
    int t = threadIdx.x, lane = t % 32, step = t % 2 == 0 ? 4 : -4;
    unsigned int turn = t % 2 == 0 ? 0 : ~0u;
#pragma unroll 1
    for (int i = t; i - lane < 2 * count; i += kFewThreads) {
        int own = min(i / 2, count - 1);
        unsigned int key = placed[own], passed = 0;
        const unsigned int* next = &placed[own + (t % 2 == 0 ? 1 : -4)];
#pragma unroll 1
        for (int distance = 1; distance <= reach; distance += 4, next += step)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                add_if_below(passed, next[j] ^ turn, key ^ turn);
        unsigned int before = __shfl_xor_sync(kFullMask, passed, 1);
        if (t % 2 == 0 && i < 2 * count)
            sorted[own + passed - before + (kFurther ? further[own] : 0)] = to_value(key);
    }
}

// Those of a thread, or their bins.
struct FewKeys {
    unsigned int at[kFewChunks * kItems];
};

// Keys of a thread, from where they are placed later.
__device__ __forceinline__ void fetch_few(unsigned int (&key)[kFewChunks][kItems]) {
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c) {
        uint4 four = *(const uint4*)&held.padded[(c * kFewThreads + threadIdx.x) * kItems];
        key[c][0] = four.x, key[c][1] = four.y, key[c][2] = four.z, key[c][3] = four.w;
    }
}

// Keys that crowd in bins. All blocks sort the same samples by counting how many are below each. So they know without
// asking each other which elements are theirs, where those begin in the array, and in which part of the block's share
// each lies: it is compared with that part alone.
__device__ __noinline__ void share_by_samples(Element* data, int N) {
    constexpr int kTeam = kFewThreads / kFewSamples;
    static_assert(kFewParts <= 16 && kFew <= 4096, "sixteen bits for a part and a place in it");
    static_assert(4 * kFewParts <= 2 * kReach && sizeof(held.bins) >= kFew * sizeof(short), "room");
    unsigned int t = threadIdx.x, lane = t % 32, block = blockIdx.x;
    unsigned int chunks = (N + kItems - 1) / kItems;
    unsigned int key[kFewChunks][kItems];
    unsigned short* listed_of =
        (unsigned short*)held.bins; // the chunk, and then the part and the place in it
    unsigned int* placed = held.padded;
    auto chunk_of = [&](unsigned int sample) {
        return (sample * 64 + (sample * 2654435761u >> 26)) * chunks / (kFewSamples * 64);
    };
    fetch_few(key);
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            if ((int)((c * kFewThreads + t) * kItems) + k >= N)
                key[c][k] = kNone;
    if (t < kFewParts)
        held.sizes[t] = 0;
    if (t == kFewThreads - 1)
        held.sum = 0;
    if (t < kFewSamples)
        held.samples[t] = held.padded[chunk_of(t) * kItems];
    __syncthreads();
#pragma unroll 1
    for (int i = t; i < kFew / 4 + kFewParts; i += kFewThreads)
        ((uint4*)placed)[i] = make_uint4(kNone, kNone, kNone, kNone);

    // All blocks sort the same held.samples: how many are below one is its place.
    {
        int own = t / kTeam;
        unsigned int mine = held.samples[own], smaller[2] = {};
        const uint4* vectors = (const uint4*)held.samples;
#pragma unroll
        for (int k = 0; k < kFewSamples / 4 / kTeam; ++k) {
            int v = k * kTeam + t % kTeam;
            add_four_below(smaller, vectors[v], mine + (v < own / 4));
        }
        unsigned int rank = smaller[0] + smaller[1];
        if (t % kTeam == 0)
            rank += equal_before(vectors[own / 4], mine, own % 4);
#pragma unroll
        for (int distance = kTeam / 2; distance > 0; distance /= 2)
            rank += __shfl_xor_sync(kFullMask, rank, distance);
        if (t % kTeam == 0)
            held.splitters[rank] = make_uint2(mine, chunk_of(own));
    }
    __syncthreads();

    // A list of the block's keys. Those that equal a splitter go by their chunk.
    uint2 low = held.splitters[block * kFewParts],
          high = held.splitters[min(block + 1, kCluster - 1) * kFewParts];
    if (block == 0)
        low = make_uint2(0, 0);
    if (block == kCluster - 1)
        high = make_uint2(kNone, 0);
    unsigned int votes[kFewChunks][kItems], below = 0, here = 0;
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c) {
        unsigned int chunk = c * kFewThreads + t;
        unsigned int from = low.x + (chunk < low.y), width = high.x + (chunk < high.y) - from;
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            add_if_below(below, key[c][k], from);
            votes[c][k] = __ballot_sync(kFullMask, key[c][k] - from < width);
            here += __popc(votes[c][k]);
        }
    }
    below = __reduce_add_sync(kFullMask, below);
    unsigned int next = 0;
    if (lane == 0)
        next = atomicAdd(&held.sum, below << 16 | here);
    next = __shfl_sync(kFullMask, next, 0) & 0xffffu;
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            unsigned int place = next + __popc(votes[c][k] & ((1u << lane) - 1));
            if (votes[c][k] >> lane & 1) {
                held.others[place] = key[c][k];
                listed_of[place] = (unsigned short)(c * kFewThreads + t);
            }
            next += __popc(votes[c][k]);
        }
    __syncthreads();
    int count = held.sum & 0xffffu, before = held.sum >> 16;

    // The part that each belongs to, and its place in it.
#pragma unroll 1
    for (int i = t; i - lane < count; i += kFewThreads) {
        bool is = i < count;
        unsigned int own = is ? held.others[i] : 0, chunk = is ? listed_of[i] : 0, part = 0;
#pragma unroll
        for (int k = 1; k < kFewParts; ++k) {
            uint2 splitter = held.splitters[block * kFewParts + k];
            add_if_below(part, splitter.x + (chunk < splitter.y), own + 1);
        }
        unsigned int peers = __ballot_sync(kFullMask, is);
#pragma unroll
        for (int bit = 1; bit < kFewParts; bit *= 2) {
            unsigned int with = __ballot_sync(kFullMask, part & bit);
            peers &= part & bit ? with : ~with;
        }
        int first = __ffs(peers) - 1;
        unsigned int place = 0;
        if (is && lane == first)
            place = atomicAdd(&held.sizes[part], __popc(peers));
        place = __shfl_sync(kFullMask, place, max(first, 0)) + __popc(peers & ((1u << lane) - 1));
        if (is)
            listed_of[i] = (unsigned short)(part << 12 | place);
    }
    __syncthreads();
    unsigned int size[kFewParts], crowd = 0;
#pragma unroll
    for (int k = 0; k < kFewParts; ++k) {
        size[k] = held.sizes[k];
        crowd = max(crowd, size[k]);
    }
    if (crowd > kFewCrowd) { // held.samples did not tell of most keys
        sort_listed(held.others, count);
        wait_for_cluster();
        for (int i = t; i < count; i += kFewThreads)
            data[before + i] = to_value(held.others[i]);
        return;
    }
#pragma unroll 1
    for (int i = t; i < count; i += kFewThreads) {
        int part = listed_of[i] >> 12, place = listed_of[i] & 4095;
#pragma unroll
        for (int k = 0; k < kFewParts - 1; ++k)
            place += k < part ? (size[k] + 3) / 4 * 4 : 0;
        placed[place] = held.others[i];
    }
    __syncthreads();
    wait_for_cluster();

    // Two threads compare a key with those of its part, four at a time.
    int slots = 0;
#pragma unroll
    for (int k = 0; k < kFewParts; ++k)
        slots += (size[k] + 3) / 4 * 4;
    const uint4* vectors = (const uint4*)placed;
#pragma unroll 1
    for (int i = t; i - lane < 2 * slots; i += kFewThreads) {
        int own = i / 2, first = 0, end = 0, next = 0, smaller = 0;
        unsigned int rank = 0;
#pragma unroll
        for (int k = 0; k < kFewParts; ++k) {
            int behind = next + (size[k] + 3) / 4;
            if (own / 4 >= next && own / 4 < behind) {
                first = next;
                end = behind;
                rank = smaller;
            }
            next = behind;
            smaller += size[k];
        }
        unsigned int key = own < slots ? placed[own] : kNone;
        if (t % 2 != 0)
            rank = 0;
        else
            rank += equal_before(vectors[min(own, slots - 1) / 4], key, own % 4);
        unsigned int below[2] = {};
#pragma unroll 4
        for (int v = first + t % 2; v < end; v += 2)
            add_four_below(below, vectors[v], key + (v < own / 4));
        rank += below[0] + below[1];
        rank += __shfl_xor_sync(kFullMask, rank, 1);
        if (t % 2 == 0 && key != kNone)
            data[before + rank] = to_value(key);
    }
}

// Many keys share a bin. If nearly all of those in such a bin are equal, it is known where these are in the array, and
// all blocks write them; the others are placed as if they were all there are. Else the bins are even parts of the keys,
// not of the values. If that does not help, keys go by their ranks among samples.
__device__ __noinline__ void share_crowded(Element* data, int N, unsigned int start, FewKeys key,
                                           FewKeys bin) {
    // Of a crowded bin: the thread that has the key which most are thought to equal, then where larger ones go; and how
    // many are smaller, and larger, in the upper half.
    unsigned int *chosen = held.others, *differing = &held.others[kBins], *placed = &held.padded[kReach];
    unsigned int* asked = held.padded; // a key of each thread
    unsigned short* further = (unsigned short*)differing;
    static_assert(kReach == 32 && kFew >= 2 * kBins && kFew / (kReach + 1) <= kFewSamples, "room");
    static_assert(kBins * sizeof(int) >= kFew * sizeof(short), "room");
    constexpr int kAll = kFewChunks * kItems;
    int t = threadIdx.x, lane = t % 32, warp = t / 32, own = few_chunk();
    unsigned int largest;
    bool by_key = start == kNone; // not counted yet
    uint4 four = *(const uint4*)&held.bins[t * 4];
#pragma unroll 1
    for (;; by_key = true) {
        if (by_key) {
            unsigned int least = __reduce_min_sync(kFullMask, held.sums[0][lane % (kFewThreads / 32)]);
            unsigned int most = __reduce_max_sync(kFullMask, held.sums[1][lane % (kFewThreads / 32)]);
            unsigned int step = step_for(most - least + 1);
            __syncthreads();
            *(uint4*)&held.bins[t * 4] = make_uint4(0, 0, 0, 0);
            *(uint4*)&chosen[t * 4] = make_uint4(0, 0, 0, 0);
            *(uint4*)&differing[t * 4] = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                if (bin.at[k] != kBins)
                    bin.at[k] = bin_by(key.at[k] - least, step);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                atomicAdd(&held.bins[bin.at[k]], 1u);
            __syncthreads();
            four = *(const uint4*)&held.bins[t * 4];
            start = sum_before(four, held.sums, largest);
        }
        // The key that most in a bin are thought to equal is the one that occurs most often in a warp, of one key of
        // each thread.
        unsigned int mine = t % 2 != 0 ? key.at[kAll - kItems] : key.at[0];
        unsigned int in_bin = t % 2 != 0 ? bin.at[kAll - kItems] : bin.at[0];
        unsigned int peers = __match_any_sync(kFullMask, mine);
        asked[t] = mine;
        if (lane == __ffs(peers) - 1 && in_bin < kBins && held.bins[in_bin] > kReach)
            atomicMax(&chosen[in_bin], __popc(peers) << 16 | t);
        if (t == 0)
            held.sum = 0;
        __syncthreads();
        unsigned int equal = 0, larger = 0, differ = 0; // a bit for each key
        unsigned int usual_of[kAll];
        bool crowds[kAll];
#pragma unroll
        for (int k = 0; k < kAll; ++k)
            crowds[k] = held.bins[bin.at[k]] > kReach && bin.at[k] < kBins;
#pragma unroll
        for (int k = 0; k < kAll; ++k)
            usual_of[k] = crowds[k] ? chosen[bin.at[k]] & 0xffffu : 0;
#pragma unroll
        for (int k = 0; k < kAll; ++k)
            usual_of[k] = asked[usual_of[k]];
#pragma unroll
        for (int k = 0; k < kAll; ++k) {
            equal |= crowds[k] && key.at[k] == usual_of[k] ? 1u << k : 0;
            larger |= crowds[k] && key.at[k] > usual_of[k] ? 1u << k : 0;
            differ |= crowds[k] && key.at[k] != usual_of[k] ? 1u << k : 0;
        }
        bool many = __popc(__ballot_sync(kFullMask, differ != 0)) > kFewDiffer;
        if (!many && differ != 0)
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                if (differ >> k & 1)
                    atomicAdd(&differing[bin.at[k]], larger >> k & 1 ? 0x10000u : 1u);
        if (!__syncthreads_or(many)) {
            unsigned int all[4] = {four.x, four.y, four.z, four.w}, smaller[4], behind[4], reach = 0;
            uint4 others = *(const uint4*)&differing[t * 4];
            unsigned int each[4] = {others.x, others.y, others.z, others.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                smaller[k] = all[k] > kReach ? each[k] & 0xffffu : all[k];
                behind[k] = all[k] > kReach ? each[k] >> 16 : 0;
                reach = max(reach, max(smaller[k], behind[k]));
            }
            uint4 apart = make_uint4(smaller[0] + behind[0], smaller[1] + behind[1], smaller[2] + behind[2],
                                     smaller[3] + behind[3]);
            reach = __reduce_max_sync(kFullMask, reach);
            if (lane == 0)
                held.reaches[warp] = reach;
            unsigned int next = sum_before(apart, held.sums, largest);
            reach = __reduce_max_sync(kFullMask, held.reaches[lane % (kFewThreads / 32)]);
            unsigned int total = __reduce_add_sync(
                kFullMask, lane < kFewThreads / 32 ? held.sums[2][lane % (kFewThreads / 32)] : 0);
            if (reach <= kReach) {
                find_share(apart, next, (int)total);
                // Where the next key goes, and, in the upper half, by how much that is further on in the array.
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    int b = t * 4 + k;
                    held.bins[b] = next | (start - next) << 16;
                    start += smaller[k];
                    next += smaller[k];
                    if (all[k] > kReach) {
                        unsigned int usual = all[k] - smaller[k] - behind[k];
                        held.splitters[atomicAdd(&held.sum, 1u)] =
                            make_uint2(start | usual << 16, asked[chosen[b] & 0xffffu]);
                        start += usual;
                        chosen[b] = next | (start - next) << 16;
                        start += behind[k];
                        next += behind[k];
                    }
                }
                __syncthreads();
                unsigned int first = held.bounds[0], base = held.bounds[1], width = held.bounds[2] - first;
                unsigned int count = held.bounds[3] - base, listed = held.sum;
                if (t < (int)kReach) {
                    held.padded[t] = 0;
                    placed[count + t] = kNone;
                }
#pragma unroll
                for (int k = 0; k < kAll; ++k)
                    if (bin.at[k] - first < width && (equal >> k & 1) == 0) {
                        unsigned int place =
                            atomicAdd(larger >> k & 1 ? &chosen[bin.at[k]] : &held.bins[bin.at[k]], 1u);
                        placed[(place & 0xffffu) - base] = key.at[k];
                        further[(place & 0xffffu) - base] = (unsigned short)(place >> 16);
                    }
                __syncthreads();
                wait_for_cluster();

                // A block's even part of the array has equal keys of some bins.
                int from = blockIdx.x * N / kCluster, to = (blockIdx.x + 1) * N / kCluster;
                for (unsigned int i = warp; i < listed; i += kFewThreads / 32) {
                    uint2 usual = held.splitters[i];
                    int begin = usual.x & 0xffffu, end = begin + (int)(usual.x >> 16);
                    for (int j = max(begin, from) + lane; j < min(end, to); j += 32)
                        data[j] = to_value(usual.y);
                }
                write_in_reach<true>(data + base, placed, count, max(reach, 1u) - 1, further);
                return;
            }
        }
        if (by_key)
            break;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
        *(uint4*)&held.padded[(c * kFewThreads + own) * kItems] = make_uint4(
            key.at[c * kItems], key.at[c * kItems + 1], key.at[c * kItems + 2], key.at[c * kItems + 3]);
    __syncthreads();
    share_by_samples(data, N);
}

// Up to kFew elements, by a cluster. All blocks read all elements and count them in bins of their values. So they know
// without asking each other which keys are theirs, those of some bins, and where those begin in the array.
__global__ void __launch_bounds__(kFewThreads)
    share_few_kernel_optimized(Element* data, int N, bool aligned) {
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    Chunk chunk[kFewChunks];
    int own = load_chunks(data, N, aligned, chunk), left = N - own * kItems;
    unsigned int* placed = &held.padded[kReach];
    *(uint4*)&held.bins[t * 4] = make_uint4(0, 0, 0, 0);
    *(uint4*)&held.others[t * 4] = make_uint4(0, 0, 0, 0); // for bins that crowd
    *(uint4*)&held.others[kBins + t * 4] = make_uint4(0, 0, 0, 0);
    if (t < (int)kReach)
        held.padded[t] = 0;
    if (t == kFewThreads - 1) {
        held.bins[kBins] = 0;
        *(uint4*)held.bounds = make_uint4(0, 0, 0, 0); // the first block's keys begin with the first
    }

    // The extremes of a warp are near those of another, and one with an outlier is not asked.
    unsigned int key[kFewChunks][kItems], bin[kFewChunks][kItems], least = kNone, most = 0;
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            key[c][k] = to_key(chunk[c].at[k]);
            least = min(least, key[c][k]);
            most = max(most, key[c][k]);
        }
    least = __reduce_min_sync(kFullMask, least);
    most = __reduce_max_sync(kFullMask, most);
    if (lane == 0) {
        held.sums[0][warp] = least;
        held.sums[1][warp] = most;
    }
    __syncthreads();
    least = held.sums[0][lane % (kFewThreads / 32)];
    most = held.sums[1][lane % (kFewThreads / 32)];
    float bottom = to_value(__reduce_max_sync(kFullMask, least));
    float span = to_value(__reduce_min_sync(kFullMask, most)) - bottom;
    least = __reduce_min_sync(kFullMask, least);
    most = __reduce_max_sync(kFullMask, most);
    if (least == most)
        return; // as it is
    auto crowds = [&](unsigned int start) {
        FewKeys keys, bins;
#pragma unroll
        for (int k = 0; k < kFewChunks * kItems; ++k) {
            keys.at[k] = key[k / kItems][k % kItems];
            bins.at[k] = start != kNone                                          ? bin[k / kItems][k % kItems]
                         : k / kItems * kFewThreads * kItems + k % kItems < left ? 0
                                                                                 : kBins;
        }
        share_crowded(data, N, start, keys, bins);
    };
    if (!(span > kLeastSpan && span < kMostSpan)) {
        arrive_at_cluster<kFewThreads>();
        crowds(kNone);
        return;
    }
    float from = fmaxf(to_value(least), bottom - 0.25f * span);
    float ratio = __fdividef(1.0f, fminf(to_value(most), bottom + 1.25f * span) - from);
    float shift = -from * ratio;
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            bin[c][k] = bin_of(chunk[c].at[k], ratio, shift);
            if (c * kFewThreads * kItems + k >= left)
                bin[c][k] = kBins;
            atomicAdd(&held.bins[bin[c][k]], 1u);
        }
    __syncthreads();
    arrive_at_cluster<kFewThreads>();
    uint4 count = *(const uint4*)&held.bins[t * 4];
    unsigned int largest, start = sum_before(count, held.sums, largest);
    if (largest > kReach) {
        crowds(start);
        return;
    }
    find_share(count, start, N);
    *(uint4*)&held.bins[t * 4] =
        make_uint4(start, start + count.x, start + count.x + count.y, start + count.x + count.y + count.z);
    __syncthreads();
    unsigned int first = held.bounds[0], base = held.bounds[1], width = held.bounds[2] - first;
    unsigned int keys = held.bounds[3] - base;
    if (t < (int)kReach)
        placed[keys + t] = kNone;
    unsigned int place[kFewChunks][kItems]; // all before the first is used
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            place[c][k] = bin[c][k] - first < width ? atomicAdd(&held.bins[bin[c][k]], 1u) : 0;
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c)
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            if (bin[c][k] - first < width)
                placed[place[c][k] - base] = key[c][k];
    __syncthreads();
    wait_for_cluster();
    write_in_reach<false>(data + base, placed, keys, largest - 1, nullptr);
}

constexpr int kSampled = kItems * kThreads; // samples whose bins are counted
constexpr int kCrowd = 1024;                // keys of a bin of samples, at most
constexpr int kDiffer = 16; // samples that differ from others of their bin, at most, or threads with such
constexpr int kWays = 4;    // runs that are merged together
constexpr unsigned int kExcess = 16; // keys that had no room in a cell, at most

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

__device__ __forceinline__ void wait_for_all(bool clustered) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (clustered)
        cooperative_groups::this_cluster().sync();
    else
#endif
        cooperative_groups::this_grid().sync();
}

// Merges sorted runs, kWays at a time: a key's place is its own in its run and those among the keys of the others. A
// thread has a key of each round, and looks in all other runs together, as each look is a trip to L2.
__device__ void merge_runs(Element* data, int N, unsigned int* from, unsigned int* to, bool clustered) {
    int i = blockIdx.x * kRun + threadIdx.x;
    bool is = threadIdx.x < kRun && i < N;
#pragma unroll 1
    for (int width = kRun;; width *= kWays) {
        wait_for_all(clustered);
        int first = i / (width * kWays) * (width * kWays), side = (i - first) / width;
        unsigned int own = is ? __ldcg(&from[i]) : 0;
        int found[kWays - 1] = {}, place = i - side * width;
#pragma unroll 1
        for (int step = width; is && step > 0; step /= 2)
#pragma unroll
            for (int k = 0; k < kWays - 1; ++k) {
                int run = first + (k + (k >= side)) * width, next = found[k] + step;
                if (next <= min(width, N - run) &&
                    __ldcg(&from[run + next - 1]) <
                        own + (k < side)) // of equal ones, earlier runs' are first
                    found[k] = next;
            }
#pragma unroll
        for (int k = 0; k < kWays - 1; ++k)
            place += found[k];
        bool last = width * kWays >= N;
        if (is && last)
            data[place] = to_value(own);
        else if (is)
            to[place] = own;
        if (last)
            return;
        unsigned int* other = from;
        from = to;
        to = other;
    }
}

// Tells all blocks whether this one's bucket is too large for it.
__device__ __forceinline__ bool tell_whether_too_large(unsigned int count) {
    bool too_large = count > kRoom;
    if (threadIdx.x == 0)
        atomicAdd(&device_told, too_large ? 0x10001u : 1u);
    return too_large;
}

// All blocks sort what they had at first, if that is not done yet, and merge. Not a part of the kernel's own code, which
// took up to 0.2 µs longer around it.
__device__ __noinline__ void begin_again(Element* data, int N, bool binned, unsigned int own,
                                         unsigned int (&run)[kRun], unsigned int (&tile)[2][kItems][kThreads],
                                         bool clustered) {
    int t = threadIdx.x, first = blockIdx.x * kRun;
    unsigned int *runs = device_runs, *merged = device_merged;
    if (binned) { // else the runs are sorted already
        run[t] = t < N - first ? own : kPadding;
        __syncthreads();
        uint4 keys = t < kRun / kItems ? *(const uint4*)&run[t * kItems] : make_uint4(0, 0, 0, 0);
        unsigned int key[kItems] = {keys.x, keys.y, keys.z, keys.w};
        sort_keys(key, tile, t < kRun / kItems ? kRun : 0, kRun);
        if (t < kRun / kItems)
            *(uint4*)&merged[first + t * kItems] = make_uint4(key[0], key[1], key[2], key[3]);
        runs = device_merged;
        merged = device_runs; // which others may still read
    }
    merge_runs(data, N, runs, merged, clustered);
}

__global__ void __launch_bounds__(kThreads)
    sort_in_one_kernel_optimized(Element* data, int N, int sample_count, bool aligned, bool clustered) {
    __shared__ __align__(16) unsigned int tile[2][kItems][kThreads];
    __shared__ __align__(16) unsigned int samples[kSamples], run[kRun];
    __shared__ unsigned int splitters[kRuns];
    __shared__ __align__(16) unsigned int place[kRuns], from[kRuns]; // of a segment: here, and in its run
    __shared__ unsigned int total, before, extras;
    __shared__ __align__(16) unsigned int bins[kBins + 4], counts[kRuns], padded[kRoom + 2 * kReach];
    __shared__ __align__(4) unsigned char bucket_of[kBins + 4];
    __shared__ unsigned int sums[4][kThreads / 32];
    __shared__ float heavy[2];
    int t = threadIdx.x, blocks = gridDim.x, block = blockIdx.x, lane = t % 32, warp = t / 32;
    int length = min(kRun, N - block * kRun);
    unsigned int key[kItems], own = 0;
    if (block == 0 && t == 0)
        device_told = 0; // long before the barrier, which takes 0.2 µs longer right after it

    // Each block counts the same samples by bins of their values, and so has the same buckets, each of some bins. A
    // key goes to the cell of its bucket and this run, in whatever order.
    bool binned = true, by_key = false, few = false;
    int half_bits = __clz(blocks - 1) - 22; // so that the cells of a bucket take kRoom words at most
    unsigned int cell = 2u << half_bits;
    // Of a bin with too many: the thread whose sample is the usual one, and its key.
    unsigned int *placed = &padded[kReach], *chosen = tile[0][0], *usual_of = tile[1][0];
    static_assert(kBins == kItems * kThreads, "room");
    {
        // A warp has samples of the whole array, so the extremes of one warp are near those of another, and one with
        // an outlier is not asked.
        int spread = lane * (kThreads / 32) + warp;
        unsigned int jitter = spread * 2654435761u >> 26;
        unsigned int first = (spread * 64u + jitter) * (N / kItems) / (kThreads * 64u) * kItems;
        Chunk chunk;
        // Where all blocks have as many elements, these are pieces that lie far from each other, of a sector each: so a
        // sorted array is to a block as any other one.
        bool spreads = N % kRun == 0;
        unsigned int own_place = threadIdx.x / kPiece * (spreads ? blocks * kPiece : kPiece) +
                                 block * (spreads ? kPiece : kRun) + threadIdx.x % kPiece;
        Element own_value = data[min(own_place, N - 1u)];
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
        float low = fminf(fminf(chunk.at[0], chunk.at[1]), fminf(chunk.at[2], chunk.at[3]));
        float high = fmaxf(fmaxf(chunk.at[0], chunk.at[1]), fmaxf(chunk.at[2], chunk.at[3]));
        unsigned int least = __reduce_min_sync(kFullMask, to_key(low));
        unsigned int most = __reduce_max_sync(kFullMask, to_key(high));
        if (lane == 0) {
            sums[0][warp] = least;
            sums[1][warp] = most;
        }
        __syncthreads();
        least = sums[0][lane % (kThreads / 32)];
        most = sums[1][lane % (kThreads / 32)];
        low = to_value(__reduce_max_sync(kFullMask, least));
        float span = to_value(__reduce_min_sync(kFullMask, most)) - low;
        unsigned int own_bin = 0, to = 0, largest = 0;
        own = to_key(own_value);
        bool many = false; // keys in its bin, nearly all equal to the usual one, where -0 is +0
        float usual = 0, ratio = 0, shift = 0;
        uint4 count = {};
        by_key = !(span > kLeastSpan && span < kMostSpan);
        if (!by_key) {
            ratio = __fdividef(2.0f / 3, span);
            shift = (0.25f * span - low) * ratio;
            own_bin = bin_of(own_value, ratio, shift);
#pragma unroll
            for (int k = 0; k < kItems; ++k)
                atomicAdd(&bins[bin_of(chunk.at[k], ratio, shift)], 1u);
            __syncthreads();
            count = *(const uint4*)&bins[t * 4];
            to = sum_before(count, sums, largest);
            few = largest * N > kSampled * kCrowd;
        }
        if (by_key || few) { // a few values, or others that are close to each other
            unsigned int bin[kItems];
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                key[k] = to_key(chunk.at[k]);
                bin[k] = bin_of(chunk.at[k], ratio, shift);
            }
            if (t < 2)
                heavy[t] = to_value(kPadding);
            least = __reduce_min_sync(kFullMask, least);
            most = __reduce_max_sync(kFullMask, most);
#pragma unroll 1
            for (;; by_key = true) {
                if (by_key) {
                    __syncthreads();
                    *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
                    unsigned int step = step_for(most - least + 1);
                    own_bin = bin_by(min(max(own, least), most) - least, step);
                    __syncthreads();
#pragma unroll
                    for (int k = 0; k < kItems; ++k) {
                        bin[k] = bin_by(min(max(key[k], least), most) - least, step);
                        atomicAdd(&bins[bin[k]], 1u);
                    }
                    __syncthreads();
                    count = *(const uint4*)&bins[t * 4];
                    to = sum_before(count, sums, largest);
                    few = largest * N > kSampled * kCrowd;
                    many = false;
                    binned = true;
                }
                if (!few)
                    break;

                // If nearly all samples of a bin with too many equal one of them, all of its buckets share such keys.
                // That is the key which occurs most often in a warp, among one sample of each thread.
                *(uint4*)&chosen[t * 4] = make_uint4(0, 0, 0, 0);
                *(uint4*)&usual_of[t * 4] = make_uint4(kPadding, kPadding, kPadding, kPadding);
                __syncthreads();
                unsigned int peers = __match_any_sync(kFullMask, key[0]), vote = __popc(peers) << 16 | t;
                bool votes = lane == __ffs(peers) - 1 && bins[bin[0]] * N > kSampled * kCrowd;
                if (votes)
                    atomicMax(&chosen[bin[0]], vote);
                __syncthreads();
                if (votes && chosen[bin[0]] == vote)
                    usual_of[bin[0]] = key[0];
                __syncthreads();
                bool differs = false;
#pragma unroll
                for (int k = 0; k < kItems; ++k)
                    differs = differs || (bins[bin[k]] * N > kSampled * kCrowd &&
                                          to_value(usual_of[bin[k]]) != chunk.at[k]);
                many = bins[own_bin] * N > kSampled * kCrowd;
                usual = to_value(usual_of[own_bin]);
                binned = __syncthreads_count(differs) <= kDiffer;
                if (binned || by_key)
                    break;
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
        if (few) { // what many keys of this block's bucket equal
#pragma unroll 1
            for (int b = t * 4; b < t * 4 + 4; ++b)
                if (bins[b] * N > kSampled * kCrowd && bucket_of[b] <= block && block <= bucket_of[b + 1])
                    heavy[bucket_of[b] == block] = to_value(usual_of[b]);
        }
        *(uint4*)&bins[t * 4] = make_uint4(0, 0, 0, 0);
        if (binned) {
            unsigned int bucket = bucket_of[own_bin], slot = 0;
            if (many) {
                unsigned int last = bucket_of[own_bin + 1], share = t * (last - bucket + 1) / kThreads;
                bucket = own_value < usual ? bucket : own_value > usual ? last : bucket + share;
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
                device_runs[block * kRun + splitters[bucket] + slot - 1] = own;
        }
    }

    if (!binned) {
        // Bins tell too little: each block sorts the same samples, and its own run beside them.
        int mine = t * kItems - max(sample_count, kRun);
        bool sorts = mine < 0 ? t * kItems < sample_count : mine < kRun;
        uint4 keys = {};
        if (sorts)
            keys = *(const uint4*)(mine < 0 ? &samples[t * kItems] : &run[mine]);
        key[0] = keys.x, key[1] = keys.y, key[2] = keys.z, key[3] = keys.w;
        __syncthreads();
        // The same in a whole warp, which nvcc cannot know: without it each shuffle has a way for divergent threads.
        int part = __reduce_max_sync(kFullMask, !sorts ? 0 : mine < 0 ? sample_count : kRun);
        sort_keys(key, tile, part, max(sample_count, kRun));
        if (sorts) {
            keys = make_uint4(key[0], key[1], key[2], key[3]);
            *(uint4*)(mine < 0 ? &samples[t * kItems] : &run[mine]) = keys;
            if (mine >= 0)
                *(uint4*)&device_runs[block * kRun + mine] = keys;
        }
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
    wait_for_all(clustered);

    // Four words of a cell are a thread's, and one of those few that had no room there.
    bool from_cells = binned, more = false, too_large = false;
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
        too_large = tell_whether_too_large(count);
        if (more && !too_large) {
            unsigned int excess = header >> 16 >= cell ? (header >> 16) - cell + 1 : 0;
            const unsigned int* keys =
                &device_runs[(in_half >> half_bits) * kRun + (header & 0xffffu) + cell - 1];
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
            from_cells = from_cells && extras <= kThreads;
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
    if (!from_cells && !too_large) {
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
                    end = min(kRun, N - i * kRun);
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
                from[i] = binned && size[k] < cell ? kInCell : i * kRun + start[k];
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
        if (!binned)
            too_large = tell_whether_too_large(count);
        unsigned int least = ~0u, most = 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            unsigned int i = k * kThreads + t;
            key[k] = kPadding;
            if (!too_large &&
                (k & ~1) * kThreads < (int)count) { // two together, so that they wait for each other's loads
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
    unsigned int told = 0;
    if (!too_large) {
        unsigned int least = __reduce_min_sync(kFullMask, sums[0][lane % (kThreads / 32)]);
        unsigned int most = __reduce_max_sync(kFullMask, sums[1][lane % (kThreads / 32)]);
        Element* sorted = data + skip;

        // Bins of this bucket: of single keys, where there are few from the least to the largest, with several bins for
        // each so that equal ones do not wait for each other; else even parts of the values, or of the keys.
        constexpr int kAll = kItems + 1;
        unsigned int all[kAll] = {key[0], key[1], key[2], key[3], extra}, bin[kAll], rank[kAll], largest;
        bool single = most - least < kBins, two = false;
        if (!single && few) {
            bool other = false;
#pragma unroll
            for (int k = 0; k < kAll; ++k)
                other = other || (to_value(all[k]) != to_value(least) && to_value(all[k]) != to_value(most) &&
                                  all[k] != kPadding);
            two = !__syncthreads_or(other);
        }
        if (single || two) {
            int shift = two ? 10 : __clz(most - least) - (31 - 10); // of kBins
            unsigned int mask = (1u << shift) - 1;
#pragma unroll
            for (int k = 0; k < kAll; ++k) {
                unsigned int which = two ? to_value(all[k]) != to_value(least) : all[k] - least;
                bin[k] = which << shift | ((k * kThreads + t) & mask);
            }
        } else if (few) {
            // Those keys that many are equal to have several bins, too, between what is smaller and what is larger.
            constexpr unsigned int kSpread = kBins / 8;
            float first = heavy[0], second = heavy[1];
            float low = to_value(least), span = to_value(most) - low;
            bool even = span > kLeastSpan && span < kMostSpan;
            float ratio = __fdividef(kBins * 3 / 4 - 1, span);
            unsigned int step = step_for(most - least + 1);
#pragma unroll
            for (int k = 0; k < kAll; ++k) {
                float value = to_value(all[k]);
                if (even)
                    bin[k] = __float_as_uint(fmaf(value - low, ratio, 8388608.0f)) & (kBins - 1);
                else
                    bin[k] = bin_by(all[k] - least, step) * 3 / 4;
                unsigned int spread = (k * kThreads + t) % kSpread;
                bin[k] += value > first ? kSpread : value == first ? spread : 0;
                bin[k] += value > second ? kSpread : value == second ? spread : 0;
            }
        } else {
            float low = to_value(least), span = to_value(most) - low, ratio = __fdividef(kBins - 1, span);
            if (!by_key && span > kLeastSpan && span < kMostSpan) {
#pragma unroll
                for (int k = 0; k < kAll; ++k)
                    if (k < kItems || more)
                        bin[k] =
                            __float_as_uint(fmaf(to_value(all[k]) - low, ratio, 8388608.0f)) & (kBins - 1);
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
        if (t == 0)
            told = *(volatile unsigned int*)&device_told;
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
                unsigned int next = placed[i];
                int to = i;
#pragma unroll 1
                for (int distance = 1; distance <= (int)reach; distance += 4)
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        to += placed[i + distance + j] < next;
                        to -= placed[i - distance - j] > next;
                    }
                sorted[to] = to_value(next);
            }
        } else {
            // Where there are few values, bins have equal keys: then all are in order.
            bool later = false;
            for (int i = t; i + 1 < (int)count; i += kThreads)
                later = later || placed[i] > placed[i + 1];
            if (!__syncthreads_or(later)) {
                for (int i = t; i < (int)count; i += kThreads)
                    sorted[i] = to_value(placed[i]);
            } else {
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
                        sorted[t * kItems + k] = to_value(key[k]);
            }
        }
    }

    // If the samples did not tell of most keys, a bucket may be too large for its block. All blocks know by now, and
    // sort what they had at first.
    while (t == 0 && (int)(told & 0xffffu) < blocks) {
        __nanosleep(20);
        told = *(volatile unsigned int*)&device_told;
    }
    if (!__syncthreads_or(told >> 16 != 0))
        return;
    begin_again(data, N, binned, own, run, tile, clustered);
}

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPasses = sizeof(Element) * 8 / kDigitBits;
constexpr int kRadixThreads = 512; // at least one for each digit
constexpr int kRadixWarps = kRadixThreads / 32;
constexpr int kRadixItems = 18;
constexpr int kRadixTile = kRadixThreads * kRadixItems;
constexpr int kCountItems = 16;
constexpr int kCountTile = kRadixThreads * kCountItems;
constexpr int kCountBlocks = 528; // at most: four for each of 132 multiprocessors
constexpr int kPlaceBlocks = 264; // two
constexpr int kCrowded =
    6; // keys with the same digit in a row of 32, beyond which additions wait for each other
constexpr int kScratch = ((1 << 26) / kRadixTile + 1) * kRadixTile; // elements for which there is memory
constexpr int kLook = 8;                                            // tiles that one looks back at together
constexpr int kTickets = 64;
constexpr int kTotals = kPasses * kDigits + kTickets;

__device__ Element device_other[kScratch];
__device__ unsigned int device_states[kTotals + kScratch / kRadixTile * kDigits];

__device__ unsigned int digit_of(unsigned int key, int pass) {
    return key >> (pass * kDigitBits) & (kDigits - 1);
}

// How often each digit of each pass occurs, and which bits are not the same in all keys.
__global__ void __launch_bounds__(kRadixThreads)
    count_digits_kernel_optimized(const Element* data, unsigned int* totals, unsigned int* differ, int N) {
    __shared__ unsigned int counts[kPasses * kDigits], different;
    for (int i = threadIdx.x; i < kPasses * kDigits; i += kRadixThreads)
        counts[i] = 0;
    if (threadIdx.x == 0)
        different = 0;
    unsigned int one = to_key(data[0]), bits = 0;
    __syncthreads();
    for (size_t first = (size_t)blockIdx.x * kCountTile; first < (size_t)N;
         first += (size_t)gridDim.x * kCountTile) {
        unsigned int key[kCountItems];
#pragma unroll
        for (int k = 0; k < kCountItems; ++k) {
            size_t i = first + k * kRadixThreads + threadIdx.x;
            key[k] = i < (size_t)N ? to_key(data[i]) : one;
        }
#pragma unroll
        for (int k = 0; k < kCountItems; ++k) {
            bits |= key[k] ^ one;
            if (first + k * kRadixThreads + threadIdx.x < (size_t)N)
#pragma unroll
                for (int pass = 0; pass < kPasses; ++pass)
                    atomicAdd(&counts[pass * kDigits + digit_of(key[k], pass)], 1u);
        }
    }
    bits = __reduce_or_sync(kFullMask, bits);
    if (threadIdx.x % 32 == 0)
        atomicOr(&different, bits);
    __syncthreads();
    for (int i = threadIdx.x; i < kPasses * kDigits; i += kRadixThreads)
        if (counts[i] != 0)
            atomicAdd(&totals[i], counts[i]);
    if (threadIdx.x == 0)
        atomicOr(differ, different);
}

// The lanes that have the same digit. The instructions are counted: eight votes, as many that turn one over, and four
// that put three together; of C++ nvcc makes half as many again.
__device__ __forceinline__ unsigned int lanes_with(unsigned int digit) {
    static_assert(kDigitBits == 8, "one vote for each");
    unsigned int lanes;
    asm("{\n\t.reg .pred p;\n\t.reg .b32 m, v0, v1, v2, v3, v4, v5, v6, v7;\n\t"
        "and.b32 m, %1, 1;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v0, p, 0xffffffff;\n\t"
        "@!p not.b32 v0, v0;\n\t"
        "and.b32 m, %1, 2;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v1, p, 0xffffffff;\n\t"
        "@!p not.b32 v1, v1;\n\t"
        "and.b32 m, %1, 4;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v2, p, 0xffffffff;\n\t"
        "@!p not.b32 v2, v2;\n\t"
        "and.b32 m, %1, 8;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v3, p, 0xffffffff;\n\t"
        "@!p not.b32 v3, v3;\n\t"
        "and.b32 m, %1, 16;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v4, p, 0xffffffff;\n\t"
        "@!p not.b32 v4, v4;\n\t"
        "and.b32 m, %1, 32;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v5, p, 0xffffffff;\n\t"
        "@!p not.b32 v5, v5;\n\t"
        "and.b32 m, %1, 64;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v6, p, 0xffffffff;\n\t"
        "@!p not.b32 v6, v6;\n\t"
        "and.b32 m, %1, 128;\n\tsetp.ne.u32 p, m, 0;\n\tvote.sync.ballot.b32 v7, p, 0xffffffff;\n\t"
        "@!p not.b32 v7, v7;\n\t"
        "lop3.b32 v0, v0, v1, v2, 0x80;\n\tlop3.b32 v3, v3, v4, v5, 0x80;\n\t"
        "lop3.b32 v0, v0, v6, v7, 0x80;\n\tand.b32 %0, v0, v3;\n\t}"
        : "=r"(lanes)
        : "r"(digit));
    return lanes;
}

// What a pass does whose digit is the same in all keys: it copies them, as the others go to and fro between two arrays.
// Of two such passes in turn none is needed, but for the first and last one turning numbers into keys and back.
template <class State, int kPass>
__device__ __forceinline__ void pass_on(Element* data, Element* more, State* states, unsigned int differ,
                                        int N) {
    unsigned int same = 0;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
        same |= digit_of(differ, pass) == 0 ? 1u << pass : 0;
    int pair = __ffs(same & same >> 1) - 1;
    bool paired = pair >= 0 && (kPass == pair || kPass == pair + 1),
         outer = kPass == 0 || kPass == kPasses - 1;
    if (differ == 0 || (paired && (!outer || pair == 1)))
        return;
#pragma unroll 1
    for (size_t tile = blockIdx.x; tile * kRadixTile < (size_t)N; tile += gridDim.x) {
        size_t first = tile * kRadixTile;
        Element* other = first < (size_t)kScratch ? device_other + first : more + (first - kScratch);
        Element *from = kPass % 2 == 0 || paired ? data + first : other, value[kRadixItems];
        Element* to = kPass % 2 != 0 || paired ? data + first : other;
        if (!paired && threadIdx.x < kDigits) // as the next pass expects it
            states[tile * kDigits + threadIdx.x] = (State)(2 - kPass % 2 * 2) << (sizeof(State) * 8 - 2);
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k) {
            int i = k * kRadixThreads + threadIdx.x;
            value[k] = first + i < (size_t)N ? from[i] : 0;
        }
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k) {
            int i = k * kRadixThreads + threadIdx.x;
            if (kPass == 0)
                value[k] = __uint_as_float(to_key(value[k]));
            if (kPass == kPasses - 1)
                value[k] = to_value(__float_as_uint(value[k]));
            if (first + i < (size_t)N)
                to[i] = value[k];
        }
    }
}

// Places keys by one digit, from the array to another one or back; those with the same digit keep their order. The
// first kScratch elements of the other array are the module's, and those beyond them are in `more`. Between the first
// pass and the last, keys stay keys. A state is what a tile tells those behind it of a digit: nothing yet, how often the
// tile has it, or how often all tiles up to here have it. What a pass leaves there means nothing to the next one.
template <class State, int kPass>
__global__ void __launch_bounds__(kRadixThreads, 2)
    place_digits_kernel_optimized(Element* data, Element* more, const unsigned int* totals,
                                  unsigned int* tickets, State* states, int N) {
    constexpr int kFlag = sizeof(State) * 8 - 2;
    constexpr State kNothing = kPass % 2 * 2, kOwn = kNothing + 1, kAll = 2 - kNothing;
    constexpr unsigned int kLower = (1u << kPass * kDigitBits) - 1;
    __shared__ __align__(16) unsigned short counts[kRadixWarps][kDigits];
    __shared__ unsigned int keys[kRadixTile];
    __shared__ unsigned int target[kDigits]; // of a digit's keys, less their place in the tile
    __shared__ unsigned int sums[kDigits / 32];
    __shared__ unsigned int next_ticket, differ;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned int tiles = (unsigned int)(((size_t)N - 1) / kRadixTile + 1);
    if (t == 0) {
        next_ticket =
            atomicAdd(&tickets[kPass], 1u); // in order, so that the tiles before this one have begun
        differ = tickets[kPasses];
    }
    __syncthreads();
    if (digit_of(differ, kPass) == 0) {
        pass_on<State, kPass>(data, more, states, differ, N);
        return;
    }
    unsigned int ticket = next_ticket, key[kRadixItems];
    auto load = [&](unsigned int tile) {
        size_t first = (size_t)tile * kRadixTile;
        // A tile is in one part of the other array, as kScratch is a multiple of it.
        const Element* from = kPass % 2 == 0             ? data + first
                              : first < (size_t)kScratch ? device_other + first
                                                         : more + (first - kScratch);
        const Element* own = from + warp * kRadixItems * 32 + lane;
        if ((size_t)N - first >= kRadixTile) {
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k)
                key[k] = __float_as_uint(own[k * 32]);
        } else {
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k) {
                key[k] = kPass == 0 ? 0x7fffffffu : ~0u; // the last ones of the last digit
                if ((warp * kRadixItems + k) * 32 + lane < (int)((size_t)N - first))
                    key[k] = __float_as_uint(own[k * 32]);
            }
        }
    };
    if (ticket < tiles)
        load(ticket);

    // Thread t has digit t, which begins here in the array.
    unsigned int begin = 0;
    if (t < kDigits) {
        begin = totals[kPass * kDigits + t];
        unsigned int up_to = warp_sum_to(begin);
        if (lane == 31)
            sums[warp] = up_to;
        begin = up_to - begin;
    }
    __syncthreads();
    if (t < kDigits)
        for (int w = 0; w < warp; ++w)
            begin += sums[w];
#pragma unroll 1
    while (ticket < tiles) {
        size_t first = (size_t)ticket * kRadixTile;
        int here = (size_t)N - first < kRadixTile ? (int)((size_t)N - first) : kRadixTile;
        for (int i = t; i < kRadixWarps * kDigits / 8; i += kRadixThreads)
            ((uint4*)counts)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        if (t == 0)
            next_ticket = atomicAdd(&tickets[kPass], 1u);
        if (kPass == 0)
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k)
                key[k] = to_key(__uint_as_float(key[k]));

        // The place of each key among those of its warp that have the same digit. Keys lie in the order of lower
        // digits. So where these are the same in a row of 32 keys, any order of those with the same digit does, and
        // one addition finds it. Elsewhere votes do, and where many have the same digit, as additions would wait for
        // each other.
        unsigned short rank[kRadixItems];
        auto add = [&](int k) {
            unsigned int digit = digit_of(key[k], kPass), shift = digit % 2 * 16;
            rank[k] =
                (unsigned short)(atomicAdd((unsigned int*)counts[warp] + digit / 2, 1u << shift) >> shift);
        };
        auto vote = [&](int k) {
            unsigned int digit = digit_of(key[k], kPass), peers = lanes_with(digit);
            unsigned int smaller = __popc(peers & ((1u << lane) - 1)), count = counts[warp][digit];
            __syncwarp();
            if (smaller == 0)
                counts[warp][digit] = count + __popc(peers);
            __syncwarp();
            rank[k] = count + smaller;
        };
        bool spread = false, all_same = false;
        if (kPass < kPasses - 1 && here == kRadixTile) {
            int peers = __popc(__match_any_sync(kFullMask, digit_of(key[0], kPass)));
            spread = __all_sync(kFullMask, peers <= kCrowded);
            unsigned int last = __shfl_sync(kFullMask, key[kRadixItems - 1], 31);
            all_same = __all_sync(kFullMask, ((last ^ __shfl_sync(kFullMask, key[0], 0)) & kLower) == 0);
        }
        if (spread && (kPass == 0 || all_same)) {
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k)
                add(k);
        } else if (kPass > 0 && spread) {
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k) {
                unsigned int other = __shfl_sync(kFullMask, key[k], 0);
                if (__all_sync(kFullMask, ((other ^ key[k]) & kLower) == 0)) {
                    add(k);
                    __syncwarp();
                } else {
                    vote(k);
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < kRadixItems; ++k)
                vote(k);
        }
        __syncthreads();

        State* state = states + (size_t)ticket * kDigits + t;
        unsigned int count = 0, start = 0;
        if (t < kDigits) {
#pragma unroll
            for (int w = 0; w < kRadixWarps; ++w) {
                unsigned int own = counts[w][t];
                counts[w][t] = count;
                count += own;
            }
            unsigned int told = t == kDigits - 1 ? count - (kRadixTile - here) : count;
            *(volatile State*)state = (ticket == 0 ? kAll : kOwn) << kFlag | told;
            start = warp_sum_to(count);
            if (lane == 31)
                sums[warp] = start;
            start -= count;
        }
        __syncthreads();
        if (t < kDigits) {
            for (int w = 0; w < warp; ++w)
                start += sums[w];
            target[t] = begin - start;
#pragma unroll
            for (int w = 0; w < kRadixWarps; ++w)
                counts[w][t] += start;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k)
            keys[counts[warp][digit_of(key[k], kPass)] + rank[k]] = key[k];

        // The next tile is on its way while this one waits for others and is written.
        unsigned int after = next_ticket;
        if (after < tiles)
            load(after);

        if (t < kDigits && ticket > 0) {
            // Several tiles at a time, as each look takes the time of a trip to L2.
            State before = 0;
            int other = ticket - 1;
            bool done = false;
            while (!done) {
                State seen[kLook];
#pragma unroll
                for (int j = 0; j < kLook; ++j)
                    seen[j] = other < j
                                  ? kNothing << kFlag
                                  : *(const volatile State*)(states + (size_t)(other - j) * kDigits + t);
                bool told_all = true;
#pragma unroll
                for (int j = 0; j < kLook; ++j) {
                    told_all = told_all && !done && seen[j] >> kFlag != kNothing;
                    if (!told_all)
                        continue;
                    before += seen[j] & (((State)1 << kFlag) - 1);
                    done = seen[j] >> kFlag == kAll;
                    --other;
                }
            }
            unsigned int told = t == kDigits - 1 ? count - (kRadixTile - here) : count;
            *(volatile State*)state = kAll << kFlag | (before + told);
            target[t] += before;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k) {
            int i = k * kRadixThreads + t;
            if (here < kRadixTile && i >= here)
                continue;
            unsigned int next = keys[i], place = target[digit_of(next, kPass)] + i;
            Element* to = kPass % 2 != 0                   ? data
                          : place < (unsigned int)kScratch ? device_other
                                                           : more - kScratch;
            to[place] = kPass == kPasses - 1 ? to_value(next) : __uint_as_float(next);
        }
        ticket = after;
        __syncthreads();
    }
}

template <class State> void sort_digits(Element* data, int N) {
    size_t tiles = ((size_t)N - 1) / kRadixTile + 1;
    size_t bytes = sizeof(State) * tiles * kDigits;
    void *memory = nullptr, *more = nullptr;
    cudaGetSymbolAddress(&memory, device_states);
    unsigned int* totals = (unsigned int*)memory;
    unsigned int* tickets = totals + kPasses * kDigits;
    State* states = (State*)(totals + kTotals);
    Element* other = nullptr;
    cudaMemsetAsync(memory, 0, sizeof(unsigned int) * kTotals + (N <= kScratch ? bytes : 0), 0);
    size_t count_tiles = ((size_t)N - 1) / kCountTile + 1;
    int blocks = count_tiles < kCountBlocks ? (int)count_tiles : kCountBlocks;
    int all = tiles < kPlaceBlocks ? (int)tiles : kPlaceBlocks;
    count_digits_kernel_optimized<<<blocks, kRadixThreads>>>(data, totals, tickets + kPasses, N);
    if (N > kScratch) { // while the GPU counts
        if (cudaMalloc(&more, bytes + sizeof(Element) * (size_t)(N - kScratch)) != cudaSuccess)
            return;
        cudaMemsetAsync(more, 0, bytes, 0);
        states = (State*)more;
        other = (Element*)((char*)more + bytes);
    }
    place_digits_kernel_optimized<State, 0><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    place_digits_kernel_optimized<State, 1><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    place_digits_kernel_optimized<State, 2><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    place_digits_kernel_optimized<State, 3><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    if (N > kScratch)
        cudaFree(more);
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

extern "C" void sorting_optimized(Element* data, int N) {
    bool aligned = (size_t)data % sizeof(Chunk) == 0;
    if (N <= kLeast && start_cluster(compare_all_kernel_optimized<8, kLeast>, 8, kLeast, data, N))
        return;
    if (N <= kLess && start_cluster(compare_all_kernel_optimized<kCluster, kLess>, kCluster, kLess, data, N))
        return;
    if (N <= kFew && start_cluster(share_few_kernel_optimized, kCluster, kFewThreads, data, N, aligned))
        return;
    if (N <= kRuns * kRun && N >= kItems) { // a sample is a chunk
        // Few blocks are a cluster, whose barrier is faster than that of a grid.
        bool clustered = N <= kCluster * kRun;
        int blocks = (N - 1) / kRun + 1;
        int sample_count = kCluster * kOversampling;
        while (sample_count < kSamples && sample_count < blocks * kOversampling)
            sample_count *= 2;
        if (clustered && start_cluster(sort_in_one_kernel_optimized, blocks, kThreads, data, N, sample_count,
                                       aligned, true))
            return;
        clustered = false;
        void* arguments[] = {&data, &N, &sample_count, &aligned, &clustered};
        if (cudaLaunchCooperativeKernel((const void*)sort_in_one_kernel_optimized, dim3(blocks),
                                        dim3(kThreads), arguments, 0, 0) == cudaSuccess)
            return;
        cudaGetLastError(); // a small GPU does not hold all blocks at a time
    }
    if (N < 1 << 30)
        sort_digits<unsigned int>(data, N);
    else
        sort_digits<unsigned long long>(data, N);
}
