// idea: Warpgroup products fed by tensor maps
// why: A warp's product of 16 x 16 fragments waits for its own loads of fragments from shared memory. On Hopper four
//      warps together multiply 64 x 256 elements out of shared memory by one instruction (wgmma), while one more thread
//      has the copy engine bring the next tiles (tensor maps, a ring of stages, a full and an empty barrier for each).
//      Two warpgroups keep 128 x 256 sums in registers; results leave by stmatrix and the copy engine, while the next
//      tile is made. The first copies begin before the other threads have seen the barriers. As many blocks as there is
//      room for make tiles in an order that finds them in L2. Where tiles are too few, they are smaller; where even
//      tiles of 64 x 64 are, the blocks of a cluster take slices of K, send each other the sums, and add them up in a
//      fixed order. Products of at most 128 tiles of 16 x 32 take them by mma.sync, all loads at once. Other GPUs,
//      other small products, and rows that are no multiple of 16 bytes get the tiles of the step before. At 16384 x
//      2048 x 4096 an H200 takes 349 µs where the step before takes 1481. What binds it now: its tensor cores, and
//      their clock. On an H100 a block has products under way for 95 of 100 clocks, 1.5 GHz of the 1.98 that there
//      might be; the rest is results on their way out, 2300 clocks a tile, in both warpgroups at the same time. On the
//      device cuBLAS is ahead: 381 µs to 384 on that H100, 340 to 349 on an H200. Tried for that, and no faster:
//      multicast in clusters of two, a head start for one warpgroup, steps of 32 in place of 64, hints to L2, other
//      orders of tiles. Shares of tiles for the last round (stream-K) lose 13 to 35 %, as blocks no longer meet in L2.
//      Next: fewer fences among the results.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
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
    matrix_mul_bf16_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M,
                                     int N, int K) {
    constexpr int kK = Tile::kK, kWarp = Tile::kWarp, kFragments = kWarp / kFragment;
    constexpr int kLoadsA = Tile::kM * kK / 8 / kThreads, kLoadsB = kK * Tile::kN / 8 / kThreads;
    constexpr int kPatchStride = kWarp + 4; // of the results on their way out, in floats
    constexpr int kTileBytes = 2 * (Tile::kElementsA + Tile::kElementsB) * (int)sizeof(__nv_bfloat16);
    constexpr int kPatchBytes = 4 * kFragment * kPatchStride * (int)sizeof(float);
    __shared__ __align__(32) unsigned char memory[kTileBytes > kPatchBytes ? kTileBytes : kPatchBytes];
    __nv_bfloat16* tile_a = (__nv_bfloat16*)memory;
    __nv_bfloat16* tile_b = tile_a + 2 * Tile::kElementsA;
    unsigned int blocks_across = (N - 1) / Tile::kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * Tile::kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * Tile::kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = Tile::kM / kLoadsA, kStepB = kK / kLoadsB;
    int row_a = threadIdx.x / (kK / 8), k_a = threadIdx.x % (kK / 8) * 8;
    int k_b = threadIdx.x / (Tile::kN / 8), col_b = threadIdx.x % (Tile::kN / 8) * 8;
    const __nv_bfloat16* from_a = A + (first_row + row_a) * K + k_a;
    const __nv_bfloat16* from_b = B + (size_t)k_b * N + first_col + col_b;
    int rows_left = M - first_row - row_a, cols_left = N - first_col - col_b, k_left = K;
    uint4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] =
                load8<kAligned>(from_a + (size_t)i * kStepA * K, i * kStepA < rows_left ? k_left - k_a : 0);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] =
                load8<kAligned>(from_b + (size_t)i * kStepB * N, i * kStepB + k_b < k_left ? cols_left : 0);
        from_a += kK;
        from_b += (size_t)kK * N;
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
                store8<kAligned>(C + row * N + col, patch + i / kWarp * kPatchStride + i % kWarp, N - col);
        }
        __syncwarp();
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile>
static void launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K) {
    bool aligned = N % 8 == 0 && K % 8 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>(M, N);
    if (aligned)
        matrix_mul_bf16_kernel_optimized<Tile, true><<<blocks, kThreads>>>(A, B, C, M, N, K);
    else
        matrix_mul_bf16_kernel_optimized<Tile, false><<<blocks, kThreads>>>(A, B, C, M, N, K);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Plan::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, which fails, so that the host sees that there is nothing to launch
#endif

constexpr int kStep = 64; // of K, at a time: a row of 128 bytes, as wide as a swizzle
[[maybe_unused]] constexpr int kBoxBytes = 64 * 128; // 64 rows of that
constexpr int kBoxOfC = 16 * 128;                    // 16 rows of 64 results on their way out
// Tiles across that are made one below the other, so that L2 keeps their part of B.
[[maybe_unused]] constexpr int kBand = 8;

// A block makes tiles of kM x kN elements of C. Those of a cluster make slices of the same tile's products.
template <int consumers, int n, int split, int stages> struct Plan {
    static constexpr int kConsumers = consumers, kM = 64 * consumers, kN = n, kSplit = split,
                         kStages = stages;
    static constexpr int kThreads = 128 * consumers + 32;
    static constexpr int kBytesA = kM * 128, kBytesB = n * 128, kStageBytes = kBytesA + kBytesB;
    static constexpr int kPatches = split > 1  ? 0
                                    : n == 256 ? 1
                                               : n / 64; // boxes of C that a warp has room for
    static constexpr int kMemory = stages * (kStageBytes + 16) + 4 * consumers * kPatches * kBoxOfC;
    static_assert(split == 1 || kM * n * 4 <= stages * kStageBytes, "sums lie where the stages were");
    static_assert(n / split >= 16, "a thread stores 16 bytes of a row");
};
using Wide = Plan<2, 256, 1, 4>;
using Square = Plan<2, 128, 1, 6>;
using Narrow = Plan<2, 64, 1, 8>;
using Low = Plan<1, 64, 1, 12>;
using Thin = Plan<1, 128, 4, 8>;

#if HAS_WARPGROUPS
static __device__ unsigned int shared_address(const void* place) {
    return (unsigned int)__cvta_generic_to_shared(place);
}

static __device__ void init_barrier(unsigned int barrier, unsigned int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void expect_bytes(unsigned int barrier, unsigned int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

static __device__ void arrive_at(unsigned int barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ void wait_for(unsigned int barrier, unsigned int parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// A box of a matrix, from column and row on.
static __device__ void load_box(unsigned int to, const CUtensorMap* map, int column, int row,
                                unsigned int barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

static __device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

// Where a factor begins in its block's shared memory (the address has the block's rank above that), 128 bytes swizzled.
// A has K side by side, eight rows a group; B has its columns side by side, 64 of them a box, eight rows of K a group.
static __device__ unsigned long long describe(unsigned int address, unsigned int leading,
                                              unsigned int group) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(group >> 4) << 32 | 1ull << 62;
}

// d += a b, or d = a b where nothing is kept: 64 x 64 sums, 16 products each.
static __device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, kept, 1, 1, 0, 1;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(keep));
}

// d += a b, or d = a b where nothing is kept: 64 x 128 sums, 16 products each.
static __device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, kept, 1, 1, 0, 1;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
                   "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
                   "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
                   "+f"(d[63])
                 : "l"(a), "l"(b), "r"(keep));
}

// d += a b, or d = a b where nothing is kept: 64 x 256 sums, 16 products each.
static __device__ void multiply(float (&d)[128], unsigned long long a, unsigned long long b, int keep) {
    asm volatile(
        "{.reg .pred kept;\n"
        "setp.ne.b32 kept, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, kept, 1, 1, 0, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
          "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
          "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),
          "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
          "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),
          "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),
          "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]),
          "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]),
          "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]),
          "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]),
          "+f"(d[127])
        : "l"(a), "l"(b), "r"(keep));
}

// The compiler may not use sums before they are there.
template <int count> static __device__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int left> static __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// Lane q of four has words q of all four then.
static __device__ void transpose4(unsigned int (&words)[4], int lane) {
    bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        unsigned int other = __shfl_xor_sync(0xffffffffu, odd ? words[i] : words[i + 1], 1);
        words[i] = odd ? other : words[i];
        words[i + 1] = odd ? words[i + 1] : other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        unsigned int other = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i + 2], 2);
        words[i] = upper ? other : words[i];
        words[i + 2] = upper ? words[i + 2] : other;
    }
}

