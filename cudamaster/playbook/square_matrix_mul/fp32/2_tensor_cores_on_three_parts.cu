// idea: Tensor cores on numbers in three parts
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply bf16 fifteen
//      times as fast. A number of fp32 is exactly the sum of three of bf16: the number rounded, what that leaves
//      rounded, and the rest. Of the nine products of two such sums six count; the others are below 2^-25 of the first.
//      One launch takes a matrix apart, and warpgroups multiply the parts (wgmma), fed by tensor maps and a ring of
//      stages that the blocks of a cluster fill for each other. Tensor cores cut off what they add, so the first
//      products have sums of their own, which are added in fp32 after every 32, while the other five are made. bf16 has
//      the exponents of fp32: numbers of any size may meet. Parts below 1e-38 are lost, so that numbers below 1e-33
//      keep fewer than 24 bits, and an infinite number makes NaN where fp32 may have infinity. Rows of A come in groups
//      whose parts fit L2. Where a tile for each multiprocessor is all there is to do, one launch does it: a warpgroup
//      takes the rows of A apart in shared memory, those that multiply take the columns of B apart in their registers.
//      Where there is less, four warpgroups take turns at the steps of a tile of 64 x 64, or two at one of 128 x 64;
//      each takes numbers of A and B apart for itself while others multiply, and sums of slices of K meet in L2, where
//      the last to come adds them up in a fixed order. Products of at most 128 tiles of 16 x 32 take them by mma.sync,
//      all loads at once. Smaller products, small ones whose rows are no multiple of 16 bytes, and other GPUs, take the
//      step before. At 4096 an H200 takes 1081 µs where the step before takes 3329. What binds it now: its tensor
//      cores; from 64 to 256 rows, which are 1.6 to 1.7 times as fast as cuBLAS and not twice, what surrounds them:
//      numbers that go to shared memory and back before they multiply.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
#include <cuda_bf16.h>
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

static void multiply_elsewhere(const float* A, const float* B, float* C, int M) {
    if (blocks_of<Large>(M, M) >= kEnoughBlocks)
        launch<Large>(A, B, C, M);
    else if (blocks_of<Medium>(M, M) >= kEnoughBlocks)
        launch<Medium>(A, B, C, M);
    else
        launch<Small>(A, B, C, M);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Plan::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kStep = 32;                               // of K, at a time
[[maybe_unused]] constexpr int kBoxBytes = kStep * 128; // of B: so many rows of 64 elements
// Tiles across that are made one below the other, so that L2 keeps their part of B.
[[maybe_unused]] constexpr int kBand = 8;
constexpr int kParts = 3;
constexpr int kRoomA = 1 << 23, kRoomB = 1 << 24; // elements

__device__ __align__(1024) __nv_bfloat16 parts_of_a[kParts][kRoomA], parts_of_b[kParts][kRoomB];

// Blocks of a cluster share tiles of B along M, and of A along N.
template <int along_m, int along_n> struct Plan {
    static constexpr int kConsumers = 2, kM = 64 * kConsumers, kN = 128, kStages = 4;
    static constexpr int kAlongM = along_m, kAlongN = along_n, kShare = along_m * along_n;
    static constexpr int kThreads = 128 * (kConsumers + 1);
    static constexpr int kBytesA = kM * kStep * 2, kBytesB = kN * kStep * 2;
    static constexpr int kStageBytes = kParts * (kBytesA + kBytesB),
                         kMemory = kStages * (kStageBytes + 16) + 1024;
};
using Square = Plan<2, 1>;

// A number rounded to bf16, as bits of fp32; the largest are cut off and do not become infinite.
__device__ unsigned int upper_part(float value) {
    unsigned int bits = __float_as_uint(value), rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return ((rounded & 0x7f800000u) == 0x7f800000u ? bits : rounded) & 0xffff0000u;
}

// Eight neighbours of a row, and zeros beyond its end, each in three parts: what is left of it, rounded, three times.
__global__ void square_matrix_mul_split_kernel_optimized(const float* from, int rows, int cols,
                                                         int from_stride, __nv_bfloat16* to, int to_stride,
                                                         size_t part) {
    int groups = to_stride / 8;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)rows * groups;
         i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / groups;
        int col = (int)(i % groups) * 8;
        const float* numbers = from + row * from_stride + col;
        float values[8];
        if (from_stride % 4 == 0 && ((size_t)from & 15) == 0 && col + 8 <= cols) {
            *(float4*)values = *(const float4*)numbers;
            *(float4*)(values + 4) = *(const float4*)(numbers + 4);
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j)
                values[j] = col + j < cols ? numbers[j] : 0.0f;
        }
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            unsigned int words[4];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                unsigned int bits = upper_part(values[j]);
                words[j / 2] = j % 2 ? words[j / 2] | bits : bits >> 16;
                values[j] -= __uint_as_float(bits);
            }
            *(uint4*)(to + p * part + row * to_stride + col) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

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

// Arrives at the same barrier of another block of the cluster. Only what products have read is handed over, so the
// scope can be the block's: that of the cluster costs a fence of all memory each time.
static __device__ void arrive_at(unsigned int barrier, unsigned int block) {
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}

static __device__ void wait_for(unsigned int barrier, unsigned int parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// A box of a part, from column and row on, into the same place of all `blocks` (bits) of the cluster.
static __device__ void load_box(unsigned int to, const CUtensorMap* map, int column, int row, int part,
                                unsigned int barrier, unsigned int blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(part), "r"(barrier), "h"((unsigned short)blocks)
        : "memory");
}

