// idea: One launch: all blocks sort the same samples, so each knows where its keys belong
// why: Step 2 waits for three launches, and each search in a merge is a chain of loads from L2. Keys as
//      unsigned integers in the order of the floats make a comparison a minimum and a maximum. Here a block
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
//      launch takes 0.4 µs more than another. Up to 2048 elements one block sorts, with eight keys a
//      thread. More than 65536 are sorted by digits of 8 bits, in tiles that look back at what those
//      before them have counted; which lanes have the same digit is found by few instructions, as they
//      bind these passes. On an H200 65536 elements take 20 µs, where merges of such keys in three
//      launches took 28 and CUB takes 66; an empty launch takes 9. Sorted, reversed and equal inputs and
//      inputs of two values or extremes take 19 to 20. 4096 take 16.8 (CUB 21.7), 2048 14.9, where a
//      cluster took 16.7. On the device 2^24 take 512 µs (CUB 434) and 2^26 1.7 ms (CUB 1.5), of equal
//      keys 2^24 468 (CUB 320); whole calls of that length take 100 to 450 µs more, as they allocate
//      memory, which CUB is given. What binds it now: up to 65536 the two sorts with the wait for the
//      first elements, 8000 of 16200 cycles, and in the block with the largest bucket 4000 more; the
//      barrier takes 2600, with those who come late. Instructions that come from cold memory are 500.
// flags: -O3
#include <cooperative_groups.h>
#include <cuda_runtime.h>

typedef float Element;

constexpr int kItems = 4; // keys of a thread
constexpr int kThreads = 512;
constexpr int kRoom = kItems * kThreads; // keys that a block can sort
constexpr int kLeast = 256;              // elements up to which eight blocks compare each with all
constexpr int kLess = 1024;              // and sixteen blocks
constexpr int kFew = 4096;               // elements up to which blocks need not tell each other anything
constexpr int kFewBlocks = 16;
constexpr int kFewThreads = 512;
constexpr int kFewSamples = 128;
constexpr int kChunk = 16 / sizeof(Element); // elements
constexpr int kChunks = kFew / kFewThreads / kChunk;
constexpr int kRun = 512;         // elements that a block takes at first, at most
constexpr int kRuns = 128;        // at most
constexpr int kSamples = 1024;    // at most
constexpr int kOversampling = 16; // samples for each bucket, as far as there are so many
constexpr int kCluster = 16;      // blocks, at most
constexpr unsigned int kFullMask = 0xffffffffu;
constexpr unsigned int kPadding = 0xfffffffeu; // beyond the key of infinity
constexpr unsigned int kNone = 0xffffffffu;

struct alignas(kItems * sizeof(Element)) Chunk {
    Element at[kItems];
};
static_assert(kChunk == kItems, "chunks have one size");

__device__ __align__(16) unsigned int device_runs[kRuns * kRun];
__device__ __align__(16) unsigned int device_starts[kRuns * kRuns]; // of each bucket in each run

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

// Loads chunks of the array, each thread of a block kChunks of them, that lie kFewThreads chunks from each other. All are
// under way before the first is used.
__device__ __forceinline__ void load_chunks(const Element* data, int N, bool aligned,
                                            unsigned int (&key)[kChunks][kChunk]) {
    Chunk chunk[kChunks];
    if (aligned && N % kChunk == 0) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            int first = (c * kFewThreads + threadIdx.x) * kChunk;
            if (first < N)
                chunk[c] = *(const Chunk*)(data + first);
        }
    } else {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
#pragma unroll
            for (int k = 0; k < kChunk; ++k) {
                int i = (c * kFewThreads + threadIdx.x) * kChunk + k;
                if (i < N)
                    chunk[c].at[k] = data[i];
            }
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
            int i = (c * kFewThreads + threadIdx.x) * kChunk + k;
            key[c][k] = i < N ? to_key(chunk[c].at[k]) : kNone;
        }
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
__global__ void __launch_bounds__(kCompared)
    compare_all_kernel_optimized(Element* data, int N, bool clustered) {
    constexpr int kShare = kCompared / kBlocks, kTeam = kCompared / kShare, kVectors = kCompared / 4;
    __shared__ __align__(16) unsigned int keys[kCompared];
    int t = threadIdx.x;
    keys[t] = t < N ? to_key(data[t]) : kNone;
    __syncthreads();
    have_read<kCompared>(clustered);
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
    all_have_read(clustered);
    if (t % kTeam == 0 && own < N)
        data[rank] = to_value(key);
}

