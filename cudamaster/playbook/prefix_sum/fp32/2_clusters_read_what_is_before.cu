// idea: Clusters read all that is before them, and one launch is enough
// why: A block has to know the sum of all before it. In step 1 a launch of its own finds the sums, which takes as
//      long as the rest. Blocks of one launch can tell each other through memory, but on an H200 that takes 0.7, 1.5
//      and 3.3 µs beyond an empty launch among 8, 32 and 128 blocks, and needs a cooperative launch or words that an
//      earlier call left. Instead the eight blocks of a cluster share out all that lies before it, a vector of each
//      earlier cluster for each thread, requested together with its own one. Each block sends one number to each
//      block of its cluster, whose barriers count them, and that is the only exchange. No state is left between
//      calls, sums of up to 2^18 elements have a fixed order, and what fits in one tile is scanned by one block.
//      262144 elements take 2.5 to 2.7 µs beyond an empty launch, step 1 takes 8.1, in turn with it. By flags in
//      memory it was 3.2 to 3.9, by one cluster that keeps all elements 5. Those times are from before the wait had
//      the scope of the cluster. Since then blocks have 256 threads of one, two or four vectors in place of 1024 of
//      one, which on the device takes 6.2 instead of 6.7 µs at 16384 and 7.2 instead of 7.7 at 262144. That warps
//      send, and not blocks after a sum of theirs, saves 0.2 more.
//      So it is nearly as fast as a copy. On the device 1024, 4096, 16384, 65536 and 262144 elements take 5.3, 5.6,
//      5.7, 5.8 and 7.2 µs, a kernel that only copies 5.1, 5.1, 5.3, 5.3 and 5.7, an empty one 4.3 to 4.5, and CUB
//      7.9, 8.5, 8.5, 9.2 and 10.3 in the same run, where twice CUB's speed would be faster than a copy. On another
//      machine an empty kernel took 2.75, and that held at 1024 alone.
//      Where the own tile is scanned while the others come, and whole tiles have code of their own, 262144 take 0.1
//      less; clusters of 16, which each multiprocessor reads half as much for, another 0.1. A block sends one number
//      again, the sum of its share with that of its tile where the tile is before the other block's, and 262144 go
//      to eight clusters of 16, of which those that read most begin first: 2.8 µs in place of 3.05, CUB 5.7 in the
//      same run.
//      Longer inputs go in rounds of a tile for each block, with all blocks there at once. Blocks tell each other by
//      words that hold the time, so that an earlier call's are known. In step with each other they waited 1 µs a
//      round, and 2^26 took 191 to 280 µs, 175 with a look back tile by tile. With a ring of tiles that the copy
//      engine fills, a sum is published a round before it is needed: 147 (CUB 173, a copy 125).
//      What binds it now: the way of the bytes from memory and L2, 1.2 µs at 262144 beyond a copy's time.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kWidth = 4; // elements in 16 bytes
constexpr int kNap = 20;  // nanoseconds
constexpr unsigned kFullMask = 0xffffffffu;

// The sum over a warp, or over each group of kLanes of it.
template <int kLanes = 32> __device__ float prefix_sum_warp_sum(float value) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// Sums up to each lane and, in `before`, without it.
__device__ float prefix_sum_warp_scan(float value, float& before) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        float other = __shfl_up_sync(kFullMask, value, distance);
        if (lane >= distance)
            value += other;
    }
    before = __shfl_up_sync(kFullMask, value, 1);
    if (lane == 0)
        before = 0.0f;
    return value;
}

__device__ void prefix_sum_unpack(float (&x)[kWidth], uint4 packed) {
    x[0] = __uint_as_float(packed.x);
    x[1] = __uint_as_float(packed.y);
    x[2] = __uint_as_float(packed.z);
    x[3] = __uint_as_float(packed.w);
}