static __device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

// Where a factor begins in its block's shared memory (the address has the block's rank above that). A has K side by side, 64
// bytes swizzled, eight rows a group; B has its columns side by side, 128 bytes swizzled, 64 of them a box, eight rows of K
// a group.
static __device__ unsigned long long describe_a(unsigned int address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 |
           (unsigned long long)(512 >> 4) << 32 | 2ull << 62;
}
static __device__ unsigned long long describe_b(unsigned int address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(kBoxBytes >> 4) << 16 |
           (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
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

// A warp's 16 rows of sums, a lane's pairs each.
static __device__ void store_sums(const float (&d)[64], float* C, int row, int col, int M, int N,
                                  int stride) {
    int lane = threadIdx.x % 32;
    bool pairs = stride % 2 == 0 && ((size_t)C & 7) == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            int c = col + i * 8 + lane % 4 * 2;
            float* to = C + (size_t)r * stride + c;
            if (r < M && c + 1 < N && pairs) {
                *(float2*)to = make_float2(d[i * 4 + half * 2], d[i * 4 + half * 2 + 1]);
            } else if (r < M) {
                if (c < N)
                    to[0] = d[i * 4 + half * 2];
                if (c + 1 < N)
                    to[1] = d[i * 4 + half * 2 + 1];
            }
        }
    }
}
#endif

// Tiles of the cluster's blocks: the first row and column of this block's tile number `tile` of the cluster's.
template <class Plan> static __device__ void place_of(int tile, int block, int M, int N, int* row, int* col) {
    int down = (M - 1) / (Plan::kM * Plan::kAlongM) + 1, across = (N - 1) / (Plan::kN * Plan::kAlongN) + 1;
    int band = tile / (down * kBand), within = tile % (down * kBand);
    int width = min(kBand, across - band * kBand);
    *row = (within / width * Plan::kAlongM + block % Plan::kAlongM) * Plan::kM;
    *col = ((band * kBand + within % width) * Plan::kAlongN + block / Plan::kAlongM) * Plan::kN;
}

