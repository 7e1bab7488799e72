// Asynchronous means of Hopper, each with a mistake that a run may forgive: the arguments are the mistake's name, and "wrong" or
// "right" for its twin without it. What the kernels compute is of no interest here.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

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
__device__ __forceinline__ void announce(const void* barrier, unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void arrive(const void* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_there(const void* barrier, unsigned rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(barrier, rank))
                 : "memory");
}
__device__ __forceinline__ void wait_for(const void* barrier, unsigned parity) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(address_of(barrier)),
                 "r"(parity)
                 : "memory");
}
// The same without an order of what is known.
__device__ __forceinline__ void look_for(const void* barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 done, [%0], %1;\n"
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
__device__ __forceinline__ void load_in_all(void* to, const void* from, unsigned bytes, const void* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(address_of(to)),
                 "l"(from), "r"(bytes), "r"(address_of(barrier)), "h"(static_cast<unsigned short>(3))
                 : "memory");
}
__device__ __forceinline__ void store(void* to, const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(address_of(from)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int left> __device__ __forceinline__ void wait_for_reads() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}
template <int left> __device__ __forceinline__ void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(left) : "memory");
}
__device__ __forceinline__ void fence_proxies() {
    asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
__device__ __forceinline__ void arrive_with_copies(const void* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(barrier))
                 : "memory");
}
__device__ __forceinline__ void send(const void* to, const void* barrier, unsigned rank, unsigned value) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there(to, rank)),
        "r"(value), "r"(there(barrier, rank))
        : "memory");
}
__device__ __forceinline__ unsigned look_there(const void* from, unsigned rank) {
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there(from, rank)) : "memory");
    return value;
}
__device__ __forceinline__ void arrive_in_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_in_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void sync_cluster() {
    arrive_in_cluster();
    wait_in_cluster();
}
__device__ __forceinline__ void numbered(unsigned number, unsigned threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

constexpr unsigned kThreads = 64, kBytes = kThreads * sizeof(float);

struct Given {
    float *in, *out, *more;
    bool wrong;
};

// A tile that the threads have written, ready for the copy engine.
__device__ __forceinline__ void fill(float* tile) {
    tile[threadIdx.x] = 1;
    fence_proxies();
}
// An mbarrier, as its first thread makes it.
__device__ __forceinline__ void make(uint64_t* barrier, unsigned count) {
    if (threadIdx.x == 0)
        init(barrier, count);
}

// ---- copies out of shared memory

// The source is written again, and nobody has waited for the reading.
__global__ void store_overwritten(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
        if (!g.wrong)
            wait_for_reads<0>();
    }
    __syncthreads();
    tile[t] = 2;
    fence_proxies();
    if (t == 0)
        wait_for_stores<0>();
}
// Only its issuer knows that it has been read: the barrier was before.
__global__ void store_barrier_before_wait(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
    }
    __syncthreads();
    if (t == 0)
        wait_for_stores<0>();
    if (!g.wrong)
        __syncthreads();
    tile[t] = 2;
}
// The same, and it is a copy that overwrites it: another thread's.
__global__ void store_barrier_before_load(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
    }
    __syncthreads();
    if (t == 0)
        wait_for_reads<0>();
    if (!g.wrong)
        __syncthreads();
    if (t == 32) {
        expect(&full, kBytes);
        load(tile, g.in, kBytes, &full);
    }
    wait_for(&full, 0);
}
// The issuer tells by an mbarrier that the buffer is free, and waits for the reading behind that.
__global__ void store_freed_too_early(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __shared__ uint64_t empty;
    make(&empty, 1);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
        if (g.wrong)
            arrive(&empty);
        wait_for_reads<0>();
        if (!g.wrong)
            arrive(&empty);
    } else {
        wait_for(&empty, 0);
        tile[t] = 2;
    }
}
// Of two groups the older one has been read.
__global__ void store_one_group_left(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float first[kThreads];
    fill(first);
    __shared__ __align__(128) float second[kThreads];
    fill(second);
    __syncthreads();
    if (t == 0) {
        store(g.out, first, kBytes);
        commit_stores();
        store(g.out + kThreads, second, kBytes);
        commit_stores();
        wait_for_reads<1>();
    }
    __syncthreads();
    (g.wrong ? second : first)[t] = 2;
    fence_proxies();
    if (t == 0)
        wait_for_stores<0>();
}
// A copy that belongs to no group yet is not waited for.
__global__ void store_without_commit(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        if (!g.wrong)
            commit_stores();
        wait_for_reads<0>();
    }
    __syncthreads();
    tile[t] = 2;
    if (t == 0) {
        commit_stores();
        wait_for_stores<0>();
    }
}
// The target is read where only the source was waited for; by another thread, too.
__global__ void store_target_read(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
        if (g.wrong)
            wait_for_reads<0>();
        else
            wait_for_stores<0>();
    }
    __syncthreads();
    g.more[t] = g.out[t];
}
// Only its issuer knows that the target is written.
__global__ void store_target_barrier_before(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
    }
    __syncthreads();
    if (t == 0)
        wait_for_stores<0>();
    if (!g.wrong)
        __syncthreads();
    g.more[t] = g.out[t];
}
// Two blocks store to one place.
__global__ void store_by_two_blocks(Given g) {
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    tile[threadIdx.x] = blockIdx.x;
    fence_proxies();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(g.out + (g.wrong ? 0 : kThreads * blockIdx.x), tile, kBytes);
        commit_stores();
        wait_for_stores<0>();
    }
}
// A last block reads what others store, by a ticket that is drawn before the stores are there.
__global__ void store_ticket_before_wait(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __shared__ bool last;
    __syncthreads();
    if (t == 0) {
        store(g.out + kThreads * blockIdx.x, tile, kBytes);
        commit_stores();
        if (g.wrong)
            wait_for_reads<0>();
        else
            wait_for_stores<0>();
        __threadfence();
        last = atomicAdd(reinterpret_cast<unsigned*>(g.more), 1) == 1;
        __threadfence();
    }
    __syncthreads();
    if (last)
        g.more[kThreads + t] = g.out[t] + g.out[kThreads + t];
}
// A box, whose source is written again.
__global__ void box_overwritten(Given g, const __grid_constant__ CUtensorMap map) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    fill(tile);
    __syncthreads();
    if (t == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(0),
            "r"(0), "r"(address_of(tile))
            : "memory");
        commit_stores();
    }
    __syncthreads();
    if (t == 0)
        wait_for_reads<0>();
    if (!g.wrong)
        __syncthreads();
    tile[t] = 2;
    if (t == 0)
        wait_for_stores<0>();
}

