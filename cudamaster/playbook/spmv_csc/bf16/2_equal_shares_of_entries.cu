// idea: Long columns are shared out by entries, and the last block rounds
// why: A column of any length belonged to four lanes, which take 32 entries a trip to memory. So a column
//      with half of 671000 entries took 11160 µs on an H200, four of them 3355, and one entry repeated all
//      over, where every addition also meets the same sum, took 47963. Now columns of more than 128 entries
//      are left out at first, and the warps of the block share them. One block is too few where very much
//      lies in a few columns. So the offsets of 128 parts, equal in columns, are read with the first trip,
//      and where a part holds far more than others, all blocks take equal shares of the entries of such
//      parts. Lanes of a warp that meet in one row add up by shuffles before one of them adds. The three
//      matrices take 45, 50 and 45 µs so, timed before sums were added in bulk.
//      The barrier across the grid is gone, and the cooperative launch with it. A block takes a ticket when
//      its sums are in device memory, and the block that draws the last one rounds them and leaves zeros
//      behind.
//      On sm_90 a block's sums go to device memory by four additions in bulk, if rows are a multiple of 16;
//      else one by one. A lean form of the fp32 kernel took an H200 9.0 µs beyond the empty launch at 32768
//      columns with single additions, 8.7 with additions of 16 bytes and 8.0 in bulk. On an H100 the whole
//      call takes 20.6 µs.
//      The equal shares are for skew, and even columns pay for them. Before the additions in bulk, on an
//      H200, 32768 took 20.4 µs where step 1 takes 19.1, and 1024 to 4096 took 4.5 to 5.6 µs more; over the
//      baseline, the speedup of all sizes was 2.52 where step 1's is 2.72. Small sizes do not get step 1's
//      kernel, because that would give them its long columns, too.
//      What binds it now: with even columns, the launch, half of the time; the tickets, about 1 µs, as much
//      as the barrier took; bringing 2048 sums of each block to device memory, 1.6 µs before that was done in
//      bulk; and the additions in shared memory, which are loops of compare and swap for fp32. Tried, and no
//      faster: the additions of a thread in one such loop.
// flags: -O3 --use_fast_math
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kLanes = 4;     // lanes that share a column
constexpr int kBatch = 8;     // entries that a lane requests at once
constexpr int kLongBatch = 4; // the same in long columns
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 1024;
constexpr int kSharedRows = 8192;
[[maybe_unused]] constexpr int kPieces =
    4; // of a block's sums that are added in bulk; 128 threads are the fewest
constexpr int kFixedRows = 65536;
constexpr int kLong = 128;       // longer columns are not for four lanes
constexpr int kParts = 128;      // parts of the matrix, equal in columns
constexpr int kCrowded = 16384;  // fewer entries do not make a part crowded
constexpr int kMostCrowded = 64; // nor does a smaller part of all entries
constexpr int kAtOnce = 256;     // columns of which the lengths are looked at together
constexpr int kSamples = 4;      // entries of which a warp asks how many lanes have the row of one of them
constexpr int kMany = 4;         // so many lanes with one row are worth a search
constexpr int kSearches = 8;     // rows that the search looks at
constexpr int kMerged = 3;       // so many lanes with one row are worth a sum
constexpr unsigned kFullMask = 0xffffffffu;

__device__ alignas(16) float fixed_sums[kFixedRows]; // zero between calls
__device__ unsigned done;                            // blocks that are; zero between calls

// Long columns of which the block adds up entries.
struct Listed {
    int begin[kAtOnce], end[kAtOnce];
    float factor[kAtOnce];
    int count;
};

// Where many lanes of the warp have the same row, one takes the sum of all. All lanes come; -1 is no row.
template <int kCount> __device__ __forceinline__ void merge(int (&row)[kCount], float (&value)[kCount]) {
    static_assert(kSamples <= kCount && kSamples <= 32);
    bool many = false;
#pragma unroll
    for (int i = 0; i < kSamples; ++i) {
        int sample = __shfl_sync(kFullMask, row[i], 32 / kSamples * i);
        many |= __popc(__ballot_sync(kFullMask, row[i] == sample && sample >= 0)) >= kMany;
    }
    if (!many)
        return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        unsigned left = __ballot_sync(kFullMask, row[i] >= 0);
        bool mine = row[i] >= 0; // and not yet looked at
        for (int search = 0; search < kSearches && left; ++search) {
            int leader = __ffs(left) - 1;
            int sample = __shfl_sync(kFullMask, row[i], leader);
            unsigned same = __ballot_sync(kFullMask, mine && row[i] == sample);
            left &= ~same;
            if (__popc(same) < kMerged)
                continue;
            bool now = same >> threadIdx.x % 32 & 1;
            float sum = now ? value[i] : 0.0f;
            for (int distance = 16; distance > 0; distance /= 2)
                sum += __shfl_xor_sync(kFullMask, sum, distance);
            if (now && (int)(threadIdx.x % 32) != leader)
                row[i] = -1;
            if ((int)(threadIdx.x % 32) == leader)
                value[i] = sum;
            mine = mine && !now;
        }
    }
}

