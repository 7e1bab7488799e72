// idea: Products of warpgroups on inputs that lie in shared memory once
// why: The step before spends itself on what surrounds its products: each block makes tiles of weights element
//      by element, loads all of them again for every column, and sends its sums through shared memory. Here 64
//      neighbouring outputs are a column of the product, D[b][c] = sum of kernel[k - b] input[64 c + k], and a
//      warpgroup makes 64 columns at a time (wgmma). The inputs lie in shared memory once: vector v of eight is
//      number v / 8 in column v % 8. Eight neighbours in a column are what tensor cores read at once, and the inputs
//      64 further on are the same columns from one vector further on. The weights are the factor in registers. What a
//      lane has of them is two neighbours and those eight further, and fragments along a diagonal are the same: a
//      table has an entry for each weight, and one load from it makes what is new in a step of 16. Products are
//      started four at a time, and weights for the next four are loaded while they run. A block has one warpgroup and
//      stays for two tiles: the second is loaded into registers while the first is multiplied. Results leave through
//      the room of the inputs. Other GPUs, more than 256 weights and arrays that begin elsewhere than at multiples of
//      16 bytes take products of single warps, 32 outputs a row; with those alone four products read shared memory
//      eight times, which by reckoning takes longer than the products. With few outputs and weights nothing of this
//      pays, as code has to be fetched before it begins: those get an output to a thread. On an H200 4194304 inputs
//      with 256 weights take 17.9 µs where an empty launch takes 10.3 (by `cudamaster evaluate`); in another run
//      19.7, products of single warps 23.6, and a copy of the bytes 16.6; with 32 weights 15.5, 15.7 and 14.9. What
//      binds it now: of the 8 µs over an empty launch 2.6 pass until the first inputs are there, then come the
//      products of a tile (1.4), its stores, and the same again, since all blocks of a multiprocessor are at the same
//      point; 64 of 320 products are with zeros. Slower: asynchronous copies in place of registers (first inputs
//      after 4.3 to 4.8 µs; 1.9 in all), tiles of 128 columns (0.7) or 32 (1.0), tiles that arrive one after the
//      other in a block, by such copies (1.5), warpgroups that take turns (0.7), results stored from registers in
//      pieces of 32 bytes (1.4).
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kPatch = 32;           // neighbouring outputs: a row of the product
constexpr int kOfWarp = 16 * kPatch; // outputs of a warp
constexpr int kTaps = 256;           // weights of a piece
constexpr int kMaxSteps = (kTaps + kPatch + 14) / 16;
constexpr int kPairs = 32 + 16 * kMaxSteps;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kSpan = kWarps * kOfWarp; // outputs of a tile
constexpr int kBlocks = 8;              // of a multiprocessor
constexpr int kMultiprocessors = 132;   // of an H200
constexpr int kThreadsOfFew = 128;
constexpr int kManyOutputs = 65536;
constexpr int kFewWeights = 64;

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
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned int pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned int*)&pair;
}

// Lane q of four has words q of all four then.
__device__ __forceinline__ void transpose4(unsigned int (&words)[4], int lane) {
    bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        unsigned int other = __shfl_xor_sync(0xffffffffu, odd ? words[i] : words[i + 1], 1);
        words[i] = odd ? other : words[i];
        words[i + 1] = odd ? words[i + 1] : other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        unsigned int other = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i + 2], 2);
        words[i] = upper ? other : words[i];
        words[i + 2] = upper ? words[i + 2] : other;
    }
}

