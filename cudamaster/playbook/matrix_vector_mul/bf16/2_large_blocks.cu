// idea: Two rows in blocks of 1024 threads, with more vectors in flight
// why: The bandwidth of the memory is all that counts, and on an H200 the step before leaves a fifth of it. Its blocks take
//      four rows of small pieces, so that many rows are read at once, in pieces of 4 KB each, and x is fetched from L2
//      four times for each multiprocessor. Here a large block takes two rows in pieces of 16 KB and holds two
//      pieces of each in flight, and they pass by the L1 cache, where x stays. A thousand blocks, of
//      which two fit a multiprocessor, leave little to wait for at the end. Shorter rows get smaller blocks, the
//      shortest a warp each. Rows that are not aligned to 16 bytes are read element by element.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kShortRow = 2048; // elements up to which a warp has a row of its own
constexpr int kLongRow = 32768; // from which blocks are large
constexpr int kShortThreads = 256;
constexpr unsigned kFullMask = 0xffffffffu;

// Products of bf16 pairs packed in 4 bytes; a bf16 is the upper half of a float.
__device__ float dot2(unsigned int a, unsigned int b) {
    return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
           __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

__device__ float dot(uint4 a, uint4 b) {
    return (dot2(a.x, b.x) + dot2(a.y, b.y)) + (dot2(a.z, b.z) + dot2(a.w, b.w));
}

// Eight elements that are read once: they pass by L1.
__device__ uint4 load_once(const uint4* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Adds the share of thread `lane` of `lanes` in the products of neighbouring rows, `ahead` vectors of each at a time.
// Rows beyond the last one are that one again.
template <int rows, int ahead>
__device__ void add_products(float (&sums)[rows], const __nv_bfloat16* A, const __nv_bfloat16* x,
                             long long first, int M, int N, int lane, int lanes) {
    const __nv_bfloat16* row[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r)
        row[r] = A + (first + r < M ? first + r : M - 1) * N;
    if (N % 8 == 0 && (((size_t)A | (size_t)x) & 15) == 0) {
        const uint4* right = (const uint4*)x;
        long long j = lane, vectors = N / 8;
        for (; j + (ahead - 1) * lanes < vectors; j += ahead * lanes) {
            uint4 a[ahead][rows], b[ahead];
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                b[i] = right[j + i * lanes];
#pragma unroll
                for (int r = 0; r < rows; ++r)
                    a[i][r] = load_once((const uint4*)row[r] + j + i * lanes);
            }
#pragma unroll
            for (int i = 0; i < ahead; ++i)
#pragma unroll
                for (int r = 0; r < rows; ++r)
                    sums[r] += dot(a[i][r], b[i]);
        }
        for (; j < vectors; j += lanes)
#pragma unroll
            for (int r = 0; r < rows; ++r)
                sums[r] += dot(load_once((const uint4*)row[r] + j), right[j]);
        return;
    }
    for (long long j = lane; j < N; j += lanes)
#pragma unroll
        for (int r = 0; r < rows; ++r)
            sums[r] += __bfloat162float(row[r][j]) * __bfloat162float(x[j]);
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(kFullMask, value, distance);
    return value;
}

__global__ void __launch_bounds__(kShortThreads)
    short_rows_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* x, __nv_bfloat16* y, int M,
                                     int N) {
    long long row = blockIdx.x * (long long)(kShortThreads / 32) + threadIdx.x / 32;
    float sum[1] = {0.0f};
    add_products<1, 1>(sum, A, x, row, M, N, threadIdx.x % 32, 32);
    float total = warp_sum(sum[0]);
    if (threadIdx.x % 32 == 0 && row < M)
        y[row] = __float2bfloat16(total);
}

// A block makes some rows together.
template <int threads, int rows, int ahead>
__global__ void __launch_bounds__(threads)
    long_rows_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* x, __nv_bfloat16* y, int M,
                                    int N) {
    __shared__ float warp_sums[rows][threads / 32];
    long long first = blockIdx.x * (long long)rows;
    float sums[rows] = {};
    add_products<rows, ahead>(sums, A, x, first, M, N, threadIdx.x, threads);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        float sum = warp_sum(sums[r]);
        if (threadIdx.x % 32 == 0)
            warp_sums[r][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < rows && first + threadIdx.x < M) {
        float sum = 0.0f;
        for (int w = 0; w < threads / 32; ++w)
            sum += warp_sums[threadIdx.x][w];
        y[first + threadIdx.x] = __float2bfloat16(sum);
    }
}

template <int threads, int rows, int ahead>
static void launch(const __nv_bfloat16* A, const __nv_bfloat16* x, __nv_bfloat16* y, int M, int N) {
    long_rows_bf16_kernel_optimized<threads, rows, ahead><<<(M - 1) / rows + 1, threads>>>(A, x, y, M, N);
}

extern "C" void matrix_vector_mul_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* x,
                                                 __nv_bfloat16* y, int M, int N) {
    if (N <= kShortRow)
        short_rows_bf16_kernel_optimized<<<(M - 1) / (kShortThreads / 32) + 1, kShortThreads>>>(A, x, y, M,
                                                                                                N);
    else if (N < kLongRow)
        launch<512, 2, 4>(A, x, y, M, N);
    else
        launch<1024, 2, 2>(A, x, y, M, N);
}
