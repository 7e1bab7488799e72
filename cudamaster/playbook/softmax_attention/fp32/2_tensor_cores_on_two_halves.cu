// idea: Tensor cores on numbers in two halves
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply fp16 fifteen
//      times as fast. A row's numbers, times the power of 2 that brings its largest to 2^14, are the sum of two of fp16
//      but for 2^-24 of them: the number rounded, and what that leaves. Three of the four products of two such sums
//      count. One launch takes queries, keys and values apart, and warpgroups multiply the halves (wgmma), fed by
//      tensor maps and a ring of stages. Tensor cores cut off what they add, so the first products have sums of their
//      own, which are added in fp32 after every 32, while the other two are made. The softmax writes weights in halves
//      as well, each times the power of 2 of its key's value. Launches begin while the one before ends. What is given
//      up: numbers below 2^-16 of the largest of their row keep 2^-40 of that, not 2^-24 of their own, and an infinite
//      number makes NaN where fp32 may have infinity. Other GPUs, fewer than 64 rows or columns, and matrices larger
//      than there is room for, take the step before. The heaviest case takes an H200 245 µs as a whole call, the step
//      before 890. What binds it now: 151 of the 225 µs on its own clock are the products, 70 the taking apart, which
//      reads and writes 160 MB.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kThreads = 256; // 16 x 16
constexpr int kDepth = 16;
constexpr int kScratch = 1 << 21; // scores that fit into the fixed array: 1024 queries and 2048 keys
constexpr unsigned kFullMask = 0xffffffffu;

__device__ __align__(16) float scores_scratch[kScratch];

// Scores live in the fixed array unless there are too many for it.
__device__ float* scores_in(float* allocated) {
    return allocated != nullptr ? allocated : scores_scratch;
}

// Four neighbouring elements of a row-major matrix, zeros beyond its ends.
__device__ float4 load4(const float* matrix, int rows, int columns, size_t row, size_t column, bool aligned) {
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row >= rows || column >= columns)
        return value;
    const float* from = matrix + row * columns + column;
    if (aligned)
        return *(const float4*)from;
    value.x = from[0];
    if (column + 1 < columns)
        value.y = from[1];
    if (column + 2 < columns)
        value.z = from[2];
    if (column + 3 < columns)
        value.w = from[3];
    return value;
}

// Whether all groups of four in the rows of a matrix are whole and aligned.
__device__ bool fits_vectors(const float* matrix, int columns) {
    return ((size_t)matrix & 15) == 0 && columns % 4 == 0;
}

