// idea: Fragments that the same few words make
// why: The step before spends itself on what surrounds its products: each block makes tiles of weights element by
//      element, loads all of them again for every column, and sends its sums through shared memory. Here 32
//      neighbouring outputs are a row of the product, X[a][c] = input[32 a + c], and the weights are its second
//      factor, W[c][b] = kernel[c - b]. A lane's part of a fragment of W is two neighbouring weights and those eight
//      further, and fragments along a diagonal are the same: a table with an entry for each weight is all that
//      shared memory holds of W, and two loads from it make what is new in a step of 16, in the registers where the
//      tensor cores want it. Inputs are loaded once; 16 bytes are left out after every 128, so that ldmatrix meets
//      no bank twice. A lane's sums are pairs of neighbours: four shuffles make 16 bytes of them. A block stays for
//      two tiles: the second one is loaded while the first is multiplied, and the table is made once. Longer kernels
//      are taken in pieces of 256 weights. On an H200, 4194304 inputs with 256 weights take 16 µs on the device and
//      23 for the whole call, with 32 weights 10.4 and 17. With a block to a tile it was 16.5 and 24, 12.4 and 20 in
//      the same run; the step before takes 26 on the device. With few outputs and weights nothing of this pays, as
//      code has to be fetched before it begins: those get an output to a thread (12.9 to 13.8 µs, the baseline 13.4
//      to 13.7, where this took 14.9 to 15.1). What binds it now: of the 16, an empty launch is 4.4 and what a copy
//      of the bytes needs about 4 more; the rest are products. Next: a table of single pairs, whose loads are half
//      as wide; a form with it took 15.1.
// flags: -O3
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

extern "C" void conv_1d_bf16_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                       __nv_bfloat16* output, int input_size, int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    if (output_size <= kManyOutputs && kernel_size <= kFewWeights) {
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