// A warp's 16 rows of sums, rounded, by boxes of 64 columns that the copy engine takes out while the next are made.
template <int patches, int count>
static __device__ void store_boxes(const float (&d)[count], unsigned int room, const CUtensorMap* map,
                                   int row, int col) {
    int lane = threadIdx.x % 32, r = lane % 16;
#pragma unroll
    for (int box = 0; box < count / 32; ++box) {
        unsigned int patch = room + box % patches * kBoxOfC;
        // Of the lane that has them taken: what lay here is out.
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(patches - 1) : "memory");
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* pair = d + box * 32 + i * 8;
            unsigned int at = patch + r * 128 + (((i * 2 + lane / 16) ^ (r % 8)) * 16);
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                         "r"(pack2(pair[0], pair[1])), "r"(pack2(pair[2], pair[3])),
                         "r"(pack2(pair[4], pair[5])), "r"(pack2(pair[6], pair[7]))
                         : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0)
            asm volatile(
                "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                "r"(col + box * 64), "r"(row), "r"(patch)
                : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

// A warp's 16 rows of sums of eight neighbours each, rounded, in stores of 16 bytes.
template <int count>
static __device__ void store_sums(const float (&d)[count], __nv_bfloat16* C, long long row, long long col,
                                  int M, int N) {
    constexpr int kGroups = count / 4; // of eight columns, for rows and for those eight below
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int first = 0; first < 2 * kGroups; first += 4) {
        unsigned int words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* pair = d + (first + i) % kGroups * 4 + (first + i) / kGroups * 2;
            words[i] = pack2(pair[0], pair[1]);
        }
        transpose4(words, lane);
        int mine = first + lane % 4;
        long long r = row + lane / 4 + mine / kGroups * 8, c = col + mine % kGroups * 8;
        if (r < M && c < N)
            *(uint4*)(C + r * N + c) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

static __device__ void store_at(unsigned int address, unsigned int block, const float* values) {
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};}" ::"r"(address),
                 "r"(block), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
}
#endif

