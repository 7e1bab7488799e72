// idea: Keep a slab of X in shared memory and stream the sorted matrix past it
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
//      3616 columns, and GPUs with less shared memory than an H100 take step 1's kernels. At 65536 rows and K =
//      4096 an H200 takes 1.27 ms where step 1 takes 1.97. What binds it now: the pipe of shared memory and L1,
//      busy in 91 % of the cycles; a fifth of that is due to the entries beyond the slab. Tried, and no faster:
//      eight lanes for a row of a slab of all 2048 rows, which has seven such parts, so one lane idles; entries
//      kept out of L1; more threads, which spill.
// flags: -O3 --use_fast_math
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

using Element = float;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 16 / sizeof(Element); // columns in 16 bytes
constexpr int kChunk = 8;                      // times 16 bytes are a row of the slab: all banks once
constexpr int kWidth = kChunk * kColumns;      // columns of a slab
constexpr int kHeight = 1808;                  // rows of X in a slab at most
constexpr int kShared = (kHeight + 1) * kChunk * 16;
constexpr int kQuad = 4;          // lanes that share a row of A, each for twice 16 bytes of a slab
constexpr int kRows = 32 / kQuad; // rows of A in a group, all of one length
constexpr int kLongest = 128;     // pairs of entries in a row of a group at most
constexpr int kFarthest = 15;     // entries beyond the slab in a row of a group at most
constexpr int kFars = kFarthest + 1;
// One for each two lengths and each number of entries beyond the slab, and the last for longer rows.
constexpr int kBins = (kLongest + 1) * kFars + 1;
constexpr int kSmall = 256;          // threads of a block that prepares
constexpr int kLarge = 640;          // threads of a block that multiplies
constexpr int kRun = 4;              // groups that a warp takes at a time
constexpr int kBatch = 3;            // pairs of entries that a lane asks for at a time
constexpr int kManyEntries = 150000; // from which sorting them first is worthwhile
constexpr int kManyColumns = 512;    // of X
constexpr size_t kArena = 16 << 20;  // ints

__device__ int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    int highest;    // column of any entry
    int long_pairs; // pairs of entries of long rows
    int long_fars;  // and their entries beyond the slab
    int used_pairs, used_fars;
    int groups, pairs, longs, fars;
    int next_unit;
};

// Where the matrix is sorted. A key is a row of A within a chunk of columns: chunk * rows + row.
struct Sorted {
    Totals* totals;
    int* lengths;           // of chunks and bins: keys
    int* taken;             // of chunks and bins: keys that have their place
    int* counts;            // of keys: entries in the slab
    int* far_counts;        // and beyond it
    int4* starts;           // of chunks and bins, longest first: first group, pair, long row, far entry
    int* slots;             // of keys: place of the first pair, for long rows ~place
    int* far_slots;         // of keys: place of the first far entry
    int4* longs;            // two of each: row, first pair, pairs, first far entry; far entries
    int4* groups;           // first pair, pairs, first far entry, far entries
    int* order;             // rows of groups, -1 for none
    int2* fars;             // entries beyond the slab: column, bits of the value in fp32
    unsigned short* packed; // entries: row of the slab
    float* values;
};

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

__device__ int bin_of(int count, int far) {
    int pairs = pairs_of(count);
    return pairs <= kLongest && far <= kFarthest ? pairs * kFars + far : kBins - 1;
}

// A block shares a long row, which costs barriers: where more than one in kLongShare is long, step 1 takes the matrix.
// That share is a guess; no such matrix was timed.
constexpr int kLongShare = 16;
constexpr size_t kMostPlaces = 0x7fffffff; // of pairs, or of far entries: a place is an int
constexpr int kSlack = 2 * kBatch * kRows; // pairs behind the last that are read, not used

// Writes an entry of row `row` of the slab; row 0 are zeros.
__device__ void put(const Sorted& sorted, size_t place, int row, Element value) {
    sorted.packed[place] = (unsigned short)row;
    sorted.values[place] = value;
}