// ---- copies into shared memory

// One warp waits for another copy's mbarrier.
__global__ void load_waits_elsewhere(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float first[kThreads], second[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __shared__ uint64_t also;
    make(&also, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, kBytes);
        load(first, g.in, kBytes, &full);
        expect(&also, kBytes);
        load(second, g.in, kBytes, &also);
    }
    __syncthreads();
    wait_for(t < 32 || !g.wrong ? &full : &also, 0);
    g.out[t] = first[t];
    wait_for(&also, 0);
    g.out[t] += second[t];
}
// One warp does not wait at all, but meets the others, before they have.
__global__ void load_one_warp_waits(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __shared__ uint64_t others;
    make(&others, 32);
    __syncthreads();
    if (t == 0) {
        expect(&full, kBytes);
        load(tile, g.in, kBytes, &full);
    }
    __syncthreads();
    if (t < 32) {
        if (g.wrong)
            arrive(&others);
        wait_for(&full, 0);
        if (!g.wrong)
            arrive(&others);
    } else {
        for (int i = 0; i < 50; ++i)
            __nanosleep(20);
        wait_for(&others, 0);
    }
    g.out[t] = tile[t];
}
// The phase is complete without the second half.
__global__ void load_half_expected(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, g.wrong ? kBytes / 2 : kBytes);
        load(tile, g.in, kBytes / 2, &full);
        load(tile + kThreads / 2, g.in, kBytes / 2, &full);
    }
    wait_for(&full, 0);
    g.out[t] = tile[t];
}
// The phase that is waited for is the one before.
__global__ void load_old_phase(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    for (unsigned i = 0; i < 2; ++i) {
        if (t == 0) {
            expect(&full, kBytes);
            load(tile, g.in + kThreads * i, kBytes, &full);
        }
        wait_for(&full, g.wrong ? 0 : i);
        g.out[kThreads * i + t] = tile[t];
        __syncthreads();
    }
}
// Bytes are announced by a thread whose announcement may come behind the last arrival.
__global__ void load_announced_too_late(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        announce(&full, kBytes);
        load(tile, g.in, kBytes, &full);
        if (!g.wrong)
            arrive(&full);
    }
    if (t == 1 && g.wrong)
        arrive(&full);
    wait_for(&full, 0);
    g.out[t] = tile[t];
}
// The same, where the arrivals that are behind it are relaxed: one place's changes are in order all the same.
__global__ void load_announced_behind_relaxed(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 32) {
        announce(&full, kBytes);
        load(tile, g.in, kBytes, &full);
    }
    if (!g.wrong)
        __syncthreads();
    if (t == 0)
        asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(address_of(&full))
                     : "memory");
    wait_for(&full, 0);
    g.out[t] = tile[t];
}
// What the issuer wrote before the copy, but behind its arrival.
__global__ void load_tells_nothing_of_issuer(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ float beside;
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        if (!g.wrong)
            beside = 1;
        expect(&full, kBytes);
        if (g.wrong)
            beside = 1;
        load(tile, g.in, kBytes, &full);
    }
    wait_for(&full, 0);
    g.out[t] = tile[t] + beside;
}
// The place in global memory is written while the copy may read it.
__global__ void load_source_overwritten(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, kBytes);
        load(tile, g.more, kBytes, &full);
    }
    __syncthreads();
    if (!g.wrong || t == 0)
        wait_for(&full, 0);
    g.more[t] = 1;
    wait_for(&full, 0);
    g.out[t] = tile[t];
}
// The block may end before it has come: the next block's shared memory may be there then.
__global__ void load_left_at_end(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, kBytes);
        load(tile, g.in, kBytes, &full);
    }
    if (!g.wrong)
        wait_for(&full, 0);
    g.out[t] = 1;
}
// The ring's next tile comes while one warp still reads: it has not told.
__global__ void load_over_readers(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __shared__ uint64_t empty;
    make(&empty, g.wrong ? 32 : 64);
    __syncthreads();
    for (unsigned i = 0; i < 2; ++i) {
        if (t == 0) {
            wait_for(&empty, (i & 1) ^ 1);
            expect(&full, kBytes);
            load(tile, g.in + kThreads * i, kBytes, &full);
        }
        wait_for(&full, i);
        g.out[kThreads * i + t] = tile[t];
        if (!g.wrong || t < 32)
            arrive(&empty);
    }
}
// It is told before the last read.
__global__ void load_freed_too_early(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    __shared__ uint64_t empty;
    make(&empty, 64);
    __syncthreads();
    for (unsigned i = 0; i < 2; ++i) {
        if (t == 0) {
            wait_for(&empty, (i & 1) ^ 1);
            expect(&full, kBytes);
            load(tile, g.in + kThreads * i, kBytes, &full);
        }
        wait_for(&full, i);
        if (g.wrong)
            arrive(&empty);
        g.out[kThreads * i + t] = tile[t];
        if (!g.wrong)
            arrive(&empty);
    }
}

