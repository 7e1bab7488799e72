// Silu and mul, bf16 storage, fp32 arithmetic: the first half of every row through the SiLU function, times
// the second half.
//
// Shapes  input: B x 2D, out: B x D, row-major
// Moves   6 bytes and 5 operations per element of the result
// Naive   one element of the result per thread, which divides to find its row
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void silu_and_mul_bf16_kernel(const __nv_bfloat16* input, __nv_bfloat16* out, int B, int D) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < (size_t)B * D) {
        size_t row = i / D;
        size_t column = i % D;
        float x = __bfloat162float(input[row * 2 * D + column]);
        float g = __bfloat162float(input[row * 2 * D + D + column]);
        out[i] = __float2bfloat16(x / (1.0f + expf(-x)) * g);
    }
}

extern "C" void silu_and_mul_bf16(const __nv_bfloat16* input, __nv_bfloat16* out, int B, int D) {
    int threads = 256;
    size_t blocks = ((size_t)B * D - 1) / threads + 1;
    silu_and_mul_bf16_kernel<<<blocks, threads>>>(input, out, B, D);
}
