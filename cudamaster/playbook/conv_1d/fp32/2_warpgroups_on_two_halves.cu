// idea: Products of warpgroups on numbers in two halves
// why: The step before is bound by the multiply-adds of ordinary cores, and tensor cores are fifteen times as
//      fast if the sums are a matrix product of halves. 64 neighbouring outputs are a column of the product, D[b][c]
//      = sum of kernel[k - b] input[64 c + k], and a warpgroup makes 64 columns at a time (wgmma). A number is
//      brought to below 2^15 by the power of two that suits the largest of its tile, and taken apart into a half that
//      is rounded and one of what is left: 22 bits, or 24 where their signs help. Three of the four products of two
//      such sums count; the small ones have sums of their own, since tensor cores cut off what they add. Numbers
//      below 2^-17 of the largest in their tile keep fewer bits, and an output with no others may lose all of them:
//      that is this step's price. The task asks for the bits of numbers beside which others are up to 2^8 times
//      larger. Halves lie in shared memory once: vector v of eight is number v / 8 in column v % 8. Eight neighbours
//      in a column are what tensor cores read at once, and the inputs 64 further on are the same columns from one
//      vector further on. The weights are the factor in registers. What a lane has of them is two neighbours and
//      those eight further, and fragments along a diagonal are the same: a table has an entry for each weight, and
//      one load from it makes what is new in a step of 16, both parts. A block has one warpgroup and stays for two
//      tiles: the second arrives in shared memory by asynchronous copies while the first is multiplied. Other GPUs,
//      more than 256 weights and arrays that begin elsewhere than at multiples of 16 bytes take products of single
//      warps, 32 outputs a row. With few outputs and weights nothing of this pays, as code has to be fetched before
//      it begins: those get an output to a thread, and so do up to three weights, since all inputs of an output may
//      be small then. On an H200 4194304 inputs with 256 weights take 27.2 µs where an empty launch takes 10.5 (by
//      `cudamaster evaluate`), products of single warps took 33.6 in another run in which this took 27.2, and a copy
//      of the bytes by `cudaMemcpyAsync` 23.2. What binds it now: 21 µs on the device, 17 of them for such a copy.
//      Slower: tiles of 96 columns (2.6) or 32 (6), a tile at a time in each block (1.6), three rounds of three
//      blocks (2.3), results through shared memory (0.7). A first tile that comes through registers gained nothing.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int kPatch = 32;           // neighbouring outputs: a row of the product
constexpr int kOfWarp = 16 * kPatch; // outputs of a warp
constexpr int kTaps = 256;           // weights of a piece
constexpr int kMaxSteps = (kTaps + kPatch + 14) / 16;
constexpr int kPairs = 32 + 16 * kMaxSteps;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kSpan = kWarps * kOfWarp; // outputs of a tile
constexpr int kBlocks = 4;              // of a multiprocessor
constexpr int kMultiprocessors = 132;   // of an H200
constexpr int kThreadsOfFew = 128;
constexpr int kManyOutputs = 65536;
constexpr int kFewWeights = 64;
constexpr int kWithoutHalves = 3; // weights, of which all inputs may be small beside others of the tile

__device__ __forceinline__ unsigned int shared_address(const void* place) {
    return (unsigned int)__cvta_generic_to_shared(place);
}

// 16 x 16 elements of A.
__device__ __forceinline__ void load_fragment(unsigned int (&a)[4], unsigned int from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned int (&a)[4], unsigned int b0,
                                         unsigned int b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The exponent of the power of two that brings numbers of at most that size to below 2^15.
__device__ __forceinline__ int scale_of(float largest) {
    int exponent = (int)(__float_as_uint(largest) >> 23) - 127; // of what is not zero, rounded down
    return min(14 - exponent, 126);
}

__device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float((unsigned int)(exponent + 127) << 23);
}

