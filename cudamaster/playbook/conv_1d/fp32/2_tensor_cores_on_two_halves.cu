// idea: Tensor cores on numbers in two halves
// why: The step before is bound by the multiply-adds of ordinary cores, and tensor cores are fifteen times as fast if
//      the sums are a matrix product of halves. 32 neighbouring outputs are a row of the product, X[a][c] = input[32 a
//      + c], and the weights are its second factor, W[c][b] = kernel[c - b]. A number is brought to below 2^15 by the
//      power of two that suits the largest of its block, and taken apart into a half that is rounded and one of what
//      is left: 22 bits, or 24 where their signs help. Three of the four products of two such sums count; the small
//      ones have sums of their own, since tensor cores cut off what they add. Numbers below 2^-17 of the largest in
//      their block keep fewer bits, and an output with no others may lose all of them: that is this step's price. The
//      task asks for the bits of numbers beside which others are up to 2^8 times larger. A lane's part of a fragment
//      of W is two neighbouring weights, and fragments along a diagonal are the same: a table of such pairs, one for
//      each weight, is all that shared memory holds of W. 16 bytes are left out after every 128 of the inputs, so that
//      ldmatrix meets no bank twice. Longer kernels are taken in pieces of 256 weights; up to three weights are
//      multiplied in fp32, since all inputs of an output may be small then. On an H200, measured by events with cold
//      caches, 4194304 inputs with 256 weights take 30 µs where the step before takes 57 (with room for 20 warps on a
//      multiprocessor, not the 24 here), and 65536 take 9 where it takes 10. As it stands an H100 takes 30 µs on the
//      device and 36 for the whole call. Small inputs gain nothing: 16384 with 32 weights take 12.5 where the baseline
//      takes 10.8. What binds it now: 11 of the 30 on the H200 are products, the rest are a block's loads and stores,
//      which wait for one another.
// flags: -O3
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int kPatch = 32;           // neighbouring outputs: a row of the product
constexpr int kOfWarp = 16 * kPatch; // outputs of a warp
constexpr int kTaps = 256;           // weights of a piece
constexpr int kMaxSteps = (kTaps + kPatch + 14) / 16;
constexpr int kPairs = 32 + 16 * kMaxSteps;
constexpr int kWarpsAtOnce = 24;                // that a multiprocessor shall have room for
constexpr int kManyOutputs = 132 * 4 * kOfWarp; // from here on blocks have four warps

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
    return min(14 - exponent, 127);
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

template <int warps>
__global__ void __launch_bounds__(32 * warps, warps > 1 ? kWarpsAtOnce / warps : 1)
    conv_1d_kernel_optimized(const float* input, const float* kernel, float* output, int input_size,
                             int kernel_size) {
    constexpr int kThreads = 32 * warps, kSpan = warps * kOfWarp;
    constexpr int kVectors = (kSpan + 16 * kMaxSteps) / 8; // of eight inputs
    constexpr int kRoom =
        kVectors + kVectors / 8 + 1; // one is left out after eight, to spread patches over the banks
    constexpr int kLoads = (kVectors + kThreads - 1) / kThreads,
                  kLoadsOfPairs = (kPairs + kThreads - 1) / kThreads;
    __shared__ __align__(16) uint4 inputs[2 * kRoom]; // halves that are rounded, and what they leave
    __shared__ uint2 pairs[kPairs]; // of weights, both parts: number o + 16 begins at weight o
    __shared__ float largest[2][warps];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    long long first = (long long)blockIdx.x * kSpan;

    float sums[4][4] = {}, small[4][4] = {}, most = 0.0f, most_weight = 0.0f;
    int scale = 0, scale_of_weights = 0; // of the pieces so far, the exponents of powers of two
    for (int piece = 0; piece < kernel_size; piece += kTaps) {
        int taps = min(kernel_size - piece, kTaps), steps = (taps + kPatch + 14) / 16;
        int count = kSpan + 16 * steps;
        long long from = first + piece;
        float low[kLoadsOfPairs], high[kLoadsOfPairs];
        float4 x[kLoads][2];
        bool whole = ((size_t)(input + from) & 15) == 0 && from + count <= input_size;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int k = threadIdx.x + i * kThreads;
            if (whole && k < count / 8) {
                x[i][0] = *(const float4*)&input[from + 8 * k];
                x[i][1] = *(const float4*)&input[from + 8 * k + 4];
            } else {
                float* values = (float*)x[i];
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    values[e] =
                        k < count / 8 && from + 8 * k + e < input_size ? input[from + 8 * k + e] : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < kLoadsOfPairs; ++i) {
            int o = threadIdx.x + i * kThreads - 16;
            low[i] = o >= 0 && o < taps ? kernel[piece + o] : 0.0f;
            high[i] = o + 1 >= 0 && o + 1 < taps ? kernel[piece + o + 1] : 0.0f;
            most_weight = fmaxf(most_weight, fmaxf(fabsf(low[i]), fabsf(high[i])));
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float4 v = x[i][h];
                most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
            }
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2) {
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
            most_weight = fmaxf(most_weight, __shfl_xor_sync(0xffffffffu, most_weight, lanes));
        }
        if (piece)
            __syncthreads(); // the piece before is used up
        if (lane == 0) {
            largest[0][warp] = most;
            largest[1][warp] = most_weight;
        }
        __syncthreads();
#pragma unroll
        for (int other = 0; other < warps; ++other) {
            most = fmaxf(most, largest[0][other]);
            most_weight = fmaxf(most_weight, largest[1][other]);
        }
        int before = scale + scale_of_weights;
        scale = scale_of(most);
        scale_of_weights = scale_of(most_weight);
        if (piece) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sums[j][i] = scalbnf(sums[j][i], scale + scale_of_weights - before);
                    small[j][i] = scalbnf(small[j][i], scale + scale_of_weights - before);
                }
        }
        float up = power_of_two(scale), up_weights = power_of_two(scale_of_weights);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            int k = threadIdx.x + i * kThreads;
            if (k < count / 8) {
                uint2 a = split2(x[i][0].x * up, x[i][0].y * up), b = split2(x[i][0].z * up, x[i][0].w * up);
                uint2 c = split2(x[i][1].x * up, x[i][1].y * up), d = split2(x[i][1].z * up, x[i][1].w * up);
                inputs[k + k / 8] = make_uint4(a.x, b.x, c.x, d.x);
                inputs[kRoom + k + k / 8] = make_uint4(a.y, b.y, c.y, d.y);
            }
        }