// A block takes every gridDim.x-th of the tiles of kSpan outputs.
__global__ void __launch_bounds__(kThreads, kBlocks)
    conv_1d_bf16_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                  __nv_bfloat16* output, int input_size, int kernel_size, int tiles) {
    constexpr int kMost = kSpan + 16 * kMaxSteps; // inputs of a tile
    constexpr int kRoom =
        kMost / 8 + kMost / 64 + 1; // one vector is left out after eight, to spread patches over the banks
    constexpr int kLoadsOfPairs = (kPairs + kThreads - 1) / kThreads;
    constexpr int kLoads = (kMost / 8 + kThreads - 1) / kThreads; // of eight inputs
    __shared__ __align__(16) uint4 inputs[kRoom];
    __shared__ uint2 pairs[kPairs]; // of weights: number o + 16 begins at weight o and at weight o + 8
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    int output_size = input_size - kernel_size + 1;
    auto steps_of = [&](int piece) { return (min(kernel_size - piece, kTaps) + kPatch + 14) / 16; };
    // What a tile needs for a piece of the weights is loaded at once.
    bool aligned = (size_t)input % 16 == 0;
    uint4 coming[kLoads];
    auto fetch = [&](int tile, int piece) {
        int count = kSpan + 16 * steps_of(piece);
        long long from = (long long)tile * kSpan + piece;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int k = 8 * (threadIdx.x + i * kThreads);
            long long left = k < count ? input_size - from - k : 0;
            coming[i] = make_uint4(0, 0, 0, 0);
            if (aligned && left >= 8) {
                coming[i] = *(const uint4*)&input[from + k];
            } else {
                unsigned int element[8];
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    element[e] = e < left ? __bfloat16_as_ushort(input[from + k + e]) : 0;
                coming[i] = make_uint4(element[1] << 16 | element[0], element[3] << 16 | element[2],
                                       element[5] << 16 | element[4], element[7] << 16 | element[6]);
            }
        }
    };
    fetch(blockIdx.x, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float sums[4][4] = {};
        for (int piece = 0; piece < kernel_size; piece += kTaps) {
            int taps = min(kernel_size - piece, kTaps), steps = steps_of(piece), count = kSpan + 16 * steps;
            bool first = tile == blockIdx.x && piece == 0;
            if (!first)
                __syncthreads(); // the inputs and weights before are used up
            if (first || kernel_size > kTaps) {
#pragma unroll
                for (int i = 0; i < kLoadsOfPairs; ++i) {
                    int k = threadIdx.x + i * kThreads, o = k - 16;
                    unsigned int low = o >= 0 && o < taps ? __bfloat16_as_ushort(kernel[piece + o]) : 0;
                    unsigned int high =
                        o + 1 >= 0 && o + 1 < taps ? __bfloat16_as_ushort(kernel[piece + o + 1]) : 0;
                    if (k < kPairs)
                        pairs[k].x = high << 16 | low;
                    if (k >= 8 && k < kPairs)
                        pairs[k - 8].y = high << 16 | low;
                }
            }
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
                int k = threadIdx.x + i * kThreads;
                if (k < count / 8)
                    inputs[k + k / 8] = coming[i];
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
            const uint2* weights = pairs + 16 + 2 * q - g;
            uint2 w[4] = {};
            for (int four = 0; four < steps; four += 4, mine += 4 * 32 + 16) {
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    int step = four + k;
                    if (step >= steps)
                        break;
                    int newer = k % 2 * 2, older = 2 - newer;
                    w[newer] = weights[16 * step];
                    w[newer + 1] = weights[16 * step - 8];
                    unsigned int a[4];
                    load_fragment(a, mine + k * 32 + (k >= 2 ? skip : 0));
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        uint2 b = j < 2 ? w[newer + j] : w[older + j - 2];
                        multiply(sums[j], a, b.x, b.y);
                    }
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned int words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                words[j] = pack2(sums[j][2 * half], sums[j][2 * half + 1]);
            transpose4(words, lane);
            long long at = (long long)tile * kSpan + (16 * warp + 8 * half + g) * kPatch + 8 * q;
            if (at + 8 <= output_size && ((size_t)(output + at) & 15) == 0) {
                *(uint4*)&output[at] = make_uint4(words[0], words[1], words[2], words[3]);
                continue;
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (at + i < output_size)
                    output[at + i] = __ushort_as_bfloat16((unsigned short)(words[i / 2] >> i % 2 * 16));
        }
    }
}