// C(M x N) = factor * A(M x K) B, where B is K x N, or N x K where it is kTransposed. One tile per block.
template <int kTile, bool kTransposed>
__device__ void product(const float* A, const float* B, float* C, int M, int N, int K, float factor) {
    constexpr int kLoads = kTile * kDepth / 4 / kThreads; // vectors of each strip that a thread moves
    constexpr int kGroups = kTile / 64;                   // of four rows, and of four columns, of a thread
    __shared__ __align__(16) float a[2][kDepth][kTile + 4], b[2][kDepth][kTile + 4];
    int tiles_across = (N - 1) / kTile + 1;
    size_t first_row = blockIdx.x / tiles_across * (size_t)kTile;
    size_t first_column = blockIdx.x % tiles_across * (size_t)kTile;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    bool a_fits = fits_vectors(A, K), b_fits = fits_vectors(B, kTransposed ? K : N);

    float4 next_a[kLoads], next_b[kLoads];
    auto fetch = [&](size_t depth) {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) {
            int id = load * kThreads + threadIdx.x;
            next_a[load] = load4(A, M, K, first_row + id / 4, depth + id % 4 * 4, a_fits);
            if (kTransposed)
                next_b[load] = load4(B, N, K, first_column + id / 4, depth + id % 4 * 4, b_fits);
            else
                next_b[load] =
                    load4(B, K, N, depth + id / (kTile / 4), first_column + id % (kTile / 4) * 4, b_fits);
        }
    };
    auto put_across = [&](float (*strip)[kTile + 4], int id, float4 value) {
        strip[id % 4 * 4][id / 4] = value.x;
        strip[id % 4 * 4 + 1][id / 4] = value.y;
        strip[id % 4 * 4 + 2][id / 4] = value.z;
        strip[id % 4 * 4 + 3][id / 4] = value.w;
    };
    auto put = [&](int buffer) {
#pragma unroll
        for (int load = 0; load < kLoads; ++load) {
            int id = load * kThreads + threadIdx.x;
            put_across(a[buffer], id, next_a[load]);
            if (kTransposed)
                put_across(b[buffer], id, next_b[load]);
            else
                *(float4*)&b[buffer][id / (kTile / 4)][id % (kTile / 4) * 4] = next_b[load];
        }
    };

    float sums[kGroups * 4][kGroups * 4] = {};
    fetch(0);
    put(0);
    __syncthreads();
    int strips = (K - 1) / kDepth + 1;
    for (int strip = 0; strip < strips; ++strip) {
        int buffer = strip % 2;
        if (strip + 1 < strips)
            fetch((strip + 1) * (size_t)kDepth);
#pragma unroll
        for (int k = 0; k < kDepth; ++k) {
            float4 rows[kGroups], columns[kGroups];
#pragma unroll
            for (int group = 0; group < kGroups; ++group) {
                rows[group] = *(const float4*)&a[buffer][k][group * 64 + y * 4];
                columns[group] = *(const float4*)&b[buffer][k][group * 64 + x * 4];
            }
            const float* row_values = (const float*)rows;
            const float* column_values = (const float*)columns;
#pragma unroll
            for (int i = 0; i < kGroups * 4; ++i)
#pragma unroll
                for (int j = 0; j < kGroups * 4; ++j)
                    sums[i][j] += row_values[i] * column_values[j];
        }
        if (strip + 1 < strips)
            put(1 - buffer);
        __syncthreads();
    }

    bool c_fits = fits_vectors(C, N);
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
        size_t row = first_row + i / 4 * 64 + y * 4 + i % 4;
        if (row >= M)
            continue;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
            size_t column = first_column + group * 64 + x * 4;
            float* sum = &sums[i][group * 4];
            if (c_fits && column < N) {
                *(float4*)(C + row * N + column) =
                    make_float4(sum[0] * factor, sum[1] * factor, sum[2] * factor, sum[3] * factor);
            } else {
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (column + k < N)
                        C[row * N + column + k] = sum[k] * factor;
            }
        }
    }
}

template <int kTile>
__global__ void __launch_bounds__(kThreads)
    attention_scores_kernel_optimized(const float* Q, const float* K, float* allocated, int q_seq_len,
                                      int kv_seq_len, int dim_qk, float factor) {
    product<kTile, true>(Q, K, scores_in(allocated), q_seq_len, kv_seq_len, dim_qk, factor);
}

template <int kTile>
__global__ void __launch_bounds__(kThreads)
    attention_values_kernel_optimized(float* allocated, const float* V, float* Y, int q_seq_len,
                                      int kv_seq_len, int dim_v) {
    product<kTile, false>(scores_in(allocated), V, Y, q_seq_len, dim_v, kv_seq_len, 1.0f);
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

// One row of scores per block, in place.
__global__ void attention_softmax_kernel_optimized(float* allocated, int kv_seq_len) {
    __shared__ float warp_values[2][32];
    float* row = scores_in(allocated) + (size_t)blockIdx.x * kv_seq_len;
    float largest = -CUDART_INF_F;
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kThreads)
        largest = fmaxf(largest, row[j]);
    largest = block_max(largest, warp_values[0]);
    float sum = 0.0f;
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kThreads) {
        float weight = expf(row[j] - largest);
        row[j] = weight;
        sum += weight;
    }
    float factor = 1.0f / block_sum(sum, warp_values[1]);
    for (size_t j = threadIdx.x; j < kv_seq_len; j += kThreads)
        row[j] *= factor;
}

int tiles(int rows, int columns, int size) {
    return ((rows - 1) / size + 1) * ((columns - 1) / size + 1);
}

constexpr int kEnoughTiles = 96; // of the large ones, for 132 multiprocessors

