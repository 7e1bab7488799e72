// What threads wrote and a copy in bulk then reads or overwrites, in kernels of many styles: the arguments are the style's name, and
// where the fence between proxies is. The numbers are right on this device wherever it is.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

// Of the thread that wrote, behind that; of the one that copies, before that; both, but of the other kind of memory.
enum Where { kNowhere, kBehindTheWrite, kBeforeTheCopy, kOfOtherMemory };
enum Memory { kShared, kCluster, kGlobal };

__device__ __forceinline__ void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fence_cluster() {
    asm volatile("fence.proxy.async.shared::cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
template <Memory memory> __device__ __forceinline__ void fence_here(Where here, Where wanted) {
    if (wanted == kOfOtherMemory)
        memory == kGlobal ? fence_cluster() : fence_global();
    else if (wanted == here)
        memory == kShared ? fence_shared() : memory == kCluster ? fence_cluster() : fence_global();
}

__device__ __forceinline__ unsigned address_of(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ unsigned there(const void* p, unsigned rank) {
    unsigned address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address_of(p)), "r"(rank));
    return address;
}
__device__ __forceinline__ void init(const void* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(const void* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barrier)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void arrive(const void* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}
__device__ __forceinline__ void wait_for(const void* barrier, unsigned parity) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(address_of(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void load(void* to, const void* from, unsigned bytes, const void* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            address_of(to)),
        "l"(from), "r"(bytes), "r"(address_of(barrier))
        : "memory");
}
__device__ __forceinline__ void store(void* to, const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(address_of(from)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void add(float* to, const float* from, unsigned bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(address_of(from)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
__device__ __forceinline__ void sync_cluster_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

constexpr unsigned kThreads = 64, kBytes = kThreads * sizeof(float), kTiles = 6;
constexpr unsigned kAll = kThreads * kTiles;

// A tile of global memory comes into shared memory, by the first thread; all wait.
__device__ __forceinline__ void bring(float* tile, const float* from, void* full) {
    if (threadIdx.x == 0) {
        expect(full, kBytes);
        load(tile, from, kBytes, full);
    }
}

// Threads set a buffer to zero before a copy fills it.
__global__ void zeroed(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x;
    tile[t] = 0;
    fence_here<kShared>(kBehindTheWrite, where);
    if (t == 0)
        init(&full, 1);
    __syncthreads();
    if (t == 0)
        fence_here<kShared>(kBeforeTheCopy, where);
    bring(tile, in + blockIdx.x * kThreads, &full);
    wait_for(&full, 0);
    out[blockIdx.x * kThreads + t] = tile[t] + 1;
}

// A ring of two buffers, a warp that has them filled, two that read, and write into it or not before they let it go.
template <bool writes> __device__ __forceinline__ void turn_ring(const float* in, float* out, Where where) {
    __shared__ __align__(128) float tiles[2][kThreads];
    __shared__ uint64_t full[2], empty[2];
    unsigned t = threadIdx.x;
    if (t == 0)
        for (int i = 0; i < 2; ++i) {
            init(&full[i], 1);
            init(&empty[i], kThreads);
        }
    __syncthreads();
    for (unsigned i = 0; i < kTiles; ++i) {
        unsigned stage = i % 2, round = i / 2;
        if (t >= kThreads) {
            if (t > kThreads)
                continue;
            wait_for(&empty[stage], (round & 1) ^ 1);
            fence_here<kShared>(kBeforeTheCopy, where);
            expect(&full[stage], kBytes);
            load(tiles[stage], in + i * kThreads, kBytes, &full[stage]);
            continue;
        }
        wait_for(&full[stage], round & 1);
        float sum = tiles[stage][t] + 1;
        if (writes) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            tiles[stage][kThreads - 1 - t] = sum;
            asm volatile("bar.sync 1, 64;" ::: "memory");
            sum = tiles[stage][kThreads - 1 - t];
            fence_here<kShared>(kBehindTheWrite, where);
        }
        out[i * kThreads + t] = sum;
        arrive(&empty[stage]);
    }
}
__global__ void ring(const float* in, float*, float* out, Where where) {
    turn_ring<true>(in, out, where);
}
__global__ void ring_of_readers(const float* in, float*, float* out, Where where) {
    turn_ring<false>(in, out, where);
}

// A buffer is scratch of one warp, which says by a barrier with a number that it is free.
__global__ void numbered(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x;
    if (t == 0)
        init(&full, 1);
    __syncthreads();
    for (unsigned i = 0; i < kTiles; ++i) {
        if (t < 32) {
            asm volatile("bar.sync 2, 64;" ::: "memory");
            if (t == 0)
                fence_here<kShared>(kBeforeTheCopy, where);
            bring(tile, in + i * kThreads, &full);
        } else {
            tile[t] = tile[t - 32] = 5;
            fence_here<kShared>(kBehindTheWrite, where);
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
        wait_for(&full, i & 1);
        out[i * kThreads + t] = tile[t] + 1;
        __syncthreads();
    }
}

// One buffer is filled by a copy, changed, stored by a copy, and filled again.
__global__ void staging(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x;
    if (t == 0)
        init(&full, 1);
    __syncthreads();
    for (unsigned i = 0; i < kTiles; ++i) {
        bring(tile, in + i * kThreads, &full);
        wait_for(&full, i & 1);
        tile[t] += 1;
        fence_here<kShared>(kBehindTheWrite, where);
        __syncthreads();
        if (t == 0) {
            fence_here<kShared>(kBeforeTheCopy, where);
            store(out + i * kThreads, tile, kBytes);
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
    }
    if (t == 0)
        wait_for_stores();
}

// What a kernel staged for plain stores lies where the next tile's copy goes.
__global__ void united(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x;
    if (t == 0)
        init(&full, 1);
    __syncthreads();
    for (unsigned i = 0; i < kTiles; ++i) {
        if (t == 0)
            fence_here<kShared>(kBeforeTheCopy, where);
        bring(tile, in + i * kThreads, &full);
        wait_for(&full, i & 1);
        float mine = tile[t] + 1;
        __syncthreads();
        tile[t ^ 1] = mine;
        fence_here<kShared>(kBehindTheWrite, where);
        __syncthreads();
        out[i * kThreads + t] = tile[t ^ 1];
        __syncthreads();
    }
}

// Another block of the cluster writes into this one's shared memory, which a copy then stores.
__global__ void __cluster_dims__(2) remote(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x, other = blockIdx.x % 2 ^ 1;
    sync_cluster();
    float value = in[(blockIdx.x ^ 1) * kThreads + t] + 1;
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there(&tile[t], other)), "f"(value) : "memory");
    fence_here<kCluster>(kBehindTheWrite, where);
    sync_cluster();
    if (t == 0) {
        fence_here<kCluster>(kBeforeTheCopy, where);
        store(out + blockIdx.x * kThreads, tile, kBytes);
        wait_for_stores();
    }
}

// The same by st.async, which is no asynchronous proxy's.
__global__ void __cluster_dims__(2) sent(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, other = blockIdx.x % 2 ^ 1;
    if (t == 0) {
        init(&full, 1);
        expect(&full, kBytes);
    }
    sync_cluster_relaxed(); // of barriers a fence of their own has told
    float value = in[(blockIdx.x ^ 1) * kThreads + t] + 1;
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     there(&tile[t], other)),
                 "f"(value), "r"(there(&full, other))
                 : "memory");
    wait_for(&full, 0);
    if (t == 0) {
        fence_here<kShared>(kBeforeTheCopy, where);
        store(out + blockIdx.x * kThreads, tile, kBytes);
        wait_for_stores();
    }
    sync_cluster();
}

// Threads write a tile to global memory, and a copy picks it up: behind a barrier, or by the thread that wrote all of it.
__global__ void picked_up(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&full, 1);
    scratch[at + t] = in[at + t] + 1;
    fence_here<kGlobal>(kBehindTheWrite, where);
    __syncthreads();
    if (t == 0)
        fence_here<kGlobal>(kBeforeTheCopy, where);
    bring(tile, scratch + at, &full);
    wait_for(&full, 0);
    out[at + t] = tile[t];
}
__global__ void own(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0) {
        init(&full, 1);
        for (unsigned i = 0; i < kThreads; ++i)
            scratch[at + i] = in[at + i] + 1;
        fence_here<kGlobal>(kBeforeTheCopy, where);
    }
    bring(tile, scratch + at, &full);
    __syncthreads();
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// The same in C++.
__global__ void in_cxx(const float* in, float* scratch, float* out, Where where) {
    namespace ptx = cuda::ptx;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    uint32_t t = threadIdx.x, at = blockIdx.x * kThreads, bytes = kBytes;
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    scratch[at + t] = in[at + t] + 1;
    if (where == kBehindTheWrite)
        ptx::fence_proxy_async(ptx::space_global);
    if (where == kOfOtherMemory)
        ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
        if (where == kBeforeTheCopy)
            ptx::fence_proxy_async();
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, bytes);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, scratch + at, bytes, &full);
    }
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {
    }
    out[at + t] = tile[t];
}

