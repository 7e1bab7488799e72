// idea: Tensor cores on numbers in three parts, taken apart in registers
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply bf16
//      fifteen times as fast. A number of fp32 is exactly the sum of three of bf16: its upper half, what that leaves
//      rounded, and the rest. Of the nine products of two such sums six count; the others are below 2^-23 of the
//      first. Four warps multiply 64 x 128 elements by one instruction (wgmma), whose left factor may lie in
//      registers. So a thread loads eight neighbours of a row of A, takes them apart, and multiplies them as they
//      are; B's parts lie in shared memory, made once by each block. The order of products in a sum is free: a
//      thread's neighbours are put where the instruction wants pairs, and B's elements are put in the same order.
//      While the tensor cores work on 32 products, the next 32 are taken apart, and those behind them are on their
//      way. The upper parts' products have sums of their own, since tensor cores cut off what they add. As many
//      blocks as multiprocessors take tiles of 64 rows in turn. The heaviest case takes 53.6 µs on the H200's own
//      clock, the step before 134.9, and a copy of A and C 26.5. What binds it now: tensor cores, of which the six
//      products need 27 µs; two warpgroups do not keep them busy. Errors of 256 products are 0.7 of an fp32 loop's in
//      the mean, 1.5 where all terms are positive, and the largest is below its largest in our tests. Parts below
//      1e-38 are lost, and an infinite number makes NaN where fp32 may have infinity. GPUs before Hopper, few rows,
//      sums of few or more than 256 products, and tensors that do not have eight neighbours side by side, get the
//      step before.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80
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
#define THREADS 128 * kGroups
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kGroups = 2;  // warpgroups of a block
constexpr int kRowsOf = 64; // of A, that a warpgroup takes at a time
constexpr int kStep = 32;   // products that a thread has eight of, in two rows
constexpr int kParts = 3;
constexpr int kPadding = 8; // floats after a row of results on its way out

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

template <int left> static __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// A warp's 16 rows of sums leave through a patch of its own, eight at a time, so that a store has neighbours.
template <int count>
static __device__ void store_sums(const float (&d)[count], float* patch, float* C, long long row, int col,
                                  int rows, int c_dim) {
    constexpr int kCols = 2 * count, kStride = kCols + kPadding;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half, row += 8) {
#pragma unroll
        for (int i = 0; i < kCols / 8; ++i)
            *(float2*)(patch + lane / 4 * kStride + i * 8 + lane % 4 * 2) =
                make_float2(d[i * 4 + half * 2], d[i * 4 + half * 2 + 1]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8 * kCols; i += 128) {
            int r = (i + lane * 4) / kCols, c = (i + lane * 4) % kCols;
            if (row + r < rows && col + c < c_dim)
                *(float4*)(C + (row + r) * c_dim + col + c) = *(const float4*)(patch + r * kStride + c);
        }
        __syncwarp();
    }
}

// A pair of numbers in three parts: the upper halves, what they leave rounded, and the rest.
static __device__ void take_apart(float low, float high, unsigned int (&parts)[kParts]) {
    parts[0] = __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
#pragma unroll
    for (int part = 1; part < kParts; ++part) {
        low -= __uint_as_float(parts[part - 1] << 16);
        high -= __uint_as_float(parts[part - 1] & 0xffff0000u);
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        parts[part] = *(const unsigned int*)&pair;
    }
}

struct Eight {
    float4 first, second;
};

static __device__ Eight load8(const float* from) {
    return {((const float4*)from)[0], ((const float4*)from)[1]};
}

// Words of the parts of eight numbers, two numbers each.
static __device__ void take_apart(const Eight& v, unsigned int (&words)[kParts][4]) {
    float values[8] = {v.first.x,  v.first.y,  v.first.z,  v.first.w,
                       v.second.x, v.second.y, v.second.z, v.second.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned int parts[kParts];
        take_apart(values[2 * i], values[2 * i + 1], parts);
#pragma unroll
        for (int part = 0; part < kParts; ++part)
            words[part][i] = parts[part];
    }
}
#endif

// C = A B for columns of B that shared memory has room for, and kSteps * kStep products at most. Thread q of four has
// eight products 4 s + q of a row in step s. The first half of that step's instructions multiply elements
// 0 to 3 of them, the other half 4 to 7, in the order 0 1 of all four threads, 2 3 of all four.
template <int kCols, int kSteps>
__global__ void __launch_bounds__(THREADS, 1)
    high_order_contraction_parts_kernel_optimized(const float* A, const float* B, float* C, int rows,
                                                  int b_dim, int c_dim, int x_dim, int y_dim) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(128) uint4 columns[]; // of four words of four threads each
    constexpr int kPart = kSteps * 4 * kCols;         // of those
    int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float* patch = (float*)(columns + kParts * kPart) + (group * 4 + warp) * 8 * (kCols + kPadding);
    int first_col = blockIdx.y * kCols, eights = x_dim * y_dim / 8;
    // Where the thread's products begin in a row of A, -1 beyond the last one.
    int places[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        int eight = 4 * s + lane % 4, x = eight * 8 / y_dim;
        places[s] = eight < eights ? x * b_dim * y_dim + eight * 8 % y_dim : -1;
    }
    const Eight kZeros = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    // Rows lane / 4 and that + 8 of a tile; null beyond the last one.
    const float* from[2];
    auto go_to = [&](int tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            long long row = (long long)tile * kRowsOf + warp * 16 + lane / 4 + 8 * half;
            int r = (int)row;
            from[half] = row < rows ? A + ((size_t)(r / b_dim) * x_dim * b_dim + r % b_dim) * y_dim : nullptr;
        }
    };
    Eight ahead[2][2]; // of two steps, both rows
    auto load = [&](int s) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            ahead[s % 2][half] = from[half] && places[s] >= 0 ? load8(from[half] + places[s]) : kZeros;
    };
    // Neighbouring tiles are different blocks'.
    int tiles = (rows - 1) / kRowsOf + 1, tile = group * gridDim.x + blockIdx.x;
    go_to(tile);
    load(0);
    load(1);

