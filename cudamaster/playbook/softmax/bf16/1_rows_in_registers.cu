// idea: Keep the whole row in registers between one read and one write
// why: The baseline goes over a row three times with 2-byte loads, computes every exponential twice, and
//      synchronises a block of 256 threads at each of the eight levels of two trees. There are few rows and
//      they are long, so a row gets up to 1024 threads, each with one or two 16-byte vectors that are
//      requested at once. Maximum, exponentials and sum are formed in registers; warps reduce through
//      shuffles and meet at two barriers in all. Rows of more than 16384 elements are read again in each
//      pass.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kWidth = 8; // elements of a 16-byte load
constexpr int kMaxThreads = 1024;
constexpr unsigned kFullMask = 0xffffffffu;

struct __align__(16) Vector {
    __nv_bfloat16 at[kWidth];
};

struct Numbers {
    float at[kWidth];
};

// Over the block, in all its threads. `warp_values` has room for 32 numbers.
__device__ float block_max(float value, float* warp_values) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    if (threadIdx.x % 32 == 0)
        warp_values[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warp_values[threadIdx.x % 32] : -CUDART_INF_F;
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    return value;
}

__device__ float block_sum(float value, float* warp_values) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    if (threadIdx.x % 32 == 0)
        warp_values[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warp_values[threadIdx.x % 32] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// Eight elements from `first` on, minus infinity beyond the end.
__device__ Numbers load8(const __nv_bfloat16* from, size_t first, int C, bool aligned) {
    Numbers numbers;
    if (aligned && first + kWidth <= C) {
        Vector vector = *(const Vector*)(from + first);
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            numbers.at[k] = __bfloat162float(vector.at[k]);
    } else {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            numbers.at[k] = first + k < C ? __bfloat162float(from[first + k]) : -CUDART_INF_F;
    }
    return numbers;
}

__device__ void store8(__nv_bfloat16* to, size_t first, int C, bool aligned, const Numbers& numbers,
                       float factor) {
    Vector vector;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        vector.at[k] = __float2bfloat16(numbers.at[k] * factor);
    if (aligned && first + kWidth <= C) {
        *(Vector*)(to + first) = vector;
    } else {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            if (first + k < C)
                to[first + k] = vector.at[k];
    }
}

__device__ float max8(const Numbers& x) {
    float largest = x.at[0];
#pragma unroll
    for (int k = 1; k < kWidth; ++k)
        largest = fmaxf(largest, x.at[k]);
    return largest;
}

__device__ Numbers exp8(const Numbers& x, float largest) {
    Numbers result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        result.at[k] = expf(x.at[k] - largest);
    return result;
}

__device__ float sum8(const Numbers& x) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        sum += x.at[k];
    return sum;
}

// One row per block, kVectors vectors per thread.
template <int kVectors>
__global__ void softmax_bf16_kernel_optimized(__nv_bfloat16* out, const __nv_bfloat16* input, int C) {
    __shared__ float warp_values[2][32];
    const __nv_bfloat16* x = input + (size_t)blockIdx.x * C;
    __nv_bfloat16* y = out + (size_t)blockIdx.x * C;
    bool aligned = (((size_t)x | (size_t)y) & 15) == 0;
    Numbers part[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        part[v] = load8(x, (v * blockDim.x + threadIdx.x) * kWidth, C, aligned);
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        largest = fmaxf(largest, max8(part[v]));
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        part[v] = exp8(part[v], largest);
        sum += sum8(part[v]);
    }
    float factor = 1.0f / block_sum(sum, warp_values[1]);
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        store8(y, (v * blockDim.x + threadIdx.x) * kWidth, C, aligned, part[v], factor);
}

__global__ void softmax_long_bf16_kernel_optimized(__nv_bfloat16* out, const __nv_bfloat16* input, int C) {
    __shared__ float warp_values[2][32];
    const __nv_bfloat16* x = input + (size_t)blockIdx.x * C;
    __nv_bfloat16* y = out + (size_t)blockIdx.x * C;
    bool aligned = (((size_t)x | (size_t)y) & 15) == 0;
    float largest = -CUDART_INF_F;
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        largest = fmaxf(largest, max8(load8(x, i, C, aligned)));
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        sum += sum8(exp8(load8(x, i, C, aligned), largest));
    float factor = 1.0f / block_sum(sum, warp_values[1]);
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        store8(y, i, C, aligned, exp8(load8(x, i, C, aligned), largest), factor);
}

// Threads for a row of C elements with so many vectors each, in whole warps.
int threads_for(int C, int vectors) {
    int in_warp = 32 * kWidth * vectors;
    return (C + in_warp - 1) / in_warp * 32;
}

extern "C" void softmax_bf16_optimized(__nv_bfloat16* out, const __nv_bfloat16* input, int N, int C) {
    if (C <= kMaxThreads * kWidth)
        softmax_bf16_kernel_optimized<1><<<N, threads_for(C, 1)>>>(out, input, C);
    else if (C <= kMaxThreads * kWidth * 2)
        softmax_bf16_kernel_optimized<2><<<N, threads_for(C, 2)>>>(out, input, C);
    else
        softmax_long_bf16_kernel_optimized<<<N, kMaxThreads>>>(out, input, C);
}