// Two numbers as halves: rounded, and what is left of them.
__device__ __forceinline__ uint2 split2(float x, float y) {
    __half2 high = __floats2half2_rn(x, y);
    float2 back = __half22float2(high);
    __half2 low = __floats2half2_rn(x - back.x, y - back.y);
    return make_uint2(*(unsigned int*)&high, *(unsigned int*)&low);
}

// A power of two as two factors: one alone may be too large or too small for a float.
__device__ __forceinline__ float2 factors_of(int exponent) {
    return make_float2(power_of_two(exponent / 2), power_of_two(exponent - exponent / 2));
}

// A block takes every gridDim.x-th of the tiles of kSpan outputs.
__global__ void __launch_bounds__(kThreads, kBlocks)
    conv_1d_kernel_optimized(const float* input, const float* kernel, float* output, int input_size,
                             int kernel_size, int tiles) {
    constexpr int kMost = kSpan + 16 * kMaxSteps; // inputs of a tile
    constexpr int kRoom =
        kMost / 8 + kMost / 64 + 1; // one vector is left out after eight, to spread patches over the banks
    constexpr int kLoadsOfPairs = (kPairs + kThreads - 1) / kThreads;
    constexpr int kLoads = (kMost / 4 + kThreads - 1) / kThreads; // of four inputs
    __shared__ __align__(16) uint4 inputs[2 * kRoom]; // halves that are rounded, and what they leave
    __shared__ uint4
        pairs[kPairs]; // of weights: number o + 16 begins at weight o and at weight o + 8; both parts
    __shared__ float largest[2][kWarps];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    int output_size = input_size - kernel_size + 1;
    auto steps_of = [&](int piece) { return (min(kernel_size - piece, kTaps) + kPatch + 14) / 16; };
    // What a tile needs for a piece of the weights is loaded at once.
    bool aligned = (size_t)input % 16 == 0;
    float4 coming[kLoads];
    auto fetch = [&](int tile, int piece) {
        int count = kSpan + 16 * steps_of(piece);
        long long from = (long long)tile * kSpan + piece;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int k = 4 * (threadIdx.x + i * kThreads);
            long long left = k < count ? input_size - from - k : 0;
            coming[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (aligned && left >= 4) {
                coming[i] = *(const float4*)&input[from + k];
            } else {
                if (left > 0)
                    coming[i].x = input[from + k];
                if (left > 1)
                    coming[i].y = input[from + k + 1];
                if (left > 2)
                    coming[i].z = input[from + k + 2];
                if (left > 3)
                    coming[i].w = input[from + k + 3];
            }
        }
    };
    fetch(blockIdx.x, 0);
    float most_weight = 0.0f;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float sums[4][4] = {}, small[4][4] = {}, most = 0.0f;
        int scale = 0, scale_of_weights = 0; // of the pieces so far, the exponents of powers of two
        for (int piece = 0; piece < kernel_size; piece += kTaps) {
            int taps = min(kernel_size - piece, kTaps), steps = steps_of(piece), count = kSpan + 16 * steps;
            bool new_weights = tile == blockIdx.x || kernel_size > kTaps;
            float low[kLoadsOfPairs], high[kLoadsOfPairs];
            if (new_weights) {
#pragma unroll
                for (int i = 0; i < kLoadsOfPairs; ++i) {
                    int o = threadIdx.x + i * kThreads - 16;
                    low[i] = o >= 0 && o < taps ? kernel[piece + o] : 0.0f;
                    high[i] = o + 1 >= 0 && o + 1 < taps ? kernel[piece + o + 1] : 0.0f;
                    most_weight = fmaxf(most_weight, fmaxf(fabsf(low[i]), fabsf(high[i])));
                }
            }
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
                float4 v = coming[i];
                most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
            }
#pragma unroll
            for (int lanes = 16; lanes; lanes /= 2) {
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
                most_weight = fmaxf(most_weight, __shfl_xor_sync(0xffffffffu, most_weight, lanes));
            }
            if (lane == 0) {
                largest[0][warp] = most;
                largest[1][warp] = most_weight;
            }
            __syncthreads(); // the inputs before are used up, too
#pragma unroll
            for (int other = 0; other < kWarps; ++other) {
                most = fmaxf(most, largest[0][other]);
                most_weight = fmaxf(most_weight, largest[1][other]);
            }
            int before = scale + scale_of_weights;
            scale = scale_of(most);
            scale_of_weights = scale_of(most_weight);
            if (piece) {
                // By a smaller factor nothing of the sums would be left.
                float2 by = factors_of(max(scale + scale_of_weights - before, -252));
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        sums[j][i] = sums[j][i] * by.x * by.y;
                        small[j][i] = small[j][i] * by.x * by.y;
                    }
            }
            float up = power_of_two(scale), up_weights = power_of_two(scale_of_weights);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
                int k = threadIdx.x + i * kThreads;
                float4 v = coming[i];
                uint2 a = split2(v.x * up, v.y * up), b = split2(v.z * up, v.w * up);
                uint2* to = (uint2*)inputs + k + k / 16 * 2;
                if (k < count / 4) {
                    to[0] = make_uint2(a.x, b.x);
                    to[2 * kRoom] = make_uint2(a.y, b.y);
                }
            }
            if (new_weights) {
#pragma unroll
                for (int i = 0; i < kLoadsOfPairs; ++i) {
                    int k = threadIdx.x + i * kThreads;
                    uint2 parts = split2(low[i] * up_weights, high[i] * up_weights);
                    if (k < kPairs)
                        pairs[k].x = parts.x, pairs[k].z = parts.y;
                    if (k >= 8 && k < kPairs)
                        pairs[k - 8].y = parts.x, pairs[k - 8].w = parts.y;
                }
            }
            __syncthreads();
            // What comes next is on its way while this is multiplied.
            bool last = piece + kTaps >= kernel_size;
            int next = last ? tile + gridDim.x : tile;
            if (next < tiles)
                fetch(next, last ? 0 : piece + kTaps);

            // Of the lane: row lane % 16 of a fragment, its first eight columns or its last.
            int patch = 16 * warp + lane % 16, vector = 4 * patch + lane / 16;
            unsigned int mine = shared_address(inputs + vector + vector / 8);
            unsigned int skip = patch % 2 * 16; // where eight vectors are over within four steps
            // What a lane has of W's row c and column b begins at weight c - b, so eight rows further down it is the
            // same as eight columns further left: half of what a step needs, the step before had.
            const uint4* weights = pairs + 16 + 2 * q - g;
            uint4 w[4] = {};
            for (int four = 0; four < steps; four += 4, mine += 4 * 32 + 16) {
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    int step = four + k;
                    if (step >= steps)
                        break;
                    int newer = k % 2 * 2, older = 2 - newer;
                    w[newer] = weights[16 * step];
                    w[newer + 1] = weights[16 * step - 8];
                    unsigned int a[4], rest[4], from = mine + k * 32 + (k >= 2 ? skip : 0);
                    load_fragment(a, from);
                    load_fragment(rest, from + 16 * kRoom);
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        uint4 b = j < 2 ? w[newer + j] : w[older + j - 2];
                        multiply(sums[j], a, b.x, b.y);
                        multiply(small[j], a, b.z, b.w);
                        multiply(small[j], rest, b.x, b.y);
                    }
                }
            }
        }
        float2 down = factors_of(-scale - scale_of_weights);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                long long at = (long long)tile * kSpan + (16 * warp + 8 * half + g) * kPatch + 8 * j + 2 * q;
                float2 two;
                two.x = (sums[j][2 * half] + small[j][2 * half]) * down.x * down.y;
                two.y = (sums[j][2 * half + 1] + small[j][2 * half + 1]) * down.x * down.y;
                if (at + 2 <= output_size && (size_t)output % 8 == 0) {
                    *(float2*)&output[at] = two;
                } else {
                    if (at < output_size)
                        output[at] = two.x;
                    if (at + 1 < output_size)
                        output[at + 1] = two.y;
                }
            }
    }
}

