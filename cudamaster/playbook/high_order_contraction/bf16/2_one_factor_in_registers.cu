// idea: A ring of copies feeds warpgroups that have one factor in registers, the other in shared memory
// why: The contraction reads A once and writes C once, so that memory binds it, if the products keep up. In the step
//      before a block stages both factors for each tile, and waits for it. On Hopper four warps multiply 64 x 128
//      elements by one instruction (wgmma), whose left factor may lie in registers. Rows of A that have their a in
//      common are neighbours for each x, so one thread has them copied in bulk (cp.async.bulk, some kilobytes at a
//      time) into a ring of five tiles of 64 rows, long before they are needed. A thread takes eight bytes of a row
//      from there straight into the registers that the instruction reads. The order of products in a sum is free: a
//      thread's four neighbours are put where the instruction wants pairs, and B's elements are put in the same
//      order, once for each block, which keeps all of its columns of B in shared memory. As many blocks as
//      multiprocessors take tiles in turn. The heaviest case takes 23.0 µs between events on an H100, with loads
//      straight into registers and no ring 28.9, and a kernel that reads A and writes C 17.4. On an H200's own clock
//      it takes 19.8, the version without a ring 26.3. What binds it now: the first tile waits for B, and reading
//      alone, without the stores of C, takes 21.6, which is not known why; three warpgroups take 25.3, three stages
//      23.6, and tensor maps for both factors, without registers, 23.9. Other GPUs, few rows, sums of more than 256
//      products, and tensors that do not have four neighbours side by side, get the step before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
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
#define THREADS 128 * (kConsumers + 1)
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kConsumers = 2;     // warpgroups of a block that multiply
constexpr int kRows = 64;         // of A, that a warpgroup takes at a time
constexpr int kDepth = 16;        // products of an instruction
constexpr int kRoom = 227 * 1024; // shared memory of a block
constexpr int kFewest = 16;       // rows that have their a in common

// Shared memory: B in order, a ring of tiles of A, and barriers.
template <int cols, int steps> struct Ring {
    static constexpr int kCols = cols, kSteps = steps, kBytesB = cols * steps * kDepth * 2;
    static constexpr int kStageBytes = kRows * steps * kDepth * 2;
    static constexpr int kFit = (kRoom - kBytesB) / (kStageBytes + 16), kStages = kFit < 5 ? kFit : 5;
    static constexpr int kMemory = kBytesB + kStages * (kStageBytes + 16);
};

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