template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    square_matrix_mul_parts_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                             const __grid_constant__ CUtensorMap map_b, float* C, int M,
                                             int N, int K, int stride, int tiles) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kAlongM = Plan::kAlongM, kAlongN = Plan::kAlongN, kShare = Plan::kShare,
                  kStages = Plan::kStages;
    constexpr int kPartBytes = Plan::kBytesA + Plan::kBytesB;
    unsigned int stages = shared_address(memory), full = stages + kStages * Plan::kStageBytes,
                 empty = full + 8 * kStages;
    int block = blockIdx.x % kShare, cluster = blockIdx.x / kShare, clusters = gridDim.x / kShare;
    int steps = (K - 1) / kStep + 1;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, Plan::kConsumers * 4 * (kAlongM + kAlongN - 1));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();

    int row, col, stage = 0;
    unsigned int parity = 0;
    int m = block % kAlongM, n = block / kAlongM;
    auto next = [&]() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    };
    if (threadIdx.x < 128) {
        // One thread has the copies made. It fills a stage when all who read it are done with it, here and in the
        // blocks that get a share of what is loaded here.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            unsigned int row_of_blocks = 0, column_of_blocks = 0;
            for (int i = 0; i < kAlongN; ++i)
                row_of_blocks |= 1u << (m + kAlongM * i);
            for (int i = 0; i < kAlongM; ++i)
                column_of_blocks |= 1u << (i + kAlongM * n);
            constexpr int kRows = Plan::kM / kAlongN, kBoxes = Plan::kN / 64 / kAlongM;
            for (int tile = cluster; tile < tiles; tile += clusters) {
                place_of<Plan>(tile, block, M, N, &row, &col);
                for (int step = 0; step < steps; ++step, next()) {
                    wait_for(empty + 8 * stage, parity ^ 1);
                    expect_bytes(full + 8 * stage, Plan::kStageBytes);
                    for (int part = 0; part < kParts; ++part) {
                        unsigned int to = stages + stage * Plan::kStageBytes + part * kPartBytes;
                        load_box(to + n * kRows * kStep * 2, &map_a, step * kStep, row + n * kRows, part,
                                 full + 8 * stage, row_of_blocks);
                        for (int i = m * kBoxes; i < (m + 1) * kBoxes; ++i)
                            load_box(to + Plan::kBytesA + i * kBoxBytes, &map_b, col + i * 64, step * kStep,
                                     part, full + 8 * stage, column_of_blocks);
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        // Lanes tell the blocks that load what this one reads: those of its row and of its column.
        int tell = -1;
        if (lane < kAlongM)
            tell = lane + kAlongM * n;
        else if (lane < kAlongM + kAlongN - 1)
            tell = m + kAlongM * (lane - kAlongM + (lane - kAlongM >= n));
        auto release = [&](int of) {
            if (tell >= 0)
                arrive_at(empty + 8 * of, tell);
        };
        float large[64], small[64], sums[64];
        for (int tile = cluster; tile < tiles; tile += clusters) {
            place_of<Plan>(tile, block, M, N, &row, &col);
#pragma unroll
            for (int i = 0; i < 64; ++i)
                sums[i] = 0.0f;
            int before = 0;
            for (int step = 0; step < steps; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes;
                unsigned long long a = describe_a(from + group * 64 * kStep * 2);
                unsigned long long b = describe_b(from + Plan::kBytesA);
                // The products of the upper parts, and their sums in fp32 while the others are under way.
                hold(large);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply(large, a + k * (32 >> 4), b + k * (2048 >> 4), k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(large);
                wait_products<1>();
                hold(small);
                if (step > 0)
                    release(before);
                before = stage;
                // The smallest first. They are 2^-8 of the others, so that what is cut off here does not count.
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                int keep = step;
#pragma unroll
                for (int both = kParts - 1; both > 0; --both)
#pragma unroll
                    for (int part = 0; part <= both; ++part)
#pragma unroll
                        for (int k = 0; k < kStep / 16; ++k) {
                            multiply(small, a + ((part * kPartBytes + k * 32) >> 4),
                                     b + (((both - part) * kPartBytes + k * 2048) >> 4), keep);
                            keep = 1;
                        }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(small);
                wait_products<1>();
                hold(large);
#pragma unroll
                for (int i = 0; i < 64; ++i)
                    sums[i] += large[i];
            }
            wait_products<0>();
            hold(small);
            release(before);
#pragma unroll
            for (int i = 0; i < 64; ++i)
                sums[i] += small[i];
            store_sums(sums, C, row + group * 64 + warp * 16, col, M, N, stride);
        }
    }
    cluster_barrier(); // nobody leaves while others arrive here
#endif
}

static bool describe_parts(CUtensorMap* map, void* data, int rows, int cols, int stride, int room,
                           int box_rows, int box_cols, CUtensorMapSwizzle swizzle) {
    cuuint64_t sizes[3] = {(cuuint64_t)cols, (cuuint64_t)rows, kParts};
    cuuint64_t strides[2] = {(cuuint64_t)stride * 2, (cuuint64_t)room * 2};
    cuuint32_t box[3] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows, 1}, steps[3] = {1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class Plan> static int tiles_of(int M, int N) {
    return ((M - 1) / (Plan::kM * Plan::kAlongM) + 1) * ((N - 1) / (Plan::kN * Plan::kAlongN) + 1);
}

static void take_apart(const float* from, int rows, int cols, int from_stride, void* to, int to_stride,
                       int room, int blocks) {
    square_matrix_mul_split_kernel_optimized<<<blocks * 8, 256>>>(
        from, rows, cols, from_stride, (__nv_bfloat16*)to, to_stride, (size_t)room);
}

// C = A B, for parts of matrices that are as large as there is room for; false where this build cannot.
template <class Plan>
static bool multiply_parts(const float* A, const float* B, float* C, int M, int N, int K, int blocks) {
    auto kernel = square_matrix_mul_parts_kernel_optimized<Plan>;
    cudaFuncAttributes built;
    void *parts_a, *parts_b;
    int stride_a = (K + 7) / 8 * 8, rows = kRoomA / stride_a / 256 * 256, cols = kRoomB / K / 256 * 256;
    if (rows == 0 || cols == 0 || cudaFuncGetAttributes(&built, kernel) != cudaSuccess ||
        built.maxThreadsPerBlock < Plan::kThreads ||
        cudaGetSymbolAddress(&parts_a, parts_of_a) != cudaSuccess ||
        cudaGetSymbolAddress(&parts_b, parts_of_b) != cudaSuccess)
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = Plan::kShare;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks / Plan::kShare * Plan::kShare);
    config.blockDim = dim3(Plan::kThreads);
    config.dynamicSmemBytes = Plan::kMemory;
    config.attrs = &cluster;
    config.numAttrs = 1;
    // Multiprocessors that are no group of a cluster's size stay without one: no block is to wait for another to end.
    int resident = 0;
    if (cudaOccupancyMaxActiveClusters(&resident, kernel, &config) != cudaSuccess || resident == 0)
        return false;
    for (int first_col = 0; first_col < N; first_col += cols) {
        int n = min(cols, N - first_col), stride_b = (n + 7) / 8 * 8;
        take_apart(B + first_col, K, n, N, parts_b, stride_b, kRoomB, blocks);
        for (int first_row = 0; first_row < M; first_row += rows) {
            int m = min(rows, M - first_row);
            if (first_col == 0 || M > rows)
                take_apart(A + (size_t)first_row * K, m, K, K, parts_a, stride_a, kRoomA, blocks);
            CUtensorMap map_a, map_b;
            if (!describe_parts(&map_a, parts_a, m, K, stride_a, kRoomA, Plan::kM / Plan::kAlongN, kStep,
                                CU_TENSOR_MAP_SWIZZLE_64B) ||
                !describe_parts(&map_b, parts_b, K, n, stride_b, kRoomB, kStep, 64,
                                CU_TENSOR_MAP_SWIZZLE_128B))
                return false;
            int tiles = tiles_of<Plan>(m, n);
            config.gridDim = dim3(min(tiles, resident) * Plan::kShare);
            cudaLaunchKernelEx(&config, kernel, map_a, map_b, C + (size_t)first_row * N + first_col, m, n, K,
                               N, tiles);
        }
    }
    return true;
}

// ---- The same where it is too little work for a launch of its own to take matrices apart ----

// A block makes tiles of kM x kN elements of C. Those of a cluster make slices of the same tile's products.
template <int m, int groups, int split, int stages> struct OnTheWay {
    static constexpr int kM = m, kGroups = groups, kN = 64 * groups, kSplit = split, kStages = stages;
    static constexpr int kAlongM = 1, kAlongN = 1, kThreads = 128 + 128 * groups;
    static constexpr int kBytesA = kM * kStep * 4, kBytesB = kN * kStep * 4, kPartBytes = kM * kStep * 2;
    static constexpr int kStageBytes = kBytesA + kBytesB + kParts * kPartBytes;
    static constexpr int kMemory = stages * (kStageBytes + 24);
    static constexpr int kRegisters = 224;
    static constexpr int kAhead =
        stages / 2; // steps by which copies begin before their numbers are taken apart
    static_assert(split == 1 || kM * kN * 4 <= stages * kStageBytes, "sums lie where the stages were");
};
using Whole = OnTheWay<128, 2, 1, 4>;
using Halves = OnTheWay<128, 2, 2, 4>;

#if HAS_WARPGROUPS
static __device__ void arrive_here(unsigned int barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ void load_numbers(unsigned int to, const CUtensorMap* map, int column, int row,
                                    unsigned int barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

static __device__ unsigned int pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned int*)&pair;
}

// Two numbers in three parts each: what is left of them, rounded, three times. The largest do not become infinite.
static __device__ void three_parts(float low, float high, unsigned int* upper, unsigned int* middle,
                                   unsigned int* lower) {
    asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(*upper) : "f"(high), "f"(low));
    low -= __uint_as_float(*upper << 16), high -= __uint_as_float(*upper & 0xffff0000u);
    *middle = pack2(low, high);
    low -= __uint_as_float(*middle << 16), high -= __uint_as_float(*middle & 0xffff0000u);
    *lower = pack2(low, high);
}

// d += a b, or d = a b where nothing is kept: 64 x 64 sums, 16 products each, a in registers.
static __device__ void multiply(float (&d)[32], const unsigned int (&a)[4], unsigned long long b, int keep) {
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
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// d += a b, or d = a b where nothing is kept: 64 x 128 sums, 16 products each, a in registers.
static __device__ void multiply(float (&d)[64], const unsigned int (&a)[4], unsigned long long b, int keep) {
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
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

static __device__ void hold(unsigned int (&a)[kStep / 16][kParts][4]) {
#pragma unroll
    for (int i = 0; i < kStep / 16 * kParts * 4; ++i)
        asm volatile("" : "+r"(a[i / 12][i / 4 % kParts][i % 4])::"memory");
}

static __device__ void store_at(unsigned int address, unsigned int block, const float* values) {
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};}" ::"r"(address),
                 "r"(block), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
}

// A thread's sums: two columns of C, and of each eight rows two.
template <int count>
static __device__ void store_columns(const float (&d)[count], float* C, int row, int col, int M, int N) {
    int lane = threadIdx.x % 32, c = col + lane / 4 * 2;
#pragma unroll
    for (int i = 0; i < count; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            int r = row + i * 2 + lane % 4 * 2 + j;
            if (r < M && c < N)
                *(float2*)(C + (size_t)r * N + c) = make_float2(d[i + j], d[i + 2 + j]);
        }
    }
}
#endif

template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    square_matrix_mul_on_the_way_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                                  const __grid_constant__ CUtensorMap map_b, float* C, int M,
                                                  int N, int K, int tiles) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kM = Plan::kM, kN = Plan::kN, kSplit = Plan::kSplit, kStages = Plan::kStages;
    constexpr int kPartBytes = Plan::kPartBytes;
    unsigned int stages = shared_address(memory), full = stages + kStages * Plan::kStageBytes,
                 apart = full + 8 * kStages, empty = apart + 8 * kStages;
    int slice = blockIdx.x % kSplit, cluster = blockIdx.x / kSplit, clusters = gridDim.x / kSplit;
    int steps = (K - 1) / kStep + 1, first = steps * slice / kSplit,
        count = steps * (slice + 1) / kSplit - first;
    int total = ((tiles - 1 - cluster) / clusters + 1) * count; // steps of all tiles of this block
    int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(apart + 8 * i, 4);
            init_barrier(empty + 8 * i, 4 * Plan::kGroups);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    int row, col;
    if (group == 0) {
        // One thread has the copies made, into a stage that all have read. All take the numbers of A apart.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        int load_tile = cluster, load_step = 0, load_stage = 0, stage = 0, r = threadIdx.x % kM;
        unsigned int load_parity = 1, parity = 0;
        auto load = [&]() {
            if (load_tile >= tiles)
                return;
            if (load_step == 0)
                place_of<Plan>(load_tile, 0, M, N, &row, &col);
            unsigned int to = stages + load_stage * Plan::kStageBytes, barrier = full + 8 * load_stage;
            wait_for(empty + 8 * load_stage, load_parity);
            expect_bytes(barrier, Plan::kBytesA + Plan::kBytesB);
            load_numbers(to, &map_a, (first + load_step) * kStep, row, barrier);
#pragma unroll
            for (int i = 0; i < kN / 32; ++i)
                load_numbers(to + Plan::kBytesA + i * kStep * 128, &map_b, col + i * 32,
                             (first + load_step) * kStep, barrier);
            if (++load_stage == kStages) {
                load_stage = 0;
                load_parity ^= 1;
            }
            if (++load_step == count) {
                load_step = 0;
                load_tile += clusters;
            }
        };
        if (threadIdx.x == 0)
            for (int t = 0; t < Plan::kAhead; ++t)
                load();
        for (int t = 0; t < total; ++t) {
            if (threadIdx.x == 0)
                load();
            __syncwarp();
            wait_for(full + 8 * stage, parity);
            unsigned char* from = memory + stage * Plan::kStageBytes;
            unsigned char* to = from + Plan::kBytesA + Plan::kBytesB;
#pragma unroll
            for (int j = 0; j < kStep / 8 * kM / 128; ++j) {
                int i = j * (128 / kM) + threadIdx.x / kM;
                float4 u = *(const float4*)(from + r * 128 + (((2 * i) ^ (r % 8)) * 16));
                float4 v = *(const float4*)(from + r * 128 + (((2 * i + 1) ^ (r % 8)) * 16));
                uint4 upper, middle, lower;
                three_parts(u.x, u.y, &upper.x, &middle.x, &lower.x);
                three_parts(u.z, u.w, &upper.y, &middle.y, &lower.y);
                three_parts(v.x, v.y, &upper.z, &middle.z, &lower.z);
                three_parts(v.z, v.w, &upper.w, &middle.w, &lower.w);
                unsigned char* there = to + r * 64 + ((i ^ (r / 2 % 4)) * 16);
                *(uint4*)there = upper;
                *(uint4*)(there + kPartBytes) = middle;
                *(uint4*)(there + 2 * kPartBytes) = lower;
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (lane == 0)
                arrive_here(apart + 8 * stage);
            if (++stage == kStages) {
                stage = 0;
                parity ^= 1;
            }
        }
        if (kSplit > 1) {
            cluster_barrier();
            cluster_barrier();
        }
    } else {
        // The products of this group's 64 columns of B, out of registers, with the rows of A.
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Plan::kRegisters));
        float large[kM / 2], small[kM / 2], sums[kM / 2];
        unsigned int b[kStep / 16][kParts][4];
        // A thread's two columns of B in a box of 32, and the rows 0 and 1, 2 and 3, 4 and 5, or 6 and 7 of eight.
        int within = warp % 2 * 16 + lane / 4 * 2, k = lane % 4 * 2;
        const unsigned char* numbers = memory + Plan::kBytesA + ((group - 1) * 2 + warp / 2) * kStep * 128 +
                                       k * 128 + ((within / 4) ^ k) * 16 + within % 4 * 4;
        int odd = 128 + (((within / 4) ^ (k + 1)) - ((within / 4) ^ k)) * 16;
        int stage = 0;
        unsigned int parity = 0;
        for (int tile = cluster; tile < tiles; tile += clusters) {
#pragma unroll
            for (int i = 0; i < kM / 2; ++i)
                sums[i] = 0.0f;
            for (int step = 0; step < count; ++step) {
                wait_for(full + 8 * stage, parity);
                const unsigned char* from = numbers + stage * Plan::kStageBytes;
#pragma unroll
                for (int k = 0; k < kStep; k += 8) {
                    float2 u = *(const float2*)(from + k * 128), v = *(const float2*)(from + k * 128 + odd);
                    auto& to = b[k / 16];
                    int i = k / 8 % 2 * 2;
                    three_parts(u.x, v.x, &to[0][i], &to[1][i], &to[2][i]);
                    three_parts(u.y, v.y, &to[0][i + 1], &to[1][i + 1], &to[2][i + 1]);
                }
                wait_for(apart + 8 * stage, parity);
                unsigned long long a =
                    describe_a(stages + stage * Plan::kStageBytes + Plan::kBytesA + Plan::kBytesB);
                // The products of the upper parts, and their sums in fp32 while the others are under way.
                hold(large);
                hold(small);
                hold(b);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply(large, b[k][0], a + k * (32 >> 4), k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // The smallest first. They are 2^-8 of the others, so that what is cut off here does not count.
                int keep = step;
#pragma unroll
                for (int both = kParts - 1; both > 0; --both)
#pragma unroll
                    for (int part = 0; part <= both; ++part)
#pragma unroll
                        for (int k = 0; k < kStep / 16; ++k) {
                            multiply(small, b[k][part], a + (((both - part) * kPartBytes + k * 32) >> 4),
                                     keep);
                            keep = 1;
                        }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(large);
                hold(small);
                wait_products<1>();
                hold(large);
#pragma unroll
                for (int i = 0; i < kM / 2; ++i)
                    sums[i] += large[i];
                wait_products<0>();
                hold(small);
                hold(b);
                __syncwarp(); // one lane tells for all
                if (lane == 0)
                    arrive_here(empty + 8 * stage);
                if (++stage == kStages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
#pragma unroll
            for (int i = 0; i < kM / 2; ++i)
                sums[i] += small[i];
            place_of<Plan>(tile, 0, M, N, &row, &col);
            col += (group - 1) * 64 + warp * 16;
            if (kSplit == 1)
                store_columns(sums, C, row, col, M, N);
        }
        if constexpr (kSplit > 1) {
            // Each block of the cluster gets the others' sums of some of the tile's rows, and adds them up in the order
            // of the slices. A thread's sums go to the same thread.
            constexpr int kSums = kM / 2 / kSplit, kStride = Plan::kGroups * 128 * 16;
            int thread = threadIdx.x - 128;
            cluster_barrier(); // the stages are free
#pragma unroll
            for (int i = 0; i < kM / 2; i += 4)
                store_at(stages + thread * 16 + (slice * kSums + i % kSums) / 4 * kStride, i / kSums,
                         sums + i);
            cluster_barrier();
            float all[kSums] = {};
#pragma unroll
            for (int i = 0; i < kM / 2; i += 4) {
                float4 more = *(const float4*)(memory + thread * 16 + i / 4 * kStride);
                all[i % kSums] += more.x;
                all[i % kSums + 1] += more.y;
                all[i % kSums + 2] += more.z;
                all[i % kSums + 3] += more.w;
            }
            store_columns(all, C, row + slice * kSums * 2, col, M, N);
        }
    }
#endif
}

// ---- The same for so few rows that a multiprocessor gets a single tile, or a slice of one ----

// Each warpgroup takes its own steps of K apart, numbers of A and of B, while others multiply.
template <int groups, int m, int stages, int registers> struct Turns {
    static constexpr int kGroups = groups, kM = m, kN = 64, kStages = stages, kRegisters = registers;
    static constexpr int kThreads = 128 * groups + 128;
    static constexpr int kBytesA = m * kStep * 4, kBytesB = kN * kStep * 4, kPartBytes = m * kStep * 2;
    static constexpr int kStageBytes = kBytesA + kBytesB, kPartsBytes = 2 * kParts * kPartBytes;
    static constexpr int kMemory = stages * (kStageBytes + 16) + groups * kPartsBytes;
    static_assert(groups * m * kN * 4 <= stages * kStageBytes, "sums lie where the stages were");
};
using Four = Turns<4, 64, 8, 112>;
using Two = Turns<2, 128, 5, 216>;

constexpr int kMostSlices = 8, kMostSliced = 256; // blocks of tiles that are made in slices
__device__ float4 sums_of_slices[kMostSliced * Two::kM * Two::kN / 4];
__device__ unsigned int slices_done[kMostSliced * 4 * Four::kGroups]; // 0 before each launch and after it

template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    square_matrix_mul_turns_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                             const __grid_constant__ CUtensorMap map_b, float* C, int M,
                                             int N, int K, int slices) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kM = Plan::kM, kN = Plan::kN, kGroups = Plan::kGroups, kStages = Plan::kStages,
                  kSums = kM / 2;
    constexpr int kPartBytes = Plan::kPartBytes;
    unsigned int stages = shared_address(memory), parts = stages + kStages * Plan::kStageBytes,
                 full = parts + kGroups * Plan::kPartsBytes, empty = full + 8 * kStages;
    int slice = blockIdx.x % slices, tile = blockIdx.x / slices, across = (N - 1) / kN + 1;
    int row = tile / across * kM, col = tile % across * kN;
    int steps = (K - 1) / kStep + 1, first = steps * slice / slices,
        count = steps * (slice + 1) / slices - first;
    // The compiler has to see that all lanes have the same, or it has each product wait for the one before (C7518).
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    auto copy = [&](int step) {
        unsigned int to = stages + step % kStages * Plan::kStageBytes, barrier = full + 8 * (step % kStages);
        expect_bytes(barrier, Plan::kStageBytes);
        load_numbers(to, &map_a, (first + step) * kStep, row, barrier);
#pragma unroll
        for (int i = 0; i < kN / 32; ++i)
            load_numbers(to + Plan::kBytesA + i * kStep * 128, &map_b, col + i * 32, (first + step) * kStep,
                         barrier);
    };
    int begun = 0;
    if (threadIdx.x == 128 * kGroups) {
        // One thread has the copies made. The first of them are under way before the others see the barriers.
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map_a) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map_b) : "memory");
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (; begun < kStages && begun < count; ++begun)
            copy(begun);
    }
    __syncthreads();
    if (group == kGroups) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 128 * kGroups)
            for (int step = begun; step < count; ++step) {
                wait_for(empty + 8 * (step % kStages), step / kStages % 2 ^ 1);
                copy(step);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Plan::kRegisters));
        float made[kSums], sums[kSums];
        unsigned int b[kStep / 16][kParts][4];
