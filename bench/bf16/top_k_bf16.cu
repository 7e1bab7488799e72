// Top k, bf16: the k largest values in descending order with their indices; equal values by ascending index.
//
// Shapes  input: N, top_k_values, top_k_indices: k
// Moves   16 bytes per element and pass, ceil(log2 N) passes
// Naive   sorts everything to keep k: bottom-up merge sort of (value, index) pairs with one launch per pass
//         and one thread per pair of runs, so the last passes keep a single thread busy
#include <cuda_bf16.h>
#include <cuda_runtime.h>

struct top_k_pair {
    __nv_bfloat16 value;
    int index;
};

__global__ void top_k_pairs_bf16_kernel(const __nv_bfloat16* input, top_k_pair* pairs, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < N)
        pairs[i] = {input[i], (int)i};
}

// Merges neighbouring runs, larger values first. Of equal values that of the left run, whose index is
// smaller, comes first.
__global__ void top_k_merge_bf16_kernel(const top_k_pair* from, top_k_pair* to, int N, int width) {
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long begin = pair * 2 * width;
    if (begin >= N)
        return;
    int left = begin;
    int middle = min(begin + width, (long long)N);
    int end = min(begin + 2LL * width, (long long)N);
    int right = middle;
    for (int i = left; i < end; ++i) {
        bool take_left = left < middle && (right >= end || __bfloat162float(from[left].value) >=
                                                               __bfloat162float(from[right].value));
        to[i] = take_left ? from[left++] : from[right++];
    }
}

__global__ void top_k_first_bf16_kernel(const top_k_pair* pairs, __nv_bfloat16* values, int* indices, int k) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < k) {
        values[i] = pairs[i].value;
        indices[i] = pairs[i].index;
    }
}

extern "C" void top_k_bf16(__nv_bfloat16* top_k_values, int* top_k_indices, const __nv_bfloat16* input, int N,
                           int k) {
    top_k_pair* from = nullptr;
    top_k_pair* to = nullptr;
    cudaMalloc(&from, sizeof(top_k_pair) * N);
    cudaMalloc(&to, sizeof(top_k_pair) * N);
    int threads = 128;
    top_k_pairs_bf16_kernel<<<(N - 1) / threads + 1, threads>>>(input, from, N);
    for (long long width = 1; width < N; width *= 2) {
        long long pairs = (N + 2 * width - 1) / (2 * width);
        int blocks = (pairs + threads - 1) / threads;
        top_k_merge_bf16_kernel<<<blocks, threads>>>(from, to, N, width);
        top_k_pair* swapped = from;
        from = to;
        to = swapped;
    }
    top_k_first_bf16_kernel<<<(k - 1) / threads + 1, threads>>>(from, top_k_values, top_k_indices, k);
    cudaFree(from);
    cudaFree(to);
}
