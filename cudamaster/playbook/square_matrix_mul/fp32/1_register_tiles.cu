// idea: Tiles in shared memory and in registers
// why: The baseline loads two numbers for each multiply-add, and the load units set its speed. Here a block
//      stages tiles of A and of B in shared memory, and a thread keeps up to 8 x 8 sums in registers, so
//      that 16 numbers from shared memory serve 64 multiply-adds. A is transposed on the way in, so that a
//      thread reads four neighbours at a time from both; the lanes of a warp form 8 x 4 groups, whose reads
//      share addresses. The next tiles travel from memory into registers while the present ones are
//      multiplied, and go into a second pair of buffers, so that one barrier per step is enough. Small
//      products take smaller tiles, so that every multiprocessor has one.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kEnoughBlocks = 120; // for about every multiprocessor of a large GPU to have one

// A block makes kM x kN elements of C, kK products at a time, and a thread kRows x kCols of them.
template <int m, int n, int k, int rows, int cols, int blocks> struct Tile {
    static constexpr int kM = m, kN = n, kK = k, kRows = rows, kCols = cols;
    static constexpr int kThreads = (m / rows) * (n / cols);
    static constexpr int kBlocks = blocks;            // that a multiprocessor shall have room for
    static constexpr int kWarpsAcross = n / cols / 4; // lanes of a warp: eight down, four across
};
using Large = Tile<128, 128, 8, 8, 8, 2>;
using Medium = Tile<64, 64, 16, 8, 4, 4>;
using Small = Tile<32, 32, 32, 2, 2, 4>;

// Four neighbours of a row of which `left` elements are left, and zeros for those beyond its end. Where
// kAligned, `from` is a multiple of 16, and what is left a multiple of four.
template <bool kAligned> __device__ float4 load4(const float* from, int left) {
    if (kAligned)
        return left > 0 ? *(const float4*)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                       left > 3 ? from[3] : 0.0f);
}

// Position in the tile of element i of a thread's `count`: groups of up to four neighbours, evenly spread.
template <int extent, int count> __device__ int position(int thread, int i) {
    constexpr int kWidth = count < 4 ? count : 4;
    return i / kWidth * (extent * kWidth / count) + thread * kWidth + i % kWidth;
}

// A thread's `count` elements of a row of a tile.
template <int extent, int count>
__device__ void read_tile(float (&values)[count], const float* row, int thread) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        const float* first = row + position<extent, count>(thread, i);
        if constexpr (count >= 4) {
            float4 v = *(const float4*)first;
            values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
        } else {
            float2 v = *(const float2*)first;
            values[i] = v.x, values[i + 1] = v.y;
        }
    }
}

template <class Tile, bool kAligned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    square_matrix_mul_kernel_optimized(const float* A, const float* B, float* C, int M) {
    constexpr int kM = Tile::kM, kN = Tile::kN, kK = Tile::kK, kRows = Tile::kRows, kCols = Tile::kCols;
    constexpr int kLoadsA = kM * kK / 4 / Tile::kThreads, kLoadsB = kK * kN / 4 / Tile::kThreads;
    __shared__ __align__(16) float tile_a[2][kK][kM + 4]; // transposed
    __shared__ __align__(16) float tile_b[2][kK][kN];
    unsigned int blocks_across = (M - 1) / kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = kM / kLoadsA, kStepB = kK / kLoadsB;
    int row_a = threadIdx.x / (kK / 4), k_a = threadIdx.x % (kK / 4) * 4;
    int k_b = threadIdx.x / (kN / 4), col_b = threadIdx.x % (kN / 4) * 4;
    const float* from_a = A + (first_row + row_a) * M + k_a;
    const float* from_b = B + (size_t)k_b * M + first_col + col_b;
    int rows_left = M - first_row - row_a, cols_left = M - first_col - col_b, k_left = M;
    float4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] =
                load4<kAligned>(from_a + (size_t)i * kStepA * M, i * kStepA < rows_left ? k_left - k_a : 0);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] =
                load4<kAligned>(from_b + (size_t)i * kStepB * M, i * kStepB + k_b < k_left ? cols_left : 0);
        from_a += kK;
        from_b += (size_t)kK * M;
        k_left -= kK;
    };
    auto stage = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i) {
            tile_a[buffer][k_a][row_a + i * kStepA] = next_a[i].x;
            tile_a[buffer][k_a + 1][row_a + i * kStepA] = next_a[i].y;
            tile_a[buffer][k_a + 2][row_a + i * kStepA] = next_a[i].z;
            tile_a[buffer][k_a + 3][row_a + i * kStepA] = next_a[i].w;
        }
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            *(float4*)&tile_b[buffer][k_b + i * kStepB][col_b] = next_b[i];
    };

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int down = warp / Tile::kWarpsAcross * 8 + lane / 4;
    int across = warp % Tile::kWarpsAcross * 4 + lane % 4;
    float sums[kRows][kCols] = {};
    load();
    stage(0);
    __syncthreads();
    for (int buffer = 0;; buffer ^= 1) {
        bool more = k_left > 0;
        if (more)
            load();
#pragma unroll
        for (int k = 0; k < kK; ++k) {
            float a[kRows], b[kCols];
            read_tile<kM>(a, tile_a[buffer][k], down);
            read_tile<kN>(b, tile_b[buffer][k], across);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
#pragma unroll
                for (int c = 0; c < kCols; ++c)
                    sums[r][c] += a[r] * b[c];
            }
        }
        if (!more)
            break;
        stage(buffer ^ 1);
        __syncthreads();
    }

    constexpr int kWidth = kCols < 4 ? kCols : 4;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        long long row = first_row + position<kM, kRows>(down, r);
        if (row >= M)
            continue;
#pragma unroll
        for (int c = 0; c < kCols; c += kWidth) {
            long long col = first_col + position<kN, kCols>(across, c);
            float* to = C + row * M + col;
            if constexpr (kAligned && kWidth == 4) {
                if (col < M)
                    *(float4*)to = make_float4(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]);
            } else {
#pragma unroll
                for (int i = 0; i < kWidth; ++i)
                    if (col + i < M)
                        to[i] = sums[r][c + i];
            }
        }
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile> static void launch(const float* A, const float* B, float* C, int M) {
    bool aligned = M % 4 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>(M, M);
    if (aligned)
        square_matrix_mul_kernel_optimized<Tile, true><<<blocks, Tile::kThreads>>>(A, B, C, M);
    else
        square_matrix_mul_kernel_optimized<Tile, false><<<blocks, Tile::kThreads>>>(A, B, C, M);
}

extern "C" void square_matrix_mul_optimized(const float* A, const float* B, float* C, int M) {
    if (blocks_of<Large>(M, M) >= kEnoughBlocks)
        launch<Large>(A, B, C, M);
    else if (blocks_of<Medium>(M, M) >= kEnoughBlocks)
        launch<Medium>(A, B, C, M);
    else
        launch<Small>(A, B, C, M);
}
