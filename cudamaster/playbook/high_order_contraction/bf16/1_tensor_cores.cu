// idea: Tensor cores on tiles of pairs of indices
// why: The baseline loads two numbers for each multiply-add, and neighbouring threads read B with a stride.
//      The contraction is a product of matrices in disguise: the rows are the pairs (a, b), the columns are
//      c, and the sum runs over the pairs (x, y). Here a block of four warps stages tiles of both factors in
//      shared memory, and a warp keeps up to 64 x 64 sums in the accumulators of its tensor core. Both
//      tensors have y last, so that eight neighbours load at once where y_dim is a multiple of eight. The
//      next tiles travel from memory into registers while the present ones are multiplied, and go into a
//      second pair of buffers, so that one barrier per step is enough. Results pass through shared memory,
//      where they are rounded and leave in 16-byte stores. Small contractions take smaller tiles, so that
//      every multiprocessor has one.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kThreads = 128;      // four warps, two by two
constexpr int kFragment = 16;      // rows, columns and products of a fragment
constexpr int kPadding = 8;        // elements after a row of a tile
constexpr int kEnoughBlocks = 120; // for about every multiprocessor of a large GPU to have one

// A block makes kM x kN elements of C, kK products at a time, and a warp kWarp x kWarp of them.
template <int warp, int k> struct Tile {
    static constexpr int kWarp = warp, kM = 2 * warp, kN = 2 * warp, kK = k;
    static constexpr int kStride = kK + kPadding; // of both tiles, which have the products side by side
    static constexpr int kElementsA = kM * kStride, kElementsB = kN * kStride;
};
using Large = Tile<64, 32>;
using Medium = Tile<32, 64>;
using Small = Tile<16, 64>;

// The order of the products of a row of A or B: product x * y_dim + y is at row + x * stride + y. A null
// pointer stands for a row of zeros.
struct Products {
    unsigned int products, y_dim;

    // Elements k to k + 7 of a row, with zeros beyond its end. Where kAligned, they are neighbours in memory.
    template <bool kAligned>
    __device__ uint4 load(const __nv_bfloat16* row, size_t stride, unsigned int k) const {
        if (!row || k >= products)
            return make_uint4(0, 0, 0, 0);
        size_t x = k / y_dim;
        unsigned int y = k % y_dim;
        if constexpr (kAligned) {
            return *(const uint4*)(row + x * stride + y);
        } else {
            unsigned int words[4] = {};
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (k + j < products)
                    words[j / 2] |= (unsigned int)__bfloat16_as_ushort(row[x * stride + y]) << (j % 2 * 16);
                if (++y == y_dim) {
                    y = 0;
                    ++x;
                }
            }
            return make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
};

__device__ unsigned int pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned int*)&pair;
}

// Rounds eight neighbours and stores those that are within the `left` elements left of a row.
template <bool kAligned> __device__ void store8(__nv_bfloat16* to, const float* values, int left) {
    if constexpr (kAligned) {
        if (left > 0)
            *(uint4*)to = make_uint4(pack2(values[0], values[1]), pack2(values[2], values[3]),
                                     pack2(values[4], values[5]), pack2(values[6], values[7]));
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (i < left)
                to[i] = __float2bfloat16(values[i]);
    }
}

template <class Tile, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    high_order_contraction_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                 __nv_bfloat16* C, int a_dim, int b_dim, int c_dim, int x_dim,
                                                 int y_dim) {
    constexpr int kK = Tile::kK, kWarp = Tile::kWarp, kFragments = kWarp / kFragment;
    constexpr int kLoadsA = Tile::kM * kK / 8 / kThreads, kLoadsB = kK * Tile::kN / 8 / kThreads;
    constexpr int kPatchStride = kWarp + 4; // of the results on their way out, in floats
    constexpr int kTileBytes = 2 * (Tile::kElementsA + Tile::kElementsB) * (int)sizeof(__nv_bfloat16);
    constexpr int kPatchBytes = 4 * kFragment * kPatchStride * (int)sizeof(float);
    __shared__ __align__(32) unsigned char memory[kTileBytes > kPatchBytes ? kTileBytes : kPatchBytes];
    __nv_bfloat16* tile_a = (__nv_bfloat16*)memory;
    __nv_bfloat16* tile_b = tile_a + 2 * Tile::kElementsA;
    long long rows = (long long)a_dim * b_dim;
    unsigned int blocks_across = (c_dim - 1) / Tile::kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * Tile::kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * Tile::kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = Tile::kM / kLoadsA, kStepB = Tile::kN / kLoadsB;
    Products all{(unsigned int)x_dim * y_dim, (unsigned int)y_dim};
    size_t stride_a = (size_t)b_dim * y_dim, stride_b = (size_t)c_dim * y_dim;
    int staged_row = threadIdx.x / (kK / 8), staged_k = threadIdx.x % (kK / 8) * 8;
    const __nv_bfloat16* rows_a[kLoadsA];
    const __nv_bfloat16* rows_b[kLoadsB];
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
    uint4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&](unsigned int first_k) {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] = all.load<kAligned>(rows_a[i], stride_a, first_k + staged_k);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] = all.load<kAligned>(rows_b[i], stride_b, first_k + staged_k);
    };
    auto stage = [&](int buffer) {
        __nv_bfloat16* to_a = tile_a + buffer * Tile::kElementsA + staged_row * Tile::kStride + staged_k;
        __nv_bfloat16* to_b = tile_b + buffer * Tile::kElementsB + staged_row * Tile::kStride + staged_k;
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            *(uint4*)(to_a + i * kStepA * Tile::kStride) = next_a[i];
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            *(uint4*)(to_b + i * kStepB * Tile::kStride) = next_b[i];
    };

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int warp_row = warp / 2 * kWarp, warp_col = warp % 2 * kWarp;
    wmma::fragment<wmma::accumulator, kFragment, kFragment, kFragment, float> sums[kFragments][kFragments];
