// idea: Four elements per thread through 16-byte loads and stores
// why: The kernel does next to nothing with what it reads, so what counts are bytes in flight and requests to memory.
//      A thread that moves 16 bytes at a time needs a quarter of the requests. Vectors that are not aligned to 16
//      bytes take a scalar loop.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kWidth = 4; // elements in 16 bytes

__global__ void axpby_wide(const float* x, float* y, float alpha, float beta, int N) {
    bool aligned = (((size_t)x | (size_t)y) & 15) == 0;
    int vectors = aligned ? N / kWidth : 0;
    long long thread = blockIdx.x * (long long)kThreads + threadIdx.x;
    if (thread < vectors) {
        float4 a = ((const float4*)x)[thread];
        float4 b = ((const float4*)y)[thread];
        ((float4*)y)[thread] = make_float4(alpha * a.x + beta * b.x, alpha * a.y + beta * b.y,
                                           alpha * a.z + beta * b.z, alpha * a.w + beta * b.w);
    }
    // What the vectors leave: at most three elements, or all of them where they are not aligned.
    long long threads = gridDim.x * (long long)kThreads;
    for (long long i = (long long)kWidth * vectors + thread; i < N; i += threads)
        y[i] = alpha * x[i] + beta * y[i];
}

extern "C" void axpby_optimized(const float* x, float* y, float alpha, float beta, int N) {
    int blocks = (N - 1) / (kThreads * kWidth) + 1;
    axpby_wide<<<blocks, kThreads>>>(x, y, alpha, beta, N);
}