// The thread's elements from `first` on as they are in memory, zeros beyond the end.
__device__ uint4 prefix_sum_load(const float* input, long long first, int N) {
    if (first + kWidth <= N && ((size_t)(input + first) & 15) == 0)
        return *(const uint4*)(input + first);
    union {
        uint4 vector;
        float elements[kWidth];
    } packed;
    packed.vector = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        if (first + k < N)
            packed.elements[k] = input[first + k];
    return packed.vector;
}

__device__ void prefix_sum_store_vector(float* output, const float (&x)[kWidth]) {
    *(float4*)output = make_float4(x[0], x[1], x[2], x[3]);
}

__device__ void prefix_sum_store(float* output, const float (&x)[kWidth], long long first, int N) {
    if (first + kWidth <= N && ((size_t)(output + first) & 15) == 0) {
        prefix_sum_store_vector(output + first, x);
        return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        if (first + k < N)
            output[first + k] = x[k];
}

// The sum of a warp's vectors; x up to each element within its vector, offsets before each vector.
template <int kVectors>
__device__ __forceinline__ float prefix_sum_scan(const uint4 (&vectors)[kVectors],
                                                 float (&x)[kVectors][kWidth], float (&offsets)[kVectors]) {
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        prefix_sum_unpack(x[v], vectors[v]);
#pragma unroll
        for (int k = 1; k < kWidth; ++k)
            x[v][k] += x[v][k - 1];
        float up_to = prefix_sum_warp_scan(x[v][kWidth - 1], offsets[v]);
        offsets[v] += sum;
        sum += __shfl_sync(kFullMask, up_to, 31);
    }
    return sum;
}

__device__ __forceinline__ unsigned prefix_sum_shared(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Makes the block's barrier, which is passed once `bytes` have come, and tells the cluster that it is there.
__device__ __forceinline__ void prefix_sum_expect(unsigned barrier, int bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                     : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void prefix_sum_wait_for_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Writes to the same place in the shared memory of another block, whose barrier counts the bytes.
__device__ __forceinline__ void prefix_sum_send(int block, unsigned place, float value, unsigned barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    unsigned its_place, its_barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_place) : "r"(place), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_barrier) : "r"(barrier), "r"(block));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(its_place),
                 "f"(value), "r"(its_barrier)
                 : "memory");
#endif
}

__device__ __forceinline__ void prefix_sum_wait(unsigned barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;}" ::"r"(barrier)
                 : "memory");
#endif
}

