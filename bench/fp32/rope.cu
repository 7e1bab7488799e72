// Rope, fp32: neighbouring elements of row m are a point that turns by m * base^(-2k/D), k the number of the
// pair.
//
// Shapes  input, output: M x D, row-major, D even
// Moves   8 bytes per element; a power, a sine, a cosine and 6 operations per pair
// Naive   one pair per thread, which divides to find its row and computes the power anew for every row
#include <cuda_runtime.h>

__global__ void rope_kernel(float* output, const float* input, int M, int D, float base) {
    size_t pair = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (pair < (size_t)M * (D / 2)) {
        int m = pair / (D / 2);
        int k = pair % (D / 2);
        float angle = m * powf(base, -2.0f * k / D);
        float sine, cosine;
        sincosf(angle, &sine, &cosine);
        float x = input[2 * pair];
        float y = input[2 * pair + 1];
        output[2 * pair] = x * cosine - y * sine;
        output[2 * pair + 1] = x * sine + y * cosine;
    }
}

extern "C" void rope(float* output, const float* input, int M, int D, float base) {
    int threads = 256;
    size_t blocks = ((size_t)M * (D / 2) - 1) / threads + 1;
    rope_kernel<<<blocks, threads>>>(output, input, M, D, base);
}