// Adds entries first, first + stride and so on before `end`; all lanes of the warp come.
template <int kCount>
__device__ __forceinline__ void add_entries(float* sums, const __nv_bfloat16* values, const int* row_indices,
                                            float factor, long long first, long long end, int stride) {
    int row[kCount];
    float value[kCount];
    __nv_bfloat16 loaded[kCount]; // turned into fp32 later, or loads wait for it
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        long long p = first + (long long)i * stride;
        row[i] = p < end ? row_indices[p] : -1;
        loaded[i] = p < end ? values[p] : __nv_bfloat16{};
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        value[i] = __bfloat162float(loaded[i]) * factor;
    merge(row, value);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        if (row[i] >= 0)
            atomicAdd(&sums[row[i]], value[i]);
    __syncwarp();
}

// Adds what is listed; the warps share out the columns, or where those are few, each column. All threads come.
__device__ __forceinline__ void add_listed(const Listed& listed, const __nv_bfloat16* values,
                                           const int* row_indices, float* sums) {
    __syncthreads();
    int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    int warps_each = max(warps / max(listed.count, 1), 1);
    int groups = warps / warps_each, stride = 32 * warps_each;
    for (int item = warp / warps_each; warp < groups * warps_each && item < listed.count; item += groups) {
        long long end = listed.end[item];
        for (long long first = listed.begin[item] + warp % warps_each * 32; first < end;
             first += kLongBatch * stride)
            add_entries<kLongBatch>(sums, values, row_indices, listed.factor[item], first + threadIdx.x % 32,
                                    end, stride);
    }
    __syncthreads();
}

// Lists the long columns of [first, last) that meet entries [from, to), in crowded parts or in others, and adds
// those entries. All threads come.
__device__ __forceinline__ void add_long_columns(Listed& listed, const unsigned* crowded, bool in_crowded,
                                                 int part_columns, long long first, long long last,
                                                 long long from, long long to, const __nv_bfloat16* values,
                                                 const int* row_indices, const int* col_offsets,
                                                 const __nv_bfloat16* x, float* sums) {
    for (; first < last; first += kAtOnce) {
        __syncthreads();
        if (threadIdx.x == 0)
            listed.count = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < kAtOnce && first + i < last; i += blockDim.x) {
            long long column = first + i;
            int part = (int)(column / part_columns), begin = col_offsets[column],
                end = col_offsets[column + 1];
            if (end - begin > kLong && begin < to && end > from &&
                (bool)(crowded[part / 32] >> part % 32 & 1) == in_crowded) {
                int slot = atomicAdd(&listed.count, 1);
                listed.begin[slot] = (int)max((long long)begin, from);
                listed.end[slot] = (int)min((long long)end, to);
                listed.factor[slot] = __bfloat162float(x[column]);
            }
        }
        add_listed(listed, values, row_indices, sums);
    }
}

// What was left out: long columns among the block's own, and its share of those in crowded parts. One copy for
// sums in shared memory and one for sums in device memory: so the compiler knows where they are.
template <bool kShared>
__device__ __noinline__ void add_long(Listed& listed, const unsigned* crowded, int columns, int part_columns,
                                      const __nv_bfloat16* values, const int* row_indices,
                                      const int* col_offsets, const __nv_bfloat16* x, float* sums) {
    long long own = blockDim.x / kLanes;
    for (long long first = (int)blockIdx.x * own; first < columns; first += (int)gridDim.x * own)
        add_long_columns(listed, crowded, false, part_columns, first, min(first + own, (long long)columns), 0,
                         0x7fffffff, values, row_indices, col_offsets, x, sums);
    long long total = 0;
    for (int part = 0; part < kParts; ++part)
        if (crowded[part / 32] >> part % 32 & 1)
            total += col_offsets[min((part + 1LL) * part_columns, (long long)columns)] -
                     col_offsets[(long long)part * part_columns];
    long long share = total / (int)gridDim.x + 1;
    long long share_begin = (int)blockIdx.x * share, share_end = min(share_begin + share, total);
    long long before = 0; // entries in crowded parts before this one
    for (int part = 0; part < kParts && before < share_end; ++part) {
        if (!(crowded[part / 32] >> part % 32 & 1))
            continue;
        long long first = (long long)part * part_columns,
                  last = min(first + part_columns, (long long)columns);
        long long shift = before - col_offsets[first];
        before += col_offsets[last] - col_offsets[first];
        if (before > share_begin)
            add_long_columns(listed, crowded, true, part_columns, first, last, share_begin - shift,
                             share_end - shift, values, row_indices, col_offsets, x, sums);
    }
}

