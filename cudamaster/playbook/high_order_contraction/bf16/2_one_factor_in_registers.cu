// idea: Warpgroups with one factor in registers, the other kept in shared memory
// why: The contraction reads A once and writes C once, so that memory binds it, if the products keep up. In the step
//      before a block stages both factors for each tile, and waits for it. On Hopper four warps multiply 64 x 128
//      elements by one instruction (wgmma), whose left factor may lie in registers. So a thread loads 16 bytes of a
//      row of A straight into the registers that the instruction reads, with no way through shared memory. The order
//      of products in a sum is free: a thread's eight neighbours are put where the instruction wants pairs, and B's
//      elements are put in the same order, once for each block, which keeps all of its columns of B in shared memory.
//      As many blocks as multiprocessors take tiles of 64 rows in turn, three warpgroups each, which load the next
//      tile while they store the results of the present one. The heaviest case takes 26.6 µs on the H200's own clock,
//      the step before 42.8, and a copy of A and C 15. What binds it now: a warpgroup has nothing under way while it
//      multiplies, and the first tile waits for B; a ring of copies of A would go on meanwhile. GPUs before Hopper,
//      few rows, sums of few or more than 256 products, and tensors that do not have eight neighbours side by side,
//      get the step before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80
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

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS 128 * kGroups
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kGroups = 3; // warpgroups of a block
constexpr int kRows = 64;  // of A, that a warpgroup takes at a time
constexpr int kStep = 32;  // products that a thread has two vectors of

#if HAS_WARPGROUPS
// Columns of B lie in groups of eight, whose 16 bytes of eight products make a matrix of 128 bytes one behind the other.
// `leading`: bytes from a matrix to that of the next eight products.
static __device__ unsigned long long describe(unsigned int address, unsigned int leading) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(128 >> 4) << 32;
}

// d += a b, or d = a b where nothing is kept: 64 x 64 sums, 16 products each; a in registers.
static __device__ void multiply(float (&d)[32], unsigned int a0, unsigned int a1, unsigned int a2,
                                unsigned int a3, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, kept, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(keep));
}

// d += a b, or d = a b where nothing is kept: 64 x 128 sums, 16 products each; a in registers.
static __device__ void multiply(float (&d)[64], unsigned int a0, unsigned int a1, unsigned int a2,
                                unsigned int a3, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, kept, 1, 1, 0;}"
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
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(keep));
}

// The compiler may not use sums before they are there.
template <int count> static __device__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
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

// A warp's 16 rows of sums, rounded, in stores of 16 bytes.
template <int count>
static __device__ void store_sums(const float (&d)[count], __nv_bfloat16* C, long long row, long long col,
                                  int M, int N) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        long long r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int group = 0; group < count / 16; ++group) {
            unsigned int words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* pair = d + (group * 4 + i) * 4 + half * 2;
                words[i] = pack2(pair[0], pair[1]);
            }
            transpose4(words, lane);
            long long c = col + group * 32 + lane % 4 * 8;
            if (r < M && c < N)
                *(uint4*)(C + r * N + c) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

#endif

// C = A B for columns of B that shared memory has room for, and kSteps * kStep products at most. Thread q of four has
// vector 4 s + q of a row's products in step s. The first half of that instruction's products are the vectors' elements
// 0 to 3, the other half 4 to 7, in the order 0 1 of all four, 2 3 of all four.
template <int kCols, int kSteps>
__global__ void __launch_bounds__(THREADS, 1)
    high_order_contraction_bf16_hopper_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                        __nv_bfloat16* C, int rows, int b_dim, int c_dim,
                                                        int x_dim, int y_dim) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(128) uint4 columns[]; // of four words of four vectors each
    int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    int first_col = blockIdx.y * kCols, vectors = x_dim * y_dim / 8;
    // Where the thread's vectors begin in a row of A, -1 beyond the last one.
    int places[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        int vector = 4 * s + lane % 4, x = vector * 8 / y_dim;
        places[s] = vector < vectors ? x * b_dim * y_dim + vector * 8 % y_dim : -1;
    }
    uint4 a[kSteps][2]; // of rows lane / 4 and that + 8
    auto load = [&](int tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int row = tile * kRows + warp * 16 + lane / 4 + 8 * half;
            const __nv_bfloat16* from = A + ((size_t)(row / b_dim) * x_dim * b_dim + row % b_dim) * y_dim;
#pragma unroll
            for (int s = 0; s < kSteps; ++s)
                a[s][half] =
                    row < rows && places[s] >= 0 ? *(const uint4*)(from + places[s]) : make_uint4(0, 0, 0, 0);
        }
    };
    // Neighbouring tiles are different blocks'.
    int tiles = (rows - 1) / kRows + 1, tile = group * gridDim.x + blockIdx.x;
    if (tile < tiles)
        load(tile);

