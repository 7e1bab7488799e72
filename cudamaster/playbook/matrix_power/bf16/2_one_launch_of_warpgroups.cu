// idea: All products in one launch, by warpgroups fed by tensor maps
// why: A warp's product of 16 x 16 fragments waits for its own loads of fragments from shared memory, and each power is
//      a launch of its own. On Hopper four warps together multiply 64 x 128 elements out of shared memory by one
//      instruction (wgmma), while one more thread has the copy engine bring the next tiles (tensor maps, eight stages,
//      a full and an empty barrier for each). A product of 1024 x 1024 is a tile of 64 x 128 for each of 128
//      multiprocessors, so that the same blocks make all products in one cooperative launch, with a barrier of the grid
//      between them. What threads stored is fenced before copies read it. The sixteenth power takes 28.3 µs on the
//      H200's own clock, and four products by cuBLAS 28.2. Tiles of 128 x 64 take 31.6, clusters of two that share what
//      they load 29.4, of four 84, for they do not all fit at once. What binds it now: each product waits about 3 µs
//      for the barrier, its first tiles and its last stores, beside 3.5 for what L2 gives. Other GPUs, one product of
//      up to 256 rows, and rows that are no multiple of 16 bytes, get the step before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kThreads = 128; // four warps, two by two
constexpr int kFragment = 16; // rows, columns and products of a fragment
constexpr int kPadding = 8;   // elements after a row of a tile
constexpr size_t kScratchBytes = sizeof(__nv_bfloat16) * 1024 * 1024;
constexpr int kEnoughBlocks = 120; // for about every multiprocessor of a large GPU to have one

