// idea: Both products by warpgroups, fed by tensor maps
// why: In the step before a warp's products of 16 x 16 fragments wait for its own loads of fragments from shared
//      memory. On Hopper four warps together multiply 64 x 256 elements out of shared memory by one instruction
//      (wgmma), while one more thread has the copy engine bring the next tiles (tensor maps, a ring of stages, a full
//      and an empty barrier for each). Keys are read as they lie, values with rows and columns exchanged by the
//      instruction. Small matrices get small tiles: many stages in flight matter more there than parts of the inner
//      dimension, or clusters. Scores stay fp32; a block keeps a query's in registers and turns them into weights. The
//      three launches begin while the one before ends, so that barriers and tensor maps are ready by then. Other GPUs,
//      and sizes or places that tensor maps cannot have, get the kernels of the step before. The heaviest case takes an
//      H200 66 µs as a whole call, the step before 598. What binds it now: its tensor cores, which need 45 of the 57 µs
//      on its own clock.
// flags: -O3 --use_fast_math -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kDepth = 32;
constexpr int kSoftmaxThreads = 256;
constexpr int kScratch = 1 << 21; // scores that fit into the fixed arrays: 1024 queries and 2048 keys
constexpr unsigned kFullMask = 0xffffffffu;

__device__ __align__(16) float scores_scratch[kScratch];
__device__ __align__(16) __nv_bfloat16 weights_scratch[kScratch];

// Scores and weights live in the fixed arrays unless there are too many for them.
__device__ float* scores_in(float* allocated) {
    return allocated != nullptr ? allocated : scores_scratch;
}

__device__ __nv_bfloat16* weights_in(__nv_bfloat16* allocated) {
    return allocated != nullptr ? allocated : weights_scratch;
}

struct __align__(16) Vector {
    __nv_bfloat16 at[8];
};

// Eight neighbouring elements of a row-major matrix, zeros beyond its ends.
__device__ Vector load8(const __nv_bfloat16* matrix, int rows, int columns, size_t row, size_t column,
                        bool aligned) {
    const __nv_bfloat16* from = matrix + row * columns + column;
    if (aligned && row < rows && column < columns)
        return *(const Vector*)from;
    Vector value;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        value.at[k] = row < rows && column + k < columns ? from[k] : __float2bfloat16(0.0f);
    return value;
}

// Whether all groups of eight in the rows of a matrix are whole and aligned.
__device__ bool fits_vectors(const void* matrix, int columns) {
    return ((size_t)matrix & 15) == 0 && columns % 8 == 0;
}

__device__ void store8(float* to, const float* values) {
    *(float4*)to = *(const float4*)values;
    *(float4*)(to + 4) = *(const float4*)(values + 4);
}

__device__ void store8(__nv_bfloat16* to, const float* values) {
    Vector rounded;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        rounded.at[k] = __float2bfloat16(values[k]);
    *(Vector*)to = rounded;
}

__device__ void store1(float* to, float value) {
    *to = value;
}

__device__ void store1(__nv_bfloat16* to, float value) {
    *to = __float2bfloat16(value);
}

// How tensor cores read the second operand.
template <bool kTransposed> struct LayoutOf {
    typedef wmma::row_major type;
};
template <> struct LayoutOf<true> {
    typedef wmma::col_major type;
};

