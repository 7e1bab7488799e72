// idea: Long rows are added up by whole blocks, those of crowded parts of the matrix by all blocks
// why: A row of any length belonged to eight lanes, which made a trip to memory for every few entries, so a
//      row with half of 671000 entries took 3047 µs on an H200, while all other lanes had nothing to do.
//      Now rows of more than 128 entries are left out at first, and the warps of the block share them, each
//      thread with four entries in flight. One block is still too few where very much lies in a few rows: a
//      few warps look at offsets spread over the matrix, and where a part of the rows holds far more than
//      others, all blocks take equal shares of the entries of such parts. The pieces of a row meet in
//      device memory, and the block that is last adds them up. The offsets are requested with the first
//      trip, and whether there is anything long is asked at the barrier that was there already, so that
//      matrices without long rows should have to pay a compare alone. That row takes 162 µs now, four such
//      rows 157 where step 3 takes 782, and one entry repeated all over 82 where it takes 6010. That is the
//      gain. Even rows pay for it: 32768 of them take 13.7 µs where step 3 takes 12.9, and smaller sizes 1.0
//      to 1.7 µs more; over the baseline, the speedup of all sizes is 1.14 where step 3's is 1.20. What binds
//      it now: with even rows, the launch, about 10 µs of the 13.7. With long rows, it seems, the walk of
//      every warp over all parts, crowded or not, which it makes twice: in the last of these matrices the
//      second one ends at once.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kColumns = 2048; // length of x, the same in every case
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kLanes = 8;   // lanes that share a row
constexpr int kEntries = 4; // entries that a lane requests at once
constexpr int kRows = kThreads / kLanes;
constexpr int kLong = 128;   // longer rows are not for eight lanes
constexpr int kPerWarp = 30; // parts of the matrix, equal in rows, that a warp looks at
constexpr int kSampling = 9; // warps that do
constexpr int kParts = kSampling * kPerWarp;
constexpr int kCrowded = 8192;    // fewer entries do not make a part crowded
constexpr int kMostCrowded = 128; // nor does a smaller part of all entries
constexpr int kMaxBlocks = 65536; // blocks that may share a row
constexpr unsigned kFullMask = 0xffffffffu;

// Of a row that several blocks share: the sum of the first one, those of the others, and how many are done.
__device__ float first_sums[kMaxBlocks], later_sums[kMaxBlocks];
__device__ unsigned done[kMaxBlocks]; // 0 between calls

// Rows of which the block adds up entries, and the sums.
struct Listed {
    int row[kRows];
    int begin[kRows], end[kRows];
    float sum[kRows];
    int count;
};

__device__ __forceinline__ float spmv_csr_bf16_warp_sum(float sum) {
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(kFullMask, sum, distance);
    return sum;
}

__device__ __forceinline__ void spmv_csr_bf16_list(Listed& listed, int row, int begin, int end) {
    int slot = atomicAdd(&listed.count, 1);
    listed.row[slot] = row;
    listed.begin[slot] = begin;
    listed.end[slot] = end;
    listed.sum[slot] = 0.0f;
}

// Adds up what is listed; the warps share out the rows, or where those are few, each row.
__device__ void spmv_csr_bf16_add_up(Listed& listed, const __nv_bfloat16* values, const int* col_indices,
                                     const float* vector) {
    __syncthreads();
    int warps_each = max(kWarps / max(listed.count, 1), 1);
    int groups = kWarps / warps_each, warp = threadIdx.x / 32;
    int stride = 32 * warps_each;
    for (int item = warp / warps_each; warp < groups * warps_each && item < listed.count; item += groups) {
        long long end = listed.end[item];
        float sum = 0.0f;
        for (long long p = listed.begin[item] + warp % warps_each * 32 + threadIdx.x % 32; p < end;
             p += kEntries * stride) {
            int column[kEntries];
            float value[kEntries];
#pragma unroll
            for (int k = 0; k < kEntries; ++k) {
                column[k] = p + k * stride < end ? col_indices[p + k * stride] : 0;
                value[k] = p + k * stride < end ? __bfloat162float(values[p + k * stride]) : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < kEntries; ++k)
                if (p + k * stride < end)
                    sum += value[k] * vector[column[k]];
        }
        sum = spmv_csr_bf16_warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            atomicAdd(&listed.sum[item], sum);
    }
    __syncthreads();
}

