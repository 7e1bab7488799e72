// idea: One launch on tensor cores over tiles of 64 x 64 scores that never leave the multiprocessor
// why: The baseline writes the scores and weights of all heads to memory that it allocates in the call,
//      hundreds of megabytes, and goes over them many times; its products fetch two numbers from memory for
//      every multiply-add. Here a block takes 64 queries of a head and walks over the keys in tiles of 64, up
//      to the diagonal and no further; both products run on tensor cores. A warp owns 16 queries: it keeps
//      their results in fragments, and its scores pass through shared memory, where a pair of lanes takes
//      each row: running maximum and sum per query make the softmax possible in one walk. When a maximum
//      grows, what was summed before is scaled down, in the fragments; which row an element of a fragment
//      belongs to is found once, from a fragment that was loaded with row numbers. The mask is read by the
//      warp row by row and becomes one bit per score. Keys and values take turns in the same shared memory,
//      so that several blocks fit on a multiprocessor and hide each other's waits. Tiles with the longest
//      walks start first. Heads of more than 256 elements take a plain kernel.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kThreads = 128;
constexpr int kTile = 64;                   // queries of a block, and keys at a time
constexpr int kScoreLead = kTile + 4;       // length of a padded row of scores
constexpr int kWeightLead = 2 * kScoreLead; // the same row as bf16 weights
constexpr int kMaxHeads = 1 << 30;
constexpr unsigned kFullMask = 0xffffffffu;

struct __align__(16) Vector {
    __nv_bfloat16 at[8];
};

// Eight neighbouring elements of a row of a head, zeros beyond its ends.
__device__ Vector load8(const __nv_bfloat16* head, int seq_length, int head_dim, int row, int column,
                        bool aligned) {
    const __nv_bfloat16* from = head + (size_t)row * head_dim + column;
    if (aligned && row < seq_length && column < head_dim)
        return *(const Vector*)from;
    Vector value;
#pragma unroll
    for (int k = 0; k < 8; ++k)
        value.at[k] = row < seq_length && column + k < head_dim ? from[k] : __float2bfloat16(0.0f);
    return value;
}

// 64 rows of a head in shared memory, filled up with zeros to kDim columns.
template <int kDim>
__device__ void load_tile(__nv_bfloat16 (*tile)[kDim + 8], const __nv_bfloat16* head, int seq_length,
                          int head_dim, int first_row, bool aligned) {
#pragma unroll 8
    for (int id = threadIdx.x; id < kTile * kDim / 8; id += kThreads) {
        int row = id / (kDim / 8), column = id % (kDim / 8) * 8;
        *(Vector*)&tile[row][column] = load8(head, seq_length, head_dim, first_row + row, column, aligned);
    }
}

// Shared memory of a block.
template <int kDim> struct Shared {
    __nv_bfloat16 q[kTile][kDim + 8];
    __nv_bfloat16 kv[kTile][kDim + 8]; // keys, then values
    float scores[kTile][kScoreLead];   // then weights, then results
    float factors[kTile];
};