#pragma unroll
        for (int i = 0; i < kSums; ++i)
            sums[i] = 0.0f;
        auto add_up = [&]() {
            wait_products<0>();
            hold(made);
            hold(b);
#pragma unroll
            for (int i = 0; i < kSums; ++i)
                sums[i] += made[i];
        };
        // A thread's two columns of B in a box of 32, and the rows 0 and 1, 2 and 3, 4 and 5, or 6 and 7 of eight.
        int within = warp % 2 * 16 + lane / 4 * 2, k = lane % 4 * 2;
        const unsigned char* numbers = memory + Plan::kBytesA + warp / 2 * kStep * 128 + k * 128 +
                                       ((within / 4) ^ k) * 16 + within % 4 * 4;
        int odd = 128 + (((within / 4) ^ (k + 1)) - ((within / 4) ^ k)) * 16;
        int half = 0; // of the room for parts of A, of which products under way read the other
        for (int step = group; step < count; step += kGroups) {
            int stage = step % kStages;
            wait_for(full + 8 * stage, step / kStages % 2);
            const unsigned char* from = memory + stage * Plan::kStageBytes;
            unsigned int room = group * Plan::kPartsBytes + half * kParts * kPartBytes;
            unsigned char* to = memory + kStages * Plan::kStageBytes + room;
#pragma unroll
            for (int i = 0; i < kM * kStep / 8 / 128; ++i) {
                int piece = i * 128 + threadIdx.x % 128, r = piece % kM, g = piece / kM;
                float4 u = *(const float4*)(from + r * 128 + (((2 * g) ^ (r % 8)) * 16));
                float4 v = *(const float4*)(from + r * 128 + (((2 * g + 1) ^ (r % 8)) * 16));
                uint4 upper, middle, lower;
                three_parts(u.x, u.y, &upper.x, &middle.x, &lower.x);
                three_parts(u.z, u.w, &upper.y, &middle.y, &lower.y);
                three_parts(v.x, v.y, &upper.z, &middle.z, &lower.z);
                three_parts(v.z, v.w, &upper.w, &middle.w, &lower.w);
                unsigned char* there = to + r * 64 + ((g ^ (r / 2 % 4)) * 16);
                *(uint4*)there = upper;
                *(uint4*)(there + kPartBytes) = middle;
                *(uint4*)(there + 2 * kPartBytes) = lower;
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            if (step > group)
                add_up();
            const unsigned char* mine = numbers + stage * Plan::kStageBytes;
#pragma unroll
            for (int k = 0; k < kStep; k += 8) {
                float2 u = *(const float2*)(mine + k * 128), v = *(const float2*)(mine + k * 128 + odd);
                auto& into = b[k / 16];
                int i = k / 8 % 2 * 2;
                three_parts(u.x, v.x, &into[0][i], &into[1][i], &into[2][i]);
                three_parts(u.y, v.y, &into[0][i + 1], &into[1][i + 1], &into[2][i + 1]);
            }
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            if (lane == 0)
                arrive_here(empty + 8 * stage);
            unsigned long long a = describe_a(parts + room);
            half ^= 1;
            hold(made);
            hold(b);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            // The smallest first, so that what is cut off of them does not count.
            int keep = 0;
#pragma unroll
            for (int both = kParts - 1; both >= 0; --both)
#pragma unroll
                for (int part = 0; part <= both; ++part)
#pragma unroll
                    for (int k = 0; k < kStep / 16; ++k) {
                        multiply(made, b[k][part], a + (((both - part) * kPartBytes + k * 32) >> 4), keep);
                        keep = 1;
                    }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            hold(made);
        }
        if (group < count)
            add_up();
        // Each warpgroup adds up the sums of all of them for a part of the rows, in their order.
        constexpr int kMine = kSums / kGroups;
        float mine[kMine] = {};
        float4* place = (float4*)memory + threadIdx.x % 128;
        asm volatile("bar.sync 8, %0;" ::"n"(128 * kGroups) : "memory");
#pragma unroll
        for (int i = 0; i < kSums; i += 4)
            place[(group * kSums + i) / 4 * 128] =
                make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
        asm volatile("bar.sync 8, %0;" ::"n"(128 * kGroups) : "memory");
        auto add = [&](int i, float4 more) {
            mine[i] += more.x, mine[i + 1] += more.y, mine[i + 2] += more.z, mine[i + 3] += more.w;
        };
#pragma unroll
        for (int t = 0; t < kGroups; ++t)
#pragma unroll
            for (int i = 0; i < kMine; i += 4)
                add(i, place[(t * kSums + group * kMine + i) / 4 * 128]);
        if (slices > 1) {
            // The warp that is the last of its slices finds what all have left, and adds it up in their order.
            int unit = (tile * kGroups + group) * 4 + warp;
            float4* there = sums_of_slices + unit * slices * (kMine / 4 * 32) + lane;
#pragma unroll
            for (int i = 0; i < kMine; i += 4)
                there[(slice * kMine + i) / 4 * 32] =
                    make_float4(mine[i], mine[i + 1], mine[i + 2], mine[i + 3]);
            __threadfence();
            __syncwarp();
            unsigned int before = 0;
            if (lane == 0)
                before = atomicAdd(&slices_done[unit], 1u);
            if (__shfl_sync(0xffffffffu, before, 0) != slices - 1u)
                return;
            __threadfence();
            if (lane == 0)
                slices_done[unit] = 0;
#pragma unroll
            for (int i = 0; i < kMine; ++i)
                mine[i] = 0.0f;
            for (int s = 0; s < slices; ++s)
#pragma unroll
                for (int i = 0; i < kMine; i += 4)
                    add(i, __ldcg(there + (s * kMine + i) / 4 * 32));
        }
        store_columns(mine, C, row + group * kMine * 2, col + warp * 16, M, N);
    }
