// idea: Tensor cores on numbers in three parts, taken apart in registers behind a ring of copies
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply bf16 fifteen
//      times as fast. A number of fp32 is exactly the sum of three of bf16: the number rounded, what that leaves
//      rounded, and the rest. Of the nine products of two such sums six count; the others are below 2^-25 of the first.
//      Four warps multiply 64 x 128 elements by one instruction (wgmma), whose left factor may lie in registers. Rows
//      of A that have their a in common are neighbours for each x, so one thread has them copied in bulk into a ring of
//      slices of 32 products. A thread takes four neighbours of a row from there, and takes them apart in registers
//      while the products of the slice before are made; B's parts lie in shared memory, made once by each block. The
//      order of products in a sum is free: a thread's neighbours are put where the instruction wants pairs, and B's
//      elements are put in the same order. Tensor cores cut off what they add, so a slice's sums are added in fp32, the
//      small products first. bf16 has the exponents of fp32: numbers of any size may meet. (Two halves of fp16 need
//      three products and not six, but a scale for each row of A and column of B. With one number of 2^24 in a row and
//      one in a column, they lost what meets both, so the task's checks refuse them now.) Parts below 1e-38 are lost,
//      so that numbers below 1e-33 keep fewer than 24 bits, and an infinite number makes NaN where fp32 may have
//      infinity. Other GPUs, few rows, sums of more than 256 products, and tensors that do not have four neighbours
//      side by side, get the step before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
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

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS 128 * (kConsumers + 1)
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kConsumers = 2;     // warpgroups of a block that multiply
constexpr int kRowsOf = 64;       // of A, that a warpgroup takes at a time
constexpr int kDepth = 16;        // products of an instruction
constexpr int kParts = 3;         // of a number, each of bf16
constexpr int kRoom = 227 * 1024; // shared memory of a block
constexpr int kFewest = 16;       // rows that have their a in common

// Shared memory: B's parts in order, a ring of slices of A, and barriers.
template <int cols, int slices, int steps> struct Ring {
    static constexpr int kCols = cols, kSlices = slices, kSteps = steps; // steps of a slice
    static constexpr int kPart = cols * slices * steps * kDepth * 2, kBytesB = kParts * kPart;
    static constexpr int kStageBytes = kRowsOf * steps * kDepth * 4;
    static constexpr int kFit = (kRoom - kBytesB) / (kStageBytes + 16), kStages = kFit < 12 ? kFit : 12;
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

// What is read once is the first to leave L2.
static __device__ void copy(unsigned int to, const void* from, unsigned int bytes, unsigned int barrier,
                            unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
        "%2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

// Of a warp's 16 rows of sums the first `rows`. Lanes in pairs exchange, so that each has four neighbours of a row.
template <int count>
static __device__ void store_sums(const float (&d)[count], float* C, int rows, int col, int c_dim) {
    int lane = threadIdx.x % 32;
    bool odd = lane & 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = half * 8 + lane / 4;
#pragma unroll
        for (int i = 0; i < count / 4; i += 2) {
            const float* one = d + i * 4 + half * 2;
            const float* two = one + 4;
            float x = __shfl_xor_sync(0xffffffffu, odd ? one[0] : two[0], 1);
            float y = __shfl_xor_sync(0xffffffffu, odd ? one[1] : two[1], 1);
            float4 v = odd ? make_float4(x, y, two[0], two[1]) : make_float4(one[0], one[1], x, y);
            int c = col + (i + odd) * 8 + lane % 4 / 2 * 4;
            if (r < rows && c < c_dim)
                *(float4*)(C + (size_t)r * c_dim + c) = v;
        }
    }
}

// Two numbers in parts: rounded, what that leaves rounded, and the rest.
static __device__ void take_apart(float low, float high, unsigned int (&parts)[kParts]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        __nv_bfloat162 rounded = __floats2bfloat162_rn(low, high);
        parts[part] = *(const unsigned int*)&rounded;
        low -= __uint_as_float(parts[part] << 16);
        high -= __uint_as_float(parts[part] & 0xffff0000u);
    }
}
#endif

