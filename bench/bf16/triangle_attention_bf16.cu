// Triangle attention, bf16 storage, fp32 arithmetic: softmax(Q K^T / sqrt(head_dim)) V per head, over the
// keys j <= i that the mask allows.
//
// Shapes  query, key, value, output: batch_size x head_num x seq_length x head_dim, attention_mask:
//         batch_size x seq_length x seq_length, fp32; an entry above 0.5 leaves the key out
// Moves   query, key, value, output and half of the mask once at best, half of the fp32 scores five times and
//         half of the bf16 weights twice; 4 head_dim operations per score
// Rounds  scores, exponentials and sums are fp32; the weights are rounded to bf16, as they are for tensor
//         cores, and the result is rounded once
// Naive   three launches with scores and weights of all heads between them in scratch that is allocated in
//         the call: a dot product per thread, straight from global memory; a softmax with one block per row,
//         in three passes; a column of the values per thread, straight from global memory. What is above the
//         diagonal is left alone in all three
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// In z the blocks take heads in turn: there may be more of them than a grid has blocks in z.
__global__ void triangle_scores_bf16_kernel(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                            const float* attention_mask, float* scores, size_t heads,
                                            int head_num, int seq_length, int head_dim) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= seq_length || j > i)
        return;
    for (size_t head = blockIdx.z; head < heads; head += gridDim.z) {
        const __nv_bfloat16* q = query + (head * seq_length + i) * head_dim;
        const __nv_bfloat16* k = key + (head * seq_length + j) * head_dim;
        float score = -INFINITY;
        if (attention_mask[(head / head_num * seq_length + i) * seq_length + j] <= 0.5f) {
            float sum = 0.0f;
            for (int d = 0; d < head_dim; ++d)
                sum += __bfloat162float(q[d]) * __bfloat162float(k[d]);
            score = sum / sqrtf(head_dim);
        }
        scores[(head * seq_length + i) * seq_length + j] = score;
    }
}

__global__ void triangle_softmax_bf16_kernel(float* scores, __nv_bfloat16* weights, size_t heads,
                                             int seq_length) {
    __shared__ float partial[128];
    int i = blockIdx.x;
    for (size_t head = blockIdx.y; head < heads; head += gridDim.y) {
        float* row = scores + (head * seq_length + i) * seq_length;

        float largest = -INFINITY;
        for (int j = threadIdx.x; j <= i; j += blockDim.x)
            largest = fmaxf(largest, row[j]);
        partial[threadIdx.x] = largest;
        __syncthreads();
        for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
            if (threadIdx.x < stride)
                partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + stride]);
            __syncthreads();
        }
        largest = partial[0];
        __syncthreads();

        float sum = 0.0f;
        for (int j = threadIdx.x; j <= i; j += blockDim.x) {
            row[j] = expf(row[j] - largest);
            sum += row[j];
        }
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
            if (threadIdx.x < stride)
                partial[threadIdx.x] += partial[threadIdx.x + stride];
            __syncthreads();
        }
        sum = partial[0];
        __syncthreads();

        for (int j = threadIdx.x; j <= i; j += blockDim.x)
            weights[(head * seq_length + i) * seq_length + j] = __float2bfloat16(row[j] / sum);
    }
}

__global__ void triangle_values_bf16_kernel(const __nv_bfloat16* weights, const __nv_bfloat16* value,
                                            __nv_bfloat16* output, size_t heads, int seq_length,
                                            int head_dim) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= seq_length || c >= head_dim)
        return;
    for (size_t head = blockIdx.z; head < heads; head += gridDim.z) {
        const __nv_bfloat16* row = weights + (head * seq_length + i) * seq_length;
        float sum = 0.0f;
        for (int j = 0; j <= i; ++j)
            sum += __bfloat162float(row[j]) * __bfloat162float(value[(head * seq_length + j) * head_dim + c]);
        output[(head * seq_length + i) * head_dim + c] = __float2bfloat16(sum);
    }
}

extern "C" void triangle_attention_bf16(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                        const __nv_bfloat16* value, const float* attention_mask,
                                        __nv_bfloat16* output, int batch_size, int head_num, int seq_length,
                                        int head_dim) {
    size_t heads = (size_t)batch_size * head_num;
    float* scores = nullptr;
    __nv_bfloat16* weights = nullptr;
    cudaMalloc(&scores, sizeof(float) * heads * seq_length * seq_length);
    cudaMalloc(&weights, sizeof(__nv_bfloat16) * heads * seq_length * seq_length);
    dim3 threads(16, 16);
    unsigned int planes = heads < 65535 ? heads : 65535;
    unsigned int rows = (seq_length - 1) / 16 + 1;
    dim3 score_blocks(rows, rows, planes);
    dim3 softmax_blocks(seq_length, planes);
    dim3 value_blocks((head_dim - 1) / 16 + 1, rows, planes);
    triangle_scores_bf16_kernel<<<score_blocks, threads>>>(query, key, attention_mask, scores, heads,
                                                           head_num, seq_length, head_dim);
    triangle_softmax_bf16_kernel<<<softmax_blocks, 128>>>(scores, weights, heads, seq_length);
    triangle_values_bf16_kernel<<<value_blocks, threads>>>(weights, value, output, heads, seq_length,
                                                           head_dim);
    cudaFree(scores);
    cudaFree(weights);
}