#pragma unroll
        for (int i = 0; i < kLoadsOfPairs; ++i) {
            int k = threadIdx.x + i * kThreads;
            if (k < kPairs)
                pairs[k] = split2(low[i] * up_weights, high[i] * up_weights);
        }
        __syncthreads();

        // Of the lane: row lane % 16 of a fragment, its first eight columns or its last.
        int patch = 16 * warp + lane % 16, vector = 4 * patch + lane / 16;
        unsigned int mine = shared_address(inputs + vector + vector / 8);
        unsigned int skip = patch % 2 * 16; // where eight vectors are over within four steps
        // What a lane has of W's row c and column b begins at weight c - b, so eight rows further down it is the same
        // as eight columns further left. w[3] is for the first eight rows of the step and the first eight columns.
        const uint2* weights = pairs + 16 + 2 * q - g;
        uint2 none = make_uint2(0, 0), w[6] = {none, none, none, none, weights[-8], weights[0]};
        for (int four = 0; four < steps; four += 4, mine += 4 * 32 + 16) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                int step = four + k;
                if (step >= steps)
                    break;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    w[i] = w[i + 2];
                w[4] = weights[16 * step + 8];
                w[5] = weights[16 * step + 16];
                unsigned int a[4], rest[4], from = mine + k * 32 + (k >= 2 ? skip : 0);
                load_fragment(a, from);
                load_fragment(rest, from + 16 * kRoom);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    multiply(sums[j], a, w[3 - j].x, w[4 - j].x);
                    multiply(small[j], a, w[3 - j].y, w[4 - j].y);
                    multiply(small[j], rest, w[3 - j].x, w[4 - j].x);
                }
            }
        }
    }

    int output_size = input_size - kernel_size + 1;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            long long at = first + (16 * warp + 8 * half + g) * kPatch + 8 * j + 2 * q;
            float2 two;
            two.x = scalbnf(sums[j][2 * half] + small[j][2 * half], -scale - scale_of_weights);
            two.y = scalbnf(sums[j][2 * half + 1] + small[j][2 * half + 1], -scale - scale_of_weights);
            if (at + 2 <= output_size && ((size_t)(output + at) & 7) == 0) {
                *(float2*)&output[at] = two;
            } else {
                if (at < output_size)
                    output[at] = two.x;
                if (at + 1 < output_size)
                    output[at + 1] = two.y;
            }
        }
}

constexpr int kFewWeights = 3;

// Few weights: all inputs of a result may be small beside others of the block, and keep their bits here.
__global__ void conv_1d_few_weights_kernel_optimized(const float* input, const float* kernel, float* output,
                                                     int output_size, int kernel_size) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= output_size)
        return;
    float sum = 0.0f;
    for (int k = 0; k < kernel_size; ++k)
        sum += input[i + k] * kernel[k];
    output[i] = sum;
}

template <int warps>
static void launch(const float* input, const float* kernel, float* output, int input_size, int kernel_size) {
    int blocks = (input_size - kernel_size) / (warps * kOfWarp) + 1;
    conv_1d_kernel_optimized<warps><<<blocks, 32 * warps>>>(input, kernel, output, input_size, kernel_size);
}

extern "C" void conv_1d_optimized(const float* input, const float* kernel, float* output, int input_size,
                                  int kernel_size) {
    int output_size = input_size - kernel_size + 1;
    if (kernel_size <= kFewWeights)
        conv_1d_few_weights_kernel_optimized<<<(output_size - 1) / 256 + 1, 256>>>(input, kernel, output,
                                                                                   output_size, kernel_size);
    else if (input_size - kernel_size >= kManyOutputs)
        launch<4>(input, kernel, output, input_size, kernel_size);
    else
        launch<1>(input, kernel, output, input_size, kernel_size);
}
