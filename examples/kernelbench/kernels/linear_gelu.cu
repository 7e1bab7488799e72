// idea: A block for each row of x, and GELU in the same kernel
// why: Eager PyTorch writes the product and reads it again for GELU. Here a row of x lies in shared memory, a thread makes one
// result, and nothing goes through memory twice.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kFeatures = 96, kResults = 64;

__global__ void linear_gelu_kernel(const float* x, const float* weight, const float* bias, float* out) {
    __shared__ float row[kFeatures];
    const float* own = x + (size_t)blockIdx.x * kFeatures;
    for (int k = threadIdx.x; k < kFeatures; k += blockDim.x)
        row[k] = own[k];
    __syncthreads();
    float sum = bias[threadIdx.x];
    for (int k = 0; k < kFeatures; ++k)
        sum += row[k] * weight[threadIdx.x * kFeatures + k];
    out[(size_t)blockIdx.x * kResults + threadIdx.x] = 0.5f * sum * (1.0f + erff(sum * 0.70710678118654752f));
}

extern "C" void linear_gelu_optimized(const float* x, const float* linear_weight, const float* linear_bias,
                                      float* out, int x_dim0) {
    linear_gelu_kernel<<<x_dim0, kResults>>>(x, linear_weight, linear_bias, out);
}