// C(M x N) = factor * A(M x K) B, where B is K x N, or N x K where it is kTransposed. One tile per block of
// 2 * kTile threads; a warp has half of the tile's rows and 32 columns.
template <int kTile, bool kTransposed, class Result>
__device__ void product(const __nv_bfloat16* A, const __nv_bfloat16* B, Result* C, int M, int N, int K,
                        float factor) {
    constexpr int kThreads = 2 * kTile;
    constexpr int kLoads = 2; // vectors of each strip that a thread moves
    constexpr int kRowParts = kTile / 2 / 16, kColumnParts = 2;
    constexpr int kLead = kDepth + 8;                            // length of a padded row of A's strip
    constexpr int kLeadB = kTransposed ? kDepth + 8 : kTile + 8; // and of B's
    constexpr int kRowsB = kTransposed ? kTile : kDepth;
    constexpr int kPatch = 20; // length of a padded row of 16 results
    __shared__ __align__(128) __nv_bfloat16 a[2][kTile][kLead], b[2][kRowsB][kLeadB];
    static_assert(sizeof(a) >= kThreads / 32 * 16 * kPatch * sizeof(float), "results fit where A was");

    int tiles_across = (N - 1) / kTile + 1;
    size_t first_row = blockIdx.x / tiles_across * (size_t)kTile;
    size_t first_column = blockIdx.x % tiles_across * (size_t)kTile;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int warp_row = warp % 2 * (kTile / 2), warp_column = warp / 2 * 32;
    bool a_fits = fits_vectors(A, K), b_fits = fits_vectors(B, kTransposed ? K : N);

    Vector next_a[kLoads], next_b[kLoads];
    auto fetch = [&](size_t depth) {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) {
            int id = load * kThreads + threadIdx.x;
            next_a[load] = load8(A, M, K, first_row + id / 4, depth + id % 4 * 8, a_fits);
            if (kTransposed)
                next_b[load] = load8(B, N, K, first_column + id / 4, depth + id % 4 * 8, b_fits);
            else
                next_b[load] =
                    load8(B, K, N, depth + id / (kTile / 8), first_column + id % (kTile / 8) * 8, b_fits);
        }
    };
    auto put = [&](int buffer) {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) {
            int id = load * kThreads + threadIdx.x;
            *(Vector*)&a[buffer][id / 4][id % 4 * 8] = next_a[load];
            if (kTransposed)
                *(Vector*)&b[buffer][id / 4][id % 4 * 8] = next_b[load];
            else
                *(Vector*)&b[buffer][id / (kTile / 8)][id % (kTile / 8) * 8] = next_b[load];
        }
    };

    typedef typename LayoutOf<kTransposed>::type Layout;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[kRowParts][kColumnParts];
#pragma unroll
    for (int i = 0; i < kRowParts; ++i)
#pragma unroll
        for (int j = 0; j < kColumnParts; ++j)
            wmma::fill_fragment(sums[i][j], 0.0f);
    fetch(0);
    put(0);
    __syncthreads();
    int strips = (K - 1) / kDepth + 1;
    for (int strip = 0; strip < strips; ++strip) {
        int buffer = strip % 2;
        if (strip + 1 < strips)
            fetch((strip + 1) * (size_t)kDepth);
#pragma unroll
        for (int k = 0; k < kDepth; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> rows[kRowParts];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, Layout> columns[kColumnParts];
#pragma unroll
            for (int i = 0; i < kRowParts; ++i)
                wmma::load_matrix_sync(rows[i], &a[buffer][warp_row + i * 16][k], kLead);
#pragma unroll
            for (int j = 0; j < kColumnParts; ++j)
                wmma::load_matrix_sync(columns[j],
                                       kTransposed ? &b[buffer][warp_column + j * 16][k]
                                                   : &b[buffer][k][warp_column + j * 16],
                                       kLeadB);
#pragma unroll
            for (int i = 0; i < kRowParts; ++i)
#pragma unroll
                for (int j = 0; j < kColumnParts; ++j)
                    wmma::mma_sync(sums[i][j], rows[i], columns[j], sums[i][j]);
        }
        if (strip + 1 < strips)
            put(1 - buffer);
        __syncthreads();
    }

    // Results go through shared memory, 16 x 16 at a time: a lane writes half a row of 16.
    float* patch = (float*)&a[0][0][0] + warp * 16 * kPatch;
    bool c_fits = fits_vectors(C, N);
#pragma unroll
    for (int i = 0; i < kRowParts; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnParts; ++j) {
#pragma unroll
            for (int e = 0; e < sums[i][j].num_elements; ++e)
                sums[i][j].x[e] *= factor;
            wmma::store_matrix_sync(patch, sums[i][j], kPatch, wmma::mem_row_major);
            __syncwarp();
            size_t row = first_row + warp_row + i * 16 + lane / 2;
            size_t column = first_column + warp_column + j * 16 + lane % 2 * 8;
            const float* values = patch + lane / 2 * kPatch + lane % 2 * 8;
            if (row < M && c_fits && column < N) {
                store8(C + row * N + column, values);
            } else if (row < M) {
                for (int k = 0; k < 8; ++k)
                    if (column + k < N)
                        store1(C + row * N + column + k, values[k]);
            }
            __syncwarp();
        }
    }
}