#pragma unroll
    for (int r = 0; r < kFragments; ++r) {
#pragma unroll
        for (int c = 0; c < kFragments; ++c)
            wmma::fill_fragment(sums[r][c], 0.0f);
    }
    load(0);
    stage(0);
    __syncthreads();
    unsigned int steps = (all.products - 1) / kK + 1;
    for (unsigned int step = 0; step < steps; ++step) {
        unsigned int buffer = step % 2;
        bool more = step + 1 < steps;
        if (more)
            load((step + 1) * kK);
        const __nv_bfloat16* warp_a = tile_a + buffer * Tile::kElementsA + warp_row * Tile::kStride;
        const __nv_bfloat16* warp_b = tile_b + buffer * Tile::kElementsB + warp_col * Tile::kStride;
#pragma unroll
        for (int k = 0; k < kK; k += kFragment) {
            wmma::fragment<wmma::matrix_a, kFragment, kFragment, kFragment, __nv_bfloat16, wmma::row_major>
                a[kFragments];
#pragma unroll
            for (int r = 0; r < kFragments; ++r)
                wmma::load_matrix_sync(a[r], warp_a + r * kFragment * Tile::kStride + k, Tile::kStride);
#pragma unroll
            for (int c = 0; c < kFragments; ++c) {
                wmma::fragment<wmma::matrix_b, kFragment, kFragment, kFragment, __nv_bfloat16,
                               wmma::col_major>
                    b;
                wmma::load_matrix_sync(b, warp_b + c * kFragment * Tile::kStride + k, Tile::kStride);
#pragma unroll
                for (int r = 0; r < kFragments; ++r)
                    wmma::mma_sync(sums[r][c], a[r], b, sums[r][c]);
            }
        }
        if (more)
            stage(buffer ^ 1);
        __syncthreads();
    }

    // A warp's results leave through a patch of its own, a row of fragments at a time.
    float* patch = (float*)memory + warp * kFragment * kPatchStride;
#pragma unroll
    for (int r = 0; r < kFragments; ++r) {
#pragma unroll
        for (int c = 0; c < kFragments; ++c)
            wmma::store_matrix_sync(patch + c * kFragment, sums[r][c], kPatchStride, wmma::mem_row_major);
        __syncwarp();
        for (int i = lane * 8; i < kFragment * kWarp; i += 32 * 8) {
            long long row = first_row + warp_row + r * kFragment + i / kWarp;
            long long col = first_col + warp_col + i % kWarp;
            if (row < rows)
                store8<kAligned>(C + row * c_dim + col, patch + i / kWarp * kPatchStride + i % kWarp,
                                 c_dim - col);
        }
        __syncwarp();
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile>
static void launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int a_dim, int b_dim,
                   int c_dim, int x_dim, int y_dim) {
    bool aligned = y_dim % 8 == 0 && c_dim % 8 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>((long long)a_dim * b_dim, c_dim);
    if (aligned)
        high_order_contraction_bf16_kernel_optimized<Tile, true>
            <<<blocks, kThreads>>>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else
        high_order_contraction_bf16_kernel_optimized<Tile, false>
            <<<blocks, kThreads>>>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}

extern "C" void high_order_contraction_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                      __nv_bfloat16* C, int a_dim, int b_dim, int c_dim,
                                                      int x_dim, int y_dim) {
    long long rows = (long long)a_dim * b_dim;
    if (c_dim > Medium::kN && blocks_of<Large>(rows, c_dim) >= kEnoughBlocks)
        launch<Large>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else if (blocks_of<Medium>(rows, c_dim) >= kEnoughBlocks)
        launch<Medium>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else
        launch<Small>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}
