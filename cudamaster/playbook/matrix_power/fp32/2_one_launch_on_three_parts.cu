// idea: All products in one launch, by tensor cores on numbers in three parts
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply bf16 fifteen
//      times as fast. A number of fp32 is exactly the sum of three of bf16: the number rounded, what that leaves
//      rounded, and the rest. Of the nine products of two such sums six count; the others are below 2^-25 of the first.
//      The first products have sums of their own, which are added in fp32 after every 64, for tensor cores cut off what
//      they add. One cooperative launch makes the power: its blocks take A apart, and make one product after the other,
//      with a barrier of the grid between them. A power on the way is written in parts, as the next product needs it.
//      Two warpgroups multiply 64 x 64 elements each (wgmma), fed by tensor maps and a ring of stages. The sixteenth
//      power of 1024 x 1024 takes 91.0 µs on the H200's own clock; four products by cuBLAS take 233. In another run it
//      took 88.8, clusters of two that share what they load 90.1, one warpgroup of 64 x 128 91.8. What binds it now:
//      shared memory, which wgmma of 64 x 64 reads as fast as it gives, beside what is copied into it. Parts below
//      1e-38 are lost, so that numbers below 1e-33 keep fewer than 24 bits, and an infinite number makes NaN where fp32
//      may have infinity. Matrices below 64 or above 1024 rows, one product of up to 256, and other GPUs, take the step
//      before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr size_t kScratchBytes = sizeof(float) * 1024 * 1024;
constexpr int kEnoughBlocks = 120; // for about every multiprocessor of a large GPU to have one

__device__ uint4 scratch[kScratchBytes / sizeof(uint4)]; // a power on the way

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
    matrix_power_multiply_kernel_optimized(const float* left, const float* right, float* product, int N) {
    constexpr int kM = Tile::kM, kN = Tile::kN, kK = Tile::kK, kRows = Tile::kRows, kCols = Tile::kCols;
    constexpr int kLoadsA = kM * kK / 4 / Tile::kThreads, kLoadsB = kK * kN / 4 / Tile::kThreads;
    __shared__ __align__(16) float tile_a[2][kK][kM + 4]; // transposed
    __shared__ __align__(16) float tile_b[2][kK][kN];
    const float* A = left ? left : (const float*)scratch;
    const float* B = right ? right : (const float*)scratch;
    float* C = product ? product : (float*)scratch;
    unsigned int blocks_across = (N - 1) / kN + 1;
    long long first_row = (long long)(blockIdx.x / blocks_across) * kM;
    long long first_col = (long long)(blockIdx.x % blocks_across) * kN;

    // Where the thread loads from, and to which places of the tiles; further loads are some rows below.
    constexpr int kStepA = kM / kLoadsA, kStepB = kK / kLoadsB;
    int row_a = threadIdx.x / (kK / 4), k_a = threadIdx.x % (kK / 4) * 4;
    int k_b = threadIdx.x / (kN / 4), col_b = threadIdx.x % (kN / 4) * 4;
    const float* from_a = A + (first_row + row_a) * N + k_a;
    const float* from_b = B + (size_t)k_b * N + first_col + col_b;
    int rows_left = N - first_row - row_a, cols_left = N - first_col - col_b, k_left = N;
    float4 next_a[kLoadsA], next_b[kLoadsB];
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < kLoadsA; ++i)
            next_a[i] =
                load4<kAligned>(from_a + (size_t)i * kStepA * N, i * kStepA < rows_left ? k_left - k_a : 0);
#pragma unroll
        for (int i = 0; i < kLoadsB; ++i)
            next_b[i] =
                load4<kAligned>(from_b + (size_t)i * kStepB * N, i * kStepB + k_b < k_left ? cols_left : 0);
        from_a += kK;
        from_b += (size_t)kK * N;
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
        if (row >= N)
            continue;