__global__ void __launch_bounds__(kFewThreads)
    share_few_kernel_optimized(Element* data, int N, bool aligned, bool clustered) {
    constexpr int kTeam = kFewThreads / kFewSamples, kParts = kFewSamples / kFewBlocks;
    static_assert(kParts <= 16 && kFew <= 4096, "sixteen bits for a part and a place in it");
    __shared__ __align__(16) unsigned int samples[kFewSamples];
    __shared__ uint2 splitters[kFewSamples]; // and their chunks
    __shared__ unsigned int listed[kFew];
    __shared__ unsigned short listed_of[kFew]; // the chunk, and then the part and the place in it
    __shared__ __align__(16) unsigned int placed[kFew + 4 * kParts];
    __shared__ __align__(16) unsigned int sizes[kParts];
    __shared__ unsigned int sum;
    unsigned int t = threadIdx.x, lane = t % 32, block = blockIdx.x;
    unsigned int chunks = (N + kChunk - 1) / kChunk;
    unsigned int key[kChunks][kChunk];
    auto chunk_of = [&](unsigned int sample) {
        return (sample * 64 + (sample * 2654435761u >> 26)) * chunks / (kFewSamples * 64);
    };
    Element sample = {};
    if (t < kFewSamples)
        sample = data[chunk_of(t) * kChunk];
    load_chunks(data, N, aligned, key);
#pragma unroll 1
    for (int i = t; i < kFew / 4 + kParts; i += kFewThreads)
        ((uint4*)placed)[i] = make_uint4(kNone, kNone, kNone, kNone);
    if (t < kParts)
        sizes[t] = 0;
    if (t == kFewThreads - 1)
        sum = 0;
    if (t < kFewSamples)
        samples[t] = to_key(sample);
    __syncthreads();

    // All blocks sort the same samples: how many are below one is its place.
    {
        int own = t / kTeam;
        unsigned int mine = samples[own], smaller[2] = {};
        const uint4* vectors = (const uint4*)samples;
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
            splitters[rank] = make_uint2(mine, chunk_of(own));
    }
    __syncthreads();

    // A list of the block's keys. Those that equal a splitter go by their chunk.
    uint2 low = splitters[block * kParts], high = splitters[min(block + 1, kFewBlocks - 1) * kParts];
    if (block == 0)
        low = make_uint2(0, 0);
    if (block == kFewBlocks - 1)
        high = make_uint2(kNone, 0);
    unsigned int votes[kChunks][kChunk], below = 0, here = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        unsigned int chunk = c * kFewThreads + t;
        unsigned int from = low.x + (chunk < low.y), width = high.x + (chunk < high.y) - from;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
            add_if_below(below, key[c][k], from);
            votes[c][k] = __ballot_sync(kFullMask, key[c][k] - from < width);
            here += __popc(votes[c][k]);
        }
    }
    below = __reduce_add_sync(kFullMask, below);
    unsigned int next = 0;
    if (lane == 0)
        next = atomicAdd(&sum, below << 16 | here);
    next = __shfl_sync(kFullMask, next, 0) & 0xffffu;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
            unsigned int place = next + __popc(votes[c][k] & ((1u << lane) - 1));
            if (votes[c][k] >> lane & 1) {
                listed[place] = key[c][k];
                listed_of[place] = (unsigned short)(c * kFewThreads + t);
            }
            next += __popc(votes[c][k]);
        }
    __syncthreads();
    have_read<kFewThreads>(clustered);
    int count = sum & 0xffffu, before = sum >> 16;

    // The part that each belongs to, and its place in it.
