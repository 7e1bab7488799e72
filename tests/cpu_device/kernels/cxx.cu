// What C++ offers for barriers, pipelines, copies, clusters and atomics: known answers, by name.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/std/cstdint>
#include <cuda/std/utility>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include <vector>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int kThreads = 64, kTile = 256, kBlocks = 2;

enum Mistake { kNone, kNoWait, kNoExpect, kNoSync, kNoRelease };

using Barrier = cuda::barrier<cuda::thread_scope_block>;

// Two tiles, copied by all threads and waited for at a barrier.
__global__ void by_barrier(const int* in, int* out, int mistake) {
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier barrier;
    __shared__ alignas(16) int tile[kTile];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0)
        init(&barrier, static_cast<int>(block.size()));
    block.sync();
    for (int round = 0; round < 2; ++round) {
        cuda::memcpy_async(block, tile, in + round * kTile, cuda::aligned_size_t<16>(sizeof tile), barrier);
        if (mistake == kNoWait)
            (void)barrier.arrive();
        else
            barrier.arrive_and_wait();
        for (int i = threadIdx.x; i < kTile; i += kThreads)
            out[round * kTile + i] = tile[kTile - 1 - i];
        Barrier::arrival_token token = barrier.arrive();
        barrier.wait(cuda::std::move(token));
    }
}

// One thread's copy in bulk, announced by arrive_tx.
__global__ void by_bytes(const int* in, int* out, int mistake) {
    __shared__ Barrier barrier;
    __shared__ alignas(128) int tile[kTile];
    if (threadIdx.x == 0) {
        init(&barrier, kThreads);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, in, cuda::aligned_size_t<16>(sizeof tile), barrier);
        token = mistake == kNoExpect ? barrier.arrive()
                                     : cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
    } else {
        token = barrier.arrive();
    }
    barrier.wait(cuda::std::move(token));
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        out[i] = tile[kTile - 1 - i];
}

// The same by cuda::ptx, in and out.
__global__ void by_ptx(const int* in, int* out) {
    __shared__ alignas(8) uint64_t full;
    __shared__ alignas(128) int tile[kTile];
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full,
                                       sizeof tile);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, sizeof tile, &full);
    }
    __syncthreads();
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, &full, 0)) {
    }
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        tile[i] = 2 * tile[i] + static_cast<int>(ptx::get_sreg_laneid() - threadIdx.x % 32);
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, sizeof tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>()); // the next one comes to the same place
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, out, tile, sizeof tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

constexpr int kStages = 2, kRounds = 5;

// A pipeline of the block: all threads do both.
__global__ void by_pipeline(const int* in, int* out, int mistake) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
    __shared__ alignas(16) int tile[kStages][kTile];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    auto fetch = [&](int round) {
        pipe.producer_acquire();
        if (round < kRounds)
            cuda::memcpy_async(block, tile[round % kStages], in + round * kTile, sizeof tile[0], pipe);
        pipe.producer_commit();
    };
    for (int stage = 0; stage < kStages; ++stage)
        fetch(stage);
    for (int round = 0; round < kRounds; ++round) {
        if (mistake != kNoWait)
            pipe.consumer_wait();
        for (int i = threadIdx.x; i < kTile; i += kThreads)
            out[round * kTile + i] = tile[round % kStages][kTile - 1 - i];
        if (mistake != kNoRelease)
            pipe.consumer_release();
        fetch(round + kStages);
    }
}