static void attend_elsewhere(float* Y, const float* Q, const float* K, const float* V, int q_seq_len,
                             int kv_seq_len, int dim_qk, int dim_v) {
    float* allocated = nullptr;
    size_t scores = (size_t)q_seq_len * kv_seq_len;
    if (scores > kScratch)
        cudaMallocAsync(&allocated, sizeof(float) * scores, 0);
    float factor = 1.0f / sqrtf((float)dim_qk);
    if (tiles(q_seq_len, kv_seq_len, 128) >= kEnoughTiles)
        attention_scores_kernel_optimized<128><<<tiles(q_seq_len, kv_seq_len, 128), kThreads>>>(
            Q, K, allocated, q_seq_len, kv_seq_len, dim_qk, factor);
    else
        attention_scores_kernel_optimized<64><<<tiles(q_seq_len, kv_seq_len, 64), kThreads>>>(
            Q, K, allocated, q_seq_len, kv_seq_len, dim_qk, factor);
    attention_softmax_kernel_optimized<<<q_seq_len, kThreads>>>(allocated, kv_seq_len);
    if (tiles(q_seq_len, dim_v, 128) >= kEnoughTiles)
        attention_values_kernel_optimized<128>
            <<<tiles(q_seq_len, dim_v, 128), kThreads>>>(allocated, V, Y, q_seq_len, kv_seq_len, dim_v);
    else
        attention_values_kernel_optimized<64>
            <<<tiles(q_seq_len, dim_v, 64), kThreads>>>(allocated, V, Y, q_seq_len, kv_seq_len, dim_v);
    if (allocated != nullptr)
        cudaFreeAsync(allocated, 0);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Plan::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kStep = 32;                               // of the inner dimension, at a time
[[maybe_unused]] constexpr int kBoxBytes = kStep * 128; // of values: so many rows of 64 elements
// Tiles across that are made one below the other, so that L2 keeps their part of B.
[[maybe_unused]] constexpr int kBand = 8;
constexpr int kParts = 2;
constexpr int kTop = 14;                    // the largest of a row is between 2^14 and 2^15
constexpr int kMostKeys = 4 * kThreads * 8; // of which a block keeps all scores of a query in registers
constexpr int kRoomQ = 1 << 22, kRoomK = 1 << 23, kRoomV = 1 << 23, kRoomP = 1 << 21; // elements
constexpr int kRoomRows = 1 << 15, kRoomSums = 1 << 22;

__device__ __align__(1024) __half parts_of_q[kParts][kRoomQ], parts_of_k[kParts][kRoomK],
    parts_of_v[kParts][kRoomV], parts_of_p[kParts][kRoomP];
__device__ int exponents_of_q[kRoomRows], exponents_of_k[kRoomRows], exponents_of_v[kRoomRows],
    exponents_of_p[kRoomRows];
__device__ float factors_of_p[kRoomRows];
__device__ __align__(16) float sums_scratch[kRoomSums];

// Blocks of a cluster share tiles of B along M.
template <int along_m> struct Plan {
    static constexpr int kConsumers = 2, kM = 64 * kConsumers, kN = 128, kStages = 6, kAlongM = along_m;
    static constexpr int kThreads = 128 * (kConsumers + 1);
    static constexpr int kBytesA = kM * kStep * 2, kBytesB = kN * kStep * 2;
    static constexpr int kStageBytes = kParts * (kBytesA + kBytesB),
                         kMemory = kStages * (kStageBytes + 16) + 1024;
};

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

// Of a row's largest number; so that 2^(kTop - exponent) is a number too.
__device__ int exponent_of(float largest) {
    return max((int)(__float_as_uint(largest) >> 23 & 255) - 127, kTop - 126);
}

__device__ float power_of_2(int exponent) {
    return __uint_as_float((unsigned)(exponent + 127) << 23);
}

// Eight neighbours, the upper halves and the lower ones.
__device__ void store_parts(const float* values, float scale, __half* to, size_t part) {
    __align__(16) __half upper[8], lower[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        float scaled = values[j] * scale;
        upper[j] = __float2half_rn(scaled);
        lower[j] = __float2half_rn(scaled - __half2float(upper[j]));
    }
    *(uint4*)to = *(const uint4*)upper;
    *(uint4*)(to + part) = *(const uint4*)lower;
}

// A matrix that is taken apart, and where to.
struct Apart {
    const float* from;
    int rows, cols, stride;
    __half* to;
    size_t part;
    int* exponents;
};

// Eight neighbours of a row: all there and aligned where kWhole, with zeros beyond its end elsewhere.
template <bool kWhole> __device__ void load8(float* values, const float* row, int col, int cols) {
    if constexpr (kWhole) {
        *(float4*)values = *(const float4*)(row + col);
        *(float4*)(values + 4) = *(const float4*)(row + col + 4);
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
            values[j] = col + j < cols ? row[col + j] : 0.0f;
    }
}

// A warp reads a row twice: for its largest number, and to take it apart.
template <bool kWhole> __device__ void take_apart(const Apart& all, int row) {
    const float* from = all.from + (size_t)row * all.cols;
    int lane = threadIdx.x % 32;
    float values[8], largest = 0.0f;
#pragma unroll 8
    for (int col = lane * 8; col < all.stride; col += 256) {
        load8<kWhole>(values, from, col, all.cols);
#pragma unroll
        for (int j = 0; j < 8; ++j)
            largest = fmaxf(largest, fabsf(values[j]));
    }
    for (int distance = 16; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, distance));
    int exponent = exponent_of(largest);
    float scale = power_of_2(kTop - exponent);
    __half* to = all.to + (size_t)row * all.stride;
#pragma unroll 4
    for (int col = lane * 8; col < all.stride; col += 256) {
        load8<kWhole>(values, from, col, all.cols);
        store_parts(values, scale, to + col, all.part);
    }
    if (lane == 0)
        all.exponents[row] = exponent;
}