// ---- mbarriers

// Others wait before they know of its init.
__global__ void init_unknown_to_waiters(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t full;
    make(&full, 1);
    if (!g.wrong)
        __syncthreads();
    if (t == 0) {
        expect(&full, kBytes);
        load(tile, g.in, kBytes, &full);
    }
    wait_for(&full, 0);
    g.out[t] = tile[t];
}
// Others of the warp know, but not the other warp.
__global__ void init_known_to_warp(Given g) {
    unsigned t = threadIdx.x;
    __shared__ uint64_t all;
    make(&all, kThreads);
    if (g.wrong)
        __syncwarp();
    else
        __syncthreads();
    arrive(&all);
    wait_for(&all, 0);
    g.out[t] = 1;
}
// Others arrive before they know of its init, and do not wait.
__global__ void init_unknown_to_arrivals(Given g) {
    unsigned t = threadIdx.x;
    __shared__ uint64_t all;
    make(&all, kThreads);
    if (!g.wrong)
        __syncthreads();
    arrive(&all);
    if (t == 0)
        wait_for(&all, 0);
    g.out[t] = 1;
}
// It is initialised anew where others may still wait.
__global__ void init_again(Given g) {
    unsigned t = threadIdx.x;
    __shared__ uint64_t all;
    make(&all, kThreads);
    __syncthreads();
    arrive(&all);
    wait_for(&all, 0);
    if (!g.wrong)
        __syncthreads();
    if (t == kThreads - 1)
        init(&all, kThreads);
    __syncthreads();
    arrive(&all);
    wait_for(&all, 0);
    g.out[t] = 1;
}
// Its memory is used otherwise where others may still wait.
__global__ void inval_too_early(Given g) {
    unsigned t = threadIdx.x;
    __shared__ uint64_t all;
    make(&all, kThreads);
    __syncthreads();
    arrive(&all);
    wait_for(&all, 0);
    if (!g.wrong)
        __syncthreads();
    if (t == kThreads - 1) {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(address_of(&all)) : "memory");
        *reinterpret_cast<volatile float*>(&all) = 1;
    }
    g.out[t] = 1;
}
// A thread writes over it.
__global__ void barrier_overwritten(Given g) {
    unsigned t = threadIdx.x;
    __shared__ uint64_t all;
    make(&all, kThreads);
    __shared__ uint64_t beside;
    __syncthreads();
    if (t == 5) {
        uint64_t* to = g.wrong ? &all : &beside;
        *to = 7;
    }
    arrive(&all);
    wait_for(&all, 0);
    g.out[t] = 1;
}
// Half of the threads arrive twice in one phase instead of the other half.
__global__ void arrivals_of_others(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    __shared__ uint64_t all;
    make(&all, kThreads);
    __syncthreads();
    tile[t] = 1;
    if (t < 32 || !g.wrong)
        arrive(&all);
    if (t < 32 && g.wrong)
        arrive(&all);
    wait_for(&all, 0);
    g.out[t] = tile[(t + 32) % kThreads];
}

