// idea: Tensor cores on numbers in two halves
// why: Half of the fp32 units' time goes to the loads of their factors, and Hopper's tensor cores multiply fp16 fifteen
//      times as fast. The numbers of 64 rows of a head, times the power of 2 that brings their largest to 2^14, are
//      sums of two of fp16 but for 2^-24 of them: the number rounded, and what that leaves. Three of the four products
//      of two such sums count. One launch takes queries, keys and values apart and packs the mask, which all heads of a
//      batch share, into bits. Then warpgroups have 64 queries each and multiply out of shared memory (wgmma), fed by
//      tensor maps: the smallest products first, for tensor cores cut off what they add. Weights are taken apart in the
//      lanes that made them, and a tile's results are added in fp32, while the products with the next keys are made.
//      A query that sees a single key gets that value as it is: the task asks for all its bits, and small values beside
//      large ones lose some when they are taken apart. What is given up: numbers below 2^-16 of the largest of their 64
//      rows keep 2^-40 of that, not 2^-24 of their own; where the largest is below 2^-90 they keep 2^-130; and an
//      infinite number makes NaN where fp32 may have infinity. Other GPUs, up to 64 positions, and heads that do not
//      fit or have an odd number of elements, take the step before. Before single keys were looked for, the heaviest
//      case took 145 µs as a whole call on an H200, the step before 456; not timed since. What binds it: 77 of the 119
//      µs on its own clock are the products, 42 the taking apart.
// flags: -O3 --use_fast_math -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kThreads = 128; // 8 x 16: 8 rows and 4 keys of a tile of scores each
constexpr int kTile = 64;     // queries of a block, and keys at a time
constexpr int kDepth = 32;    // elements of queries and keys at a time
constexpr int kMaxHeads = 1 << 30;
constexpr unsigned kFullMask = 0xffffffffu;

// Four neighbouring elements of a row of a head, zeros beyond its ends.
__device__ float4 load4(const float* head, int seq_length, int head_dim, int row, int column, bool aligned) {
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row >= seq_length || column >= head_dim)
        return value;
    const float* from = head + (size_t)row * head_dim + column;
    if (aligned)
        return *(const float4*)from;
    value.x = from[0];
    if (column + 1 < head_dim)
        value.y = from[1];
    if (column + 2 < head_dim)
        value.z = from[2];
    if (column + 3 < head_dim)
        value.w = from[3];
    return value;
}

// 64 rows of a head, kDepth elements of each, with the rows along the columns of the strip.
__device__ void load_strip(float (*strip)[kTile + 4], const float* head, int seq_length, int head_dim,
                           int first_row, int depth, bool aligned) {
#pragma unroll
    for (int load = 0; load < 4; ++load) {
        int row = threadIdx.x / 4 + load % 2 * 32, part = threadIdx.x % 4 + load / 2 * 4;
        float4 value = load4(head, seq_length, head_dim, first_row + row, depth + part * 4, aligned);
        strip[part * 4][row] = value.x;
        strip[part * 4 + 1][row] = value.y;
        strip[part * 4 + 2][row] = value.z;
        strip[part * 4 + 3][row] = value.w;
    }
}