// The sum of a number of each warp or block, or of the first ones: read whole by each thread, as few of them cost less
// than shuffles do.
template <int kCount>
__device__ __forceinline__ float prefix_sum_of(const float* numbers, int first = kCount) {
    float sums[4];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
        float4 of = *(const float4*)(numbers + i);
        const float four[] = {of.x, of.y, of.z, of.w};
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (i == 0)
                sums[k] = k < first ? four[k] : 0.0f;
            else
                sums[k] += i + k < first ? four[k] : 0.0f;
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A tile per block, kVectors vectors of 16 bytes a thread. The blocks of a cluster share out what is before it, and
// each block tells each other one the sum of its share, with its tile's where that is before the other's. Where the
// grid is one block, it needs no cluster. Input and output are aligned to 16 bytes. Whole tiles need no code for an
// end, so what runs lies together: instructions are cold, too.
template <int kThreads, int kVectors, int kCluster, int kClusters, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    prefix_sum_kernel_optimized(float* output, const float* input, int N) {
    constexpr int kWarps = kThreads / 32;
    constexpr bool kOneBlock = kCluster == 1;
    constexpr int kMaxEarlier = kOneBlock ? 1 : kClusters - 1;
    __shared__ __align__(16) float of_warps[kWarps], of_shares[kWarps], of_blocks[kCluster];
    __shared__ unsigned long long arrived;
    unsigned barrier = prefix_sum_shared(&arrived);
    int rank = blockIdx.x % kCluster, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int cluster = blockIdx.x / kCluster;
    // Eight clusters of 16 may not find a multiprocessor for each block at once: those that read most begin first.
    if (kCluster * kClusters > 64)
        cluster = gridDim.x / kCluster - 1 - cluster;
    int first = (((cluster * kCluster + rank) * kWarps + warp) * kVectors * 32 + lane) * kWidth;
    uint4 own[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        own[v] = kWhole ? *(const uint4*)(input + first + v * 32 * kWidth)
                        : prefix_sum_load(input, first + v * 32 * kWidth, N);
    uint4 earlier[kMaxEarlier][kVectors]; // of each cluster, all under way before the first is used
    if (!kOneBlock) {
        if (cluster > 0) { // a branch, so that nvcc has the own tile asked for first
            const uint4* share = (const uint4*)input + rank * kVectors * kThreads + threadIdx.x;
#pragma unroll
            for (int c = 0; c < kMaxEarlier; ++c)
#pragma unroll
                for (int v = 0; v < kVectors; ++v)
                    if (c < cluster)
                        earlier[c][v] = share[(c * kCluster * kVectors + v) * kThreads];
        }
        prefix_sum_expect(barrier, kCluster * sizeof(float));
    }
    // The own tile came first: it is scanned while the others are on their way.
    float x[kVectors][kWidth], offsets[kVectors];
    float sum = prefix_sum_scan(own, x, offsets);
    if (lane == 0)
        of_warps[warp] = sum;
    __syncthreads();
    float part = prefix_sum_of<kWarps>(of_warps, warp);
    float told = rank < lane ? prefix_sum_of<kWarps>(of_warps) : 0.0f; // to a block behind this one
    if (!kOneBlock) {
        float before = 0.0f;
#pragma unroll
        for (int c = 0; c < kMaxEarlier; ++c)
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                float y[kWidth];
                prefix_sum_unpack(y, earlier[c][v]);
#pragma unroll
                for (int distance = kWidth / 2; distance > 0; distance /= 2)
#pragma unroll
                    for (int k = 0; k < distance; ++k)
                        y[k] += y[k + distance];
                if (c < cluster)
                    before += y[0];
            }
        before = prefix_sum_warp_sum(before);
        if (lane == 0)
            of_shares[warp] = before;
        prefix_sum_wait_for_cluster();
        __syncthreads();
        if (threadIdx.x < kCluster) {
            told += prefix_sum_of<kWarps>(of_shares);
            prefix_sum_send(lane, prefix_sum_shared(&of_blocks[rank]), told, barrier);
        }
        prefix_sum_wait(barrier);
        part += prefix_sum_of<kCluster>(of_blocks);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            x[v][k] += part + offsets[v];
        if (kWhole)
            prefix_sum_store_vector(output + first + v * 32 * kWidth, x[v]);
        else
            prefix_sum_store(output, x[v], first + v * 32 * kWidth, N);
    }
}

// Long inputs: as many blocks as can be there at once go through the input in rounds, a tile each. The copy engine
// brings tiles to a ring, and a block publishes the sum of a tile a round before it scans that tile. So in each round
// it finds the sums of all its tiles in one look, and adds up those of earlier rounds itself. A word holds the sum,
// its round, and the time, in 16 bytes that are written at once. One that is not younger than the block that reads it
// may be an earlier call's, so nothing has to be cleared.
constexpr int kRing = 3; // a tile that is scanned, one whose sum is published, one on its way
constexpr int kRoundVectors = 8;
constexpr int kMaxWords = 1024;
constexpr int kLooks = 16; // until a block publishes again, in its first round

__device__ ulonglong2 round_words[2][kMaxWords];

__device__ __forceinline__ unsigned long long prefix_sum_now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ void prefix_sum_publish_word(ulonglong2* word, float sum, int round) {
    unsigned long long low = (unsigned long long)round << 32 | __float_as_uint(sum), time = prefix_sum_now();
    asm volatile("{.reg .b128 word;\n"
                 "mov.b128 word, {%1, %2};\n"
                 "st.relaxed.gpu.global.b128 [%0], word;}" ::"l"(word),
                 "l"(low), "l"(time)
                 : "memory");
}

// Whether the word of this round is there.
__device__ __forceinline__ bool prefix_sum_look(const ulonglong2* word, int round, unsigned long long begun,
                                                float& sum) {
    unsigned long long low, time;
    asm volatile("{.reg .b128 word;\n"
                 "ld.relaxed.gpu.global.b128 word, [%2];\n"
                 "mov.b128 {%0, %1}, word;}"
                 : "=l"(low), "=l"(time)
                 : "l"(word)
                 : "memory");
    sum = __uint_as_float((unsigned)low);
    return time > begun && (int)(low >> 32) == round;
}

__device__ __forceinline__ void prefix_sum_ask(unsigned full, void* place, const void* from, int bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            prefix_sum_shared(place)),
        "l"(from), "r"(bytes), "r"(full)
        : "memory");
