// idea: Both products by warpgroups, the mask packed once for all heads
// why: A warp's products of 16 x 8 use about half of Hopper's tensor cores. Here two warpgroups have 64 queries each
//      and multiply out of shared memory by one instruction for 64 x 128 scores (wgmma); weights go from the lanes that
//      made them into the product with the values as they are, and are made while the next scores and these values are
//      multiplied. One thread has tensor maps bring queries, keys and values, with zeros beyond a head's ends; a block
//      takes one tile of queries after the other, so that the copies for the next begin early. The mask is what all
//      heads of a batch share: a launch of its own turns it into bits, which are a 32nd of it, and the other one begins
//      meanwhile. Other GPUs, up to 64 positions, and heads that do not fit or are no multiple of eight elements, take
//      the step before. The heaviest case takes 52 µs as a whole call on an H200, the first step 242. On its own clock
//      it is 36, with a floor of 21. What binds it now: the host, which adds 16 µs; the mask's bits take 3.6.
// flags: -O3 --use_fast_math -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

constexpr int kKeys = 64; // of a tile
constexpr int kLongThreads = 128;
constexpr int kMaxHeads = 1 << 30;
constexpr unsigned kFullMask = 0xffffffffu;

// Shared memory of a block. Chunk c of eight elements of row r lies at chunk c ^ r % 8.
template <int dim, int warps> struct Tiles {
    static constexpr int kDim = dim, kWarps = warps, kThreads = 32 * warps, kQueries = 16 * warps;
    __nv_bfloat16 q[kQueries * dim];
    __nv_bfloat16 k[2][kKeys * dim];
    __nv_bfloat16 v[2][kKeys * dim];
};
using Short = Tiles<64, 8>;
using Usual = Tiles<128, 8>;
using Wide = Tiles<256, 4>;

template <int kDim> __device__ int place(int row, int chunk) {
    return row * kDim + (chunk ^ (row & 7)) * 8;
}

__device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

__device__ void copy16(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

__device__ void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kLeft> __device__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Rows of a head, with zeros beyond its ends.
template <class Tiles, int kRows>
__device__ void load_rows(__nv_bfloat16* tile, const __nv_bfloat16* head, int seq_length, int head_dim,
                          int first_row, bool aligned) {
    constexpr int kChunks = Tiles::kDim / 8;
#pragma unroll 4
    for (int id = threadIdx.x; id < kRows * kChunks; id += Tiles::kThreads) {
        int r = id / kChunks, chunk = id % kChunks, row = first_row + r;
        __nv_bfloat16* to = tile + place<Tiles::kDim>(r, chunk);
        bool there = row < seq_length && chunk * 8 < head_dim;
        const __nv_bfloat16* from = there ? head + (size_t)row * head_dim + chunk * 8 : head;
        if (aligned) {
            copy16(to, from, there);
        } else {
            for (int i = 0; i < 8; ++i)
                to[i] = there && chunk * 8 + i < head_dim ? from[i] : __float2bfloat16(0.0f);
        }
    }
}

__device__ void load_matrices(unsigned (&to)[4], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ void load_matrices_turned(unsigned (&to)[4], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ unsigned pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned*)&pair;
}

// Lane q of four has words q of all four then.
__device__ void transpose4(unsigned (&words)[4], int lane) {
    bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        unsigned other = __shfl_xor_sync(kFullMask, odd ? words[i] : words[i + 1], 1);
        words[i] = odd ? other : words[i];
        words[i + 1] = odd ? words[i + 1] : other;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        unsigned other = __shfl_xor_sync(kFullMask, upper ? words[i] : words[i + 2], 2);
        words[i] = upper ? other : words[i];
        words[i + 2] = upper ? words[i + 2] : other;
    }
}