template <int kTile>
__global__ void __launch_bounds__(2 * kTile)
    attention_scores_bf16_kernel_optimized(const __nv_bfloat16* Q, const __nv_bfloat16* K, float* allocated,
                                           int q_seq_len, int kv_seq_len, int dim_qk, float factor) {
    product<kTile, true>(Q, K, scores_in(allocated), q_seq_len, kv_seq_len, dim_qk, factor);
}

template <int kTile>
__global__ void __launch_bounds__(2 * kTile)
    attention_values_bf16_kernel_optimized(__nv_bfloat16* allocated, const __nv_bfloat16* V, __nv_bfloat16* Y,
                                           int q_seq_len, int kv_seq_len, int dim_v) {
    product<kTile, false>(weights_in(allocated), V, Y, q_seq_len, dim_v, kv_seq_len, 1.0f);
}

// Over the block, in all its threads. `warp_values` has room for 32 numbers.
__device__ float block_max(float value, float* warp_values) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    if (threadIdx.x % 32 == 0)
        warp_values[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warp_values[threadIdx.x % 32] : -CUDART_INF_F;
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    return value;
}

__device__ float block_sum(float value, float* warp_values) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    if (threadIdx.x % 32 == 0)
        warp_values[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? warp_values[threadIdx.x % 32] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// One row of scores per block.
__global__ void attention_softmax_bf16_kernel_optimized(float* allocated_scores,
                                                        __nv_bfloat16* allocated_weights, int kv_seq_len) {
    __shared__ float warp_values[2][32];
    float* row = scores_in(allocated_scores) + (size_t)blockIdx.x * kv_seq_len;
    __nv_bfloat16* weights = weights_in(allocated_weights) + (size_t)blockIdx.x * kv_seq_len;
    float largest = -CUDART_INF_F;
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kSoftmaxThreads)
        largest = fmaxf(largest, row[j]);
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kSoftmaxThreads)
        sum += expf(row[j] - largest);
    float factor = 1.0f / block_sum(sum, warp_values[1]);
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kSoftmaxThreads)
        weights[j] = __float2bfloat16(expf(row[j] - largest) * factor);
}

int tiles(int rows, int columns, int size) {
    return ((rows - 1) / size + 1) * ((columns - 1) / size + 1);
}

constexpr int kEnoughTiles = 96; // of the large ones, for 132 multiprocessors

static void attend_elsewhere(__nv_bfloat16* Y, const __nv_bfloat16* Q, const __nv_bfloat16* K,
                             const __nv_bfloat16* V, int q_seq_len, int kv_seq_len, int dim_qk, int dim_v) {
    float* scores = nullptr;
    __nv_bfloat16* weights = nullptr;
    size_t count = (size_t)q_seq_len * kv_seq_len;
    if (count > kScratch) {
        cudaMallocAsync(&scores, sizeof(float) * count, 0);
        cudaMallocAsync(&weights, sizeof(__nv_bfloat16) * count, 0);
    }
    float factor = 1.0f / sqrtf((float)dim_qk);
    if (tiles(q_seq_len, kv_seq_len, 128) >= kEnoughTiles)
        attention_scores_bf16_kernel_optimized<128>
            <<<tiles(q_seq_len, kv_seq_len, 128), 256>>>(Q, K, scores, q_seq_len, kv_seq_len, dim_qk, factor);
    else
        attention_scores_bf16_kernel_optimized<64>
            <<<tiles(q_seq_len, kv_seq_len, 64), 128>>>(Q, K, scores, q_seq_len, kv_seq_len, dim_qk, factor);
    attention_softmax_bf16_kernel_optimized<<<q_seq_len, kSoftmaxThreads>>>(scores, weights, kv_seq_len);
    if (tiles(q_seq_len, dim_v, 128) >= kEnoughTiles)
        attention_values_bf16_kernel_optimized<128>
            <<<tiles(q_seq_len, dim_v, 128), 256>>>(weights, V, Y, q_seq_len, kv_seq_len, dim_v);
    else
        attention_values_bf16_kernel_optimized<64>
            <<<tiles(q_seq_len, dim_v, 64), 128>>>(weights, V, Y, q_seq_len, kv_seq_len, dim_v);
    if (count > kScratch) {
        cudaFreeAsync(scores, 0);
        cudaFreeAsync(weights, 0);
    }
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Plan::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

// A launch may begin before the one before it has ended: its blocks take the places of those that have, and prepare.
__device__ void begin_next() {
#if HAS_WARPGROUPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before this one has ended, and all that it wrote is there.
__device__ void wait_for_last() {
#if HAS_WARPGROUPS
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

[[maybe_unused]] constexpr int kStep = 64; // of K, at a time: a row of 128 bytes, as wide as a swizzle
[[maybe_unused]] constexpr int kBoxBytes = 64 * 128; // 64 rows of that
// Tiles across that are made one below the other, so that L2 keeps their part of B.
[[maybe_unused]] constexpr int kBand = 8;

template <int consumers, int n, int stages> struct Plan {
    static constexpr int kConsumers = consumers, kM = 64 * consumers, kN = n, kStages = stages;
    static constexpr int kThreads = 128 * (consumers + 1);
    static constexpr int kBytesA = kM * 128, kBytesB = n * 128, kStageBytes = kBytesA + kBytesB;
    static constexpr int kMemory = stages * (kStageBytes + 16) + 1024;
};
using Wide = Plan<2, 256, 4>;
using Square = Plan<2, 128, 6>;
using Thin = Plan<1, 128, 8>;

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
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%2, %3}], [%4];" ::"r"(to),
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

// d += a b, or d = a b where nothing is kept: 64 x 128 sums, 16 products each.
template <int turned>
static __device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, kept, 1, 1, 0, %67;}"
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
                 : "l"(a), "l"(b), "r"(keep), "n"(turned));
}

