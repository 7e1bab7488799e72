// idea: Keep a slab of X in shared memory and stream the matrix past it, sorted by length of row
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and that gather is what
//      binds it. A slab of 1808 rows by 32 columns of X, one line of 128 bytes in each row, fits into an
//      SM's shared memory, which delivers 128 bytes a cycle; each block keeps one and streams all rows
//      of A past it. What the stream costs has to be small, so the matrix is sorted first. Rows of one length
//      stand together, since the eight rows that a warp sums at a time should end together. Entries shrink to 6
//      bytes: the row of the slab in 16 bits, and the value. Four lanes share a row of A. Each takes two of a
//      line's eight parts of 16 bytes, one in either half, and lanes of neighbouring rows begin with different
//      halves: so the eight lanes that shared memory serves at a time meet in no bank. Entries of columns that
//      are not in the slab, 12 % at 2048 columns, are fetched from X itself, and asked for before the last
//      entries that are. A block shares a row that is much longer than the others. Small matrices, more than
//      3616 columns, and GPUs with less shared memory than an H100 take step 1's kernels. Entries of one row of
//      A that a warp meets take their places by one atomic operation. At 262144 rows and K = 4096 an H200 takes
//      4.70 ms where step 1 takes 8.05. What binds it now: the pipe of shared memory and L1, busy in 91 % of
//      the cycles; a fifth of that is due to the entries beyond the slab. Tried, and no faster: eight lanes for
//      a row of a slab of all 2048 rows, which has seven such parts, so one lane idles; entries kept out of L1;
//      more threads, which spill.
// flags: -O3 --use_fast_math
#ifndef THREADS
#define THREADS 512
#endif
#ifndef SMALL
#define SMALL 512
#endif
#ifndef BATCH
#define BATCH 2
#endif
#ifndef FARS
#define FARS 8
#endif
#ifndef NEXT
#define NEXT 1
#endif
#ifndef SPLIT
#define SPLIT 1
#endif
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

using Element = float;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 16 / sizeof(Element); // columns in 16 bytes
constexpr int kChunk = 8;                      // times 16 bytes are a row of the slab: all banks once
constexpr int kWidth = kChunk * kColumns;      // columns of a slab
constexpr int kHeight = 1808;                  // rows of X in a slab at most
constexpr int kShared = (kHeight + 1) * kChunk * 16;
constexpr int kRows = 32;     // rows of A in a group, one for each lane
constexpr int kExact = 64;    // entries in the slab up to which rows are sorted by their exact number
constexpr int kStep = 4;      // and of longer rows each so many lengths stand together
constexpr int kLongest = 256; // entries in the slab of a row of a group at most
constexpr int kFarthest = 15; // and beyond it
constexpr int kLengths = kExact + 1 + (kLongest - kExact) / kStep;
// One for each length and each number of entries beyond the slab, and the last for longer rows.
constexpr int kBins = kLengths * (kFarthest + 1) + 1;
constexpr int kSmall = SMALL;       // threads of a block that prepares
constexpr int kLooked = 64;         // entries of a long row that are looked at for the last column
constexpr int kLarge = THREADS;     // threads of a block that multiplies
constexpr int kBatch = BATCH;       // pairs of entries that a lane asks for at a time
constexpr int kLongBatch = 4;       // entries of a long row that a thread asks for at a time
constexpr int kManyRows = 8192;     // from which sorting them first is worthwhile
constexpr int kManyColumns = 512;   // of X
constexpr size_t kArena = 16 << 20; // ints

__device__ int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    int columns;      // 1 more than the last that has an entry; of a long row some were looked at
    int long_entries; // of rows too long for a group
    int positions;    // of rows in groups
    int groups, pairs, longs, fars;
    int next_unit;
};

// Where the matrix is sorted.
struct Sorted {
    Totals* totals;
    int* lengths;                // of bins: rows
    int* starts;                 // of bins, in their order: first position of its rows
    int2* ranks;                 // of rows: bin, and number within the bin
    int* longs;                  // rows too long for a group
    int4* groups;                // first pair, entries in the slab, first far entry, far entries
    int* order;                  // rows of groups, -1 for none
    unsigned* packed;            // pairs of entries: rows of the slab, 16 bits each
    float2* values;              // and their values
    unsigned short* far_columns; // entries beyond the slab: column, or kNone
    float* far_values;
};