#endif
}

static bool describe_numbers(CUtensorMap* map, const float* data, int rows, int cols, int box_rows) {
    cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)cols * 4};
    cuuint32_t box[2] = {32, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)data, sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// False where the launch fails: where this build has no warpgroups.
template <class Plan>
static bool multiply_on_the_way(const float* A, const float* B, float* C, int M, int N, int K, int blocks) {
    auto kernel = square_matrix_mul_on_the_way_kernel_optimized<Plan>;
    CUtensorMap map_a, map_b;
    if (!describe_numbers(&map_a, A, M, K, Plan::kM) || !describe_numbers(&map_b, B, K, N, kStep))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    int tiles = tiles_of<Plan>(M, N), clusters = Plan::kSplit > 1 ? tiles : min(tiles, blocks);
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
    if (cudaLaunchKernelEx(&config, kernel, map_a, map_b, C, M, N, K, tiles) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

// False where the launch fails: where this build has no warpgroups.
template <class Plan>
static bool multiply_in_turns(const float* A, const float* B, float* C, int M, int N, int K, int blocks) {
    auto kernel = square_matrix_mul_turns_kernel_optimized<Plan>;
    CUtensorMap map_a, map_b;
    if (!describe_numbers(&map_a, A, M, K, Plan::kM) || !describe_numbers(&map_b, B, K, N, kStep))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    int tiles = ((M - 1) / Plan::kM + 1) * ((N - 1) / Plan::kN + 1), steps = (K - 1) / kStep + 1;
    int slices = max(1, min(min(min(blocks, kMostSliced) / tiles, kMostSlices), steps));
    kernel<<<tiles * slices, Plan::kThreads, Plan::kMemory>>>(map_a, map_b, C, M, N, K, slices);
    return cudaGetLastError() == cudaSuccess;
}

constexpr int kLeast = 256; // rows, columns and products that are worth taking apart in a launch of its own
constexpr long long kLeastProducts = 1 << 24;

// False where this GPU or these matrices cannot have it.
static bool multiply_on_hopper(const float* A, const float* B, float* C, int M, int N, int K) {
    int device = 0, major = 0, blocks = 0;
    if ((long long)M * N * K < kLeastProducts || K < kLeast)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    bool aligned = N % 4 == 0 && K % 4 == 0 && (((size_t)A | (size_t)B | (size_t)C) & 15) == 0;
    auto enough = [&](int parts) { return parts * 8ll >= blocks * 7ll; };
    if (M >= kLeast && N >= kLeast &&
        (tiles_of<Whole>(M, N) > blocks || !aligned && enough(tiles_of<Whole>(M, N))))
        return multiply_parts<Square>(A, B, C, M, N, K, blocks);
    if (!aligned)
        return false;
    if (enough(tiles_of<Whole>(M, N)))
        return multiply_on_the_way<Whole>(A, B, C, M, N, K, blocks);
    if (enough(tiles_of<Halves>(M, N) * 2))
        return multiply_on_the_way<Halves>(A, B, C, M, N, K, blocks);
    if (M <= Four::kM)
        return multiply_in_turns<Four>(A, B, C, M, N, K, blocks);
    return multiply_in_turns<Two>(A, B, C, M, N, K, blocks);
}

// ---- Products of which nearly every multiprocessor gets one small tile ----

constexpr int kTinyRows = 16, kTinyCols = 32, kTinyWarps = 8, kTinyStep = 32;

// Two numbers in three parts each, where the GPU does it at once and where it does not.
static __device__ void parts_of_two(float low, float high, unsigned int (&part)[kParts]) {
#if HAS_WARPGROUPS
    three_parts(low, high, &part[0], &part[1], &part[2]);
#else
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
        unsigned int upper = upper_part(high), lower = upper_part(low);
        part[p] = upper | lower >> 16;
        high -= __uint_as_float(upper), low -= __uint_as_float(lower);
    }
#endif
}

static __device__ void multiply_tiny(float (&d)[4], const unsigned int (&a)[4][kParts], int part_a,
                                     const unsigned int (&b)[2][kParts], int part_b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0][part_a]), "r"(a[1][part_a]), "r"(a[2][part_a]), "r"(a[3][part_a]),
                   "r"(b[0][part_b]), "r"(b[1][part_b]));
}