// The long rows of the block that are in no crowded part.
__device__ __noinline__ void spmv_csr_bf16_long_rows(Listed& listed, const unsigned* crowded, int rows,
                                                     int part_rows, const __nv_bfloat16* values,
                                                     const int* col_indices, const int* row_offsets,
                                                     const float* vector, __nv_bfloat16* y) {
    int row = blockIdx.x * kRows + threadIdx.x;
    if (threadIdx.x < kRows && row < rows) {
        int part = row / part_rows, begin = row_offsets[row], end = row_offsets[row + 1];
        if (end - begin > kLong && !(crowded[part / kPerWarp] >> part % kPerWarp & 1))
            spmv_csr_bf16_list(listed, row, begin, end);
    }
    spmv_csr_bf16_add_up(listed, values, col_indices, vector);
    if (threadIdx.x < listed.count)
        y[listed.row[threadIdx.x]] = __float2bfloat16(listed.sum[threadIdx.x]);
    __syncthreads();
}

// All long rows of the crowded parts: the block's share of their entries.
__device__ __noinline__ void spmv_csr_bf16_crowded_parts(Listed& listed, const unsigned* crowded, int rows,
                                                         int part_rows, const __nv_bfloat16* values,
                                                         const int* col_indices, const int* row_offsets,
                                                         const float* vector, __nv_bfloat16* y) {
    __shared__ int part_begin[kParts + 1];
    if (threadIdx.x <= kParts)
        part_begin[threadIdx.x] = row_offsets[(int)min((long long)threadIdx.x * part_rows, (long long)rows)];
    __syncthreads();
    long long total = 0;
    for (int part = 0; part < kParts; ++part)
        if (crowded[part / kPerWarp] >> part % kPerWarp & 1)
            total += part_begin[part + 1] - part_begin[part];
    // Entries are counted through the crowded parts alone.
    int blocks = min((int)gridDim.x, kMaxBlocks);
    long long share = total / blocks + 1;
    long long share_begin = blockIdx.x * share, share_end = min(share_begin + share, total);
    if ((int)blockIdx.x >= blocks || share_begin >= total)
        return;
    long long before = 0; // entries in crowded parts before this one
    for (int part = 0; part < kParts && before < share_end; ++part) {
        if (!(crowded[part / kPerWarp] >> part % kPerWarp & 1))
            continue;
        long long shift = before - part_begin[part];
        before += part_begin[part + 1] - part_begin[part];
        if (before <= share_begin)
            continue;
        for (int first = 0; first < part_rows; first += kRows) {
            __syncthreads();
            if (threadIdx.x == 0)
                listed.count = 0;
            __syncthreads();
            long long row = (long long)part * part_rows + first + threadIdx.x;
            if (threadIdx.x < kRows && first + threadIdx.x < part_rows && row < rows) {
                int begin = row_offsets[row], end = row_offsets[row + 1];
                if (end - begin > kLong && begin + shift < share_end && end + shift > share_begin)
                    spmv_csr_bf16_list(listed, (int)row, (int)(max(begin + shift, share_begin) - shift),
                                       (int)(min(end + shift, share_end) - shift));
            }
            spmv_csr_bf16_add_up(listed, values, col_indices, vector);
            int item = threadIdx.x;
            if (item >= listed.count)
                continue;
            int its_row = listed.row[item];
            float sum = listed.sum[item];
            int owner = (int)((row_offsets[its_row] + shift) / share);
            int others = (int)((row_offsets[its_row + 1] - 1 + shift) / share) - owner;
            if (others > 0) {
                bool later = owner < (int)blockIdx.x;
                (later ? later_sums : first_sums)[blockIdx.x] = sum;
                __threadfence();
                if (atomicInc(&done[owner], others) != others)
                    continue;
                __threadfence();
                sum = __ldcg(&first_sums[owner]);
                for (int other = 1; other <= others; ++other)
                    sum += __ldcg(&later_sums[owner + other]);
            }
            y[its_row] = __float2bfloat16(sum);
        }
    }
}

