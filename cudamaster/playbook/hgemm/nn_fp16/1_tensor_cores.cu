// idea: Tensor cores on tiles in shared memory
// why: The baseline loads two numbers from shared memory for each multiply-add and leaves the tensor cores idle.
//      Here a block of four warps makes 64 x 64 elements: it stages tiles of A and B in shared memory with loads
//      of 16 bytes, which the shapes of this suite allow everywhere, and a warp adds up 32 x 32 elements in the
//      accumulators of its tensor core. A tile of B lies row by row, as B does.
//      Padded rows keep the loads of fragments free of bank conflicts.
// flags: -O3
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kThreads = 128; // four warps, two by two
constexpr int kTile = 64;     // rows and columns of a block
constexpr int kWarp = 32;     // of a warp
constexpr int kK = 32;        // products that are staged at a time
constexpr int kPadding = 8;
constexpr int kStrideA = kK + kPadding, kStrideB = kTile + kPadding, kStrideC = kTile + kPadding;

__global__ void __launch_bounds__(kThreads)
    hgemm_nn_fp16_kernel_optimized(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    __shared__ __align__(32) __half a[kTile * kStrideA];
    __shared__ __align__(32) __half b[kK * kStrideB];
    __shared__ __align__(32) __half out[kTile * kStrideC];
    int blocks_across = (N - 1) / kTile + 1;
    int first_row = blockIdx.x / blocks_across * kTile, first_col = blockIdx.x % blocks_across * kTile;
    int warp = threadIdx.x / 32, warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> sums[2][2];
    for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c)
            wmma::fill_fragment(sums[r][c], __float2half(0.0f));
    for (int k = 0; k < K; k += kK) {
        for (int i = threadIdx.x; i < kTile * kK / 8; i += kThreads) {
            int row = i / (kK / 8), at = i % (kK / 8) * 8;
            bool inside = first_row + row < M && k + at < K;
            *(uint4*)(a + row * kStrideA + at) =
                inside ? *(const uint4*)(A + (size_t)(first_row + row) * K + k + at) : zero;
        }
        for (int i = threadIdx.x; i < kK * kTile / 8; i += kThreads) {
            int row = i / (kTile / 8), at = i % (kTile / 8) * 8;
            bool inside = k + row < K && first_col + at < N;
            *(uint4*)(b + row * kStrideB + at) =
                inside ? *(const uint4*)(B + (size_t)(k + row) * N + first_col + at) : zero;
        }
        __syncthreads();
        for (int step = 0; step < kK; step += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> of_a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> of_b;
            for (int r = 0; r < 2; ++r)
                wmma::load_matrix_sync(of_a[r], a + (warp_row + 16 * r) * kStrideA + step, kStrideA);
            for (int c = 0; c < 2; ++c) {
                wmma::load_matrix_sync(of_b, b + step * kStrideB + warp_col + 16 * c, kStrideB);
                for (int r = 0; r < 2; ++r)
                    wmma::mma_sync(sums[r][c], of_a[r], of_b, sums[r][c]);
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c)
            wmma::store_matrix_sync(out + (warp_row + 16 * r) * kStrideC + warp_col + 16 * c, sums[r][c],
                                    kStrideC, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
        int row = i / kTile, col = i % kTile;
        __half value = out[row * kStrideC + col];
        if (first_row + row < M && first_col + col < N)
            C[(size_t)(first_row + row) * N + first_col + col] = value;
    }
}

extern "C" void hgemm_fp16_optimized(const __half* A, const __half* B, __half* C, int M, int N, int K) {
    unsigned int blocks = ((M - 1) / kTile + 1) * ((N - 1) / kTile + 1);
    hgemm_nn_fp16_kernel_optimized<<<blocks, kThreads>>>(A, B, C, M, N, K);
}