// The first warp fetches, the other one uses.
__global__ void by_roles(const int* in, int* out) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
    __shared__ alignas(16) int tile[kStages][kTile];
    auto block = cg::this_thread_block();
    bool fetches = threadIdx.x < 32;
    auto pipe = cuda::make_pipeline(block, &state,
                                    fetches ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    for (int round = 0; round < kRounds; ++round) {
        int* place = tile[round % kStages];
        if (fetches) {
            pipe.producer_acquire();
            for (int i = threadIdx.x; i < kTile; i += 32)
                cuda::memcpy_async(place + i, in + round * kTile + i, sizeof(int), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            for (int i = threadIdx.x - 32; i < kTile; i += 32)
                out[round * kTile + i] = place[kTile - 1 - i];
            pipe.consumer_release();
        }
    }
}

// Each thread's own pipeline, of its own parts.
__global__ void by_thread(const int* in, int* out, int mistake) {
    __shared__ int tile[kStages][kThreads];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    auto fetch = [&](int round) {
        pipe.producer_acquire();
        if (round < kRounds)
            cuda::memcpy_async(&tile[round % kStages][t], in + round * kThreads + t, sizeof(int), pipe);
        pipe.producer_commit();
    };
    for (int stage = 0; stage < kStages; ++stage)
        fetch(stage);
    for (int round = 0; round < kRounds; ++round) {
        if (mistake == kNoWait && round == 1)
            cuda::pipeline_consumer_wait_prior<2>(pipe);
        else
            pipe.consumer_wait();
        out[round * kThreads + t] = tile[round % kStages][t];
        pipe.consumer_release();
        fetch(round + kStages);
    }
}

// cooperative_groups::memcpy_async, by bytes and by elements.
__global__ void by_group(const int* in, int* out, int mistake) {
    __shared__ int tile[2][kTile];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile[0], in, sizeof tile[0]);
    cg::memcpy_async(block, tile[1], kTile + 0, in + kTile, kTile + 0);
    if (mistake != kNoWait)
        cg::wait_prior<1>(block);
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        out[i] = tile[0][kTile - 1 - i];
    cg::wait(block);
    for (int i = threadIdx.x; i < kTile; i += kThreads)
        out[kTile + i] = tile[1][kTile - 1 - i];
}

// A histogram over the cluster's shared memory, and a value that goes to the other block by st_async.
__global__ void __cluster_dims__(kBlocks) by_cluster(const int* in, int* out, int mistake) {
    __shared__ int bins[4];
    __shared__ alignas(8) uint64_t got;
    __shared__ int letter;
    auto cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), other = rank ^ 1;
    if (threadIdx.x < 4)
        bins[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&got, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &got,
                                       sizeof letter);
    }
    if (mistake != kNoSync)
        cluster.sync();
    int value = in[cluster.thread_rank()];
    int* there = cluster.map_shared_rank(bins, value / 4 % static_cast<int>(cluster.num_blocks()));
    atomicAdd(there + value % 4, 1);
    if (threadIdx.x == 0)
        ptx::st_async(cluster.map_shared_rank(&letter, other), static_cast<int>(10 + rank),
                      cluster.map_shared_rank(&got, other));
    ptx::barrier_cluster_arrive(ptx::sem_release);
    while (!ptx::mbarrier_try_wait_parity(&got, 0)) {
    }
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    bool right = cluster.dim_blocks().x == kBlocks && cluster.num_threads() == kBlocks * kThreads &&
                 cluster.query_shared_rank(cluster.map_shared_rank(bins, other)) == other &&
                 cluster.block_index().x == blockIdx.x % kBlocks && ptx::get_sreg_cluster_ctarank() == rank;
    if (threadIdx.x < 4)
        out[blockIdx.x * 4 + threadIdx.x] = right ? bins[threadIdx.x] + 1000 * letter : -1;
    auto token = cluster.barrier_arrive();
    cluster.barrier_wait(cuda::std::move(token));
}

__device__ cuda::atomic<unsigned, cuda::thread_scope_device> tickets{0};

// Atomics of both kinds, and a flag that hands on a value.
__global__ void by_atomics(int* sums, float* most, unsigned long long* bits, int* flag, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::atomic_ref<int, cuda::thread_scope_device>(sums[0]).fetch_add(i, cuda::memory_order_relaxed);
    cuda::atomic_ref<int, cuda::thread_scope_device>(sums[1]).fetch_max(i * 37 % 101);
    cuda::atomic_ref<float, cuda::thread_scope_device>(*most).fetch_add(0.5f);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(*bits).fetch_or(1ull << i % 64);
    unsigned ticket = tickets.fetch_add(1u, cuda::memory_order_relaxed);
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    if (ticket == 0) {
        out[0] = 77;
        ready.store(1, cuda::memory_order_release);
    }
    if (i == 0) {
        while (ready.load(cuda::memory_order_acquire) == 0) {
        }
        out[1] = out[0];
    }
    int seen = 0;
    cuda::atomic_ref<int, cuda::thread_scope_device> counter(sums[2]);
    while (!counter.compare_exchange_weak(seen, seen + 2)) {
    }
}

