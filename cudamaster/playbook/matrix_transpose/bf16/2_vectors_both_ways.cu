// idea: Turn 8 x 8 blocks round in registers, move sixteen bytes both ways, and let blocks go down the columns
// why: In the step before, lanes move 4 bytes, a warp 128 bytes of a row, and memory is not at its limit. Tiles of
//      128 x 128 elements make both sides run along 256 bytes of a row. A thread loads 16 bytes of eight rows at
//      once and turns the 8 x 8 block round by byte permutations: each column of it is 16 bytes that belong together
//      in B. So shared memory is written and read in vectors, too. A vector's place in its column is xored with the
//      number of the block, which keeps both ways free of bank conflicts. Blocks go down the columns of A:
//      neighbours write along the same rows of B, and what is strewn is what they read, which memory takes better.
//      16384 x 16384 takes 266 µs on an H200, the whole call; 272 if blocks go along the rows of A, and 306 in the
//      step before with this order. Tiles of 64 x 64 take 297; blocks turned round without shared memory 301 to 653,
//      and L2 takes up to three times the sectors; two or four blocks to a thread gain nothing. Matrices whose rows
//      are not aligned to 16 bytes take the step before. Memory binds it now: 4.1 TB/s, 97 % of a copy.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kWidth = 8;  // elements in 16 bytes
constexpr int kTile = 128; // elements
constexpr int kVectors = kTile / kWidth;
constexpr int kThreads = kVectors * kVectors;
constexpr int kSmall = 64; // tiles where rows are not aligned to 16 bytes
constexpr int kSmallPairs = kSmall / 2;
constexpr int kWarp = 32;
constexpr int kWarps = 8;

// M and N are multiples of kWidth, and A and B are aligned to 16 bytes.
__global__ void __launch_bounds__(kThreads)
    matrix_transpose_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    __shared__ uint4 tile[kTile][kVectors]; // column, vector of rows; where it lies depends on the column
    unsigned int tiles_down = (M - 1) / kTile + 1; // blocks go down the columns first
    unsigned int across = blockIdx.x / tiles_down, down = blockIdx.x - across * tiles_down;
    int x = threadIdx.x % kVectors, y = threadIdx.x / kVectors;
    {
        long long row = down * (long long)kTile + y * kWidth, col = across * (long long)kTile + x * kWidth;
        uint4 a[kWidth] = {};
        if (row < M && col < N) {
            const uint4* from = (const uint4*)(A + row * N + col);
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
                a[i] = from[i * (long long)(N / kWidth)];
        }
        // Two columns at a time: the low halves of the rows' pairs, then the high halves.
#pragma unroll
        for (int q = 0; q < kWidth / 2; ++q) {
            unsigned int pairs[kWidth];
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
                pairs[i] = q == 0 ? a[i].x : q == 1 ? a[i].y : q == 2 ? a[i].z : a[i].w;
            uint4* low = &tile[x * kWidth + 2 * q][y ^ x % 8];
            uint4* high = &tile[x * kWidth + 2 * q + 1][y ^ x % 8];
            *low =
                make_uint4(__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410),
                           __byte_perm(pairs[4], pairs[5], 0x5410), __byte_perm(pairs[6], pairs[7], 0x5410));
            *high =
                make_uint4(__byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632),
                           __byte_perm(pairs[4], pairs[5], 0x7632), __byte_perm(pairs[6], pairs[7], 0x7632));
        }
    }
    __syncthreads();
    long long row = down * (long long)kTile + x * kWidth;
#pragma unroll
    for (int i = 0; i < kTile / kVectors; ++i) {
        int c = y + i * kVectors;
        long long col = across * (long long)kTile + c;
        if (row < M && col < N)
            *(uint4*)(B + col * M + row) = tile[c][x ^ c / kWidth % 8];
    }
}

// M and N are even, and A and B are aligned to pairs.
__global__ void __launch_bounds__(kWarp* kWarps)
    transpose_pairs_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    __shared__ unsigned int tile[2][kSmallPairs]
                                [kSmallPairs + 1]; // parity of the column, half the column, half the row
    unsigned int tiles_across = (N - 1) / kSmall + 1;
    long long first_row = (long long)(blockIdx.x / tiles_across) * kSmall;
    long long first_col = (long long)(blockIdx.x % tiles_across) * kSmall;
    int lane = threadIdx.x, warp = threadIdx.y;
    long long col = first_col + 2 * lane;
    unsigned int upper[kSmallPairs / kWarps], lower[kSmallPairs / kWarps];
#pragma unroll
    for (int i = 0; i < kSmallPairs / kWarps; ++i) {
        long long row = first_row + 2 * (warp + i * kWarps);
        bool inside = row < M && col < N;
        upper[i] = inside ? *(const unsigned int*)(A + row * N + col) : 0;
        lower[i] = inside ? *(const unsigned int*)(A + (row + 1) * N + col) : 0;
    }
#pragma unroll
    for (int i = 0; i < kSmallPairs / kWarps; ++i) {
        tile[0][lane][warp + i * kWarps] = __byte_perm(upper[i], lower[i], 0x5410); // the low halves
        tile[1][lane][warp + i * kWarps] = __byte_perm(upper[i], lower[i], 0x7632); // the high halves
    }
    __syncthreads();
    long long row = first_row + 2 * lane;
#pragma unroll
    for (int i = 0; i < kSmall / kWarps; ++i) {
        int c = warp + i * kWarps;
        if (row < M && first_col + c < N)
            *(unsigned int*)(B + (first_col + c) * M + row) = tile[c % 2][c / 2][lane];
    }
}

__global__ void __launch_bounds__(kWarp* kWarps)
    transpose_elements_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    __shared__ __nv_bfloat16 tile[kSmall][kSmall + 2];
    unsigned int tiles_across = (N - 1) / kSmall + 1;
    long long first_row = (long long)(blockIdx.x / tiles_across) * kSmall;
    long long first_col = (long long)(blockIdx.x % tiles_across) * kSmall;
    int lane = threadIdx.x, warp = threadIdx.y;
#pragma unroll
    for (int i = 0; i < kSmall / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kSmall / kWarp; ++j) {
            int r = warp + i * kWarps, c = lane + j * kWarp;
            if (first_row + r < M && first_col + c < N)
                tile[r][c] = A[(first_row + r) * N + first_col + c];
        }
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

extern "C" void matrix_transpose_bf16_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    size_t places = (size_t)A | (size_t)B;
    if (M % kWidth == 0 && N % kWidth == 0 && places % 16 == 0) {
        unsigned int tiles_across = (N - 1) / kTile + 1, tiles_down = (M - 1) / kTile + 1;
        matrix_transpose_bf16_kernel_optimized<<<tiles_across * tiles_down, kThreads>>>(A, B, M, N);
        return;
    }
    dim3 threads(kWarp, kWarps);
    unsigned int tiles_across = (N - 1) / kSmall + 1, tiles_down = (M - 1) / kSmall + 1;
    if (M % 2 == 0 && N % 2 == 0 && places % 4 == 0)
        transpose_pairs_bf16_kernel_optimized<<<tiles_across * tiles_down, threads>>>(A, B, M, N);
    else
        transpose_elements_bf16_kernel_optimized<<<tiles_across * tiles_down, threads>>>(A, B, M, N);
}