// A tile is 64 rows of A. Of those that have their a in common, all products of one x lie side by side, in A and in a
// stage, which has a slice of the tile: the products of x_step of x.
// Thread q of four has products 16 s + 4 q to 16 s + 4 q + 3 of a row of a slice in step s: 0 and 1 are in the
// first half of that instruction's products, and 2 and 3 in the other. B's are put in the same order.
template <class Ring>
__global__ void __launch_bounds__(THREADS, 1)
    high_order_contraction_parts_kernel_optimized(const float* A, const float* B, float* C, int rows,
                                                  int b_dim, int c_dim, int x_dim, int y_dim, int x_step) {
#if HAS_WARPGROUPS
    constexpr int kCols = Ring::kCols, kSlices = Ring::kSlices, kSteps = Ring::kSteps,
                  kStages = Ring::kStages;
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char* ring = memory + Ring::kBytesB;
    unsigned int base = (unsigned int)__cvta_generic_to_shared(memory), stages = base + Ring::kBytesB,
                 full = stages + kStages * Ring::kStageBytes, empty = full + 8 * kStages;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int first_col = blockIdx.y * kCols, run = kRowsOf * y_dim, tiles = (rows - 1) / kRowsOf + 1;
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
        // Copies of two tiles in turns, as two warpgroups take them.
        if (threadIdx.x == 0) {
            unsigned long long policy;
            asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
            int stage = 0, parity = 1;
            for (int pair = blockIdx.x; pair < tiles; pair += gridDim.x * kConsumers) {
#pragma unroll 1
                for (int turn = 0; turn < kSlices * kConsumers; ++turn) {
                    int tile = pair + turn % kConsumers * gridDim.x, x = turn / kConsumers * x_step;
                    if (tile >= tiles)
                        continue;
                    int end = min(x + x_step, x_dim), first = tile * kRowsOf,
                        last = min(first + kRowsOf, rows);
                    unsigned int barrier = full + 8 * stage, to = stages + stage * Ring::kStageBytes;
                    wait_for(empty + 8 * stage, parity);
                    expect_bytes(barrier, (last - first) * max(end - x, 0) * y_dim * 4);
                    for (int row = first, count; row < last; row += count) {
                        count = min(b_dim - row % b_dim, last - row);
                        const float* from = A + ((size_t)(row / b_dim) * x_dim * b_dim + row % b_dim) * y_dim;
                        for (int i = x; i < end; ++i)
                            copy(to + ((i - x) * kRowsOf + row - first) * y_dim * 4,
                                 from + (size_t)i * b_dim * y_dim, count * y_dim * 4, barrier, policy);
                    }
                    if (++stage == kStages) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int group = warp / 4 - 1, own = warp % 4 * 16 + lane / 4;
    // Where the thread's products of a step begin in a slice: in a stage, and in x and y.
    int places[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        int k = s * kDepth + lane % 4 * 4;
        places[s] = k < x_step * y_dim ? (k / y_dim * run + k % y_dim) * 4 : -1;
    }
    constexpr int kQuads = kConsumers * 32;
    for (int col = (threadIdx.x - 128) / 4; col < kCols; col += kQuads) {
        float4 v[kSlices * kSteps];
#pragma unroll
        for (int i = 0; i < kSlices * kSteps; ++i) {
            int k = i % kSteps * kDepth + lane % 4 * 4, x = i / kSteps * x_step + k / y_dim;
            bool there = k < x_step * y_dim && x < x_dim && first_col + col < c_dim;
            v[i] = there ? *(const float4*)(B + ((size_t)x * c_dim + first_col + col) * y_dim + k % y_dim)
                         : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < kSlices * kSteps; ++i) {
            unsigned int first[kParts], second[kParts];
            take_apart(v[i].x, v[i].y, first);
            take_apart(v[i].z, v[i].w, second);
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
                unsigned int* to =
                    (unsigned int*)(memory + part * Ring::kPart) + (i * 2 * kCols + col) * 4 + lane % 4;
                to[0] = first[part];
                to[kCols * 4] = second[part];
            }
        }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers * 128) : "memory");

    unsigned long long b = describe(base, kCols * 16);
    int taken = 0; // stages that the block has taken before this pair of tiles
    for (int pair = blockIdx.x; pair < tiles; pair += gridDim.x * kConsumers) {
        int both = pair + (int)gridDim.x < tiles ? 2 : 1, tile = pair + group * gridDim.x;
        if (tile >= tiles)
            break;
        int left = rows - tile * kRowsOf;
        float sums[kCols / 2], now[kCols / 2];
        unsigned int a[2][kSteps][4][kParts]; // of two slices; in the instruction's order
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i)
            sums[i] = 0.0f;
        auto add = [&] {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            hold(now);
#pragma unroll
            for (int i = 0; i < kCols / 2; ++i)
                sums[i] += now[i];
        };
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
            int turn = taken + slice * both + group, stage = turn % kStages;
            const unsigned char* from = ring + stage * Ring::kStageBytes + own * y_dim * 4;
            int count = (x_dim - slice * x_step) * run * 4; // bytes that there are products in
            float4 v[kSteps][2];
            wait_for(full + 8 * stage, turn / kStages & 1);
#pragma unroll
            for (int s = 0; s < kSteps; ++s) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    v[s][half] = own + 8 * half < left && places[s] >= 0 && places[s] < count
                                     ? *(const float4*)(from + places[s] + half * 8 * y_dim * 4)
                                     : make_float4(0, 0, 0, 0);
            }
            __syncwarp();
            if (lane == 0)
                arrive(empty + 8 * stage);
#pragma unroll
            for (int s = 0; s < kSteps; ++s) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    take_apart(v[s][half].x, v[s][half].y, a[slice % 2][s][half]);
                    take_apart(v[s][half].z, v[s][half].w, a[slice % 2][s][2 + half]);
                }
            }
            if (slice > 0)
                add();
            hold(now);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            // The small ones first, so that little of them is cut off: 1 1, 0 2, 2 0, 0 1, 1 0, 0 0.
