// idea: Tensor cores on numbers in two halves
// why: The step before is bound by the multiply-adds of ordinary cores, and tensor cores are fifteen times as fast if
//      the sums are a matrix product of halves. 32 neighbouring outputs are a row of the product, X[a][c] = input[32
//      a + c], and the weights are its second factor, W[c][b] = kernel[c - b]. A number is brought to below 2^15 by
//      the power of two that suits the largest of its tile, and taken apart into a half that is rounded and one of
//      what is left: 22 bits, or 24 where their signs help. Three of the four products of two such sums count; the
//      small ones have sums of their own, since tensor cores cut off what they add. Numbers below 2^-17 of the
//      largest in their tile keep fewer bits, and an output with no others may lose all of them: that is this step's
//      price. A lane's part of a fragment of W is two neighbouring weights and those eight further, and fragments
//      along a diagonal are the same: a table with an entry for each weight is all that shared memory holds of W, and
//      two loads from it make what is new in a step of 16, in the registers where the tensor cores want it. 16 bytes
//      are left out after every 128 of the inputs, so that ldmatrix meets no bank twice. A block stays for up to four
//      tiles: the next tile is loaded while this one is multiplied, and the table is made once. Longer kernels are
//      taken in pieces of 256 weights. On an H200, 4194304 inputs with 256 weights take 27 µs on the device and 35
//      for the whole call. With a block to a tile and weights moved between registers it was 29.5 and 38 in the same
//      run: 12.2 million instructions where there are about 8 now. Asynchronous copies through shared memory were
//      slower (32 to 37). A tail that is loaded element by element in a loop cost 5 µs at all sizes. With few outputs
//      and weights nothing of this pays: code has to be fetched before it begins, 5 µs for a launch of it against 3.2
//      for the baseline's. So those get an output to a thread (13.1 to 14.3 µs, the baseline 12.9 to 14.4, where this
//      took 14.2 to 14.6). That also serves up to three weights, since all inputs of an output may be small then. The
//      task asks for the bits of numbers beside which others are up to 2^8 times larger. What binds it now: of the
//      27, an empty launch is 4.5 and the products 11; loads, splits and stores still wait for one another within a
//      block.
// flags: -O3
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

extern "C" void conv_1d_optimized(const float* input, const float* kernel, float* output, int input_size,
                                  int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    if (kernel_size <= kWithoutHalves || (output_size <= kManyOutputs && kernel_size <= kFewWeights)) {
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