// Over two stops: an mbarrier, then a barrier with a number. A fence at the first of them serves, too.
__global__ void handed_on(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full, written;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0) {
        init(&full, 1);
        init(&written, kThreads);
    }
    __syncthreads();
    scratch[at + t] = in[at + t] + 1;
    arrive(&written);
    if (t >= 32) {
        wait_for(&written, 0);
        fence_here<kGlobal>(kBehindTheWrite, where);
        asm volatile("bar.arrive 3, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 3, 64;" ::: "memory");
        if (t == 0)
            fence_here<kGlobal>(kBeforeTheCopy, where);
        bring(tile, scratch + at, &full);
    }
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// One lane fences for its warp, which it has met.
__global__ void elected(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full, written;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0) {
        init(&full, 1);
        init(&written, kThreads / 32);
    }
    __syncthreads();
    scratch[at + t] = in[at + t] + 1;
    __syncwarp();
    if (t % 32 == 0) {
        fence_here<kGlobal>(kBehindTheWrite, where);
        arrive(&written);
    }
    if (t == 0) {
        wait_for(&written, 0);
        fence_here<kGlobal>(kBeforeTheCopy, where);
    }
    bring(tile, scratch + at, &full);
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// Each lane fences what it wrote itself, and meets its warp behind that.
__global__ void met(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full, written;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0) {
        init(&full, 1);
        init(&written, kThreads / 32);
    }
    __syncthreads();
    scratch[at + t] = in[at + t] + 1;
    fence_here<kGlobal>(kBehindTheWrite, where);
    __syncwarp();
    if (t % 32 == 0)
        arrive(&written);
    if (t == 0) {
        wait_for(&written, 0);
        fence_here<kGlobal>(kBeforeTheCopy, where);
    }
    bring(tile, scratch + at, &full);
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// All fence behind the barrier, but for the thread that copies.
__global__ void by_others(const float* in, float* scratch, float* out, Where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&full, 1);
    scratch[at + t] = in[at + t] + 1;
    __syncthreads();
    if (t > 0)
        fence_global();
    bring(tile, scratch + at, &full);
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// A copy from one block's shared memory to the other's, which that had set to zero.
__global__ void __cluster_dims__(2) across(const float* in, float*, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads], got[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, other = blockIdx.x % 2 ^ 1;
    got[t] = 0;
    fence_here<kShared>(kBehindTheWrite, where);
    if (t == 0) {
        init(&full, 1);
        expect(&full, kBytes);
    }
    tile[t] = in[blockIdx.x * kThreads + t] + 1;
    fence_shared();
    if (where != kBehindTheWrite)
        got[t] = 0; // behind that fence
    sync_cluster();
    if (t == 0) {
        fence_here<kCluster>(kBeforeTheCopy, where);
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                "r"(there(got, other)),
            "r"(address_of(tile)), "r"(kBytes), "r"(there(&full, other))
            : "memory");
    }
    wait_for(&full, 0);
    out[blockIdx.x * kThreads + t] = got[t];
    sync_cluster();
}