// Where starts has a bin: the bins of a chunk from the longest rows down.
__device__ int start_of(int chunk, int bin) {
    return chunk * kBins + kBins - 1 - bin;
}

constexpr int kAtOnce = 4;              // entries that a thread looks at together
constexpr int kTile = kAtOnce * kSmall; // entries that a block looks at together

// Calls visit(entry, row, column) for each entry.
template <class Visit>
__device__ void for_each_entry(long long nnz, const int* __restrict__ row_indices,
                               const int* __restrict__ col_indices, Visit visit) {
    for (long long tile = blockIdx.x * (long long)kTile; tile < nnz; tile += gridDim.x * (long long)kTile) {
        int row[kAtOnce], column[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            long long p = tile + i * kSmall + threadIdx.x;
            row[i] = p < nnz ? row_indices[p] : 0;
            column[i] = p < nnz ? col_indices[p] : 0;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            long long p = tile + i * kSmall + threadIdx.x;
            if (p < nnz)
                visit(p, row[i], column[i]);
        }
    }
}

// Counts the entries of each key, and finds the last column that has any.
__global__ void __launch_bounds__(kSmall)
    count_kernel_optimized(int rows, int nnz, const int* __restrict__ row_indices,
                           const int* __restrict__ col_indices, Sorted sorted) {
    __shared__ int highest;
    if (threadIdx.x == 0)
        highest = -1;
    __syncthreads();
    int mine = -1;
    auto count = [&](long long, int row, int column) {
        mine = max(mine, column);
        atomicAdd(column < kHeight ? &sorted.counts[row] : &sorted.far_counts[row], 1);
    };
    for_each_entry(nnz, row_indices, col_indices, count);
    mine = __reduce_max_sync(kFullMask, mine);
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(&sorted.totals->highest, highest);
}

__device__ int far_count_of([[maybe_unused]] const Sorted& sorted, [[maybe_unused]] long long row) {
    return sorted.far_counts[row];
}

