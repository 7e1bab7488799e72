// idea: Tensor cores on tiles in shared memory
// why: The baseline loads two numbers for each multiply-add and leaves the tensor cores idle. Here a block
//      of four warps stages tiles of A and of B in shared memory, and a warp keeps up to 64 x 64 sums in the
//      accumulators of its tensor core, so that each fragment that it loads serves up to four products of
//      fragments. Padded rows keep the loads of fragments free of bank conflicts. The next tiles travel from
//      memory into registers while the present ones are multiplied, and go into a second pair of buffers, so
//      that one barrier per step is enough. Results pass through shared memory, where they are rounded and
//      leave in 16-byte stores. Small products take smaller tiles, so that every multiprocessor has one.
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
    static constexpr int kStrideA = kK + kPadding, kStrideB = kN + kPadding;
    static constexpr int kElementsA = kM * kStrideA, kElementsB = kK * kStrideB;
};
using Large = Tile<64, 32>;
using Medium = Tile<32, 64>;
using Small = Tile<16, 64>;

// Eight neighbours of a row of which `left` elements are left, and zeros for those beyond its end. Where
// kAligned, `from` is a multiple of 16, and what is left a multiple of eight.
template <bool kAligned> __device__ uint4 load8(const __nv_bfloat16* from, int left) {
    if constexpr (kAligned) {
        return left > 0 ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
    } else {
        unsigned int words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned int low = 2 * i < left ? __bfloat16_as_ushort(from[2 * i]) : 0;
            unsigned int high = 2 * i + 1 < left ? __bfloat16_as_ushort(from[2 * i + 1]) : 0;
            words[i] = high << 16 | low;
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
}

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
    square_matrix_mul_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                            int M) {
    constexpr int kK = Tile::kK, kWarp = Tile::kWarp, kFragments = kWarp / kFragment;
    constexpr int kLoadsA = Tile::kM * kK / 8 / kThreads, kLoadsB = kK * Tile::kN / 8 / kThreads;
    constexpr int kPatchStride = kWarp + 4; // of the results on their way out, in floats
    constexpr int kTileBytes = 2 * (Tile::kElementsA + Tile::kElementsB) * (int)sizeof(__nv_bfloat16);
    constexpr int kPatchBytes = 4 * kFragment * kPatchStride * (int)sizeof(float);
    __shared__ __align__(32) unsigned char memory[kTileBytes > kPatchBytes ? kTileBytes : kPatchBytes];
    __nv_bfloat16* tile_a = (__nv_bfloat16*)memory;
    __nv_bfloat16* tile_b = tile_a + 2 * Tile::kElementsA;
    unsigned int blocks_across = (M - 1) / Tile::kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * Tile::kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * Tile::kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = Tile::kM / kLoadsA, kStepB = kK / kLoadsB;
    int row_a = threadIdx.x / (kK / 8), k_a = threadIdx.x % (kK / 8) * 8;
    int k_b = threadIdx.x / (Tile::kN / 8), col_b = threadIdx.x % (Tile::kN / 8) * 8;
    const __nv_bfloat16* from_a = A + (first_row + row_a) * M + k_a;
    const __nv_bfloat16* from_b = B + (size_t)k_b * M + first_col + col_b;
    int rows_left = M - first_row - row_a, cols_left = M - first_col - col_b, k_left = M;
    uint4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] =
                load8<kAligned>(from_a + (size_t)i * kStepA * M, i * kStepA < rows_left ? k_left - k_a : 0);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] =
                load8<kAligned>(from_b + (size_t)i * kStepB * M, i * kStepB + k_b < k_left ? cols_left : 0);
        from_a += kK;
        from_b += (size_t)kK * M;
        k_left -= kK;
    };
    auto stage = [&](int buffer) {
        __nv_bfloat16* to_a = tile_a + buffer * Tile::kElementsA + row_a * Tile::kStrideA + k_a;
        __nv_bfloat16* to_b = tile_b + buffer * Tile::kElementsB + k_b * Tile::kStrideB + col_b;
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            *(uint4*)(to_a + i * kStepA * Tile::kStrideA) = next_a[i];
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            *(uint4*)(to_b + i * kStepB * Tile::kStrideB) = next_b[i];
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
    load();
    stage(0);
    __syncthreads();
    for (int buffer = 0;; buffer ^= 1) {
        bool more = k_left > 0;
        if (more)
            load();
        const __nv_bfloat16* warp_a = tile_a + buffer * Tile::kElementsA + warp_row * Tile::kStrideA;
        const __nv_bfloat16* warp_b = tile_b + buffer * Tile::kElementsB + warp_col;
#pragma unroll
        for (int k = 0; k < kK; k += kFragment) {
            wmma::fragment<wmma::matrix_a, kFragment, kFragment, kFragment, __nv_bfloat16, wmma::row_major>
                a[kFragments];
#pragma unroll
            for (int r = 0; r < kFragments; ++r)
                wmma::load_matrix_sync(a[r], warp_a + r * kFragment * Tile::kStrideA + k, Tile::kStrideA);
#pragma unroll
            for (int c = 0; c < kFragments; ++c) {
                wmma::fragment<wmma::matrix_b, kFragment, kFragment, kFragment, __nv_bfloat16,
                               wmma::row_major>
                    b;
                wmma::load_matrix_sync(b, warp_b + k * Tile::kStrideB + c * kFragment, Tile::kStrideB);
#pragma unroll
                for (int r = 0; r < kFragments; ++r)
                    wmma::mma_sync(sums[r][c], a[r], b, sums[r][c]);
            }
        }
        if (!more)
            break;
        stage(buffer ^ 1);
        __syncthreads();
    }

    // A warp's results leave through a patch of its own, a row of fragments at a time.
    __syncthreads();
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
            if (row < M)
                store8<kAligned>(C + row * M + col, patch + i / kWarp * kPatchStride + i % kWarp, M - col);
        }
        __syncwarp();
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile>
static void launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M) {
    bool aligned = M % 8 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>(M, M);
    if (aligned)
        square_matrix_mul_bf16_kernel_optimized<Tile, true><<<blocks, kThreads>>>(A, B, C, M);
    else
        square_matrix_mul_bf16_kernel_optimized<Tile, false><<<blocks, kThreads>>>(A, B, C, M);
}

extern "C" void square_matrix_mul_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                 __nv_bfloat16* C, int M) {
    if (blocks_of<Large>(M, M) >= kEnoughBlocks)
        launch<Large>(A, B, C, M);
    else if (blocks_of<Medium>(M, M) >= kEnoughBlocks)
        launch<Medium>(A, B, C, M);
    else
        launch<Small>(A, B, C, M);
}