__device__ uint4 scratch[kScratchBytes / sizeof(uint4)]; // a power on the way

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
    matrix_power_multiply_bf16_kernel_optimized(const __nv_bfloat16* left, const __nv_bfloat16* right,
                                                __nv_bfloat16* product, int N) {
    constexpr int kK = Tile::kK, kWarp = Tile::kWarp, kFragments = kWarp / kFragment;
    constexpr int kLoadsA = Tile::kM * kK / 8 / kThreads, kLoadsB = kK * Tile::kN / 8 / kThreads;
    constexpr int kPatchStride = kWarp + 4; // of the results on their way out, in floats
    constexpr int kTileBytes = 2 * (Tile::kElementsA + Tile::kElementsB) * (int)sizeof(__nv_bfloat16);
    constexpr int kPatchBytes = 4 * kFragment * kPatchStride * (int)sizeof(float);
    __shared__ __align__(32) unsigned char memory[kTileBytes > kPatchBytes ? kTileBytes : kPatchBytes];
    __nv_bfloat16* tile_a = (__nv_bfloat16*)memory;
    __nv_bfloat16* tile_b = tile_a + 2 * Tile::kElementsA;
    const __nv_bfloat16* A = left ? left : (const __nv_bfloat16*)scratch;
    const __nv_bfloat16* B = right ? right : (const __nv_bfloat16*)scratch;
    __nv_bfloat16* C = product ? product : (__nv_bfloat16*)scratch;
    unsigned int blocks_across = (N - 1) / Tile::kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * Tile::kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * Tile::kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = Tile::kM / kLoadsA, kStepB = kK / kLoadsB;
    int row_a = threadIdx.x / (kK / 8), k_a = threadIdx.x % (kK / 8) * 8;
    int k_b = threadIdx.x / (Tile::kN / 8), col_b = threadIdx.x % (Tile::kN / 8) * 8;
    const __nv_bfloat16* from_a = A + (first_row + row_a) * N + k_a;
    const __nv_bfloat16* from_b = B + (size_t)k_b * N + first_col + col_b;
    int rows_left = N - first_row - row_a, cols_left = N - first_col - col_b, k_left = N;
    uint4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] =
                load8<kAligned>(from_a + (size_t)i * kStepA * N, i * kStepA < rows_left ? k_left - k_a : 0);
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
            if (row < N)
                store8<kAligned>(C + row * N + col, patch + i / kWarp * kPatchStride + i % kWarp, N - col);
        }
        __syncwarp();
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile>
static void launch(const __nv_bfloat16* left, const __nv_bfloat16* right, __nv_bfloat16* product, int N) {
    bool aligned = N % 8 == 0 && (((size_t)left | (size_t)right | (size_t)product) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>(N, N);
    if (aligned)
        matrix_power_multiply_bf16_kernel_optimized<Tile, true>
            <<<blocks, kThreads>>>(left, right, product, N);
    else
        matrix_power_multiply_bf16_kernel_optimized<Tile, false>
            <<<blocks, kThreads>>>(left, right, product, N);
}

// product = left * right. A null pointer stands for the scratch array.
static void multiply_elsewhere(const __nv_bfloat16* left, const __nv_bfloat16* right, __nv_bfloat16* product,
                               int N) {
    if (blocks_of<Large>(N, N) >= kEnoughBlocks)
        launch<Large>(left, right, product, N);
    else if (blocks_of<Medium>(N, N) >= kEnoughBlocks)
        launch<Medium>(left, right, product, N);
    else
        launch<Small>(left, right, product, N);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Plan::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kOneProduct =
    256; // rows up to which a cooperative launch costs more than it gains for one product
[[maybe_unused]] constexpr int kStep = 64; // products at a time: a row of 128 bytes, as wide as a swizzle
[[maybe_unused]] constexpr int kBoxBytes = 64 * 128; // both factors come in boxes of 64 rows of that

template <int consumers, int n, int stages> struct Plan {
    static constexpr int kConsumers = consumers, kM = 64 * consumers, kN = n, kStages = stages;
    static constexpr int kThreads = 128 * consumers + 32;
    static constexpr int kBytesA = kM * 128, kBytesB = n * 128, kStageBytes = kBytesA + kBytesB;
    static constexpr int kMemory = stages * (kStageBytes + 16) + 1024;
};
using Wide = Plan<1, 128, 8>;
using Narrow = Plan<1, 64, 8>;

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

// A box of a matrix, from column and row on.
static __device__ void load_box(unsigned int to, const CUtensorMap* map, int column, int row,
                                unsigned int barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

// Where a factor begins in shared memory, 128 bytes swizzled.
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

// Powers are made by squaring, and by a product with A after that where the bit of P is set.
template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    matrix_power_bf16_hopper_kernel_optimized(const __grid_constant__ CUtensorMap map_of_a,
                                              const __grid_constant__ CUtensorMap map_of_b,
                                              const __grid_constant__ CUtensorMap map_of_buffer,
                                              __nv_bfloat16* B, __nv_bfloat16* buffer, int N, int P, int bits,
                                              int products) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kStages = Plan::kStages, kConsumers = Plan::kConsumers;
    unsigned int stages = shared_address(memory), full = stages + kStages * Plan::kStageBytes,
                 empty = full + 8 * kStages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, kConsumers * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    int across = (N - 1) / Plan::kN + 1, tiles = ((N - 1) / Plan::kM + 1) * across;
    int steps = (N - 1) / kStep + 1, stage = 0;
    unsigned int parity = 0;
    auto next = [&]() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    };
    // One thread of the last warp has the copies made. It fills a stage when all who read it are done with it.
    auto load_tiles = [&](const CUtensorMap* left, const CUtensorMap* right) {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int row = tile / across * Plan::kM, col = tile % across * Plan::kN;
            for (int step = 0; step < steps; ++step, next()) {
                wait_for(empty + 8 * stage, parity ^ 1);
                expect_bytes(full + 8 * stage, Plan::kStageBytes);
                unsigned int to = stages + stage * Plan::kStageBytes;
                for (int i = 0; i < kConsumers; ++i, to += kBoxBytes)
                    load_box(to, left, step * kStep, row + i * 64, full + 8 * stage);
                for (int i = 0; i < Plan::kN; i += 64, to += kBoxBytes)
                    load_box(to, right, col + i, step * kStep, full + 8 * stage);
            }
        }
    };
    auto multiply_tiles = [&](__nv_bfloat16* product) {
        int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        auto release = [&](int of) {
            if (lane == 0)
                arrive(empty + 8 * of);
        };
        float d[Plan::kN / 2];
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int row = tile / across * Plan::kM, col = tile % across * Plan::kN;
            int before = 0;
            for (int step = 0; step < steps; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes;
                unsigned long long a = describe(from + group * kBoxBytes, 16, 1024);
                unsigned long long b = describe(from + Plan::kBytesA, kBoxBytes, 1024);
                hold(d);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply(d, a + k * (32 >> 4), b + k * (2048 >> 4), step > 0 || k > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(d);
                // One group stays in flight; what the one before it read is free.
                wait_products<1>();
                if (step > 0)
                    release(before);
                before = stage;
            }
            wait_products<0>();
            hold(d);
            release(before);
            store_sums(d, product, row + group * 64 + warp * 16, col, N, N);
        }
    };

    const CUtensorMap* power = &map_of_a;
    for (int bit = bits - 2; bit >= 0; --bit) {
        for (int factor = 0; factor <= (P >> bit) % 2; ++factor) {
            bool to_b = --products % 2 == 0; // so that the last one is in B
            if (threadIdx.x < 128 * kConsumers)
                multiply_tiles(to_b ? B : buffer);
            else if (threadIdx.x == 128 * kConsumers)
                load_tiles(power, factor == 0 ? power : &map_of_a);
            power = to_b ? &map_of_b : &map_of_buffer;
            if (products > 0) {
                // Threads have stored what the copy engine reads next.
                asm volatile("fence.proxy.async;" ::: "memory");
                __syncwarp();
                cooperative_groups::this_grid().sync();
                asm volatile("fence.proxy.async;" ::: "memory");
            }
        }
    }
#endif
}