static __device__ void init_barrier(unsigned int barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void expect_bytes(unsigned int barrier, unsigned int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

static __device__ void arrive(unsigned int barrier) {
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

static __device__ void copy(unsigned int to, const void* from, unsigned int bytes, unsigned int barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
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

// Of a warp's 16 rows of sums the first `rows`, rounded, in stores of 16 bytes.
template <int count>
static __device__ void store_sums(const float (&d)[count], __nv_bfloat16* C, int rows, int col, int c_dim) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = lane / 4 + 8 * half;
#pragma unroll
        for (int group = 0; group < count / 16; ++group) {
            unsigned int words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float* pair = d + (group * 4 + i) * 4 + half * 2;
                words[i] = pack2(pair[0], pair[1]);
            }
            transpose4(words, lane);
            int c = col + group * 32 + lane % 4 * 8;
            if (r < rows && c < c_dim)
                *(uint4*)(C + (size_t)r * c_dim + c) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}
#endif

// A tile is 64 rows of A. Of those that have their a in common, all products of one x lie side by side, in A and in a stage. Thread q of four has products
// 16 s + 4 q to 16 s + 4 q + 3 of a row in step s: 0 and 1 are in the first half of that instruction's products, and
// 2 and 3 in the other. B's are put in the same order.
template <class Ring>
__global__ void __launch_bounds__(THREADS, 1)
    high_order_contraction_bf16_hopper_kernel_optimized(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                        __nv_bfloat16* C, int rows, int b_dim, int c_dim,
                                                        int x_dim, int y_dim) {
#if HAS_WARPGROUPS
    constexpr int kCols = Ring::kCols, kSteps = Ring::kSteps, kStages = Ring::kStages;
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char* ring = memory + Ring::kBytesB;
    unsigned int base = (unsigned int)__cvta_generic_to_shared(memory), stages = base + Ring::kBytesB,
                 full = stages + kStages * Ring::kStageBytes, empty = full + 8 * kStages;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int first_col = blockIdx.y * kCols, products = x_dim * y_dim, tiles = (rows - 1) / kRows + 1;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int stage = 0, parity = 1;
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                wait_for(empty + 8 * stage, parity);
                int first = tile * kRows, last = min(first + kRows, rows), count;
                unsigned int barrier = full + 8 * stage, to = stages + stage * Ring::kStageBytes;
                expect_bytes(barrier, (last - first) * products * 2);
                for (int row = first; row < last; row += count) {
                    count = min(b_dim - row % b_dim, last - row);
                    const __nv_bfloat16* from =
                        A + ((size_t)(row / b_dim) * x_dim * b_dim + row % b_dim) * y_dim;
                    for (int x = 0; x < x_dim; ++x)
                        copy(to + (x * kRows + row - first) * y_dim * 2, from + (size_t)x * b_dim * y_dim,
                             count * y_dim * 2, barrier);
                }
                if (++stage == kStages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    int group = warp / 4 - 1, own = warp % 4 * 16 + lane / 4;
    // Where the thread's products of a step begin in a stage, behind all rows that begin there.
    int places[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        int k = s * kDepth + lane % 4 * 4;
        places[s] = k < products ? (k / y_dim * kRows * y_dim + k % y_dim) * 2 : -1;
    }
    constexpr int kQuads = kConsumers * 32;
    int quad = (threadIdx.x - 128) / 4;
    for (int col = quad; col < kCols; col += kQuads) {
        uint2 v[kSteps];
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            int k = s * kDepth + lane % 4 * 4;
            bool there = k < products && first_col + col < c_dim;
            v[s] =
                there
                    ? *(const uint2*)(B + ((size_t)(k / y_dim) * c_dim + first_col + col) * y_dim + k % y_dim)
                    : make_uint2(0, 0);
        }
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            unsigned int* to = (unsigned int*)memory + (s * 2 * kCols + col) * 4 + lane % 4;
            to[0] = v[s].x;
            to[kCols * 4] = v[s].y;
        }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers * 128) : "memory");

    unsigned long long b = describe(base, kCols * 16);
    for (int i = group, tile; (tile = blockIdx.x + i * gridDim.x) < tiles; i += kConsumers) {
        int stage = i % kStages, left = rows - tile * kRows;
        const unsigned char* from = ring + stage * Ring::kStageBytes + own * y_dim * 2;
        uint2 a[kSteps][2];
        wait_for(full + 8 * stage, i / kStages & 1);
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                a[s][half] = own + 8 * half < left && places[s] >= 0
                                 ? *(const uint2*)(from + places[s] + half * 8 * y_dim * 2)
                                 : make_uint2(0, 0);
        }
        __syncwarp();
        if (lane == 0)
            arrive(empty + 8 * stage);
        float d[kCols / 2];
        hold(d);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
            multiply(d, a[s][0].x, a[s][1].x, a[s][0].y, a[s][1].y, b + s * (kCols * 32 >> 4), s);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        hold(d);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        hold(d);
        int first = warp % 4 * 16;
        store_sums(d, C + ((size_t)tile * kRows + first) * c_dim, left - first, first_col, c_dim);
    }
#endif
}

// False where this build has no such kernel.
template <class Ring>
static bool launch_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int rows,
                          int b_dim, int c_dim, int x_dim, int y_dim, int blocks) {
    auto kernel = high_order_contraction_bf16_hopper_kernel_optimized<Ring>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kMemory);
    dim3 grid(min((rows - 1) / kRows + 1, blocks), (c_dim - 1) / Ring::kCols + 1);
    kernel<<<grid, 128 * (kConsumers + 1), Ring::kMemory>>>(A, B, C, rows, b_dim, c_dim, x_dim, y_dim);
    return cudaGetLastError() == cudaSuccess; // else nothing was launched
}

// False where this GPU or these tensors cannot have it.
static bool contract_on_hopper(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                               long long rows, int b_dim, int c_dim, int x_dim, int y_dim) {
    int device = 0, major = 0, blocks = 0;
    long long products = (long long)x_dim * y_dim;
    // Copies are of whole 16 bytes, and of not too few of them.
    if (y_dim % 4 || (long long)b_dim * y_dim % 8 || b_dim < kFewest || c_dim % 8 ||
        (((size_t)A | (size_t)B | (size_t)C) & 15) || products > 256 || rows >= 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    // Each block puts all of B in order, which few tiles do not pay for.
    if (major != 9 || (rows - 1) / kRows + 1 < blocks)
        return false;
    auto launched = products > 128  ? c_dim > 64 ? launch_hopper<Ring<128, 16>> : launch_hopper<Ring<64, 16>>
                    : products > 16 ? c_dim > 64 ? launch_hopper<Ring<128, 8>> : launch_hopper<Ring<64, 8>>
                    : c_dim > 64    ? launch_hopper<Ring<128, 1>>
                                    : launch_hopper<Ring<64, 1>>;
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