// Few outputs and few weights: an output to a thread, and little that has to be fetched before it begins.
__global__ void __launch_bounds__(kThreadsOfFew)
    conv_1d_few_kernel_optimized(const float* input, const float* kernel, float* output, int output_size,
                                 int kernel_size) {
    long long i = blockIdx.x * (long long)kThreadsOfFew + threadIdx.x;
    if (i >= output_size)
        return;
    float sum = 0.0f;
#pragma unroll 16
    for (int k = 0; k < kernel_size; ++k)
        sum += input[i + k] * kernel[k];
    output[i] = sum;
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define HOPPER_THREADS kThreads
#else
#define HAS_WARPGROUPS 0
// Too few for a launch, which fails, so that the host sees that there is nothing to launch.
#define HOPPER_THREADS 32
#endif

constexpr int kApart = 64;          // outputs of a column of the product
constexpr int kWarpgroups = 4;      // of a multiprocessor; a block has one
constexpr int kFewOnHopper = 32;    // weights
constexpr int kManyColumns = 32768; // of outputs
constexpr int kMostSteps = (kTaps + kApart - 1 + 15) / 16;
[[maybe_unused]] constexpr int kBefore = kApart + 16; // entries of the table before weight 0
[[maybe_unused]] constexpr int kTable = kBefore + 16 * kMostSteps;

// Weights that so many steps have room for.
constexpr int most_weights(int steps) {
    return 16 * steps - kApart + 1;
}

#if HAS_WARPGROUPS
template <int left> static __device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// The compiler may not use sums before they are there, nor change registers of factors: a variable of the same value
// shared one of them once, and got its next value while a product still read it.
template <int count> static __device__ __forceinline__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

static __device__ __forceinline__ void hold(unsigned int (&a)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// d += a b, or d = a b where nothing is kept: 64 x n sums of 16 products each.
static __device__ __forceinline__ void multiply(float (&d)[16], const unsigned int (&a)[4],
                                                unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, kept, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

static __device__ __forceinline__ void multiply(float (&d)[32], const unsigned int (&a)[4],
                                                unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
                 "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, kept, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}
#endif

// Tiles of n columns of kApart outputs; sums of 16 products a step. Arrays begin at multiples of 16 bytes.
template <int n, int steps>
__global__ void __launch_bounds__(HOPPER_THREADS, kWarpgroups)
    conv_1d_warpgroups_kernel_optimized(const float* input, const float* kernel, float* output,
                                        int input_size, int kernel_size, int tiles) {
#if HAS_WARPGROUPS
    constexpr int kOutputs = n * kApart;
    constexpr int kVectors = 16 * n - 16 + 4 * steps;    // of four inputs
    constexpr int kPitch = (n + 2 * kMostSteps / 8) | 1; // of a column; odd, to spread columns over the banks
    constexpr int kRoom = 8 * kPitch;
    constexpr int kLoads = (kVectors + kThreads - 1) / kThreads;
    constexpr int kLoadsOfPairs = (kTable + kThreads - 1) / kThreads;
    __shared__ __align__(128) uint4 rooms[2 * kRoom]; // of halves that are rounded, and of what they leave
    __shared__ float4 arriving[kLoads * kThreads];
    // Of weights, both parts: number o + kBefore begins at weight o and at weight o + 8.
    __shared__ uint4 pairs[kTable];
    __shared__ float largest[2][kWarps];
    int t = threadIdx.x, warp = t / 32, lane = t % 32, g = lane / 4, q = lane % 4;
    int output_size = input_size - kernel_size + 1;

    float low[kLoadsOfPairs], high[kLoadsOfPairs], most_weight = 0.0f;
#pragma unroll
    for (int i = 0; i < kLoadsOfPairs; ++i) {
        int o = t + i * kThreads - kBefore;
        low[i] = o >= 0 && o < kernel_size ? kernel[o] : 0.0f;
        high[i] = o + 1 >= 0 && o + 1 < kernel_size ? kernel[o + 1] : 0.0f;
    }
    auto fetch = [&](int tile) {
        unsigned int to = shared_address(arriving + t);
        long long first = (long long)tile * kOutputs + 4 * t;
        const float* from = input + first;
        int left = (int)min(4ll * (kVectors - t), input_size - first);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int count = max(min(left - 512 * i, 4), 0);
            const float* piece = count ? from + 512 * i : input;
            if (count % 4 == 0)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + 2048 * i), "l"(piece),
                             "r"(4 * count)
                             : "memory");
            else // the last inputs: compute-sanitizer takes a copy of fewer bytes for one of 16
                arriving[t + kThreads * i] =
                    make_float4(piece[0], count > 1 ? piece[1] : 0.0f, count > 2 ? piece[2] : 0.0f, 0.0f);
        }
    };
    fetch(blockIdx.x);
#pragma unroll
    for (int i = 0; i < kLoadsOfPairs; ++i)
        most_weight = fmaxf(most_weight, fmaxf(fabsf(low[i]), fabsf(high[i])));
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        most_weight = fmaxf(most_weight, __shfl_xor_sync(0xffffffffu, most_weight, lanes));
    if (lane == 0)
        largest[1][warp] = most_weight;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < kWarps; ++other)
        most_weight = fmaxf(most_weight, largest[1][other]);
    int scale_of_weights = scale_of(most_weight);
    float up_weights = power_of_two(scale_of_weights);
#pragma unroll
    for (int i = 0; i < kLoadsOfPairs; ++i) {
        int k = t + i * kThreads;
        uint2 parts = split2(low[i] * up_weights, high[i] * up_weights);
        if (k < kTable)
            pairs[k].x = parts.x, pairs[k].z = parts.y;
        if (k >= 8 && k < kTable)
            pairs[k - 8].y = parts.x, pairs[k - 8].w = parts.y;
    }

    uint2* halves = (uint2*)(rooms + t / 2 % 8 * kPitch + t / 16) + t % 2;
    // What a lane has of W's row b and column c begins at weight c - b.
    const uint4* weights = pairs + kBefore - 16 * warp + 2 * q - g;
    unsigned long long inputs = (unsigned long long)((shared_address(rooms) & 0x3ffff) >> 4) |
                                (unsigned long long)kPitch << 16 | 8ull << 32;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        float4 v[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            v[i] = arriving[t + i * kThreads];
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            most =
                fmaxf(most, fmaxf(fmaxf(fabsf(v[i].x), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w))));
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
        if (lane == 0)
            largest[0][warp] = most;
        __syncthreads(); // the rooms are free, too
#pragma unroll
        for (int other = 0; other < kWarps; ++other)
            most = fmaxf(most, largest[0][other]);
        int scale = scale_of(most);
        float up = power_of_two(scale);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            uint2 a = split2(v[i].x * up, v[i].y * up), b = split2(v[i].z * up, v[i].w * up);
            if (t + i * kThreads < kVectors) {
                halves[16 * i] = make_uint2(a.x, b.x);
                halves[16 * i + 2 * kRoom] = make_uint2(a.y, b.y);
            }
        }
        // What comes next is on its way while this is multiplied.
        if (tile + (int)gridDim.x < tiles)
            fetch(tile + gridDim.x);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        float sums[n / 2], small[n / 2];
        unsigned int w[2][2][4]; // weights of two steps, rounded and the rest
        uint4 before = weights[-16];
        unsigned int last = before.y, last_rest = before.w;
        // Eight rows further down is the same as eight columns further left: of a step's weights two words
        // are new, and one was the step before's.
        auto load = [&](int s, int k) {
            uint4 four = weights[16 * s];
            w[k][0][0] = w[k][0][3] = four.x;
            w[k][0][1] = last;
            w[k][0][2] = last = four.y;
            w[k][1][0] = w[k][1][3] = four.z;
            w[k][1][1] = last_rest;
            w[k][1][2] = last_rest = four.w;
        };
        auto multiply_three = [&](unsigned long long from, int k, int keep) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            multiply(sums, w[k][0], from, keep);
            multiply(small, w[k][1], from, keep);
            multiply(small, w[k][0], from + kRoom, 1);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        unsigned long long from = inputs;
        asm volatile("" : "+l"(from)); // or the places of all steps would be kept in registers
        load(0, 0);
        load(1, 1);
