// idea: One launch: a cluster counts values, and each block writes its slice
// why: Step 2 waits for three launches, and each search in a merge is a chain of loads from L2. Values of 16 bits
//      need not be compared: how often each occurs says where it begins. Up to 65536 elements the 16 blocks of a
//      cluster all read all elements, and each counts, in shared memory, the 4096 values of its share; for those of
//      others it has one counter, as adding is faster than a branch around it, and additions of a warp to one counter
//      are one. Counters are so placed that powers of two and the like do not meet in one bank. Blocks tell each
//      other how many elements they have, and then where each value begins, to the block that writes this slice of
//      the array: there all else is the largest value before it. So all blocks write equal parts, and no order of
//      values makes it slow. Up to 1024 elements, blocks compare their share of them with all. More than 65536 are
//      counted by all blocks, half of the values each, with the sums of 256 groups of values; in a second launch a
//      block finds the groups that are in its share of the array, and writes it as above. On the device of an H200,
//      over an empty launch, 256 elements take 1.3 µs, 1024 take 2.2, 4096 take 3.2, 16384 take 3.8 and 65536 take
//      7.5, other orders 6.1 to 10.4, where bitonic sorts took 2.4, 3.3, 6.9, 8.8 and 11.4, and CUB takes 7.8, 7.6,
//      8.0, 30 and 32. 2^20 take 18 (CUB 49) and 2^26 120 (CUB 766). What binds it now: at 65536 reading and
//      counting, 8800 of 17900 cycles before others' values had one counter; at 4096 they take 1500 of 6000, and the
//      barriers of the cluster with what blocks tell each other 3000; of long arrays it is the counting, some 80 µs
//      at 2^26.
// flags: -O3
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef unsigned short Element; // the bits

constexpr int kLeast = 256;      // elements up to which eight blocks compare each with all
constexpr int kLess = 1024;      // and all blocks of a cluster
constexpr int kCluster = 16;     // blocks
constexpr int kFewThreads = 512; // of a block that counts few elements
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kNone = 0xffffffffu; // no key

// Unsigned number whose order is that of the floating-point values, -0 before +0; and back.
__device__ unsigned int to_key(Element bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}
__device__ Element to_value(unsigned int key) {
    return (Element)(key ^ ((key & 0x8000u) ? 0x8000u : 0xffffu));
}

