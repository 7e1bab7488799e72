// idea: Scale, maximum and sum of a row in one kernel
// why: Eager PyTorch scales in a kernel of its own, and reads what that wrote.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 256;

template <bool kMaximum> __device__ float over_block(float value, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = shared[threadIdx.x + half];
            shared[threadIdx.x] = kMaximum ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    float result = shared[0];
    __syncthreads();
    return result;
}

__global__ void row_softmax_kernel(const float* x, float scale, float* out, int columns) {
    __shared__ float shared[kThreads];
    const float* row = x + (size_t)blockIdx.x * columns;
    float* result = out + (size_t)blockIdx.x * columns;
    float largest = -INFINITY;
    for (int k = threadIdx.x; k < columns; k += kThreads)
        largest = fmaxf(largest, row[k] * scale);
    largest = over_block<true>(largest, shared);
    float sum = 0;
    for (int k = threadIdx.x; k < columns; k += kThreads)
        sum += expf(row[k] * scale - largest);
    sum = over_block<false>(sum, shared);
    for (int k = threadIdx.x; k < columns; k += kThreads)
        result[k] = expf(row[k] * scale - largest) / sum;
}

extern "C" void row_softmax_optimized(const float* x, float scale, float* out, int x_dim0, int x_dim1) {
    row_softmax_kernel<<<x_dim0, kThreads>>>(x, scale, out, x_dim1);
}
