// What a request of a warp to global memory costs in L1: by lines, sectors, banks, width, lanes that take part, hits and
// misses, loads, stores and additions, of one warp or of all that an SM holds.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/lines.cu -o lines
//     ./lines
//
// Each row is a pattern: where each lane's bytes lie, and how far they move on with each request. `LIST=1` prints the
// patterns, `FROM` and `TO` say which rows, and `ONCE=1` runs each once on one SM, as Nsight Compute wants it.
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>
#include <cuda_runtime.h>
#include "median.h"

// A lane's bytes in request i: base + ((at + i * step + warp * of_warp + block * of_block) & mask).
struct Lane {
    unsigned base, at, step, mask, of_warp, of_block, active;
};
enum How { kCached, kPastL1, kStore, kAdd };

#ifdef __CUDA_ARCH__
#define PTX(...) asm volatile(__VA_ARGS__)
#else
#define PTX(...)
#endif

template <int kWide, int kHow> __device__ __forceinline__ unsigned one(char* at, unsigned value) {
    unsigned v = 0, w = 0, x = 0, y = 0;
    if constexpr (kHow == kStore) {
        if constexpr (kWide == 2)
            PTX("st.global.u16 [%0], %1;" ::"l"(at), "h"((unsigned short)value) : "memory");
        else if constexpr (kWide == 4)
            PTX("st.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
        else if constexpr (kWide == 8)
            PTX("st.global.v2.u32 [%0], {%1, %1};" ::"l"(at), "r"(value) : "memory");
        else
            PTX("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(value) : "memory");
    } else if constexpr (kHow == kAdd) {
        PTX("red.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
    } else if constexpr (kHow == kCached) {
        if constexpr (kWide == 2) {
            unsigned short h = 0;
            PTX("ld.global.ca.u16 %0, [%1];" : "=h"(h) : "l"(at));
            v = h;
        } else if constexpr (kWide == 4)
            PTX("ld.global.ca.u32 %0, [%1];" : "=r"(v) : "l"(at));
        else if constexpr (kWide == 8)
            PTX("ld.global.ca.v2.u32 {%0, %1}, [%2];" : "=r"(v), "=r"(w) : "l"(at));
        else
            PTX("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v), "=r"(w), "=r"(x), "=r"(y) : "l"(at));
    } else {
        if constexpr (kWide == 4)
            PTX("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at));
        else
            PTX("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v), "=r"(w), "=r"(x), "=r"(y) : "l"(at));
    }
    return v ^ w ^ x ^ y;
}

__device__ __forceinline__ unsigned warmed(char* p, unsigned bytes) {
    unsigned s = 0;
    for (unsigned i = threadIdx.x * 4; i < bytes; i += blockDim.x * 4)
        s += one<4, kCached>(p + i, 0);
    return s;
}

// Memory holds zeros. With `kChain` each request waits for the one before it; else eight are on their way.
template <int kWide, int kHow, bool kChain>
__global__ void requests(char* p, const Lane* lanes, unsigned warm, int n, unsigned long long* cycles) {
    Lane lane = lanes[threadIdx.x % 32];
    unsigned at = lane.at + threadIdx.x / 32 * lane.of_warp + blockIdx.x * lane.of_block, s = warmed(p, warm);
    char* q = p + lane.base;
    __syncthreads();
    unsigned long long t0 = clock64();
    if (lane.active) {
        for (int i = 0; i < n; i += 8) {
            unsigned v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                v[k] = one<kWide, kHow>(q + (at & lane.mask), 0);
                at += lane.step + (kChain ? v[k] : 0);
            }
#pragma unroll
            for (int k = 0; k < 8; ++k)
                s += v[k];
        }
    }
    __syncthreads();
    unsigned long long t1 = clock64();
    if (threadIdx.x == 0)
        cycles[blockIdx.x] = t1 - t0;
    if (s == 77)
        cycles[blockIdx.x] = 0;
}

// The first warp makes requests that wait for each other, the other warps theirs meanwhile, some `pause` cycles apart.
template <int kWide>
__global__ void beside(char* p, const Lane* first, const Lane* others, unsigned warm, int n, int of_others,
                       unsigned pause, unsigned long long* cycles) {
    unsigned warp = threadIdx.x / 32;
    Lane lane = (warp ? others : first)[threadIdx.x % 32];
    unsigned at = lane.at + warp * lane.of_warp, s = warmed(p, warm);
    char* q = p + lane.base;
    __syncthreads();
    unsigned long long t0 = clock64();
    for (int i = 0; i < (warp ? of_others : n); ++i) {
        unsigned v = one<kWide, kCached>(q + (at & lane.mask), 0);
        at += lane.step + v;
        if (warp && pause)
            for (unsigned long long t = clock64(); clock64() - t < pause;)
                ;
    }
    unsigned long long t1 = clock64();
    if (threadIdx.x % 32 == 0)
        cycles[warp] = t1 - t0;
    if (s + at == 77)
        cycles[0] = 0;
}

// The bytes of a lane in its line.
enum Bytes { kOwn, kSpread, kSame, kRandom, kCompact };
struct Row {
    std::string name;
    int wide, how, chain, warps, n;
    unsigned warm;
    Lane lanes[32];
    bool everywhere;
};
static std::vector<Row> rows;
static unsigned seed = 1;
static unsigned drawn() {
    return seed = seed * 1664525u + 1013904223u, seed >> 8;
}

static const unsigned kHits = 1 << 16, kFewHits = 1 << 14, kFar = 1 << 20, kOfAll = 1 << 24;

static unsigned byte_of(Bytes bytes, int wide, int lane, int in_line) {
    switch (bytes) {
    case kOwn:
        return lane * wide % 128;
    case kSpread:
        return (lane % 4 * 32 + lane / 4 * wide % 32) % 128;
    case kSame:
        return 0;
    case kRandom:
        return drawn() % (128 / wide) * wide;
    default:
        return in_line * wide % 128;
    }
}

// `lines` of `active` lanes, `missing` of them not in L1; those that are lie one behind the other, or scattered.
static void add(const char* of, int how, int wide, int lines, int active, int missing, Bytes bytes,
                bool scattered, int warps, bool chain) {
    static const char* const names[] = {"own", "spread", "same", "random", "compact"};
    Row row = {};
    char name[200];
    snprintf(name, sizeof name, "%s wide=%d lines=%d lanes=%d missing=%d bytes=%s%s warps=%d%s", of, wide,
             lines, active, missing, names[bytes], scattered ? " scattered" : "", warps,
             chain ? " chain" : "");
    row.name = name;
    row.wide = wide;
    row.how = how;
    row.chain = chain;
    row.warps = warps;
    row.n = chain ? 128 : 256;
    bool mixed = missing && missing < lines;
    unsigned hits = mixed ? kFewHits : kHits, count = hits / 128;
    row.warm = missing == lines ? 0 : hits;
    row.everywhere = missing > 0;
    unsigned all = row.everywhere ? 132 : 1;
    for (int i = 0, taken = 0; i < 32; ++i) {
        // Lanes that take no part lie between the others.
        Lane& lane = row.lanes[i];
        if ((i + 1) * active / 32 == i * active / 32)
            continue;
        int k = taken++, line = k * lines / active, before = (line * active + lines - 1) / lines;
        unsigned byte = byte_of(bytes, wide, active == 32 ? i : k, k - before);
        lane.active = 1;
        // Those that miss are spread over the lanes.
        bool misses = (line + 1) * missing / lines > line * missing / lines;
        if (misses) {
            unsigned which = line * missing / lines;
            lane.base = kFar;
            lane.at = which * 128 + byte;
            lane.of_warp = missing * 128;
            lane.of_block = missing * 128 * warps;
            lane.step = missing * 128 * warps * all;
            lane.mask = kOfAll - 1;
        } else {
            unsigned which = scattered ? line * 181 % count : line;
            lane.at = which * 128 + byte;
            lane.of_warp = lines * 128;
            lane.step = lines * 128;
            lane.mask = hits - 1;
        }
    }
    rows.push_back(row);
}

// Each lane walks through a part of its own, `apart` bytes from its neighbour's.
static void add_walk(int wide, unsigned apart, int warps, bool chain) {
    Row row = {};
    char name[200];
    snprintf(name, sizeof name, "walk wide=%d apart=%u warps=%d%s", wide, apart, warps,
             chain ? " chain" : "");
    row.name = name;
    row.wide = wide;
    row.how = kCached;
    row.chain = chain;
    row.warps = warps;
    row.n = 128;
    row.everywhere = true;
    for (unsigned i = 0; i < 32; ++i)
        row.lanes[i] = {
            kFar, i * apart / wide * wide, (unsigned)wide, kOfAll - 1, 32 * apart, 32 * apart * warps, 1};
    rows.push_back(row);
}

// Hits where lanes of both halves of a warp want the same lines, or words of a row of a matrix; some take no part.
static void add_halves(const char* of, int lines, unsigned apart, unsigned active) {
    add("hit", kCached, 4, 1, 32, 0, kOwn, false, 32, false);
    Row& row = rows.back();
    char name[200];
    snprintf(name, sizeof name, "hit %s lines=%d apart=%u active=%08x warps=32", of, lines, apart, active);
    row.name = name;
    for (unsigned i = 0; i < 32; ++i) {
        row.lanes[i].at = i % lines * apart;
        row.lanes[i].of_warp = row.lanes[i].step = 4;
        row.lanes[i].active = active >> i & 1;
    }
}

static void patterns() {
    for (int lines : {1, 2, 4, 8, 16, 32}) // hits
        for (Bytes bytes : {kOwn, kSpread, kRandom, kCompact})
            add("hit", kCached, 4, lines, 32, 0, bytes, false, 32, false);
    for (int lines : {4, 8, 16, 32})
        for (Bytes bytes : {kOwn, kRandom, kSame})
            add("hit", kCached, 4, lines, 32, 0, bytes, true, 32, false);
    for (unsigned apart : {256u, 132u})
        for (unsigned active : {0xffffffffu, 0x6b2d94c5u, 0x0000ffffu}) {
            add_halves("halves", 16, apart, active);
            add_halves("halves", 8, apart, active);
        }
    add_halves("halves", 2, 256, 0xffffffffu);
    for (int wide : {2, 8, 16})
        for (int lines : {1, 4, 8, 16, 32})
            for (Bytes bytes : {kOwn, kRandom})
                if (lines * 128 >= 32 * wide)
                    add("hit", kCached, wide, lines, 32, 0, bytes, lines > 4, 32, false);
    for (int active : {1, 2, 4, 8, 16})
        for (int wide : {4, 16})
            add("hit", kCached, wide, active, active, 0, kOwn, false, 32, false);
    for (int how : {kCached, kPastL1}) // misses
        for (int lines : {1, 2, 4, 8, 16, 32})
            for (Bytes bytes : {kOwn, kSpread})
                if (bytes == kOwn || lines < 32)
                    add(how == kCached ? "miss" : "past", how, 4, lines, 32, lines, bytes, false, 32, false);
    for (int lines : {4, 8, 16, 32})
        add("miss", kCached, 16, lines, 32, lines, kOwn, false, 32, false);
    for (int active : {1, 2, 4, 8, 16})
        add("miss", kCached, 4, active, active, active, kOwn, false, 32, false);
    for (int missing : {1, 2, 4, 8, 16})
        add("mixed", kCached, 4, 32, 32, missing, kOwn, true, 32, false);
    for (int missing : {1, 2, 4})
        add("mixed", kCached, 4, 8, 32, missing, kOwn, true, 32, false);
    for (int lines : {1, 4, 32}) // one warp
        for (int missing : {0, lines}) {
            add("one", kCached, 4, lines, 32, missing, kOwn, false, 1, false);
            add("one", kCached, 4, lines, 32, missing, kOwn, false, 1, true);
            add("one", kCached, 4, lines, 32, missing, kOwn, false, 8, true);
        }
    for (int missing : {1, 4, 16})
        add("one", kCached, 4, 32, 32, missing, kOwn, true, 1, true);
    for (int lines : {2, 8, 16}) {
        add("one", kCached, 4, lines, 32, 0, kOwn, false, 1, true);
        add("one", kCached, 4, lines, 32, lines, kOwn, false, 1, true);
    }
    for (int wide : {2, 4})
        for (unsigned apart : {84u, 420u, 1604u})
            for (int warps : {8, 32})
                for (bool chain : {true, false})
                    add_walk(wide, apart, warps, chain);
    for (int wide : {4, 16}) // stores and additions
        for (int lines : {1, 2, 4, 8, 16, 32})
            if (lines * 128 >= 32 * wide)
                add("store", kStore, wide, lines, 32, lines, kOwn, false, 32, false);
    add("store", kStore, 2, 1, 32, 1, kOwn, false, 32, false);
    add("store", kStore, 8, 2, 32, 2, kOwn, false, 32, false);
    for (int lines : {2, 4, 8})
        add("store", kStore, 4, lines, 32, lines, kSpread, false, 32, false);
    for (int active : {1, 4, 8, 16})
        add("store", kStore, 4, active, active, active, kOwn, false, 32, false);
    for (int lines : {1, 4, 8, 32})
        add("add", kAdd, 4, lines, 32, lines, kOwn, false, 32, false);
    for (int active : {1, 8})
        add("add", kAdd, 4, active, active, active, kOwn, false, 32, false);
}

static char* memory;
static Lane* lanes;
static unsigned long long* cycles;

template <int kWide, int kHow> static void launch(const Row& row, int blocks) {
    if (row.chain)
        requests<kWide, kHow, true><<<blocks, 32 * row.warps>>>(memory, lanes, row.warm, row.n, cycles);
    else
        requests<kWide, kHow, false><<<blocks, 32 * row.warps>>>(memory, lanes, row.warm, row.n, cycles);
}

static void launch(const Row& row, int blocks) {
    OK(cudaMemcpy(lanes, row.lanes, sizeof row.lanes, cudaMemcpyHostToDevice));
    switch (row.how * 100 + row.wide) {
    case kCached * 100 + 2:
        return launch<2, kCached>(row, blocks);
    case kCached * 100 + 4:
        return launch<4, kCached>(row, blocks);
    case kCached * 100 + 8:
        return launch<8, kCached>(row, blocks);
    case kCached * 100 + 16:
        return launch<16, kCached>(row, blocks);
    case kPastL1 * 100 + 4:
        return launch<4, kPastL1>(row, blocks);
    case kStore * 100 + 2:
        return launch<2, kStore>(row, blocks);
    case kStore * 100 + 4:
        return launch<4, kStore>(row, blocks);
    case kStore * 100 + 8:
        return launch<8, kStore>(row, blocks);
    case kStore * 100 + 16:
        return launch<16, kStore>(row, blocks);
    case kAdd * 100 + 4:
        return launch<4, kAdd>(row, blocks);
    }
}

// Cycles of a request of a warp on the slowest of the SMs, the median of three.
static double measured(const Row& row, int blocks) {
    std::vector<double> found;
    for (int turn = 0; turn < 4; ++turn) {
        launch(row, blocks);
        std::vector<unsigned long long> of(blocks);
        OK(cudaMemcpy(of.data(), cycles, 8 * blocks, cudaMemcpyDeviceToHost));
        if (turn)
            found.push_back((double)*std::max_element(of.begin(), of.end()) / row.n /
                            (row.chain ? 1 : row.warps));
    }
    std::sort(found.begin(), found.end());
    return found[1];
}

static int number(const char* name, int otherwise) {
    const char* text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int main() {
    patterns();
    int from = number("FROM", 0), to = std::min<int>(number("TO", 1 << 30), rows.size());
    if (number("LIST", 0)) {
        for (int k = from; k < to; ++k) {
            printf("%d %s:", k, rows[k].name.c_str());
            for (const Lane& lane : rows[k].lanes)
                lane.active ? printf(" %u", lane.base + lane.at) : printf(" -");
            printf("\n");
        }
        return 0;
    }
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    int sms = std::min(prop.multiProcessorCount, 132);
    printf("# %s, cycles of a request: of one SM, of all\n", prop.name);
    size_t size = kFar + kOfAll + 4096;
    OK(cudaMalloc(&memory, size));
    OK(cudaMemset(memory, 0, size));
    OK(cudaMalloc(&lanes, 64 * sizeof(Lane)));
    OK(cudaMalloc(&cycles, 8 * 1024));
    for (int k = from; k < to; ++k) {
        if (number("ONCE", 0)) {
            printf("%d %s\n", k, rows[k].name.c_str());
            launch(rows[k], 1);
            OK(cudaDeviceSynchronize());
            continue;
        }
        printf("%d %s: %.2f", k, rows[k].name.c_str(), measured(rows[k], 1));
        if (rows[k].everywhere)
            printf(" %.2f", measured(rows[k], sms));
        printf("\n");
        fflush(stdout);
    }
    if (from || number("ONCE", 0))
        return 0;
    // What a hit takes while other warps miss.
    size_t kept = rows.size();
    add("hit", kCached, 4, 1, 32, 0, kOwn, false, 1, true);
    add("hit", kCached, 4, 32, 32, 0, kOwn, false, 1, true);
    add("miss", kCached, 4, 1, 32, 1, kOwn, false, 8, true);
    add("miss", kCached, 4, 32, 32, 32, kOwn, false, 8, true);
    for (int first : {0, 1})
        for (int others : {0, 2, 3})
            for (int warps : {2, 8})
                for (unsigned pause : {0u, 500u, 2000u}) {
                    unsigned long long of[32];
                    OK(cudaMemcpy(lanes, rows[kept + first].lanes, sizeof rows[0].lanes,
                                  cudaMemcpyHostToDevice));
                    OK(cudaMemcpy(lanes + 32, rows[kept + others].lanes, sizeof rows[0].lanes,
                                  cudaMemcpyHostToDevice));
                    for (int turn = 0; turn < 2; ++turn)
                        beside<4>
                            <<<1, 32 * warps>>>(memory, lanes, lanes + 32, kHits, 256, 256, pause, cycles);
                    OK(cudaMemcpy(of, cycles, sizeof of, cudaMemcpyDeviceToHost));
                    printf("first: %s; %d others %u apart: %s: %.1f cycles; others %.1f\n",
                           rows[kept + first].name.c_str(), warps - 1, pause,
                           rows[kept + others].name.c_str(), (double)of[0] / 256, (double)of[1] / 256);
                    fflush(stdout);
                }
    OK(cudaDeviceSynchronize());
    printf("end\n");
}
