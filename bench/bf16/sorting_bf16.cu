// Sorting, bf16, ascending, in place.
//
// Shapes  data: N
// Moves   4 bytes per element and pass, ceil(log2 N) passes
// Naive   bottom-up merge sort with one launch per pass and one thread per pair of runs, so the last passes
//         keep a single thread busy; ping-pongs with a buffer allocated in the call
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void merge_runs_bf16_kernel(const __nv_bfloat16* from, __nv_bfloat16* to, int N, int width) {
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long begin = pair * 2 * width;
    if (begin >= N)
        return;
    int left = begin;
    int middle = min(begin + width, (long long)N);
    int end = min(begin + 2LL * width, (long long)N);
    int right = middle;
    for (int k = left; k < end; ++k) {
        bool take_left =
            left < middle && (right >= end || __bfloat162float(from[left]) <= __bfloat162float(from[right]));
        to[k] = take_left ? from[left++] : from[right++];
    }
}

extern "C" void sorting_bf16(__nv_bfloat16* data, int N) {
    __nv_bfloat16* buffer = nullptr;
    cudaMalloc(&buffer, sizeof(__nv_bfloat16) * N);
    __nv_bfloat16* from = data;
    __nv_bfloat16* to = buffer;
    for (long long width = 1; width < N; width *= 2) {
        long long pairs = (N + 2 * width - 1) / (2 * width);
        int threads = 128;
        int blocks = (pairs + threads - 1) / threads;
        merge_runs_bf16_kernel<<<blocks, threads>>>(from, to, N, width);
        __nv_bfloat16* swapped = from;
        from = to;
        to = swapped;
    }
    if (from != data)
        cudaMemcpy(data, from, sizeof(__nv_bfloat16) * N, cudaMemcpyDeviceToDevice);
    cudaFree(buffer);
}