// The first row and column of a tile.
template <class Plan> static __device__ void place_of(int tile, int M, int N, int* row, int* col) {
    int down = (M - 1) / Plan::kM + 1, across = (N - 1) / Plan::kN + 1;
    int band = tile / (down * kBand), within = tile % (down * kBand);
    int width = min(kBand, across - band * kBand);
    *row = within / width * Plan::kM;
    *col = (band * kBand + within % width) * Plan::kN;
}

template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    matrix_mul_bf16_hopper_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                            const __grid_constant__ CUtensorMap map_b,
                                            const __grid_constant__ CUtensorMap map_c, __nv_bfloat16* C,
                                            int M, int N, int K, int tiles) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kN = Plan::kN, kSplit = Plan::kSplit, kStages = Plan::kStages,
                  kWarps = 4 * Plan::kConsumers;
    unsigned int stages = shared_address(memory), patches = stages + kStages * Plan::kStageBytes,
                 full = stages + Plan::kMemory - 16 * kStages, empty = full + 8 * kStages;
    int cluster = blockIdx.x / kSplit, clusters = gridDim.x / kSplit, slice = blockIdx.x % kSplit;
    int steps = (K - 1) / kStep + 1, first = steps * slice / kSplit, last = steps * (slice + 1) / kSplit;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row, col, stage = 0;
    unsigned int parity = 0;
    auto next = [&]() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    };
    auto copy = [&](int step) {
        expect_bytes(full + 8 * stage, Plan::kStageBytes);
        unsigned int to = stages + stage * Plan::kStageBytes;
        load_box(to, &map_a, step * kStep, row, full + 8 * stage);
        for (int i = 0; i < kN / 64; ++i)
            load_box(to + Plan::kBytesA + i * kBoxBytes, &map_b, col + i * 64, step * kStep,
                     full + 8 * stage);
        next();
    };
    int begun = 0;
    if (threadIdx.x == kWarps * 32) {
        // One thread has the copies made. The first of them are under way before the others see the barriers.
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map_a) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map_b) : "memory");
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, kWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        place_of<Plan>(cluster, M, N, &row, &col);
        for (; begun < kStages && first + begun < last; ++begun)
            copy(first + begun);
    }
    __syncthreads();
    float d[kN / 2];
    if (warp == kWarps) {
        // It fills a stage again when all are done with it.
        for (int tile = cluster; lane == 0 && tile < tiles; tile += clusters, begun = 0) {
            place_of<Plan>(tile, M, N, &row, &col);
            for (int step = first + begun; step < last; ++step) {
                wait_for(empty + 8 * stage, parity ^ 1);
                copy(step);
            }
        }
        __syncwarp();
    } else {
        for (int tile = cluster; tile < tiles; tile += clusters) {
            place_of<Plan>(tile, M, N, &row, &col);
            int before = 0;
            for (int step = first; step < last; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes;
                unsigned long long a = describe(from + warp / 4 * kBoxBytes, 16, 1024);
                unsigned long long b = describe(from + Plan::kBytesA, kBoxBytes, 1024);
                hold(d);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply(d, a + k * (32 >> 4), b + k * (2048 >> 4), step > first || k > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(d);
                // One group stays in flight; what the one before it read is free.
                wait_products<1>();
                if (step > first && lane == 0)
                    arrive_at(empty + 8 * before);
                before = stage;
            }
            wait_products<0>();
            hold(d);
            if (lane == 0)
                arrive_at(empty + 8 * before);
            if constexpr (kSplit == 1)
                store_boxes<Plan::kPatches>(d, patches + warp * Plan::kPatches * kBoxOfC, &map_c,
                                            row + warp * 16, col);
        }
        if (kSplit == 1)
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    if constexpr (kSplit > 1) {
        // Each block of the cluster gets the others' sums of some of the tile's columns, and adds them up in the order
        // of the slices. A thread's sums go to the same thread.
        constexpr int kSums = kN / 2 / kSplit, kStride = kWarps * 32 * 16;
        cluster_barrier(); // the stages are free
        if (warp < kWarps) {
#pragma unroll
            for (int i = 0; i < kN / 2; i += 4)
                store_at(stages + threadIdx.x * 16 + (slice * kSums + i % kSums) / 4 * kStride, i / kSums,
                         d + i);
        }
        cluster_barrier();
        if (warp < kWarps) {
            float sums[kSums] = {};
#pragma unroll
            for (int i = 0; i < kN / 2; i += 4) {
                float4 more = *(const float4*)(memory + threadIdx.x * 16 + i / 4 * kStride);
                sums[i % kSums] += more.x;
                sums[i % kSums + 1] += more.y;
                sums[i % kSums + 2] += more.z;
                sums[i % kSums + 3] += more.w;
            }
            store_sums(sums, C, row + warp * 16, col + slice * kSums * 2, M, N);
        }
    }
#endif
}

static bool describe_matrix(CUtensorMap* map, const __nv_bfloat16* data, int rows, int cols, int box_rows) {
    cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)cols * 2};
    cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)data, sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class Plan> static long long tiles_of(int M, int N) {
    return ((M - 1) / Plan::kM + 1ll) * ((N - 1) / Plan::kN + 1);
}

