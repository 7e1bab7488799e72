// Clusters of several blocks: known answers, by name, and the same with one thing left out or off.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kThreads = 64, kBlocks = 4;

__device__ unsigned shared_address(const void* place) {
    return static_cast<unsigned>(__cvta_generic_to_shared(place));
}
__device__ unsigned mapped(unsigned address, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
__device__ unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ unsigned blocks_of_cluster() {
    unsigned blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}
__device__ void arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ void wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ void sync_cluster() {
    arrive();
    wait();
}
__device__ int read_remote(unsigned address) {
    int value;
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}
__device__ void init_barrier(unsigned barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ void fence_inits() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ void arrive_at(unsigned barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

enum Mistake { kNone, kNoFirst, kNoBarrier, kNoLast, kNoWait, kLeaves, kRemoteAsOwn };

// Each block writes, and reads from the next one, with static and with dynamic arrays.
__device__ void pass_on(int* out, int mistake) {
    __shared__ int mine[kThreads];
    extern __shared__ int dynamic[];
    unsigned rank = rank_in_cluster(), next = (rank + 1) % blocks_of_cluster();
    int t = threadIdx.x, id = blockIdx.x * kThreads + t;
    mine[t] = 7 * id;
    dynamic[t] = id * id;
    if (mistake == kNoWait)
        arrive();
    else if (mistake != kNoBarrier)
        sync_cluster();
    int value = read_remote(mapped(shared_address(&mine[t]), next));
    unsigned there = mapped(shared_address(dynamic + t), next);
    if (mistake == kRemoteAsOwn)
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
    out[id] = value + read_remote(there);
    if (mistake == kNoWait)
        wait();
    if (mistake != kNoLast)
        sync_cluster();
}
__global__ void __cluster_dims__(kBlocks, 1, 1) pass_on_of_four(int* out, int mistake) {
    pass_on(out, mistake);
}
__global__ void pass_on_of_any(int* out, int mistake) {
    pass_on(out, mistake);
}
int expected(int i, int size) {
    int block = i / kThreads, next = block / size * size + (block + 1) % size;
    int id = next * kThreads + i % kThreads;
    return 7 * id + id * id;
}

// Writes, atomics and reductions into another block.
__global__ void __cluster_dims__(2) give_away(int* out) {
    __shared__ int sum, most, got[kThreads];
    int t = threadIdx.x;
    unsigned rank = rank_in_cluster(), other = rank ^ 1;
    if (t == 0)
        sum = most = 0;
    sync_cluster();
    unsigned there = mapped(shared_address(&got[t]), other);
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(there), "r"(100 * static_cast<int>(rank) + t)
                 : "memory");
    int old = 0;
    asm volatile("atom.shared::cluster.add.s32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"(mapped(shared_address(&sum), other)), "r"(t)
                 : "memory");
    asm volatile("red.shared::cluster.max.s32 [%0], %1;" ::"r"(mapped(shared_address(&most), other)),
                 "r"(t + static_cast<int>(rank))
                 : "memory");
    unsigned long long generic;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(&got[t]), "r"(other));
    unsigned owner;
    asm volatile("getctarank.u64 %0, %1;" : "=r"(owner) : "l"(generic));
    sync_cluster();
    int back = *reinterpret_cast<int*>(generic); // what this thread wrote there
    out[blockIdx.x * kThreads + t] = got[t] + sum + most + 1000 * static_cast<int>(owner) + back + (old < 0);
    sync_cluster();
}

// A ring of mbarriers: values go round by st.async, and each block says by a remote arrival that it has read.
__global__ void __cluster_dims__(kBlocks) ring(int* out, int rounds, int mistake) {
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ int slot[4];
    unsigned rank = rank_in_cluster(), next = (rank + 1) % kBlocks, previous = (rank + kBlocks - 1) % kBlocks;
    unsigned own_full = shared_address(&full), own_empty = shared_address(&empty);
    if (threadIdx.x == 0) {
        init_barrier(own_full, 1);
        init_barrier(own_empty, 1);
        fence_inits();
    }
    if (mistake != kNoFirst)
        sync_cluster();
    if (threadIdx.x == 0) {
        int value = static_cast<int>(blockIdx.x);
        for (int round = 0; round < rounds; ++round) {
            expect(own_full, 16);
            if (round)
                wait_for(own_empty, (round - 1) & 1);
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%1, %2, %3, "
                         "%4}, [%5];" ::"r"(mapped(shared_address(slot), next)),
                         "r"(value), "r"(value + 1), "r"(value + 2), "r"(value + 3),
                         "r"(mapped(own_full, next))
                         : "memory");
            wait_for(own_full, round & 1);
            value = slot[0] + slot[3];
            if (mistake != kNoBarrier || round != rounds - 2)
                arrive_at(mapped(own_empty, previous));
        }
        out[blockIdx.x] = value;
    }
    sync_cluster();
}

