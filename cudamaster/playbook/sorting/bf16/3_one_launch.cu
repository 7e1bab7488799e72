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
constexpr int kFewBlocks = 16;
constexpr int kFewThreads = 512;
constexpr int kFew = kFewThreads * 8; // elements up to which values are counted by one cluster
constexpr int kRun = 512;             // elements that a block takes at first, at most
constexpr int kRuns = 128;            // at most
constexpr int kSamples = 1024;        // at most
constexpr int kOversampling = 16;     // samples for each bucket, as far as there are so many
constexpr int kCluster = 16;          // blocks, at most
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kPadding = 0xfffffffeu; // beyond the key of infinity

struct alignas(kItems * sizeof(Element)) Chunk {
    Element at[kItems];
};

__device__ __align__(16) unsigned int device_runs[kRuns * kRun];
__device__ __align__(16) unsigned int device_starts[kRuns * kRuns]; // of each bucket in each run

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

// The same with a thread of another warp. `threads` are at it, at a barrier with a number of their own.
template <int kLanes>
__device__ __forceinline__ void order_in_block(unsigned int (&key)[kItems],
                                               unsigned int (&tile)[2][kItems][kThreads], int& side,
                                               int barrier, int threads) {
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        tile[side][k][threadIdx.x] = key[k];
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
    bool larger = (threadIdx.x & kLanes) != 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        keep(key[k], tile[side][k][threadIdx.x ^ kLanes], larger);
    side ^= 1;
}