#endif
}

__device__ __forceinline__ void prefix_sum_wait_for_tile(unsigned full, int parity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(full),
                 "r"(parity)
                 : "memory");
#endif
}

// The sum of a number of each warp, or of the first ones, in all threads.
template <int kWarps>
__device__ float prefix_sum_of_warps(const float (&of_warps)[kWarps], int first = kWarps) {
    int which = threadIdx.x % kWarps;
    return prefix_sum_warp_sum<kWarps>(which < first ? of_warps[which] : 0.0f);
}

template <int kBlockThreads, int kBlocks> // threads of a block, blocks of a multiprocessor
__global__ void __launch_bounds__(kBlockThreads, kBlocks)
    prefix_sum_rounds_kernel_optimized(float* output, const float* input, int N) {
    constexpr int kWarps = kBlockThreads / 32;
    constexpr int kVectorsOfTile = kBlockThreads * kRoundVectors;
    constexpr int kTile = kVectorsOfTile * kWidth;
    extern __shared__ __align__(128) uint4 ring[];
    __shared__ float next_sums[2][kWarps], of_warps[2][kWarps], of_earlier[2][kWarps], of_round[2][kWarps];
    __shared__ unsigned long long full[kRing];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;
    int at = warp * kRoundVectors * 32 + lane; // a thread's first vector of a tile
    bool publishes = threadIdx.x == kBlockThreads - 32;
    unsigned long long begun = prefix_sum_now();
    if (threadIdx.x < blocks)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(&round_words[0][threadIdx.x]));
    int tiles = (N - 1) / kTile + 1;
    int whole = (((size_t)output | (size_t)input) & 15) == 0 ? N / kTile : 0; // of them, by the copy engine
    if (threadIdx.x == 0) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        for (int s = 0; s < kRing; ++s)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(prefix_sum_shared(&full[s]))
                         : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        for (int s = 0, tile = blockIdx.x; s < kRing && tile < whole; ++s, tile += blocks)
            prefix_sum_ask(prefix_sum_shared(&full[s]), ring + s * kVectorsOfTile,
                           input + (long long)tile * kTile, kTile * sizeof(float));
    }
    __syncthreads();
    // The sum of a warp's part of a tile, which is put into the ring if the copy engine does not bring it.
    auto sum_of = [&](int tile, int stage, int parity) {
        uint4* part = ring + stage * kVectorsOfTile + at;
        if (tile < whole)
            prefix_sum_wait_for_tile(prefix_sum_shared(&full[stage]), parity);
        else
#pragma unroll 1
            for (int v = 0; v < kRoundVectors; ++v)
                part[v * 32] =
                    prefix_sum_load(input, ((long long)tile * kVectorsOfTile + at + v * 32) * kWidth, N);
        float sum = 0.0f;
#pragma unroll
        for (int v = 0; v < kRoundVectors; ++v) {
            float y[kWidth];
            prefix_sum_unpack(y, part[v * 32]);
#pragma unroll
            for (int distance = kWidth / 2; distance > 0; distance /= 2)
#pragma unroll
                for (int k = 0; k < distance; ++k)
                    y[k] += y[k + distance];
            sum += y[0];
        }
        return prefix_sum_warp_sum(sum);
    };
    float first_sum = sum_of(blockIdx.x, 0, 0);
    if (lane == 0)
        next_sums[1][warp] = first_sum;
    __syncthreads();
    float of_tile = prefix_sum_of_warps(next_sums[1]);
    if (publishes)
        prefix_sum_publish_word(&round_words[0][blockIdx.x], of_tile, 0);
    float of_rounds = 0.0f; // before this one
    int stage = 0, parity = 0;
    for (int round = 0, tile = blockIdx.x; tile < tiles; ++round, tile += blocks) {
        int odd = round % 2;
        int next_stage = stage + 1 < kRing ? stage + 1 : 0;
        int next_parity = next_stage == 0 ? parity ^ 1 : parity;
        if (tile + blocks < tiles) {
            float next_sum = sum_of(tile + blocks, next_stage, next_parity);
            if (lane == 0)
                next_sums[odd][warp] = next_sum;
        }
        uint4 vectors[kRoundVectors];
#pragma unroll
        for (int v = 0; v < kRoundVectors; ++v)
            vectors[v] = ring[stage * kVectorsOfTile + at + v * 32];
        float x[kRoundVectors][kWidth], offsets[kRoundVectors];
        float sum = prefix_sum_scan(vectors, x, offsets);
        if (lane == 0)
            of_warps[odd][warp] = sum;
        // In the first round of all blocks, so that none waits for a block that ended before it began.
        int here = min(blocks, tiles - round * blocks); // tiles of this round
        int words = round > 0 && here < blocks ? (int)blockIdx.x : here;
        float earlier = 0.0f, all = 0.0f;
        for (int i = threadIdx.x; i < words; i += kBlockThreads) {
            float of_word;
            for (int looks = 1; !prefix_sum_look(&round_words[odd][i], round, begun, of_word); ++looks) {
                __nanosleep(kNap);
                if (round == 0 && looks % kLooks == 0) // younger than a block that began later
                    prefix_sum_publish_word(&round_words[0][blockIdx.x], of_tile, 0);
            }
            all += of_word;
            if (i < (int)blockIdx.x)
                earlier += of_word;
        }
        earlier = prefix_sum_warp_sum(earlier);
        all = prefix_sum_warp_sum(all);
        if (lane == 0) {
            of_earlier[odd][warp] = earlier;
            of_round[odd][warp] = all;
        }
        __syncthreads();
        if (round == 0 && publishes) // all blocks have begun now
            prefix_sum_publish_word(&round_words[0][blockIdx.x], of_tile, 0);
        if (tile + blocks < tiles) {
            of_tile = prefix_sum_of_warps(next_sums[odd]);
            if (publishes)
                prefix_sum_publish_word(&round_words[odd ^ 1][blockIdx.x], of_tile, round + 1);
        }
        if (threadIdx.x == 0 && tile + (long long)kRing * blocks < whole)
            prefix_sum_ask(prefix_sum_shared(&full[stage]), ring + stage * kVectorsOfTile,
                           input + ((long long)tile + (long long)kRing * blocks) * kTile,
                           kTile * sizeof(float));
        float before =
            of_rounds + prefix_sum_of_warps(of_earlier[odd]) + prefix_sum_of_warps(of_warps[odd], warp);
        of_rounds += prefix_sum_of_warps(of_round[odd]);
        long long first = ((long long)tile * kVectorsOfTile + at) * kWidth;
#pragma unroll
        for (int v = 0; v < kRoundVectors; ++v)
#pragma unroll
            for (int k = 0; k < kWidth; ++k)
                x[v][k] += before + offsets[v];
        if (tile < whole) {
#pragma unroll
            for (int v = 0; v < kRoundVectors; ++v)
                prefix_sum_store_vector(output + first + v * 32 * kWidth, x[v]);
        } else {
#pragma unroll
            for (int v = 0; v < kRoundVectors; ++v)
                prefix_sum_store(output, x[v], first + v * 32 * kWidth, N);
        }
        stage = next_stage;
        parity = next_parity;
    }
}

