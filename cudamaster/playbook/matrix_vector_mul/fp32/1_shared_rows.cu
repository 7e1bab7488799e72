// idea: Many threads per row, 16-byte loads, four rows at a time
// why: With one thread per row there are only as many threads as rows, and each load of a warp touches 32
//      rows, a line each, for 4 bytes of it. The bandwidth of the memory is all that counts. Here a block
//      shares a row, so that neighbouring threads read neighbouring vectors of four elements; it takes four
//      rows at a time, which keeps four loads per thread in flight and needs every element of x once for all
//      four. Short rows go to a warp each. Rows that are not aligned to 16 bytes are read element by
//      element.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 4;        // rows that a block makes together
constexpr int kShortRow = 1024; // elements up to which a warp has a row of its own
constexpr unsigned kFullMask = 0xffffffffu;

// Adds the share of thread `lane` of `lanes` in the products of neighbouring rows. Rows beyond the last one
// are that one again.
template <int rows>
__device__ void add_products(float (&sums)[rows], const float* A, const float* x, long long first, int M,
                             int N, int lane, int lanes) {
    const float* row[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r)
        row[r] = A + (first + r < M ? first + r : M - 1) * N;
    if (N % 4 == 0 && (((size_t)A | (size_t)x) & 15) == 0) {
#pragma unroll 2
        for (int j = lane; j < N / 4; j += lanes) {
            float4 b = ((const float4*)x)[j];
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                float4 a = ((const float4*)row[r])[j];
                sums[r] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
            }
        }
        return;
    }
    for (long long j = lane; j < N; j += lanes)
#pragma unroll
        for (int r = 0; r < rows; ++r)
            sums[r] += row[r][j] * x[j];
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(kFullMask, value, distance);
    return value;
}

__global__ void __launch_bounds__(kThreads)
    short_rows_kernel_optimized(const float* A, const float* x, float* y, int M, int N) {
    long long row = blockIdx.x * (long long)kWarps + threadIdx.x / 32;
    float sum[1] = {0.0f};
    add_products<1>(sum, A, x, row, M, N, threadIdx.x % 32, 32);
    float total = warp_sum(sum[0]);
    if (threadIdx.x % 32 == 0 && row < M)
        y[row] = total;
}

__global__ void __launch_bounds__(kThreads)
    long_rows_kernel_optimized(const float* A, const float* x, float* y, int M, int N) {
    __shared__ float warp_sums[kRows][kWarps];
    long long first = blockIdx.x * (long long)kRows;
    float sums[kRows] = {};
    add_products<kRows>(sums, A, x, first, M, N, threadIdx.x, kThreads);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        float sum = warp_sum(sums[r]);
        if (threadIdx.x % 32 == 0)
            warp_sums[r][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kRows && first + threadIdx.x < M) {
        float sum = 0.0f;
        for (int w = 0; w < kWarps; ++w)
            sum += warp_sums[threadIdx.x][w];
        y[first + threadIdx.x] = sum;
    }
}

extern "C" void matrix_vector_mul_optimized(const float* A, const float* x, float* y, int M, int N) {
    if (N <= kShortRow)
        short_rows_kernel_optimized<<<(M - 1) / kWarps + 1, kThreads>>>(A, x, y, M, N);
    else
        long_rows_kernel_optimized<<<(M - 1) / kRows + 1, kThreads>>>(A, x, y, M, N);
}
