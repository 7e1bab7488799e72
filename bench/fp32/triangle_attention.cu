// Triangle attention, fp32: softmax(Q K^T / sqrt(head_dim)) V per head, over the keys j <= i that the mask
// allows.
//
// Shapes  query, key, value, output: batch_size x head_num x seq_length x head_dim, attention_mask:
//         batch_size x seq_length x seq_length; an entry above 0.5 leaves the key out
// Moves   query, key, value, output and half of the mask once at best, and half of the scores five times; 4
//         head_dim operations per score
// Naive   three launches with the scores of all heads between them in scratch that is allocated in the call:
//         a dot product per thread, straight from global memory; a softmax with one block per row, in three
//         passes; a column of the values per thread, straight from global memory. The scores above the
//         diagonal are left alone in all three
#include <cuda_runtime.h>

// In z the blocks take heads in turn: there may be more of them than a grid has blocks in z.
__global__ void triangle_scores_kernel(const float* query, const float* key, const float* attention_mask,
                                       float* scores, size_t heads, int head_num, int seq_length,
                                       int head_dim) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= seq_length || j > i)
        return;
    for (size_t head = blockIdx.z; head < heads; head += gridDim.z) {
        const float* q = query + (head * seq_length + i) * head_dim;
        const float* k = key + (head * seq_length + j) * head_dim;
        float score = -INFINITY;
        if (attention_mask[(head / head_num * seq_length + i) * seq_length + j] <= 0.5f) {
            float sum = 0.0f;
            for (int d = 0; d < head_dim; ++d)
                sum += q[d] * k[d];
            score = sum / sqrtf(head_dim);
        }
        scores[(head * seq_length + i) * seq_length + j] = score;
    }
}

__global__ void triangle_softmax_kernel(float* scores, size_t heads, int seq_length) {
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
            row[j] /= sum;
    }
}

__global__ void triangle_values_kernel(const float* weights, const float* value, float* output, size_t heads,
                                       int seq_length, int head_dim) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= seq_length || c >= head_dim)
        return;
    for (size_t head = blockIdx.z; head < heads; head += gridDim.z) {
        const float* row = weights + (head * seq_length + i) * seq_length;
        float sum = 0.0f;
        for (int j = 0; j <= i; ++j)
            sum += row[j] * value[(head * seq_length + j) * head_dim + c];
        output[(head * seq_length + i) * head_dim + c] = sum;
    }
}

extern "C" void triangle_attention(const float* query, const float* key, const float* value,
                                   const float* attention_mask, float* output, int batch_size, int head_num,
                                   int seq_length, int head_dim) {
    size_t heads = (size_t)batch_size * head_num;
    float* scores = nullptr;
    cudaMalloc(&scores, sizeof(float) * heads * seq_length * seq_length);
    dim3 threads(16, 16);
    unsigned int planes = heads < 65535 ? heads : 65535;
    unsigned int rows = (seq_length - 1) / 16 + 1;
    dim3 score_blocks(rows, rows, planes);
    dim3 softmax_blocks(seq_length, planes);
    dim3 value_blocks((head_dim - 1) / 16 + 1, rows, planes);
    triangle_scores_kernel<<<score_blocks, threads>>>(query, key, attention_mask, scores, heads, head_num,
                                                      seq_length, head_dim);
    triangle_softmax_kernel<<<softmax_blocks, 128>>>(scores, heads, seq_length);
    triangle_values_kernel<<<value_blocks, threads>>>(scores, value, output, heads, seq_length, head_dim);
    cudaFree(scores);
}