#pragma unroll 2
    for (int i = threadIdx.x; i < kCols * kSteps; i += kGroups * 128) {
        int col = i % kCols, s = i / kCols;
        unsigned int words[4][kParts][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            int eight = 4 * s + q, x = eight * 8 / y_dim;
            bool there = eight < eights && first_col + col < c_dim;
            take_apart(there ? load8(B + ((size_t)x * c_dim + first_col + col) * y_dim + eight * 8 % y_dim)
                             : kZeros,
                       words[q]);
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int w = 0; w < 4; ++w)
                columns[part * kPart + (s * 4 + w) * kCols + col] =
                    make_uint4(words[0][part][w], words[1][part][w], words[2][part][w], words[3][part][w]);
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();

    unsigned long long b = describe((unsigned int)__cvta_generic_to_shared(columns), kCols * 16);
    for (; tile < tiles; tile += gridDim.x * kGroups) {
        float large[kCols / 2], small[kCols / 2];
        unsigned int a[2][2][kParts][4]; // of two steps, both rows
        int next = tile + gridDim.x * kGroups;
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            take_apart(ahead[s % 2][0], a[s % 2][0]);
            take_apart(ahead[s % 2][1], a[s % 2][1]);
            if (s + 2 == kSteps)
                go_to(next);
            load((s + 2) % kSteps);
            hold(large);
            hold(small);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            // The smallest first. They are 2^-7 of the others, so that what is cut off here does not count.
#pragma unroll
            for (int both = kParts - 1; both >= 0; --both)
#pragma unroll
                for (int part = 0; part <= both; ++part)
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const unsigned int (&upper)[4] = a[s % 2][0][part], (&lower)[4] = a[s % 2][1][part];
                        unsigned long long right = b + (both - part) * kPart + (s * 4 + h * 2) * kCols;
                        if (both > 0)
                            multiply(small, upper[2 * h], lower[2 * h], upper[2 * h + 1], lower[2 * h + 1],
                                     right, s > 0 || both < kParts - 1 || part > 0 || h > 0);
                        else
                            multiply(large, upper[2 * h], lower[2 * h], upper[2 * h + 1], lower[2 * h + 1],
                                     right, s > 0 || h > 0);
                    }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            hold(large);
            hold(small);
            // One group stays in flight, while the next products are taken apart.
            if (s + 1 < kSteps)
                wait_products<1>();
        }
        wait_products<0>();
        hold(large);
        hold(small);
#pragma unroll
        for (int i = 0; i < kCols / 2; ++i)
            large[i] += small[i];
        store_sums(large, patch, C, (long long)tile * kRowsOf + warp * 16, first_col, rows, c_dim);
    }
#endif
}

// False where this build has no such kernel.
template <int kCols, int kSteps>
static bool launch_hopper(const float* A, const float* B, float* C, int rows, int b_dim, int c_dim, int x_dim,
                          int y_dim, int blocks) {
    auto kernel = high_order_contraction_parts_kernel_optimized<kCols, kSteps>;
    constexpr int kPatches = kGroups * 4 * 8 * (kCols + kPadding) * (int)sizeof(float);
    constexpr int kMemory = kParts * kCols * kSteps * kStep * (int)sizeof(__nv_bfloat16) + kPatches;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
    unsigned int tiles = (rows - 1) / kRowsOf + 1, parts = (c_dim - 1) / kCols + 1;
    dim3 grid(min(tiles, (unsigned int)blocks), parts);
    kernel<<<grid, kGroups * 128, kMemory>>>(A, B, C, rows, b_dim, c_dim, x_dim, y_dim);
    return cudaGetLastError() == cudaSuccess; // else nothing was launched
}

// False where this GPU or these tensors cannot have it.
static bool contract_on_hopper(const float* A, const float* B, float* C, long long rows, int b_dim, int c_dim,
                               int x_dim, int y_dim) {
    int device = 0, major = 0, blocks = 0;
    long long products = (long long)x_dim * y_dim;
    if (y_dim % 8 || c_dim % 4 || (((size_t)A | (size_t)B | (size_t)C) & 15) || products < 64 ||
        products > 256 || rows >= 1 << 30 || products * b_dim >= 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    // Each block takes all of B apart, which few tiles do not pay for.
    if (major != 9 || (rows - 1) / kRowsOf + 1 < blocks)
        return false;
    auto launched = products > 128 ? c_dim > 64 ? launch_hopper<128, 8> : launch_hopper<64, 8>
                    : c_dim > 64   ? launch_hopper<128, 4>
                                   : launch_hopper<64, 4>;
    return launched(A, B, C, (int)rows, b_dim, c_dim, x_dim, y_dim, blocks);
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