// A row for each warp.
__global__ void __launch_bounds__(kThreads)
    attention_split_kernel_optimized(const __grid_constant__ Apart q, const __grid_constant__ Apart k,
                                     const __grid_constant__ Apart v) {
    begin_next();
    int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
    if (row >= q.rows + k.rows + v.rows)
        return;
    const Apart& all = row < q.rows ? q : row < q.rows + k.rows ? k : v;
    row -= row < q.rows ? 0 : row < q.rows + k.rows ? q.rows : q.rows + k.rows;
    if (all.cols % 8 == 0 && ((size_t)all.from & 15) == 0)
        take_apart<true>(all, row);
    else
        take_apart<false>(all, row);
}

// A query's scores, the sums of `split` parts, become its weights, each times its value's power of 2; a thread has kEach
// groups of eight neighbours. Behind the last key there is room for the rest of a group.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    attention_weights_kernel_optimized(const float* scores, int split, size_t part_of_scores,
                                       const int* exponents_of_v, __half* weights, size_t part,
                                       int* exponents, float* factors, int keys, int stride) {
    __shared__ float warp_values[3][32];
    begin_next();
    wait_for_last();
    size_t row = blockIdx.x;
    float values[kEach][8], largest = -CUDART_INF_F, sum = 0.0f, most = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int first = (i * kThreads + threadIdx.x) * 8;
#pragma unroll
        for (int j = 0; j < 8; ++j)
            values[i][j] = 0.0f;
        if (first < keys) {
            for (int p = 0; p < split; ++p) {
                const float4* from = (const float4*)(scores + p * part_of_scores + row * stride + first);
                float4 low = from[0], high = from[1];
                float more[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    values[i][j] += more[j];
            }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            values[i][j] = first + j < keys ? values[i][j] : -CUDART_INF_F;
            largest = fmaxf(largest, values[i][j]);
        }
    }
    largest = block_max(largest, warp_values[0]);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            int key = (i * kThreads + threadIdx.x) * 8 + j;
            values[i][j] = expf(values[i][j] - largest);
            sum += values[i][j];
            values[i][j] *= key < keys ? power_of_2(exponents_of_v[key]) : 0.0f;
            most = fmaxf(most, values[i][j]);
        }
    }
    sum = block_sum(sum, warp_values[1]);
    int exponent = exponent_of(block_max(most, warp_values[2]));
    float scale = power_of_2(kTop - exponent);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int first = (i * kThreads + threadIdx.x) * 8;
        if (first < keys)
            store_parts(values[i], scale, weights + row * stride + first, part);
    }
    if (threadIdx.x == 0) {
        exponents[row] = exponent;
        factors[row] = 1.0f / sum;
    }
}