#pragma unroll
        for (int s = 0; s < steps; ++s) {
            multiply_three(from + s % 4 * 2 * kPitch + s / 4, s % 2, s > 0);
            if (s > 0 && s + 1 < steps) {
                wait_products<1>();
                hold(w[(s + 1) % 2]);
                load(s + 1, (s + 1) % 2);
            }
        }
        wait_products<0>();
        hold(w[0]);
        hold(w[1]);
        hold(sums);
        hold(small);
        float2 down = factors_of(-scale - scale_of_weights);
        long long at = (long long)tile * kOutputs + 128 * q + 16 * warp + g;
        float* to = output + at;
        long long left = output_size - at;
#pragma unroll
        for (int k = 0; k < n / 2; ++k) {
            int further = k / 4 * 512 + k % 2 * 64 + k / 2 % 2 * 8;
            if (further < left)
                to[further] = (sums[k] + small[k]) * down.x * down.y;
        }
    }
#endif
}

template <int n, int steps>
static bool launch_warpgroups(const float* input, const float* kernel, float* output, int input_size,
                              int kernel_size) {
    int tiles = (input_size - kernel_size) / (n * kApart) + 1;
    int rounds = (tiles - 1) / (kMultiprocessors * kWarpgroups) + 1;
    conv_1d_warpgroups_kernel_optimized<n, steps>
        <<<(tiles - 1) / rounds + 1, kThreads>>>(input, kernel, output, input_size, kernel_size, tiles);
    return cudaGetLastError() == cudaSuccess;
}

