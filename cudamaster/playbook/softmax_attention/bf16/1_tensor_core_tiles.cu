// idea: Both products on tensor cores, scores in a fixed scratch array
// why: In the baseline every multiply-add fetches two numbers from memory, neighbouring threads of the first
//      product read keys a whole row apart, and allocating scores and weights costs more than the small cases
//      take. Here a block computes a tile of 128 x 128 (64 x 64 where there are too few of those to fill the
//      GPU): strips of both operands, 32 deep, wait in shared memory, rows padded so that the tensor cores'
//      loads meet no bank conflicts, and each warp keeps a part of the tile in fragments. The next strips are
//      fetched into registers while the present ones are used, and go into the other half of a double buffer,
//      so that one barrier per strip is enough. Scores stay fp32 up to the softmax, which is a launch of its
//      own and writes the weights as bf16. Sizes that do not fit the tiles are filled with zeros.
// flags: -O3 --use_fast_math
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

extern "C" void softmax_attention_bf16_optimized(__nv_bfloat16* Y, const __nv_bfloat16* Q,
                                                 const __nv_bfloat16* K, const __nv_bfloat16* V,
                                                 int q_seq_len, int kv_seq_len, int dim_qk, int dim_v) {
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