#pragma unroll 3
    for (int i = threadIdx.x; i < kCols * kSteps; i += kGroups * 128) {
        int col = i % kCols, s = i / kCols;
        uint4 v[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            int vector = 4 * s + q, x = vector * 8 / y_dim;
            bool there = vector < vectors && first_col + col < c_dim;
            v[q] =
                there
                    ? *(const uint4*)(B + ((size_t)x * c_dim + first_col + col) * y_dim + vector * 8 % y_dim)
                    : make_uint4(0, 0, 0, 0);
        }
        columns[(s * 4 + 0) * kCols + col] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
        columns[(s * 4 + 1) * kCols + col] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
        columns[(s * 4 + 2) * kCols + col] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
        columns[(s * 4 + 3) * kCols + col] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();

    unsigned long long b = describe((unsigned int)__cvta_generic_to_shared(columns), kCols * 16);
    for (; tile < tiles; tile += gridDim.x * kGroups) {
        float d[kCols / 2];
        hold(d);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            multiply(d, a[s][0].x, a[s][1].x, a[s][0].y, a[s][1].y, b + s * (kCols * 64 >> 4), s);
            multiply(d, a[s][0].z, a[s][1].z, a[s][0].w, a[s][1].w,
                     b + s * (kCols * 64 >> 4) + (kCols * 32 >> 4), 1);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        hold(d);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(d);
        int next = tile + gridDim.x * kGroups;
        if (next < tiles)
            load(next);
        store_sums(d, C, (long long)tile * kRows + warp * 16, first_col, rows, c_dim);
    }
#endif
}

// False where this build has no such kernel.
template <int kCols, int kSteps>
static bool launch_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int rows,
                          int b_dim, int c_dim, int x_dim, int y_dim, int blocks) {
    auto kernel = high_order_contraction_bf16_hopper_kernel_optimized<kCols, kSteps>;
    constexpr int kMemory = kCols * kSteps * kStep * (int)sizeof(__nv_bfloat16);
    if (kMemory > 48 * 1024)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
    unsigned int tiles = (rows - 1) / kRows + 1, parts = (c_dim - 1) / kCols + 1;
    dim3 grid(min(tiles, (unsigned int)blocks), parts);
    kernel<<<grid, kGroups * 128, kMemory>>>(A, B, C, rows, b_dim, c_dim, x_dim, y_dim);
    return cudaGetLastError() == cudaSuccess; // else nothing was launched
}

// False where this GPU or these tensors cannot have it.
static bool contract_on_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                               long long rows, int b_dim, int c_dim, int x_dim, int y_dim) {
    int device = 0, major = 0, blocks = 0;
    long long products = (long long)x_dim * y_dim;
    if (y_dim % 8 || c_dim % 8 || (((size_t)A | (size_t)B | (size_t)C) & 15) || products < 64 ||
        products > 256 || rows >= 1 << 30 || products * b_dim >= 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    // Each block puts all of B in order, which few tiles do not pay for.
    if (major != 9 || (rows - 1) / kRows + 1 < products * blocks / 128)
        return false;
    auto launched = products > 128 ? c_dim > 64 ? launch_hopper<128, 8> : launch_hopper<64, 8>
                    : c_dim > 64   ? launch_hopper<128, 4>
                                   : launch_hopper<64, 4>;
    return launched(A, B, C, (int)rows, b_dim, c_dim, x_dim, y_dim, blocks);
}

extern "C" void high_order_contraction_bf16_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                      __nv_bfloat16* C, int a_dim, int b_dim, int c_dim,
                                                      int x_dim, int y_dim) {
    long long rows = (long long)a_dim * b_dim;
    if (contract_on_hopper(A, B, C, rows, b_dim, c_dim, x_dim, y_dim))
        return;
    if (c_dim > Medium::kN && blocks_of<Large>(rows, c_dim) >= kEnoughBlocks)
        launch<Large>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else if (blocks_of<Medium>(rows, c_dim) >= kEnoughBlocks)
        launch<Medium>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
    else
        launch<Small>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}