// Mask entries of two neighbouring keys, or more than 0.5 where the query may not see them anyway. `paired` rows of the
// mask have an even length and place.
__device__ float2 mask_of(const float* mask_row, int key, int query, int seq_length, bool paired) {
    float2 found = make_float2(1.0f, 1.0f);
    if (query >= seq_length)
        return make_float2(0.0f, 0.0f); // a row beyond the end, of which nothing is kept
    if (paired && key < query)
        return *(const float2*)(mask_row + key);
    if (key <= query)
        found.x = mask_row[key];
    if (key < query)
        found.y = mask_row[key + 1];
    return found;
}

// Queries of one head of at most kDim elements. The grid is (heads, tiles of queries).
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads)
    triangle_attention_bf16_kernel_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                             const __nv_bfloat16* value, const float* attention_mask,
                                             __nv_bfloat16* output, size_t first_head, int head_num,
                                             int seq_length, int head_dim, float scale) {
    constexpr int kDim = Tiles::kDim, kEights = kKeys / 8;
    extern __shared__ __align__(128) unsigned char memory[];
    Tiles& tiles = *(Tiles*)memory;
    size_t head = first_head + blockIdx.x;
    int first_query = (gridDim.y - 1 - blockIdx.y) * Tiles::kQueries;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int own = warp * 16;                                                            // first row of the warp's
    int rows[2] = {first_query + own + lane / 4, first_query + own + lane / 4 + 8}; // of the lane's sums
    size_t offset = head * seq_length * head_dim;
    query += offset;
    key += offset;
    value += offset;
    output += offset;
    attention_mask += head / head_num * seq_length * seq_length;
    bool aligned =
        (((size_t)query | (size_t)key | (size_t)value | (size_t)output) & 15) == 0 && head_dim % 8 == 0;
    bool paired = seq_length % 2 == 0 && ((size_t)attention_mask & 7) == 0;
    const float* mask_rows[2] = {attention_mask + (size_t)rows[0] * seq_length,
                                 attention_mask + (size_t)rows[1] * seq_length};

    int last_query = min(first_query + Tiles::kQueries, seq_length) - 1;
    int count = last_query / kKeys + 1;
    load_rows<Tiles, Tiles::kQueries>(tiles.q, query, seq_length, head_dim, first_query, aligned);
    load_rows<Tiles, kKeys>(tiles.k[0], key, seq_length, head_dim, 0, aligned);
    end_copies();
    load_rows<Tiles, kKeys>(tiles.v[0], value, seq_length, head_dim, 0, aligned);
    end_copies();

    float result[kDim / 8][4] = {};
    float largest[2] = {-CUDART_INF_F, -CUDART_INF_F}, sum[2] = {};
    for (int tile = 0; tile < count; ++tile) {
        int first_key = tile * kKeys, turn = tile & 1;
        bool needed = first_key <= first_query + own + 15; // else all is above the warp's triangle
        wait_copies<1>();
        __syncthreads();
        if (tile + 1 < count)
            load_rows<Tiles, kKeys>(tiles.k[turn ^ 1], key, seq_length, head_dim, first_key + kKeys, aligned);
        end_copies();

        float scores[kEights][4] = {};
        if (needed) {
            float2 masks[2][kEights];
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int n = 0; n < kEights; ++n)
                    masks[half][n] = mask_of(mask_rows[half], first_key + n * 8 + lane % 4 * 2, rows[half],
                                             seq_length, paired);
#pragma unroll
            for (int d = 0; d < kDim / 16; ++d) {
                unsigned a[4], b[4];
                load_matrices(a, tiles.q + place<kDim>(own + lane % 16, 2 * d + lane / 16));
#pragma unroll
                for (int n = 0; n < kEights; n += 2) {
                    int row = n * 8 + lane / 16 * 8 + lane % 8;
                    load_matrices(b, tiles.k[turn] + place<kDim>(row, 2 * d + lane / 8 % 2));
                    multiply(scores[n], a, b[0], b[1]);
                    multiply(scores[n + 1], a, b[2], b[3]);
                }
            }
            // Weights, in units of the logarithm of 2, on the scale of the present maximum.
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float now = largest[half];
#pragma unroll
                for (int n = 0; n < kEights; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& score = scores[n][half * 2 + e];
                        int at = first_key + n * 8 + lane % 4 * 2 + e;
                        bool out = at > rows[half] || (e ? masks[half][n].y : masks[half][n].x) > 0.5f;
                        score = out ? -CUDART_INF_F : score * scale;
                        now = fmaxf(now, score);
                    }
                }
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 1));
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 2));
                // Nothing may have been allowed yet: then all weights are zero on any scale.
                float origin = now == -CUDART_INF_F ? 0.0f : now;
                float shrink = exp2f(largest[half] - origin);
                largest[half] = now;
                sum[half] *= shrink;