// How many keys each bin has. A block has keys of one chunk, blockIdx.y.
__global__ void __launch_bounds__(kSmall) survey_kernel_optimized(int rows, Sorted sorted) {
    __shared__ int lengths[kBins];
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        lengths[bin] = 0;
    __syncthreads();
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    if (row < rows) {
        int far = far_count_of(sorted, row);
        int count = sorted.counts[(size_t)blockIdx.y * rows + row];
        int bin = bin_of(count, far);
        atomicAdd(&lengths[bin], 1);
        if (bin == kBins - 1) {
            atomicAdd(&sorted.totals->long_pairs, pairs_of(count));
            atomicAdd(&sorted.totals->long_fars, far);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        if (lengths[bin] > 0)
            atomicAdd(&sorted.lengths[blockIdx.y * kBins + bin], lengths[bin]);
}

// Where each bin starts: sums over all bins before it, by one block.
constexpr int kPlanners = 1024;
__global__ void __launch_bounds__(kPlanners) plan_kernel_optimized(int chunks, Sorted sorted) {
    __shared__ int4 warp_sums[kPlanners / 32];
    int bins = chunks * kBins, share = (bins + kPlanners - 1) / kPlanners;
    int first = min(threadIdx.x * share, bins), last = min(first + share, bins);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto add_size_of = [&](int4& sum, int i) {
        int bin = kBins - 1 - i % kBins, keys = sorted.lengths[i / kBins * kBins + bin];
        if (bin == kBins - 1) {
            sum.z += keys;
        } else {
            int groups = (keys + kRows - 1) / kRows;
            sum.x += groups;
            sum.y += groups * (bin / kFars);
            sum.w += groups * (bin % kFars);
        }
    };
    int4 sum = make_int4(0, 0, 0, 0);
    for (int i = first; i < last; ++i)
        add_size_of(sum, i);
    int4 end = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
        int x = __shfl_up_sync(kFullMask, end.x, distance), y = __shfl_up_sync(kFullMask, end.y, distance),
            z = __shfl_up_sync(kFullMask, end.z, distance), w = __shfl_up_sync(kFullMask, end.w, distance);
        if (lane >= distance)
            end.x += x, end.y += y, end.z += z, end.w += w;
    }
    if (lane == 31)
        warp_sums[warp] = end;
    __syncthreads();
    int4 at = make_int4(end.x - sum.x, end.y - sum.y, end.z - sum.z, end.w - sum.w);
    for (int i = 0; i < warp; ++i)
        at.x += warp_sums[i].x, at.y += warp_sums[i].y, at.z += warp_sums[i].z, at.w += warp_sums[i].w;
    for (int i = first; i < last; ++i) {
        sorted.starts[i] = at;
        add_size_of(at, i);
    }
    if (first < bins && last == bins) {
        sorted.starts[bins] = at;
        sorted.totals->groups = at.x;
        sorted.totals->pairs = at.y;
        sorted.totals->longs = at.z;
        sorted.totals->fars = at.w;
    }
}

// Gives each key its place, and fills places that no entry will take with products of zeros.
__global__ void __launch_bounds__(kSmall) place_kernel_optimized(int rows, Sorted sorted) {
    __shared__ int members[kBins], bases[kBins];
    int chunk = blockIdx.y;
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        members[bin] = 0;
    __syncthreads();
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    size_t key = (size_t)chunk * rows + row;
    int count = row < rows ? sorted.counts[key] : 0, far = row < rows ? far_count_of(sorted, row) : 0;
    int bin = bin_of(count, far), rank = row < rows ? atomicAdd(&members[bin], 1) : 0;
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += kSmall)
        bases[i] = members[i] > 0 ? atomicAdd(&sorted.taken[chunk * kBins + i], members[i]) : 0;
    __syncthreads();
    if (row < rows) {
        int4 start = sorted.starts[start_of(chunk, bin)];
        int position = bases[bin] + rank;
        int slot, far_slot;
        if (bin == kBins - 1) {
            int pairs = pairs_of(count);
            slot = sorted.totals->pairs * kRows + atomicAdd(&sorted.totals->used_pairs, pairs);
            far_slot = sorted.totals->fars * kRows + atomicAdd(&sorted.totals->used_fars, far);
            sorted.longs[2 * (start.z + position)] = make_int4((int)row, slot, pairs, far_slot);
            sorted.longs[2 * (start.z + position) + 1] = make_int4(far, 0, 0, 0);
            if (count % 2 != 0)
                put(sorted, 2 * ((size_t)slot + count / 2) + 1, 0, Element(0.0f));
            slot = ~slot;
        } else {
            int group = start.x + position / kRows, member = position % kRows;
            int pair = start.y + position / kRows * (bin / kFars), step = start.w + position / kRows * far;
            slot = pair * kRows + member;
            far_slot = step * kRows + member;
            sorted.order[group * kRows + member] = (int)row;
            if (member == 0)
                sorted.groups[group] = make_int4(pair, bin / kFars, step, far);
            if (count % 2 != 0)
                put(sorted, 2 * ((size_t)slot + count / 2 * kRows) + 1, 0, Element(0.0f));
        }
        sorted.slots[key] = slot;
        sorted.far_slots[row] = far_slot;
    }
    if (blockIdx.x == 0 && chunk == 0) // what a lane asks for behind the last group
        for (int i = threadIdx.x; i < 2 * kSlack; i += kSmall)
            put(sorted, 2 * ((size_t)sorted.totals->pairs * kRows + sorted.totals->long_pairs) + i, 0,
                Element(0.0f));
    for (int i = blockIdx.x; i < kBins - 1; i += gridDim.x) {
        int keys = sorted.lengths[chunk * kBins + i];
        if (keys % kRows == 0)
            continue;
        int4 start = sorted.starts[start_of(chunk, i)];
        int pairs = i / kFars, steps = i % kFars, group = keys / kRows, first = keys % kRows;
        size_t pair = start.y + group * pairs, step = start.w + group * steps;
        for (int k = threadIdx.x; k < 2 * pairs * kRows; k += kSmall)
            if (k / 2 % kRows >= first)
                put(sorted, 2 * pair * kRows + k, 0, Element(0.0f));
        for (int k = threadIdx.x; k < steps * kRows; k += kSmall)
            if (k % kRows >= first)
                sorted.fars[step * kRows + k] = make_int2(-1, 0);
        if (threadIdx.x >= first && threadIdx.x < kRows)
            sorted.order[(start.x + group) * kRows + threadIdx.x] = -1;
    }
}