// Over the 16 lanes that share rows of scores.
__device__ float lanes_max(float value) {
    for (int distance = 8; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    return value;
}

__device__ float lanes_sum(float value) {
    for (int distance = 8; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// kColumns result columns of 64 queries of one head. The grid is (heads, tiles of queries, groups of
// columns).
template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    triangle_attention_kernel_optimized(const float* query, const float* key, const float* value,
                                        const float* attention_mask, float* output, size_t first_head,
                                        int head_num, int seq_length, int head_dim, float scale) {
    constexpr int kGroups = kColumns / 64;      // of four result columns of a thread
    constexpr int kValues = 64 * 64 / kColumns; // values that are in shared memory at once
    constexpr int kStrips = 2 * kDepth * (kTile + 4), kRows = kValues * (kColumns + 4);
    __shared__ __align__(16) float operands[kStrips > kRows ? kStrips : kRows];
    __shared__ __align__(16) float weights[kTile][kTile + 4]; // of the keys, by query
    float (*q)[kTile + 4] = (float (*)[kTile + 4]) operands;
    float (*k)[kTile + 4] = q + kDepth;
    float (*v)[kColumns + 4] = (float (*)[kColumns + 4]) operands;

    size_t head = first_head + blockIdx.x;
    int tile = gridDim.y - 1 - blockIdx.y;
    int first_row = tile * kTile, first_column = blockIdx.z * kColumns;
    size_t offset = head * seq_length * head_dim;
    query += offset;
    key += offset;
    value += offset;
    output += offset;
    attention_mask += head / head_num * seq_length * seq_length;
    bool aligned =
        (((size_t)query | (size_t)key | (size_t)value | (size_t)output) & 15) == 0 && head_dim % 4 == 0;
    bool mask_aligned = ((size_t)attention_mask & 15) == 0 && seq_length % 4 == 0;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;

    float largest[8], sum[8], result[8][kGroups * 4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        largest[i] = -CUDART_INF_F;
        sum[i] = 0.0f;
    }
    for (int first_key = 0; first_key <= first_row; first_key += kTile) {
        // Scores, in units of the logarithm of 2.
        float scores[8][4] = {};
        for (int depth = 0; depth < head_dim; depth += kDepth) {
            __syncthreads();
            load_strip(q, query, seq_length, head_dim, first_row, depth, aligned);
            load_strip(k, key, seq_length, head_dim, first_key, depth, aligned);
            __syncthreads();
#pragma unroll 8
            for (int d = 0; d < kDepth; ++d) {
                float4 low = *(const float4*)&q[d][y * 8], high = *(const float4*)&q[d][y * 8 + 4];
                float4 keys = *(const float4*)&k[d][x * 4];
                float rows[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    scores[i][0] += rows[i] * keys.x;
                    scores[i][1] += rows[i] * keys.y;
                    scores[i][2] += rows[i] * keys.z;
                    scores[i][3] += rows[i] * keys.w;
                }
            }
        }

        // Weights, on the scale of the present maximum.
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            int row = first_row + y * 8 + i, j = first_key + x * 4;
            float4 excluded = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row < seq_length)
                excluded = load4(attention_mask, seq_length, seq_length, row, j, mask_aligned);
            scores[i][0] = j <= row && excluded.x <= 0.5f ? scores[i][0] * scale : -CUDART_INF_F;
            scores[i][1] = j + 1 <= row && excluded.y <= 0.5f ? scores[i][1] * scale : -CUDART_INF_F;
            scores[i][2] = j + 2 <= row && excluded.z <= 0.5f ? scores[i][2] * scale : -CUDART_INF_F;
            scores[i][3] = j + 3 <= row && excluded.w <= 0.5f ? scores[i][3] * scale : -CUDART_INF_F;
            float tile_max = fmaxf(fmaxf(scores[i][0], scores[i][1]), fmaxf(scores[i][2], scores[i][3]));
            float now = fmaxf(largest[i], lanes_max(tile_max));
            // Nothing may have been allowed yet: then all weights are zero on any scale.
            float origin = now == -CUDART_INF_F ? 0.0f : now;
            float shrink = exp2f(largest[i] - origin);
            largest[i] = now;
            float tile_sum = 0.0f;
#pragma unroll
            for (int key_of = 0; key_of < 4; ++key_of) {
                scores[i][key_of] = exp2f(scores[i][key_of] - origin);
                tile_sum += scores[i][key_of];
            }
            sum[i] = sum[i] * shrink + lanes_sum(tile_sum);
#pragma unroll
            for (int c = 0; c < kGroups * 4; ++c)
                result[i][c] *= shrink;
        }
#pragma unroll
        for (int key_of = 0; key_of < 4; ++key_of) {
            float* to = &weights[x * 4 + key_of][y * 8];
            *(float4*)to =
                make_float4(scores[0][key_of], scores[1][key_of], scores[2][key_of], scores[3][key_of]);
            *(float4*)(to + 4) =
                make_float4(scores[4][key_of], scores[5][key_of], scores[6][key_of], scores[7][key_of]);
        }

        // Weighted sum of the values.
        for (int part = 0; part < kTile; part += kValues) {
            __syncthreads();
#pragma unroll
            for (int load = 0; load < 8; ++load) {
                int id = load * kThreads + threadIdx.x;
                int row = id / (kColumns / 4), column = id % (kColumns / 4) * 4;
                *(float4*)&v[row][column] = load4(value, seq_length, head_dim, first_key + part + row,
                                                  first_column + column, aligned);
            }
            __syncthreads();
#pragma unroll 4
            for (int j = 0; j < kValues; ++j) {
                const float* weight = &weights[part + j][y * 8];
                float4 low = *(const float4*)weight, high = *(const float4*)(weight + 4);
                float rows[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                for (int group = 0; group < kGroups; ++group) {
                    float4 columns = *(const float4*)&v[j][group * 64 + x * 4];
#pragma unroll
                    for (int i = 0; i < 8; ++i) {
                        result[i][group * 4] += rows[i] * columns.x;
                        result[i][group * 4 + 1] += rows[i] * columns.y;
                        result[i][group * 4 + 2] += rows[i] * columns.z;
                        result[i][group * 4 + 3] += rows[i] * columns.w;
                    }
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = first_row + y * 8 + i;
        if (row >= seq_length)
            continue;
        float factor = 1.0f / sum[i];
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
            int column = first_column + group * 64 + x * 4;
            float* to = output + (size_t)row * head_dim + column;
            float* from = &result[i][group * 4];
            if (aligned && column < head_dim) {
                *(float4*)to =
                    make_float4(from[0] * factor, from[1] * factor, from[2] * factor, from[3] * factor);
            } else {
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    if (column + c < head_dim)
                        to[c] = from[c] * factor;
            }
        }
    }
}

template <int kColumns>
void attend(const float* query, const float* key, const float* value, const float* attention_mask,
            float* output, int batch_size, int head_num, int seq_length, int head_dim) {
    float scale = (float)(1.4426950408889634 / sqrt((double)head_dim)); // with the logarithm's base
    size_t heads = (size_t)batch_size * head_num;
    for (size_t first = 0; first < heads; first += kMaxHeads) {
        dim3 blocks(heads - first < kMaxHeads ? heads - first : kMaxHeads, (seq_length - 1) / kTile + 1,
                    (head_dim - 1) / kColumns + 1);
        triangle_attention_kernel_optimized<kColumns><<<blocks, kThreads>>>(
            query, key, value, attention_mask, output, first, head_num, seq_length, head_dim, scale);
    }
}

static void attend_elsewhere(const float* query, const float* key, const float* value,
                             const float* attention_mask, float* output, int batch_size, int head_num,
                             int seq_length, int head_dim) {
    if (head_dim <= 64)
        attend<64>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
    else if (head_dim <= 128)
        attend<128>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
    else
        attend<256>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Ring::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kKeys = 64;         // of a tile; rows that are scaled together
constexpr int kMaskTile = 128;    // keys whose bits of a row are 16 bytes
constexpr int kPrepare = 256;     // threads of a block that takes apart or packs
constexpr int kPackRows = 4;      // of the mask, of each of its warps
constexpr int kBitRoom = 1 << 22; // words
constexpr int kRoom = 1 << 23;    // elements
constexpr int kTop = 14;          // the largest of a tile is between 2^14 and 2^15
// Bits of the mask: for each batch and each 128 keys, four words a row of queries.
__device__ __align__(16) unsigned mask_bits[kBitRoom];
// Halves of queries, keys and values: the upper ones of all heads, then the lower ones; exponents of tiles.
__device__ __align__(1024) __half halves[3][2 * kRoom];
__device__ int exponents[3][kRoom / kKeys];

// Shared memory of a block: its queries, stages of keys and values, barriers; upper and lower halves of each. A block makes
// `columns` of a result's elements.
template <int dim, int columns, int consumers, int stages_of_keys> struct Ring {
    static constexpr int kDim = dim, kColumns = columns, kConsumers = consumers, kQueries = 64 * consumers;
    static constexpr int kThreads = 128 * (consumers + 1); // one warpgroup that brings, the others multiply
    static constexpr int kStagesK = stages_of_keys, kStagesV = 2;
    static constexpr int kBoxes = dim / 64, kBoxesV = columns / 64, kBoxQ = kQueries * 128,
                         kBoxKeys = kKeys * 128;
    static constexpr int kHalfQ = kBoxes * kBoxQ, kHalfK = kBoxes * kBoxKeys, kHalfV = kBoxesV * kBoxKeys;
    static constexpr int kK = 2 * kHalfQ, kV = kK + kStagesK * 2 * kHalfK,
                         kBarriers = kV + kStagesV * 2 * kHalfV;
    static constexpr int kMemory = kBarriers + 8 * (2 + 2 * (kStagesK + kStagesV));
};

static __device__ float4 mask_of4(const float* row, int key, int query, bool wide) {
    float4 found = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (key > query)
        return found;
    if (wide)
        return *(const float4*)(row + key);
    found.x = row[key];
    if (key + 1 <= query)
        found.y = row[key + 1];
    if (key + 2 <= query)
        found.z = row[key + 2];
    if (key + 3 <= query)
        found.w = row[key + 3];
    return found;
}

// Bits of the mask, word e of a row those of keys 4 l + e. Keys behind the query are left out as well. Rows beyond the
// last query have no other bits.
static __device__ void pack_rows(const float* mask, unsigned* bits, int first_key, int first,
                                 int seq_length) {
    int lane = threadIdx.x % 32, key = first_key + lane * 4;
    bool wide = seq_length % 4 == 0 && ((size_t)mask & 15) == 0;
    float4 found[kPackRows];
#pragma unroll
    for (int i = 0; i < kPackRows; ++i) {
        found[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + i < seq_length)
            found[i] = mask_of4(mask + (size_t)(first + i) * seq_length, key, first + i, wide);
    }
    uint4 own;
#pragma unroll
    for (int i = 0; i < kPackRows; ++i) {
        float values[4] = {found[i].x, found[i].y, found[i].z, found[i].w};
        unsigned words[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
            words[e] = __ballot_sync(kFullMask, key + e > first + i || values[e] > 0.5f);
        if (lane == i)
            own = make_uint4(words[0], words[1], words[2], words[3]);
    }
    if (lane < kPackRows)
        *(uint4*)(bits + lane * 4) = own;
}

// Of the largest number; so that 2^(kTop - exponent) and its inverse are numbers too.
__device__ int exponent_of(float largest) {
    return max((int)(__float_as_uint(largest) >> 23 & 255) - 127, -90);
}

__device__ float power_of_2(int exponent) {
    return __uint_as_float((unsigned)(exponent + 127) << 23);
}

// Eight neighbours of a row, and zeros beyond its end.
__device__ void load8(float* values, const float* row, int col, int cols, bool aligned) {
    if (aligned && col + 8 <= cols) {
        *(float4*)values = *(const float4*)(row + col);
        *(float4*)(values + 4) = *(const float4*)(row + col + 4);
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
            values[j] = col + j < cols ? row[col + j] : 0.0f;
    }
}

// Takes 64 rows of a head apart; a thread has kEach groups of eight neighbours.
template <int kEach>
static __device__ void take_apart(const float* from, int rows, int head_dim, bool aligned, __half* to,
                                  size_t part, int stride, int* exponent) {
    __shared__ float warp_values[kPrepare / 32];
    float values[kEach][8], largest = 0.0f;
    int groups = stride / 8;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int id = i * kPrepare + threadIdx.x, row = id / groups, col = id % groups * 8;
        load8(values[i], from + (size_t)row * head_dim, col, row < rows ? head_dim : 0, aligned);
#pragma unroll
        for (int j = 0; j < 8; ++j)
            largest = fmaxf(largest, fabsf(values[i][j]));
    }
    for (int distance = 16; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, distance));
    if (threadIdx.x % 32 == 0)
        warp_values[threadIdx.x / 32] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPrepare / 32; ++i)
        largest = fmaxf(largest, warp_values[i]);
    int found = exponent_of(largest);
    float scale = power_of_2(kTop - found);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        int id = i * kPrepare + threadIdx.x, row = id / groups, col = id % groups * 8;
        if (row >= rows)
            continue;
        __align__(16) __half upper[8], lower[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float scaled = values[i][j] * scale;
            upper[j] = __float2half_rn(scaled);
            lower[j] = __float2half_rn(scaled - __half2float(upper[j]));
        }
        __half* place = to + (size_t)row * stride + col;
        *(uint4*)place = *(const uint4*)upper;
        *(uint4*)(place + part) = *(const uint4*)lower;
    }
    if (threadIdx.x == 0)
        *exponent = found;
}

// The first blocks pack the mask, 32 rows of 128 keys each; the others take 64 rows of a head apart, of queries, then of
// keys, then of values.
template <int kEach>
__global__ void __launch_bounds__(kPrepare)
    triangle_attention_prepare_kernel_optimized(const float* query, const float* key, const float* value,
                                                const float* attention_mask, int batch_size, int heads,
                                                int seq_length, int head_dim, int stride) {
#if HAS_WARPGROUPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    constexpr int kRowsOfBlock = kPrepare / 32 * kPackRows;
    int mask_tiles = (seq_length - 1) / kMaskTile + 1, rows = mask_tiles * kMaskTile;
    int packing = batch_size * mask_tiles * (rows / kRowsOfBlock), block = blockIdx.x;
    if (block < packing) {
        int tile = block % mask_tiles, batch = block / mask_tiles / (rows / kRowsOfBlock);
        int first = block / mask_tiles % (rows / kRowsOfBlock) * kRowsOfBlock + threadIdx.x / 32 * kPackRows;
        if (tile * kMaskTile <= first + kPackRows - 1) // else above the triangle: nobody looks there
            pack_rows(attention_mask + (size_t)batch * seq_length * seq_length,
                      mask_bits + (((size_t)batch * mask_tiles + tile) * rows + first) * 4, tile * kMaskTile,
                      first, seq_length);
        return;
    }
    block -= packing;
    int tiles = (seq_length - 1) / kKeys + 1, tile = block % tiles, head = block / tiles % heads;
    int which = block / tiles / heads, first = tile * kKeys;
    const float* from = which == 0 ? query : which == 1 ? key : value;
    bool aligned = head_dim % 4 == 0 && ((size_t)from & 15) == 0;
    size_t row = (size_t)head * seq_length + first;
    take_apart<kEach>(from + row * head_dim, min(seq_length - first, kKeys), head_dim, aligned,
                      halves[which] + row * stride, (size_t)heads * seq_length * stride, stride,
                      &exponents[which][head * tiles + tile]);
}

#if HAS_WARPGROUPS
static __device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

static __device__ void init_barrier(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void expect_bytes(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

static __device__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Rows of a head, in boxes of 64 elements, with zeros beyond its ends: upper halves, then lower ones.
template <int boxes, int bytes>
static __device__ void load_boxes(unsigned to, const CUtensorMap* map, int column, int row, int head,
                                  int heads, unsigned barrier) {
    expect_bytes(barrier, 2 * boxes * bytes);
#pragma unroll
    for (int box = 0; box < 2 * boxes; ++box)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
            "%4}], [%5];" ::"r"(to + box * bytes),
            "l"(map), "r"(column + box % boxes * 64), "r"(row), "r"(head + box / boxes * heads), "r"(barrier)
            : "memory");
}

// Where a factor begins in its block's shared memory (the address has the block's rank above that), 128 bytes swizzled,
// eight rows a group; `box` is from 64 elements to the next where they are what lies side by side.
static __device__ unsigned long long describe(unsigned address, unsigned box) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(box >> 4) << 16 |
           (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

// Scores of 64 queries and 64 keys, over 16 elements of both, beside what d has where `keep` is not zero.
static __device__ void score(float (&d)[32], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, kept, 1, 1, 0, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(keep));
}

// Values of 16 keys by their weights, which are in registers: 64 queries, 64 elements, beside what d has where `keep` is
// not zero.
static __device__ void weigh(float (&d)[32], const unsigned* a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, kept, 1, 1, 1;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// The same of 128 elements.
static __device__ void weigh(float (&d)[64], const unsigned* a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, kept, 1, 1, 1;}"
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

// The compiler may not use sums before they are there.
template <int count> static __device__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

static __device__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int left> static __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// Two weights in halves of fp16, upper and lower; `scale` brings the largest to 2^kTop.
static __device__ void take_apart(float low, float high, float scale, unsigned& upper, unsigned& lower) {
    low *= scale;
    high *= scale;
    __half2 first = __floats2half2_rn(low, high);
    float2 back = __half22float2(first);
    __half2 second = __floats2half2_rn(low - back.x, high - back.y);
    upper = *(const unsigned*)&first;
    lower = *(const unsigned*)&second;
}
#endif

// Tiles of queries, of each head, in parts of a result's elements; the longest first. Blocks take them in turns, there and
// back, so that all have about as much to do, and the copies for a tile begin while the one before it ends.
template <class Ring>
__global__ void __launch_bounds__(THREADS, 1)
    triangle_attention_hopper_kernel_optimized(const __grid_constant__ CUtensorMap map_q,
                                               const __grid_constant__ CUtensorMap map_k,
                                               const __grid_constant__ CUtensorMap map_v, const float* value,
                                               float* output, int heads, int head_num, int seq_length,
                                               int head_dim, float scale) {
#if HAS_WARPGROUPS
    constexpr int kDim = Ring::kDim, kColumns = Ring::kColumns, kStagesK = Ring::kStagesK,
                  kStagesV = Ring::kStagesV;
    constexpr int kOf = kDim / kColumns;
    extern __shared__ __align__(1024) unsigned char ring[];
    unsigned base = shared_address(ring), full_q = base + Ring::kBarriers, empty_q = full_q + 8;
    unsigned full_k = empty_q + 8, empty_k = full_k + 8 * kStagesK, full_v = empty_k + 8 * kStagesK,
             empty_v = full_v + 8 * kStagesV;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int down = (seq_length - 1) / Ring::kQueries + 1, turn = 0, steps = 0, head, first_query, part, count;
    int tiles = (seq_length - 1) / kKeys + 1, mask_tiles = (seq_length - 1) / kMaskTile + 1;
    auto take = [&]() {
        int block = turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x, item = turn * gridDim.x + block;
        if (item >= heads * kOf * down)
            return false;
        head = item / kOf % heads;
        part = item % kOf;
        first_query = (down - 1 - item / (heads * kOf)) * Ring::kQueries;
        count = min(first_query + Ring::kQueries - 1, seq_length - 1) / kKeys + 1;
        return true;
    };
    auto finish = [&]() {
        steps += count;
        ++turn;
    };
    if (threadIdx.x == 0) {
        init_barrier(full_q, 1);
        init_barrier(empty_q, 4 * Ring::kConsumers);
        for (int stage = 0; stage < kStagesK; ++stage) {
            init_barrier(full_k + 8 * stage, 1);
            init_barrier(empty_k + 8 * stage, 4 * Ring::kConsumers);
        }
        for (int stage = 0; stage < kStagesV; ++stage) {
            init_barrier(full_v + 8 * stage, 1);
            init_barrier(empty_v + 8 * stage, 4 * Ring::kConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    asm volatile("griddepcontrol.wait;" ::: "memory");

    if (threadIdx.x < 128) {
        if constexpr (Ring::kConsumers > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            for (; take(); finish()) {
                for (int tile = 0; tile < count; ++tile) {
                    int k = (steps + tile) % kStagesK, v = (steps + tile) % kStagesV;
                    wait_for(empty_k + 8 * k, ((steps + tile) / kStagesK & 1) ^ 1);
                    load_boxes<Ring::kBoxes, Ring::kBoxKeys>(base + Ring::kK + k * 2 * Ring::kHalfK, &map_k,
                                                             0, tile * kKeys, head, heads, full_k + 8 * k);
                    if (tile == 0) {
                        wait_for(empty_q, (turn & 1) ^ 1);
                        load_boxes<Ring::kBoxes, Ring::kBoxQ>(base, &map_q, 0, first_query, head, heads,
                                                              full_q);
                    }
                    wait_for(empty_v + 8 * v, ((steps + tile) / kStagesV & 1) ^ 1);
                    load_boxes<Ring::kBoxesV, Ring::kBoxKeys>(base + Ring::kV + v * 2 * Ring::kHalfV, &map_v,
                                                              part * kColumns, tile * kKeys, head, heads,
                                                              full_v + 8 * v);
                }
            }
        }
    } else {
        if constexpr (Ring::kConsumers > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        int group = warp / 4 - 1, own, of_queries, first_bits;
        float result[kColumns / 2], more[kColumns / 2], scores[32], factor, next_factor;
        unsigned upper[16], lower[16], bits[2][2];
        float largest[2], sum[2], shrink[2], unit;

        // Two words of each row: of keys 4 l + 2 (lane % 2) and the next. The lane's first key is moved to bit 0.
        auto load_bits = [&](int tile) {
            int first_key = tile * kKeys, shift = first_key % kMaskTile / 4 + lane % 4 / 2;
            const unsigned* from =
                mask_bits + first_bits + first_key / kMaskTile * mask_tiles * kMaskTile * 4;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint2 found = __ldcg((const uint2*)(from + half * 8 * 4));
                bits[half][0] = found.x >> shift;
                bits[half][1] = found.y >> shift;
            }
            unit = scale *
                   power_of_2(min(
                       max(of_queries + __ldcg(exponents[1] + head * tiles + tile) - 2 * kTop, -126), 127));
            next_factor = power_of_2(__ldcg(exponents[2] + head * tiles + tile) - 2 * kTop);
        };
        // The smallest products first, for what is added is cut off.
        auto begin_scores = [&](int tile) {
            int stage = (steps + tile) % kStagesK;
            unsigned keys = base + Ring::kK + stage * 2 * Ring::kHalfK;
            wait_for(full_k + 8 * stage, (steps + tile) / kStagesK & 1);
            hold(scores);
            begin_products();
#pragma unroll
            for (int pair = 0; pair < 3; ++pair)
#pragma unroll
                for (int d = 0; d < kDim / 16; ++d)
                    score(
                        scores,
                        describe(base + (pair == 0) * Ring::kHalfQ + d / 4 * Ring::kBoxQ + d % 4 * 32 +
                                     group * 64 * 128,
                                 16),
                        describe(keys + (pair == 1) * Ring::kHalfK + d / 4 * Ring::kBoxKeys + d % 4 * 32, 16),
                        pair > 0 || d > 0);
            end_products();
            hold(scores);
        };
        auto begin_values = [&](int tile) {
            int stage = (steps + tile) % kStagesV;
            unsigned values = base + Ring::kV + stage * 2 * Ring::kHalfV;
            wait_for(full_v + 8 * stage, (steps + tile) / kStagesV & 1);
            hold(more);
            begin_products();
#pragma unroll
            for (int pair = 0; pair < 3; ++pair)
#pragma unroll
                for (int j = 0; j < kKeys / 16; ++j)
                    weigh(more, (pair == 0 ? lower : upper) + j * 4,
                          describe(values + (pair == 1) * Ring::kHalfV + j * 2048, Ring::kBoxKeys),
                          pair > 0 || j > 0);
            end_products();
            hold(more);
        };
        // Scores become weights on the scale of the present maximum; `shrink` is what older ones have to be multiplied by.
        auto soften = [&]() {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float now = largest[half];
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& one = scores[n * 4 + half * 2 + e];
                        one = bits[half][e] & (1u << 2 * n) ? -CUDART_INF_F : one * unit;
                        now = fmaxf(now, one);
                    }
                }
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 1));
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 2));
                // Nothing may have been allowed yet: then all weights are zero on any scale.
                float origin = now == -CUDART_INF_F ? 0.0f : now;
                shrink[half] = exp2f(largest[half] - origin);
                largest[half] = now;
                float added = 0.0f;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& one = scores[n * 4 + half * 2 + e];
                        one = exp2f(one - origin);
                        added += one;
                    }
                }
                sum[half] = sum[half] * shrink[half] + added;
            }
        };
        // What products have read is free: keys, with the last of them queries too, and values.
        auto release_keys = [&](int tile) {
            if (lane == 0)
                arrive(empty_k + 8 * ((steps + tile) % kStagesK));
            if (lane == 0 && tile == count - 1)
                arrive(empty_q);
        };
        auto release_values = [&](int tile) {
            if (lane == 0)
                arrive(empty_v + 8 * ((steps + tile) % kStagesV));
        };
        auto pack = [&]() {
#pragma unroll
            for (int n = 0; n < 16; ++n)
                take_apart(scores[n * 2], scores[n * 2 + 1], power_of_2(kTop), upper[n], lower[n]);
        };
        auto add = [&]() {
#pragma unroll
            for (int i = 0; i < kColumns / 2; ++i)
                result[i] += more[i] * factor;
        };
        // The one key that a row sees, or -1. Each lane of four looks at its share of the bits.
        auto only_key = [&](int row) {
            int seen = 0, key = 0;
            for (int tile = 0; row < seq_length && tile <= row / kMaskTile; ++tile) {
                size_t at = ((size_t)head / head_num * mask_tiles + tile) * mask_tiles * kMaskTile + row;
                unsigned shown = ~__ldcg(mask_bits + at * 4 + lane % 4);
                seen += __popc(shown);
                if (shown != 0)
                    key = tile * kMaskTile + (__ffs(shown) - 1) * 4 + lane % 4;
            }
            for (int other = 1; other <= 2; other *= 2) {
                seen += __shfl_xor_sync(kFullMask, seen, other);
                key += __shfl_xor_sync(kFullMask, key, other);
            }
            return seen == 1 ? key : -1;
        };

        for (; take(); finish()) {
            int first_row = first_query + group * 64;
            own = first_row + warp % 4 * 16 + lane / 4;
            first_bits = (head / head_num * mask_tiles * mask_tiles * kMaskTile + own) * 4 + lane % 2 * 2;
            of_queries = first_row < seq_length ? exponents[0][head * tiles + first_row / kKeys] : 0;
#pragma unroll
            for (int i = 0; i < kColumns / 2; ++i)
                result[i] = 0.0f;
            largest[0] = largest[1] = -CUDART_INF_F;
            sum[0] = sum[1] = 0.0f;
            load_bits(0);
            factor = next_factor;
            wait_for(full_q, turn & 1);
            begin_scores(0);
            wait_products<0>();
            hold(scores);
            release_keys(0);
            soften();
            pack();
            for (int tile = 1; tile < count; ++tile) {
                // The next scores and these results are made while the next weights are.
                load_bits(tile);
                begin_scores(tile);
                begin_values(tile - 1);
                wait_products<1>();
                hold(scores);
                release_keys(tile);
                soften();
                // No sum is below zero, so that is all lanes. It keeps what makes the sums before the wait, beside products.
                __syncwarp(__ballot_sync(kFullMask, !(sum[0] + sum[1] < 0.0f)));
                wait_products<0>();
                hold(more);
                release_values(tile - 1);
                add();
                factor = next_factor;
                if (__any_sync(kFullMask, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
                    for (int i = 0; i < kColumns / 2; ++i)
                        result[i] *= shrink[i / 2 % 2];
                }
                pack();
            }
            begin_values(count - 1);
            wait_products<0>();
            hold(more);
            release_values(count - 1);
            add();

#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float total = sum[half];
                total += __shfl_xor_sync(kFullMask, total, 1);
                total += __shfl_xor_sync(kFullMask, total, 2);
                float share = 1.0f / total;
                int row = own + 8 * half, only = -1;
                float* to = output + ((size_t)head * seq_length + row) * head_dim;
                // Halves of a small value beside large ones are not as exact as the value itself, which is asked for there.
                if (__any_sync(kFullMask, total == 1.0f))
                    only = only_key(row);
                const float* from = value + ((size_t)head * seq_length + max(only, 0)) * head_dim;
#pragma unroll
                for (int c = 0; c < kColumns / 8; ++c) {
                    int column = part * kColumns + c * 8 + lane % 4 * 2;
                    float2 pair =
                        make_float2(result[c * 4 + half * 2] * share, result[c * 4 + half * 2 + 1] * share);
                    if (row < seq_length && column < head_dim) {
                        if (only >= 0)
                            pair = make_float2(from[column], from[column + 1]);
                        *(float2*)(to + column) = pair;
                    }
                }
            }
        }
    }