#pragma unroll
        for (int c = 0; c < kCols; c += kWidth) {
            long long col = first_col + position<kN, kCols>(across, c);
            float* to = C + row * N + col;
            if constexpr (kAligned && kWidth == 4) {
                if (col < N)
                    *(float4*)to = make_float4(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]);
            } else {
#pragma unroll
                for (int i = 0; i < kWidth; ++i)
                    if (col + i < N)
                        to[i] = sums[r][c + i];
            }
        }
    }
}

template <class Tile> static long long blocks_of(long long rows, long long cols) {
    return ((rows - 1) / Tile::kM + 1) * ((cols - 1) / Tile::kN + 1);
}

template <class Tile> static void launch(const float* left, const float* right, float* product, int N) {
    bool aligned = N % 4 == 0 && (((size_t)left | (size_t)right | (size_t)product) & 15) == 0;
    unsigned int blocks = (unsigned int)blocks_of<Tile>(N, N);
    if (aligned)
        matrix_power_multiply_kernel_optimized<Tile, true>
            <<<blocks, Tile::kThreads>>>(left, right, product, N);
    else
        matrix_power_multiply_kernel_optimized<Tile, false>
            <<<blocks, Tile::kThreads>>>(left, right, product, N);
}

// product = left * right. A null pointer stands for the scratch array.
static void multiply_elsewhere(const float* left, const float* right, float* product, int N) {
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
constexpr int kParts = 3;
constexpr int kMatrices = 3; // in parts: A, and two powers on the way
constexpr int kLeast = 64;   // rows that are worth taking apart
constexpr int kRoom = 1024;  // rows of matrices whose parts fit the fixed array

__device__ __align__(1024) __nv_bfloat16 parts[kMatrices][kParts][kRoom * kRoom];

template <int consumers, int n, int stages> struct Plan {
    static constexpr int kConsumers = consumers, kM = 64 * consumers, kN = n, kStages = stages;
    static constexpr int kThreads = 128 * consumers + 32;
    static constexpr int kBytesA = kM * 128, kBytesB = n * 128;
    static constexpr int kPartBytes = kBytesA + kBytesB, kStageBytes = kParts * kPartBytes;
    static constexpr int kMemory = stages * (kStageBytes + 16) + 1024;
};
using Wide = Plan<2, 64, 3>;
using Narrow = Plan<1, 64, 4>;

// A number rounded to bf16, as bits of fp32; the largest are cut off and do not become infinite.
__device__ unsigned int upper_part(float value) {
    unsigned int bits = __float_as_uint(value), rounded = bits + 0x7fffu + (bits >> 16 & 1);
    return ((rounded & 0x7f800000u) == 0x7f800000u ? bits : rounded) & 0xffff0000u;
}

// What is left of eight numbers, rounded and taken from them: the next part.
__device__ uint4 next_part(float (&values)[8]) {
    unsigned int words[4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        unsigned int bits = upper_part(values[i]);
        words[i / 2] = i % 2 ? words[i / 2] | bits : bits >> 16;
        values[i] -= __uint_as_float(bits);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
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

// A box of a part, from column and row on.
static __device__ void load_box(unsigned int to, const CUtensorMap* map, int column, int row, int part,
                                unsigned int barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(part), "r"(barrier)
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

// A warp's 16 rows of sums, in parts.
template <int count>
static __device__ void store_parts(const float (&d)[count], __nv_bfloat16* to, int row, int col, int N,
                                   int stride) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int group = 0; group < count / 16; ++group) {
            float values[8];
            int c = col + group * 32 + lane % 4 * 8;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                values[i] = d[(group * 4 + i / 2) * 4 + half * 2 + i % 2];
            for (int part = 0; part < kParts; ++part) {
                uint4 pairs = next_part(values);
                unsigned int words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
                transpose4(words, lane);
                if (r < N && c < stride)
                    *(uint4*)(to + ((size_t)part * N + r) * stride + c) =
                        make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }
}

// The same as they are, a lane's pairs each.
template <int count>
static __device__ void store_sums(const float (&d)[count], float* to, int row, int col, int N) {
    int lane = threadIdx.x % 32;
    bool pairs = N % 2 == 0 && ((size_t)to & 7) == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int i = 0; i < count / 4; ++i) {
            int c = col + i * 8 + lane % 4 * 2;
            float* place = to + (size_t)r * N + c;
            if (r < N && c + 1 < N && pairs) {
                *(float2*)place = make_float2(d[i * 4 + half * 2], d[i * 4 + half * 2 + 1]);
            } else if (r < N) {
                if (c < N)
                    place[0] = d[i * 4 + half * 2];
                if (c + 1 < N)
                    place[1] = d[i * 4 + half * 2 + 1];
            }
        }
    }
}

// All threads of the grid take A apart.
static __device__ void take_apart(const float* A, __nv_bfloat16* to, int N, int stride) {
    int groups = stride / 8;
    bool aligned = N % 4 == 0 && ((size_t)A & 15) == 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)N * groups;
         i += (size_t)gridDim.x * blockDim.x) {
        size_t row = i / groups;
        int col = (int)(i % groups) * 8;
        const float* from = A + row * N + col;
        float values[8];
        if (aligned && col + 8 <= N) {
            *(float4*)values = *(const float4*)from;
            *(float4*)(values + 4) = *(const float4*)(from + 4);
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j)
                values[j] = col + j < N ? from[j] : 0.0f;
        }
        for (int part = 0; part < kParts; ++part)
            *(uint4*)(to + (part * (size_t)N + row) * stride + col) = next_part(values);
    }
}

