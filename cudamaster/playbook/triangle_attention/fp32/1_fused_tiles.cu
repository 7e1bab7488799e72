// idea: One launch over tiles of 64 x 64 scores that never leave the multiprocessor
// why: The baseline writes the scores of all heads to memory that it allocates in the call, hundreds of
//      megabytes, and goes over them five times; its products fetch two numbers from memory for every
//      multiply-add. Here a block takes 64 queries of a head and walks over the keys in tiles of 64, up to
//      the diagonal and no further. The scores of a tile stay in registers, 8 x 4 of a thread; a running
//      maximum and sum per query make the softmax possible in one walk: when the maximum grows, what was
//      summed before is scaled down. The weights pass through shared memory to become the operand of the
//      second product, whose sums stay in registers until the end. Tiles with the longest walks start first.
//      Sizes that do not fit the tiles are filled with zeros; heads of more than 256 elements are done 256
//      result columns at a time, each with the scores computed anew.
// flags: -O3 --use_fast_math
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

extern "C" void triangle_attention_optimized(const float* query, const float* key, const float* value,
                                             const float* attention_mask, float* output, int batch_size,
                                             int head_num, int seq_length, int head_dim) {
    if (head_dim <= 64)
        attend<64>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
    else if (head_dim <= 128)
        attend<128>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
    else
        attend<256>(query, key, value, attention_mask, output, batch_size, head_num, seq_length, head_dim);
}
