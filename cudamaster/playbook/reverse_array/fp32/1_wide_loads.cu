// idea: Four elements per thread through 16-byte loads and stores
// why: A call at these sizes is little more than its launch. What is left to save are the instructions and
//      the requests to memory: a thread that moves 16 bytes at a time, and turns them round in registers,
//      needs a quarter of both. Blocks are small, so that even short arrays spread over many
//      multiprocessors. Where the length is no multiple of four the mirror image of an aligned vector is not
//      aligned, and a scalar loop does the work.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kWidth = 4; // elements in 16 bytes

__global__ void reverse_array_kernel_optimized(float* output, const float* input, int N) {
    bool aligned = (((size_t)output | (size_t)input) & 15) == 0 && N % kWidth == 0;
    long long thread = blockIdx.x * (long long)kThreads + threadIdx.x;
    if (aligned) {
        int vectors = N / kWidth;
        if (thread < vectors) {
            float4 v = ((const float4*)input)[vectors - 1 - thread];
            ((float4*)output)[thread] = make_float4(v.w, v.z, v.y, v.x);
        }
        return;
    }
    long long threads = gridDim.x * (long long)kThreads;
    for (long long i = thread; i < N; i += threads)
        output[i] = input[N - 1 - i];
}

extern "C" void reverse_array_optimized(float* output, const float* input, int N) {
    int blocks = (N - 1) / (kThreads * kWidth) + 1;
    reverse_array_kernel_optimized<<<blocks, kThreads>>>(output, input, N);
}
