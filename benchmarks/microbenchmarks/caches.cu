// L1 by pattern of lanes, L2 shared or not, copies in bulk, answers of atomic operations, fences, sums over blocks.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/caches.cu -o caches
//     ./caches
//
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <cstdio>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <functional>
#include <chrono>
#include <cuda_runtime.h>
#include "median.h"
static char* big;
static const size_t kBig = 1ull << 30;
static char* flushed;
static const size_t kFlush = 256u << 20;
static unsigned long long* out;
__global__ void sweep(const unsigned* p, size_t n, unsigned* o) {
    unsigned s = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        s += p[i];
    if (s == 77)
        o[0] = s;
}
static void flush() {
    sweep<<<528, 512>>>((unsigned*)flushed, kFlush / 4, (unsigned*)out);
}
static float timed(const std::function<void()>& f, int reps = 5, bool cold = false) {
    return median_us(f, reps, cold ? flush : nullptr);
}
__device__ __forceinline__ unsigned ldca(const void* p) {
    unsigned v;
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ uint4 ldca4(const void* p) {
    uint4 v;
    asm volatile("ld.global.ca.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ uint4 ldcg4(const void* p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
// L1: lanes at lane * stride + shift bytes, `lines` of them distinct by kind; the region is 64 KB and stays in L1
template <int kWide>
__global__ void l1(const char* p, int kind, int stride, int shift, int n, unsigned long long* o) {
    unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5, s = 0;
    unsigned at = kind == 0 ? lane * stride + shift
                            : ((lane * 2654435761u + warp * 40503u) >> 8) & 0xfffc; // kind 1: random words
    for (int i = threadIdx.x * 4; i < 65536; i += blockDim.x * 4)
        s += ldca(p + i);
    __syncthreads();
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; i += 8)
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            unsigned place = (at + (i + k) * 132 * (kind ? 31 : 1) + warp * 2048) & 0xffff & ~(kWide - 1u);
            if (kind == 0)
                place = ((at & 0xffff) + ((i + k) & 3) * 128 * (stride == 4 ? 1 : 0) + 0) & 0xffff &
                        ~(kWide - 1u);
            if (kWide == 4)
                s += ldca(p + place);
            else {
                uint4 v = ldca4(p + place);
                s += v.x ^ v.w;
            }
        }
    __syncthreads();
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        o[blockIdx.x] = t1 - t0;
    if (s == 77)
        o[0] = s;
}
// L2: each warp reads lines of 512 B; `shared`: all SMs the same in the same order; else each its own part of the region
__global__ void l2read(const char* p, size_t bytes, int shared, int n, unsigned* o) {
    unsigned s = 0;
    size_t warps = gridDim.x * (size_t)(blockDim.x / 32),
           w = blockIdx.x * (size_t)(blockDim.x / 32) + threadIdx.x / 32, lines = bytes / 512;
    size_t at = shared == 1   ? threadIdx.x / 32
                : shared == 2 ? (threadIdx.x / 32 + blockIdx.x % 12 * (lines / 12))
                              : w;
    size_t step = shared ? blockDim.x / 32 : warps;
    for (int i = 0; i < n; i += 4) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            v[k] = ldcg4(p + (at % lines) * 512 + (threadIdx.x & 31) * 16);
            at += step;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
            s += v[k].x ^ v[k].w;
    }
    if (s == 77)
        o[0] = s;
}
// bulk copies of 16 KB into shared memory, four in flight
__global__ void bulk(const char* p, size_t bytes, int shared, int n) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char room[];
    __shared__ uint64_t bar[4];
    unsigned piece = 16384;
    size_t pieces = bytes / piece;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 4; ++k)
            asm volatile(
                "mbarrier.init.shared.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(&bar[k])));
        asm volatile("fence.mbarrier_init.release.cluster;");
        for (int i = 0; i < n + 4; ++i) {
            int k = i & 3;
            unsigned b = (unsigned)__cvta_generic_to_shared(&bar[k]);
            if (i >= 4) {
                unsigned parity = ((i >> 2) - 1) & 1, done = 0;
                for (int t = 0; t < 4000000 && !done; ++t)
                    asm volatile("{.reg .pred q; mbarrier.try_wait.parity.shared.b64 q, [%1], %2; selp.u32 "
                                 "%0, 1, 0, q;}"
                                 : "=r"(done)
                                 : "r"(b), "r"(parity));
            }
            if (i < n) {
                size_t which = (shared ? (size_t)i : (size_t)i * gridDim.x + blockIdx.x) % pieces;
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(b), "r"(piece));
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                             "%2, [%3];" ::"r"((unsigned)__cvta_generic_to_shared(room + k * piece)),
                             "l"(p + which * piece), "r"(piece), "r"(b)
                             : "memory");
            }
        }
    }