// Rank 0 gathers: red.async adds, and a copy in bulk out of each block's shared memory.
__global__ void gather(int* out, int mistake) {
    __shared__ alignas(128) int piece[kThreads], all[kBlocks * kThreads];
    __shared__ alignas(8) unsigned long long done;
    __shared__ unsigned total;
    unsigned rank = rank_in_cluster(), blocks = blocks_of_cluster(), barrier = shared_address(&done);
    int t = threadIdx.x;
    piece[t] = static_cast<int>(rank) * 1000 + t;
    if (t == 0) {
        total = 0;
        init_barrier(barrier, 1);
        fence_inits();
        if (rank == 0)
            expect(barrier, blocks * (kThreads * 4 + 4));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    sync_cluster();
    if (t == 0) {
        unsigned there = mapped(barrier, 0);
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                "r"(mapped(shared_address(all + rank * kThreads), 0)),
            "r"(shared_address(piece)), "r"(kThreads * 4), "r"(there)
            : "memory");
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], "
                     "%1, [%2];" ::"r"(mapped(shared_address(&total), 0)),
                     "r"(rank + 1), "r"(there)
                     : "memory");
    }
    if (mistake == kLeaves && rank == blocks - 1)
        return;
    if (rank == 0) {
        wait_for(barrier, 0);
        for (unsigned i = t; i < blocks * kThreads; i += kThreads)
            out[i] = all[i] + static_cast<int>(total);
    }
    sync_cluster();
}

// One multicast fills all blocks.
__global__ void __cluster_dims__(2) spread(const int* in, int* out) {
    __shared__ alignas(128) int got[kThreads];
    __shared__ alignas(8) unsigned long long done;
    unsigned barrier = shared_address(&done);
    if (threadIdx.x == 0) {
        init_barrier(barrier, 1);
        fence_inits();
        expect(barrier, kThreads * 4);
    }
    sync_cluster();
    if (threadIdx.x == 0 && rank_in_cluster() == 1)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], "
                     "%2, [%3], %4;" ::"r"(shared_address(got)),
                     "l"(in), "r"(kThreads * 4), "r"(barrier), "h"(static_cast<uint16_t>(3))
                     : "memory");
    wait_for(barrier, 0);
    out[blockIdx.x * kThreads + threadIdx.x] = got[threadIdx.x];
    sync_cluster();
}

// Shapes of more than one dimension, and where each block is in them.
__global__ void places(int* out) {
    unsigned x, y, z, nx, ny, nz, ix, iy, iz, grid_x, is;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(z));
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(nx));
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(ny));
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(nz));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(ix));
    asm("mov.u32 %0, %%clusterid.y;" : "=r"(iy));
    asm("mov.u32 %0, %%clusterid.z;" : "=r"(iz));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(grid_x));
    asm("{\n.reg .pred p;\nmov.pred p, %%is_explicit_cluster;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is));
    bool right = x + nx * (y + ny * z) == rank_in_cluster() && nx * ny * nz == blocks_of_cluster() &&
                 ix * nx + x == blockIdx.x && iy * ny + y == blockIdx.y && iz * nz + z == blockIdx.z &&
                 grid_x == gridDim.x / nx && is;
    // An address has the rank of its block above the place, the block's own too.
    __shared__ int variable;
    unsigned address = shared_address(&variable), last = blocks_of_cluster() - 1;
    right = right && address >> 24 == rank_in_cluster() && mapped(address, rank_in_cluster()) == address &&
            mapped(address, last) == (last << 24 | (address & 0xffffff));
    out[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)] = right;
    sync_cluster(); // an address of a block that has ended is an error
}