// ---- copies of single threads

__global__ void copy_not_waited_for(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    copy(&tile[t], g.in + t);
    commit_copies();
    if (!g.wrong)
        wait_for_copies<0>();
    g.out[t] = tile[t];
    wait_for_copies<0>();
}
__global__ void copy_one_group_left(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float first[kThreads], second[kThreads];
    copy(&first[t], g.in + t);
    commit_copies();
    copy(&second[t], g.in + t);
    commit_copies();
    wait_for_copies<1>();
    g.out[t] = first[t] + (g.wrong ? second[t] : 0);
    wait_for_copies<0>();
}
// What another thread's copy brought is read without a barrier behind its wait.
__global__ void copy_barrier_before_wait(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    copy(&tile[t], g.in + t);
    commit_copies();
    if (g.wrong)
        __syncthreads();
    wait_for_copies<0>();
    if (!g.wrong)
        __syncthreads();
    g.out[t] = tile[t ^ 32];
}
// The next round's copies come over what others read.
__global__ void copy_over_readers(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    for (int i = 0; i < 2; ++i) {
        copy(&tile[t], g.in + kThreads * i + t);
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
        g.out[kThreads * i + t] = tile[t ^ 32];
        if (!g.wrong)
            __syncthreads();
    }
}
// The source is written by another thread before the wait.
__global__ void copy_source_overwritten(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    copy(&tile[t], g.more + t);
    commit_copies();
    if (!g.wrong)
        wait_for_copies<0>();
    __syncthreads();
    g.more[t ^ 32] = 1;
    wait_for_copies<0>();
    g.out[t] = tile[t];
}
// The source of a group is written while only the one before it has been waited for.
__global__ void copy_source_of_next_group(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float first[kThreads], second[kThreads];
    copy(&first[t], g.in + t);
    commit_copies();
    copy(&second[t], g.more + t);
    commit_copies();
    if (g.wrong)
        wait_for_copies<1>();
    else
        wait_for_copies<0>();
    __syncthreads();
    g.more[t ^ 32] = 1;
    __syncthreads();
    wait_for_copies<0>();
    g.out[t] = first[t] + second[t];
}
// By mbarrier, and who writes the source has waited for the phase before alone.
__global__ void copy_source_old_phase(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float first[32], second[32];
    __shared__ uint64_t all;
    __shared__ int flag;
    volatile int* come = &flag; // tells nothing but the time
    make(&all, 32);
    if (t == 0)
        flag = 0;
    __syncthreads();
    if (t < 32) {
        copy(&first[t], g.in + t);
        arrive_with_copies(&all);
    }
    wait_for(&all, 0);
    __syncthreads();
    if (t < 32) {
        copy(&second[t], g.more + t);
        arrive_with_copies(&all);
        if (t == 0) {
            look_for(&all, 1);
            *come = 1;
        }
        wait_for(&all, 1);
        g.out[t] = first[t] + second[t];
    } else {
        while (*come == 0)
            __nanosleep(20);
        if (!g.wrong)
            wait_for(&all, 1);
        g.more[t - 32] = 1;
    }
}
// By mbarrier, and one warp reads without having waited at it.
__global__ void copy_by_barrier_not_waited(Given g) {
    unsigned t = threadIdx.x;
    __shared__ float tile[kThreads];
    __shared__ uint64_t all;
    make(&all, 32);
    __shared__ uint64_t also;
    make(&also, 32);
    __syncthreads();
    if (t < 32) {
        copy(&tile[t], g.in + t);
        arrive_with_copies(&all);
    }
    __syncthreads();
    if (t < 32) {
        if (g.wrong)
            arrive(&also);
        wait_for(&all, 0);
        if (!g.wrong)
            arrive(&also);
    } else {
        for (int i = 0; i < 50; ++i)
            __nanosleep(20);
        wait_for(&also, 0);
    }
    g.out[t] = tile[t % 32];
}