// d += a b, or d = a b where nothing is kept: 64 x 256 sums, 16 products each.
template <int turned>
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
        "%128, %129, kept, 1, 1, 0, %131;}"
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
        : "l"(a), "l"(b), "r"(keep), "n"(turned));
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

// A warp's 16 rows of sums times `factor`: of fp32 in stores of 8 bytes, a lane's pair each.
template <int count>
static __device__ void store_sums(const float (&d)[count], float* C, long long row, long long col, int M,
                                  int N, int stride, float factor) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        long long r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int i = 0; i < count / 4; ++i) {
            long long c = col + i * 8 + lane % 4 * 2;
            if (r < M && c < N)
                *(float2*)(C + r * stride + c) =
                    make_float2(d[i * 4 + half * 2] * factor, d[i * 4 + half * 2 + 1] * factor);
        }
    }
}

static __device__ unsigned int pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned int*)&pair;
}

// Rounded, in stores of 16 bytes.
template <int count>
static __device__ void store_sums(const float (&d)[count], __nv_bfloat16* C, long long row, long long col,
                                  int M, int N, int stride, float factor) {
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
                words[i] = pack2(pair[0] * factor, pair[1] * factor);
            }
            transpose4(words, lane);
            long long c = col + group * 32 + lane % 4 * 8;
            if (r < M && c < N)
                *(uint4*)(C + r * stride + c) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

#endif

// First row and column of a tile.
template <class Plan> static __device__ void place_of(int tile, int M, int N, int* row, int* col) {
    int down = (M - 1) / Plan::kM + 1, across = (N - 1) / Plan::kN + 1;
    int band = tile / (down * kBand), within = tile % (down * kBand);
    int width = min(kBand, across - band * kBand);
    *row = within / width * Plan::kM;
    *col = (band * kBand + within % width) * Plan::kN;
}

