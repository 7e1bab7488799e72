// idea: Twelve outputs per thread from a window that slides through registers
// why: The baseline makes two loads for every multiply-add, so the load units are busy and the arithmetic
//      waits. Here a block brings its part of the input and up to 256 weights into shared memory once, and
//      a thread makes twelve neighbouring outputs: for four weights it loads one vector of weights, which
//      all threads share, and one vector of inputs, slides a window of sixteen inputs in its registers and
//      does 48 multiply-adds. Vectors that lie twelve floats apart hit no bank of shared memory twice.
//      Results go through shared memory too, so that neighbouring threads store neighbouring elements.
//      Longer kernels are taken in pieces of 256 weights.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 128;
constexpr int kOutputs =
    12; // of a thread; an odd multiple of four, so that vector loads meet no bank conflicts
constexpr int kSpan = kThreads * kOutputs;
constexpr int kTaps = 256; // weights of a piece
constexpr int kTile = kSpan + kTaps + 4;

__global__ void __launch_bounds__(kThreads)
    conv_1d_kernel_optimized(const float* input, const float* kernel, float* output, int input_size,
                             int kernel_size) {
    __shared__ __align__(16) float inputs[kTile];
    __shared__ __align__(16) float taps[kTaps];
    long long first = (long long)blockIdx.x * kSpan;
    int mine = threadIdx.x * kOutputs;
    float sums[kOutputs] = {};
    for (int piece = 0; piece < kernel_size; piece += kTaps) {
        // The last vector of weights is filled up with zeros, as is what lies beyond the input.
        int groups = (min(kernel_size - piece, kTaps) + 3) / 4;
        __syncthreads(); // the piece before is used up
        for (int k = threadIdx.x; k < 4 * groups; k += kThreads)
            taps[k] = piece + k < kernel_size ? kernel[piece + k] : 0.0f;
        for (int k = threadIdx.x; k < kSpan + 4 * groups; k += kThreads)
            inputs[k] = first + piece + k < input_size ? input[first + piece + k] : 0.0f;
        __syncthreads();

        float window[kOutputs + 4];
#pragma unroll
        for (int k = 0; k < kOutputs; k += 4)
            *(float4*)&window[k] = *(const float4*)&inputs[mine + k];
#pragma unroll 4
        for (int group = 0; group < groups; ++group) {
            *(float4*)&window[kOutputs] = *(const float4*)&inputs[mine + kOutputs + 4 * group];
            float4 four = *(const float4*)&taps[4 * group];
            const float tap[] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < kOutputs; ++i)
                    sums[i] += window[i + k] * tap[k];
#pragma unroll
            for (int i = 0; i < kOutputs; ++i)
                window[i] = window[i + 4];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOutputs; i += 4)
        *(float4*)&inputs[mine + i] = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    __syncthreads();
    int output_size = input_size - kernel_size + 1;
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) {
        int i = k * kThreads + threadIdx.x;
        if (first + i < output_size)
            output[first + i] = inputs[i];
    }
}

extern "C" void conv_1d_optimized(const float* input, const float* kernel, float* output, int input_size,
                                  int kernel_size) {
    int blocks = (input_size - kernel_size) / kSpan + 1;
    conv_1d_kernel_optimized<<<blocks, kThreads>>>(input, kernel, output, input_size, kernel_size);
}