// Results as sums of `split` parts.
__global__ void __launch_bounds__(kThreads)
    attention_sum_kernel_optimized(const float* parts, float* Y, int split, size_t count) {
    begin_next();
    wait_for_last();
    for (size_t i = (blockIdx.x * (size_t)kThreads + threadIdx.x) * 4; i < count;
         i += (size_t)gridDim.x * kThreads * 4) {
        float4 sum = *(const float4*)(parts + i);
        for (int p = 1; p < split; ++p) {
            float4 more = *(const float4*)(parts + p * count + i);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        *(float4*)(Y + i) = sum;
    }
}

// What a product's sums are multiplied by: 2^(of a row + of a column, if any), and a factor of each row or of all.
struct Scales {
    const int *of_rows, *of_cols;
    const float* factors;
    float factor;
};

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

// A box of a part, from column and row on; into the same place of all blocks of the cluster where it is shared.
template <bool shared>
static __device__ void load_box(unsigned int to, const CUtensorMap* map, int column, int row, int part,
                                unsigned int barrier) {
    if constexpr (shared)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
            "l"(map), "r"(column), "r"(row), "r"(part), "r"(barrier), "h"((unsigned short)3)
            : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%2, %3, %4}], [%5];" ::"r"(to),
                     "l"(map), "r"(column), "r"(row), "r"(part), "r"(barrier)
                     : "memory");
}

static __device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

// Where a factor begins in its block's shared memory (the address has the block's rank above that). Queries, keys and weights
// have the inner dimension side by side, 64 bytes swizzled, eight rows a group; values have their columns side by side, 128
// bytes swizzled, 64 of them a box, eight keys a group.
static __device__ unsigned long long describe_rows(unsigned int address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 |
           (unsigned long long)(512 >> 4) << 32 | 2ull << 62;
}
static __device__ unsigned long long describe_turned(unsigned int address) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(kBoxBytes >> 4) << 16 |
           (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

// d += a b, or d = a b where nothing is kept: 64 x 128 sums, 16 products each.
template <int turned>
static __device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
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

// The compiler may not use sums before they are there.
template <int count> static __device__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int left> static __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// A warp's 16 rows of sums, a lane's pairs each, times powers of 2 and the row's factor or the one of all rows.
static __device__ void store_sums(const float (&d)[64], float* C, int row, int col, int M, int N, int stride,
                                  const Scales& scales) {
    int lane = threadIdx.x % 32;
    bool pairs = stride % 2 == 0 && ((size_t)C & 7) == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int r = row + lane / 4 + 8 * half;
        if (r >= M)
            continue;
        float factor = scales.factors != nullptr ? scales.factors[r] : scales.factor;
        int exponent = scales.of_rows[r] - 2 * kTop;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            int c = col + i * 8 + lane % 4 * 2;
            float values[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int more = scales.of_cols != nullptr && c + e < N ? scales.of_cols[c + e] : 0;
                values[e] = ldexpf(d[i * 4 + half * 2 + e] * factor, exponent + more);
            }
            float* to = C + (size_t)r * stride + c;
            if (c + 1 < N && pairs) {
                *(float2*)to = make_float2(values[0], values[1]);
            } else {
                if (c < N)
                    to[0] = values[0];
                if (c + 1 < N)
                    to[1] = values[1];
            }
        }
    }
}
#endif

// Tiles of the cluster's blocks: the first row and column of this block's tile number `tile` of the cluster's.
template <class Plan> static __device__ void place_of(int tile, int block, int M, int N, int* row, int* col) {
    int down = (M - 1) / (Plan::kM * Plan::kAlongM) + 1, across = (N - 1) / (Plan::kN) + 1;
    int band = tile / (down * kBand), within = tile % (down * kBand);
    int width = min(kBand, across - band * kBand);
    *row = (within / width * Plan::kAlongM + block) * Plan::kM;
    *col = (band * kBand + within % width) * Plan::kN;
}