// Few outputs and few weights: an output to a thread, and little that has to be fetched before it begins.
__global__ void __launch_bounds__(kThreadsOfFew)
    conv_1d_few_bf16_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                      __nv_bfloat16* output, int output_size, int kernel_size) {
    long long i = blockIdx.x * (long long)kThreadsOfFew + threadIdx.x;
    if (i >= output_size)
        return;
    float sum = 0.0f;
#pragma unroll 16
    for (int k = 0; k < kernel_size; ++k)
        sum += __bfloat162float(input[i + k]) * __bfloat162float(kernel[k]);
    output[i] = __float2bfloat16(sum);
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

static __device__ __forceinline__ void hold(unsigned int (&a)[4][4]) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// d += a b, or d = a b where nothing is kept: 64 x n sums of 16 products each.
static __device__ __forceinline__ void multiply(float (&d)[16], const unsigned int (&a)[4],
                                                unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
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
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
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
    conv_1d_bf16_warpgroups_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                             __nv_bfloat16* output, int input_size, int kernel_size,
                                             int tiles) {
#if HAS_WARPGROUPS
    constexpr int kOutputs = n * kApart;
    constexpr int kVectors = 8 * n - 8 + 2 * steps;      // of eight inputs
    constexpr int kPitch = (n + 2 * kMostSteps / 8) | 1; // of a column; odd, to spread columns over the banks
    constexpr int kLoads = (kVectors + kThreads - 1) / kThreads;
    constexpr int kLoadsOfPairs = (kTable + kThreads - 1) / kThreads;
    __shared__ __align__(128) uint4 room[8 * kPitch];
    __shared__ uint2 pairs[kTable]; // of weights: number o + kBefore begins at weight o and at weight o + 8
    int t = threadIdx.x, warp = t / 32, lane = t % 32, g = lane / 4, q = lane % 4;
    int output_size = input_size - kernel_size + 1;

    unsigned int pair[kLoadsOfPairs];
#pragma unroll
    for (int i = 0; i < kLoadsOfPairs; ++i) {
        int o = t + i * kThreads - kBefore;
        unsigned int low = o >= 0 && o < kernel_size ? __bfloat16_as_ushort(kernel[o]) : 0;
        unsigned int high = o + 1 >= 0 && o + 1 < kernel_size ? __bfloat16_as_ushort(kernel[o + 1]) : 0;
        pair[i] = high << 16 | low;
    }
    // What a tile needs is loaded at once, all but a vector that the input ends in.
    uint4 coming[kLoads];
    auto fetch = [&](int tile) {
        const uint4* from = (const uint4*)(input + (long long)tile * kOutputs) + t;
        long long there = min((long long)kVectors, (input_size - (long long)tile * kOutputs) / 8) - t;
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            coming[i] = i * kThreads < there ? from[i * kThreads] : make_uint4(0, 0, 0, 0);
    };
    fetch(blockIdx.x);
#pragma unroll
    for (int i = 0; i < kLoadsOfPairs; ++i) {
        int k = t + i * kThreads;
        if (k < kTable)
            pairs[k].x = pair[i];
        if (k >= 8 && k < kTable)
            pairs[k - 8].y = pair[i];
    }
    __syncthreads();

    // What a lane has of W's row b and column c begins at weight c - b.
    const uint2* weights = pairs + kBefore - 16 * warp + 2 * q - g;
    unsigned long long inputs = (unsigned long long)((shared_address(room) & 0x3ffff) >> 4) |
                                (unsigned long long)kPitch << 16 | 8ull << 32;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int k = t + i * kThreads;
            if (k < kVectors)
                room[k % 8 * kPitch + k / 8] = coming[i];
        }
        long long end = input_size - (long long)tile * kOutputs; // of the inputs, in the tile
        if (end / 8 < kVectors && end % 8) {
            __syncthreads();
            int k = (int)(end / 8);
            if (t < end % 8)
                ((__nv_bfloat16*)(room + k % 8 * kPitch + k / 8))[t] =
                    input[(long long)tile * kOutputs + 8 * k + t];
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        // What comes next is on its way while this is multiplied.
        if (tile + (int)gridDim.x < tiles)
            fetch(tile + gridDim.x);
        float d[n / 2];
        unsigned int last = weights[-16].y, w[2][4][4];
        // Eight rows further down is the same as eight columns further left: of a step's weights two words
        // are new, and one was the step before's.
        auto load = [&](int s, int k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint2 two = weights[16 * (s + i)];
                w[k][i][0] = w[k][i][3] = two.x;
                w[k][i][1] = last;
                w[k][i][2] = last = two.y;
            }
        };
        auto multiply_four = [&](unsigned long long from, int k, int keep) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < 4; ++i)
                multiply(d, w[k][i], from + 2 * i * kPitch, i > 0 || keep);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        unsigned long long from = inputs;
        asm volatile("" : "+l"(from)); // or the places of all steps would be kept in registers
        load(0, 0);
        load(4, 1);