// False where the launch fails: where this build has no warpgroups.
template <class Plan>
static bool launch_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N,
                          int K, int blocks) {
    auto kernel = matrix_mul_bf16_hopper_kernel_optimized<Plan>;
    CUtensorMap map_a, map_b, map_c;
    if (!describe_matrix(&map_a, A, M, K, Plan::kM) || !describe_matrix(&map_b, B, K, N, 64) ||
        !describe_matrix(&map_c, C, M, N, 16))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    int tiles = (int)tiles_of<Plan>(M, N), clusters = Plan::kSplit > 1 ? tiles : min(tiles, blocks);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = Plan::kSplit;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(clusters * Plan::kSplit);
    config.blockDim = dim3(Plan::kThreads);
    config.dynamicSmemBytes = Plan::kMemory;
    config.attrs = &cluster;
    config.numAttrs = Plan::kSplit > 1;
    if (cudaLaunchKernelEx(&config, kernel, map_a, map_b, map_c, C, M, N, K, tiles) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

constexpr long long kLeast = 1 << 26; // products that are worth it

// False where this GPU or these matrices cannot have it.
static bool multiply_on_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N,
                               int K) {
    int device = 0, major = 0, blocks = 0;
    if ((long long)M * N * K < kLeast || N % 8 || K % 8 || (((size_t)A | (size_t)B | (size_t)C) & 15))
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    // The largest tiles of which nearly every multiprocessor gets one.
    auto enough = [&](long long tiles) { return tiles * 8 >= blocks * 7; };
    if (enough(tiles_of<Wide>(M, N)))
        return launch_hopper<Wide>(A, B, C, M, N, K, blocks);
    if (enough(tiles_of<Square>(M, N)))
        return launch_hopper<Square>(A, B, C, M, N, K, blocks);
    if (enough(tiles_of<Narrow>(M, N)))
        return launch_hopper<Narrow>(A, B, C, M, N, K, blocks);
    if (enough(tiles_of<Low>(M, N)))
        return launch_hopper<Low>(A, B, C, M, N, K, blocks);
    // Where all clusters of four fit at once; an H200 has room for 30.
    bool fit = tiles_of<Thin>(M, N) * Thin::kSplit * 10 <= blocks * 9ll;
    if (fit && K > (Thin::kSplit - 1) * kStep) // a step for each slice
        return launch_hopper<Thin>(A, B, C, M, N, K, blocks);
    return launch_hopper<Low>(A, B, C, M, N, K, blocks);
}

// ---- Products of which nearly every multiprocessor gets one small tile ----

constexpr int kTinyRows = 16, kTinyCols = 32, kTinyWarps = 8, kTinyStep = 32;

static __device__ void multiply_tiny(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Each warp takes steps of K straight into registers, all loads at once, and a warp's sums meet those of the others in
// shared memory. Rows are whole pieces of 16 bytes.
__global__ void __launch_bounds__(kTinyWarps * 32)
    matrix_mul_bf16_tiny_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                          int M, int N, int K) {
    __shared__ float4 sums[kTinyWarps][4][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = (N - 1) / kTinyCols + 1;
    int row = blockIdx.x / across * kTinyRows, col = blockIdx.x % across * kTinyCols;
    float d[4][4] = {};
    for (int first = warp * kTinyStep; first < K; first += kTinyWarps * kTinyStep) {
        // Which product of a fragment a lane's numbers belong to, and which of its columns, is free as long as both
        // factors agree: a lane takes eight neighbours of a row of A, and four of a row of B, one for each fragment.
        int k = first + lane % 4 * 8, c = col + lane / 4 * 4;
        uint4 a[2];
        uint2 b[8];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int r = row + lane / 4 + i * 8;
            a[i] = r < M && k < K ? *(const uint4*)(A + (size_t)r * K + k) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
            b[i] = k < K && c < N ? *(const uint2*)(B + (size_t)(k + i) * N + c) : make_uint2(0, 0);
        unsigned int x[2][4] = {{a[0].x, a[1].x, a[0].y, a[1].y}, {a[0].z, a[1].z, a[0].w, a[1].w}};
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                unsigned int y[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    uint2 u = b[half * 4 + i * 2], v = b[half * 4 + i * 2 + 1];
                    y[i] = __byte_perm(f < 2 ? u.x : u.y, f < 2 ? v.x : v.y, f % 2 ? 0x7632 : 0x5410);
                }
                multiply_tiny(d[f], x[half], y);
            }
    }
#pragma unroll
    for (int f = 0; f < 4; ++f)
        sums[warp][f][lane] = make_float4(d[f][0], d[f][1], d[f][2], d[f][3]);
    __syncthreads();
    for (int i = threadIdx.x; i < kTinyRows * kTinyCols; i += kTinyWarps * 32) {
        int r = i / kTinyCols, c = i % kTinyCols, from = r % 8 * 4 + c / 8, which = r / 8 * 2 + c / 4 % 2;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kTinyWarps; ++w)
            sum += ((const float*)&sums[w][c % 4][from])[which];
        if (row + r < M && col + c < N)
            C[(size_t)(row + r) * N + col + c] = __float2bfloat16(sum);
    }
}