#pragma unroll
                for (int n = 0; n < kEights; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& score = scores[n][half * 2 + e];
                        score = exp2f(score - origin);
                        sum[half] += score;
                    }
                }
                if (__any_sync(kFullMask, shrink != 1.0f)) {
#pragma unroll
                    for (int c = 0; c < kDim / 8; ++c) {
                        result[c][half * 2] *= shrink;
                        result[c][half * 2 + 1] *= shrink;
                    }
                }
            }
        }

        wait_copies<1>();
        __syncthreads();
        if (tile + 1 < count)
            load_rows<Tiles, kKeys>(tiles.v[turn ^ 1], value, seq_length, head_dim, first_key + kKeys,
                                    aligned);
        end_copies();
        if (needed) {
#pragma unroll
            for (int j = 0; j < kKeys / 16; ++j) {
                const float (&low)[4] = scores[2 * j], (&high)[4] = scores[2 * j + 1];
                unsigned a[4] = {pack2(low[0], low[1]), pack2(low[2], low[3]), pack2(high[0], high[1]),
                                 pack2(high[2], high[3])};
                unsigned b[4];
#pragma unroll
                for (int c = 0; c < kDim / 8; c += 2) {
                    load_matrices_turned(b, tiles.v[turn] + place<kDim>(j * 16 + lane % 16, c + lane / 16));
                    multiply(result[c], a, b[0], b[1]);
                    multiply(result[c + 1], a, b[2], b[3]);
                }
            }
        }
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float total = sum[half];
        total += __shfl_xor_sync(kFullMask, total, 1);
        total += __shfl_xor_sync(kFullMask, total, 2);
        float factor = 1.0f / total;
        __nv_bfloat16* to = output + (size_t)rows[half] * head_dim;
#pragma unroll
        for (int c = 0; c < kDim / 8; c += 4) {
            unsigned words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = pack2(result[c + i][half * 2] * factor, result[c + i][half * 2 + 1] * factor);
            transpose4(words, lane);
            int column = (c + lane % 4) * 8;
            if (rows[half] >= seq_length || column >= head_dim)
                continue;
            if (aligned) {
                *(uint4*)(to + column) = make_uint4(words[0], words[1], words[2], words[3]);
            } else {
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    if (column + i < head_dim)
                        to[column + i] = __ushort_as_bfloat16((unsigned short)(words[i / 2] >> i % 2 * 16));
            }
        }
    }
}