// GPUs without clusters and copy engine: a block takes the next tile, scans it and looks back for what is before it.
constexpr int kClearThreads = 256;
constexpr int kLongThreads = 512;
constexpr int kLongVectors = 8; // of a thread
constexpr int kLongTile = kLongThreads * kLongVectors * kWidth;
constexpr int kMaxTiles = 0x7fffffff / kLongTile + 1;
constexpr unsigned long long kOfTile = 1ull << 32, kOfAllSoFar = 2ull << 32;

__device__ unsigned long long
    tile_sums[kMaxTiles]; // a sum in the lower half; in the upper, what it is of, 0 for nothing
__device__ int tiles_begun;

// A launch may begin before the one before it has ended.
__device__ __forceinline__ void prefix_sum_begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before this one has ended, and all that it wrote is there.
__device__ __forceinline__ void prefix_sum_wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__global__ void prefix_sum_clear_kernel_optimized(int tiles) {
    prefix_sum_begin_next();
    int tile = blockIdx.x * blockDim.x + threadIdx.x;
    if (tile < tiles)
        tile_sums[tile] = 0;
    if (tile == 0)
        tiles_begun = 0;
}

// Word and flag are one, so that nothing else has to be ordered.
__device__ void prefix_sum_publish(int tile, unsigned long long what, float sum) {
    unsigned long long word = what | __float_as_uint(sum);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&tile_sums[tile]), "l"(word) : "memory");
}

