// Clusters: barriers, loads from the shared memory of another block, exchanges.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/clusters.cu -o clusters
//     ./clusters
//
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <cooperative_groups.h>
#include <cstdio>
#include <vector>
#include <algorithm>
#include <functional>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;
#define OK(x)                                                                                                \
    do {                                                                                                     \
        cudaError_t e_ = (x);                                                                                \
        if (e_ != cudaSuccess) {                                                                             \
            printf("FAIL line %d: %s\n", __LINE__, cudaGetErrorString(e_));                                  \
            cudaGetLastError();                                                                              \
        }                                                                                                    \
    } while (0)
__global__ void syncs(unsigned long long* o, int n) {
    auto c = cg::this_cluster();
    c.sync();
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; ++i)
        c.sync();
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
    c.sync();
}
__global__ void blocks_syncs(unsigned long long* o, int n) {
    __syncthreads();
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; ++i)
        __syncthreads();
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
}
__global__ void remote(unsigned long long* o, int n, int far) {
    __shared__ unsigned s[4096];
    auto c = cg::this_cluster();
    for (int i = threadIdx.x; i < 4096; i += blockDim.x)
        s[i] = (i * 97 + 33) & 4095;
    c.sync();
    unsigned* q = far ? c.map_shared_rank(s, (c.block_rank() + 1) % c.num_blocks()) : s;
    unsigned at = threadIdx.x;
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; ++i)
        at = q[at];
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
    if (at == 5000)
        o[0] = 1;
    unsigned long long u0 = clock64();
    unsigned sum = 0;
    for (int i = 0; i < n; ++i)
        sum += q[(threadIdx.x + i * 32) & 4095];
    unsigned long long u1 = clock64();
    c.sync();
    if (threadIdx.x == 0)
        o[64 + blockIdx.x] = u1 - u0;
    if (sum == 77)
        o[1] = 1;
    c.sync();
}
__global__ void exchange(unsigned long long* o, int n,
                         int kind) { // store to a neighbour, then barrier: kind 0 nothing stored
    __shared__ float s[1024];
    auto c = cg::this_cluster();
    float* q = c.map_shared_rank(s, (c.block_rank() + 1) % c.num_blocks());
    c.sync();
    unsigned long long t0 = clock64();
    float v = threadIdx.x;
    for (int i = 0; i < n; ++i) {
        if (kind)
            q[threadIdx.x] = v;
        c.sync();
        v += s[threadIdx.x];
        c.sync();
    }
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
    if (v == 77)
        o[1] = 1;
    c.sync();
}
// The same by st.async, in pairs: each thread sends a word to the other, whose mbarrier counts the bytes. Two mbarriers in turn;
// who has received in one pass may be written in the next but one, as the other one has sent then. `local` looks at the
// mbarrier with the scope of the block.
__global__ void sends(unsigned long long* o, int n, bool local) {
    __shared__ unsigned s[2][1024];
    __shared__ alignas(8) unsigned long long there[2];
    auto c = cg::this_cluster();
    unsigned mine[2], own_bar[2], its[2], its_bar[2], to = c.block_rank() ^ 1;
    for (int k = 0; k < 2; ++k) {
        mine[k] = (unsigned)__cvta_generic_to_shared(&s[k][threadIdx.x]);
        own_bar[k] = (unsigned)__cvta_generic_to_shared(&there[k]);
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its[k]) : "r"(mine[k]), "r"(to));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_bar[k]) : "r"(own_bar[k]), "r"(to));
        if (threadIdx.x == 0)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(own_bar[k]) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    c.sync();
    unsigned long long t0 = clock64();
    unsigned v = threadIdx.x;
    for (int i = 0; i < n; ++i) {
        int k = i % 2;
        if (threadIdx.x == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(own_bar[k]),
                         "r"((unsigned)(blockDim.x * 4))
                         : "memory");
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(its[k]), "r"(v),
            "r"(its_bar[k])
            : "memory");
        unsigned done = 0;
        while (!done)
            if (local)
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 "
                             "%0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(own_bar[k]), "r"((unsigned)(i / 2 % 2))
                             : "memory");
            else
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, "
                             "[%1], %2; selp.u32 "
                             "%0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(own_bar[k]), "r"((unsigned)(i / 2 % 2))
                             : "memory");
        v += s[k][threadIdx.x];
        __syncthreads();
    }
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
    if (v == 77)
        o[1] = 1;
    c.sync();
}
template <class... A> void go(void (*k)(A...), int cluster, int blocks, int threads, A... a) {
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = blocks;
    cfg.blockDim = threads;
    cudaLaunchAttribute at;
    at.id = cudaLaunchAttributeClusterDimension;
    at.val.clusterDim.x = cluster;
    at.val.clusterDim.y = at.val.clusterDim.z = 1;
    cfg.attrs = &at;
    cfg.numAttrs = 1;
    if (cluster > 8)
        OK(cudaFuncSetAttribute((const void*)k, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    OK(cudaLaunchKernelEx(&cfg, k, a...));
    OK(cudaDeviceSynchronize());
}
int main() {
    unsigned long long *o, h[128];
    OK(cudaMalloc(&o, 1024));
    int n = 64;
    auto get = [&] { OK(cudaMemcpy(h, o, 1024, cudaMemcpyDeviceToHost)); };
    for (int c : {1, 2, 4, 8, 16})
        for (int t : {32, 256, 1024}) {
            go(syncs, c, c, t, o, n);
            go(syncs, c, c, t, o, n);
            get();
            printf("cluster.sync cluster=%d threads=%d %.0f cycles", c, t, (double)h[0] / n);
            go(blocks_syncs, 1, 1, t, o, n);
            get();
            printf(" __syncthreads %.0f\n", (double)h[0] / n);
        }
    for (int c : {1, 2, 8, 16})
        for (int t : {32, 256})
            for (int far : {0, 1}) {
                go(remote, c, c, t, o, n, far);
                go(remote, c, c, t, o, n, far);
                get();
                printf("remote cluster=%d threads=%d far=%d chain %.0f stream %.1f cycles a load\n", c, t,
                       far, (double)h[0] / n, (double)h[64] / n);
            }
    for (int c : {2, 8, 16})
        for (int t : {256, 1024})
            for (int k : {0, 1}) {
                go(exchange, c, c, t, o, n, k);
                go(exchange, c, c, t, o, n, k);
                get();
                printf("exchange cluster=%d threads=%d store=%d %.0f cycles a step of two barriers\n", c, t,
                       k, (double)h[0] / n);
            }
    for (int c : {2, 8})
        for (int t : {32, 256, 1024})
            for (bool local : {false, true}) {
                go(sends, c, c, t, o, n, local);
                go(sends, c, c, t, o, n, local);
                get();
                printf("st.async cluster=%d threads=%d scope of the %s %.0f cycles a pass\n", c, t,
                       local ? "block" : "cluster", (double)h[0] / n);
            }
    printf("end\n");
}