// For heads of any length: one query and 128 result columns per block. The grid is (heads, queries, groups of
// columns).
__global__ void
triangle_attention_long_bf16_kernel_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                              const __nv_bfloat16* value, const float* attention_mask,
                                              __nv_bfloat16* output, size_t first_head, int head_num,
                                              int seq_length, int head_dim, float scale) {
    __shared__ float scores[kLongThreads], weights[kLongThreads];
    size_t head = first_head + blockIdx.x;
    int column = blockIdx.z * kLongThreads + threadIdx.x;
    const __nv_bfloat16* keys = key + head * seq_length * head_dim;
    const __nv_bfloat16* values = value + head * seq_length * head_dim;
    for (int i = blockIdx.y; i < seq_length; i += gridDim.y) {
        const __nv_bfloat16* q = query + (head * seq_length + i) * head_dim;
        const float* excluded = attention_mask + (head / head_num * seq_length + i) * seq_length;
        float largest = -CUDART_INF_F, sum = 0.0f, result = 0.0f;
        for (int first_key = 0; first_key <= i; first_key += kLongThreads) {
            int j = first_key + threadIdx.x;
            float score = -CUDART_INF_F;
            if (j <= i && excluded[j] <= 0.5f) {
                float dot = 0.0f;
                for (int d = 0; d < head_dim; ++d)
                    dot += __bfloat162float(q[d]) * __bfloat162float(keys[(size_t)j * head_dim + d]);
                score = dot * scale;
            }
            scores[threadIdx.x] = score;
            __syncthreads();
            float now = largest;
            for (int k = 0; k < kLongThreads; ++k)
                now = fmaxf(now, scores[k]);
            float origin = now == -CUDART_INF_F ? 0.0f : now;
            float shrink = exp2f(largest - origin);
            weights[threadIdx.x] = exp2f(score - origin);
            largest = now;
            sum *= shrink;
            result *= shrink;
            __syncthreads();
            for (int k = 0; k < kLongThreads && first_key + k <= i; ++k) {
                sum += weights[k];
                if (column < head_dim)
                    result +=
                        weights[k] * __bfloat162float(values[(size_t)(first_key + k) * head_dim + column]);
            }
        }
        __syncthreads();
        if (column < head_dim)
            output[(head * seq_length + i) * head_dim + column] = __float2bfloat16(result / sum);
    }
}

template <class Tiles>
bool attend(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value,
            const float* attention_mask, __nv_bfloat16* output, size_t heads, size_t first_head, int head_num,
            int seq_length, int head_dim, float scale) {
    if (head_dim > Tiles::kDim)
        return false;
    int device = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (most < (int)sizeof(Tiles))
        return false;
    auto kernel = triangle_attention_bf16_kernel_optimized<Tiles>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Tiles));
    kernel<<<dim3(heads, (seq_length - 1) / Tiles::kQueries + 1), Tiles::kThreads, sizeof(Tiles)>>>(
        query, key, value, attention_mask, output, first_head, head_num, seq_length, head_dim, scale);
    return true;
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS Ring::kThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, by which the host sees that there is nothing to launch
#endif

constexpr int kStages = 2;
constexpr int kMaskTile = 128;    // keys whose bits of a row are 16 bytes
constexpr int kPackWarps = 8;     // of a block that packs the mask
constexpr int kPackRows = 4;      // of each of its warps
constexpr int kBitRoom = 1 << 22; // words
enum { kFullK, kEmptyK, kFullV, kEmptyV, kBarrierKinds };

// Bits of the mask: for each batch and each 128 keys, four words a row of queries.
__device__ __align__(16) unsigned mask_bits[kBitRoom];

// Shared memory of a block: its queries, stages of keys and values, barriers.
template <int dim, int consumers, int keys> struct Ring {
    static constexpr int kDim = dim, kConsumers = consumers, kQueries = 64 * consumers, kKeys = keys;
    static constexpr int kThreads = 128 * (consumers + 1); // one warpgroup that brings, the others multiply
    static constexpr int kBoxes = dim / 64, kBoxQ = kQueries * 128, kBoxKeys = keys * 128;
    static constexpr int kBytesQ = kBoxes * kBoxQ, kTileBytes = kBoxes * kBoxKeys;
    static constexpr int kK = kBytesQ, kV = kK + kStages * kTileBytes;
    static constexpr int kBarriers = kV + kStages * kTileBytes;
    static constexpr int kMemory = kBarriers + 8 * (2 + kBarrierKinds * kStages);
    // Results of 128 elements or fewer at a time.
    static constexpr int kParts = dim <= 128 ? 1 : dim / 128, kPart = dim / kParts;
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
// last query have no other bits. The grid is (tiles of keys, tiles of rows, batches).
__global__ void __launch_bounds__(32 * kPackWarps)
    triangle_attention_pack_bf16_kernel_optimized(const float* attention_mask, int seq_length, int rows) {
#if HAS_WARPGROUPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    int lane = threadIdx.x % 32, first_key = blockIdx.x * kMaskTile, key = first_key + lane * 4;
    int first = (blockIdx.y * kPackWarps + threadIdx.x / 32) * kPackRows;
    if (first_key > first + kPackRows - 1)
        return; // above the triangle: nobody looks there
    const float* mask = attention_mask + (size_t)blockIdx.z * seq_length * seq_length;
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
        *(uint4*)(mask_bits + (((size_t)blockIdx.z * gridDim.x + blockIdx.x) * rows + first + lane) * 4) =
            own;
}

#if HAS_WARPGROUPS
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

// Rows of a head, in boxes of 64 elements, with zeros beyond its ends.
template <int boxes, int bytes>
static __device__ void load_boxes(unsigned to, const CUtensorMap* map, int row, int head, unsigned barrier) {
    expect_bytes(barrier, boxes * bytes);
#pragma unroll
    for (int box = 0; box < boxes; ++box)
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
            "%4}], [%5];" ::"r"(to + box * bytes),
            "l"(map), "r"(box * 64), "r"(row), "r"(head), "r"(barrier)
            : "memory");
}

