// idea: Sum and norm of a row in one kernel
// why: Eager PyTorch writes the sum and reads it again; here a row stays in registers.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kFeatures = 128;

__device__ float sum_of_block(float value, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = kFeatures / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    float sum = shared[0];
    __syncthreads();
    return sum;
}

__global__ void layer_norm_residual_kernel(const float* x, const float* residual, const float* weight,
                                           const float* bias, float* out) {
    __shared__ float shared[kFeatures];
    size_t i = (size_t)blockIdx.x * kFeatures + threadIdx.x;
    float value = x[i] + residual[i];
    float difference = value - sum_of_block(value, shared) / kFeatures;
    float variance = sum_of_block(difference * difference, shared) / kFeatures;
    out[i] = difference * rsqrtf(variance + 1e-5f) * weight[threadIdx.x] + bias[threadIdx.x];
}

extern "C" void layer_norm_residual_optimized(const float* x, const float* residual, const float* norm_weight,
                                              const float* norm_bias, float* out, int x_dim0, int x_dim1) {
    layer_norm_residual_kernel<<<x_dim0 * x_dim1, kFeatures>>>(x, residual, norm_weight, norm_bias, out);
}