// What threads have stored is there for the copies of all blocks.
static __device__ void hand_over() {
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncwarp();
    cooperative_groups::this_grid().sync();
    asm volatile("fence.proxy.async;" ::: "memory");
}
#endif

struct Maps {
    CUtensorMap of[kMatrices];
};

// Powers are made by squaring, and by a product with A after that where the bit of P is set.
template <class Plan>
__global__ void __launch_bounds__(THREADS, 1)
    matrix_power_parts_kernel_optimized(const __grid_constant__ Maps maps, const float* A, float* B,
                                        __nv_bfloat16* in_parts, int N, int stride, int P, int bits,
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
                for (int part = 0; part < kParts; ++part) {
                    for (int i = 0; i < kConsumers; ++i, to += kBoxBytes)
                        load_box(to, left, step * kStep, row + i * 64, part, full + 8 * stage);
                    for (int i = 0; i < Plan::kN; i += 64, to += kBoxBytes)
                        load_box(to, right, col + i, step * kStep, part, full + 8 * stage);
                }
            }
        }
    };
    auto multiply_tiles = [&](__nv_bfloat16* product) { // null: B
        int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        auto release = [&](int of) {
            if (lane == 0)
                arrive(empty + 8 * of);
        };
        float large[Plan::kN / 2], small[Plan::kN / 2], sums[Plan::kN / 2];
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            int row = tile / across * Plan::kM, col = tile % across * Plan::kN;
#pragma unroll
            for (int i = 0; i < Plan::kN / 2; ++i)
                sums[i] = 0.0f;
            int before = 0;
            for (int step = 0; step < steps; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes;
                unsigned long long a = describe(from + group * kBoxBytes, 16, 1024);
                unsigned long long b = describe(from + Plan::kBytesA, kBoxBytes, 1024);
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
                            multiply(small, a + ((part * Plan::kPartBytes + k * 32) >> 4),
                                     b + (((both - part) * Plan::kPartBytes + k * 2048) >> 4), keep);
                            keep = 1;
                        }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(small);
                wait_products<1>();
                hold(large);
#pragma unroll
                for (int i = 0; i < Plan::kN / 2; ++i)
                    sums[i] += large[i];
            }
            wait_products<0>();
            hold(small);
            release(before);
