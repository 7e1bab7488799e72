// idea: One launch of one block that keeps its elements in registers
// why: The baseline allocates and frees memory for two numbers, which costs far more than the vector of a few
//      kilobytes does, and needs two launches. One block can hold all of it: every thread requests 16 bytes
//      of input, weight and bias at once, so that the trip to memory is made once; warps reduce through
//      shuffles and meet at one barrier for the mean and one for the variance, which is that of the
//      differences in the registers. Vectors of more than 8192 elements take a block that goes over them
//      three times.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kWidth = 8; // elements of a 16-byte load
constexpr int kMaxThreads = 1024;
constexpr unsigned kFullMask = 0xffffffffu;

struct __align__(16) Vector {
    __nv_bfloat16 at[kWidth];
};

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

// Eight elements from `first` on, zeros beyond the end.
__device__ Vector load8(const __nv_bfloat16* from, size_t first, int N, bool aligned) {
    if (aligned && first + kWidth <= N)
        return *(const Vector*)(from + first);
    Vector some;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        some.at[k] = first + k < N ? from[first + k] : __float2bfloat16(0.0f);
    return some;
}

__device__ void store8(__nv_bfloat16* to, size_t first, int N, bool aligned, const Vector& value) {
    if (aligned && first + kWidth <= N) {
        *(Vector*)(to + first) = value;
    } else {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            if (first + k < N)
                to[first + k] = value.at[k];
    }
}

__device__ float sum8(const Vector& x) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        sum += __bfloat162float(x.at[k]);
    return sum;
}

// Of the differences from the mean, as far as there are elements.
__device__ float sum_of_squares(const Vector& x, float mean, size_t first, int N) {
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
        float difference = __bfloat162float(x.at[k]) - mean;
        squares += first + k < N ? difference * difference : 0.0f;
    }
    return squares;
}

__device__ Vector normalised(const Vector& x, float mean, float factor, const Vector& weight,
                             const Vector& bias) {
    Vector result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        result.at[k] =
            __float2bfloat16((__bfloat162float(x.at[k]) - mean) * factor * __bfloat162float(weight.at[k]) +
                             __bfloat162float(bias.at[k]));
    return result;
}

__device__ bool all_aligned(const __nv_bfloat16* output, const __nv_bfloat16* input,
                            const __nv_bfloat16* weight, const __nv_bfloat16* bias) {
    return (((size_t)output | (size_t)input | (size_t)weight | (size_t)bias) & 15) == 0;
}

// One vector of eight per thread.
__global__ void layer_norm_bf16_kernel_optimized(__nv_bfloat16* output, const __nv_bfloat16* input,
                                                 const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                                 float epsilon, int N) {
    __shared__ float warp_sums[2][32];
    bool aligned = all_aligned(output, input, weight, bias);
    size_t first = threadIdx.x * kWidth;
    Vector x = load8(input, first, N, aligned);
    Vector w = load8(weight, first, N, aligned);
    Vector b = load8(bias, first, N, aligned);
    float mean = block_sum(sum8(x), warp_sums[0]) / N;
    float variance = block_sum(sum_of_squares(x, mean, first, N), warp_sums[1]) / N;
    float factor = rsqrtf(variance + epsilon);
    store8(output, first, N, aligned, normalised(x, mean, factor, w, b));
}

__global__ void layer_norm_long_bf16_kernel_optimized(__nv_bfloat16* output, const __nv_bfloat16* input,
                                                      const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                                      float epsilon, int N) {
    __shared__ float warp_sums[2][32];
    bool aligned = all_aligned(output, input, weight, bias);
    float sum = 0.0f;
    for (size_t i = threadIdx.x * kWidth; i < N; i += blockDim.x * kWidth)
        sum += sum8(load8(input, i, N, aligned));
    float mean = block_sum(sum, warp_sums[0]) / N;
    float squares = 0.0f;
    for (size_t i = threadIdx.x * kWidth; i < N; i += blockDim.x * kWidth)
        squares += sum_of_squares(load8(input, i, N, aligned), mean, i, N);
    float factor = rsqrtf(block_sum(squares, warp_sums[1]) / N + epsilon);
    for (size_t i = threadIdx.x * kWidth; i < N; i += blockDim.x * kWidth)
        store8(output, i, N, aligned,
               normalised(load8(input, i, N, aligned), mean, factor, load8(weight, i, N, aligned),
                          load8(bias, i, N, aligned)));
}

extern "C" void layer_norm_bf16_optimized(__nv_bfloat16* output, const __nv_bfloat16* input,
                                          const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                          float epsilon, int N) {
    if (N <= kMaxThreads * kWidth) {
        int threads = (N + 32 * kWidth - 1) / (32 * kWidth) * 32;
        layer_norm_bf16_kernel_optimized<<<1, threads>>>(output, input, weight, bias, epsilon, N);
    } else {
        layer_norm_long_bf16_kernel_optimized<<<1, kMaxThreads>>>(output, input, weight, bias, epsilon, N);
    }
}