// A fence between proxies before they have come, as the arrival that they make has: the copy out of the tile needs one behind that.
__global__ void copy_fenced_too_early(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    __shared__ uint64_t all;
    make(&all, kThreads);
    __syncthreads();
    copy(&tile[t], g.in + t);
    if (g.wrong)
        fence_proxies();
    arrive_with_copies(&all);
    wait_for(&all, 0);
    if (!g.wrong)
        fence_proxies();
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
        wait_for_stores<0>();
    }
}
// The same of a group.
__global__ void copy_fenced_before_wait(Given g) {
    unsigned t = threadIdx.x;
    __shared__ __align__(128) float tile[kThreads];
    copy(&tile[t], g.in + t);
    commit_copies();
    if (g.wrong)
        fence_proxies();
    wait_for_copies<0>();
    if (!g.wrong)
        fence_proxies();
    __syncthreads();
    if (t == 0) {
        store(g.out, tile, kBytes);
        commit_stores();
        wait_for_stores<0>();
    }
}

// ---- clusters

// A block reads in another one that has come to the barrier, but has not waited there itself.
__global__ void __cluster_dims__(2) cluster_no_wait(Given g) {
    __shared__ unsigned mine[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    mine[t] = 1;
    arrive_in_cluster();
    if (!g.wrong)
        wait_in_cluster();
    g.out[blockIdx.x * kThreads + t] = look_there(&mine[t], rank ^ 1);
    if (g.wrong)
        wait_in_cluster();
    sync_cluster();
}
// A block may end while another one reads its shared memory.
__global__ void __cluster_dims__(2) cluster_ends(Given g) {
    __shared__ unsigned mine[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    mine[t] = 1;
    sync_cluster();
    g.out[blockIdx.x * kThreads + t] = look_there(&mine[t], rank ^ 1);
    if (!g.wrong)
        sync_cluster();
}
// A block may end while another one arrives at its mbarrier.
__global__ void __cluster_dims__(2) cluster_ends_before_arrival(Given g) {
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t all;
    make(&all, kThreads);
    sync_cluster();
    arrive_there(&all, rank ^ 1);
    g.out[blockIdx.x * kThreads + t] = 1;
    if (!g.wrong)
        wait_for(&all, 0);
}
// The cluster's barrier is relaxed, and no fence of the init is in front of it.
__global__ void __cluster_dims__(2) cluster_init_not_fenced(Given g) {
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t all;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&all)), "r"(kThreads)
                     : "memory");
        if (!g.wrong)
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    wait_in_cluster();
    arrive_there(&all, rank ^ 1);
    wait_for(&all, 0);
    g.out[blockIdx.x * kThreads + t] = 1;
}
// A block arrives at the mbarrier of one that may not have made it yet.
__global__ void __cluster_dims__(2) cluster_arrival_before_init(Given g) {
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t all;
    make(&all, kThreads);
    if (g.wrong) {
        __syncthreads();
        if (rank == 0)
            wait_for(&all, 0);
        else
            arrive_there(&all, 0);
        sync_cluster();
    } else {
        sync_cluster();
        if (rank == 0)
            wait_for(&all, 0);
        else
            arrive_there(&all, 0);
    }
    g.out[blockIdx.x * kThreads + t] = 1;
}
// What st.async brings is read behind a barrier of the cluster, which does not wait for it.
__global__ void __cluster_dims__(2) sent_not_waited_for(Given g) {
    __shared__ unsigned mine[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    if (t == 0)
        expect(&full, kBytes);
    sync_cluster();
    send(&mine[t], &full, rank ^ 1, 1);
    sync_cluster();
    if (!g.wrong)
        wait_for(&full, 0);
    g.out[blockIdx.x * kThreads + t] = mine[t];
    wait_for(&full, 0);
    sync_cluster();
}
// What st.async brings goes to a block that may not have begun.
__global__ void __cluster_dims__(2) sent_before_begin(Given g) {
    __shared__ unsigned mine[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    if (t == 0)
        expect(&full, kBytes);
    if (!g.wrong || rank == 0)
        sync_cluster();
    else
        __syncthreads();
    if (rank == 1)
        send(&mine[t], &full, 0, 1);
    if (g.wrong && rank == 1)
        sync_cluster();
    if (rank == 0) {
        wait_for(&full, 0);
        g.out[t] = mine[t];
    }
    sync_cluster();
}
// Who has all that others send knows that they have read what they made it of; but not that they have read what comes then.
__global__ void __cluster_dims__(2) sent_before_last_read(Given g) {
    __shared__ unsigned mine[kThreads], points[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    points[t] = t;
    if (t == 0)
        expect(&full, kBytes);
    sync_cluster();
    unsigned value = points[t ^ 32];
    send(&mine[t], &full, rank, value);
    if (g.wrong)
        value += points[t ^ 32];
    wait_for(&full, 0);
    points[t] = mine[t];
    g.out[blockIdx.x * kThreads + t] = value;
    sync_cluster();
}
// What st.async brings overwrites what the other block still reads.
__global__ void __cluster_dims__(2) sent_over_readers(Given g) {
    __shared__ unsigned mine[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    sync_cluster();
    for (unsigned i = 0; i < 2; ++i) {
        if (t == 0)
            expect(&full, kBytes);
        send(&mine[t], &full, rank ^ 1, i);
        wait_for(&full, i);
        g.out[(2 * i + blockIdx.x) * kThreads + t] = mine[t ^ 32];
        if (!g.wrong)
            sync_cluster();
        else
            __syncthreads();
    }
    sync_cluster();
}
// Of a copy for two blocks one knows by the other, that has waited; its own mbarrier it has not asked.
__global__ void __cluster_dims__(2) multicast_waits_by_other(Given g) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0)
        expect(&full, kBytes);
    sync_cluster();
    if (rank == 0 && t == 0)
        load_in_all(tile, g.in, kBytes, &full);
    if (rank == 0 || !g.wrong)
        wait_for(&full, 0);
    sync_cluster();
    g.out[blockIdx.x * kThreads + t] = tile[t];
    wait_for(&full, 0);
    sync_cluster();
}
// It comes over what the other block still reads: its issuer has asked its own readers alone.
__global__ void __cluster_dims__(2) multicast_over_readers(Given g) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    __shared__ uint64_t empty;
    make(&empty, g.wrong ? 64 : 128);
    __syncthreads();
    sync_cluster();
    for (unsigned i = 0; i < 2; ++i) {
        if (t == 0) {
            expect(&full, kBytes);
            if (rank == 0) {
                wait_for(&empty, (i & 1) ^ 1);
                load_in_all(tile, g.in + kThreads * i, kBytes, &full);
            }
        }
        wait_for(&full, i);
        g.out[(2 * i + blockIdx.x) * kThreads + t] = tile[t];
        if (rank == 0 || !g.wrong)
            arrive_there(&empty, 0);
    }
    sync_cluster();
}
// It may come to a block that has ended, for that does not wait for it.
__global__ void __cluster_dims__(2) multicast_into_ended(Given g) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x, rank = blockIdx.x % 2;
    __shared__ uint64_t full;
    make(&full, 1);
    __syncthreads();
    if (t == 0)
        expect(&full, kBytes);
    sync_cluster();
    if (rank == 0 && t == 0)
        load_in_all(tile, g.in, kBytes, &full);
    if (rank == 0 || !g.wrong)
        wait_for(&full, 0);
    if (rank == 0 || !g.wrong)
        g.out[blockIdx.x * kThreads + t] = tile[t];
}