// Adds the entries of the block's share of the columns to `sums`. All threads come.
template <bool kShared>
__device__ __forceinline__ void add_columns(Listed& listed, unsigned* crowded, int columns,
                                            const __nv_bfloat16* values, const int* row_indices,
                                            const int* col_offsets, const __nv_bfloat16* x, float* sums) {
    int part_columns = (columns - 1) / kParts + 1;
    int part_begin = 0, part_end = 0, total = 0;
    if (threadIdx.x < kParts) {
        long long first = (long long)threadIdx.x * part_columns;
        part_end = col_offsets[min(first + part_columns, (long long)columns)];
        part_begin = col_offsets[min(first, (long long)columns)];
        total = col_offsets[columns];
    }
    bool is_long = false;
    long long stride = (long long)gridDim.x * blockDim.x / kLanes;
    long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
    for (; column - threadIdx.x % 32 / kLanes < columns; column += stride) { // all lanes of a warp, or none
        float factor = 0.0f;
        long long first = 0, end = 0;
        if (column < columns) {
            factor = __bfloat162float(x[column]);
            end = col_offsets[column + 1];
            first = col_offsets[column];
            if (end - first > kLong) {
                is_long = true;
                end = first;
            }
            first += threadIdx.x % kLanes;
        }
        do {
            add_entries<kBatch>(sums, values, row_indices, factor, first, end, kLanes);
            first += kBatch * kLanes;
        } while (__any_sync(kFullMask, first < end));
    }
    bool is_crowded = part_end - part_begin > max(kCrowded, total / kMostCrowded);
    if (threadIdx.x < kParts) {
        unsigned bits = __ballot_sync(kFullMask, is_crowded);
        if (threadIdx.x % 32 == 0)
            crowded[threadIdx.x / 32] = bits;
    }
    if (__syncthreads_or(is_long || is_crowded))
        add_long<kShared>(listed, crowded, columns, part_columns, values, row_indices, col_offsets, x, sums);
}

// Adds the block's sums to `sums`, each block from another row on. All threads come, after the last addition.
__device__ __forceinline__ void add_to(float* sums, const float* block_sums, int rows) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (rows % (4 * kPieces) == 0 && ((size_t)sums & 15) == 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < kPieces) {
            int piece = rows / kPieces, first = (threadIdx.x / 32 + blockIdx.x) % kPieces * piece;
            asm volatile("fence.proxy.async;" ::: "memory"); // `sums` were cleared before
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                             sums + first),
                         "r"((unsigned)__cvta_generic_to_shared(block_sums + first)),
                         "r"(piece * (int)sizeof(float))
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
        return;
    }
#endif
    __syncthreads();
    int first_row = (int)((long long)rows * blockIdx.x / gridDim.x);
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        int row = first_row + i < rows ? first_row + i : first_row + i - rows;
        if (block_sums[row] != 0.0f)
            atomicAdd(&sums[row], block_sums[row]);
    }
}

// `given_sums` is null where the fixed ones are enough.
__global__ void __launch_bounds__(kMaxThreads, 1)
    spmv_csc_bf16_kernel_optimized(int rows, int columns, const __nv_bfloat16* __restrict__ values,
                                   const int* __restrict__ row_indices, const int* __restrict__ col_offsets,
                                   const __nv_bfloat16* __restrict__ x, __nv_bfloat16* y, float* given_sums) {
    __shared__ alignas(16) float block_sums[kSharedRows];
    __shared__ Listed listed;
    __shared__ unsigned crowded[kParts / 32]; // a bit for each part
    __shared__ bool is_last;
    float* sums = given_sums ? given_sums : fixed_sums;
    if (rows <= kSharedRows) {
        for (int i = threadIdx.x; i < rows; i += blockDim.x)
            block_sums[i] = 0.0f;
        __syncthreads();
        add_columns<true>(listed, crowded, columns, values, row_indices, col_offsets, x, block_sums);
        add_to(sums, block_sums, rows);
    } else {
        add_columns<false>(listed, crowded, columns, values, row_indices, col_offsets, x, sums);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        is_last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        y[i] = __float2bfloat16(__ldcg(&sums[i]));
        sums[i] = 0.0f;
    }
}

extern "C" void spmv_csc_bf16_optimized(int rows, int columns, const __nv_bfloat16* values,
                                        const int* row_indices, const int* col_offsets,
                                        const __nv_bfloat16* x, __nv_bfloat16* y) {
    int device = 0, multiprocessors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A block on each multiprocessor, as large as the columns need; where they are few, on some.
    long long lanes = (long long)columns * kLanes;
    long long wanted = (lanes - 1) / multiprocessors + 1;
    int threads = wanted < kMinThreads   ? kMinThreads
                  : wanted < kMaxThreads ? (int)((wanted + 31) / 32 * 32)
                                         : kMaxThreads;
    long long needed = (lanes - 1) / threads + 1;
    int blocks = needed < multiprocessors ? (int)needed : multiprocessors;
    float* given_sums = nullptr;
    if (rows > kFixedRows) {
        if (cudaMallocAsync(&given_sums, sizeof(float) * rows, 0) != cudaSuccess)
            return; // whoever called finds the error
        cudaMemsetAsync(given_sums, 0, sizeof(float) * rows, 0);
    }
    spmv_csc_bf16_kernel_optimized<<<blocks, threads>>>(rows, columns, values, row_indices, col_offsets, x, y,
                                                        given_sums);
    if (given_sums)
        cudaFreeAsync(given_sums, 0);
}