#pragma unroll
        for (int s = 0; s < steps; s += 4) {
            multiply_four(from + s / 4, s / 4 % 2, s > 0);
            if (s >= 4 && s + 4 < steps) {
                wait_products<1>();
                hold(w[(s / 4 + 1) % 2]);
                load(s + 4, (s / 4 + 1) % 2);
            }
        }
        wait_products<0>();
        hold(w[0]);
        hold(w[1]);
        hold(d);
        // Results are rounded and leave through the room of the inputs, a row of 128 bytes a column, its vectors in
        // an order of its own, so that none meet in a bank.
        __syncthreads();
#pragma unroll
        for (int j = 0; j < n / 8; j += 2) {
            unsigned int two[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                two[i] = pack2(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]);
            unsigned int to = shared_address(room + 8 * (8 * (j + lane / 16) + lane % 8) +
                                             ((2 * warp + lane / 8 % 2) ^ lane % 8));
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                         "r"(two[0]), "r"(two[1]), "r"(two[2]), "r"(two[3])
                         : "memory");
        }
        __syncthreads();
        long long at = (long long)tile * kOutputs + 8 * t;
        const uint4* row = room + t / 8 * 8 + (t % 8 ^ t / 8 % 8);
        if ((tile + 1ll) * kOutputs <= output_size) {
#pragma unroll
            for (int i = 0; i < n / 16; ++i)
                *(uint4*)&output[at + 1024 * i] = row[128 * i];
        } else {
#pragma unroll 1
            for (int i = 0; i < n / 16; ++i)
                for (int e = 0; e < 8; ++e)
                    if (at + 1024 * i + e < output_size)
                        output[at + 1024 * i + e] = ((const __nv_bfloat16*)(row + 128 * i))[e];
        }
        if (tile + (int)gridDim.x < tiles)
            __syncthreads();
    }
#endif
}

template <int n, int steps>
static bool launch_warpgroups(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                              int input_size, int kernel_size) {
    int tiles = (input_size - kernel_size) / (n * kApart) + 1;
    int rounds = (tiles - 1) / (kMultiprocessors * kWarpgroups) + 1;
    conv_1d_bf16_warpgroups_kernel_optimized<n, steps>
        <<<(tiles - 1) / rounds + 1, kThreads>>>(input, kernel, output, input_size, kernel_size, tiles);
    return cudaGetLastError() == cudaSuccess;
}

template <int n>
static bool launch_warpgroups(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                              int input_size, int kernel_size) {
    return kernel_size <= most_weights(8)
               ? launch_warpgroups<n, 8>(input, kernel, output, input_size, kernel_size)
           : kernel_size <= most_weights(12)
               ? launch_warpgroups<n, 12>(input, kernel, output, input_size, kernel_size)
               : launch_warpgroups<n, 20>(input, kernel, output, input_size, kernel_size);
}

// False where this GPU or these sizes cannot have it.
static bool convolve_on_hopper(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                               int input_size, int kernel_size) {
    if (kernel_size > kTaps || ((size_t)input | (size_t)output) % 16)
        return false;
    return (input_size - kernel_size) / kApart >= kManyColumns
               ? launch_warpgroups<64>(input, kernel, output, input_size, kernel_size)
               : launch_warpgroups<32>(input, kernel, output, input_size, kernel_size);
}

extern "C" void conv_1d_bf16_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                       __nv_bfloat16* output, int input_size, int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    bool few = output_size <= kManyOutputs;
    if (!(few && kernel_size <= kFewOnHopper) &&
        convolve_on_hopper(input, kernel, output, input_size, kernel_size))
        return;
    if (few && kernel_size <= kFewWeights) {
        int blocks = (output_size - 1) / kThreadsOfFew + 1;
        conv_1d_few_bf16_kernel_optimized<<<blocks, kThreadsOfFew>>>(input, kernel, output, output_size,
                                                                     kernel_size);
        return;
    }
    int tiles = (output_size - 1) / kSpan + 1;
    int rounds = (tiles - 1) / (kMultiprocessors * kBlocks) + 1;
    conv_1d_bf16_kernel_optimized<<<(tiles - 1) / rounds + 1, kThreads>>>(input, kernel, output, input_size,
                                                                          kernel_size, tiles);
}