// ---- products of warpgroups; 128 threads, and 32 more that write

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned short* factors) {
    unsigned long long start = __cvta_generic_to_shared(factors) >> 4;
    unsigned long long a = start | 8ull << 16 | 16ull << 32, b = (start + 128) | 8ull << 16 | 16ull << 32;
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b));
}
constexpr unsigned kFactors = 64 * 16 + 8 * 16;
template <class Between>
__device__ __forceinline__ void product(Given g, unsigned short* factors, Between between) {
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < kFactors; i += blockDim.x)
        factors[i] = 0x3f80;
    fence_proxies();
    __syncthreads();
    float d[4] = {};
    if (t < 128) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        multiply(d, factors);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    between(d);
    if (t < 128)
        for (int i = 0; i < 4; ++i)
            g.out[4 * t + i] = d[i];
}
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// The barrier is before the wait.
__global__ void product_barrier_before_wait(Given g) {
    __shared__ __align__(1024) unsigned short factors[kFactors];
    unsigned t = threadIdx.x;
    product(g, factors, [&](float (&)[4]) {
        if (g.wrong)
            __syncthreads();
        if (t < 128)
            wait_for_products();
        if (!g.wrong)
            __syncthreads();
        if (t >= 128)
            factors[t] = 0;
    });
}
// The factors are said to be free before the wait.
__global__ void product_freed_too_early(Given g) {
    __shared__ __align__(1024) unsigned short factors[kFactors];
    unsigned t = threadIdx.x;
    __shared__ uint64_t empty;
    make(&empty, 128);
    product(g, factors, [&](float (&)[4]) {
        if (t < 128 && g.wrong)
            arrive(&empty);
        if (t < 128)
            wait_for_products();
        if (t < 128 && !g.wrong)
            arrive(&empty);
        if (t >= 128) {
            wait_for(&empty, 0);
            factors[t] = 0;
        }
    });
}
// One warp of the four has said so too early; the others have waited.
__global__ void product_freed_by_one_warp(Given g) {
    __shared__ __align__(1024) unsigned short factors[kFactors];
    unsigned t = threadIdx.x;
    __shared__ uint64_t empty;
    make(&empty, 4);
    product(g, factors, [&](float (&)[4]) {
        bool early = g.wrong && t == 96;
        if (early)
            arrive(&empty);
        if (t < 128)
            wait_for_products();
        if (t < 128 && t % 32 == 0 && !early)
            arrive(&empty);
        if (t >= 128) {
            wait_for(&empty, 0);
            factors[64 * 16 + t - 128] = 0;
        }
    });
}