#endif
}

static bool describe_heads(CUtensorMap* map, __half* data, size_t heads, int seq_length, int stride,
                           int box_rows) {
    cuuint64_t sizes[3] = {(cuuint64_t)stride, (cuuint64_t)seq_length, 2 * heads};
    cuuint64_t strides[2] = {(cuuint64_t)stride * 2, (cuuint64_t)stride * seq_length * 2};
    cuuint32_t box[3] = {64, (cuuint32_t)box_rows, 1}, steps[3] = {1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, data, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// False where this GPU, this build or these matrices cannot have it.
template <class Ring>
static bool attend_on_hopper(const float* query, const float* key, const float* value,
                             const float* attention_mask, float* output, int batch_size, int head_num,
                             int seq_length, int head_dim) {
    size_t heads = (size_t)batch_size * head_num, tiles = (seq_length - 1) / kKeys + 1;
    size_t mask_tiles = (seq_length - 1) / kMaskTile + 1, rows = mask_tiles * kMaskTile;
    int stride = (head_dim + 7) / 8 * 8;
    if (head_dim > Ring::kDim || head_dim % 2 || (size_t)output & 7 || heads * seq_length * stride > kRoom ||
        heads * tiles > kRoom / kKeys || batch_size * mask_tiles * rows * 4 > kBitRoom || mask_tiles > 65535)
        return false;
    auto kernel = triangle_attention_hopper_kernel_optimized<Ring>;
    cudaFuncAttributes built;
    void* all;
    if (cudaFuncGetAttributes(&built, kernel) != cudaSuccess || built.maxThreadsPerBlock < Ring::kThreads ||
        cudaGetSymbolAddress(&all, halves) != cudaSuccess)
        return false;
    int device = 0, blocks = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    CUtensorMap map_q, map_k, map_v;
    __half* parts = (__half*)all;
    if (!describe_heads(&map_q, parts, heads, seq_length, stride, Ring::kQueries) ||
        !describe_heads(&map_k, parts + 2 * (size_t)kRoom, heads, seq_length, stride, kKeys) ||
        !describe_heads(&map_v, parts + 4 * (size_t)kRoom, heads, seq_length, stride, kKeys))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kMemory);
    size_t packing = batch_size * mask_tiles * (rows / (kPrepare / 32 * kPackRows));
    auto prepare = stride <= 128 ? triangle_attention_prepare_kernel_optimized<4>
                                 : triangle_attention_prepare_kernel_optimized<8>;
    prepare<<<(unsigned)(packing + 3 * heads * tiles), kPrepare>>>(
        query, key, value, attention_mask, batch_size, (int)heads, seq_length, head_dim, stride);
    // Blocks begin while that is under way, and wait for it.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    size_t items = heads * (Ring::kDim / Ring::kColumns) * ((seq_length - 1) / Ring::kQueries + 1);
    config.gridDim = dim3(items < (size_t)blocks ? (int)items : blocks);
    config.blockDim = dim3(Ring::kThreads);
    config.dynamicSmemBytes = Ring::kMemory;
    config.attrs = &early;
    config.numAttrs = 1;
    float scale = (float)(1.4426950408889634 / sqrt((double)head_dim)); // with the logarithm's base
    cudaLaunchKernelEx(&config, kernel, map_q, map_k, map_v, value, output, (int)heads, head_num, seq_length,
                       head_dim, scale);
    return true;
}

constexpr int kShortest = 64; // of this many positions the step before is as fast

extern "C" void triangle_attention_optimized(const float* query, const float* key, const float* value,
                                             const float* attention_mask, float* output, int batch_size,
                                             int head_num, int seq_length, int head_dim) {
    auto on_hopper = [&](auto run) {
        return run(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
    };
    if (seq_length > kShortest && ((head_dim <= 64 && on_hopper(attend_on_hopper<Ring<64, 64, 2, 2>>)) ||
                                   on_hopper(attend_on_hopper<Ring<128, 128, 2, 2>>) ||
                                   on_hopper(attend_on_hopper<Ring<256, 128, 1, 1>>)))
        return;
    attend_elsewhere(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
}
