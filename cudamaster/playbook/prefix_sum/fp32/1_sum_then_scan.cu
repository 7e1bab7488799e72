// idea: Sum chunks first, then scan each chunk from the sum of the chunks before it
// why: The baseline adds up everything from the start for each output: N^2 / 2 additions, and the threads
//      of the last block walk through all of the input alone. Two launches with N additions each do it: the
//      first leaves the sum of every chunk, in the second each block adds up the sums of the chunks before
//      its own and scans its chunk through registers, shuffles and one exchange between warps. A thread has
//      16 bytes of neighbouring elements, so that loads and stores are vectors and half of the scan needs
//      no exchange. What fits in one chunk takes one launch.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 4; // elements in 16 bytes
constexpr int kTile = kThreads * kWidth;
constexpr int kMaxChunks = 1024; // longer inputs have chunks of several tiles
constexpr unsigned kFullMask = 0xffffffffu;

__device__ float chunk_sums[kMaxChunks];

__device__ float prefix_sum_warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// The thread's elements from `first` on, zeros beyond the end.
__device__ void prefix_sum_load(float (&x)[kWidth], const float* input, long long first, int N) {
    if (first + kWidth <= N && ((size_t)(input + first) & 15) == 0) {
        float4 packed = *(const float4*)(input + first);
        x[0] = packed.x;
        x[1] = packed.y;
        x[2] = packed.z;
        x[3] = packed.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        x[k] = first + k < N ? input[first + k] : 0.0f;
}

__device__ void prefix_sum_store(float* output, const float (&x)[kWidth], long long first, int N) {
    if (first + kWidth <= N && ((size_t)(output + first) & 15) == 0) {
        *(float4*)(output + first) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
        if (first + k < N)
            output[first + k] = x[k];
}

__global__ void __launch_bounds__(kThreads)
    prefix_sum_chunks_kernel_optimized(const float* input, int N, int tiles) {
    __shared__ float warp_sums[kWarps];
    long long first = (long long)blockIdx.x * tiles * kTile + threadIdx.x * kWidth;
    float sum = 0.0f;
    for (int tile = 0; tile < tiles; ++tile) {
        float x[kWidth];
        prefix_sum_load(x, input, first + (long long)tile * kTile, N);
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            sum += x[k];
    }
    sum = prefix_sum_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kWarps; ++warp)
            sum += warp_sums[warp];
        chunk_sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(kThreads)
    prefix_sum_scan_kernel_optimized(float* output, const float* input, int N, int tiles) {
    __shared__ float warp_sums[kWarps], sums_before[kWarps];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float before = 0.0f;
    for (int chunk = threadIdx.x; chunk < blockIdx.x; chunk += kThreads)
        before += chunk_sums[chunk];
    before = prefix_sum_warp_sum(before);
    if (lane == 0)
        sums_before[warp] = before;
    float carry = 0.0f; // sum of all that lies before the tile
    for (int tile = 0; tile < tiles; ++tile) {
        long long first = ((long long)blockIdx.x * tiles + tile) * kTile + threadIdx.x * kWidth;
        float x[kWidth];
        prefix_sum_load(x, input, first, N);
#pragma unroll
        for (int k = 1; k < kWidth; ++k)
            x[k] += x[k - 1];
        float scanned = x[kWidth - 1]; // sums of whole threads, up to and including this one
        for (int distance = 1; distance < 32; distance *= 2) {
            float other = __shfl_up_sync(kFullMask, scanned, distance);
            if (lane >= distance)
                scanned += other;
        }
        float offset = __shfl_up_sync(kFullMask, scanned, 1);
        if (lane == 31)
            warp_sums[warp] = scanned;
        __syncthreads();
        if (tile == 0)
            for (int w = 0; w < kWarps; ++w)
                carry += sums_before[w];
        float inside = lane == 0 ? 0.0f : offset;
        float next = carry;
        for (int w = 0; w < kWarps; ++w) {
            if (w == warp)
                inside += next;
            next += warp_sums[w];
        }
        carry = next;
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            x[k] += inside;
        prefix_sum_store(output, x, first, N);
        __syncthreads(); // before the next tile's warp sums
    }
}

extern "C" void prefix_sum_optimized(float* output, const float* input, int N) {
    int all_tiles = (N - 1) / kTile + 1;
    int tiles = (all_tiles - 1) / kMaxChunks + 1; // of a chunk
    int chunks = (all_tiles - 1) / tiles + 1;
    if (chunks > 1)
        prefix_sum_chunks_kernel_optimized<<<chunks - 1, kThreads>>>(input, N, tiles);
    prefix_sum_scan_kernel_optimized<<<chunks, kThreads>>>(output, input, N, tiles);
}