// A grid of clusters whose blocks never meet: rank 0 alone comes to the barrier.
__global__ void __cluster_dims__(2) never(int* out) {
    __shared__ alignas(8) unsigned long long barrier;
    if (threadIdx.x == 0)
        init_barrier(shared_address(&barrier), 1);
    if (rank_in_cluster() == 0) {
        sync_cluster();
        out[0] = 1;
    } else {
        __syncthreads();
        wait_for(shared_address(&barrier), 0);
    }
}

// Two uses of one array, with a barrier of the cluster between them; the next block is read through a plain pointer.
__global__ void __cluster_dims__(2) twice(int* out, int mistake) {
    __shared__ int mine[kThreads];
    int t = threadIdx.x, id = blockIdx.x * kThreads + t;
    unsigned long long generic;
    mine[t] = id;
    sync_cluster();
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(mine + t), "r"(rank_in_cluster() ^ 1));
    const int* there = reinterpret_cast<const int*>(generic);
    int first = *there;
    if (mistake != kNoBarrier)
        sync_cluster();
    mine[t] = 2 * id;
    sync_cluster();
    out[id] = first + *there;
    if (mistake != kNoLast || rank_in_cluster() == 0)
        sync_cluster();
}

// A block looks again and again for what another one writes.
__global__ void __cluster_dims__(2) polls(int* out) {
    __shared__ int flag;
    if (threadIdx.x == 0)
        flag = 0;
    sync_cluster();
    unsigned rank = rank_in_cluster(), there = mapped(shared_address(&flag), rank ^ 1);
    if (threadIdx.x == 0) {
        int value = 0;
        if (rank == 0) {
            while (value == 0)
                asm volatile("ld.acquire.cluster.shared::cta.s32 %0, [%1];"
                             : "=r"(value)
                             : "r"(shared_address(&flag))
                             : "memory");
            asm volatile("st.release.cluster.shared::cluster.s32 [%0], %1;" ::"r"(there), "r"(value + 1)
                         : "memory");
        } else {
            asm volatile("st.release.cluster.shared::cluster.s32 [%0], %1;" ::"r"(there), "r"(41) : "memory");
            while (value == 0)
                asm volatile("ld.acquire.cluster.shared::cta.s32 %0, [%1];"
                             : "=r"(value)
                             : "r"(shared_address(&flag))
                             : "memory");
        }
        out[blockIdx.x] = value;
    }
    sync_cluster();
}

__global__ void waits_afar() {
    __shared__ alignas(8) unsigned long long barrier;
    if (threadIdx.x == 0)
        init_barrier(shared_address(&barrier), 1);
    sync_cluster();
    unsigned long long generic;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(&barrier), "r"(rank_in_cluster() ^ 1));
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.b64 p, [%0], 0;\n}" ::"l"(generic) : "memory");
    sync_cluster();
}

// Clusters whose blocks also meet those of all others. One of two waits for a copy while the other is there already.
__global__ void with_the_grid(int* out, int* sums, const int* ones) {
    __shared__ int mine;
    __shared__ alignas(16) int got[4];
    __shared__ alignas(8) unsigned long long done;
    if (threadIdx.x == 0) {
        mine = static_cast<int>(blockIdx.x);
        init_barrier(shared_address(&done), 1);
        fence_inits();
    }
    sync_cluster();
    if (threadIdx.x == 0) {
        int sum = read_remote(mapped(shared_address(&mine), rank_in_cluster() ^ 1));
        if (rank_in_cluster() == 1) {
            expect(shared_address(&done), sizeof got);
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
                         "[%3];" ::"r"(shared_address(got)),
                         "l"(ones), "r"(static_cast<unsigned>(sizeof got)), "r"(shared_address(&done))
                         : "memory");
            wait_for(shared_address(&done), 0);
            sum *= got[3];
        }
        sums[blockIdx.x] = sum;
    }
    cooperative_groups::this_grid().sync();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i)
        sum += sums[i];
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
    sync_cluster();
}

// The two kinds of barriers by turns. A block comes back from the grid's at any time, also just when the other one has nothing
// left to do.
__global__ void by_turns(int* out, int rounds) {
    __shared__ int mine;
    int sum = 0;
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x == 0)
            mine = round + static_cast<int>(blockIdx.x);
        sync_cluster();
        sum += read_remote(mapped(shared_address(&mine), rank_in_cluster() ^ 1));
        cooperative_groups::this_grid().sync();
    }
    sync_cluster();
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