#endif
}
__global__ void answers(float* p, int n, int kind, unsigned long long* o) {
    float s = 0;
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; ++i) {
        if (kind == 0)
            s += atomicAdd(p + 1024 * i + (s == 77.f), 1.0f);
        if (kind == 1) {
            p[1024 * i] = s;
            __threadfence();
            s += clock() == 77;
        }
        if (kind == 2) {
            p[1024 * i] = s;
            __threadfence();
            s += atomicAdd(p + 1 + (s == 77.f), 1.0f);
        }
        if (kind == 3)
            s += __ldcg(p + 1024 * i + (s == 77.f));
    }
    unsigned long long t1 = clock64();
    o[0] = t1 - t0;
    if (s == 77.5f)
        o[1] = 1;
}
// a sum over blocks: kind 0 no ending; 1 one addition a block; 2 parts in memory, a ticket, and the last block adds them
__global__ void sums(const uint4* p, size_t per, float* parts, unsigned* ticket, float* o, int kind) {
    __shared__ float of_warp[32];
    __shared__ bool last;
    const uint4* q = p + blockIdx.x * per;
    float s = 0;
    for (size_t i = threadIdx.x; i < per; i += blockDim.x) {
        uint4 v = q[i];
        s += __uint_as_float(v.x) + __uint_as_float(v.y) + __uint_as_float(v.z) + __uint_as_float(v.w);
    }
    for (int d = 16; d; d /= 2)
        s += __shfl_xor_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
        for (int d = 16; d; d /= 2)
            s += __shfl_xor_sync(~0u, s, d);
    }
    if (kind == 0) {
        if (s == 77.5f)
            o[0] = s;
        return;
    }
    if (kind == 1) {
        if (threadIdx.x == 0)
            atomicAdd(o, s);
        return;
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = s;
        __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    s = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        s += __ldcg(parts + i);
    for (int d = 16; d; d /= 2)
        s += __shfl_xor_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; ++w)
            s += of_warp[w];
        o[0] = s;
    }
}
int main() {
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    int sms = prop.multiProcessorCount;
    printf("# %s\n", prop.name);
    OK(cudaMalloc(&big, kBig));
    OK(cudaMalloc(&flushed, kFlush));
    OK(cudaMalloc(&out, 1 << 20));
    OK(cudaMemset(big, 0, kBig));
    OK(cudaMemset(flushed, 1, kFlush));
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    unsigned* o = (unsigned*)out;
    auto cycles = [&] {
        unsigned long long c;
        OK(cudaMemcpy(&c, out, 8, cudaMemcpyDeviceToHost));
        return (double)c;
    };
    int n = 512;
    for (int stride : {0, 4, 8, 16, 32, 64, 128, 132, 256, 260, 512, 516, 1024, 2048, 2052})
        for (int shift : {0, 4}) {
            if (shift && stride != 4)
                continue;
            l1<4><<<1, 1024>>>(big, 0, stride, shift, n, out);
            double a = cycles() / (32.0 * n);
            l1<16><<<1, 1024>>>(big, 0, stride, shift, n, out);
            double b = cycles() / (32.0 * n);
            printf("l1 stride=%d shift=%d cycles a request: 4 B %.2f, 16 B %.2f\n", stride, shift, a, b);
        }
    l1<4><<<1, 1024>>>(big, 1, 0, 0, n, out);
    double a = cycles() / (32.0 * n);
    l1<16><<<1, 1024>>>(big, 1, 0, 0, n, out);
    printf("l1 random words 4 B %.2f, 16 B %.2f\n", a, cycles() / (32.0 * n));
    fflush(stdout);
    for (int mb : {1, 4, 16, 32})
        for (int shared : {0, 1, 2}) {
            int m = 2048, blocks = sms * 4;
            double bytes = (double)blocks * 8 * m * 512;
            printf("l2 MB=%d shared=%d %.2f TB/s\n", mb, shared,
                   bytes / timed([&] { l2read<<<blocks, 256>>>(big, (size_t)mb << 20, shared, m, o); }, 3) *
                       1e-6);
        }
    OK(cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    for (int mb : {1, 4, 16, 32, 512})
        for (int shared : {0, 1})
            for (int bps : {1, 3}) {
                int m = 512, blocks = sms * bps;
                double bytes = (double)blocks * m * 16384;
                printf("bulk MB=%d shared=%d blocks/SM=%d %.2f TB/s\n", mb, shared, bps,
                       bytes /
                           timed([&] { bulk<<<blocks, 128, 65536>>>(big, (size_t)mb << 20, shared, m); }, 3) *
                           1e-6);
                fflush(stdout);
            }
    for (int kind : {0, 1, 2, 3}) {
        answers<<<1, 1>>>((float*)big, 16, kind, out);
        answers<<<1, 1>>>((float*)big, 16, kind, out);
        printf("answers kind=%d cycles each %.0f\n", kind, cycles() / 16);
    }
    OK(cudaMemset(out, 0, 1 << 20));
    fflush(stdout);
    for (int blocks : {32, 132, 264, 528, 4096})
        for (int kb : {4, 16, 64}) {
            printf("sums blocks=%d KB=%d", blocks, kb);
            for (int kind : {0, 1, 2})
                printf(" kind%d %.2f", kind,
                       timed(
                           [&] {
                               sums<<<blocks, 512>>>((uint4*)big, kb * 64, (float*)out + 4096,
                                                     (unsigned*)out + 100000, (float*)out + 64, kind);
                           },
                           9, true));
            printf("\n");
        }
    OK(cudaDeviceSynchronize());
    printf("end\n");
}
