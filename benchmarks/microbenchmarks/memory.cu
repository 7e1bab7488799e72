// Loads, gathers, atomic additions, streams and launches: latencies in cycles, bandwidths, times between events.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/memory.cu -o memory
//     ./memory
//
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <functional>
#include <cuda_runtime.h>
#include <chrono>
#include "median.h"
namespace cg = cooperative_groups;
static char* big;
static size_t kBig = 2ull << 30; // 2 GiB
static char* flushed;
static size_t kFlush = 256u << 20;
static unsigned long long* out;
__global__ void fill(unsigned* p, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = p[i] * 3 + 1;
}
static void flush() {
    fill<<<528, 512>>>((unsigned*)flushed, kFlush / 4);
}
static float timed(const std::function<void()>& f, int reps = 5, bool cold = false) {
    return median_us(f, reps, cold ? flush : nullptr);
}
__device__ __forceinline__ unsigned mix(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

// ---- 1. chains of dependent loads by one thread
__global__ void chain(const char* p, size_t stride, int n, unsigned long long* o) {
    size_t at = 0;
    unsigned s = 0;
    unsigned long long t0 = clock64();
    for (int i = 0; i < n; ++i) {
        unsigned v = __ldcg((const unsigned*)(p + at));
        s += v;
        at += stride + (v == 0xffffffffu);
    }
    unsigned long long t1 = clock64();
    o[0] = t1 - t0;
    o[1] = s;
}
// several warps of one block each load independent; first use of the kernel parameters etc. is in the event time
__global__ void touch(const char* a, size_t apart, int k, int dependent,
                      unsigned* o) { // k buffers, one load each
    unsigned s = 0;
    size_t extra = 0;
    for (int i = 0; i < k; ++i) {
        unsigned v =
            __ldcg((const unsigned*)(a + i * apart + extra + 128 * (blockIdx.x * blockDim.x + threadIdx.x)));
        s += v;
        if (dependent)
            extra = (v == 0xfffffff1u);
    }
    if (s == 0x12345)
        o[0] = s;
}
// ---- 2. starts of blocks
__global__ void empty() {}
template <int kRegs> __global__ void __launch_bounds__(1024) store_one(unsigned* o) {
    o[blockIdx.x * (size_t)blockDim.x + threadIdx.x] = threadIdx.x;
}
__global__ void stay(long long cycles) {
    long long t = clock64();
    while (clock64() - t < cycles)
        ;
}
// ---- 3. gathers: each group of `lanes` lanes reads 16 x lanes bytes at a random place (lanes=2: one sector, 8: a line)
template <int kUnroll>
__global__ void gather(const uint4* p, unsigned mask, int lanes, int n, unsigned shift, unsigned* o) {
    unsigned g = (blockIdx.x * blockDim.x + threadIdx.x) / lanes, l = threadIdx.x % lanes;
    unsigned s = 0;
    unsigned h = mix(g * 2654435761u + 12345);
    for (int i = 0; i < n; i += kUnroll) {
        uint4 v[kUnroll];
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) {
            h = h * 1664525u + 1013904223u;
            unsigned r = (h >> 4) & mask;
            v[k] = __ldcg(p + ((size_t)r << shift) + l);
        }
#pragma unroll
        for (int k = 0; k < kUnroll; ++k)
            s += v[k].x ^ v[k].w;
    }
    if (s == 0x12345)
        o[0] = s;
}
// ---- 4. atomics: kind 0 red.add.f32 random words in a table; lanes of a warp share a place by `same`, neighbours by `run`
template <int kKind> __global__ void atomics(float* p, unsigned mask, int same, int run, int n, unsigned* o) {
    unsigned w = (blockIdx.x * blockDim.x + threadIdx.x), lane = w & 31;
    unsigned h;
    float s = 0;
    unsigned group = (w >> 5) * 32 + lane / (same * run);
    h = mix(group * 2654435761u + 99);
    for (int i = 0; i < n; ++i) {
        h = h * 1664525u + 1013904223u;
        unsigned r = ((h >> 3) * run + lane / same % run) & mask;
        if (kKind == 0)
            atomicAdd(p + r, 1.0f);
        else if (kKind == 1)
            s += atomicAdd(p + r, 1.0f);
        else if (kKind == 2)
            atomicAdd((unsigned*)p + r, 1u);
        else if (kKind == 3)
            s += atomicAdd((unsigned*)p + r, 1u);
        else if (kKind == 4)
            atomicMax((int*)p + r, (int)h);
    }
    if (kKind & 1)
        if (s == 0.12345f)
            o[0] = 1;
}
// one address for each of `many` places, warps leader only
__global__ void hot(float* p, int apart, int many, int n, int back, unsigned* o) {
    unsigned w = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    float s = 0;
    if ((threadIdx.x & 31) == 0)
        for (int i = 0; i < n; ++i) {
            if (back)
                s += atomicAdd(p + (size_t)(w % many) * apart, 1.0f);
            else
                atomicAdd(p + (size_t)(w % many) * apart, 1.0f);
        }
    if (s == 0.12345f)
        o[0] = 1;
}
// ---- 7. stream with a given number of loads in flight
template <int kUnroll>
__global__ void stream(const uint4* p, size_t per_block, unsigned* o) { // uint4 of each block
    unsigned s = 0;
    const uint4* q = p + blockIdx.x * per_block;
    for (size_t i = threadIdx.x; i + (kUnroll - 1) * blockDim.x < per_block; i += kUnroll * blockDim.x) {
        uint4 v[kUnroll];
#pragma unroll
        for (int k = 0; k < kUnroll; ++k)
            v[k] = __ldcg(q + i + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < kUnroll; ++k)
            s += v[k].x ^ v[k].w;
    }
    if (s == 0x12345)
        o[0] = s;
}
__global__ void copy16(const uint4* a, uint4* b, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        b[i] = a[i];
}
__global__ void write16(uint4* b, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        b[i] = make_uint4(i, 1, 2, 3);
}
__global__ void cluster_empty(unsigned* o) {
    if (o && threadIdx.x == 1024)
        o[0] = 1;
}
extern __shared__ char dyn[];
__global__ void dyn_empty(unsigned* o) {
    if (threadIdx.x == 1024)
        o[0] = dyn[0];
}
__global__ void coop(unsigned* o, int n) {
    auto g = cg::this_grid();
    for (int i = 0; i < n; ++i)
        g.sync();
    if (threadIdx.x == 1024)
        o[0] = 1;
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
int main(int argc, char** argv) {
    double began = now();
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    int sms = prop.multiProcessorCount;
    printf("# %s %d SMs L2 %d MB\n", prop.name, sms, prop.l2CacheSize >> 20);
    if (const char* small = getenv("SMALL")) {
        kBig = 64 << 20;
        kFlush = 8 << 20;
    }
    OK(cudaMalloc(&big, kBig));
    OK(cudaMalloc(&flushed, kFlush));
    OK(cudaMalloc(&out, 1 << 20));
    OK(cudaMemset(big, 0, kBig));
    OK(cudaMemset(flushed, 1, kFlush));
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    unsigned* o = (unsigned*)out;
    auto head = [&](const char* s) {
        printf("## %s  (%.1f s)\n", s, now() - began);
        fflush(stdout);
    };

    head("1a chain of dependent loads, cycles each: stride, n, cold (L2 flushed), then again warm");
    for (size_t stride :
         {(size_t)32, (size_t)128, (size_t)4096, (size_t)65536, (size_t)(2 << 20), (size_t)(8 << 20)})
        for (int n : {1, 4, 16, 64}) {
            if (stride * n > kBig)
                continue;
            unsigned long long c[2], w[2];
            flush();
            OK(cudaDeviceSynchronize());
            chain<<<1, 1>>>(big, stride, n, out);
            OK(cudaMemcpy(c, out, 16, cudaMemcpyDeviceToHost));
            chain<<<1, 1>>>(big, stride, n, out);
            OK(cudaMemcpy(w, out, 16, cudaMemcpyDeviceToHost));
            printf("chain stride=%zu n=%d cold %.0f warm %.0f\n", stride, n, (double)c[0] / n,
                   (double)w[0] / n);
        }
    head("1b kernel that touches k buffers 64 MB apart: us by events, cold");
    for (int blocks : {1, 132, 1056})
        for (int k : {0, 1, 2, 4, 8})
            for (int dep : {0, 1}) {
                if (k < 2 && dep)
                    continue;
                size_t apart = std::min<size_t>(64 << 20, (kBig - (1056 * 256 * 128)) / 8);
                printf("touch blocks=%d k=%d dep=%d cold %.2f warm %.2f\n", blocks, k, dep,
                       timed([&] { touch<<<blocks, 256>>>(big, apart, k, dep, o); }, 7, true),
                       timed([&] { touch<<<blocks, 256>>>(big, apart, k, dep, o); }, 7));
            }
    head("2 starts: empty blocks, us by events (blocks, threads)");
    for (int threads : {32, 64, 128, 256, 512, 1024})
        for (int blocks : {1, 132, 1056, 8192, 65536})
            printf("empty blocks=%d threads=%d %.2f  store %.2f\n", blocks, threads,
                   timed([&] { empty<<<blocks, threads>>>(); }),
                   (size_t)blocks * threads * 4 <= kBig
                       ? timed([&] { store_one<0><<<blocks, threads>>>((unsigned*)big); })
                       : 0.0f);
    for (int kb : {0, 16, 48, 100, 200})
        for (int blocks : {132, 1056, 8192}) {
            OK(cudaFuncSetAttribute(dyn_empty, cudaFuncAttributeMaxDynamicSharedMemorySize, kb << 10));
            printf("dynamic shared %d KB blocks=%d threads=256 %.2f\n", kb, blocks,
                   timed([&] { dyn_empty<<<blocks, 256, kb << 10>>>(o); }));
        }
    head("5 launches in a row: us by events of n launches");
    for (int n : {1, 2, 4, 16}) {
        printf("row n=%d empty1 %.2f empty132x256 %.2f stay1us %.2f", n, timed([&] {
                   for (int i = 0; i < n; ++i)
                       empty<<<1, 32>>>();
               }),
               timed([&] {
                   for (int i = 0; i < n; ++i)
                       empty<<<132, 256>>>();
               }),
               timed([&] {
                   for (int i = 0; i < n; ++i)
                       stay<<<132, 256>>>(2000);
               }));
        printf(" stay10us %.2f stay10us_1056x1024 %.2f", timed([&] {
                   for (int i = 0; i < n; ++i)
                       stay<<<132, 256>>>(20000);
               }),
               timed([&] {
                   for (int i = 0; i < n; ++i)
                       stay<<<264, 1024>>>(20000);
               }));
        printf(" memset+stay10us %.2f", timed([&] {
                   for (int i = 0; i < n; ++i) {
                       cudaMemsetAsync(out, 0, 4096);
                       stay<<<132, 256>>>(20000);
                   }
               }));
        printf(" carveout_switch10us %.2f\n", timed([&] {
                   for (int i = 0; i < n; ++i) {
                       stay<<<132, 256>>>(20000);
                       dyn_empty<<<132, 256, 200 << 10>>>(o);
                   }
               }));
    }
    for (int c : {1, 2, 4, 8, 16})
        for (int blocks : {16, 128, 1024}) {
            cudaLaunchConfig_t cfg = {};
            cfg.gridDim = blocks;
            cfg.blockDim = 256;
            cudaLaunchAttribute a;
            a.id = cudaLaunchAttributeClusterDimension;
            a.val.clusterDim.x = c;
            a.val.clusterDim.y = a.val.clusterDim.z = 1;
            cfg.attrs = &a;
            cfg.numAttrs = 1;
            if (c > 8)
                OK(cudaFuncSetAttribute(cluster_empty, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
            printf("cluster %d blocks=%d %.2f\n", c, blocks,
                   timed([&] { OK(cudaLaunchKernelEx(&cfg, cluster_empty, (unsigned*)nullptr)); }));
        }
    for (int blocks : {132, 264})
        for (int n : {0, 1, 4, 16}) {
            void* args[] = {&o, &n};
            printf("cooperative blocks=%d syncs=%d %.2f\n", blocks, n,
                   timed([&] { OK(cudaLaunchCooperativeKernel((void*)coop, blocks, 256, args)); }));
        }
    head("3 gathers, TB/s: footprint MB (contiguous), lanes x 16 B; and the same number of places spread "
         "over 2 GiB");
    for (int mb : {1, 8, 16, 24, 32, 48, 64, 128, 512, 2048}) {
        if ((size_t)mb << 20 > kBig)
            continue;
        for (int lanes : {2, 4, 8, 32}) {
            unsigned place = lanes * 16, shift = lanes == 2 ? 1 : lanes == 4 ? 2 : lanes == 8 ? 3 : 5;
            unsigned mask = ((size_t)mb << 20) / place;
            unsigned pow2 = 1;
            while (pow2 * 2 <= mask)
                pow2 *= 2; // 24, 48: masks are powers of two: use a fraction
            int n = 256, blocks = sms * 8;
            double bytes = (double)blocks * 256 * 16 * n;
            float u4 =
                timed([&] { gather<4><<<blocks, 256>>>((uint4*)big, pow2 - 1, lanes, n, shift, o); }, 3);
            float u1 =
                timed([&] { gather<1><<<blocks, 256>>>((uint4*)big, pow2 - 1, lanes, n / 4, shift, o); }, 3) *
                4;
            int up = 0;
            while (((size_t)(pow2 - 1) << (shift + up + 1 + 4)) + 512 < kBig)
                ++up;
            float far =
                timed([&] { gather<4><<<blocks, 256>>>((uint4*)big, pow2 - 1, lanes, n, shift + up, o); }, 3);
            printf("gather MB=%zu place=%u u4 %.2f u1 %.2f spread(x%d) %.2f\n", ((size_t)pow2 * place) >> 20,
                   place, bytes / u4 * 1e-6, bytes / u1 * 1e-6, 1 << up, bytes / far * 1e-6);
        }
    }
    head("3b gathers of lines with a row stride (16 KB): window of rows x lines side by side, TB/s");
    for (int rows_log : {10, 12, 14, 17})
        for (int stride_log : {10, 13, 14, 15}) {
            if (((size_t)1 << (rows_log + stride_log)) > kBig)
                continue;
            int n = 256, blocks = sms * 8;
            double bytes = (double)blocks * 256 * 16 * n;
            float t = timed(
                [&] {
                    gather<4><<<blocks, 256>>>((uint4*)big, (1u << rows_log) - 1, 8, n, stride_log - 4, o);
                },
                3);
            printf("rows=%d stride=%d lines of 128 B: %.1f MB touched, %.2f TB/s\n", 1 << rows_log,
                   1 << stride_log, (1 << rows_log) * 128e-6, bytes / t * 1e-6);
        }
    head("4 atomics: sectors per clock at 1.965 GHz is ops/us/1965; G lanes/s: kind, table, lanes at one "
         "word, words side by side");
    for (int kind : {0, 1, 2, 3})
        for (size_t kb : {1, 8, 32, 128, 512, 2048, 32768, 1048576})
            for (int same : {1, 4, 32})
                for (int run : {1, 8, 32}) {
                    if (same * run > 32 || kb << 10 > kBig || (kind > 1 && kb != 2048 && kb != 8) ||
                        ((kb == 1 || kb == 32 || kb == 512) && (same > 1 || run > 1)))
                        continue;
                    int n = 64, blocks = sms * 8;
                    unsigned mask = (kb << 8) - 1;
                    auto f = [&] {
                        if (kind == 0)
                            atomics<0><<<blocks, 256>>>((float*)big, mask, same, run, n, o);
                        if (kind == 1)
                            atomics<1><<<blocks, 256>>>((float*)big, mask, same, run, n, o);
                        if (kind == 2)
                            atomics<2><<<blocks, 256>>>((float*)big, mask, same, run, n, o);
                        if (kind == 3)
                            atomics<3><<<blocks, 256>>>((float*)big, mask, same, run, n, o);
                    };
                    double lanes = (double)blocks * 256 * n;
                    float t = timed(f, 3);
                    printf("atomic kind=%d table=%zuKB same=%d run=%d  %.1f us  %.1f lanes/clk  %.2f "
                           "warps/clk\n",
                           kind, kb, same, run, t, lanes / (t * 1965), lanes / 32 / (t * 1965));
                }
    for (int back : {0, 1})
        for (int many : {1, 2, 8, 64, 1024})
            for (int apart : {1, 8, 32, 1024}) {
                int n = 16, blocks = sms * 2;
                float t = timed([&] { hot<<<blocks, 256>>>((float*)big, apart, many, n, back, o); }, 3);
                printf("hot back=%d many=%d apart=%dB  %.2f us  %.3f ops/clk of one address, %.2f of all\n",
                       back, many, apart * 4, t, (double)blocks * 8 * n / many / (t * 1965),
                       (double)blocks * 8 * n / (t * 1965));
            }
    head("7 streams with few warps: TB/s from L2 (16 MB) and DRAM (1 GB): blocks/SM x threads x loads in "
         "flight");
    for (size_t mb : {16, 1024}) {
        if (mb << 20 > kBig)
            continue;
        for (int bps : {1, 2, 4, 8})
            for (int threads : {32, 128, 256}) {
                int blocks = sms * bps;
                size_t per = (mb << 16) / blocks;
                double bytes = (double)per * blocks * 16;
                printf("stream MB=%zu blocks/SM=%d threads=%d  u1 %.3f u2 %.3f u4 %.3f u8 %.3f\n", mb, bps,
                       threads,
                       bytes / timed([&] { stream<1><<<blocks, threads>>>((uint4*)big, per, o); }, 3) * 1e-6,
                       bytes / timed([&] { stream<2><<<blocks, threads>>>((uint4*)big, per, o); }, 3) * 1e-6,
                       bytes / timed([&] { stream<4><<<blocks, threads>>>((uint4*)big, per, o); }, 3) * 1e-6,
                       bytes / timed([&] { stream<8><<<blocks, threads>>>((uint4*)big, per, o); }, 3) * 1e-6);
            }
    }
    head("8 copies and writes, us by events, cold: MB");
    for (size_t mb : {1, 4, 8, 16, 24, 32, 48, 64, 128, 512}) {
        if (2 * (mb << 20) > kBig)
            continue;
        size_t n = mb << 16;
        printf("MB=%zu copy %.2f write %.2f read %.2f\n", mb,
               timed([&] { copy16<<<(unsigned)(n / 256), 256>>>((uint4*)big, (uint4*)(big + kBig / 2), n); },
                     5, true),
               timed([&] { write16<<<(unsigned)(n / 256), 256>>>((uint4*)big, n); }, 5, true),
               timed([&] { stream<4><<<sms * 8, 256>>>((uint4*)big, n / (sms * 8), o); }, 5, true));
    }
    OK(cudaDeviceSynchronize());
    head("end");
}