constexpr int kNone = 0xffff;

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

// Bins in their order, from the last down: rows with most entries beyond the slab first, and those with as many of them by
// turns from the longest down and from the shortest up. So 32 neighbours differ little.
__device__ int bin_of(int count, int far) {
    int length = count <= kExact ? count : kExact + (count - kExact + kStep - 1) / kStep;
    return count <= kLongest && far <= kFarthest
               ? far * kLengths + (far % 2 == 0 ? length : kLengths - 1 - length)
               : kBins - 1;
}

// The most entries in the slab that a row of this bin has.
__device__ int longest_of(int bin) {
    int length = bin % kLengths;
    if (bin / kLengths % 2 != 0)
        length = kLengths - 1 - length;
    return length <= kExact ? length : kExact + (length - kExact) * kStep;
}

// A block shares a long row, which costs barriers: where more than one in kLongShare is long, step 1 takes the matrix.
// That share is a guess; no such matrix was timed.
constexpr int kLongShare = 16;
constexpr size_t kMostPlaces = 0x7fffffff; // of pairs, or of far entries: a place is an int
constexpr int kSlack = 2 * kBatch * kRows; // pairs behind the last that are read, not used

// Where starts has a bin.
__device__ int start_of(int bin) {
    return kBins - 1 - bin;
}