__device__ unsigned int warp_sum_to(unsigned int value) {
    for (int distance = 1; distance < 32; distance *= 2) {
        unsigned int other = __shfl_up_sync(kFullMask, value, distance);
        value += threadIdx.x % 32 >= distance ? other : 0;
    }
    return value;
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
__device__ __forceinline__ unsigned int smaller_of(unsigned int a, unsigned int b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm("min.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
#else
    return __vminu2(a, b);
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
template <int kThreads> __device__ __forceinline__ void arrive_at_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x / 32 == kThreads / 32 - 1)
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
__global__ void __launch_bounds__(kCompared) compare_all_bf16_kernel_optimized(Element* data, int N) {
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

// Where a value has its counter. Values that are multiples of 128, as powers of two are, would meet in one bank of shared
// memory; so bits 7 to 9 of the number of a counter turn over bits 2 to 4. Done twice it gives the number again.
__device__ __forceinline__ unsigned int counter_of(unsigned int value) {
    return value ^ (value >> 5 & 0x1cu);
}
template <int kShift> __device__ __forceinline__ unsigned int counters_of(unsigned int two) {
    constexpr unsigned int kTurned = 0x1cu << kShift;
    return two ^ (two >> 5 & (kTurned | kTurned << 16));
}

// Up to kFewThreads * 8 * kChunks elements, by a cluster. All blocks read all elements, and each counts how often the
// values of its share occur. It tells where each begins to the block whose slice of the array that is; there all else is
// the largest value before it. So blocks write equal parts, whatever the values are.
template <int kChunks>
__global__ void __launch_bounds__(kFewThreads)
    count_in_cluster_bf16_kernel_optimized(Element* data, int N, bool aligned) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kShare = (1 << 16) / kCluster, kBins = kShare / kFewThreads, kWarps = kFewThreads / 32;
    constexpr unsigned int kSlice = kFewThreads * 8 * kChunks / kCluster;
    static_assert(kBins % 4 == 0 && kSlice <= kFewThreads * 8,
                  "whole vectors, and one of a slice for a thread");
    __shared__ __align__(16) unsigned int bins[kShare + 4]; // the last ones are for values of other blocks
    __shared__ __align__(16) Element begins[kSlice];        // keys
    __shared__ unsigned int sums[kWarps], largest[kWarps], totals[kCluster];
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned int t = threadIdx.x, lane = t % 32, warp = t / 32, block = blockIdx.x;
    // What is missing is a NaN, which goes to the end.
    uint4 chunk[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
        chunk[c] = make_uint4(0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu);
    Element last = 0x7fff; // of the up to seven that are no whole chunk
    if (aligned) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            if ((int)(c * kFewThreads + t) * 8 + 8 <= N)
                chunk[c] = ((const uint4*)data)[c * kFewThreads + t];
        if ((int)t < N % 8)
            last = data[N / 8 * 8 + t];
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
    for (int k = 0; k < kBins / 4; ++k)
        ((uint4*)bins)[k * kFewThreads + t] = make_uint4(0, 0, 0, 0);
    if (t == 0)
        bins[kShare] = 0;
    if (t * 8 < kSlice)
        ((uint4*)begins)[t] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    arrive_at_cluster<kFewThreads>(); // and what others will write to is clear
    unsigned int first = block * kShare, turned = (first ^ 0x8000u) * 0x10001u;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        unsigned int words[4] = {chunk[c].x, chunk[c].y, chunk[c].z, chunk[c].w};
#pragma unroll
        for (int k = 0; k < 4; ++k) { // two keys at a time, less the first of the share
            unsigned int signs = words[k] & 0x80008000u;
            unsigned int keys = words[k] ^ (signs - (signs >> 15)) ^ turned;
            keys = counters_of<0>(keys);
            keys = smaller_of(keys, kShare | kShare << 16);
            unsigned int upper = keys >> 14, lower = (keys & 0xffffu) * 4; // four bytes for each counter
            atomicAdd((unsigned int*)((char*)bins + upper), 1u);
            atomicAdd((unsigned int*)((char*)bins + lower), 1u);
        }
    }
    if (t < 8)
        atomicAdd(&bins[min(counter_of(to_key(last) ^ first), (unsigned int)kShare)], 1u);
    __syncthreads();

    // Where the values of a thread begin among those of the block.
    unsigned int each[kBins], own = 0;
#pragma unroll
    for (int k = 0; k < kBins / 4; ++k) {
        uint4 four = *(const uint4*)&bins[counter_of(t * kBins + k * 4)];
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
    for (int k = 0; k < kBins; ++k) {
        unsigned int place = next;
        next += each[k];
        for (; place < min(next, (unsigned int)N); place = (place / kSlice + 1) * kSlice)
            *cluster.map_shared_rank(&begins[place % kSlice], place / kSlice) =
                (Element)(first + t * kBins + k);
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

// Counts a value if it is one of this block's. Bits of `counter` are those of counters_of.
template <int kShift>
__device__ __forceinline__ void count_one(unsigned int bins, unsigned int counter, unsigned int part) {
    unsigned int lowest = counter & ((1u << kShift) - 1), bin = bins + (counter >> kShift) * 4;
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
    constexpr int kParts = 1 << kShift, kBins = kValues / kParts, kPairs = kBins / 2;
    static_assert(kPairs / kGroups >= 32, "a warp adds up pairs of one group");
    unsigned int part = blockIdx.x % kParts;
    int t = threadIdx.x, block = blockIdx.x / kParts, blocks = gridDim.x / kParts;
    for (int i = t; i < kBins / 4; i += kCountThreads)
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
            count_one<kShift>(at, counters_of<kShift>(data[t]), part);
        if (t < (N - head) % 8)
            count_one<kShift>(at, counters_of<kShift>(data[head + count * 8 + t]), part);
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
                unsigned int two = counters_of<kShift>(words[j]);
                count_one<kShift>(at, two & 0xffffu, part);
                count_one<kShift>(at, two >> 16, part);
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
            atomicAdd((unsigned long long*)&device_counts[part * kBins + counter_of(i * 2)],
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
    constexpr int kParts = 1 << kShift, kBins = kValues / kParts, kEach = 8 / kParts;
    bool turned = (key & 0x8000u) == 0; // negative ones have their bits in descending order
    unsigned int raw = turned ? (key ^ 0xffffu) - 7 : key ^ 0x8000u, found[8];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        const unsigned int* from = &device_counts[part * kBins + (raw >> kShift)];
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
    __shared__ unsigned int starts[kGroups + 1], largest[kSpreadVectors * kSpreadWarps];
    // Aligned, or a wide load takes in a word of `starts` beside it, which racecheck takes for a race.
    __shared__ __align__(16) unsigned int sums[kSpreadWarps];
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
    if (count_in_cluster<1>(data, N) || count_in_cluster<4>(data, N) || count_in_cluster<16>(data, N))
        return;
    sort_by_counting(data, N);
}