// Where a factor begins in its block's shared memory (the address has the block's rank above that), 128 bytes swizzled,
// eight rows a group; `box` is from 64 elements to the next where they are what lies side by side.
static __device__ unsigned long long describe(unsigned address, unsigned box) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(box >> 4) << 16 |
           (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

// Scores of 64 queries and 64 keys.
static __device__ void score(float (&d)[32], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
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

// Scores of 64 queries and 128 keys, over 16 elements of both, beside what d has where `keep` is not zero.
static __device__ void score(float (&d)[64], unsigned long long a, unsigned long long b, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, kept, 1, 1, 0, 0;}"
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

// Adds the values of 16 keys by their weights: 64 queries, 64 elements. Weights are in registers.
static __device__ void weigh(float (&d)[32], const unsigned* a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Adds the values of 16 keys by their weights: 64 queries, 128 elements. Weights are in registers.
static __device__ void weigh(float (&d)[64], const unsigned* a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
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
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
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

#endif

// Tiles of queries, of each head; the longest first. Blocks take them in turns, there and back, so that all have about as
// much to do, and the copies for a tile begin while the one before it ends.
template <class Ring>
__global__ void __launch_bounds__(THREADS, 1)
    triangle_attention_bf16_hopper_kernel_optimized(const __grid_constant__ CUtensorMap map_q,
                                                    const __grid_constant__ CUtensorMap map_k,
                                                    const __grid_constant__ CUtensorMap map_v,
                                                    __nv_bfloat16* output, int heads, int head_num,
                                                    int seq_length, int head_dim, float scale, int rows) {
#if HAS_WARPGROUPS
    constexpr int kDim = Ring::kDim, kKeys = Ring::kKeys, kParts = Ring::kParts, kPart = Ring::kPart;
    extern __shared__ __align__(1024) unsigned char ring[];
    unsigned base = shared_address(ring), full_q = base + Ring::kBarriers, empty_q = full_q + 8;
    auto barrier = [&](int kind, int stage) { return full_q + 8 * (2 + kind * kStages + stage); };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int down = (seq_length - 1) / Ring::kQueries + 1, turn = 0, steps = 0, head, first_query, count;
    auto take = [&]() {
        int block = turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x, item = turn * gridDim.x + block;
        if (item >= heads * down)
            return false;
        head = item % heads;
        first_query = (down - 1 - item / heads) * Ring::kQueries;
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
        for (int stage = 0; stage < kStages; ++stage) {
            init_barrier(barrier(kFullK, stage), 1);
            init_barrier(barrier(kFullV, stage), 1);
            init_barrier(barrier(kEmptyK, stage), 4 * Ring::kConsumers);
            init_barrier(barrier(kEmptyV, stage), 4 * Ring::kConsumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        if constexpr (Ring::kConsumers > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            for (; take(); finish()) {
                for (int tile = 0; tile < count; ++tile) {
                    int stage = (steps + tile) % kStages;
                    unsigned free = ((steps + tile) / kStages & 1) ^ 1;
                    wait_for(barrier(kEmptyK, stage), free);
                    load_boxes<Ring::kBoxes, Ring::kBoxKeys>(base + Ring::kK + stage * Ring::kTileBytes,
                                                             &map_k, tile * kKeys, head,
                                                             barrier(kFullK, stage));
                    if (tile == 0) {
                        wait_for(empty_q, (turn & 1) ^ 1);
                        load_boxes<Ring::kBoxes, Ring::kBoxQ>(base, &map_q, first_query, head, full_q);
                    }
                    wait_for(barrier(kEmptyV, stage), free);
                    load_boxes<Ring::kBoxes, Ring::kBoxKeys>(base + Ring::kV + stage * Ring::kTileBytes,
                                                             &map_v, tile * kKeys, head,
                                                             barrier(kFullV, stage));
                }
            }
        }
    } else {
        if constexpr (Ring::kConsumers > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        int group = warp / 4 - 1, own;
        const unsigned* bits_of_lane;
        float result[kParts][kPart / 2], scores[kKeys / 2];
        unsigned weights[kKeys / 4], bits[2][2];
        float largest[2], sum[2], shrink[2];

        // Two words of each row: of keys 4 l + 2 (lane % 2) and the next. The lane's first key is moved to bit 0.
        auto load_bits = [&](int tile) {
            int key = tile * kKeys, shift = key % kMaskTile / 4 + lane % 4 / 2;
            const unsigned* from = bits_of_lane + (size_t)(key / kMaskTile) * rows * 4;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint2 found = __ldcg((const uint2*)(from + half * 8 * 4));
                bits[half][0] = found.x >> shift;
                bits[half][1] = found.y >> shift;
            }
        };
        auto begin_scores = [&](int tile) {
            int stage = (steps + tile) % kStages;
            unsigned keys = base + Ring::kK + stage * Ring::kTileBytes;
            wait_for(barrier(kFullK, stage), (steps + tile) / kStages & 1);
            hold(scores);
            begin_products();
#pragma unroll
            for (int d = 0; d < kDim / 16; ++d)
                score(scores, describe(base + d / 4 * Ring::kBoxQ + d % 4 * 32 + group * 64 * 128, 16),
                      describe(keys + d / 4 * Ring::kBoxKeys + d % 4 * 32, 16), d > 0);
            end_products();
            hold(scores);
        };
        auto begin_values = [&](int tile) {
            int stage = (steps + tile) % kStages;
            unsigned values = base + Ring::kV + stage * Ring::kTileBytes;
            wait_for(barrier(kFullV, stage), (steps + tile) / kStages & 1);
#pragma unroll
            for (int part = 0; part < kParts; ++part)
                hold(result[part]);
            begin_products();
#pragma unroll
            for (int part = 0; part < kParts; ++part)
#pragma unroll
                for (int j = 0; j < kKeys / 16; ++j)
                    weigh(result[part], weights + j * 4,
                          describe(values + part * 2 * Ring::kBoxKeys + j * 2048, Ring::kBoxKeys));
            end_products();
#pragma unroll
            for (int part = 0; part < kParts; ++part)
                hold(result[part]);
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
                        one = bits[half][e] & (1u << 2 * n) ? -CUDART_INF_F : one;
                        now = fmaxf(now, one);
                    }
                }
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 1));
                now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 2));
                // Nothing may have been allowed yet: then all weights are zero on any scale.
                float origin = now == -CUDART_INF_F ? 0.0f : now * scale;
                shrink[half] = exp2f(fmaf(largest[half], scale, -origin));
                largest[half] = now;
                float more = 0.0f;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& one = scores[n * 4 + half * 2 + e];
                        one = exp2f(fmaf(one, scale, -origin));
                        more += one;
                    }
                }
                sum[half] = sum[half] * shrink[half] + more;
            }
        };
        // What products have read is free: keys, with the last of them queries too, and values.
        auto release_keys = [&](int tile) {
            if (lane == 0)
                arrive(barrier(kEmptyK, (steps + tile) % kStages));
            if (lane == 0 && tile == count - 1)
                arrive(empty_q);
        };
        auto release_values = [&](int tile) {
            if (lane == 0)
                arrive(barrier(kEmptyV, (steps + tile) % kStages));
        };
        auto pack = [&]() {
#pragma unroll
            for (int n = 0; n < kKeys / 4; ++n)
                weights[n] = pack2(scores[n * 2], scores[n * 2 + 1]);
        };

        // Two warpgroups take turns with products, so that one makes weights while the other's products are made.
        auto begin_turn = [&]() {
            if (Ring::kConsumers == 2)
                asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
        };
        auto end_turn = [&]() {
            if (Ring::kConsumers == 2)
                asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
        };
        if (group == 1)
            end_turn();
        // What packs the mask may not have ended yet.
        asm volatile("griddepcontrol.wait;" ::: "memory");
        for (; take(); finish()) {
            own = first_query + group * 64 + warp % 4 * 16 + lane / 4;
            bits_of_lane =
                mask_bits + ((size_t)(head / head_num) * (rows / kMaskTile) * rows + own) * 4 + lane % 2 * 2;
#pragma unroll
            for (int part = 0; part < kParts; ++part)
#pragma unroll
                for (int i = 0; i < kPart / 2; ++i)
                    result[part][i] = 0.0f;
            largest[0] = largest[1] = -CUDART_INF_F;
            sum[0] = sum[1] = 0.0f;
            load_bits(0);
            wait_for(full_q, turn & 1);
            begin_scores(0);
            wait_products<0>();
            hold(scores);
            release_keys(0);
            soften();
            pack();
            for (int tile = 1; tile < count; ++tile) {
                // The next scores and these values are made while the next weights are.
                load_bits(tile);
                begin_turn();
                begin_scores(tile);
                begin_values(tile - 1);
                end_turn();
                wait_products<1>();
                hold(scores);
                release_keys(tile);
                soften();
                // No sum is below zero, so that is all lanes. It keeps what makes the sums before the wait, beside products.
                __syncwarp(__ballot_sync(kFullMask, !(sum[0] + sum[1] < 0.0f)));
                wait_products<0>();
#pragma unroll
                for (int part = 0; part < kParts; ++part)
                    hold(result[part]);
                release_values(tile - 1);
                if (__any_sync(kFullMask, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
                    for (int part = 0; part < kParts; ++part)
#pragma unroll
                        for (int i = 0; i < kPart / 2; ++i)
                            result[part][i] *= shrink[i / 2 % 2];
                }
                pack();
            }
            begin_values(count - 1);
            wait_products<0>();
            release_values(count - 1);
#pragma unroll
            for (int part = 0; part < kParts; ++part)
                hold(result[part]);

#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float total = sum[half];
                total += __shfl_xor_sync(kFullMask, total, 1);
                total += __shfl_xor_sync(kFullMask, total, 2);
                float factor = 1.0f / total;
                int row = own + 8 * half;
                __nv_bfloat16* to = output + ((size_t)head * seq_length + row) * head_dim;
#pragma unroll
                for (int c = 0; c < kDim / 8; c += 4) {
                    unsigned words[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const float* pair = &result[c / (kPart / 8)][(c + i) % (kPart / 8) * 4 + half * 2];
                        words[i] = pack2(pair[0] * factor, pair[1] * factor);
                    }
                    transpose4(words, lane);
                    int column = (c + lane % 4) * 8;
                    if (row < seq_length && column < head_dim)
                        *(uint4*)(to + column) = make_uint4(words[0], words[1], words[2], words[3]);
                }
            }
        }
        if (group == 0)
            begin_turn(); // the other's last end of one
    }