__device__ unsigned long long prefix_sum_published(int tile) {
    unsigned long long word;
    for (;;) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(&tile_sums[tile]) : "memory");
        if (word != 0)
            return word;
        __nanosleep(kNap);
    }
}

// The sum of all before a tile, by one warp: of single tiles, 32 at a time, down to one that knows all before it.
__device__ float prefix_sum_look_back(int tile) {
    float sum = 0.0f;
    for (int last = tile - 1, lane = threadIdx.x % 32;; last -= 32) {
        unsigned long long word = kOfAllSoFar; // before the first tile
        if (lane <= last)
            word = prefix_sum_published(last - lane);
        unsigned know_all = __ballot_sync(kFullMask, word >= kOfAllSoFar);
        int end = know_all != 0 ? __ffs(know_all) - 1 : 31;
        sum += prefix_sum_warp_sum(lane <= end ? __uint_as_float((unsigned)word) : 0.0f);
        if (know_all != 0)
            return sum;
    }
}

__global__ void __launch_bounds__(kLongThreads)
    prefix_sum_long_kernel_optimized(float* output, const float* input, int N) {
    __shared__ float warp_sums[kLongThreads / 32], sum_before;
    __shared__ int taken;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    prefix_sum_wait_for_last();
    if (threadIdx.x == 0)
        taken = atomicAdd(&tiles_begun, 1); // so that all tiles before this one have begun
    __syncthreads();
    int tile = taken;
    long long first = (long long)tile * kLongTile + (warp * kLongVectors * 32 + lane) * kWidth;
    uint4 vectors[kLongVectors];
#pragma unroll
    for (int v = 0; v < kLongVectors; ++v)
        vectors[v] = prefix_sum_load(input, first + v * 32 * kWidth, N);
    float x[kLongVectors][kWidth], offsets[kLongVectors];
    float sum = prefix_sum_scan(vectors, x, offsets);
    if (lane == 0)
        warp_sums[warp] = sum;
    __syncthreads();
    float of_warp = lane < kLongThreads / 32 ? warp_sums[lane] : 0.0f;
    float before = prefix_sum_warp_sum(lane < warp ? of_warp : 0.0f);
    if (warp == 0) {
        float all = prefix_sum_warp_sum(of_warp), earlier = 0.0f;
        if (tile > 0) {
            if (lane == 0)
                prefix_sum_publish(tile, kOfTile, all);
            earlier = prefix_sum_look_back(tile);
        }
        if (lane == 0) {
            prefix_sum_publish(tile, kOfAllSoFar, earlier + all);
            sum_before = earlier;
        }
    }
    __syncthreads();
    before += sum_before;
#pragma unroll
    for (int v = 0; v < kLongVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            x[v][k] += before + offsets[v];
        prefix_sum_store(output, x[v], first + v * 32 * kWidth, N);
    }
}

