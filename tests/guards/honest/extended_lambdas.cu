// Lambdas for the device, and for host and device, which nvcc calls on the host through pointers that it keeps.
#include <cuda_runtime.h>

template <class F> __global__ void mapped(const float* x, float* y, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = f(x[i]);
}

template <class F> static float on_host(F f, float v) {
    return f(v);
}

extern "C" void task_optimized(const float* x, float* y, int n) {
    float by = n;
    auto positive = [] __host__ __device__(float v) { return v > 0 ? v : 0; };
    auto scaled = [by] __host__ __device__(float v) { return v * by; };
    mapped<<<(n + 255) / 256, 256>>>(x, y, n, positive);
    mapped<<<(n + 255) / 256, 256>>>(x, y, on_host(scaled, on_host(positive, 1)) > 0 ? n : 1, scaled);
    mapped<<<(n + 255) / 256, 256>>>(x, y, n, [=] __device__(float v) { return v + by; });
}