#endif
}

static bool describe_heads(CUtensorMap* map, const __nv_bfloat16* data, size_t heads, int seq_length,
                           int head_dim, int box_rows) {
    cuuint64_t sizes[3] = {(cuuint64_t)head_dim, (cuuint64_t)seq_length, heads};
    cuuint64_t strides[2] = {(cuuint64_t)head_dim * 2, (cuuint64_t)head_dim * seq_length * 2};
    cuuint32_t box[3] = {64, (cuuint32_t)box_rows, 1}, steps[3] = {1, 1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void*)data, sizes, strides, box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// False where this GPU, this build or these matrices cannot have it.
template <class Ring>
static bool attend_on_hopper(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value,
                             const float* attention_mask, __nv_bfloat16* output, int batch_size, int head_num,
                             int seq_length, int head_dim, float scale) {
    size_t heads = (size_t)batch_size * head_num,
           places = (size_t)query | (size_t)key | (size_t)value | (size_t)output;
    int tiles = (seq_length - 1) / Ring::kQueries + 1, mask_tiles = (seq_length - 1) / kMaskTile + 1;
    int rows = mask_tiles * kMaskTile;
    if (head_dim > Ring::kDim || head_dim % 8 || places & 15 || heads * tiles > kMaxHeads ||
        batch_size > 65535 || (size_t)batch_size * mask_tiles * rows * 4 > kBitRoom)
        return false;
    auto kernel = triangle_attention_bf16_hopper_kernel_optimized<Ring>;
    cudaFuncAttributes built;
    if (cudaFuncGetAttributes(&built, kernel) != cudaSuccess || built.maxThreadsPerBlock < Ring::kThreads)
        return false;
    int device = 0, blocks = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    CUtensorMap map_q, map_k, map_v;
    if (!describe_heads(&map_q, query, heads, seq_length, head_dim, Ring::kQueries) ||
        !describe_heads(&map_k, key, heads, seq_length, head_dim, Ring::kKeys) ||
        !describe_heads(&map_v, value, heads, seq_length, head_dim, Ring::kKeys))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring::kMemory);
    triangle_attention_pack_bf16_kernel_optimized<<<
        dim3(mask_tiles, rows / (kPackWarps * kPackRows), batch_size), 32 * kPackWarps>>>(attention_mask,
                                                                                          seq_length, rows);
    // Blocks begin while the mask is packed, and wait for it where they need it.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(min((int)heads * tiles, blocks));
    config.blockDim = dim3(Ring::kThreads);
    config.dynamicSmemBytes = Ring::kMemory;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, map_q, map_k, map_v, output, (int)heads, head_num, seq_length,
                       head_dim, scale, rows);
    return true;
}