// Boxes of a matrix that threads wrote.
__global__ void box(const __grid_constant__ CUtensorMap map, const float* in, float* scratch, float* out,
                    Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&full, 1);
    scratch[at + t] = in[at + t] + 1;
    fence_here<kGlobal>(kBehindTheWrite, where);
    __syncthreads();
    if (t == 0) {
        fence_here<kGlobal>(kBeforeTheCopy, where);
        expect(&full, kBytes);
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
            "%3}], [%4];" ::"r"(address_of(tile)),
            "l"(&map), "r"(0), "r"(blockIdx.x), "r"(address_of(&full))
            : "memory");
    }
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// All blocks write, and each copies another's tile behind a barrier of the grid.
__global__ void over_grid(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, next = (blockIdx.x + 1) % gridDim.x;
    if (t == 0)
        init(&full, 1);
    for (unsigned round = 0; round < 2; ++round) {
        scratch[blockIdx.x * kThreads + t] = in[blockIdx.x * kThreads + t] + 1;
        fence_here<kGlobal>(kBehindTheWrite, where);
        cooperative_groups::this_grid().sync();
        if (t == 0)
            fence_here<kGlobal>(kBeforeTheCopy, where);
        bring(tile, scratch + next * kThreads, &full);
        wait_for(&full, round);
        out[next * kThreads + t] = tile[t];
        cooperative_groups::this_grid().sync();
    }
}