static bool describe_matrix(CUtensorMap* map, const __nv_bfloat16* data, int N) {
    cuuint64_t sizes[2] = {(cuuint64_t)N, (cuuint64_t)N}, strides[1] = {(cuuint64_t)N * 2};
    cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)data, sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class Plan> static int tiles_of(int N) {
    return ((N - 1) / Plan::kM + 1) * ((N - 1) / Plan::kN + 1);
}

// False where this build has no such kernel, or there is no room for all blocks at once.
template <class Plan>
static bool launch_hopper(const __nv_bfloat16* A, __nv_bfloat16* B, __nv_bfloat16* buffer, int N, int P,
                          int bits, int products, int blocks) {
    auto kernel = matrix_power_bf16_hopper_kernel_optimized<Plan>;
    CUtensorMap map_of_a, map_of_b, map_of_buffer;
    if (!describe_matrix(&map_of_a, A, N) || !describe_matrix(&map_of_b, B, N) ||
        !describe_matrix(&map_of_buffer, buffer, N))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    cudaLaunchAttribute cooperative = {};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(min(tiles_of<Plan>(N), blocks));
    config.blockDim = dim3(Plan::kThreads);
    config.dynamicSmemBytes = Plan::kMemory;
    config.attrs = &cooperative;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, kernel, map_of_a, map_of_b, map_of_buffer, B, buffer, N, P, bits,
                           products) == cudaSuccess)
        return true;
    cudaGetLastError(); // nothing was launched
    return false;
}

// False where this GPU or these matrices cannot have it.
static bool power_on_hopper(const __nv_bfloat16* A, __nv_bfloat16* B, __nv_bfloat16* buffer, int N, int P,
                            int bits, int products) {
    int device = 0, major = 0, blocks = 0;
    if (N % 8 || (((size_t)A | (size_t)B) & 15) || (P == 2 && N <= kOneProduct))
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    void* fixed = nullptr;
    if (!buffer && cudaGetSymbolAddress(&fixed, scratch) != cudaSuccess)
        return false;
    __nv_bfloat16* room = buffer ? buffer : (__nv_bfloat16*)fixed;
    if (tiles_of<Narrow>(N) <= blocks)
        return launch_hopper<Narrow>(A, B, room, N, P, bits, products, blocks);
    return launch_hopper<Wide>(A, B, room, N, P, bits, products, blocks);
}

extern "C" void matrix_power_bf16_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int N, int P) {
    size_t bytes = sizeof(__nv_bfloat16) * N * N;
    if (P == 1) {
        cudaMemcpyAsync(B, A, bytes, cudaMemcpyDeviceToDevice);
        return;
    }
    __nv_bfloat16* buffer = nullptr; // the scratch array, where it is large enough
    if (P > 2 && bytes > kScratchBytes)
        cudaMallocAsync(&buffer, bytes, 0);
    int bits = 0, products = -2; // one for every bit, and one more for every set bit, but the first
    for (int rest = P; rest > 0; rest /= 2) {
        products += 1 + rest % 2;
        ++bits;
    }
    const __nv_bfloat16* power = A;
    bool made = power_on_hopper(A, B, buffer, N, P, bits, products);
    for (int bit = bits - 2; bit >= 0 && !made; --bit) {
        for (int factor = 0; factor <= (P >> bit) % 2; ++factor) {
            __nv_bfloat16* to = --products % 2 == 0 ? B : buffer; // so that the last one is in B
            multiply_elsewhere(power, factor == 0 ? power : A, to, N);
            power = to;
        }
    }
    if (buffer)
        cudaFreeAsync(buffer, 0);
}
