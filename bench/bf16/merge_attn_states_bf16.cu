// Merge attention states, bf16 storage, fp32 arithmetic: outputs and LSEs of attention over two sets of keys
// become those over both.
//
// Shapes  V_a, V_b, V_out: num_tokens x num_heads x head_size; lse_a, lse_b, LSE_out: num_heads x num_tokens
// Moves   6 bytes and 5 operations per element of V
// Naive   one block per token and head; its first thread computes the two weights while the others wait, then
//         one element per thread, with a division for each
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// In y the blocks take heads in turn: there may be more of them than a grid has blocks in y.
__global__ void merge_attn_states_bf16_kernel(__nv_bfloat16* V_out, __nv_bfloat16* LSE_out,
                                              const __nv_bfloat16* V_a, const __nv_bfloat16* lse_a,
                                              const __nv_bfloat16* V_b, const __nv_bfloat16* lse_b,
                                              int num_tokens, int num_heads, int head_size) {
    __shared__ float weight_a, weight_b;
    size_t token = blockIdx.x;
    for (size_t head = blockIdx.y; head < num_heads; head += gridDim.y) {
        if (threadIdx.x == 0) {
            size_t at = head * num_tokens + token;
            float a = __bfloat162float(lse_a[at]), b = __bfloat162float(lse_b[at]);
            float larger = fmaxf(a, b);
            weight_a = expf(a - larger);
            weight_b = expf(b - larger);
            LSE_out[at] = __float2bfloat16(logf(weight_a + weight_b) + larger);
        }
        __syncthreads();
        size_t first = (token * num_heads + head) * head_size;
        for (size_t d = threadIdx.x; d < head_size; d += blockDim.x) {
            float a = __bfloat162float(V_a[first + d]), b = __bfloat162float(V_b[first + d]);
            V_out[first + d] = __float2bfloat16((a * weight_a + b * weight_b) / (weight_a + weight_b));
        }
        __syncthreads();
    }
}

extern "C" void merge_attn_states_bf16(__nv_bfloat16* V_out, __nv_bfloat16* LSE_out, const __nv_bfloat16* V_a,
                                       const __nv_bfloat16* lse_a, const __nv_bfloat16* V_b,
                                       const __nv_bfloat16* lse_b, int num_tokens, int num_heads,
                                       int head_size) {
    dim3 blocks(num_tokens, min(num_heads, 65535));
    merge_attn_states_bf16_kernel<<<blocks, 128>>>(V_out, LSE_out, V_a, lse_a, V_b, lse_b, num_tokens,
                                                   num_heads, head_size);
}