// The block that draws the last ticket copies what all have written.
__device__ unsigned tickets;
template <bool fences>
__device__ __forceinline__ void draw(const float* in, float* scratch, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    __shared__ bool last;
    unsigned t = threadIdx.x;
    scratch[blockIdx.x * kThreads + t] = in[blockIdx.x * kThreads + t] + 1;
    fence_here<kGlobal>(kBehindTheWrite, where);
    if (fences)
        __threadfence();
    __syncthreads();
    if (t == 0) {
        init(&full, 1);
        last = atomicAdd(&tickets, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;
    if (t == 0)
        fence_here<kGlobal>(kBeforeTheCopy, where);
    for (unsigned i = 0; i < gridDim.x; ++i) {
        bring(tile, scratch + i * kThreads, &full);
        wait_for(&full, i & 1);
        out[i * kThreads + t] = tile[t];
        __syncthreads();
    }
    if (t == 0)
        tickets = 0;
}
__global__ void last_block(const float* in, float* scratch, float* out, Where where) {
    draw<true>(in, scratch, out, where);
}
__global__ void last_without_fence(const float* in, float* scratch, float* out, Where where) {
    draw<false>(in, scratch, out, where);
}

// Threads set the sums to zero, or add to them, and copies add.
template <bool atomics> __device__ __forceinline__ void sum_up(const float* in, float* out, Where where) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    tile[t] = in[at + t] + 1;
    if (atomics)
        atomicAdd(&out[at + t], 0.0f);
    else
        out[at + t] = 0;
    fence_shared();
    fence_here<kGlobal>(kBehindTheWrite, where);
    __syncthreads();
    if (t == 0) {
        fence_here<kGlobal>(kBeforeTheCopy, where);
        add(out + at, tile, kBytes);
        wait_for_stores();
    }
}
__global__ void sums(const float* in, float*, float* out, Where where) {
    sum_up<false>(in, out, where);
}
__global__ void sums_of_both(const float* in, float*, float* out, Where where) {
    sum_up<true>(in, out, where);
}

// Copies of all blocks add to the same sums; or threads of the others do at the same time.
template <bool atomics> __device__ __forceinline__ void add_together(float* out) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x;
    tile[t] = 1;
    fence_shared();
    __syncthreads();
    if (atomics && blockIdx.x % 2) {
        for (unsigned i = 0; i < kTiles; ++i)
            atomicAdd(&out[i * kThreads + t], 1.0f);
    } else if (t == 0) {
        for (unsigned i = 0; i < kTiles; ++i)
            add(out + i * kThreads, tile, kBytes);
        wait_for_stores();
    }
}
__global__ void together(const float*, float*, float* out, Where) {
    add_together<false>(out);
}
__global__ void of_two_proxies(const float*, float*, float* out, Where) {
    add_together<true>(out);
}

// What a copy stored threads read, and the next copy loads, once it has been waited for.
__global__ void there_and_back(const float* in, float* scratch, float* out, Where) {
    __shared__ __align__(128) float tile[kThreads], again[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&full, 1);
    tile[t] = in[at + t] + 1;
    fence_shared();
    __syncthreads();
    if (t == 0) {
        store(scratch + at, tile, kBytes);
        wait_for_stores();
    }
    __syncthreads();
    float mine = scratch[at + t];
    bring(again, scratch + at, &full);
    wait_for(&full, 0);
    out[at + t] = (mine + again[t]) / 2;
}

// What an earlier launch wrote.
__global__ void write(const float* in, float* scratch) {
    scratch[blockIdx.x * kThreads + threadIdx.x] = in[blockIdx.x * kThreads + threadIdx.x] + 1;
}
__global__ void of_earlier_launch(const float*, float* scratch, float* out, Where) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&full, 1);
    bring(tile, scratch + at, &full);
    __syncthreads();
    wait_for(&full, 0);
    out[at + t] = tile[t];
}

// What each thread wrote another one reads, where arrivals or waits are relaxed and there may be fences of threads.
__global__ void relaxed(const float* in, float*, float* out, bool arrivals, bool waits, bool fences) {
    __shared__ float tile[kThreads];
    __shared__ uint64_t all;
    unsigned t = threadIdx.x, at = blockIdx.x * kThreads;
    if (t == 0)
        init(&all, kThreads);
    __syncthreads();
    tile[t] = in[at + t] + 1;
    if (fences)
        asm volatile("fence.acq_rel.cta;" ::: "memory");
    if (arrivals)
        asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(address_of(&all))
                     : "memory");
    else
        arrive(&all);
    if (waits)
        asm volatile(
            "{ .reg .pred done; again: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 done, [%0], 0;\n"
            "@!done bra again; }" ::"r"(address_of(&all))
            : "memory");
    else
        wait_for(&all, 0);
    if (fences)
        asm volatile("fence.acq_rel.cta;" ::: "memory");
    out[at + t ^ 1] = tile[t ^ 1];
}