// Calls visit(column, value) for the entries of a row, those from `first` to `last`. Loads take 16 bytes where the arrays,
// of `nnz` numbers, have them. Without kValues, values are not loaded.
template <bool kValues, class Visit>
__device__ void for_each_entry(unsigned first, unsigned last, unsigned nnz,
                               const int* __restrict__ col_indices, const Element* __restrict__ values,
                               Visit visit) {
    for (unsigned at = first / 4 * 4; at < last; at += 4) {
        int column[4];
        float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (at + 4 <= nnz) {
            int4 four = __ldg((const int4*)(col_indices + at));
            column[0] = four.x, column[1] = four.y, column[2] = four.z, column[3] = four.w;
            if constexpr (kValues) {
                float4 their = __ldg((const float4*)(values + at));
                value[0] = their.x, value[1] = their.y, value[2] = their.z, value[3] = their.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                column[i] = at + i < last ? col_indices[at + i] : 0;
                if constexpr (kValues)
                    value[i] = at + i < last ? values[at + i] : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (at + i >= first && at + i < last)
                visit(column[i], value[i]);
    }
}

// The bin of each row, and how many rows each bin has. A thread takes a row, and knows a long one by its offsets.
__global__ void __launch_bounds__(kSmall)
    survey_kernel_optimized(int rows, const int* __restrict__ row_offsets,
                            const int* __restrict__ col_indices, Sorted sorted) {
    __shared__ int lengths[kBins];
    __shared__ int highest;
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        lengths[bin] = 0;
    if (threadIdx.x == 0)
        highest = -1;
    __syncthreads();
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    int mine = -1, bin = kBins - 1, rank = 0;
    if (row < rows) {
        int first = row_offsets[row], last = row_offsets[row + 1], nnz = row_offsets[rows];
        if (last - first > kLongest + kFarthest) {
            for (int i = 0; i < kLooked; ++i)
                mine = max(mine, col_indices[first + (last - first - 1) / (kLooked - 1) * i]);
        } else {
            int far = 0;
            auto count = [&](int column, float) {
                mine = max(mine, column);
                far += column >= kHeight;
            };
            for_each_entry<false>(first, last, nnz, col_indices, nullptr, count);
            bin = bin_of(last - first - far, far);
        }
        rank = atomicAdd(&lengths[bin], 1);
        if (bin == kBins - 1)
            atomicAdd(&sorted.totals->long_entries, last - first);
    }
    mine = __reduce_max_sync(kFullMask, mine);
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(&sorted.totals->columns, highest + 1);
    for (int i = threadIdx.x; i < kBins; i += kSmall)
        if (lengths[i] > 0)
            lengths[i] = atomicAdd(&sorted.lengths[i], lengths[i]);
    __syncthreads();
    if (row < rows)
        sorted.ranks[row] = make_int2(bin, lengths[bin] + rank);
}

// The sums of all threads before a thread, and of all threads in `total`.
constexpr int kPlanners = 1024;
__device__ int2 sum_before(int2 mine, int2* total) {
    __shared__ int2 warp_sums[kPlanners / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int2 end = mine;
    for (int distance = 1; distance < 32; distance *= 2) {
        int x = __shfl_up_sync(kFullMask, end.x, distance), y = __shfl_up_sync(kFullMask, end.y, distance);
        if (lane >= distance)
            end.x += x, end.y += y;
    }
    __syncthreads();
    if (lane == 31)
        warp_sums[warp] = end;
    __syncthreads();
    int2 before = make_int2(end.x - mine.x, end.y - mine.y);
    *total = make_int2(0, 0);
    for (int i = 0; i < kPlanners / 32; ++i) {
        int2 sum = warp_sums[i];
        if (i < warp)
            before.x += sum.x, before.y += sum.y;
        total->x += sum.x, total->y += sum.y;
    }
    return before;
}

// Where each bin starts, and how long each group is and where it starts, by one block.
__global__ void __launch_bounds__(kPlanners) plan_kernel_optimized(Sorted sorted) {
    __shared__ int2 used[kBins]; // bins that are: first position, bin
    int share = (kBins + kPlanners - 1) / kPlanners;
    int first = min((int)threadIdx.x * share, kBins), last = min(first + share, kBins);
    auto keys_of = [&](int i) { return i > 0 ? sorted.lengths[kBins - 1 - i] : 0; };
    int2 sum = make_int2(0, 0), total;
    for (int i = first; i < last; ++i)
        sum.x += keys_of(i), sum.y += keys_of(i) > 0;
    int2 at = sum_before(sum, &total);
    for (int i = first; i < last; ++i) {
        sorted.starts[i] = at.x;
        if (keys_of(i) > 0) {
            used[at.y] = make_int2(at.x, kBins - 1 - i);
            at.x += keys_of(i);
            ++at.y;
        }
    }
    __syncthreads();
    int positions = total.x, bins = total.y;
    int groups = (positions + kRows - 1) / kRows;
    share = (groups + kPlanners - 1) / kPlanners;
    first = min((int)threadIdx.x * share, groups), last = min(first + share, groups);
    int low = 0; // the bin that the first group begins in
    for (int high = bins - 1; low < high;) {
        int middle = (low + high + 1) / 2;
        if (used[middle].x <= first * kRows)
            low = middle;
        else
            high = middle - 1;
    }
    // Entries in the slab, and beyond it, of the longest rows of group `i`. The group begins in bin `bin`.
    auto size_of = [&](int i, int& bin) {
        int2 size = make_int2(0, 0);
        while (bin < bins && used[bin].x < (i + 1) * kRows) {
            size.x = max(size.x, longest_of(used[bin].y));
            size.y = max(size.y, used[bin].y / kLengths);
            ++bin;
        }
        if ((bin < bins ? used[bin].x : positions) > (i + 1) * kRows)
            --bin;
        return size;
    };
    sum = make_int2(0, 0);
    for (int i = first, bin = low; i < last; ++i) {
        int2 size = size_of(i, bin);
        sum.x += pairs_of(size.x), sum.y += size.y;
    }
    at = sum_before(sum, &total);
    for (int i = first, bin = low; i < last; ++i) {
        int2 size = size_of(i, bin);
        sorted.groups[i] = make_int4(at.x, size.x, at.y, size.y);
        at.x += pairs_of(size.x), at.y += size.y;
    }
    if (threadIdx.x == 0) {
        sorted.totals->positions = positions;
        sorted.totals->groups = groups;
        sorted.totals->pairs = total.x;
        sorted.totals->fars = total.y;
        sorted.totals->longs = sorted.lengths[kBins - 1];
    }
}

// Gives each row its place.
__global__ void __launch_bounds__(kSmall) place_kernel_optimized(int rows, Sorted sorted) {
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    if (row < rows) {
        int2 rank = sorted.ranks[row];
        if (rank.x == kBins - 1)
            sorted.longs[rank.y] = (int)row;
        else
            sorted.order[sorted.starts[start_of(rank.x)] + rank.y] = (int)row;
    }
    int position = sorted.totals->positions + (int)threadIdx.x;
    if (blockIdx.x == 0 && position < sorted.totals->groups * kRows) // members that the last group lacks
        sorted.order[position] = -1;
}

// Brings the entries of each group, a warp for a group and a lane for a row. What a row lacks of its group's length
// becomes products with the zeros of the slab's row 0.
__global__ void __launch_bounds__(kSmall)
    gather_kernel_optimized(int rows, const Element* __restrict__ values, const int* __restrict__ col_indices,
                            const int* __restrict__ row_offsets, Sorted sorted) {
    int lane = threadIdx.x % 32, groups = sorted.totals->groups, nnz = row_offsets[rows];
    for (int i = (int)(blockIdx.x * (kSmall / 32) + threadIdx.x / 32); i < groups;
         i += (int)(gridDim.x * (kSmall / 32))) {
        int4 group = sorted.groups[i];
        int row = sorted.order[(size_t)i * kRows + lane];
        int first = row >= 0 ? row_offsets[row] : 0, last = row >= 0 ? row_offsets[row + 1] : 0;
        size_t pair = (size_t)group.x * kRows + lane, far_slot = (size_t)group.z * kRows + lane;
        int count = 0, far = 0, held_row = 0;
        float held = 0.0f;
        auto put_pair = [&](int second_row, float second) {
            sorted.packed[pair] = held_row | (unsigned)second_row << 16;
            sorted.values[pair] = make_float2(held, second);
            pair += kRows;
            held_row = 0;
            held = 0.0f;
        };
        auto put_far = [&](int column, float value) {
            sorted.far_columns[far_slot] = (unsigned short)column;
            sorted.far_values[far_slot] = value;
            far_slot += kRows;
            ++far;
        };
        auto take = [&](int column, float value) {
            if (column >= kHeight) {
                put_far(column, value);
            } else if (count++ % 2 != 0) {
                put_pair(1 + column, value);
            } else {
                held_row = 1 + column;
                held = value;
            }
        };
        for_each_entry<true>(first, last, nnz, col_indices, values, take);
        for (int pairs = count / 2; pairs < pairs_of(group.y); ++pairs)
            put_pair(0, 0.0f);
        while (far < group.w)
            put_far(kNone, 0.0f);
    }
}

template <class T> __device__ T stream(const T* at) {
    return __ldg(at);
}

// 16 bytes of shared memory. An address of 32 bits costs one instruction of each row, a pointer three.
__device__ float4 shared_at(unsigned address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address));
    return v;
}

// Sums of four neighbouring columns.
struct Sums {
    float at[kColumns];
    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
            at[i] = 0.0f;
    }
    __device__ void add(float value, float4 x) {
        at[0] += value * x.x;
        at[1] += value * x.y;
        at[2] += value * x.z;
        at[3] += value * x.w;
    }
    __device__ void store(Element* y) const { __stcs((float4*)y, make_float4(at[0], at[1], at[2], at[3])); }
};

