// idea: Four pairs per thread in 16 bytes, and the frequency as one power of two
// why: The baseline divides 64-bit numbers to find its row, calls the general power function, which is long,
//      for each pair of each row, and moves 2 bytes per instruction. base^(-2k/D) is 2^(k * step) with a step
//      that is the same for the whole call, so that it is computed once on the host, in double; the power of
//      two is an instruction of the GPU. With the row in the grid's second dimension there is nothing to
//      divide, and four pairs are 16 bytes, which is one load and one store. Sine and cosine stay the
//      accurate ones: angles reach the number of rows. Rows that do not start on 16 bytes go one pair at a
//      time.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kPairs = 4; // pairs per thread

struct __align__(16) Points {
    __nv_bfloat16 at[2 * kPairs];
};

// Turns the pair at `from` into the one at `to`.
__device__ void turn(const __nv_bfloat16* from, __nv_bfloat16* to, size_t m, int k, float step) {
    float sine, cosine;
    sincosf((float)m * exp2f((float)k * step), &sine, &cosine);
    float x = __bfloat162float(from[0]), y = __bfloat162float(from[1]);
    to[0] = __float2bfloat16(x * cosine - y * sine);
    to[1] = __float2bfloat16(x * sine + y * cosine);
}

__global__ void rope_bf16_kernel_optimized(__nv_bfloat16* output, const __nv_bfloat16* input, int M, int D,
                                           float step) {
    bool aligned = (((size_t)input | (size_t)output) & 15) == 0 && D % (2 * kPairs) == 0;
    int pairs = D / 2;
    int first = (blockIdx.x * kThreads + threadIdx.x) * kPairs;
    for (size_t m = blockIdx.y; m < M; m += gridDim.y) {
        const __nv_bfloat16* in = input + m * D;
        __nv_bfloat16* out = output + m * D;
        if (aligned && first + kPairs <= pairs) {
            Points points = *(const Points*)(in + 2 * (size_t)first);
#pragma unroll
            for (int k = 0; k < kPairs; ++k)
                turn(points.at + 2 * k, points.at + 2 * k, m, first + k, step);
            *(Points*)(out + 2 * (size_t)first) = points;
        } else {
            for (int k = first; k < pairs && k < first + kPairs; ++k)
                turn(in + 2 * (size_t)k, out + 2 * (size_t)k, m, k, step);
        }
    }
}

extern "C" void rope_bf16_optimized(__nv_bfloat16* output, const __nv_bfloat16* input, int M, int D,
                                    float base) {
    float step = (float)(-2.0 * log2((double)base) / D);
    dim3 blocks((D / 2 - 1) / (kThreads * kPairs) + 1, M < 65535 ? M : 65535);
    rope_bf16_kernel_optimized<<<blocks, kThreads>>>(output, input, M, D, step);
}