#pragma unroll
            for (int i = 0; i < Plan::kN / 2; ++i)
                sums[i] += small[i];
            if (product)
                store_parts(sums, product, row + group * 64 + warp * 16, col, N, stride);
            else
                store_sums(sums, B, row + group * 64 + warp * 16, col, N);
        }
    };

    take_apart(A, in_parts, N, stride);
    hand_over();
    const CUtensorMap* power = &maps.of[0];
    for (int bit = bits - 2; bit >= 0; --bit) {
        for (int factor = 0; factor <= (P >> bit) % 2; ++factor) {
            int to = 1 + --products % 2; // the last one is B itself
            if (threadIdx.x < 128 * kConsumers)
                multiply_tiles(products > 0 ? in_parts + (size_t)to * kParts * N * stride : nullptr);
            else if (threadIdx.x == 128 * kConsumers)
                load_tiles(power, factor == 0 ? power : &maps.of[0]);
            power = &maps.of[to];
            if (products > 0)
                hand_over();
        }
    }
#endif
}

static bool describe_parts(CUtensorMap* map, __nv_bfloat16* data, int N, int stride) {
    cuuint64_t sizes[3] = {(cuuint64_t)N, (cuuint64_t)N, kParts};
    cuuint64_t strides[2] = {(cuuint64_t)stride * 2, (cuuint64_t)N * stride * 2};
    cuuint32_t box[3] = {64, 64, 1}, steps[3] = {1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class Plan> static int tiles_of(int N) {
    return ((N - 1) / Plan::kM + 1) * ((N - 1) / Plan::kN + 1);
}

// False where this build has no such kernel, or there is no room for all blocks at once.
template <class Plan>
static bool launch_hopper(const float* A, float* B, __nv_bfloat16* in_parts, int N, int P, int bits,
                          int products, int blocks) {
    auto kernel = matrix_power_parts_kernel_optimized<Plan>;
    int stride = (N + 7) / 8 * 8;
    Maps maps;
    for (int i = 0; i < kMatrices; ++i)
        if (!describe_parts(&maps.of[i], in_parts + (size_t)i * kParts * N * stride, N, stride))
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
    if (cudaLaunchKernelEx(&config, kernel, maps, A, B, in_parts, N, stride, P, bits, products) ==
        cudaSuccess)
        return true;
    cudaGetLastError(); // nothing was launched
    return false;
}

// False where this GPU or these matrices cannot have it.
static bool power_on_hopper(const float* A, float* B, int N, int P, int bits, int products) {
    int device = 0, major = 0, blocks = 0;
    if (N < kLeast || N > kRoom || (P == 2 && N <= kOneProduct))
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    void* in_parts = nullptr;
    if (major != 9 || cudaGetSymbolAddress(&in_parts, parts) != cudaSuccess)
        return false;
    if (tiles_of<Narrow>(N) <= blocks)
        return launch_hopper<Narrow>(A, B, (__nv_bfloat16*)in_parts, N, P, bits, products, blocks);
    return launch_hopper<Wide>(A, B, (__nv_bfloat16*)in_parts, N, P, bits, products, blocks);
}

extern "C" void matrix_power_optimized(const float* A, float* B, int N, int P) {
    size_t bytes = sizeof(float) * N * N;
    if (P == 1) {
        cudaMemcpyAsync(B, A, bytes, cudaMemcpyDeviceToDevice);
        return;
    }
    int bits = 0, products = -2; // one for every bit, and one more for every set bit, but the first
    for (int rest = P; rest > 0; rest /= 2) {
        products += 1 + rest % 2;
        ++bits;
    }
    if (power_on_hopper(A, B, N, P, bits, products))
        return;
    float* buffer = nullptr; // the scratch array, where it is large enough
    if (P > 2 && bytes > kScratchBytes)
        cudaMallocAsync(&buffer, bytes, 0);
    const float* power = A;
    for (int bit = bits - 2; bit >= 0; --bit) {
        for (int factor = 0; factor <= (P >> bit) % 2; ++factor) {
            float* to = --products % 2 == 0 ? B : buffer; // so that the last one is in B
            multiply_elsewhere(power, factor == 0 ? power : A, to, N);
            power = to;
        }
    }
    if (buffer)
        cudaFreeAsync(buffer, 0);
}