// Takes each entry to its place.
__global__ void __launch_bounds__(kSmall)
    scatter_kernel_optimized(int rows, int nnz, const Element* __restrict__ values,
                             const int* __restrict__ row_indices, const int* __restrict__ col_indices,
                             Sorted sorted) {
    auto scatter = [&](long long p, int row, int column) {
        if (column >= kHeight) {
            int number = atomicSub(&sorted.far_counts[row], 1) - 1;
            size_t step = __ldg(&sorted.slots[row]) < 0 ? number : number * kRows;
            sorted.fars[__ldg(&sorted.far_slots[row]) + step] =
                make_int2(column, __float_as_int((float)values[p]));
            return;
        }
        size_t key = row;
        int row_of_slab = 1 + column;
        int number = atomicSub(&sorted.counts[key], 1) - 1;
        int slot = __ldg(&sorted.slots[key]);
        size_t pair = slot < 0 ? ~slot + number / 2 : slot + number / 2 * kRows;
        put(sorted, 2 * pair + number % 2, row_of_slab, values[p]);
    };
    for_each_entry(nnz, row_indices, col_indices, scatter);
}

// Sums of the columns that a lane makes.
struct Sums {
    float at[kColumns];
    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
            at[i] = 0.0f;
    }
    // Adds `value` times a lane's columns of a row of X.
    __device__ void add(float value, uint4 x) {
        unsigned words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            at[i] += value * __uint_as_float(words[i]);
        }
    }
    __device__ void store(Element* y) const { __stcs((float4*)y, make_float4(at[0], at[1], at[2], at[3])); }
};

template <class T> __device__ T stream(const T* at) {
    return __ldg(at);
}

// A lane's columns of a slab: 16 bytes of one half of it, and 16 of the other. Lanes of neighbouring rows begin with
// different halves, so that eight lanes, which shared memory serves at a time, meet in no bank.
struct Lane {
    unsigned first, second; // in row 0 of the slab: addresses in shared memory
    __device__ void add(Sums* sums, float value, unsigned row) const {
        sums[0].add(value, at(first + row * (kChunk * 16)));
        sums[1].add(value, at(second + row * (kChunk * 16)));
    }
    // An address of 32 bits costs one instruction of each row, a pointer three.
    static __device__ uint4 at(unsigned address) {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(address));
        return v;
    }
};

// Two entries beyond the slab.
struct Far {
    float values[2];
    uint4 x[2][2]; // of the two entries, in the halves of the slab
    __device__ void add_to(Sums* sums) const {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                sums[half].add(values[j], x[j][half]);
    }
};

// The next pairs of entries of a row.
struct Batch {
    unsigned rows[kBatch];
    uint2 values[kBatch];
    __device__ void load(const Sorted& sorted, size_t slot) {
        const unsigned* row = (const unsigned*)sorted.packed + slot;
        const uint2* value = (const uint2*)sorted.values + slot;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            rows[i] = stream(row + i * kRows);
            values[i] = stream(value + i * kRows);
        }
    }
    __device__ void add_pair(Sums* sums, int i, const Lane& lane) const {
        lane.add(sums, __uint_as_float(values[i].x), rows[i] & 0xffff);
        lane.add(sums, __uint_as_float(values[i].y), rows[i] >> 16);
    }
    __device__ void add_all(Sums* sums, const Lane& lane) const {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            add_pair(sums, i, lane);
    }
    // Adds the first `many` pairs.
    __device__ void add_to(Sums* sums, int many, const Lane& lane) const {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (i < many)
                add_pair(sums, i, lane);
    }
};