// C = factor A B, where rows of C are `stride` elements apart; B is K x N where it is turned, and N x K where not.
template <class Plan, bool kTurned, class Result>
__global__ void __launch_bounds__(THREADS, 1)
    attention_product_bf16_hopper_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                                   const __grid_constant__ CUtensorMap map_b, Result* C,
                                                   int M, int N, int K, int stride, float factor, int tiles) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kStages = Plan::kStages;
    unsigned int stages = shared_address(memory), full = stages + kStages * Plan::kStageBytes,
                 empty = full + 8 * kStages;
    int steps = (K - 1) / kStep + 1;
    begin_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, Plan::kConsumers * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    int row, col, stage = 0;
    unsigned int parity = 0;
    auto next = [&]() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    };
    if (threadIdx.x < 128) {
        // One thread has the copies made. It fills a stage when all who read it are done with it.
        if constexpr (Plan::kN == 256)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            wait_for_last();
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                place_of<Plan>(tile, M, N, &row, &col);
                for (int step = 0; step < steps; ++step, next()) {
                    wait_for(empty + 8 * stage, parity ^ 1);
                    expect_bytes(full + 8 * stage, Plan::kStageBytes);
                    unsigned int to = stages + stage * Plan::kStageBytes;
                    load_box(to, &map_a, step * kStep, row, full + 8 * stage);
                    to += Plan::kBytesA;
                    if constexpr (!kTurned) {
                        load_box(to, &map_b, step * kStep, col, full + 8 * stage);
                    } else {
                        for (int i = 0; i < Plan::kN / 64; ++i)
                            load_box(to + i * kBoxBytes, &map_b, col + i * 64, step * kStep,
                                     full + 8 * stage);
                    }
                }
            }
        }
    } else {
        if constexpr (Plan::kN == 256)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        auto release = [&](int of) {
            if (lane == 0)
                arrive(empty + 8 * of);
        };
        float d[Plan::kN / 2];
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            place_of<Plan>(tile, M, N, &row, &col);
            int before = 0;
            for (int step = 0; step < steps; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes;
                unsigned long long a = describe(from + group * kBoxBytes, 16, 1024);
                unsigned long long b = describe(from + Plan::kBytesA, kTurned ? kBoxBytes : 16, 1024);
                hold(d);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply<kTurned>(d, a + k * (32 >> 4), b + k * ((kTurned ? 2048 : 32) >> 4),
                                      step > 0 || k > 0);
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
            store_sums(d, C, row + group * 64 + warp * 16, col, M, N, stride, factor);
        }
    }
#endif
}

static bool describe_matrix(CUtensorMap* map, const __nv_bfloat16* data, int rows, int cols, int stride,
                            int box_rows) {
    cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)stride * 2};
    cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)data, sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A matrix, rows `stride` elements apart.
template <class Element> struct Matrix {
    Element* data;
    int stride;
};

template <class Plan> static int tiles_of(int M, int N) {
    return ((M - 1) / Plan::kM + 1) * ((N - 1) / Plan::kN + 1);
}

// A launch that may begin while the one before it ends, if `early`.
template <class... Parameters, class... Arguments>
static void launch(void (*kernel)(Parameters...), int grid, int threads, int memory, bool early,
                   const Arguments&... arguments) {
    cudaLaunchAttribute wanted = {};
    wanted.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    wanted.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = memory;
    config.attrs = &wanted;
    config.numAttrs = early ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class Plan, bool kTurned, class Result>
static bool launch_hopper(Matrix<const __nv_bfloat16> A, Matrix<const __nv_bfloat16> B, Matrix<Result> C,
                          int M, int N, int K, float factor, int blocks, bool early) {
    auto kernel = attention_product_bf16_hopper_kernel_optimized<Plan, kTurned, Result>;
    cudaFuncAttributes built;
    if (cudaFuncGetAttributes(&built, kernel) != cudaSuccess || built.maxThreadsPerBlock < Plan::kThreads)
        return false;
    CUtensorMap map_a, map_b;
    if (!describe_matrix(&map_a, A.data, M, K, A.stride, Plan::kM) ||
        !(kTurned ? describe_matrix(&map_b, B.data, K, N, B.stride, 64)
                  : describe_matrix(&map_b, B.data, N, K, B.stride, Plan::kN)))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    int tiles = tiles_of<Plan>(M, N);
    launch(kernel, min(tiles, blocks), Plan::kThreads, Plan::kMemory, early, map_a, map_b, C.data, M, N, K,
           C.stride, factor, tiles);
    return true;
}

// C = factor A B; false where this build cannot.
template <bool kTurned, class Result>
static bool product_on_hopper(Matrix<const __nv_bfloat16> A, Matrix<const __nv_bfloat16> B, Matrix<Result> C,
                              int M, int N, int K, float factor, int blocks, bool early) {
    if (tiles_of<Wide>(M, N) * 8 >= blocks * 7)
        return launch_hopper<Wide, kTurned>(A, B, C, M, N, K, factor, blocks, early);
    if (tiles_of<Square>(M, N) * 4 >= blocks * 3)
        return launch_hopper<Square, kTurned>(A, B, C, M, N, K, factor, blocks, early);
    return launch_hopper<Thin, kTurned>(A, B, C, M, N, K, factor, blocks, early);
}

constexpr int kMostKeys =
    4 * kSoftmaxThreads * 8; // of which a block keeps all scores of a query in registers

// A query's scores become its weights; a thread has kEach groups of eight neighbours. Behind the last key there is room
// for the rest of a group.
template <int kEach>
__global__ void __launch_bounds__(kSoftmaxThreads)
    attention_weights_bf16_kernel_optimized(const float* scores, __nv_bfloat16* weights, int keys,
                                            int stride) {
    __shared__ float warp_values[2][32];
    begin_next();
    wait_for_last();
    const float* row = scores + (size_t)blockIdx.x * stride;
    float values[kEach][8], largest = -CUDART_INF_F, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int first = (i * kSoftmaxThreads + threadIdx.x) * 8;
        if (first < keys) {
            *(float4*)values[i] = *(const float4*)(row + first);
            *(float4*)(values[i] + 4) = *(const float4*)(row + first + 4);
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            values[i][j] = first + j < keys ? values[i][j] : -CUDART_INF_F;
            largest = fmaxf(largest, values[i][j]);
        }
    }
    largest = block_max(largest, warp_values[0]);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
            sum += values[i][j] = expf(values[i][j] - largest);
    float factor = 1.0f / block_sum(sum, warp_values[1]);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int first = (i * kSoftmaxThreads + threadIdx.x) * 8;
#pragma unroll
        for (int j = 0; j < 8; ++j)
            values[i][j] *= factor;
        if (first < keys)
            store8(weights + (size_t)blockIdx.x * stride + first, values[i]);
    }
}

