// Cycles of an instruction of each kind: chains of a thread, warps in one block on one SM; barriers of a block.
//
//     nvcc -O3 -std=c++17 -arch=native benchmarks/microbenchmarks/chains.cu -o chains
//     ./chains
//
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <cstdio>
#include <cstdint>

constexpr int kPasses = 64;

enum Kind {
    kFma,
    kAdd,
    kIadd,
    kImad,
    kExp,
    kExpAccurate,
    kDivide,
    kDivideFast,
    kSqrt,
    kToBf16,
    kToFloat,
    kInt2Float,
    kShuffle,
    kShuffleAdd,
    kShared,
    kSharedAddress,
    kMma,
    kDfma,
    kMaxF,
    kSelect,
    kLog,
    kMod,
    kKinds
};
const char* names[] = {"fma",
                       "add",
                       "iadd",
                       "imad",
                       "__expf",
                       "expf",
                       "divide",
                       "__fdividef",
                       "sqrtf",
                       "to bf16 and back",
                       "bf16 hfma2",
                       "int to float to int",
                       "shuffle",
                       "shuffle+add",
                       "shared load chain",
                       "shared load, index free",
                       "mma m16n8k16 bf16",
                       "dfma",
                       "fmaxf",
                       "compare and select",
                       "logf",
                       "integer modulo"};

template <int kind, int chains> __global__ void test(float* out, long long* cycles, int zero, float one) {
    __shared__ float table[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x)
        table[i] = __int_as_float(kind == kShared ? (i & 2047) : 0);
    __syncthreads();
    float x[chains];
    int n[chains];
    float d[chains][4];
    double w[chains];
    uint32_t a[4] = {}, b[2] = {};
    __nv_bfloat162 h[chains];
    for (int c = 0; c < chains; ++c) {
        x[c] = one + c + threadIdx.x * 1e-3f;
        n[c] = zero + c + threadIdx.x;
        w[c] = x[c];
        h[c] = __float2bfloat162_rn(x[c]);
        for (int k = 0; k < 4; ++k)
            d[c][k] = x[c];
    }
    __syncthreads();
    long long start = clock64();
#pragma unroll 4
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int c = 0; c < chains; ++c) {
            if (kind == kFma)
                x[c] = fmaf(x[c], one, x[c]);
            if (kind == kAdd)
                x[c] = x[c] + one;
            if (kind == kIadd)
                n[c] = (n[c] ^ zero) + n[c];
            if (kind == kImad)
                n[c] = n[c] * zero + n[c];
            if (kind == kExp)
                x[c] = __expf(x[c]);
            if (kind == kExpAccurate)
                x[c] = expf(x[c]);
            if (kind == kDivide)
                x[c] = one / x[c];
            if (kind == kDivideFast)
                x[c] = __fdividef(one, x[c]);
            if (kind == kSqrt)
                x[c] = sqrtf(x[c]);
            if (kind == kToBf16)
                x[c] = __bfloat162float(__float2bfloat16(x[c]));
            if (kind == kToFloat)
                h[c] = __hfma2(h[c], h[c], h[c]);
            if (kind == kInt2Float)
                n[c] = (int)((float)n[c]);
            if (kind == kShuffle)
                x[c] = __shfl_xor_sync(~0u, x[c], 16);
            if (kind == kShuffleAdd)
                x[c] += __shfl_xor_sync(~0u, x[c], 16);
            if (kind == kShared)
                n[c] = __float_as_int(table[n[c] & 2047]);
            if (kind == kSharedAddress)
                x[c] += table[(n[c] + pass * 32) & 2047];
            if (kind == kMma)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                             "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
            if (kind == kDfma)
                w[c] = fma(w[c], (double)one, w[c]);
            if (kind == kMaxF)
                x[c] = fmaxf(x[c], -x[c] + one);
            if (kind == kSelect)
                n[c] = n[c] > zero ? n[c] - 3 : n[c] + 5;
            if (kind == kLog)
                x[c] = logf(x[c]);
            if (kind == kMod)
                n[c] = (n[c] + 1000003) % (zero + 977);
        }
    }
    long long end = clock64();
    float sum = 0;
    for (int c = 0; c < chains; ++c)
        sum += x[c] + n[c] + d[c][0] + d[c][1] + d[c][2] + d[c][3] + (float)w[c] + __low2float(h[c]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x % 32 == 0)
        cycles[threadIdx.x / 32] = end - start;
}

template <int kind, int chains> double once(int warps) {
    static float* out = nullptr;
    static long long* cycles = nullptr;
    if (!out) {
        cudaMalloc(&out, 1 << 16);
        cudaMallocManaged(&cycles, 64 * 8);
    }
    long long most = 1ll << 60;
    for (int run = 0; run < 3; ++run) {
        test<kind, chains><<<1, 32 * warps>>>(out, cycles, kind == kMod ? 24 : 0,
                                              kind == kExp || kind == kExpAccurate ? -1.0f : 1.0f);
        cudaDeviceSynchronize();
        long long longest = 0;
        for (int w = 0; w < warps; ++w)
            longest = cycles[w] > longest ? cycles[w] : longest;
        most = longest < most ? longest : most;
    }
    return (double)most / kPasses;
}
template <int kind> void row() {
    // Cycles of a pass, in which each chain has one operation.
    printf("%-26s", names[kind]);
    for (int warps : {1, 4, 8, 16, 32})
        printf(" | %2d: %7.1f %7.1f %7.1f %7.1f", warps, once<kind, 1>(warps), once<kind, 2>(warps),
               once<kind, 4>(warps), once<kind, 8>(warps));
    printf("\n");
    fflush(stdout);
}
template <int kind> void rows() {
    row<kind>();
    if constexpr (kind + 1 < kKinds)
        rows<kind + 1>();
}

// Barriers: cycles of one with so many warps, alone, and with one load from shared memory between two of them.
template <bool load> __global__ void barriers(float* out, long long* cycles) {
    __shared__ float table[1024];
    table[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float x = 0;
    long long start = clock64();
#pragma unroll 4
    for (int pass = 0; pass < kPasses; ++pass) {
        if (load) {
            x += table[threadIdx.x ^ 32];
            __syncthreads();
            table[threadIdx.x] = x;
        }
        __syncthreads();
    }
    long long end = clock64();
    out[threadIdx.x] = x;
    if (threadIdx.x % 32 == 0)
        cycles[threadIdx.x / 32] = end - start;
}

int main() {
    printf("cycles of a pass; columns: warps of the block: 1, 2, 4, 8 chains a thread\n");
    rows<0>();
    float* out;
    long long* cycles;
    cudaMalloc(&out, 1 << 16);
    cudaMallocManaged(&cycles, 64 * 8);
    for (int load = 0; load < 2; ++load) {
        printf(load ? "load, barrier, store, barrier" : "barrier                      ");
        for (int warps : {1, 2, 4, 8, 16, 32}) {
            for (int run = 0; run < 2; ++run) {
                if (load)
                    barriers<true><<<1, 32 * warps>>>(out, cycles);
                else
                    barriers<false><<<1, 32 * warps>>>(out, cycles);
                cudaDeviceSynchronize();
            }
            printf(" | %2d: %6.1f", warps, (double)cycles[0] / kPasses);
        }
        printf("\n");
    }
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
}