__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int K, int columns, int parts, int units, Sorted sorted,
                              const Element* __restrict__ X, Element* __restrict__ Y) {
    extern __shared__ int4 slab_rows[];
    __shared__ float long_sums[kWidth];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, member = lane / kQuad;
    int places[2] = {lane % kQuad + member % 2 * kQuad, lane % kQuad + (member + 1) % 2 * kQuad};
    Lane mine = {(unsigned)__cvta_generic_to_shared(slab_rows + places[0]),
                 (unsigned)__cvta_generic_to_shared(slab_rows + places[1])};
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

        long long k[2] = {first_column + places[0] * kColumns, first_column + places[1] * kColumns};
        bool inside[2] = {k[0] < K, k[1] < K};
        auto finish = [&](int row, const Sums* sum) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (inside[half] && row >= 0)
                    sum[half].store(Y + (size_t)row * K + k[half]);
        };
        // Adds an entry whose row of X is not in the slab.
        [[maybe_unused]] auto add_far = [&](Sums* sum, int2 entry) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (entry.x >= 0 && inside[half])
                    sum[half].add(__int_as_float(entry.y),
                                  __ldg((const uint4*)(X + (size_t)entry.x * K + k[half])));
        };

        // Asks for what two of the entries that the lanes of a row hold, `i` and the next, are multiplied by.
        auto ask_far = [&](Far& pair, int2 asked, int i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                int column = __shfl_sync(kFullMask, asked.x, i + j, kQuad);
                pair.values[j] = __int_as_float(__shfl_sync(kFullMask, asked.y, i + j, kQuad));
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    pair.x[j][half] = column >= 0 && inside[half]
                                          ? __ldg((const uint4*)(X + (size_t)column * K + k[half]))
                                          : make_uint4(0, 0, 0, 0);
            }
        };

        int4 start = sorted.starts[0], stop = sorted.starts[kBins];
        // Long rows: the whole block shares one.
        for (int i = start.z + part; i < stop.z; i += parts) {
            int4 row = sorted.longs[2 * i];
            Sums sum[2];
            sum[0].clear();
            sum[1].clear();
            for (int pair = threadIdx.x / kQuad; pair < row.z; pair += kLarge / kQuad) {
                unsigned rows = stream((const unsigned*)sorted.packed + row.y + pair);
                uint2 values = stream((const uint2*)sorted.values + row.y + pair);
                mine.add(sum, __uint_as_float(values.x), rows & 0xffff);
                mine.add(sum, __uint_as_float(values.y), rows >> 16);
            }
            int fars = sorted.longs[2 * i + 1].x;
            for (int far = threadIdx.x / kQuad; far < fars; far += kLarge / kQuad)
                add_far(sum, sorted.fars[row.w + far]);
            if (threadIdx.x < kWidth)
                long_sums[threadIdx.x] = 0.0f;
            __syncthreads();
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    // Every second row has the same half.
                    for (int distance = 2 * kQuad; distance < 32; distance *= 2)
                        sum[half].at[c] += __shfl_xor_sync(kFullMask, sum[half].at[c], distance);
                    if (lane < 2 * kQuad)
                        atomicAdd(&long_sums[places[half] * kColumns + c], sum[half].at[c]);
                }
            __syncthreads();
            if (threadIdx.x < kQuad) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int c = 0; c < kColumns; ++c)
                        sum[half].at[c] = long_sums[places[half] * kColumns + c];
                finish(row.x, sum);
            }
            __syncthreads();
        }

        // Runs of groups, which lie one behind the other. Lanes hold the lengths and rows of a run, one run ahead.
        int runs = (stop.x - start.x + kRun - 1) / kRun;
        int next = 0, next_rows = 0;
        int4 next_groups = make_int4(0, 0, 0, 0);
        auto fetch = [&]() {
            if (lane == 0)
                next = atomicAdd(&next_run, 1) * parts + part;
            next = __shfl_sync(kFullMask, next, 0);
            if (next < runs) {
                int group = start.x + next * kRun;
                next_groups = sorted.groups[min(group + lane % kRun, stop.x - 1)];
                next_rows = sorted.order[min(group * kRows + lane % (kRun * kRows), stop.x * kRows - 1)];
            }
        };
        fetch();
        while (next < runs) {
            int many = min(kRun, stop.x - start.x - next * kRun), rows = next_rows;
            int4 groups = next_groups;
            size_t slot = (size_t)__shfl_sync(kFullMask, groups.x, 0) * kRows + member;
            Batch now;
            now.load(sorted, slot);
            // The first entries beyond the slab, one in each lane of a row, are asked for with those in it.
            const int2* far = sorted.fars + (size_t)__shfl_sync(kFullMask, groups.z, 0) * kRows + member;
            fetch();
            for (int done = 0; done < many; ++done) {
                int left = __shfl_sync(kFullMask, groups.y, done),
                    row = __shfl_sync(kFullMask, rows, done * kRows + member);
                int fars = __shfl_sync(kFullMask, groups.w, done);
                int2 asked = lane % kQuad < fars ? __ldg(far + lane % kQuad * kRows) : make_int2(-1, 0);
                Sums sum[2];
                sum[0].clear();
                sum[1].clear();
                Batch next_batch;
                while (left > kBatch) {
                    next_batch.load(sorted, slot += kBatch * kRows);
                    now.add_all(sum, mine);
                    now = next_batch;
                    left -= kBatch;
                }
                next_batch.load(sorted, slot += left * kRows);
                Far pair;
                ask_far(pair, asked, 0);
                now.add_to(sum, left, mine);
                now = next_batch;
                pair.add_to(sum);
                for (int i = 2; i < min(fars, kQuad); i += 2) {
                    ask_far(pair, asked, i);
                    pair.add_to(sum);
                }
#pragma unroll 1
                for (int i = kQuad; i < fars; ++i)
                    add_far(sum, __ldg(far + i * kRows));
                far += fars * kRows;
                finish(row, sum);
            }
        }
    }
}