// Bitonic sort of `part` keys, a power of two from 128 to 2048, by as many threads as hold them. Threads whose keys
// are to descend turn over all bits of them. Each size of runs begins at its own distance: a loop over few
// instructions, as those that nobody has executed before come from memory, too.
__device__ void sort_keys(unsigned int (&key)[kItems], unsigned int (&tile)[2][kItems][kThreads], int part,
                          int barrier) {
    int side = 0, threads = part / kItems;
    unsigned int turned = 0;
#pragma unroll 1
    for (int size = kItems; size <= part; size *= 2) {
        unsigned int turn = size < part && (threadIdx.x * kItems & size) != 0 ? ~0u : 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            key[k] ^= turned ^ turn;
        turned = turn;
        switch (size) {
        case 2048:
            order_in_block<256>(key, tile, side, barrier, threads);
        case 1024:
            order_in_block<128>(key, tile, side, barrier, threads);
        case 512:
            order_in_block<64>(key, tile, side, barrier, threads);
        case 256:
            order_in_block<32>(key, tile, side, barrier, threads);
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

// Two parts of the barrier of all blocks. After a barrier of the block one warp tells for all of them that their loads
// are done: that takes a fence, which all others would wait for as well. The last warp has the least to do.
template <int kOfBlock> __device__ __forceinline__ void have_read(bool clustered) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (!clustered)
        return;
    if (threadIdx.x / 32 == kOfBlock / 32 - 1)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void all_have_read(bool clustered) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (clustered) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        return;
    }
#endif
    cooperative_groups::this_grid().sync();
}

// Up to kCounted elements, by a cluster. All blocks read all elements, and each has a share of the values: it counts how
// often each of them occurs, finds where each begins, and all else is the largest value before it.
__global__ void __launch_bounds__(kFewThreads)
    count_few_bf16_kernel_optimized(Element* data, int N, bool aligned, bool clustered) {
    constexpr int kShare = (1 << 16) / kFewBlocks, kBins = kShare / kFewThreads, kFewWarps = kFewThreads / 32;
    constexpr unsigned int kRound = kFewThreads * 8;
    static_assert(kBins % 4 == 0, "whole vectors");
    __shared__ __align__(16) unsigned int bins[kShare];
    __shared__ __align__(16) Element begins[kRound]; // places of the array that a round writes
    __shared__ unsigned int sums[kFewWarps], largest[kFewWarps], below_all;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    uint4 chunk;
    int here = N - t * 8;
    if (aligned && N % 8 == 0) {
        if (here > 0)
            chunk = ((const uint4*)data)[t];
    } else {
        unsigned int raw[8];
#pragma unroll
        for (int k = 0; k < 8; ++k)
            raw[k] = k < here ? data[t * 8 + k] : 0;
        chunk = make_uint4(raw[0] | raw[1] << 16, raw[2] | raw[3] << 16, raw[4] | raw[5] << 16,
                           raw[6] | raw[7] << 16);
    }
#pragma unroll
    for (int k = 0; k < kBins / 4; ++k)
        ((uint4*)bins)[k * kFewThreads + t] = make_uint4(0, 0, 0, 0);
    ((uint4*)begins)[t] = make_uint4(0, 0, 0, 0);
    if (t == 0)
        below_all = 0;
    __syncthreads();
    unsigned int first = blockIdx.x * kShare, below = 0;
    unsigned int at = (unsigned int)__cvta_generic_to_shared(bins);
    unsigned int words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        if (k % 2 == 0) { // two keys at a time
            unsigned int signs = words[k / 2] & 0x80008000u;
            words[k / 2] ^= 0x80008000u | (signs - (signs >> 15));
        }
        unsigned int key = k % 2 == 0 ? words[k / 2] & 0xffffu : words[k / 2] >> 16;
        key = k < here ? key - first : (unsigned int)kShare;
        asm volatile("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %0, %1;\n\t@p red.shared.add.u32 [%2], 1;\n\t}"
                     :
                     : "r"(key), "r"((unsigned int)kShare), "r"(at + key * 4)
                     : "memory");
        below += key >> 31; // its difference is negative
    }
    below = __reduce_add_sync(kFullMask, below);
    if (lane == 0)
        atomicAdd(&below_all, below);
    __syncthreads();
    have_read<kFewThreads>(clustered);

    // Where the values of a thread begin.
    unsigned int each[kBins], own = 0;
#pragma unroll
    for (int k = 0; k < kBins / 4; ++k) {
        uint4 four = ((const uint4*)bins)[t * (kBins / 4) + k];
        each[k * 4] = four.x, each[k * 4 + 1] = four.y, each[k * 4 + 2] = four.z, each[k * 4 + 3] = four.w;
        own += four.x + four.y + four.z + four.w;
    }
    unsigned int up_to = warp_sum_to(own);
    if (lane == 31)
        sums[warp] = up_to;
    __syncthreads();
    unsigned int of_warp = lane < kFewWarps ? sums[lane] : 0;
    unsigned int count = __reduce_add_sync(kFullMask, of_warp);
    unsigned int earlier = __reduce_add_sync(kFullMask, lane < warp ? of_warp : 0);
    unsigned int before = below_all, end = before + count, start = before + earlier + up_to - own;
    bool waits = true;
    for (unsigned int begin = before / 8 * 8; begin < end; begin += kRound) {
        if (begin >= before + 8) { // not the first round
            __syncthreads();
            ((uint4*)begins)[t] = make_uint4(0, 0, 0, 0);
            __syncthreads();
        }
        unsigned int next = start;
#pragma unroll
        for (int k = 0; k < kBins; ++k) {
            unsigned int place = max(next, begin);
            next += each[k];
            if (place < min(next, begin + kRound))
                begins[place - begin] = (Element)(t * kBins + k);
        }
        __syncthreads();
        uint4 four = ((const uint4*)begins)[t];
        unsigned int words[4] = {four.x, four.y, four.z, four.w};
        unsigned int most = larger_of(larger_of(words[0], words[1]), larger_of(words[2], words[3]));
        most = max(most & 0xffffu, most >> 16);
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            unsigned int other = __shfl_up_sync(kFullMask, most, distance);
            most = lane >= distance ? max(most, other) : most;
        }
        if (lane == 31)
            largest[warp] = most;
        __syncthreads();
        unsigned int key = __shfl_up_sync(kFullMask, most, 1);
        unsigned int earlier_key = __reduce_max_sync(kFullMask, lane < warp ? largest[lane] : 0);
        key = lane > 0 ? max(key, earlier_key) : earlier_key;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            unsigned int low = max(key, words[j] & 0xffffu);
            key = max(low, words[j] >> 16);
            words[j] = (unsigned int)to_value(first + low) | (unsigned int)to_value(first + key) << 16;
        }
        if (waits)
            all_have_read(clustered);
        waits = false;
        unsigned int place = begin + t * 8;
        if (aligned && place >= before && place + 8 <= end)
            *(uint4*)(data + place) = make_uint4(words[0], words[1], words[2], words[3]);
        else
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (place + j >= before && place + j < end)
                    data[place + j] = (Element)(words[j / 2] >> (j % 2 * 16));
    }
    if (waits)
        all_have_read(clustered);
}