// Adds an entry to the sums of a lane's row. Sum j has part j ^ lane % 8 of the slab: so the eight lanes that shared
// memory serves at a time meet in no bank, whatever their rows. `address` is that of part lane % 8.
__device__ void add_near(Sums* sums, float value, unsigned address) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
        sums[j].add(value, shared_at(address ^ (j * 16)));
}

// From lanes that have a row each to lanes that have part lane % 8 of eight rows each, sum j that of row
// lane / 8 * 8 + j.
__device__ void turn(Sums* sums) {
#pragma unroll
    for (int j = 1; j < kChunk; ++j)
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
            sums[j].at[c] = __shfl_xor_sync(kFullMask, sums[j].at[c], j);
    // Now sum j is that of the row of the lane with whose number j differs.
#pragma unroll
    for (int bit = 1; bit < kChunk; bit *= 2) {
        bool swaps = (threadIdx.x & bit) != 0;
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
            if ((j & bit) == 0)
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    float here = sums[j].at[c], there = sums[j ^ bit].at[c];
                    sums[j].at[c] = swaps ? there : here;
                    sums[j ^ bit].at[c] = swaps ? here : there;
                }
    }
}

// The next pairs of entries of a row.
struct Batch {
    unsigned rows[kBatch];
    uint2 values[kBatch];
    __device__ void load(const Sorted& sorted, size_t slot) {
        const unsigned* row = sorted.packed + slot;
        const uint2* value = (const uint2*)sorted.values + slot;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            rows[i] = stream(row + i * kRows);
            values[i] = stream(value + i * kRows);
        }
    }
    // Adds entry `i`, which is known when this is compiled.
    __device__ void add(Sums* sums, int i, unsigned slab) const {
        if (i % 2 == 0)
            add_near(sums, __uint_as_float(values[i / 2].x), slab + (rows[i / 2] & 0xffff) * (kChunk * 16));
        else
            add_near(sums, __uint_as_float(values[i / 2].y), slab + (rows[i / 2] >> 16) * (kChunk * 16));
    }
    __device__ void add_all(Sums* sums, unsigned slab) const {
#pragma unroll
        for (int i = 0; i < 2 * kBatch; ++i)
            add(sums, i, slab);
    }
    // Adds the first `many` entries.
    __device__ void add_to(Sums* sums, int many, unsigned slab) const {
#pragma unroll
        for (int i = 0; i < 2 * kBatch; ++i)
            if (i < many)
                add(sums, i, slab);
    }
};

