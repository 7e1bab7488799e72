// Sorting, fp32, ascending, in place.
//
// Shapes  data: N
// Moves   8 bytes per element and pass, ceil(log2 N) passes
// Naive   bottom-up merge sort with one launch per pass and one thread per pair of runs, so the last passes
//         keep a single thread busy; ping-pongs with a buffer allocated in the call
#include <cuda_runtime.h>

__global__ void merge_runs_kernel(const float* from, float* to, int N, int width) {
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long begin = pair * 2 * width;
    if (begin >= N)
        return;
    int left = begin;
    int middle = min(begin + width, (long long)N);
    int end = min(begin + 2LL * width, (long long)N);
    int right = middle;
    for (int k = left; k < end; ++k) {
        bool take_left = left < middle && (right >= end || from[left] <= from[right]);
        to[k] = take_left ? from[left++] : from[right++];
    }
}

extern "C" void sorting(float* data, int N) {
    float* buffer = nullptr;
    cudaMalloc(&buffer, sizeof(float) * N);
    float* from = data;
    float* to = buffer;
    for (long long width = 1; width < N; width *= 2) {
        long long pairs = (N + 2 * width - 1) / (2 * width);
        int threads = 128;
        int blocks = (pairs + threads - 1) / threads;
        merge_runs_kernel<<<blocks, threads>>>(from, to, N, width);
        float* swapped = from;
        from = to;
        to = swapped;
    }
    if (from != data)
        cudaMemcpy(data, from, sizeof(float) * N, cudaMemcpyDeviceToDevice);
    cudaFree(buffer);
}
