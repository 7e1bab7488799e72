// idea: Scores and weights stay in registers
// why: The step before carries scores through shared memory, because what a fragment holds where is not said in
//      C++. For mma.sync it is: the sums of a product of scores are laid out as the first factor of the next
//      product takes them, so that weights never leave their lane, and maximum and sum of a row are found by two
//      shuffles among four lanes. A block takes 128 queries of a head, 16 for each warp; keys and values come in
//      tiles of 64 by asynchronous copies, the next ones on their way while these are multiplied, into chunks that
//      are exchanged by row so that neither the copies nor ldmatrix meet a bank twice. A lane reads the mask for
//      just the scores that it holds, before the product that makes them. A warp skips tiles above its triangle.
//      Blocks with the longest walks start first. Heads of more than 256 elements take a plain kernel.
// flags: -O3 --use_fast_math
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

extern "C" void triangle_attention_bf16_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                                  const __nv_bfloat16* value, const float* attention_mask,
                                                  __nv_bfloat16* output, int batch_size, int head_num,
                                                  int seq_length, int head_dim) {
    float scale = (float)(1.4426950408889634 / sqrt((double)head_dim)); // with the logarithm's base
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