struct Ints {
    int* data;
    size_t count;
    explicit Ints(size_t count_, int step = 0) : count(count_) {
        cudaMalloc(&data, count * sizeof(int));
        std::vector<int> host(count);
        for (size_t i = 0; i < count; ++i)
            host[i] = static_cast<int>(i) * step;
        cudaMemcpy(data, host.data(), count * sizeof(int), cudaMemcpyHostToDevice);
    }
    ~Ints() { cudaFree(data); }
    std::vector<int> read() const {
        std::vector<int> host(count);
        if (cudaDeviceSynchronize() != cudaSuccess)
            return {};
        cudaMemcpy(host.data(), data, count * sizeof(int), cudaMemcpyDeviceToHost);
        return host;
    }
};

// Each tile of `in`, reversed, times `by`.
int is_reversed(const Ints& out, int tile, int by) {
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != by * 3 * (i / tile * tile + tile - 1 - i % tile))
            return 3;
    return got.empty() ? 9 : 0;
}

int cluster_counts(int mistake) {
    Ints in(kBlocks * kThreads, 5), out(kBlocks * 4);
    by_cluster<<<kBlocks, kThreads>>>(in.data, out.data, mistake);
    int bins[kBlocks * 4] = {};
    for (int i = 0; i < kBlocks * kThreads; ++i)
        ++bins[5 * i / 4 % kBlocks * 4 + 5 * i % 4];
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != bins[i] + 1000 * (10 + (i / 4 ^ 1)))
            return 3;
    return got.empty() ? 9 : 0;
}

int atomics() {
    Ints sums(3), most(1), bits(2), flag(1), out(2);
    by_atomics<<<4, kThreads>>>(sums.data, reinterpret_cast<float*>(most.data),
                                reinterpret_cast<unsigned long long*>(bits.data), flag.data, out.data);
    int n = 4 * kThreads;
    auto got = sums.read();
    float sum;
    if (got.empty())
        return 9;
    std::memcpy(&sum, most.read().data(), 4);
    return got == std::vector<int>{n * (n - 1) / 2, 100, 2 * n} && sum == 0.5f * n &&
                   bits.read() == std::vector<int>{-1, -1} && out.read() == std::vector<int>{77, 77}
               ? 0
               : 3;
}

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
    Ints two(2 * kTile, 3), two_out(2 * kTile), one_out(kTile), many(kRounds * kTile, 3),
        many_out(kRounds * kTile);
    Ints own(kRounds * kThreads, 3), own_out(kRounds * kThreads);
    if (is("barrier") || is("barrier-no-wait")) {
        by_barrier<<<1, kThreads>>>(two.data, two_out.data, is("barrier") ? kNone : kNoWait);
        return is_reversed(two_out, kTile, 1);
    }
    if (is("bytes") || is("bytes-no-expect")) {
        by_bytes<<<1, kThreads>>>(two.data, one_out.data, is("bytes") ? kNone : kNoExpect);
        return is_reversed(one_out, kTile, 1);
    }
    if (is("ptx")) {
        by_ptx<<<1, kThreads>>>(two.data, one_out.data);
        return one_out.read() ==
                       [&] {
                           std::vector<int> all(kTile);
                           for (int i = 0; i < kTile; ++i)
                               all[i] = 12 * i;
                           return all;
                       }()
                   ? 0
                   : 3;
    }
    if (is("pipeline") || is("pipeline-no-wait") || is("pipeline-no-release")) {
        by_pipeline<<<1, kThreads>>>(many.data, many_out.data,
                                     is("pipeline")           ? kNone
                                     : is("pipeline-no-wait") ? kNoWait
                                                              : kNoRelease);
        return is_reversed(many_out, kTile, 1);
    }
    if (is("roles")) {
        by_roles<<<1, kThreads>>>(many.data, many_out.data);
        return is_reversed(many_out, kTile, 1);
    }
    if (is("thread") || is("thread-no-wait")) {
        by_thread<<<1, kThreads>>>(own.data, own_out.data, is("thread") ? kNone : kNoWait);
        return is_reversed(own_out, 1, 1);
    }
    if (is("group") || is("group-no-wait")) {
        by_group<<<1, kThreads>>>(two.data, two_out.data, is("group") ? kNone : kNoWait);
        return is_reversed(two_out, kTile, 1);
    }
    if (is("cluster") || is("cluster-no-sync"))
        return cluster_counts(is("cluster") ? kNone : kNoSync);
    if (is("atomics"))
        return atomics();
    std::fprintf(stderr, "no such check: %s\n", name);
    return 1;
}