int main(int, char** names) {
    static float got[2048];
    float *in, *out, *more;
    cudaMalloc(&in, sizeof got);
    cudaMalloc(&out, sizeof got);
    cudaMalloc(&more, sizeof got);
    cudaMemset(in, 0, sizeof got);
    cudaMemset(out, 0, sizeof got);
    cudaMemset(more, 0, sizeof got);
    Given given{in, out, more, !std::strcmp(names[2], "wrong")};
#define CASE(name, blocks, threads)                                                                          \
    if (!std::strcmp(names[1], #name))                                                                       \
    name<<<blocks, threads>>>(given)
    CASE(store_overwritten, 1, kThreads);
    CASE(store_barrier_before_wait, 1, kThreads);
    CASE(store_barrier_before_load, 1, kThreads);
    CASE(store_freed_too_early, 1, kThreads);
    CASE(store_one_group_left, 1, kThreads);
    CASE(store_without_commit, 1, kThreads);
    CASE(store_target_read, 1, kThreads);
    CASE(store_target_barrier_before, 1, kThreads);
    CASE(store_by_two_blocks, 2, kThreads);
    CASE(store_ticket_before_wait, 2, kThreads);
    CASE(load_waits_elsewhere, 1, kThreads);
    CASE(load_one_warp_waits, 1, kThreads);
    CASE(load_half_expected, 1, kThreads);
    CASE(load_old_phase, 1, kThreads);
    CASE(load_announced_too_late, 1, kThreads);
    CASE(load_announced_behind_relaxed, 1, kThreads);
    CASE(load_tells_nothing_of_issuer, 1, kThreads);
    CASE(load_source_overwritten, 1, kThreads);
    CASE(load_left_at_end, 1, kThreads);
    CASE(load_over_readers, 1, kThreads);
    CASE(load_freed_too_early, 1, kThreads);
    CASE(init_unknown_to_waiters, 1, kThreads);
    CASE(init_known_to_warp, 1, kThreads);
    CASE(init_unknown_to_arrivals, 1, kThreads);
    CASE(init_again, 1, kThreads);
    CASE(inval_too_early, 1, kThreads);
    CASE(barrier_overwritten, 1, kThreads);
    CASE(arrivals_of_others, 1, kThreads);
    CASE(copy_not_waited_for, 1, kThreads);
    CASE(copy_one_group_left, 1, kThreads);
    CASE(copy_barrier_before_wait, 1, kThreads);
    CASE(copy_over_readers, 1, kThreads);
    CASE(copy_source_overwritten, 1, kThreads);
    CASE(copy_source_of_next_group, 1, kThreads);
    CASE(copy_source_old_phase, 1, kThreads);
    CASE(copy_by_barrier_not_waited, 1, kThreads);
    CASE(copy_fenced_too_early, 1, kThreads);
    CASE(copy_fenced_before_wait, 1, kThreads);
    CASE(cluster_no_wait, 2, kThreads);
    CASE(cluster_ends, 2, kThreads);
    CASE(cluster_ends_before_arrival, 2, kThreads);
    CASE(cluster_init_not_fenced, 2, kThreads);
    CASE(cluster_arrival_before_init, 2, kThreads);
    CASE(sent_not_waited_for, 2, kThreads);
    CASE(sent_before_begin, 2, kThreads);
    CASE(sent_before_last_read, 2, kThreads);
    CASE(sent_over_readers, 2, kThreads);
    CASE(multicast_waits_by_other, 2, kThreads);
    CASE(multicast_over_readers, 2, kThreads);
    CASE(multicast_into_ended, 2, kThreads);
    CASE(product_barrier_before_wait, 1, 160);
    CASE(product_freed_too_early, 1, 160);
    CASE(product_freed_by_one_warp, 1, 160);
    if (!std::strcmp(names[1], "box_overwritten")) {
        CUtensorMap map;
        cuuint64_t sizes[2] = {kThreads, 1}, strides[1] = {kBytes};
        cuuint32_t box[2] = {kThreads, 1}, steps[2] = {1, 1};
        if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, out, sizes, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
            return 20;
        box_overwritten<<<1, kThreads>>>(given, map);
    }
    bool failed = cudaDeviceSynchronize() != cudaSuccess;
    cudaFree(in);
    cudaFree(out);
    cudaFree(more);
    return failed ? 9 : 0;
}
