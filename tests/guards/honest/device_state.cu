// __constant__ tables, a __device__ scratch buffer, symbol addresses, a static local of a kernel.
#include <cuda_runtime.h>
#include <vector>
#include <algorithm>
__constant__ float weights[16];
__device__ float scratch[1 << 16];
__device__ unsigned int arrivals = 0;
static __device__ int hits;
namespace {
__device__ double wide[4];
}
__device__ constexpr float kHalf = 0.5f;

struct Pair {
    float a;
    int b;
};
inline bool operator<(const Pair& l, const Pair& r) {
    return l.a < r.a;
}

__global__ static void __launch_bounds__(128) partial_kernel_optimized(const float* x, int n) {
    static __device__ int rounds;
    int signal = threadIdx.x, thread = signal;
    if (thread == 0)
        rounds += 1;
    float sum = 0.f;
    for (int i = blockIdx.x * blockDim.x + thread; i < n; i += gridDim.x * blockDim.x)
        sum += x[i] * weights[i & 15];
    scratch[blockIdx.x * blockDim.x + thread] = sum + kHalf * 0;
    __threadfence();
    if (atomicInc(&arrivals, gridDim.x * blockDim.x - 1) == 0)
        hits = 1;
}
extern "C" __global__ void finish_kernel_optimized(float* y, int n, const float* parts, int count) {
    float sum = 0.f;
    for (int i = 0; i < count; ++i)
        sum += parts[i];
    wide[0] = sum;
    y[0] = sum;
}
extern "C" void task_optimized(const float* x, float* y, int n) {
    std::vector<float> host(16, 1.0f);
    std::sort(host.begin(), host.end());
    cudaMemcpyToSymbolAsync(weights, host.data(), sizeof(weights), 0, cudaMemcpyHostToDevice, 0);
    float* parts = nullptr;
    cudaGetSymbolAddress((void**)&parts, scratch);
    partial_kernel_optimized<<<8, 128>>>(x, n);
    finish_kernel_optimized<<<1, 1>>>(y, n, parts, 8 * 128);
}