constexpr long long kLeastTiny = 1 << 21; // products that are worth it

// False where it is too much work for small tiles, or too little, or rows are not as they have to be.
static bool multiply_at_once(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N,
                             int K) {
    long long tiles = ((M - 1) / kTinyRows + 1ll) * ((N - 1) / kTinyCols + 1);
    if ((long long)M * N * K < kLeastTiny || tiles > kEnoughBlocks + 8 || K > 2 * kTinyWarps * kTinyStep ||
        N % 8 || K % 8 || (((size_t)A | (size_t)B | (size_t)C) & 15))
        return false;
    matrix_mul_bf16_tiny_kernel_optimized<<<(unsigned int)tiles, kTinyWarps * 32>>>(A, B, C, M, N, K);
    return true;
}

extern "C" void matrix_mul_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                          int M, int N, int K) {
    if (multiply_at_once(A, B, C, M, N, K) || multiply_on_hopper(A, B, C, M, N, K))
        return;
    if (blocks_of<Large>(M, N) >= kEnoughBlocks)
        launch<Large>(A, B, C, M, N, K);
    else if (blocks_of<Medium>(M, N) >= kEnoughBlocks)
        launch<Medium>(A, B, C, M, N, K);
    else
        launch<Small>(A, B, C, M, N, K);
}