// 64 queries of one head of at most kDim elements. The grid is (heads, tiles of queries).
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    triangle_attention_bf16_kernel_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                             const __nv_bfloat16* value, const float* attention_mask,
                                             __nv_bfloat16* output, size_t first_head, int head_num,
                                             int seq_length, int head_dim, float scale) {
    extern __shared__ __align__(128) unsigned char memory[];
    Shared<kDim>& shared = *(Shared<kDim>*)memory;
    typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> Sums;

    size_t head = first_head + blockIdx.x;
    int tile = gridDim.y - 1 - blockIdx.y;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int own_row = warp * 16;           // of the tile, the first of the warp's
    int row = lane % 16;               // of the warp's, the one that this lane does half of
    int first_column = lane / 16 * 32; // which half
    int first_query = tile * kTile + own_row;
    size_t offset = head * seq_length * head_dim;
    query += offset;
    key += offset;
    value += offset;
    output += offset;
    attention_mask += head / head_num * seq_length * seq_length;
    bool aligned =
        (((size_t)query | (size_t)key | (size_t)value | (size_t)output) & 15) == 0 && head_dim % 8 == 0;

    load_tile<kDim>(shared.q, query, seq_length, head_dim, tile * kTile, aligned);

    // Which of the warp's rows the elements of a fragment belong to.
    for (int id = lane; id < 16 * 16; id += 32)
        shared.scores[own_row + id / 16][id % 16] = id / 16;
    __syncwarp();
    int row_of[Sums::num_elements];
    {
        Sums rows;
        wmma::load_matrix_sync(rows, &shared.scores[own_row][0], kScoreLead, wmma::mem_row_major);
#pragma unroll
        for (int e = 0; e < Sums::num_elements; ++e)
            row_of[e] = (int)rows.x[e];
    }

    Sums result[kDim / 16];
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c)
        wmma::fill_fragment(result[c], 0.0f);
    float largest = -CUDART_INF_F, sum = 0.0f;
    for (int first_key = 0; first_key <= tile * kTile; first_key += kTile) {
        __syncthreads();
        load_tile<kDim>(shared.kv, key, seq_length, head_dim, first_key, aligned);

        // One bit per score of the lane's half row: those that are left out.
        unsigned excluded = 0;
#pragma unroll 4
        for (int r = 0; r < 16; ++r) {
            int i = first_query + r, left = first_key + lane, right = left + 32;
            const float* mask_row = attention_mask + (size_t)i * seq_length;
            bool inside = i < seq_length; // rows beyond the end keep what the triangle leaves them
            unsigned left_out = __ballot_sync(kFullMask, left > i || (inside && mask_row[left] > 0.5f));
            unsigned right_out = __ballot_sync(kFullMask, right > i || (inside && mask_row[right] > 0.5f));
            if (row == r)
                excluded = first_column == 0 ? left_out : right_out;
        }
        __syncthreads();

        // Scores of 16 queries and 64 keys.
        Sums scores[kTile / 16];
#pragma unroll
        for (int n = 0; n < kTile / 16; ++n)
            wmma::fill_fragment(scores[n], 0.0f);
#pragma unroll
        for (int d = 0; d < kDim; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> q;
            wmma::load_matrix_sync(q, &shared.q[own_row][d], kDim + 8);
#pragma unroll
            for (int n = 0; n < kTile / 16; ++n) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> k;
                wmma::load_matrix_sync(k, &shared.kv[n * 16][d], kDim + 8);
                wmma::mma_sync(scores[n], q, k, scores[n]);
            }
        }
#pragma unroll
        for (int n = 0; n < kTile / 16; ++n)
            wmma::store_matrix_sync(&shared.scores[own_row][n * 16], scores[n], kScoreLead,
                                    wmma::mem_row_major);
        __syncwarp();

        // Weights of half a row, in units of the logarithm of 2, on the scale of the present maximum.
        float weights[32];
        float now = largest;
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            float score = shared.scores[own_row + row][first_column + j] * scale;
            weights[j] = excluded >> j & 1 ? -CUDART_INF_F : score;
            now = fmaxf(now, weights[j]);
        }
        now = fmaxf(now, __shfl_xor_sync(kFullMask, now, 16));
        // Nothing may have been allowed yet: then all weights are zero on any scale.
        float origin = now == -CUDART_INF_F ? 0.0f : now;
        float shrink = exp2f(largest - origin);
        largest = now;
        float tile_sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            weights[j] = exp2f(weights[j] - origin);
            tile_sum += weights[j];
        }
        tile_sum += __shfl_xor_sync(kFullMask, tile_sum, 16); // in an order that is the same for both lanes
        sum = sum * shrink + tile_sum;
        shared.factors[own_row + row] = shrink; // both lanes of a row write the same
        __syncwarp();
        __nv_bfloat16* weight_rows = (__nv_bfloat16*)&shared.scores[own_row][0];
#pragma unroll
        for (int j = 0; j < 32; j += 8) {
            Vector rounded;
#pragma unroll
            for (int k = 0; k < 8; ++k)
                rounded.at[k] = __float2bfloat16(weights[j + k]);
            *(Vector*)&weight_rows[row * kWeightLead + first_column + j] = rounded;
        }
        if (__any_sync(kFullMask, shrink != 1.0f)) {
#pragma unroll
            for (int e = 0; e < Sums::num_elements; ++e) {
                float factor = shared.factors[own_row + row_of[e]];
#pragma unroll
                for (int c = 0; c < kDim / 16; ++c)
                    result[c].x[e] *= factor;
            }
        }

        // Weighted sum of the values.
        __syncthreads();
        load_tile<kDim>(shared.kv, value, seq_length, head_dim, first_key, aligned);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < kTile; j += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> p;
            wmma::load_matrix_sync(p, weight_rows + j, kWeightLead);
#pragma unroll
            for (int c = 0; c < kDim / 16; ++c) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> v;
                wmma::load_matrix_sync(v, &shared.kv[j][c * 16], kDim + 8);
                wmma::mma_sync(result[c], p, v, result[c]);
            }
        }
    }

    // Results go through the warp's rows of scores, 64 columns at a time.
    __syncwarp();
    shared.factors[own_row + row] = 1.0f / sum;
    __syncwarp();