// The same over the barrier of a cluster.
__global__ void __cluster_dims__(2) relaxed_cluster(const float* in, float*, float* out, bool fences) {
    __shared__ float tile[kThreads];
    unsigned t = threadIdx.x, other = blockIdx.x ^ 1;
    tile[t] = in[blockIdx.x * kThreads + t] + 1;
    if (fences)
        asm volatile("fence.acq_rel.cluster;" ::: "memory");
    sync_cluster_relaxed();
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];"
                 : "=f"(value)
                 : "r"(there(&tile[t], other % 2))
                 : "memory");
    out[other * kThreads + t] = value;
    sync_cluster();
}

int main(int count, char** names) {
    static float got[kAll];
    float *in, *scratch, *out;
    cudaMalloc(&in, sizeof got);
    cudaMalloc(&scratch, sizeof got);
    cudaMalloc(&out, sizeof got);
    cudaMemset(in, 0, sizeof got);
    cudaMemset(out, 0, sizeof got);
    auto is = [&](int i, const char* other) { return i < count && !std::strcmp(names[i], other); };
    Where where = is(2, "behind-the-write")  ? kBehindTheWrite
                  : is(2, "before-the-copy") ? kBeforeTheCopy
                  : is(2, "of-other-memory") ? kOfOtherMemory
                                             : kNowhere;
    float expected = 1;
#define STYLE(name, blocks, threads)                                                                         \
    if (is(1, #name))                                                                                        \
    name<<<blocks, threads>>>(in, scratch, out, where)
    STYLE(zeroed, kTiles, kThreads);
    STYLE(ring, 1, kThreads + 32);
    STYLE(ring_of_readers, 1, kThreads + 32);
    STYLE(numbered, 1, kThreads);
    STYLE(staging, 1, kThreads);
    STYLE(united, 1, kThreads);
    STYLE(remote, kTiles, kThreads);
    STYLE(sent, kTiles, kThreads);
    STYLE(picked_up, kTiles, kThreads);
    STYLE(own, kTiles, kThreads);
    STYLE(in_cxx, kTiles, kThreads);
    STYLE(handed_on, kTiles, kThreads);
    STYLE(elected, kTiles, kThreads);
    STYLE(met, kTiles, kThreads);
    STYLE(by_others, kTiles, kThreads);
    STYLE(across, kTiles, kThreads);
    STYLE(last_block, kTiles, kThreads);
    STYLE(last_without_fence, kTiles, kThreads);
    STYLE(sums, kTiles, kThreads);
    STYLE(sums_of_both, kTiles, kThreads);
    STYLE(there_and_back, kTiles, kThreads);
    if (is(1, "together") || is(1, "of_two_proxies"))
        expected = 4;
    STYLE(together, 4, kThreads);
    STYLE(of_two_proxies, 4, kThreads);
    if (is(1, "of_earlier_launch")) {
        write<<<kTiles, kThreads>>>(in, scratch);
        of_earlier_launch<<<kTiles, kThreads>>>(in, scratch, out, where);
    }
    if (is(1, "over_grid")) {
        void* arguments[] = {&in, &scratch, &out, &where};
        cudaLaunchCooperativeKernel(reinterpret_cast<void*>(over_grid), dim3(kTiles), dim3(kThreads),
                                    arguments, 0, nullptr);
    }
    if (is(1, "box")) {
        CUtensorMap map;
        cuuint64_t sizes[2] = {kThreads, kTiles}, strides[1] = {kBytes};
        cuuint32_t box_sizes[2] = {kThreads, 1}, steps[2] = {1, 1};
        if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, scratch, sizes, strides,
                                   box_sizes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
            return 20;
        box<<<kTiles, kThreads>>>(map, in, scratch, out, where);
    }
    if (is(1, "relaxed"))
        relaxed<<<kTiles, kThreads>>>(in, scratch, out, is(2, "arrivals") || is(2, "both"),
                                      is(2, "waits") || is(2, "both"), is(3, "fenced"));
    if (is(1, "relaxed_cluster"))
        relaxed_cluster<<<kTiles, kThreads>>>(in, scratch, out, is(2, "fenced"));
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(scratch);
    cudaFree(out);
    for (float value : got)
        if (value != expected)
            return 3;
    return 0;
}