template <int n>
static bool launch_warpgroups(const float* input, const float* kernel, float* output, int input_size,
                              int kernel_size) {
    return kernel_size <= most_weights(8)
               ? launch_warpgroups<n, 8>(input, kernel, output, input_size, kernel_size)
           : kernel_size <= most_weights(12)
               ? launch_warpgroups<n, 12>(input, kernel, output, input_size, kernel_size)
               : launch_warpgroups<n, 20>(input, kernel, output, input_size, kernel_size);
}

// False where this GPU or these sizes cannot have it.
static bool convolve_on_hopper(const float* input, const float* kernel, float* output, int input_size,
                               int kernel_size) {
    if (kernel_size > kTaps || ((size_t)input | (size_t)output) % 16)
        return false;
    return (input_size - kernel_size) / kApart >= kManyColumns
               ? launch_warpgroups<64>(input, kernel, output, input_size, kernel_size)
               : launch_warpgroups<32>(input, kernel, output, input_size, kernel_size);
}

extern "C" void conv_1d_optimized(const float* input, const float* kernel, float* output, int input_size,
                                  int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    bool few = output_size <= kManyOutputs;
    if (kernel_size > kWithoutHalves && !(few && kernel_size <= kFewOnHopper) &&
        convolve_on_hopper(input, kernel, output, input_size, kernel_size))
        return;
    if (kernel_size <= kWithoutHalves || (few && kernel_size <= kFewWeights)) {
        int blocks = (output_size - 1) / kThreadsOfFew + 1;
        conv_1d_few_kernel_optimized<<<blocks, kThreadsOfFew>>>(input, kernel, output, output_size,
                                                                kernel_size);
        return;
    }
    int tiles = (output_size - 1) / kSpan + 1;
    int rounds = (tiles - 1) / (kMultiprocessors * kBlocks) + 1;
    conv_1d_kernel_optimized<<<(tiles - 1) / rounds + 1, kThreads>>>(input, kernel, output, input_size,
                                                                     kernel_size, tiles);
}