// One entry beyond the slab of each of eight rows.
struct Fars {
    float4 values[2];
    uint4 columns;
    __device__ void load(const Sorted& sorted, size_t slot) {
        values[0] = stream((const float4*)(sorted.far_values + slot));
        values[1] = stream((const float4*)(sorted.far_values + slot) + 1);
        columns = stream((const uint4*)(sorted.far_columns + slot));
    }
    __device__ float value(int j) const {
        float4 four = values[j / 4];
        return j % 4 == 0 ? four.x : j % 4 == 1 ? four.y : j % 4 == 2 ? four.z : four.w;
    }
    __device__ unsigned column(int j) const {
        unsigned two = j / 2 == 0 ? columns.x : j / 2 == 1 ? columns.y : j / 2 == 2 ? columns.z : columns.w;
        return j % 2 == 0 ? two & 0xffff : two >> 16;
    }
};

__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int K, int columns, int parts, int units, int shared_out, Sorted sorted,
                              const Element* __restrict__ entries, const int* __restrict__ col_indices,
                              const int* __restrict__ row_offsets, const Element* __restrict__ X,
                              Element* __restrict__ Y) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ float long_sums[kWidth];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, place = lane % kChunk;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows + place);
    int slabs = (K - 1) / kWidth + 1;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            next_unit = atomicAdd(&sorted.totals->next_unit, 1);
            next_run = 0;
        }
        __syncthreads();
        int unit = next_unit;
        if (unit >= units)
            break;
        int part = unit / slabs;
        long long first_column = (long long)(unit % slabs) * kWidth;
        int last_row = min(kHeight, columns);
        const Element* corner = X + first_column;
        for (int i = threadIdx.x; i < last_row * kChunk; i += kLarge) {
            int r = i / kChunk, c = i % kChunk;
            if (first_column + c * kColumns < K)
                __pipeline_memcpy_async(slab_rows + kChunk + i, corner + (size_t)r * K + c * kColumns, 16);
            else
                slab_rows[kChunk + i] = make_int4(0, 0, 0, 0);
        }
        if (threadIdx.x < kChunk)
            slab_rows[threadIdx.x] = make_int4(0, 0, 0, 0);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();

        // The groups, or long rows, of a part: each parts-th, or all but each shared_out-th, or these.
        auto index_of = [&](int i) {
            if (shared_out == 0)
                return i * parts + part;
            return part == 0 ? i + i / (shared_out - 1) : i * shared_out + shared_out - 1;
        };
        long long k = first_column + place * kColumns;
        bool inside = k < K;
        const Element* x = X + k;
        Element* y = Y + k;
        int groups = sorted.totals->groups, longs = sorted.totals->longs;
        // Long rows: the whole block shares one, eight lanes an entry.
        for (int n = 0, i; (i = index_of(n)) < longs; ++n) {
            int row = sorted.longs[i], last = row_offsets[row + 1];
            Sums sum;
            sum.clear();
            for (long long first = row_offsets[row] + (int)(threadIdx.x / kChunk); first < last;
                 first += kLongBatch * (kLarge / kChunk)) {
                int column[kLongBatch];
                float value[kLongBatch];
                float4 v[kLongBatch];
#pragma unroll
                for (int j = 0; j < kLongBatch; ++j) {
                    long long p = first + j * (kLarge / kChunk);
                    column[j] = p < last ? __ldg(col_indices + p) : -1; // the slab's row of zeros
                    value[j] = p < last ? __ldg(entries + p) : 0.0f;
                }
#pragma unroll
                for (int j = 0; j < kLongBatch; ++j) {
                    v[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    if (column[j] < last_row)
                        v[j] = shared_at(slab + (1 + column[j]) * (kChunk * 16));
                    else if (inside)
                        v[j] = __ldg((const float4*)(x + column[j] * (size_t)K));
                }
#pragma unroll
                for (int j = 0; j < kLongBatch; ++j)
                    sum.add(value[j], v[j]);
            }
            if (threadIdx.x < kWidth)
                long_sums[threadIdx.x] = 0.0f;
            __syncthreads();
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                for (int distance = kChunk; distance < 32; distance *= 2)
                    sum.at[c] += __shfl_xor_sync(kFullMask, sum.at[c], distance);
                if (lane < kChunk)
                    atomicAdd(&long_sums[place * kColumns + c], sum.at[c]);
            }
            __syncthreads();
            if (threadIdx.x < kChunk && inside) {
#pragma unroll
                for (int c = 0; c < kColumns; ++c)
                    sum.at[c] = long_sums[place * kColumns + c];
                sum.store(y + (size_t)row * K);
            }
            __syncthreads();
        }

        // Groups. Lanes hold the length and the rows of the next one.
        int next = 0, next_row = 0;
        int4 next_group = make_int4(0, 0, 0, 0);
        auto fetch = [&]() {
            if (lane == 0)
                next = atomicAdd(&next_run, 1);
            next = index_of(__shfl_sync(kFullMask, next, 0));
            if (next < groups) {
                next_group = __ldg(sorted.groups + next);
                next_row = __ldg(sorted.order + next * kRows + lane);
            }
        };
        fetch();
        Batch now;
        if (NEXT && next < groups)
            now.load(sorted, (size_t)next_group.x * kRows + lane);
        while (next < groups) {
            int4 group = next_group;
            int row = next_row, left = group.y;
            size_t slot = (size_t)group.x * kRows + lane;
            if (!NEXT)
                now.load(sorted, slot);
            fetch();
            Sums sum[kChunk];
#pragma unroll
            for (int j = 0; j < kChunk; ++j)
                sum[j].clear();
            Batch next_batch;
            while (left > 2 * kBatch) {
                next_batch.load(sorted, slot += kBatch * kRows);
                now.add_all(sum, slab);
                now = next_batch;
                left -= 2 * kBatch;
            }
            if (NEXT)
                next_batch.load(sorted, (size_t)next_group.x * kRows + lane);
            Fars far;
            size_t far_slot = (size_t)group.z * kRows + lane / kChunk * kChunk;
            if (group.w > 0)
                far.load(sorted, far_slot);
            now.add_to(sum, left, slab);
            if (NEXT)
                now = next_batch;
            turn(sum);
#ifndef NOFAR
            for (int i = 0; i < group.w; ++i) {
#pragma unroll
                for (int from = 0; from < kChunk; from += FARS) {
                    float4 v[FARS];
#pragma unroll
                    for (int j = 0; j < FARS; ++j) {
                        unsigned column = far.column(from + j);
                        v[j] = inside && column != kNone ? __ldg((const float4*)(x + column * (size_t)K))
                                                         : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    }
#pragma unroll
                    for (int j = 0; j < FARS; ++j)
                        sum[from + j].add(far.value(from + j), v[j]);
                }
                if (i + 1 < group.w)
                    far.load(sorted, far_slot += kRows);
            }
#endif
#pragma unroll
            for (int j = 0; j < kChunk; ++j) {
                int target = __shfl_sync(kFullMask, row, lane / kChunk * kChunk + j);
#ifdef NOSTORE
                if (sum[j].at[0] + sum[j].at[1] + sum[j].at[2] + sum[j].at[3] == 12345.678f)
#endif
                    if (inside && target >= 0)
                        sum[j].store(y + (size_t)target * K);
            }
        }
    }
}

