// idea: Keep the whole row in registers between one read and one write
// why: The baseline goes over a row three times with 4-byte loads, computes every exponential twice, and
//      synchronises a block of 256 threads at each of the eight levels of two trees. There are few rows and
//      they are long, so a row gets up to 1024 threads, each with one to four 16-byte vectors that are
//      requested at once. Maximum, exponentials and sum are formed in registers; warps reduce through
//      shuffles and meet at two barriers in all. Rows of more than 16384 elements are read again in each
//      pass.
// flags: -O3 --use_fast_math
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kWidth = 4; // elements of a 16-byte load
constexpr int kMaxThreads = 1024;
constexpr unsigned kFullMask = 0xffffffffu;

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

// Four elements from `first` on, minus infinity beyond the end.
__device__ float4 load4(const float* from, size_t first, int C, bool aligned) {
    if (aligned && first + kWidth <= C)
        return *(const float4*)(from + first);
    return make_float4(
        first < C ? from[first] : -CUDART_INF_F, first + 1 < C ? from[first + 1] : -CUDART_INF_F,
        first + 2 < C ? from[first + 2] : -CUDART_INF_F, first + 3 < C ? from[first + 3] : -CUDART_INF_F);
}

__device__ void store4(float* to, size_t first, int C, bool aligned, float4 value) {
    if (aligned && first + kWidth <= C) {
        *(float4*)(to + first) = value;
    } else {
        float values[kWidth] = {value.x, value.y, value.z, value.w};
        for (int k = 0; k < kWidth; ++k)
            if (first + k < C)
                to[first + k] = values[k];
    }
}

__device__ float max4(float4 x) {
    return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
}

__device__ float4 exp4(float4 x, float largest) {
    return make_float4(expf(x.x - largest), expf(x.y - largest), expf(x.z - largest), expf(x.w - largest));
}

__device__ float sum4(float4 x) {
    return (x.x + x.y) + (x.z + x.w);
}

__device__ float4 scaled(float4 x, float factor) {
    return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}

// One row per block, kVectors vectors per thread.
template <int kVectors> __global__ void softmax_kernel_optimized(float* out, const float* input, int C) {
    __shared__ float warp_values[2][32];
    const float* x = input + (size_t)blockIdx.x * C;
    float* y = out + (size_t)blockIdx.x * C;
    bool aligned = (((size_t)x | (size_t)y) & 15) == 0;
    float4 part[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        part[v] = load4(x, (v * blockDim.x + threadIdx.x) * kWidth, C, aligned);
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        largest = fmaxf(largest, max4(part[v]));
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        part[v] = exp4(part[v], largest);
        sum += sum4(part[v]);
    }
    float factor = 1.0f / block_sum(sum, warp_values[1]);
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
        store4(y, (v * blockDim.x + threadIdx.x) * kWidth, C, aligned, scaled(part[v], factor));
}

__global__ void softmax_long_kernel_optimized(float* out, const float* input, int C) {
    __shared__ float warp_values[2][32];
    const float* x = input + (size_t)blockIdx.x * C;
    float* y = out + (size_t)blockIdx.x * C;
    bool aligned = (((size_t)x | (size_t)y) & 15) == 0;
    float largest = -CUDART_INF_F;
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        largest = fmaxf(largest, max4(load4(x, i, C, aligned)));
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        sum += sum4(exp4(load4(x, i, C, aligned), largest));
    float factor = 1.0f / block_sum(sum, warp_values[1]);
    for (size_t i = threadIdx.x * kWidth; i < C; i += blockDim.x * kWidth)
        store4(y, i, C, aligned, scaled(exp4(load4(x, i, C, aligned), largest), factor));
}

// Threads for a row of C elements with so many vectors each, in whole warps.
int threads_for(int C, int vectors) {
    int in_warp = 32 * kWidth * vectors;
    return (C + in_warp - 1) / in_warp * 32;
}

extern "C" void softmax_optimized(float* out, const float* input, int N, int C) {
    if (C <= kMaxThreads * kWidth)
        softmax_kernel_optimized<1><<<N, threads_for(C, 1)>>>(out, input, C);
    else if (C <= kMaxThreads * kWidth * 2)
        softmax_kernel_optimized<2><<<N, threads_for(C, 2)>>>(out, input, C);
    else if (C <= kMaxThreads * kWidth * 4)
        softmax_kernel_optimized<4><<<N, threads_for(C, 4)>>>(out, input, C);
    else
        softmax_long_kernel_optimized<<<N, kMaxThreads>>>(out, input, C);
}