// Whether clusters could be started: a GPU before sm_90 has none, and not every GPU has those of 16 blocks.
template <int kThreads, int kVectors, int kCluster, int kClusters>
bool prefix_sum_clusters(float* output, const float* input, int N) {
    constexpr int kTiles = kCluster * kThreads * kVectors * kWidth;
    auto kernel = N % kTiles == 0
                      ? prefix_sum_kernel_optimized<kThreads, kVectors, kCluster, kClusters, true>
                      : prefix_sum_kernel_optimized<kThreads, kVectors, kCluster, kClusters, false>;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(((N - 1) / kTiles + 1) * kCluster);
    config.blockDim = dim3(kThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if ((kCluster <= 8 ||
         cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess) &&
        cudaLaunchKernelEx(&config, kernel, output, input, N) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

template <int kBlockThreads, int kBlocks> bool prefix_sum_rounds(float* output, const float* input, int N) {
    constexpr int kTile = kBlockThreads * kRoundVectors * kWidth;
    auto kernel = prefix_sum_rounds_kernel_optimized<kBlockThreads, kBlocks>;
    int device, major, blocks, tiles = (N - 1) / kTile + 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major < 9)
        return false;
    blocks *= kBlocks;
    if (blocks > tiles)
        blocks = tiles;
    if (blocks > kMaxWords)
        blocks = kMaxWords;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kBlockThreads);
    config.dynamicSmemBytes = kRing * kTile * sizeof(float);
    config.attrs = &together;
    config.numAttrs = 1;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)config.dynamicSmemBytes) == cudaSuccess &&
        cudaLaunchKernelEx(&config, kernel, output, input, N) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

void prefix_sum_long(float* output, const float* input, int N) {
    int tiles = (N - 1) / kLongTile + 1;
    prefix_sum_clear_kernel_optimized<<<(tiles - 1) / kClearThreads + 1, kClearThreads>>>(tiles);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(kLongThreads);
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, prefix_sum_long_kernel_optimized, output, input, N);
}

extern "C" void prefix_sum_optimized(float* output, const float* input, int N) {
    bool aligned = (((size_t)output | (size_t)input) & 15) == 0, started = false;
    if (aligned && N <= 1024) {
        prefix_sum_kernel_optimized<256, 1, 1, 1, false><<<1, 256>>>(output, input, N);
        return;
    }
    if (aligned && N <= 1 << 16)
        started = prefix_sum_clusters<256, 1, 8, 8>(output, input, N);
    else if (aligned && N <= 1 << 17)
        started = prefix_sum_clusters<256, 2, 8, 8>(output, input, N);
    else if (aligned && N <= 1 << 18)
        started = prefix_sum_clusters<256, 2, 16, 8>(output, input, N) ||
                  prefix_sum_clusters<256, 4, 8, 8>(output, input, N);
    if (!started) // larger tiles of longer inputs, for fewer rounds
        started = N <= 1 << 22 ? prefix_sum_rounds<256, 2>(output, input, N)
                               : prefix_sum_rounds<512, 1>(output, input, N);
    if (!started)
        prefix_sum_long(output, input, N);
}
