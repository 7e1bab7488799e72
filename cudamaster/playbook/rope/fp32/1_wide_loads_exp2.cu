// idea: Two pairs per thread in 16 bytes, and the frequency as one power of two
// why: The baseline divides 64-bit numbers to find its row, calls the general power function, which is long,
//      for each pair of each row, and moves 4 bytes per instruction. base^(-2k/D) is 2^(k * step) with a step
//      that is the same for the whole call, so that it is computed once on the host, in double; the power of
//      two is an instruction of the GPU. With the row in the grid's second dimension there is nothing to
//      divide, and two pairs are 16 bytes, which is one load and one store. Sine and cosine stay the accurate
//      ones: angles reach the number of rows. Rows that do not start on 16 bytes go one pair at a time.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kPairs = 2; // pairs per thread

__device__ float2 turned(float2 point, size_t m, int k, float step) {
    float sine, cosine;
    sincosf((float)m * exp2f((float)k * step), &sine, &cosine);
    return make_float2(point.x * cosine - point.y * sine, point.x * sine + point.y * cosine);
}

__global__ void rope_kernel_optimized(float* output, const float* input, int M, int D, float step) {
    bool aligned = (((size_t)input | (size_t)output) & 15) == 0 && D % (2 * kPairs) == 0;
    int pairs = D / 2;
    int first = (blockIdx.x * kThreads + threadIdx.x) * kPairs;
    for (size_t m = blockIdx.y; m < M; m += gridDim.y) {
        const float* in = input + m * D;
        float* out = output + m * D;
        if (aligned && first + kPairs <= pairs) {
            float4 points = *(const float4*)(in + 2 * (size_t)first);
            float2 a = turned(make_float2(points.x, points.y), m, first, step);
            float2 b = turned(make_float2(points.z, points.w), m, first + 1, step);
            *(float4*)(out + 2 * (size_t)first) = make_float4(a.x, a.y, b.x, b.y);
        } else {
            for (int k = first; k < pairs && k < first + kPairs; ++k) {
                float2 a = turned(make_float2(in[2 * (size_t)k], in[2 * (size_t)k + 1]), m, k, step);
                out[2 * (size_t)k] = a.x;
                out[2 * (size_t)k + 1] = a.y;
            }
        }
    }
}

extern "C" void rope_optimized(float* output, const float* input, int M, int D, float base) {
    float step = (float)(-2.0 * log2((double)base) / D);
    dim3 blocks((D / 2 - 1) / (kThreads * kPairs) + 1, M < 65535 ? M : 65535);
    rope_kernel_optimized<<<blocks, kThreads>>>(output, input, M, D, step);
}