#pragma unroll 1
    for (int i = t; i - lane < count; i += kFewThreads) {
        bool is = i < count;
        unsigned int own = is ? listed[i] : 0, chunk = is ? listed_of[i] : 0, part = 0;
#pragma unroll
        for (int k = 1; k < kParts; ++k) {
            uint2 splitter = splitters[block * kParts + k];
            add_if_below(part, splitter.x + (chunk < splitter.y), own + 1);
        }
        unsigned int peers = __ballot_sync(kFullMask, is);
#pragma unroll
        for (int bit = 1; bit < kParts; bit *= 2) {
            unsigned int with = __ballot_sync(kFullMask, part & bit);
            peers &= part & bit ? with : ~with;
        }
        int first = __ffs(peers) - 1;
        unsigned int place = 0;
        if (is && lane == first)
            place = atomicAdd(&sizes[part], __popc(peers));
        place = __shfl_sync(kFullMask, place, max(first, 0)) + __popc(peers & ((1u << lane) - 1));
        if (is)
            listed_of[i] = (unsigned short)(part << 12 | place);
    }
    __syncthreads();
    unsigned int size[kParts];
#pragma unroll
    for (int k = 0; k < kParts; ++k)
        size[k] = sizes[k];
#pragma unroll 1
    for (int i = t; i < count; i += kFewThreads) {
        int part = listed_of[i] >> 12, place = listed_of[i] & 4095;
#pragma unroll
        for (int k = 0; k < kParts - 1; ++k)
            place += k < part ? (size[k] + 3) / 4 * 4 : 0;
        placed[place] = listed[i];
    }
    __syncthreads();
    all_have_read(clustered);

    // Two threads compare a key with those of its part, four at a time.
    int slots = 0;
#pragma unroll
    for (int k = 0; k < kParts; ++k)
        slots += (size[k] + 3) / 4 * 4;
    const uint4* vectors = (const uint4*)placed;