__global__ void __launch_bounds__(kThreads)
    sort_in_one_bf16_kernel_optimized(Element* data, int N, int run_length, int sample_count, bool aligned,
                                      bool clustered) {
    __shared__ unsigned int tile[2][kItems][kThreads];
    __shared__ __align__(16) unsigned int samples[kSamples], run[kRun];
    __shared__ unsigned int splitters[kRuns];
    __shared__ __align__(16) unsigned int place[kRuns], from[kRuns]; // of a segment: here, and in its run
    __shared__ unsigned int total, before;
    int t = threadIdx.x, blocks = gridDim.x, block = blockIdx.x;
    int length = min(run_length, N - block * run_length), mine = t * kItems - max(sample_count, run_length);
    bool sorts = mine < 0 ? t * kItems < sample_count : mine < run_length;
    unsigned int key[kItems];

    // Each block sorts the same samples, and its own run beside them. Samples are chunks, as a chunk takes no more
    // time than an element.
    unsigned int jitter = t * 2654435761u >> 26;
    unsigned int first = (t * 64u + jitter) * (N / kItems) / (sample_count / kItems * 64u) * kItems;
    if (mine >= 0)
        first = block * run_length + mine;
    Chunk chunk = {};
    bool whole = mine < 0 || mine + kItems <= length;
    if (sorts && aligned && whole)
        chunk = *(const Chunk*)(data + first);
    else
#pragma unroll
        for (int k = 0; k < kItems; ++k)
            if (sorts && (mine < 0 || mine + k < length))
                chunk.at[k] = data[first + k];
#pragma unroll
    for (int k = 0; k < kItems; ++k)
        key[k] = mine < 0 || mine + k < length ? to_key(chunk.at[k]) : kPadding;
    // The same in a whole warp, which nvcc cannot know: without it each shuffle has a way for divergent threads.
    int part = __reduce_max_sync(kFullMask, !sorts ? 0 : mine < 0 ? sample_count : run_length);
    int barrier = __reduce_max_sync(kFullMask, mine < 0 ? 1 : 2);
    if (part > 0)
        sort_keys(key, tile, part, barrier);
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
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (clustered)
        cooperative_groups::this_cluster().sync();
    else
#endif
        cooperative_groups::this_grid().sync();

    // This block's bucket has a segment of each run.
    if (t < 32) {
        constexpr int kEach = kRuns / 32;
        unsigned int start[kEach], count[kEach], sum = 0, skipped = 0;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
            int i = t * kEach + k;
            unsigned int end = 0;
            start[k] = 0;
            if (i < blocks) {
                start[k] = __ldcg(&device_starts[block * kRuns + i]);
                end = min(run_length, N - i * run_length);
                if (block + 1 < blocks)
                    end = __ldcg(&device_starts[(block + 1) * kRuns + i]);
            }
            count[k] = end - start[k];
            sum += count[k];
            skipped += start[k];
        }
        unsigned int up_to = warp_sum_to(sum);
        skipped = __reduce_add_sync(kFullMask, skipped);
        unsigned int next = up_to - sum;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
            int i = t * kEach + k;
            place[i] = next;
            from[i] = i * run_length + start[k] - next;
            next += count[k];
        }
        if (t == 31) {
            total = up_to;
            before = skipped;
        }
    }
    __syncthreads();
    unsigned int count = total;
    part = kRun / 2;
    while (part < (int)count)
        part *= 2;
    data += before;
    if (count > kRoom) { // hardly ever
        for (unsigned int i = t; i < count; i += kThreads) {
            int own = below<kRuns>(place, i + 1) - 1;
            unsigned int own_key = __ldcg(&device_runs[from[own] + i]), rank = i - place[own];
            for (int other = 0; other < blocks; ++other) {
                unsigned int low = place[other], high = other + 1 < kRuns ? place[other + 1] : count;
                unsigned int first = low;
                while (low < high && other != own) {
                    unsigned int middle = (low + high) / 2;
                    bool earlier = __ldcg(&device_runs[from[other] + middle]) < own_key + (other < own);
                    low = earlier ? middle + 1 : low;
                    high = earlier ? high : middle;
                }
                rank += low - first;
            }
            data[rank] = to_value(own_key);
        }
        return;
    }
    if (t >= part / kItems)
        return;
    part = __reduce_max_sync(kFullMask, part);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        unsigned int i = k * (part / kItems) + t;
        key[k] = kPadding;
        if (i < count)
            key[k] = __ldcg(&device_runs[from[below<kRuns>(place, i + 1) - 1] + i]);
    }
    sort_keys(key, tile, part, 1);
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
constexpr int kSpreadBlocks = 1056; // at most: eight for each of 132 multiprocessors
constexpr int kSpreadVectors = 4;   // of eight elements, of a thread, at most

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
            atomicAdd((unsigned long long*)&device_counts[part * kBins + i * 2],
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

// Writes the values. A block has shares of the array: it finds the groups that are in one, puts each value where it
// begins, and all else is the largest value before it.
template <int kShift>
__global__ void __launch_bounds__(kSpreadThreads)
    spread_values_bf16_kernel_optimized(Element* data, int N, int vectors, bool aligned) {
    constexpr int kSpreadWarps = kSpreadThreads / 32;
    __shared__ __align__(16) Element begins[kSpreadThreads * 8 * kSpreadVectors]; // as keys
    __shared__ unsigned int starts[kGroups + 1], sums[kSpreadWarps], largest[kSpreadVectors * kSpreadWarps];
    __shared__ int bounds[2];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned int count = device_counts[kValues + t], up_to = warp_sum_to(count);
    if (lane == 31)
        sums[warp] = up_to;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kSpreadWarps; ++w)
        up_to += w < warp ? sums[w] : 0;
    starts[t + 1] = up_to;
    if (t == 0)
        starts[0] = 0;
    unsigned int share = kSpreadThreads * vectors * 8;
    for (unsigned int begin = blockIdx.x * share; begin < (unsigned int)N; begin += gridDim.x * share) {
        unsigned int end = min((unsigned int)N, begin + share);
        for (int k = 0; k < vectors; ++k)
            ((uint4*)begins)[k * kSpreadThreads + t] = make_uint4(0, 0, 0, 0);
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
            unsigned int most = larger_of(larger_of(words[0], words[1]), larger_of(words[2], words[3]));
            most = max(most & 0xffffu, most >> 16);
            for (int distance = 1; distance < 32; distance *= 2) {
                unsigned int other = __shfl_up_sync(kFullMask, most, distance);
                most = lane >= distance ? max(most, other) : most;
            }
            unsigned int key = __shfl_up_sync(kFullMask, most, 1);
            unsigned int earlier = lane < k * kSpreadWarps + warp ? largest[lane] : 0;
            earlier = __reduce_max_sync(kFullMask, earlier);
            key = lane > 0 ? max(key, earlier) : earlier;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                unsigned int first = max(key, words[j] & 0xffffu);
                key = max(first, words[j] >> 16);
                words[j] = (unsigned int)to_value(first) | (unsigned int)to_value(key) << 16;
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
        __syncthreads();
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
    int shares = (N - 1) / share + 1, spreading = shares < kSpreadBlocks ? shares : kSpreadBlocks;
    spread_values_bf16_kernel_optimized<kShift>
        <<<spreading, kSpreadThreads>>>(data, N, vectors, (size_t)data % 16 == 0);
    return true;
}
void sort_by_counting(Element* data, int N) {
    void* counts = nullptr;
    cudaGetSymbolAddress(&counts, device_counts);
    cudaMemsetAsync(counts, 0, sizeof(device_counts), 0);
    if (!count_and_spread<1>(data, N))
        count_and_spread<2>(data, N); // half of the shared memory
}

// Whether a kernel could be started as a cluster, or as a grid whose blocks run at a time.
template <class Kernel, class... Arguments>
bool start_few(Kernel* kernel, int blocks, int threads, Arguments... arguments) {
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
    if (cudaLaunchKernelEx(&config, kernel, arguments..., true) == cudaSuccess)
        return true;
    cudaGetLastError();
    bool clustered = false;
    void* addresses[] = {&arguments..., &clustered};
    if (cudaLaunchCooperativeKernel((const void*)kernel, dim3(blocks), dim3(threads), addresses, 0, 0) ==
        cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

// Whether a cluster could be started: a GPU before sm_90 has none.
bool sort_in_cluster(Element* data, int N, int run_length, int sample_count, int blocks, bool aligned) {
    cudaFuncSetAttribute(sort_in_one_bf16_kernel_optimized, cudaFuncAttributeNonPortableClusterSizeAllowed,
                         1);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned int)blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, sort_in_one_bf16_kernel_optimized, data, N, run_length, sample_count,
                           aligned, true) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

extern "C" void sorting_bf16_optimized(__nv_bfloat16* values, int N) {
    Element* data = (Element*)values;
    if (N <= kFew &&
        start_few(count_few_bf16_kernel_optimized, kFewBlocks, kFewThreads, data, N, (size_t)data % 16 == 0))
        return;
    if (N <= kRuns * kRun) {
        bool aligned = (size_t)data % sizeof(Chunk) == 0;
        // Few blocks are a cluster, whose barrier is faster than that of a grid.
        bool clustered = N <= kCluster * kRun;
        int run_length = N <= kCluster * kRun / 2 ? kRun / 2 : kRun, blocks = (N - 1) / run_length + 1;
        int sample_count = kCluster * kOversampling;
        while (sample_count < kSamples && sample_count < blocks * kOversampling)
            sample_count *= 2;
        if (clustered && sort_in_cluster(data, N, run_length, sample_count, blocks, aligned))
            return;
        clustered = false;
        void* arguments[] = {&data, &N, &run_length, &sample_count, &aligned, &clustered};
        if (cudaLaunchCooperativeKernel((const void*)sort_in_one_bf16_kernel_optimized, dim3(blocks),
                                        dim3(kThreads), arguments, 0, 0) == cudaSuccess)
            return;
        cudaGetLastError(); // a small GPU does not hold all blocks at a time
    }
    sort_by_counting(data, N);
}
