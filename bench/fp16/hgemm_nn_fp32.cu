// HGEMM, fp16 storage, fp32 accumulation, B row-major: C = A B.
//
// Shapes  A: M x K, row-major, B: K x N, row-major, C: M x N, row-major
// Moves   2 (M K + K N + M N) bytes at least, 2 M N K operations
// Naive   one element of C per thread: every product loads both of its factors from the tiles in shared memory; tensor
//         cores stay idle
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int kTile = 32;

__global__ void hgemm_nn_fp32_kernel(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    __shared__ __half a[kTile][kTile];
    __shared__ __half b[kTile][kTile];
    const __half zero = __float2half(0.0f);
    int tiles_across = (N - 1) / kTile + 1;
    size_t row = blockIdx.x / tiles_across * (size_t)kTile + threadIdx.y;
    size_t col = blockIdx.x % tiles_across * (size_t)kTile + threadIdx.x;
    float sum = 0.0f;
    for (size_t base = 0; base < K; base += kTile) {
        size_t k = base + threadIdx.x;
        a[threadIdx.y][threadIdx.x] = row < M && k < K ? A[row * K + k] : zero;
        k = base + threadIdx.y;
        b[threadIdx.y][threadIdx.x] = k < K && col < N ? B[k * N + col] : zero;
        __syncthreads();
        for (int k = 0; k < kTile; ++k)
            sum += __half2float(a[threadIdx.y][k]) * __half2float(b[k][threadIdx.x]);
        __syncthreads();
    }
    if (row < M && col < N)
        C[row * N + col] = __float2half(sum);
}

extern "C" void hgemm_fp16(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    dim3 threads(kTile, kTile);
    unsigned int tiles_across = (N - 1) / kTile + 1;
    unsigned int tiles_down = (M - 1) / kTile + 1;
    hgemm_nn_fp32_kernel<<<tiles_across * tiles_down, threads>>>(A, B, C, M, N, K);
}
