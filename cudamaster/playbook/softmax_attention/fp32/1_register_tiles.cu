// idea: Both products in register tiles, scores in a fixed scratch array
// why: In the baseline every multiply-add fetches two numbers from memory, neighbouring threads of the first
//      product read keys a whole row apart, and allocating the scores costs more than the small cases take.
//      Here a block computes a tile of 128 x 128 (64 x 64 where there are too few of those to fill the GPU):
//      strips of both operands, 16 deep, wait in shared memory, and a thread keeps 8 x 8 sums in registers,
//      so that four 16-byte reads feed 64 multiply-adds. The next strips are fetched into registers while the
//      present ones are used, and go into the other half of a double buffer, so that one barrier per strip is
//      enough. The softmax stays a launch of its own: the scores are small beside the products. Sizes that do
//      not fit the tiles are filled with zeros.
// flags: -O3 --use_fast_math
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

extern "C" void softmax_attention_optimized(float* Y, const float* Q, const float* K, const float* V,
                                            int q_seq_len, int kv_seq_len, int dim_qk, int dim_v) {
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
