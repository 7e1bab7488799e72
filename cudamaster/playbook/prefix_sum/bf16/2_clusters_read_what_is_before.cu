// idea: Clusters read all that is before them, and one launch is enough
// why: A block has to know the sum of all before it. In step 1 a launch of its own finds the sums, which takes as
//      long as the rest. Blocks of one launch can tell each other through memory, but on an H200 that takes 0.7, 1.5
//      and 3.3 µs beyond an empty launch among 8, 32 and 128 blocks, and needs a cooperative launch or words that an
//      earlier call left. Instead the eight blocks of a cluster share out all that lies before it, a vector of each
//      earlier cluster for each thread, requested together with its own one. Each warp sends two numbers to all
//      blocks of its cluster, whose barriers count them, and that is the only exchange. No state is left between
//      calls, sums of up to 2^19 elements have a fixed order, and what fits in one tile is scanned by one block.
//      262144 elements take 1.8 to 2.1 µs beyond an empty launch; that time is from before the wait had the scope of
//      the cluster. Since then blocks have 256 threads of one, two or four vectors in place of 512 of one, and warps
//      send, not blocks after a sum of theirs: 6.0 instead of 6.5 µs on the device at 16384, each 0.25.
//      So it is nearly as fast as a copy. On the device 1024, 4096, 16384, 65536 and 262144 elements take 5.5, 5.6,
//      5.8, 6.0 and 6.7 µs, a kernel that only copies 5.3, 5.3, 5.3, 5.5 and 5.6, an empty one 4.5, and CUB 8.6, 9.2,
//      9.4, 9.3 and 10.5 in the same run, where twice CUB's speed would be faster than a copy. On another machine an
//      empty kernel took 2.75, and that held at 1024 alone.
//      Longer inputs, and GPUs without clusters, take a clearing launch and a single pass: a block takes the next
//      tile and looks back, 32 tiles at a time, to the nearest one that knows the sum of all before it. Tiles go one
//      after another at 30 ns each, so twice the elements a tile take 2^26 from 116 to 108 µs (CUB 140); the pass
//      begins before the clearing ends, which saves 0.8 at 2^20. 2^19 elements by clusters of 1024 threads a block
//      took 8.0 instead of 10.9.
//      What binds it now: the way of the bytes from memory and L2, 1.1 µs at 262144 beyond an empty kernel's time.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWidth = 8; // elements in 16 bytes
constexpr int kAlone = 2; // vectors of 16 bytes a thread of a block that has all elements
constexpr int kCluster = 8;
constexpr int kMaxClusters = 8;
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float prefix_sum_warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
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
    const unsigned pairs[] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int k = 0; k < kWidth / 2; ++k) { // a bf16 is the upper half of a float
        x[2 * k] = __uint_as_float(pairs[k] << 16);
        x[2 * k + 1] = __uint_as_float(pairs[k] & 0xffff0000u);
    }
}

// The thread's elements from `first` on as they are in memory, zeros beyond the end.
__device__ uint4 prefix_sum_load(const __nv_bfloat16* input, long long first, int N) {
    if (first + kWidth <= N && ((size_t)(input + first) & 15) == 0)
        return *(const uint4*)(input + first);
    union {
        uint4 vector;
        __nv_bfloat16 elements[kWidth];
    } packed;
    packed.vector = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        if (first + k < N)
            packed.elements[k] = input[first + k];
    return packed.vector;
}

__device__ void prefix_sum_store(__nv_bfloat16* output, const float (&x)[kWidth], long long first, int N) {
    if (first + kWidth <= N && ((size_t)(output + first) & 15) == 0) {
        union {
            uint4 vector;
            __nv_bfloat162 pairs[kWidth / 2];
        } packed;
#pragma unroll
        for (int k = 0; k < kWidth / 2; ++k)
            packed.pairs[k] = __floats2bfloat162_rn(x[2 * k], x[2 * k + 1]);
        *(uint4*)(output + first) = packed.vector;
        return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        if (first + k < N)
            output[first + k] = __float2bfloat16(x[k]);
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
__device__ __forceinline__ void prefix_sum_send(int block, unsigned place, float2 value, unsigned barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    unsigned its_place, its_barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_place) : "r"(place), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_barrier) : "r"(barrier), "r"(block));
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(its_place),
        "f"(value.x), "f"(value.y), "r"(its_barrier)
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