// Multiplies by slabs where that is possible; returns whether it was.
static bool by_slabs(int rows, int K, const Element* values, const int* col_indices, const int* row_offsets,
                     const Element* X, Element* Y) {
    if (K % kColumns != 0 || (((size_t)values | (size_t)col_indices | (size_t)X | (size_t)Y) & 15) != 0)
        return false;
    int device = 0, processors = 0, shared = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (shared < kShared + (int)sizeof(float) * kWidth + 64)
        return false;

    int* ints = nullptr;
    cudaGetSymbolAddress((void**)&ints, arena);
    size_t used = 0;
    auto take = [&](size_t count) {
        int* at = ints + used;
        used += (count + 3) / 4 * 4;
        return at;
    };
    Sorted sorted;
    sorted.totals = (Totals*)take(sizeof(Totals) / sizeof(int));
    sorted.lengths = take(kBins);
    size_t cleared = used;
    sorted.starts = take(kBins);
    sorted.ranks = (int2*)take(2 * (size_t)rows);
    sorted.longs = take(rows);
    size_t most_groups = ((size_t)rows - 1) / kRows + 1;
    sorted.groups = (int4*)take(4 * most_groups);
    sorted.order = take(kRows * most_groups);
    if (used > kArena)
        return false;
    cudaMemsetAsync(ints, 0, cleared * sizeof(int), 0);
    int row_grid = (rows - 1) / kSmall + 1;
    survey_kernel_optimized<<<row_grid, kSmall>>>(rows, row_offsets, col_indices, sorted);
    plan_kernel_optimized<<<1, kPlanners>>>(sorted);
    place_kernel_optimized<<<row_grid, kSmall>>>(rows, sorted);
    Totals totals;
    if (cudaMemcpy(&totals, sorted.totals, sizeof(totals), cudaMemcpyDeviceToHost) != cudaSuccess)
        return false;
    if (totals.columns > 2 * kHeight)
        return false;

    size_t room = (size_t)totals.pairs * kRows, far_room = (size_t)totals.fars * kRows;
    if (room > kMostPlaces || far_room > kMostPlaces)
        return false;
    if ((size_t)totals.longs * kLongShare > (size_t)rows)
        return false;
    size_t needed = 3 * (room + kSlack) + far_room + far_room / 2 + 32;
    int* more = nullptr;
    if (used + needed > kArena) {
        if (cudaMallocAsync((void**)&more, needed * sizeof(int), 0) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        ints = more;
        used = 0;
    }
    sorted.packed = (unsigned*)take(room + kSlack);
    sorted.values = (float2*)take(2 * (room + kSlack));
    sorted.far_columns = (unsigned short*)take(far_room / 2 + 1);
    sorted.far_values = (float*)take(far_room);
    gather_kernel_optimized<<<(totals.groups - 1) / (kSmall / 32) + 1, kSmall>>>(rows, values, col_indices,
                                                                                 row_offsets, sorted);
    int slabs = (K - 1) / kWidth + 1;
    // Parts of the rows, so that all processors have about as much to do: cycles of a part, times rounds. A slab costs
    // about 20000 cycles. The pipe of shared memory takes one for each entry in the slab and 1.4 for others, and some more
    // for each group.
    double all = 2.1 * room + 1.6 * totals.long_entries + 1.5 * far_room + 100.0 * totals.groups;
    int parts = 1;
    double best = 1e300;
    for (int p = 1; p <= 40; ++p) {
        double rounds = ((size_t)slabs * p + processors - 1) / processors;
        double cycles = rounds * (20000.0 + all / p);
        if (cycles < best) {
            best = cycles;
            parts = p;
        }
    }
    int units = parts * slabs, shared_out = 0;
    if (SPLIT && slabs < processors) {
        // A processor for each slab, and what the others can do in that time: each `shared_out`-th group.
        double each = (slabs - 1) / (processors - slabs) + 1,
               share = (all - each * 20000.0) / (all * (1.0 + each));
        if (share > 1e-4 && 20000.0 + all * (1.0 - share) < best) {
            shared_out = (int)(1.0 / share + 0.5);
            parts = 1;
            units = 2 * slabs;
        }
    }
    int grid = units < processors ? units : processors;
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
#ifndef NOMULT
    multiply_kernel_optimized<<<grid, kLarge, kShared>>>(K, totals.columns, parts, units, shared_out, sorted,
                                                         values, col_indices, row_offsets, X, Y);
#endif
    if (more != nullptr)
        cudaFreeAsync(more, 0);
    return true;
}

// Step 1, for matrices that are too small or too wide.
constexpr int kThreads = 256;
constexpr int kLanes = 8;                        // lanes that share a row
constexpr int kLaneWidth = 4;                    // columns that a lane makes
constexpr int kNarrowSlab = kLanes * kLaneWidth; // columns that a block makes
constexpr int kBlockRows = kThreads / kLanes;    // rows that a block makes
constexpr int kStaged = 768;                     // entries in shared memory, of about 655 that 32 rows have

// Four columns of a row of X or Y from `at` on, of which `left` exist.
template <bool kVectors> __device__ float4 load_columns(const float* at, long long left) {
    if constexpr (kVectors)
        return *(const float4*)at;
    else
        return make_float4(at[0], left > 1 ? at[1] : 0.0f, left > 2 ? at[2] : 0.0f, left > 3 ? at[3] : 0.0f);
}

template <bool kVectors> __device__ void store_columns(float* at, long long left, float4 v) {
    if constexpr (kVectors) {
        __stcs((float4*)at, v);
    } else {
        at[0] = v.x;
        if (left > 1)
            at[1] = v.y;
        if (left > 2)
            at[2] = v.z;
        if (left > 3)
            at[3] = v.w;
    }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    spmm_csr_kernel_optimized(int rows, int K, const float* __restrict__ values,
                              const int* __restrict__ col_indices, const int* __restrict__ row_offsets,
                              const float* __restrict__ X, float* __restrict__ Y) {
    __shared__ int2 staged[kStaged]; // column, and the bits of the value
    long long first_row = (long long)blockIdx.x * kBlockRows;
    long long last_row = first_row + kBlockRows < rows ? first_row + kBlockRows : rows;
    long long block_begin = row_offsets[first_row], block_end = row_offsets[last_row];
    long long row = first_row + threadIdx.x / kLanes;
    long long begin = row < rows ? row_offsets[row] : block_end;
    long long end = row < rows ? row_offsets[row + 1] : block_end;
    long long slab_stride = (long long)gridDim.y * kNarrowSlab;
    for (long long slab = (long long)blockIdx.y * kNarrowSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kLaneWidth;
        bool inside = row < rows && k < K;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = block_begin; chunk < block_end; chunk += kStaged) {
            __syncthreads();
            for (int i = threadIdx.x; i < kStaged && chunk + i < block_end; i += kThreads)
                staged[i] = make_int2(col_indices[chunk + i], __float_as_int(values[chunk + i]));
            __syncthreads();
            int from = (int)((begin > chunk ? begin : chunk) - chunk);
            int to = inside ? (int)((end < chunk + kStaged ? end : chunk + kStaged) - chunk) : 0;
#pragma unroll 4
            for (int i = from; i < to; ++i) {
                int2 entry = staged[i];
                float value = __int_as_float(entry.y);
                float4 x = load_columns<kVectors>(X + entry.x * (size_t)K + k, K - k);
                sum.x += value * x.x;
                sum.y += value * x.y;
                sum.z += value * x.z;
                sum.w += value * x.w;
            }
        }
        if (inside)
            store_columns<kVectors>(Y + row * (size_t)K + k, K - k, sum);
    }
}

extern "C" void spmm_csr_optimized(int rows, int K, const float* values, const int* col_indices,
                                   const int* row_offsets, const float* X, float* Y) {
    if (rows >= kManyRows && K >= kManyColumns && by_slabs(rows, K, values, col_indices, row_offsets, X, Y))
        return;
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_csr_kernel_optimized<true><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
    else
        spmm_csr_kernel_optimized<false><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
}
