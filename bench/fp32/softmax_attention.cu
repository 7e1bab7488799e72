// Softmax attention, fp32: Y = softmax(Q K^T / sqrt(dim_qk)) V, one head, no mask.
//
// Shapes  Q: q_seq_len x dim_qk, K: kv_seq_len x dim_qk, V: kv_seq_len x dim_v, Y: q_seq_len x dim_v,
//         row-major
// Moves   Q, K, V, Y once at best, and the scores five times; 2 (dim_qk + dim_v) operations per score
// Naive   three launches with the scores between them in scratch that is allocated in the call: a dot product
//         per thread, straight from global memory; a softmax with one block per row, in three passes; a
//         column of V per thread, straight from global memory
#include <cuda_runtime.h>

// In y the blocks take rows in turn: there may be more of them than a grid has blocks in y.
__global__ void attention_scores_kernel(const float* Q, const float* K, float* scores, int q_seq_len,
                                        int kv_seq_len, int dim_qk) {
    size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (j >= kv_seq_len)
        return;
    for (size_t i = blockIdx.y * blockDim.y + threadIdx.y; i < q_seq_len; i += gridDim.y * blockDim.y) {
        float sum = 0.0f;
        for (int d = 0; d < dim_qk; ++d)
            sum += Q[i * dim_qk + d] * K[j * dim_qk + d];
        scores[i * kv_seq_len + j] = sum / sqrtf(dim_qk);
    }
}

__global__ void attention_softmax_kernel(float* scores, int kv_seq_len) {
    __shared__ float partial[256];
    float* row = scores + (size_t)blockIdx.x * kv_seq_len;

    float largest = -INFINITY;
    for (size_t j = threadIdx.x; j < kv_seq_len; j += blockDim.x)
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
    for (size_t j = threadIdx.x; j < kv_seq_len; j += blockDim.x) {
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

    for (size_t j = threadIdx.x; j < kv_seq_len; j += blockDim.x)
        row[j] /= sum;
}

__global__ void attention_values_kernel(const float* weights, const float* V, float* Y, int q_seq_len,
                                        int kv_seq_len, int dim_v) {
    size_t c = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (c >= dim_v)
        return;
    for (size_t i = blockIdx.y * blockDim.y + threadIdx.y; i < q_seq_len; i += gridDim.y * blockDim.y) {
        float sum = 0.0f;
        for (int j = 0; j < kv_seq_len; ++j)
            sum += weights[i * kv_seq_len + j] * V[(size_t)j * dim_v + c];
        Y[i * dim_v + c] = sum;
    }
}

extern "C" void softmax_attention(float* Y, const float* Q, const float* K, const float* V, int q_seq_len,
                                  int kv_seq_len, int dim_qk, int dim_v) {
    float* scores = nullptr;
    cudaMalloc(&scores, sizeof(float) * q_seq_len * kv_seq_len);
    dim3 threads(16, 16);
    unsigned int rows = min((q_seq_len - 1) / 16 + 1, 65535);
    dim3 score_blocks((kv_seq_len - 1) / 16 + 1, rows);
    dim3 value_blocks((dim_v - 1) / 16 + 1, rows);
    attention_scores_kernel<<<score_blocks, threads>>>(Q, K, scores, q_seq_len, kv_seq_len, dim_qk);
    attention_softmax_kernel<<<q_seq_len, 256>>>(scores, kv_seq_len);
    attention_values_kernel<<<value_blocks, threads>>>(scores, V, Y, q_seq_len, kv_seq_len, dim_v);
    cudaFree(scores);
}