// A tile per block, kVectors vectors of 16 bytes a thread. The blocks of a cluster share out what is before it, and each
// warp tells all others what it found. Where the grid is one block, it needs no cluster. Input and output are aligned to
// 16 bytes.
template <int kVectors, bool kOneBlock>
__global__ void __launch_bounds__(kThreads)
    prefix_sum_bf16_kernel_optimized(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    constexpr int kWarps = kThreads / 32;
    constexpr int kAll = kOneBlock ? kWarps : kWarps * kCluster; // of the cluster
    __shared__ float2 of_warps[kAll];                            // before the cluster, and of the tile
    __shared__ unsigned long long arrived;
    unsigned barrier = prefix_sum_shared(&arrived);
    int rank = kOneBlock ? 0 : blockIdx.x % kCluster, lane = threadIdx.x % 32;
    int warp = rank * kWarps + threadIdx.x / 32; // of all
    int first = ((blockIdx.x * kWarps + threadIdx.x / 32) * kVectors * 32 + lane) * kWidth;
    uint4 own[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        own[v] = prefix_sum_load(input, first + v * 32 * kWidth, N);
    float before = 0.0f;
    if (!kOneBlock) {
        int cluster = blockIdx.x / kCluster;
        uint4 earlier[kMaxClusters - 1][kVectors]; // of each cluster, all under way before the first is used
#pragma unroll
        for (int c = 0; c < kMaxClusters - 1; ++c)
#pragma unroll
            for (int v = 0; v < kVectors; ++v)
                if (c < cluster)
                    earlier[c][v] = ((
                        const uint4*)input)[((c * kCluster + rank) * kVectors + v) * kThreads + threadIdx.x];
        prefix_sum_expect(barrier, kAll * sizeof(float2));
#pragma unroll
        for (int c = 0; c < kMaxClusters - 1; ++c)
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                float y[kWidth];
                prefix_sum_unpack(y, earlier[c][v]);
#pragma unroll
                for (int k = 1; k < kWidth; ++k)
                    y[0] += y[k];
                if (c < cluster)
                    before += y[0];
            }
        before = prefix_sum_warp_sum(before);
    }
    float x[kVectors][kWidth], offsets[kVectors],
        sum = 0.0f; // of all before a vector, from its warp's first element on
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        prefix_sum_unpack(x[v], own[v]);
#pragma unroll
        for (int k = 1; k < kWidth; ++k)
            x[v][k] += x[v][k - 1];
        float up_to = prefix_sum_warp_scan(x[v][kWidth - 1], offsets[v]);
        offsets[v] += sum;
        sum += __shfl_sync(kFullMask, up_to, 31);
    }
    if (!kOneBlock) {
        prefix_sum_wait_for_cluster();
        if (lane < kCluster)
            prefix_sum_send(lane, prefix_sum_shared(&of_warps[warp]), make_float2(before, sum), barrier);
        prefix_sum_wait(barrier);
    } else {
        if (lane == 0)
            of_warps[warp] = make_float2(before, sum);
        __syncthreads();
    }
    float part = 0.0f;
#pragma unroll
    for (int i = lane; i < kAll; i += 32)
        part += of_warps[i].x + (i < warp ? of_warps[i].y : 0.0f);
    part = prefix_sum_warp_sum(part);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            x[v][k] += part + offsets[v];
        prefix_sum_store(output, x[v], first + v * 32 * kWidth, N);
    }
}

// Long inputs, and GPUs without clusters: a block takes the next tile, scans it and looks back for what is before it.
constexpr int kLongThreads = 1024;
constexpr int kLongVectors = 4; // of a thread
constexpr int kLongTile = kLongThreads * kLongVectors * kWidth;
constexpr int kMaxTiles = 0x7fffffff / kLongTile + 1;
constexpr int kNap = 20; // nanoseconds
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

__global__ void prefix_sum_clear_bf16_kernel_optimized(int tiles) {
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
    prefix_sum_long_bf16_kernel_optimized(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
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
    float x[kLongVectors][kWidth], offsets[kLongVectors], sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kLongVectors; ++v) {
        prefix_sum_unpack(x[v], vectors[v]);
#pragma unroll
        for (int k = 1; k < kWidth; ++k)
            x[v][k] += x[v][k - 1];
        float up_to = prefix_sum_warp_scan(x[v][kWidth - 1], offsets[v]);
        offsets[v] += sum;
        sum += __shfl_sync(kFullMask, up_to, 31);
    }
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

// Whether clusters could be started: a GPU before sm_90 has none.
template <int kVectors>
bool prefix_sum_clusters_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(((N - 1) / (kCluster * kThreads * kVectors * kWidth) + 1) * kCluster);
    config.blockDim = dim3(kThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, prefix_sum_bf16_kernel_optimized<kVectors, false>, output, input, N) ==
        cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

void prefix_sum_long_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    int tiles = (N - 1) / kLongTile + 1;
    prefix_sum_clear_bf16_kernel_optimized<<<(tiles - 1) / kThreads + 1, kThreads>>>(tiles);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(kLongThreads);
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, prefix_sum_long_bf16_kernel_optimized, output, input, N);
}

extern "C" void prefix_sum_bf16_optimized(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    constexpr int kMost = kMaxClusters * kCluster * kThreads * kWidth; // elements, of one vector a thread
    bool aligned = (((size_t)output | (size_t)input) & 15) == 0, started = false;
    if (aligned && N <= kThreads * kAlone * kWidth) {
        prefix_sum_bf16_kernel_optimized<kAlone, true><<<1, kThreads>>>(output, input, N);
        return;
    }
    if (aligned && N <= kMost)
        started = prefix_sum_clusters_bf16<1>(output, input, N);
    else if (aligned && N <= 2 * kMost)
        started = prefix_sum_clusters_bf16<2>(output, input, N);
    else if (aligned && N <= 4 * kMost)
        started = prefix_sum_clusters_bf16<4>(output, input, N);
    if (!started)
        prefix_sum_long_bf16(output, input, N);
}
