// idea: Turn 64 x 64 tiles of pairs round in shared memory
// why: Reading along a row means writing a whole row of B apart, where every store touches a sector of its
//      own: 32 bytes of traffic for 2 bytes. A tile in shared memory, read by rows and written by columns,
//      makes both sides run along rows. Elements travel in pairs, so that a warp moves 128 bytes at a time:
//      a thread loads the pairs of two neighbouring rows and exchanges their halves, which makes two pairs
//      of neighbours of a column. Pairs of even and of odd columns have a plane each, with padded rows, so
//      that writing and reading find 32 different banks. Matrices with an odd side have rows that are not
//      aligned to pairs and go element by element.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kTile = 64; // elements
constexpr int kPairs = kTile / 2;
constexpr int kWarp = 32;
constexpr int kWarps = 8;

// M and N are even, and A and B are aligned to pairs.
__global__ void __launch_bounds__(kWarp* kWarps)
    transpose_pairs_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    __shared__ unsigned int tile[2][kPairs]
                                [kPairs + 1]; // parity of the column, half the column, half the row
    unsigned int tiles_across = (N - 1) / kTile + 1;
    long long first_row = (long long)(blockIdx.x / tiles_across) * kTile;
    long long first_col = (long long)(blockIdx.x % tiles_across) * kTile;
    int lane = threadIdx.x, warp = threadIdx.y;
    long long col = first_col + 2 * lane;
    unsigned int upper[kPairs / kWarps], lower[kPairs / kWarps];
#pragma unroll
    for (int i = 0; i < kPairs / kWarps; ++i) {
        long long row = first_row + 2 * (warp + i * kWarps);
        bool inside = row < M && col < N;
        upper[i] = inside ? *(const unsigned int*)(A + row * N + col) : 0;
        lower[i] = inside ? *(const unsigned int*)(A + (row + 1) * N + col) : 0;
    }
#pragma unroll
    for (int i = 0; i < kPairs / kWarps; ++i) {
        tile[0][lane][warp + i * kWarps] = __byte_perm(upper[i], lower[i], 0x5410); // the low halves
        tile[1][lane][warp + i * kWarps] = __byte_perm(upper[i], lower[i], 0x7632); // the high halves
    }
    __syncthreads();
    long long row = first_row + 2 * lane;
#pragma unroll
    for (int i = 0; i < kTile / kWarps; ++i) {
        int c = warp + i * kWarps;
        if (row < M && first_col + c < N)
            *(unsigned int*)(B + (first_col + c) * M + row) = tile[c % 2][c / 2][lane];
    }
}

__global__ void __launch_bounds__(kWarp* kWarps)
    transpose_elements_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    __shared__ __nv_bfloat16 tile[kTile][kTile + 2];
    unsigned int tiles_across = (N - 1) / kTile + 1;
    long long first_row = (long long)(blockIdx.x / tiles_across) * kTile;
    long long first_col = (long long)(blockIdx.x % tiles_across) * kTile;
    int lane = threadIdx.x, warp = threadIdx.y;
#pragma unroll
    for (int i = 0; i < kTile / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kTile / kWarp; ++j) {
            int r = warp + i * kWarps, c = lane + j * kWarp;
            if (first_row + r < M && first_col + c < N)
                tile[r][c] = A[(first_row + r) * N + first_col + c];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile / kWarps; ++i) {
#pragma unroll
        for (int j = 0; j < kTile / kWarp; ++j) {
            int r = lane + j * kWarp, c = warp + i * kWarps;
            if (first_row + r < M && first_col + c < N)
                B[(first_col + c) * M + first_row + r] = tile[r][c];
        }
    }
}

extern "C" void matrix_transpose_bf16_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    dim3 threads(kWarp, kWarps);
    unsigned int tiles_across = (N - 1) / kTile + 1;
    unsigned int tiles_down = (M - 1) / kTile + 1;
    bool in_pairs = M % 2 == 0 && N % 2 == 0 && (((size_t)A | (size_t)B) & 3) == 0;
    if (in_pairs)
        transpose_pairs_bf16_kernel_optimized<<<tiles_across * tiles_down, threads>>>(A, B, M, N);
    else
        transpose_elements_bf16_kernel_optimized<<<tiles_across * tiles_down, threads>>>(A, B, M, N);
}