// Multiplies by slabs where that is possible; returns whether it was.
static bool by_slabs(int rows, int nnz, int K, const Element* values, const int* row_indices,
                     const int* col_indices, const Element* X, Element* Y) {
    constexpr int chunks_at_most = 1;
    if (K % kColumns != 0 || (((size_t)X | (size_t)Y) & 15) != 0)
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
    size_t keys = (size_t)rows * chunks_at_most;
    Sorted sorted;
    sorted.totals = (Totals*)take(sizeof(Totals) / sizeof(int));
    sorted.lengths = take((size_t)chunks_at_most * kBins);
    sorted.taken = take((size_t)chunks_at_most * kBins);
    sorted.counts = take(keys);
    sorted.far_counts = take(rows);
    size_t cleared = used;
    sorted.starts = (int4*)take(((size_t)chunks_at_most * kBins + 1) * 4);
    sorted.slots = take(keys);
    sorted.far_slots = take(rows);
    if (used > kArena)
        return false;
    cudaMemsetAsync(ints, 0, cleared * sizeof(int), 0);
    int small_grid = processors * 8;
    dim3 key_grid((rows - 1) / kSmall + 1, chunks_at_most);
    count_kernel_optimized<<<small_grid, kSmall>>>(rows, nnz, row_indices, col_indices, sorted);
    survey_kernel_optimized<<<key_grid, kSmall>>>(rows, sorted);
    plan_kernel_optimized<<<1, kPlanners>>>(chunks_at_most, sorted);
    Totals totals;
    if (cudaMemcpy(&totals, sorted.totals, sizeof(totals), cudaMemcpyDeviceToHost) != cudaSuccess)
        return false;
    int columns_used = totals.highest + 1;
    if (columns_used > 2 * kHeight)
        return false;

    size_t room = (size_t)totals.pairs * kRows + totals.long_pairs;
    size_t far_room = (size_t)totals.fars * kRows + totals.long_fars;
    if (room > kMostPlaces || far_room > kMostPlaces)
        return false;
    if ((size_t)totals.longs * kLongShare > (size_t)rows)
        return false;
    size_t needed = 4 * (room + kSlack) + 2 * far_room + (4 + kRows) * (size_t)totals.groups +
                    8 * (size_t)totals.longs + 32;
    int* more = nullptr;
    if (used + needed > kArena) {
        if (cudaMallocAsync((void**)&more, needed * sizeof(int), 0) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        ints = more;
        used = 0;
    }
    sorted.longs = (int4*)take(8 * (size_t)totals.longs);
    sorted.groups = (int4*)take(4 * (size_t)totals.groups);
    sorted.order = take(kRows * (size_t)totals.groups);
    sorted.fars = (int2*)take(2 * far_room);
    sorted.packed = (unsigned short*)take(room + kSlack);
    sorted.values = (float*)take(2 * (room + kSlack));
    place_kernel_optimized<<<key_grid, kSmall>>>(rows, sorted);
    scatter_kernel_optimized<<<small_grid, kSmall>>>(rows, nnz, values, row_indices, col_indices, sorted);
    int slabs = (K - 1) / kWidth + 1;
    // Parts of the rows, so that all processors have about as much to do: cycles of a part, times rounds. A slab costs
    // 20000 cycles, eight pairs of entries as many as shared memory needs for twice ten reads of 128 bytes.
    int parts = 1;
    double best = 1e300;
    for (int p = 1; p <= 40; ++p) {
        double rounds = ((size_t)slabs * p + processors - 1) / processors;
        double cycles = rounds * (20000.0 + 2.5 * room / p);
        if (cycles < best) {
            best = cycles;
            parts = p;
        }
    }
    int units = parts * slabs;
    int grid = units < processors ? units : processors;
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    multiply_kernel_optimized<<<grid, kLarge, kShared>>>(K, columns_used, parts, units, sorted, X, Y);
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
constexpr int kStaged = 768;              // entries in shared memory, of about 655 that 32 rows of 20 have
constexpr size_t kFixedScratch = 1 << 21; // in pairs of ints

__device__ int2 fixed_scratch[kFixedScratch];

// Where the entries are sorted: those of a row are sorted[starts[row]] and the counts[row] - 1 behind it.
struct Scratch {
    int2* sorted; // column, and the bits of the value in fp32
    int* numbers; // of each entry within its row
    int* starts;
    int* counts; // of entries per row, and behind the last one how many places are taken
};

// Draws each entry's number within its row.
__global__ void number_entries_kernel_optimized(int nnz, const int* row_indices, int* numbers, int* counts) {
    size_t p = blockIdx.x * (size_t)kThreads + threadIdx.x;
    if (p < nnz)
        numbers[p] = atomicAdd(&counts[row_indices[p]], 1);
}

// Places for the rows of a block, one behind the other; the blocks get theirs in any order.
__global__ void place_rows_kernel_optimized(int rows, const int* counts, int* starts, int* taken) {
    __shared__ int warp_ends[kThreads / 32];
    __shared__ int block_start;
    long long row = blockIdx.x * (long long)kThreads + threadIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int count = row < rows ? counts[row] : 0;
    int end = count;
    for (int distance = 1; distance < 32; distance *= 2) {
        int before = __shfl_up_sync(kFullMask, end, distance);
        if (lane >= distance)
            end += before;
    }
    if (lane == 31)
        warp_ends[warp] = end;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int i = 0; i < kThreads / 32; ++i) {
            int length = warp_ends[i];
            warp_ends[i] = total;
            total += length;
        }
        block_start = atomicAdd(taken, total);
    }
    __syncthreads();
    if (row < rows)
        starts[row] = block_start + warp_ends[warp] + end - count;
}