// Each warp takes steps of K straight into registers, all loads at once, and apart; a warp's sums meet those of the
// others in shared memory. Rows are whole pieces of 16 bytes.
__global__ void __launch_bounds__(kTinyWarps * 32)
    square_matrix_mul_tiny_kernel_optimized(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float4 sums[kTinyWarps][4][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = (N - 1) / kTinyCols + 1;
    int row = blockIdx.x / across * kTinyRows, col = blockIdx.x % across * kTinyCols;
    float d[4][4] = {};
    for (int first = warp * kTinyStep; first < K; first += kTinyWarps * kTinyStep) {
        // Which product of a fragment a lane's numbers belong to, and which of its columns, is free as long as both
        // factors agree: a lane takes four neighbours of each row, of B one for each fragment.
        float4 a[2][2], b[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int k = first + half * 16 + lane % 4 * 4, c = col + lane / 4 * 4;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int r = row + lane / 4 + i * 8;
                a[half][i] = r < M ? load4<true>(A + (size_t)r * K + k, K - k) : make_float4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                b[half][i] =
                    k < K ? load4<true>(B + (size_t)(k + i) * N + c, N - c) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned int x[4][kParts];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                parts_of_two(a[half][i].x, a[half][i].y, x[i]);
                parts_of_two(a[half][i].z, a[half][i].w, x[2 + i]);
            }
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                auto number = [&](const float4& v) {
                    return f == 0 ? v.x : f == 1 ? v.y : f == 2 ? v.z : v.w;
                };
                unsigned int y[2][kParts];
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    parts_of_two(number(b[half][2 * i]), number(b[half][2 * i + 1]), y[i]);
                // The smallest first, so that what is cut off of them does not count.
                float made[4] = {};
#pragma unroll
                for (int both = kParts - 1; both >= 0; --both)
#pragma unroll
                    for (int part = 0; part <= both; ++part)
                        multiply_tiny(made, x, part, y, both - part);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    d[f][i] += made[i];
            }
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
            C[(size_t)(row + r) * N + col + c] = sum;
    }
}

constexpr long long kLeastTiny = 1 << 21; // products that are worth it

// False where it is too much work for small tiles, or too little, or rows are not as they have to be.
static bool multiply_at_once(const float* A, const float* B, float* C, int M, int N, int K) {
    long long tiles = ((M - 1) / kTinyRows + 1ll) * ((N - 1) / kTinyCols + 1);
    if ((long long)M * N * K < kLeastTiny || tiles > kEnoughBlocks + 8 || K > 2 * kTinyWarps * kTinyStep ||
        N % 4 || K % 4 || (((size_t)A | (size_t)B | (size_t)C) & 15))
        return false;
    square_matrix_mul_tiny_kernel_optimized<<<(unsigned int)tiles, kTinyWarps * 32>>>(A, B, C, M, N, K);
    return true;
}

extern "C" void square_matrix_mul_optimized(const float* A, const float* B, float* C, int M) {
    if (!multiply_at_once(A, B, C, M, M, M) && !multiply_on_hopper(A, B, C, M, M, M))
        multiply_elsewhere(A, B, C, M);
}