struct Output {
    int* data;
    size_t count;
    explicit Output(size_t count_) : count(count_) { cudaMalloc(&data, count * sizeof(int)); }
    ~Output() { cudaFree(data); }
    std::vector<int> read() {
        std::vector<int> host(count);
        if (cudaDeviceSynchronize() != cudaSuccess)
            return {};
        cudaMemcpy(host.data(), data, count * sizeof(int), cudaMemcpyDeviceToHost);
        return host;
    }
};

bool cooperative = false;

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 shape, size_t shared,
                   Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = shape.x;
    attributes[0].val.clusterDim.y = shape.y;
    attributes[0].val.clusterDim.z = shape.z;
    attributes[1].id = cudaLaunchAttributePriority;
    attributes[1].val.priority = 0;
    config.gridDim = grid;
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared;
    config.attrs = attributes;
    config.numAttrs = 2;
    if (cooperative) {
        attributes[1].id = cudaLaunchAttributeCooperative;
        attributes[1].val.cooperative = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

int passes_on(int size, int mistake) {
    Output out(kThreads * 32);
    if (size == 4)
        pass_on_of_four<<<32, kThreads, kThreads * sizeof(int)>>>(out.data, mistake);
    else if (launch(pass_on_of_any, dim3(32), dim3(size), kThreads * sizeof(int), out.data, mistake) !=
             cudaSuccess)
        return 2;
    auto got = out.read();
    for (size_t i = 0; i < got.size(); ++i)
        if (got[i] != expected(static_cast<int>(i), size))
            return 3;
    return got.empty() ? 9 : 0;
}

int gives_away() {
    Output out(4 * kThreads);
    give_away<<<4, kThreads>>>(out.data);
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i) {
        int t = i % kThreads, rank = i / kThreads % 2, other = rank ^ 1;
        int sum = kThreads * (kThreads - 1) / 2, most = kThreads - 1 + other;
        if (got[i] != 100 * other + t + sum + most + 1000 * other + 100 * rank + t)
            return 3;
    }
    return got.empty() ? 9 : 0;
}

int goes_round(int rounds, int mistake) {
    Output out(2 * kBlocks);
    ring<<<2 * kBlocks, 32>>>(out.data, rounds, mistake);
    auto got = out.read();
    if (got.empty())
        return 9;
    std::vector<int> value(2 * kBlocks);
    for (int b = 0; b < 2 * kBlocks; ++b)
        value[b] = b;
    for (int round = 0; round < rounds; ++round) {
        std::vector<int> next(2 * kBlocks);
        for (int b = 0; b < 2 * kBlocks; ++b) {
            int from = b / kBlocks * kBlocks + (b + kBlocks - 1) % kBlocks;
            next[b] = 2 * value[from] + 3;
        }
        value = next;
    }
    return got == value ? 0 : 3;
}

int gathers(int mistake) {
    Output out(kBlocks * kThreads);
    if (launch(gather, dim3(kBlocks), dim3(kBlocks), 0, out.data, mistake) != cudaSuccess)
        return 2;
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != i / kThreads * 1000 + i % kThreads + kBlocks * (kBlocks + 1) / 2)
            return 3;
    return got.empty() ? 9 : 0;
}

int spreads() {
    std::vector<int> in(kThreads);
    for (int i = 0; i < kThreads; ++i)
        in[i] = 3 * i + 1;
    Output source(kThreads), out(4 * kThreads);
    cudaMemcpy(source.data, in.data(), kThreads * sizeof(int), cudaMemcpyHostToDevice);
    spread<<<4, kThreads>>>(source.data, out.data);
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != in[i % kThreads])
            return 3;
    return got.empty() ? 9 : 0;
}

int has_places() {
    Output out(4 * 4 * 2);
    for (dim3 shape : {dim3(1, 1, 1), dim3(2, 1, 1), dim3(1, 4, 1), dim3(2, 2, 2), dim3(4, 1, 2)}) {
        cudaMemset(out.data, 0, out.count * sizeof(int));
        if (launch(places, dim3(4, 4, 2), shape, 0, out.data) != cudaSuccess)
            return 2;
        for (int right : out.read())
            if (!right)
                return 3;
    }
    return 0;
}