// Sums of A B, in `split` parts of the inner dimension, one behind the other in C; B is K x N where it is turned, and N x K
// where not.
template <class Plan, bool kTurned>
__global__ void __launch_bounds__(THREADS, 1)
    attention_product_kernel_optimized(const __grid_constant__ CUtensorMap map_a,
                                       const __grid_constant__ CUtensorMap map_b, float* C, int M, int N,
                                       int K, int stride, const __grid_constant__ Scales scales, int split,
                                       int tiles) {
#if HAS_WARPGROUPS
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int kAlongM = Plan::kAlongM, kStages = Plan::kStages;
    constexpr int kPartBytes = Plan::kBytesA + Plan::kBytesB;
    unsigned int stages = shared_address(memory), full = stages + kStages * Plan::kStageBytes,
                 empty = full + 8 * kStages;
    int block = blockIdx.x % kAlongM, cluster = blockIdx.x / kAlongM, clusters = gridDim.x / kAlongM;
    int steps = (K - 1) / kStep + 1;
    begin_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, Plan::kConsumers * 4 * kAlongM);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();
    wait_for_last();

    int row, col, stage = 0;
    unsigned int parity = 0;
    auto next = [&]() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    };
    auto begin = [&](int part) { return (int)((long long)steps * part / split); };
    if (threadIdx.x < 128) {
        // One thread has the copies made. It fills a stage when all who read it are done with it, here and in the
        // block that gets a share of what is loaded here.
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            constexpr int kRowsB = Plan::kN / kAlongM, kBoxes = Plan::kN / 64 / kAlongM;
            for (int item = cluster; item < tiles * split; item += clusters) {
                place_of<Plan>(item / split, block, M, N, &row, &col);
                int last = begin(item % split + 1);
                for (int step = begin(item % split); step < last; ++step, next()) {
                    wait_for(empty + 8 * stage, parity ^ 1);
                    expect_bytes(full + 8 * stage, Plan::kStageBytes);
                    for (int part = 0; part < kParts; ++part) {
                        unsigned int to = stages + stage * Plan::kStageBytes + part * kPartBytes;
                        load_box<false>(to, &map_a, step * kStep, row, part, full + 8 * stage);
                        to += Plan::kBytesA;
                        if constexpr (!kTurned) {
                            load_box<(kAlongM > 1)>(to + block * kRowsB * kStep * 2, &map_b, step * kStep,
                                                    col + block * kRowsB, part, full + 8 * stage);
                        } else {
                            for (int i = block * kBoxes; i < (block + 1) * kBoxes; ++i)
                                load_box<(kAlongM > 1)>(to + i * kBoxBytes, &map_b, col + i * 64,
                                                        step * kStep, part, full + 8 * stage);
                        }
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        auto release = [&](int of) {
            __syncwarp(); // one lane tells for all
            if (lane < kAlongM)
                arrive_at(empty + 8 * of, lane);
        };
        float large[64], small[64], sums[64];
        for (int item = cluster; item < tiles * split; item += clusters) {
            place_of<Plan>(item / split, block, M, N, &row, &col);
            int first = begin(item % split), last = begin(item % split + 1), before = 0;
#pragma unroll
            for (int i = 0; i < 64; ++i)
                sums[i] = 0.0f;
            for (int step = first; step < last; ++step, next()) {
                wait_for(full + 8 * stage, parity);
                unsigned int from = stages + stage * Plan::kStageBytes, from_b = from + Plan::kBytesA;
                constexpr int kNextB = kTurned ? 2048 : 32;
                unsigned long long a = describe_rows(from + group * 64 * kStep * 2);
                unsigned long long b = kTurned ? describe_turned(from_b) : describe_rows(from_b);
                // The products of the upper halves, and their sums in fp32 while the others are under way.
                hold(large);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < kStep / 16; ++k)
                    multiply<kTurned>(large, a + (k * 32 >> 4), b + (k * kNextB >> 4), k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                hold(large);
                wait_products<1>();
                hold(small);
                if (step > first)
                    release(before);
                before = stage;
                // These are 2^-11 of the others, so that what is cut off here does not count.
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int part = 0; part < kParts; ++part)
#pragma unroll
                    for (int k = 0; k < kStep / 16; ++k)
                        multiply<kTurned>(small, a + ((part * kPartBytes + k * 32) >> 4),
                                          b + (((1 - part) * kPartBytes + k * kNextB) >> 4),
                                          step > first || part > 0 || k > 0);
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
            store_sums(sums, C + (size_t)(item % split) * M * stride, row + group * 64 + warp * 16, col, M, N,
                       stride, scales);
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
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, data, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class Plan> static int tiles_of(int M, int N) {
    return ((M - 1) / (Plan::kM * Plan::kAlongM) + 1) * ((N - 1) / Plan::kN + 1);
}

// A launch that may begin while the one before it ends.
template <class... Parameters, class... Arguments>
static void launch(void (*kernel)(Parameters...), int grid, int threads, int memory, int cluster,
                   const Arguments&... arguments) {
    cudaLaunchAttribute wanted[2] = {};
    wanted[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    wanted[0].val.programmaticStreamSerializationAllowed = 1;
    wanted[1].id = cudaLaunchAttributeClusterDimension;
    wanted[1].val.clusterDim.x = cluster;
    wanted[1].val.clusterDim.y = 1;
    wanted[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = memory;
    config.attrs = wanted;
    config.numAttrs = cluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

// A matrix in parts, rows `stride` elements apart.
struct Parts {
    __half* data;
    int stride, room;
};

// How many parts of the inner dimension there is room for, each of eight steps or more.
template <class Plan> static int split_of(int M, int N, int K, int blocks) {
    int split = 1, tiles = tiles_of<Plan>(M, N) * Plan::kAlongM;
    while (split < 8 && tiles * split * 2 <= blocks && K >= split * 2 * 8 * kStep &&
           (size_t)M * ((N + 7) / 8 * 8) * split * 2 <= kRoomSums)
        split *= 2;
    return split;
}

template <class Plan, bool kTurned>
static bool multiply_parts(Parts A, Parts B, float* C, int M, int N, int K, int stride, const Scales& scales,
                           int split, int blocks) {
    auto kernel = attention_product_kernel_optimized<Plan, kTurned>;
    CUtensorMap map_a, map_b;
    if (!describe_parts(&map_a, A.data, M, K, A.stride, A.room, Plan::kM, kStep, CU_TENSOR_MAP_SWIZZLE_64B) ||
        !(kTurned
              ? describe_parts(&map_b, B.data, K, N, B.stride, B.room, kStep, 64, CU_TENSOR_MAP_SWIZZLE_128B)
              : describe_parts(&map_b, B.data, N, K, B.stride, B.room, Plan::kN / Plan::kAlongM, kStep,
                               CU_TENSOR_MAP_SWIZZLE_64B)))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kMemory);
    int tiles = tiles_of<Plan>(M, N), clusters = min(tiles * split, blocks / Plan::kAlongM);
    launch(kernel, clusters * Plan::kAlongM, Plan::kThreads, Plan::kMemory, Plan::kAlongM, map_a, map_b, C, M,
           N, K, stride, scales, split, tiles);
    return true;
}

// Whether all of this fits the fixed arrays.
static bool has_room(int queries, int keys, int dim_qk, int dim_v) {
    auto up = [](int n) { return (size_t)(n + 7) / 8 * 8; };
    return queries * up(dim_qk) <= kRoomQ && keys * up(dim_qk) <= kRoomK && keys * up(dim_v) <= kRoomV &&
           queries * up(keys) <= kRoomP && queries <= kRoomRows && keys <= kMostKeys;
}

template <class Plan>
static bool attend_in_parts(float* Y, const float* Q, const float* K, const float* V, int queries, int keys,
                            int dim_qk, int dim_v, int blocks) {
    cudaFuncAttributes built;
    if (cudaFuncGetAttributes(&built, attention_product_kernel_optimized<Plan, false>) != cudaSuccess ||
        built.maxThreadsPerBlock < Plan::kThreads)
        return false;
    auto up = [](int n) { return (n + 7) / 8 * 8; };
    void *q, *k, *v, *p, *of_q, *of_k, *of_v, *of_p, *factors, *sums;
    if (cudaGetSymbolAddress(&q, parts_of_q) != cudaSuccess ||
        cudaGetSymbolAddress(&k, parts_of_k) != cudaSuccess ||
        cudaGetSymbolAddress(&v, parts_of_v) != cudaSuccess ||
        cudaGetSymbolAddress(&p, parts_of_p) != cudaSuccess ||
        cudaGetSymbolAddress(&of_q, exponents_of_q) != cudaSuccess ||
        cudaGetSymbolAddress(&of_k, exponents_of_k) != cudaSuccess ||
        cudaGetSymbolAddress(&of_v, exponents_of_v) != cudaSuccess ||
        cudaGetSymbolAddress(&of_p, exponents_of_p) != cudaSuccess ||
        cudaGetSymbolAddress(&factors, factors_of_p) != cudaSuccess ||
        cudaGetSymbolAddress(&sums, sums_scratch) != cudaSuccess)
        return false;
    Parts parts_q = {(__half*)q, up(dim_qk), kRoomQ}, parts_k = {(__half*)k, up(dim_qk), kRoomK},
          parts_v = {(__half*)v, up(dim_v), kRoomV}, parts_p = {(__half*)p, up(keys), kRoomP};
    Apart apart_q = {Q, queries, dim_qk, parts_q.stride, parts_q.data, kRoomQ, (int*)of_q},
          apart_k = {K, keys, dim_qk, parts_k.stride, parts_k.data, kRoomK, (int*)of_k},
          apart_v = {V, keys, dim_v, parts_v.stride, parts_v.data, kRoomV, (int*)of_v};
    attention_split_kernel_optimized<<<(queries + 2 * keys - 1) / (kThreads / 32) + 1, kThreads>>>(
        apart_q, apart_k, apart_v);
    int stride = up(keys), split = split_of<Plan>(queries, keys, dim_qk, blocks);
    Scales of_scores = {(int*)of_q, (int*)of_k, nullptr, 1.0f / sqrtf((float)dim_qk)};
    if (!multiply_parts<Plan, false>(parts_q, parts_k, (float*)sums, queries, keys, dim_qk, stride, of_scores,
                                     split, blocks))
        return false;
    auto weigh = keys <= kMostKeys / 4   ? attention_weights_kernel_optimized<1>
                 : keys <= kMostKeys / 2 ? attention_weights_kernel_optimized<2>
                                         : attention_weights_kernel_optimized<4>;
    launch(weigh, queries, kThreads, 0, 1, (const float*)sums, split, (size_t)queries * stride,
           (const int*)of_v, parts_p.data, (size_t)kRoomP, (int*)of_p, (float*)factors, keys, stride);
    split = dim_v % 4 == 0 && ((size_t)Y & 15) == 0 ? split_of<Plan>(queries, dim_v, keys, blocks) : 1;
    Scales of_results = {(int*)of_p, nullptr, (float*)factors, 1.0f};
    if (!multiply_parts<Plan, true>(parts_p, parts_v, split > 1 ? (float*)sums : Y, queries, dim_v, keys,
                                    dim_v, of_results, split, blocks))
        return false;
    if (split > 1)
        launch(attention_sum_kernel_optimized, blocks * 4, kThreads, 0, 1, (const float*)sums, Y, split,
               (size_t)queries * dim_v);
    return true;
}

constexpr int kLeast = 64; // queries, keys and elements that are worth taking apart

// False where this GPU or these matrices cannot have it.
static bool attend_on_hopper(float* Y, const float* Q, const float* K, const float* V, int queries, int keys,
                             int dim_qk, int dim_v) {
    int device = 0, major = 0, blocks = 0;
    if (queries < kLeast || keys < kLeast || dim_qk < kLeast || dim_v < kLeast ||
        !has_room(queries, keys, dim_qk, dim_v))
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    return queries <= 128 ? attend_in_parts<Plan<1>>(Y, Q, K, V, queries, keys, dim_qk, dim_v, blocks)
                          : attend_in_parts<Plan<2>>(Y, Q, K, V, queries, keys, dim_qk, dim_v, blocks);
}

extern "C" void softmax_attention_optimized(float* Y, const float* Q, const float* K, const float* V,
                                            int q_seq_len, int kv_seq_len, int dim_qk, int dim_v) {
    if (!attend_on_hopper(Y, Q, K, V, q_seq_len, kv_seq_len, dim_qk, dim_v))
        attend_elsewhere(Y, Q, K, V, q_seq_len, kv_seq_len, dim_qk, dim_v);
}
