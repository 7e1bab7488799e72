// idea: A group of lanes per token and head, 16-byte loads, one exponential and no division per element
// why: In the baseline a block serves one token and head; its first thread fetches the two LSEs and computes
//      while the others wait at a barrier, and only then do their loads of 2 bytes begin, each with a
//      division after it. Here every thread requests its 16 bytes of both outputs and the LSEs at once, so
//      that the trip to memory is made once; the lanes of a head compute the same two normalised weights from
//      a single exponential, and an element costs two multiplications. A block holds several heads, which lie
//      next to each other in memory. Head sizes or pointers that do not fit 16 bytes take the same kernel
//      with one element per load.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;

template <int kWidth> struct __align__(kWidth * sizeof(__nv_bfloat16)) Vector {
    __nv_bfloat16 at[kWidth];
};

// Blocks are (lanes of a head, heads); the grid is (groups of heads, tokens), and in y it may have to go
// round.
template <int kWidth>
__global__ void merge_attn_states_bf16_kernel_optimized(__nv_bfloat16* V_out, __nv_bfloat16* LSE_out,
                                                        const __nv_bfloat16* V_a, const __nv_bfloat16* lse_a,
                                                        const __nv_bfloat16* V_b, const __nv_bfloat16* lse_b,
                                                        int num_tokens, int num_heads, int head_size) {
    typedef Vector<kWidth> Wide;
    size_t head = blockIdx.x * (size_t)blockDim.y + threadIdx.y;
    if (head >= num_heads)
        return;
    for (size_t token = blockIdx.y; token < num_tokens; token += gridDim.y) {
        size_t at = head * num_tokens + token;
        size_t first = (token * num_heads + head) * head_size;
        size_t d = threadIdx.x * kWidth;
        Wide x, y;
        if (d < head_size) { // requested before anything waits for the LSEs
            x = *(const Wide*)(V_a + first + d);
            y = *(const Wide*)(V_b + first + d);
        }
        float a = __bfloat162float(lse_a[at]), b = __bfloat162float(lse_b[at]);
        float smaller = expf(-fabsf(a - b)); // the larger one is 1
        float share = 1.0f / (1.0f + smaller);
        float weight_a = a < b ? smaller * share : share;
        float weight_b = a < b ? share : smaller * share;
        if (threadIdx.x == 0)
            LSE_out[at] = __float2bfloat16(fmaxf(a, b) + logf(1.0f + smaller));
        while (d < head_size) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k)
                x.at[k] = __float2bfloat16(__bfloat162float(x.at[k]) * weight_a +
                                           __bfloat162float(y.at[k]) * weight_b);
            *(Wide*)(V_out + first + d) = x;
            d += blockDim.x * kWidth;
            if (d < head_size) {
                x = *(const Wide*)(V_a + first + d);
                y = *(const Wide*)(V_b + first + d);
            }
        }
    }
}

template <int kWidth>
void merge(__nv_bfloat16* V_out, __nv_bfloat16* LSE_out, const __nv_bfloat16* V_a, const __nv_bfloat16* lse_a,
           const __nv_bfloat16* V_b, const __nv_bfloat16* lse_b, int num_tokens, int num_heads,
           int head_size) {
    int lanes = 1;
    while (lanes < kThreads && lanes * kWidth < head_size)
        lanes *= 2;
    int heads = kThreads / lanes;
    dim3 threads(lanes, heads);
    dim3 blocks((num_heads - 1) / heads + 1, num_tokens < 65535 ? num_tokens : 65535);
    merge_attn_states_bf16_kernel_optimized<kWidth>
        <<<blocks, threads>>>(V_out, LSE_out, V_a, lse_a, V_b, lse_b, num_tokens, num_heads, head_size);
}

extern "C" void merge_attn_states_bf16_optimized(__nv_bfloat16* V_out, __nv_bfloat16* LSE_out,
                                                 const __nv_bfloat16* V_a, const __nv_bfloat16* lse_a,
                                                 const __nv_bfloat16* V_b, const __nv_bfloat16* lse_b,
                                                 int num_tokens, int num_heads, int head_size) {
    bool aligned = (((size_t)V_out | (size_t)V_a | (size_t)V_b) & 15) == 0 && head_size % 8 == 0;
    if (aligned)
        merge<8>(V_out, LSE_out, V_a, lse_a, V_b, lse_b, num_tokens, num_heads, head_size);
    else
        merge<1>(V_out, LSE_out, V_a, lse_a, V_b, lse_b, num_tokens, num_heads, head_size);
}