static void weigh(const float* scores, __nv_bfloat16* weights, int queries, int keys, int stride) {
    auto kernel = keys <= kMostKeys / 4   ? attention_weights_bf16_kernel_optimized<1>
                  : keys <= kMostKeys / 2 ? attention_weights_bf16_kernel_optimized<2>
                                          : attention_weights_bf16_kernel_optimized<4>;
    launch(kernel, queries, kSoftmaxThreads, 0, true, scores, weights, keys, stride);
}

// False where this GPU or these matrices cannot have it.
static bool attend_on_hopper(__nv_bfloat16* Y, const __nv_bfloat16* Q, const __nv_bfloat16* K,
                             const __nv_bfloat16* V, int queries, int keys, int dim_qk, int dim_v) {
    int device = 0, major = 0, blocks = 0, stride = (keys + 7) / 8 * 8;
    if (dim_qk % 8 || dim_v % 8 || (((size_t)Y | (size_t)Q | (size_t)K | (size_t)V) & 15) ||
        keys > kMostKeys || (size_t)queries * stride > kScratch)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    void *scores, *weights;
    if (major != 9 || cudaGetSymbolAddress(&scores, scores_scratch) != cudaSuccess ||
        cudaGetSymbolAddress(&weights, weights_scratch) != cudaSuccess)
        return false;
    if (!product_on_hopper<false>(Matrix<const __nv_bfloat16>{Q, dim_qk},
                                  Matrix<const __nv_bfloat16>{K, dim_qk},
                                  Matrix<float>{(float*)scores, stride}, queries, keys, dim_qk,
                                  1.0f / sqrtf((float)dim_qk), blocks, false))
        return false;
    weigh((const float*)scores, (__nv_bfloat16*)weights, queries, keys, stride);
    return product_on_hopper<true>(Matrix<const __nv_bfloat16>{(const __nv_bfloat16*)weights, stride},
                                   Matrix<const __nv_bfloat16>{V, dim_v}, Matrix<__nv_bfloat16>{Y, dim_v},
                                   queries, dim_v, keys, 1.0f, blocks, true);
}

extern "C" void softmax_attention_bf16_optimized(__nv_bfloat16* Y, const __nv_bfloat16* Q,
                                                 const __nv_bfloat16* K, const __nv_bfloat16* V,
                                                 int q_seq_len, int kv_seq_len, int dim_qk, int dim_v) {
    if (!attend_on_hopper(Y, Q, K, V, q_seq_len, kv_seq_len, dim_qk, dim_v))
        attend_elsewhere(Y, Q, K, V, q_seq_len, kv_seq_len, dim_qk, dim_v);
}
