// One block for each row: neighbouring threads take neighbouring elements, and y is not read again.
#include <cuda_runtime.h>

__device__ float gelu(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

__global__ void activate(const float* x, const float* bias, float* y, float* largest, int width) {
    __shared__ float of_warp[8];
    size_t start = static_cast<size_t>(blockIdx.x) * width;
    float found = -INFINITY;
    for (int k = threadIdx.x; k < width; k += blockDim.x) {
        float value = gelu(x[start + k] + bias[k]);
        y[start + k] = value;
        found = fmaxf(found, value);
    }
    for (int step = 16; step > 0; step /= 2)
        found = fmaxf(found, __shfl_down_sync(0xffffffffu, found, step));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp)
            found = fmaxf(found, of_warp[warp]);
        largest[blockIdx.x] = found;
    }
}

extern "C" void biasGelu_optimized(const float* x, const float* bias, float* y, float* largest, int rows,
                                   int width, cudaStream_t stream) {
    activate<<<rows, 256, 0, stream>>>(x, bias, y, largest, width);
}
