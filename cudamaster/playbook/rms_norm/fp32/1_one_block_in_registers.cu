// idea: One launch of one block that keeps its elements in registers
// why: The baseline allocates and frees memory for a single number, which costs far more than the vector of a
//      few kilobytes does, and needs two launches. One block can hold all of it: every thread requests 16
//      bytes of input, weight and bias at once, so that the trip to memory is made once; warps reduce through
//      shuffles and meet at a single barrier, and the result is formed from registers. Vectors of more than
//      4096 elements take a block that goes over them twice.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kWidth = 4; // elements of a 16-byte load
constexpr int kMaxThreads = 1024;
constexpr unsigned kFullMask = 0xffffffffu;

// The sum over the block, in all its threads. `warp_sums` has room for 32 numbers.
__device__ float block_sum(float value, float* warp_sums) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warp_sums[threadIdx.x % 32] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// Four elements from `first` on, zeros beyond the end.
__device__ float4 load4(const float* from, size_t first, int N, bool aligned) {
    if (aligned && first + kWidth <= N)
        return *(const float4*)(from + first);
    return make_float4(first < N ? from[first] : 0.0f, first + 1 < N ? from[first + 1] : 0.0f,
                       first + 2 < N ? from[first + 2] : 0.0f, first + 3 < N ? from[first + 3] : 0.0f);
}

__device__ void store4(float* to, size_t first, int N, bool aligned, float4 value) {
    if (aligned && first + kWidth <= N) {
        *(float4*)(to + first) = value;
    } else {
        float values[kWidth] = {value.x, value.y, value.z, value.w};
        for (int k = 0; k < kWidth; ++k)
            if (first + k < N)
                to[first + k] = values[k];
    }
}

__device__ float sum_of_squares(float4 x) {
    return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}

__device__ float4 normalised(float4 x, float factor, float4 weight, float4 bias) {
    return make_float4(x.x * factor * weight.x + bias.x, x.y * factor * weight.y + bias.y,
                       x.z * factor * weight.z + bias.z, x.w * factor * weight.w + bias.w);
}

__device__ bool all_aligned(const float* output, const float* input, const float* weight, const float* bias) {
    return (((size_t)output | (size_t)input | (size_t)weight | (size_t)bias) & 15) == 0;
}

// One vector of four per thread.
__global__ void rms_norm_kernel_optimized(float* output, const float* input, const float* weight,
                                          const float* bias, float epsilon, int N) {
    __shared__ float warp_sums[32];
    bool aligned = all_aligned(output, input, weight, bias);
    size_t first = threadIdx.x * kWidth;
    float4 x = load4(input, first, N, aligned);
    float4 w = load4(weight, first, N, aligned);
    float4 b = load4(bias, first, N, aligned);
    float squares = block_sum(sum_of_squares(x), warp_sums);
    float factor = 1.0f / (sqrtf(squares / N) + epsilon);
    store4(output, first, N, aligned, normalised(x, factor, w, b));
}

__global__ void rms_norm_long_kernel_optimized(float* output, const float* input, const float* weight,
                                               const float* bias, float epsilon, int N) {
    __shared__ float warp_sums[32];
    bool aligned = all_aligned(output, input, weight, bias);
    float squares = 0.0f;
    for (size_t i = threadIdx.x * kWidth; i < N; i += blockDim.x * kWidth)
        squares += sum_of_squares(load4(input, i, N, aligned));
    squares = block_sum(squares, warp_sums);
    float factor = 1.0f / (sqrtf(squares / N) + epsilon);
    for (size_t i = threadIdx.x * kWidth; i < N; i += blockDim.x * kWidth)
        store4(output, i, N, aligned,
               normalised(load4(input, i, N, aligned), factor, load4(weight, i, N, aligned),
                          load4(bias, i, N, aligned)));
}

extern "C" void rms_norm_optimized(float* output, const float* input, const float* weight, const float* bias,
                                   float epsilon, int N) {
    if (N <= kMaxThreads * kWidth) {
        int threads = (N + 32 * kWidth - 1) / (32 * kWidth) * 32;
        rms_norm_kernel_optimized<<<1, threads>>>(output, input, weight, bias, epsilon, N);
    } else {
        rms_norm_long_kernel_optimized<<<1, kMaxThreads>>>(output, input, weight, bias, epsilon, N);
    }
}