#pragma unroll
            for (int which = 0; which < 6; ++which) {
                int of_a = which == 2 ? 2 : which == 0 || which == 4,
                    of_b = which == 1 ? 2 : which == 0 || which == 3;
#pragma unroll
                for (int s = 0; s < kSteps; ++s)
                    multiply(now, a[slice % 2][s][0][of_a], a[slice % 2][s][1][of_a],
                             a[slice % 2][s][2][of_a], a[slice % 2][s][3][of_a],
                             b + ((of_b * Ring::kPart + (slice * kSteps + s) * kCols * 32) >> 4),
                             which > 0 || s > 0);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            hold(now);
        }
        taken += both * kSlices;
        add();
        int first = warp % 4 * 16;
        store_sums(sums, C + ((size_t)tile * kRowsOf + first) * c_dim, left - first, first_col, c_dim);
    }
#endif
}

// False where this build has no such kernel.
template <class Ring>
static bool launch_hopper(const float* A, const float* B, float* C, int rows, int b_dim, int c_dim, int x_dim,
                          int y_dim, int x_step, int blocks) {
    auto kernel = high_order_contraction_parts_kernel_optimized<Ring>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kMemory);
    dim3 grid(min((rows - 1) / kRowsOf + 1, blocks), (c_dim - 1) / Ring::kCols + 1);
    kernel<<<grid, 128 * (kConsumers + 1), Ring::kMemory>>>(A, B, C, rows, b_dim, c_dim, x_dim, y_dim,
                                                            x_step);
    return cudaGetLastError() == cudaSuccess; // else nothing was launched
}

// False where this GPU or these tensors cannot have it.
static bool contract_on_hopper(const float* A, const float* B, float* C, long long rows, int b_dim, int c_dim,
                               int x_dim, int y_dim) {
    int device = 0, major = 0, blocks = 0;
    long long products = (long long)x_dim * y_dim;
    // Copies are of whole 16 bytes, and of not too few of them.
    if (y_dim % 4 || c_dim % 4 || y_dim > 32 || b_dim < kFewest ||
        (((size_t)A | (size_t)B | (size_t)C) & 15) || products > 256 || rows >= 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    // A slice has room for 32 products. Each block takes all of B apart, which few tiles do not pay for.
    int x_step = products <= kDepth ? x_dim : min(x_dim, 32 / y_dim), slices = (x_dim - 1) / x_step + 1;
    if (major != 9 || slices > 8 || (rows - 1) / kRowsOf + 1 < blocks)
        return false;
    auto launched = slices > 4 ? c_dim > 64 ? launch_hopper<Ring<128, 8, 2>> : launch_hopper<Ring<64, 8, 2>>
                    : products > kDepth
                        ? c_dim > 64 ? launch_hopper<Ring<128, 4, 2>> : launch_hopper<Ring<64, 4, 2>>
                    : c_dim > 64 ? launch_hopper<Ring<128, 1, 1>>
                                 : launch_hopper<Ring<64, 1, 1>>;
    return launched(A, B, C, (int)rows, b_dim, c_dim, x_dim, y_dim, x_step, blocks);
}

extern "C" void high_order_contraction_optimized(const float* A, const float* B, float* C, int a_dim,
                                                 int b_dim, int c_dim, int x_dim, int y_dim) {
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