__global__ void sort_entries_kernel_optimized(int nnz, const float* values, const int* row_indices,
                                              const int* col_indices, Scratch scratch) {
    size_t p = blockIdx.x * (size_t)kThreads + threadIdx.x;
    if (p < nnz)
        scratch.sorted[scratch.starts[row_indices[p]] + scratch.numbers[p]] =
            make_int2(col_indices[p], __float_as_int(values[p]));
}

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
    sum_rows_kernel_optimized(int rows, int K, const int2* __restrict__ sorted,
                              const int* __restrict__ starts, const int* __restrict__ counts,
                              const float* __restrict__ X, float* __restrict__ Y) {
    __shared__ int2 staged[kStaged];
    long long first_row = (long long)blockIdx.x * kBlockRows;
    long long last_row = first_row + kBlockRows < rows ? first_row + kBlockRows - 1 : rows - 1;
    // The rows of a block lie one behind the other: kThreads, of which that is true, is a multiple of kBlockRows.
    long long block_begin = starts[first_row], block_end = starts[last_row] + (long long)counts[last_row];
    long long row = first_row + threadIdx.x / kLanes;
    long long begin = row < rows ? starts[row] : block_end;
    long long end = row < rows ? begin + counts[row] : block_end;
    long long slab_stride = (long long)gridDim.y * kNarrowSlab;
    for (long long slab = (long long)blockIdx.y * kNarrowSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kLaneWidth;
        bool inside = row < rows && k < K;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = block_begin; chunk < block_end; chunk += kStaged) {
            __syncthreads();
            for (int i = threadIdx.x; i < kStaged && chunk + i < block_end; i += kThreads)
                staged[i] = sorted[chunk + i];
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

extern "C" void spmm_coo_optimized(int rows, int nnz, int K, const float* values, const int* row_indices,
                                   const int* col_indices, const float* X, float* Y) {
    if (nnz >= kManyEntries && K >= kManyColumns &&
        by_slabs(rows, nnz, K, values, row_indices, col_indices, X, Y))
        return;
    size_t needed = nnz + ((size_t)nnz + 2 * (size_t)rows) / 2 + 1; // pairs of ints
    int2* memory = nullptr;
    if (needed > kFixedScratch)
        cudaMallocAsync(&memory, sizeof(int2) * needed, 0);
    else
        cudaGetSymbolAddress((void**)&memory, fixed_scratch);
    int* ints = (int*)(memory + nnz);
    Scratch scratch = {memory, ints, ints + nnz, ints + nnz + rows};

    cudaMemsetAsync(scratch.counts, 0, sizeof(int) * ((size_t)rows + 1), 0);
    if (nnz > 0)
        number_entries_kernel_optimized<<<(nnz - 1) / kThreads + 1, kThreads>>>(
            nnz, row_indices, scratch.numbers, scratch.counts);
    place_rows_kernel_optimized<<<(rows - 1) / kThreads + 1, kThreads>>>(rows, scratch.counts, scratch.starts,
                                                                         scratch.counts + rows);
    if (nnz > 0)
        sort_entries_kernel_optimized<<<(nnz - 1) / kThreads + 1, kThreads>>>(nnz, values, row_indices,
                                                                              col_indices, scratch);
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        sum_rows_kernel_optimized<true>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    else
        sum_rows_kernel_optimized<false>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    if (needed > kFixedScratch)
        cudaFreeAsync(memory, 0);
}