#pragma unroll
    for (int first = 0; first < kDim; first += kTile) {
#pragma unroll
        for (int n = 0; n < kTile / 16; ++n)
            wmma::store_matrix_sync(&shared.scores[own_row][n * 16], result[first / 16 + n], kScoreLead,
                                    wmma::mem_row_major);
        __syncwarp();
        for (int id = lane; id < 16 * kTile / 8; id += 32) {
            int r = id / (kTile / 8), c = id % (kTile / 8) * 8;
            float factor = shared.factors[own_row + r];
            Vector rounded;
#pragma unroll
            for (int k = 0; k < 8; ++k)
                rounded.at[k] = __float2bfloat16(shared.scores[own_row + r][c + k] * factor);
            if (first_query + r >= seq_length)
                continue;
            __nv_bfloat16* to = output + (size_t)(first_query + r) * head_dim + first + c;
            if (aligned && first + c < head_dim) {
                *(Vector*)to = rounded;
            } else {
#pragma unroll
                for (int k = 0; k < 8; ++k)
                    if (first + c + k < head_dim)
                        to[k] = rounded.at[k];
            }
        }
        __syncwarp();
    }
}

// For heads of any length: one query and 128 result columns per block. The grid is (heads, queries, groups of
// columns).
__global__ void
triangle_attention_long_bf16_kernel_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                              const __nv_bfloat16* value, const float* attention_mask,
                                              __nv_bfloat16* output, size_t first_head, int head_num,
                                              int seq_length, int head_dim, float scale) {
    __shared__ float scores[kThreads], weights[kThreads];
    size_t head = first_head + blockIdx.x;
    int column = blockIdx.z * kThreads + threadIdx.x;
    const __nv_bfloat16* keys = key + head * seq_length * head_dim;
    const __nv_bfloat16* values = value + head * seq_length * head_dim;
    for (int i = blockIdx.y; i < seq_length; i += gridDim.y) {
        const __nv_bfloat16* q = query + (head * seq_length + i) * head_dim;
        const float* excluded = attention_mask + (head / head_num * seq_length + i) * seq_length;
        float largest = -CUDART_INF_F, sum = 0.0f, result = 0.0f;
        for (int first_key = 0; first_key <= i; first_key += kThreads) {
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
            for (int k = 0; k < kThreads; ++k)
                now = fmaxf(now, scores[k]);
            float origin = now == -CUDART_INF_F ? 0.0f : now;
            float shrink = exp2f(largest - origin);
            weights[threadIdx.x] = exp2f(score - origin);
            largest = now;
            sum *= shrink;
            result *= shrink;
            __syncthreads();
            for (int k = 0; k < kThreads && first_key + k <= i; ++k) {
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

template <int kDim>
void attend(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value,
            const float* attention_mask, __nv_bfloat16* output, dim3 blocks, size_t first_head, int head_num,
            int seq_length, int head_dim, float scale) {
    cudaFuncSetAttribute(triangle_attention_bf16_kernel_optimized<kDim>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared<kDim>));
    triangle_attention_bf16_kernel_optimized<kDim><<<blocks, kThreads, sizeof(Shared<kDim>)>>>(
        query, key, value, attention_mask, output, first_head, head_num, seq_length, head_dim, scale);
}

extern "C" void triangle_attention_bf16_optimized(const __nv_bfloat16* query, const __nv_bfloat16* key,
                                                  const __nv_bfloat16* value, const float* attention_mask,
                                                  __nv_bfloat16* output, int batch_size, int head_num,
                                                  int seq_length, int head_dim) {
    float scale = (float)(1.4426950408889634 / sqrt((double)head_dim)); // with the logarithm's base
    size_t heads = (size_t)batch_size * head_num;
    for (size_t first = 0; first < heads; first += kMaxHeads) {
        dim3 blocks(heads - first < kMaxHeads ? heads - first : kMaxHeads, (seq_length - 1) / kTile + 1);
        if (head_dim <= 64) {
            attend<64>(query, key, value, attention_mask, output, blocks, first, head_num, seq_length,
                       head_dim, scale);
        } else if (head_dim <= 128) {
            attend<128>(query, key, value, attention_mask, output, blocks, first, head_num, seq_length,
                        head_dim, scale);
        } else if (head_dim <= 256) {
            attend<256>(query, key, value, attention_mask, output, blocks, first, head_num, seq_length,
                        head_dim, scale);
        } else {
            blocks.y = seq_length < 65535 ? seq_length : 65535;
            blocks.z = (head_dim - 1) / kThreads + 1;
            triangle_attention_long_bf16_kernel_optimized<<<blocks, kThreads>>>(
                query, key, value, attention_mask, output, first, head_num, seq_length, head_dim, scale);
        }
    }
}