constexpr int kShortest = 64; // of this many positions the step before is as fast

extern "C" void triangle_attention_bf16_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                                  const __nv_bfloat16* value, const float* attention_mask,
                                                  __nv_bfloat16* output, int batch_size, int head_num,
                                                  int seq_length, int head_dim) {
    float scale = (float)(1.4426950408889634 / sqrt((double)head_dim)); // with the logarithm's base
    auto on_hopper = [&](auto run) {
        return run(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim,
                   scale);
    };
    if (seq_length > kShortest &&
        ((head_dim <= 64 && on_hopper(attend_on_hopper<Ring<64, 2, 128>>)) ||
         on_hopper(attend_on_hopper<Ring<128, 2, 128>>) || on_hopper(attend_on_hopper<Ring<256, 1, 64>>)))
        return;
    size_t heads = (size_t)batch_size * head_num;
    for (size_t first = 0; first < heads; first += kMaxHeads) {
        size_t now = heads - first < kMaxHeads ? heads - first : kMaxHeads;
        auto fits = [&](auto run) {
            return run(query, key, value, attention_mask, output, now, first, head_num, seq_length, head_dim,
                       scale);
        };
        // Heads too long for registers, or for the shared memory of a small GPU, take the plain kernel.
        if ((head_dim <= 64 && fits(attend<Short>)) || (head_dim <= 128 && fits(attend<Usual>)) ||
            fits(attend<Wide>))
            continue;
        dim3 blocks(now, seq_length < 65535 ? seq_length : 65535, (head_dim - 1) / kLongThreads + 1);
        triangle_attention_long_bf16_kernel_optimized<<<blocks, kLongThreads>>>(
            query, key, value, attention_mask, output, first, head_num, seq_length, head_dim, scale);
    }
}
