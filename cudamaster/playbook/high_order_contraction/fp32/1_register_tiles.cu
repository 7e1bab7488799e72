// idea: A product of tiles of pairs of indices
// why: The baseline loads two numbers for each multiply-add, and neighbouring threads read B with a stride.
//      The contraction is a product of matrices in disguise: the rows are the pairs (a, b), the columns are
//      c, and the sum runs over the pairs (x, y). Here a block stages tiles of both factors in shared
//      memory, transposed, and a thread keeps up to 8 x 8 sums in registers, so that 16 numbers from shared
//      memory serve 64 multiply-adds. Both tensors have y last, so that four neighbours load at once. The
//      next tiles travel from memory into registers while the present ones are multiplied, and go into a
//      second pair of buffers, so that one barrier per step is enough. Small contractions take smaller
//      tiles, so that every multiprocessor has one.
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

// The order of the products of a row of A or B: product x * y_dim + y is at row + x * stride + y. A null
// pointer stands for a row of zeros.
struct Products {
    unsigned int products, y_dim;

    // Elements k to k + 3 of a row, with zeros beyond its end. Where kAligned, they are neighbours in memory.
    template <bool kAligned> __device__ float4 load(const float* row, size_t stride, unsigned int k) const {
        if (!row || k >= products)
            return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        size_t x = k / y_dim;
        unsigned int y = k % y_dim;
        if constexpr (kAligned) {
            return *(const float4*)(row + x * stride + y);
        } else {
            float values[4] = {};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (k + j < products)
                    values[j] = row[x * stride + y];
                if (++y == y_dim) {
                    y = 0;
                    ++x;
                }
            }
            return make_float4(values[0], values[1], values[2], values[3]);
        }
    }
};

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
    high_order_contraction_kernel_optimized(const float* A, const float* B, float* C, int a_dim, int b_dim,
                                            int c_dim, int x_dim, int y_dim) {
    constexpr int kM = Tile::kM, kN = Tile::kN, kK = Tile::kK, kRows = Tile::kRows, kCols = Tile::kCols;
    constexpr int kLoadsA = kM * kK / 4 / Tile::kThreads, kLoadsB = kK * kN / 4 / Tile::kThreads;
    __shared__ __align__(16) float tile_a[2][kK][kM + 4];
    __shared__ __align__(16) float tile_b[2][kK][kN + 4];
    long long rows = (long long)a_dim * b_dim;
    unsigned int blocks_across = (c_dim - 1) / kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = kM / kLoadsA, kStepB = kN / kLoadsB;
    Products all{(unsigned int)x_dim * y_dim, (unsigned int)y_dim};
    size_t stride_a = (size_t)b_dim * y_dim, stride_b = (size_t)c_dim * y_dim;
    int staged_row = threadIdx.x / (kK / 4), staged_k = threadIdx.x % (kK / 4) * 4;
    const float* rows_a[kLoadsA];
    const float* rows_b[kLoadsB];
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
        long long row = first_row + staged_row + i * kStepA;
        rows_a[i] = row < rows ? A + (row / b_dim * x_dim * b_dim + row % b_dim) * y_dim : nullptr;
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
        long long col = first_col + staged_row + i * kStepB;
        rows_b[i] = col < c_dim ? B + col * y_dim : nullptr;
    }
    float4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&](unsigned int first_k) {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] = all.load<kAligned>(rows_a[i], stride_a, first_k + staged_k);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] = all.load<kAligned>(rows_b[i], stride_b, first_k + staged_k);
    };
    auto stage = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i) {
            tile_a[buffer][staged_k][staged_row + i * kStepA] = next_a[i].x;
            tile_a[buffer][staged_k + 1][staged_row + i * kStepA] = next_a[i].y;
            tile_a[buffer][staged_k + 2][staged_row + i * kStepA] = next_a[i].z;
            tile_a[buffer][staged_k + 3][staged_row + i * kStepA] = next_a[i].w;
        }
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i) {
            tile_b[buffer][staged_k][staged_row + i * kStepB] = next_b[i].x;
            tile_b[buffer][staged_k + 1][staged_row + i * kStepB] = next_b[i].y;
            tile_b[buffer][staged_k + 2][staged_row + i * kStepB] = next_b[i].z;
            tile_b[buffer][staged_k + 3][staged_row + i * kStepB] = next_b[i].w;
        }
    };

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int down = warp / Tile::kWarpsAcross * 8 + lane / 4;
    int across = warp % Tile::kWarpsAcross * 4 + lane % 4;
    float sums[kRows][kCols] = {};
    load(0);
    stage(0);
    __syncthreads();
    unsigned int steps = (all.products - 1) / kK + 1;
    for (unsigned int step = 0; step < steps; ++step) {
        unsigned int buffer = step % 2;
        bool more = step + 1 < steps;
        if (more)
            load((step + 1) * kK);
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
        if (more)
            stage(buffer ^ 1);
        __syncthreads();
    }

    constexpr int kWidth = kCols < 4 ? kCols : 4;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        long long row = first_row + position<kM, kRows>(down, r);
        if (row >= rows)
            continue;
#pragma unroll
        for (int c = 0; c < kCols; c += kWidth) {
            long long col = first_col + position<kN, kCols>(across, c);
            float* to = C + row * c_dim + col;
            if constexpr (kAligned && kWidth == 4) {
                if (col < c_dim)
                    *(float4*)to = make_float4(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]);
            } else {
#pragma unroll
                for (int i = 0; i < kWidth; ++i)
                    if (col + i < c_dim)
                        to[i] = sums[r][c + i];
            }
        }
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile>
static void launch(const float* A, const float* B, float* C, int a_dim, int b_dim, int c_dim, int x_dim,
                   int y_dim) {
    bool aligned = y_dim % 4 == 0 && c_dim % 4 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>((long long)a_dim * b_dim, c_dim);
    if (aligned)
        high_order_contraction_kernel_optimized<Tile, true>
            <<<blocks, Tile::kThreads>>>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else
        high_order_contraction_kernel_optimized<Tile, false>
            <<<blocks, Tile::kThreads>>>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}

extern "C" void high_order_contraction_optimized(const float* A, const float* B, float* C, int a_dim,
                                                 int b_dim, int c_dim, int x_dim, int y_dim) {
    long long rows = (long long)a_dim * b_dim;
    if (c_dim > Medium::kN && blocks_of<Large>(rows, c_dim) >= kEnoughBlocks)
        launch<Large>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else if (blocks_of<Medium>(rows, c_dim) >= kEnoughBlocks)
        launch<Medium>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else
        launch<Small>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}