// What the runtime refuses, and what it says of clusters.
int limits() {
    Output out(kThreads * 32);
    auto refused = [&](dim3 grid, dim3 shape) {
        cudaError_t error = launch(pass_on_of_any, grid, shape, kThreads * sizeof(int), out.data, 0);
        return error != cudaSuccess && cudaGetLastError() == error &&
               std::strlen(cudaGetErrorString(error)) > 0;
    };
    if (!refused(dim3(31), dim3(2)) || !refused(dim3(32), dim3(16)) || !refused(dim3(32), dim3(32)) ||
        !refused(dim3(32), dim3(1, 2)))
        return 3;
    pass_on_of_four<<<30, kThreads, kThreads * sizeof(int)>>>(out.data, 0);
    if (cudaGetLastError() == cudaSuccess)
        return 4;
    if (cudaFuncSetAttribute(pass_on_of_any, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) !=
        cudaSuccess)
        return 5;
    return passes_on(16, kNone);
}

int uses_twice(int mistake) {
    Output out(4 * kThreads);
    twice<<<4, kThreads>>>(out.data, mistake);
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != 3 * (i / kThreads % 2 ? i - kThreads : i + kThreads))
            return 3;
    return got.empty() ? 9 : 0;
}

int asks_again() {
    Output out(4);
    polls<<<4, 32>>>(out.data);
    return out.read() == std::vector<int>{41, 42, 41, 42} ? 0 : 3;
}

int meets_the_grid() {
    Output out(8 * kThreads), sums(8), ones(4);
    const int host[4] = {1, 1, 1, 1};
    cudaMemcpy(ones.data, host, sizeof host, cudaMemcpyHostToDevice);
    cooperative = true;
    if (launch(with_the_grid, dim3(8), dim3(2), 0, out.data, sums.data, ones.data) != cudaSuccess)
        return 2;
    for (int sum : out.read())
        if (sum != 28)
            return 3;
    return 0;
}

int meets_by_turns(int rounds, int blocks, int size) {
    Output out(blocks * kThreads);
    cooperative = true;
    if (launch(by_turns, dim3(blocks), dim3(size), 0, out.data, rounds) != cudaSuccess)
        return 2;
    auto got = out.read();
    for (int i = 0; i < static_cast<int>(got.size()); ++i)
        if (got[i] != rounds * (rounds - 1) / 2 + rounds * (i / kThreads ^ 1))
            return 3;
    return got.empty() ? 9 : 0;
}

int asks_afar() {
    if (launch(waits_afar, dim3(2), dim3(2), 0) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess)
        return 3;
    return 9;
}

int never_meets() {
    Output out(1);
    never<<<2, 32>>>(out.data);
    return out.read().empty() ? 9 : 3;
}

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
    if (is("pass-on"))
        return passes_on(4, kNone) + passes_on(2, kNone) + passes_on(8, kNone) + passes_on(1, kNone);
    if (is("give-away"))
        return gives_away() + uses_twice(kNone);
    if (is("ring"))
        return goes_round(5, kNone);
    if (is("gather"))
        return gathers(kNone);
    if (is("spread"))
        return spreads();
    if (is("places"))
        return has_places();
    if (is("limits"))
        return limits();
    if (is("no-barrier"))
        return passes_on(4, kNoBarrier);
    if (is("no-wait"))
        return passes_on(4, kNoWait);
    if (is("no-last-barrier"))
        return passes_on(4, kNoLast);
    if (is("remote-as-own"))
        return passes_on(4, kRemoteAsOwn);
    if (is("no-first-barrier"))
        return goes_round(5, kNoFirst);
    if (is("an-arrival-too-few"))
        return goes_round(5, kNoBarrier);
    if (is("leaves-early"))
        return gathers(kLeaves);
    if (is("polls"))
        return asks_again();
    if (is("with-the-grid"))
        return meets_the_grid();
    if (is("by-turns"))
        // Which of the two is more likely to meet that moment depends on how busy the machine is.
        return meets_by_turns(5000, 4, 2) + meets_by_turns(5000, 8, 8);
    if (is("no-second-barrier"))
        return uses_twice(kNoBarrier);
    if (is("ends-unseen"))
        return uses_twice(kNoLast);
    if (is("waits-afar"))
        return asks_afar();
    if (is("never"))
        return never_meets();
    std::fprintf(stderr, "no such check: %s\n", name);
    return 1;
}
