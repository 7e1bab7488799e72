// SwiGLU, bf16 storage, fp32 arithmetic: the gate through the swish function, times the value.
//
// Shapes  gate_input, value_input, output: N
// Moves   6 bytes and 5 operations per element
// Naive   one element per thread
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void swiglu_bf16_kernel(__nv_bfloat16* output, const __nv_bfloat16* gate_input,
                                   const __nv_bfloat16* value_input, float beta, int N) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < N) {
        float gate = __bfloat162float(gate_input[i]);
        output[i] = __float2bfloat16(gate / (1.0f + expf(-beta * gate)) * __bfloat162float(value_input[i]));
    }
}

extern "C" void swiglu_bf16(__nv_bfloat16* output, const __nv_bfloat16* gate_input,
                            const __nv_bfloat16* value_input, float beta, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    swiglu_bf16_kernel<<<blocks, threads>>>(output, gate_input, value_input, beta, N);
}