__global__ void __launch_bounds__(kThreads, 2)
    spmv_csr_bf16_kernel_optimized(int rows, const __nv_bfloat16* __restrict__ values,
                                   const int* __restrict__ col_indices, const int* __restrict__ row_offsets,
                                   const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y) {
    __shared__ float vector[kColumns];
    __shared__ unsigned crowded[kSampling]; // a bit for each part
    __shared__ Listed listed;
    int row = (int)((blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes);
    int lane = threadIdx.x % kLanes;
    int begin = row < rows ? row_offsets[row] : 0;
    int end = row < rows ? row_offsets[row + 1] : 0;
    float staged[kColumns / kThreads];
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        staged[k] = __bfloat162float(x[k * kThreads + threadIdx.x]);
    int part_rows = (rows - 1) / kParts + 1;
    // Where the warp's parts begin and the last one ends; the last lane: the number of entries. Warps beyond
    // the parts load that, too, because a branch would keep the compiler from loading early.
    int in_warp = threadIdx.x % 32;
    long long first_row = (threadIdx.x / 32 * kPerWarp + in_warp) * (long long)part_rows;
    int sample = row_offsets[in_warp < 31 && first_row < rows ? (int)first_row : rows];

    int column[kEntries];
    __nv_bfloat16 value[kEntries];
    int first = begin + lane;
#pragma unroll
    for (int k = 0; k < kEntries; ++k) {
        int p = first + k * kLanes;
        column[k] = p < end ? col_indices[p] : 0;
        value[k] = p < end ? values[p] : __nv_bfloat16{};
    }
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        vector[k * kThreads + threadIdx.x] = staged[k];
    int in_part = __shfl_down_sync(kFullMask, sample, 1) - sample;
    int enough = max(kCrowded, __shfl_sync(kFullMask, sample, 31) / kMostCrowded);
    bool is_crowded = in_warp < kPerWarp && in_part > enough;
    bool is_long = end - begin > kLong;
    bool any_long = __syncthreads_or(is_crowded || is_long);

    float sum = 0.0f;
    if (!is_long) {
#pragma unroll
        for (int k = 0; k < kEntries; ++k)
            if (first + k * kLanes < end)
                sum += __bfloat162float(value[k]) * vector[column[k]];
        // Rows longer than what was requested above.
        for (int p = first + kEntries * kLanes; p < end; p += kLanes)
            sum += __bfloat162float(values[p]) * vector[col_indices[p]];
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(kFullMask, sum, distance, kLanes);
    if (row < rows && lane == 0 && !is_long)
        y[row] = __float2bfloat16(sum);
    if (!any_long)
        return;

    unsigned bits = __ballot_sync(kFullMask, is_crowded);
    if (threadIdx.x < kSampling * 32 && in_warp == 0)
        crowded[threadIdx.x / 32] = bits;
    if (threadIdx.x == 0)
        listed.count = 0;
    bool any_crowded = __syncthreads_or(is_crowded);
    spmv_csr_bf16_long_rows(listed, crowded, rows, part_rows, values, col_indices, row_offsets, vector, y);
    if (any_crowded)
        spmv_csr_bf16_crowded_parts(listed, crowded, rows, part_rows, values, col_indices, row_offsets,
                                    vector, y);
}

extern "C" void spmv_csr_bf16_optimized(int rows, const __nv_bfloat16* values, const int* col_indices,
                                        const int* row_offsets, const __nv_bfloat16* x, __nv_bfloat16* y) {
    int blocks = (rows - 1) / kRows + 1;
    spmv_csr_bf16_kernel_optimized<<<blocks, kThreads>>>(rows, values, col_indices, row_offsets, x, y);
}