#pragma unroll 1
    for (int i = t; i - lane < 2 * slots; i += kFewThreads) {
        int own = i / 2, first = 0, end = 0, next = 0, smaller = 0;
        unsigned int rank = 0;
#pragma unroll
        for (int k = 0; k < kParts; ++k) {
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

__global__ void __launch_bounds__(kThreads)
    sort_in_one_kernel_optimized(Element* data, int N, int run_length, int sample_count, bool aligned,
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
constexpr int kCopies = 4;        // of the counters, so that fewer lanes meet
constexpr int kScratch = 1 << 26; // elements up to which no memory is allocated
constexpr int kLook = 8;          // tiles that one looks back at together
constexpr int kTickets = 64;
constexpr int kTotals = kPasses * kDigits + kTickets;

__device__ Element device_other[kScratch];
__device__ unsigned int device_states[kTotals + kPasses * (kScratch / kRadixTile + 1) * kDigits];

__device__ unsigned int digit_of(unsigned int key, int pass) {
    return key >> (pass * kDigitBits) & (kDigits - 1);
}

// How often each digit of each pass occurs.
__global__ void __launch_bounds__(kRadixThreads)
    count_digits_kernel_optimized(const Element* data, unsigned int* totals, int N) {
    __shared__ unsigned int counts[kPasses * kDigits * kCopies];
    for (int i = threadIdx.x; i < kPasses * kDigits * kCopies; i += kRadixThreads)
        counts[i] = 0;
    __syncthreads();
    for (size_t first = (size_t)blockIdx.x * kCountTile; first < (size_t)N;
         first += (size_t)gridDim.x * kCountTile) {
        unsigned int key[kCountItems];
#pragma unroll
        for (int k = 0; k < kCountItems; ++k) {
            size_t i = first + k * kRadixThreads + threadIdx.x;
            key[k] = i < (size_t)N ? to_key(data[i]) : 0;
        }
#pragma unroll
        for (int k = 0; k < kCountItems; ++k)
            if (first + k * kRadixThreads + threadIdx.x < (size_t)N)
#pragma unroll
                for (int pass = 0; pass < kPasses; ++pass)
                    atomicAdd(
                        &counts[(pass * kDigits + digit_of(key[k], pass)) * kCopies + threadIdx.x % kCopies],
                        1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kPasses * kDigits; i += kRadixThreads) {
        unsigned int count = 0;
#pragma unroll
        for (int k = 0; k < kCopies; ++k)
            count += counts[i * kCopies + k];
        if (count != 0)
            atomicAdd(&totals[i], count);
    }
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

// Places keys by one digit; those with the same digit keep their order. Between the first pass and the last, keys
// stay keys. A state is what a tile tells those behind it of a digit: nothing yet, how often the tile has it, or how
// often all tiles up to here have it.
template <class State, int kPass>
__global__ void __launch_bounds__(kRadixThreads, 2)
    place_digits_kernel_optimized(const Element* from, Element* to, const unsigned int* totals,
                                  unsigned int* tickets, State* states, int N) {
    constexpr int kFlag = sizeof(State) * 8 - 2;
    __shared__ unsigned short counts[kRadixWarps][kDigits];
    __shared__ unsigned int keys[kRadixTile];
    __shared__ unsigned int target[kDigits]; // of a digit's keys, less their place in the tile
    __shared__ unsigned int sums[2][kDigits / 32];
    __shared__ unsigned int ticket;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    if (t == 0)
        ticket = atomicAdd(&tickets[kPass], 1u); // in order, so that the tiles before this one have begun
    for (int i = t; i < kRadixWarps * kDigits; i += kRadixThreads)
        counts[i / kDigits][i % kDigits] = 0;
    __syncthreads();
    size_t first = (size_t)ticket * kRadixTile;
    int here = (size_t)N - first < kRadixTile ? (int)((size_t)N - first) : kRadixTile;

    // The place of each key among those of its warp that have the same digit.
    unsigned int key[kRadixItems];
    unsigned short rank[kRadixItems];
    const Element* own = from + first + warp * kRadixItems * 32 + lane;
    if (here == kRadixTile) {
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k)
            key[k] = kPass == 0 ? to_key(own[k * 32]) : __float_as_uint(own[k * 32]);
    } else {
#pragma unroll
        for (int k = 0; k < kRadixItems; ++k) {
            key[k] = ~0u; // the last ones of the last digit
            if ((warp * kRadixItems + k) * 32 + lane < here)
                key[k] = kPass == 0 ? to_key(own[k * 32]) : __float_as_uint(own[k * 32]);
        }
    }
#pragma unroll
    for (int k = 0; k < kRadixItems; ++k) {
        unsigned int digit = digit_of(key[k], kPass), peers = lanes_with(digit);
        unsigned int smaller = __popc(peers & ((1u << lane) - 1)), count = counts[warp][digit];
        __syncwarp();
        if (smaller == 0)
            counts[warp][digit] = count + __popc(peers);
        __syncwarp();
        rank[k] = count + smaller;
    }
    __syncthreads();

    // Thread t has digit t.
    State* state = states + (size_t)ticket * kDigits + t;
    unsigned int count = 0, total = 0, up_to = 0, all_up_to = 0;
    if (t < kDigits) {
#pragma unroll
        for (int w = 0; w < kRadixWarps; ++w) {
            unsigned int own = counts[w][t];
            counts[w][t] = count;
            count += own;
        }
        unsigned int told = t == kDigits - 1 ? count - (kRadixTile - here) : count;
        *(volatile State*)state = (State)(ticket == 0 ? 2 : 1) << kFlag | told;
        total = totals[kPass * kDigits + t];
        up_to = warp_sum_to(count);
        all_up_to = warp_sum_to(total);
        if (lane == 31) {
            sums[0][warp] = up_to;
            sums[1][warp] = all_up_to;
        }
    }
    __syncthreads();
    if (t < kDigits) {
        unsigned int start = up_to - count;
        target[t] = all_up_to - total;
        for (int w = 0; w < warp; ++w) {
            start += sums[0][w];
            target[t] += sums[1][w];
        }
#pragma unroll
        for (int w = 0; w < kRadixWarps; ++w)
            counts[w][t] += start;
        target[t] -= start;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kRadixItems; ++k)
        keys[counts[warp][digit_of(key[k], kPass)] + rank[k]] = key[k];

    if (t < kDigits && ticket > 0) {
        // Several tiles at a time, as each look takes the time of a trip to L2.
        State before = 0;
        int other = ticket - 1;
        bool done = false;
        while (!done) {
            State seen[kLook];
#pragma unroll
            for (int j = 0; j < kLook; ++j)
                seen[j] =
                    other < j ? 0 : *(const volatile State*)(states + (size_t)(other - j) * kDigits + t);
            bool told_all = true;
#pragma unroll
            for (int j = 0; j < kLook; ++j) {
                told_all = told_all && !done && seen[j] >> kFlag != 0;
                if (!told_all)
                    continue;
                before += seen[j] & (((State)1 << kFlag) - 1);
                done = seen[j] >> kFlag == 2;
                --other;
            }
        }
        unsigned int told = t == kDigits - 1 ? count - (kRadixTile - here) : count;
        *(volatile State*)state = (State)2 << kFlag | (before + told);
        target[t] += before;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kRadixItems; ++k) {
        int i = k * kRadixThreads + t;
        if (here < kRadixTile && i >= here)
            continue;
        unsigned int next = keys[i];
        to[target[digit_of(next, kPass)] + i] = kPass == kPasses - 1 ? to_value(next) : __uint_as_float(next);
    }
}

template <class State> void sort_digits(Element* data, int N) {
    size_t tiles = ((size_t)N - 1) / kRadixTile + 1, step = tiles * kDigits;
    size_t bytes = sizeof(unsigned int) * kTotals + sizeof(State) * kPasses * step;
    void *memory = nullptr, *other_memory = nullptr, *more = nullptr;
    cudaGetSymbolAddress(&memory, device_states);
    unsigned int* totals = (unsigned int*)memory;
    unsigned int* tickets = totals + kPasses * kDigits;
    cudaMemsetAsync(memory, 0, N <= kScratch ? bytes : sizeof(unsigned int) * kTotals, 0);
    size_t count_tiles = ((size_t)N - 1) / kCountTile + 1;
    int blocks = count_tiles < kCountBlocks ? (int)count_tiles : kCountBlocks, all = (int)tiles;
    count_digits_kernel_optimized<<<blocks, kRadixThreads>>>(data, totals, N);
    State* states = (State*)(totals + kTotals);
    if (N <= kScratch) {
        cudaGetSymbolAddress(&other_memory, device_other);
    } else { // while the GPU counts; where memory of a pool would be given back at once, this takes less time
        if (cudaMalloc(&more, bytes + sizeof(Element) * (size_t)N) != cudaSuccess)
            return;
        cudaMemsetAsync(more, 0, bytes, 0);
        states = (State*)more;
        other_memory = (char*)more + bytes;
    }
    Element* other = (Element*)other_memory;
    place_digits_kernel_optimized<State, 0><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    states += step;
    place_digits_kernel_optimized<State, 1><<<all, kRadixThreads>>>(other, data, totals, tickets, states, N);
    states += step;
    place_digits_kernel_optimized<State, 2><<<all, kRadixThreads>>>(data, other, totals, tickets, states, N);
    states += step;
    place_digits_kernel_optimized<State, 3><<<all, kRadixThreads>>>(other, data, totals, tickets, states, N);
    if (N > kScratch)
        cudaFree(more);
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
    cudaFuncSetAttribute(sort_in_one_kernel_optimized, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned int)blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, sort_in_one_kernel_optimized, data, N, run_length, sample_count, aligned,
                           true) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

extern "C" void sorting_optimized(Element* data, int N) {
    bool aligned = (size_t)data % sizeof(Chunk) == 0;
    if (N <= kLeast && start_few(compare_all_kernel_optimized<8, kLeast>, 8, kLeast, data, N))
        return;
    if (N <= kLess && start_few(compare_all_kernel_optimized<kFewBlocks, kLess>, kFewBlocks, kLess, data, N))
        return;
    if (N <= kFew && start_few(share_few_kernel_optimized, kFewBlocks, kFewThreads, data, N, aligned))
        return;
    if (N <= kRuns * kRun) {
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
