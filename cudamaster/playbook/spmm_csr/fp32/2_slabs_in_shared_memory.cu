// idea: Keep a slab of X in shared memory and stream the matrix past it, sorted by length of row
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and that gather is what
//      binds it. A slab of 1808 rows by 32 columns of X, one line of 128 bytes in each row, fits into an SM's
//      shared memory, which delivers 128 bytes a cycle; each block keeps one and streams all rows of A past
//      it. What the stream costs has to be small, so the matrix is sorted first. A lane has a row of A to
//      itself and sums all 32 columns, so an entry is loaded once and not by each lane that shares a row. It
//      goes through the eight parts of 16 bytes of a line in an order of its own: the eight lanes that shared
//      memory serves at a time meet in no bank. Rows of one length stand together, since the 32 rows of a
//      warp should end together. Entries shrink to 6 bytes: the row of the slab in 16 bits, and the value.
//      Entries of columns that are not in the slab, 12 % at 2048 columns, are fetched from X itself. First
//      the lanes of a warp exchange sums, so that eight lanes have one row and fetch whole lines. A row of
//      more than 256 entries, or 15 beyond the slab, is cut into runs. The lanes of a warp share a run. Where
//      the slabs do not fill all SMs evenly, the SMs that are left over take a share of the rows. Sorting
//      takes no atomic operation for an entry: a lane brings all entries of its row. Matrices of up to 8192
//      rows, but of 4 million results and more, are sorted and multiplied by one launch, without a word to
//      the host, while slabs of 1792 rows are on the way: each block counts the entries of a share of the
//      rows, all learn all keys, a row's place is the number of rows with smaller keys, and its warp brings
//      its entries there. A row of more than 256 entries, or 31 beyond the slab, is shared by a block. Step
//      1's kernels take what is smaller still, matrices with more than 3616 columns or more than one such
//      long row in 16, K that is no multiple of 4, and GPUs with less shared memory than an H100. At 262144
//      rows and K = 4096 an H200 takes 4.00 ms where an earlier form with four lanes for a row took 4.70, and
//      step 1 takes 8.05. What binds it now: the pipe of shared memory and L1, which needs 2.65 ms for the
//      rows of X alone; without entries beyond the slab it would take 3.3. Tried, and no faster: 576 or 640
//      threads; batches of one or three pairs of entries, 4.8 and 4.0 ms; four entries beyond the slab at a
//      time. Small matrices, by benchmarks/spmm_times.cu on an H100: 111 and 196 µs at 4096 and 8192 rows
//      where the launches of the large take 144 and 210; 188 at 4096 rows with half of the entries in three
//      of them, where those take 199. At 1024 rows it is no faster than step 1 there, 63 µs. What bound an
//      early form on an H200: of 45 to 48 µs at 1024 rows, where step 1 takes 58, 15 pass until the slab is
//      there and the matrix sorted, as long as both take one after the other, since what the sorting reads
//      and writes waits in L2 behind the slab; then 19 until the last sum, of which the rows of X alone need
//      11. Tried, and no faster: asking for the slab in parts; entries in the order of their columns, so that
//      a warp can begin before the whole slab is there; entries beyond the slab first; eight lanes for a row
//      of A as it lies, unsorted, which the issue of instructions binds (60 and 166 µs).
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda.h>
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
constexpr int kSmall = 512;         // threads of a block that prepares
constexpr int kLarge = 512;         // threads of a block that multiplies
constexpr int kBatch = 2;           // pairs of entries that a lane asks for at a time
constexpr int kRun = 2048;          // entries of a long row that a group has
constexpr int kAtOnce = 8;          // entries of a run that a lane looks at together
constexpr int kManyRows = 4096;     // from which sorting them first is worthwhile
constexpr int kManyColumns = 512;   // of X
constexpr size_t kArena = 16 << 20; // ints

__device__ int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    unsigned long long
        longs_and_runs; // rows too long for a lane, in the upper half, and runs of their entries
    int columns;        // 1 more than the last that has an entry
    int positions;      // of rows in groups
    int groups, pairs, fars;
    int next_units[2]; // of groups, and of runs
};

// Where the matrix is sorted.
struct Sorted {
    Totals* totals;
    int* lengths;           // of bins: rows
    int* starts;            // of bins, in their order: first position of its rows
    int2* ranks;            // of rows: bin, and number within the bin
    int2* longs;            // rows too long for a lane: row, first run
    int4* groups;           // first pair, entries in the slab, first far entry, far entries
    int* order;             // rows of groups, -1 for none
    int4* runs;             // of long rows, each a group of lanes that share it
    int* run_longs;         // the long row of each
    float* long_sums;       // K of each long row
    unsigned short* packed; // entries: row of the slab
    float* values;
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

// A run costs as much as a group, however short: where more than one row in kLongShare is long, step 1 takes the matrix.
// That share is a guess; no such matrix was timed.
constexpr int kLongShare = 16;
constexpr size_t kMostPlaces = 0x7fffffff;  // of pairs, or of far entries: a place is an int
constexpr int kRunPairs = kRun / 2 / kRows; // pairs that a lane has of a run, at most
constexpr int kRunFars = kRun / kRows;      // and entries beyond the slab
constexpr int kSlack = 2 * kBatch * kRows;  // pairs behind the last that are read, not used

// Where starts has a bin.
__device__ int start_of(int bin) {
    return kBins - 1 - bin;
}

struct alignas(4 * sizeof(Element)) Four {
    Element at[4];
};

// Calls visit(column, value) for the entries of a row, those from `first` to `last`. Loads take 16 bytes where the arrays,
// of `nnz` numbers, have them. Without kValues, values are not loaded.
template <bool kValues, class Visit>
__device__ void for_each_entry(unsigned first, unsigned last, unsigned nnz,
                               const int* __restrict__ col_indices, const Element* __restrict__ values,
                               Visit visit) {
    for (unsigned at = first / 4 * 4; at < last; at += 4) {
        int column[4];
        Four value;
        if (at + 4 <= nnz) {
            int4 four = __ldg((const int4*)(col_indices + at));
            column[0] = four.x, column[1] = four.y, column[2] = four.z, column[3] = four.w;
            if constexpr (kValues)
                value = *(const Four*)(values + at);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                column[i] = at + i < last ? col_indices[at + i] : 0;
                if constexpr (kValues)
                    value.at[i] = at + i < last ? values[at + i] : Element(0.0f);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (at + i >= first && at + i < last)
                visit(column[i], kValues ? value.at[i] : Element(0.0f));
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
        if (last - first <= kLongest + kFarthest) {
            int far = 0;
            auto count = [&](int column, Element) {
                mine = max(mine, column);
                far += column >= kHeight;
            };
            for_each_entry<false>(first, last, nnz, col_indices, nullptr, count);
            bin = bin_of(last - first - far, far);
        }
        if (bin < kBins - 1) {
            rank = atomicAdd(&lengths[bin], 1);
        } else {
            // Both numbers by one operation: so long rows stand in the order of their first runs.
            unsigned long long before =
                atomicAdd(&sorted.totals->longs_and_runs, (1ull << 32) + ((last - first - 1) / kRun + 1));
            sorted.longs[before >> 32] = make_int2((int)row, (int)before);
        }
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
    }
}

// A run of a long row: number of the row, first entry, the one behind the last.
__device__ int3 run_of(int run, const int* __restrict__ row_offsets, const Sorted& sorted) {
    int low = 0;
    for (int high = (int)(sorted.totals->longs_and_runs >> 32) - 1; low < high;) {
        int middle = (low + high + 1) / 2;
        if (sorted.longs[middle].y <= run)
            low = middle;
        else
            high = middle - 1;
    }
    int2 its = sorted.longs[low];
    int first = row_offsets[its.x] + (run - its.y) * kRun, last = row_offsets[its.x + 1];
    return make_int3(low, first, last - first > kRun ? first + kRun : last);
}

// Gives each row its place, and looks for the last column among the entries of long rows, a warp for a run.
__global__ void __launch_bounds__(kSmall)
    place_kernel_optimized(int rows, const int* __restrict__ row_offsets, const int* __restrict__ col_indices,
                           Sorted sorted) {
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    if (row < rows) {
        int2 rank = sorted.ranks[row];
        if (rank.x < kBins - 1)
            sorted.order[sorted.starts[start_of(rank.x)] + rank.y] = (int)row;
    }
    int position = sorted.totals->positions + (int)threadIdx.x;
    if (blockIdx.x == 0 && position < sorted.totals->groups * kRows) // members that the last group lacks
        sorted.order[position] = -1;
    int lane = threadIdx.x % 32, runs = (int)sorted.totals->longs_and_runs;
    for (int i = (int)(blockIdx.x * (kSmall / 32) + threadIdx.x / 32); i < runs;
         i += (int)(gridDim.x * (kSmall / 32))) {
        int3 run = run_of(i, row_offsets, sorted);
        int mine = -1;
#pragma unroll 8
        for (int p = lane; p < run.z - run.y; p += 32)
            mine = max(mine, col_indices[run.y + p]);
        mine = __reduce_max_sync(kFullMask, mine);
        if (lane == 0)
            atomicMax(&sorted.totals->columns, mine + 1);
    }
}

// Writes an entry of row `row` of the slab; row 0 are zeros.
__device__ void put(const Sorted& sorted, size_t place, int row, Element value) {
    sorted.packed[place] = (unsigned short)row;
    sorted.values[place] = value;
}

// Writes two entries, one behind the other.
__device__ void put_two(const Sorted& sorted, size_t pair, int row, Element value, int second_row,
                        Element second) {
    ((unsigned*)sorted.packed)[pair] = (unsigned)row | (unsigned)second_row << 16;
    ((float2*)sorted.values)[pair] = make_float2(value, second);
}

__device__ void put_far(const Sorted& sorted, size_t place, int column, Element value) {
    sorted.far_columns[place] = (unsigned short)column;
    sorted.far_values[place] = value;
}

// Brings the entries of a run, by a warp. Its lanes get as many each, in the slab and beyond it.
__device__ void gather_run(int i, const Element* __restrict__ values, const int* __restrict__ col_indices,
                           const int* __restrict__ row_offsets, const Sorted& sorted) {
    int lane = threadIdx.x % 32, count = 0, far = 0;
    int3 run = run_of(i, row_offsets, sorted);
    int first_pair = sorted.totals->pairs + i * kRunPairs, first_far = sorted.totals->fars + i * kRunFars;
    auto place_of = [&](int n) { return 2 * ((size_t)(first_pair + n / 64) * kRows + n % 32) + n / 32 % 2; };
    for (int from = lane; from - lane < run.z - run.y; from += kAtOnce * 32) {
        int column[kAtOnce];
        Element value[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            bool exists = from + j * 32 < run.z - run.y;
            column[j] = exists ? col_indices[run.y + from + j * 32] : -1;
            value[j] = exists ? values[run.y + from + j * 32] : Element(0.0f);
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            bool beyond = column[j] >= kHeight;
            unsigned before = (1u << lane) - 1, near = __ballot_sync(kFullMask, column[j] >= 0 && !beyond),
                     fars = __ballot_sync(kFullMask, beyond);
            if (beyond)
                put_far(sorted, (size_t)first_far * kRows + far + __popc(fars & before), column[j], value[j]);
            else if (column[j] >= 0)
                put(sorted, place_of(count + __popc(near & before)), 1 + column[j], value[j]);
            count += __popc(near);
            far += __popc(fars);
        }
    }
    int length = (count + 31) / 32, far_length = (far + 31) / 32;
    for (int n = count + lane; n < pairs_of(length) * 64; n += 32)
        put(sorted, place_of(n), 0, Element(0.0f));
    if (far + lane < far_length * 32)
        put_far(sorted, (size_t)first_far * kRows + far + lane, kNone, Element(0.0f));
    if (lane == 0) {
        sorted.runs[i] = make_int4(first_pair, length, first_far, far_length);
        sorted.run_longs[i] = run.x;
    }
}

// Brings the entries of each run and group, a warp for a group and a lane for a row. What a row lacks of its group's length
// becomes products with the zeros of the slab's row 0.
__global__ void __launch_bounds__(kSmall)
    gather_kernel_optimized(int rows, const Element* __restrict__ values, const int* __restrict__ col_indices,
                            const int* __restrict__ row_offsets, Sorted sorted) {
    int lane = threadIdx.x % 32, nnz = row_offsets[rows];
    int groups = sorted.totals->groups, runs = (int)sorted.totals->longs_and_runs;
    int first_warp = (int)(blockIdx.x * (kSmall / 32) + threadIdx.x / 32),
        warps = (int)(gridDim.x * (kSmall / 32));
    for (int i = first_warp; i < runs; i += warps)
        gather_run(i, values, col_indices, row_offsets, sorted);
    for (int i = first_warp; i < groups; i += warps) {
        int4 group = sorted.groups[i];
        int row = sorted.order[(size_t)i * kRows + lane];
        int first = row >= 0 ? row_offsets[row] : 0, last = row >= 0 ? row_offsets[row + 1] : 0;
        size_t pair = (size_t)group.x * kRows + lane, far_slot = (size_t)group.z * kRows + lane;
        int count = 0, far = 0, held_row = 0;
        Element held(0.0f);
        auto put_pair = [&](int second_row, Element second) {
            put_two(sorted, pair, held_row, held, second_row, second);
            pair += kRows;
            held_row = 0;
            held = Element(0.0f);
        };
        auto put_next_far = [&](int column, Element value) {
            put_far(sorted, far_slot, column, value);
            far_slot += kRows;
            ++far;
        };
        auto take = [&](int column, Element value) {
            if (column >= kHeight) {
                put_next_far(column, value);
            } else if (count++ % 2 != 0) {
                put_pair(1 + column, value);
            } else {
                held_row = 1 + column;
                held = value;
            }
        };
        for_each_entry<true>(first, last, nnz, col_indices, values, take);
        for (int pairs = count / 2; pairs < pairs_of(group.y); ++pairs)
            put_pair(0, Element(0.0f));
        while (far < group.w)
            put_next_far(kNone, Element(0.0f));
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
    // Adds to sums in fp32.
    __device__ void add_to(float* sums) const {
#pragma unroll
        for (int i = 0; i < kColumns; i += 4) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
            atomicAdd((float4*)(sums + i), make_float4(at[i], at[i + 1], at[i + 2], at[i + 3]));
#else
#pragma unroll
            for (int j = 0; j < 4; ++j)
                atomicAdd(sums + i + j, at[i + j]);
#endif
        }
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
        const unsigned* row = (const unsigned*)sorted.packed + slot;
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
    __device__ void add_to(Sums* sums, int many, unsigned slab) {
#pragma unroll 1
        for (; many > 0; --many) {
            add(sums, 0, slab);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                rows[i] = rows[i] >> 16 | (i + 1 < kBatch ? rows[i + 1] << 16 : 0);
                values[i].x = values[i].y;
                if (i + 1 < kBatch)
                    values[i].y = values[i + 1].x;
            }
        }
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

// Multiplies groups, or runs of long rows. In one kernel for both, spmm_csr took 3 % more in bf16.
template <bool kRuns>
__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int K, int columns, int many, int parts, int units, int shared_out,
                              Sorted sorted, const Element* __restrict__ X, Element* __restrict__ Y) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, place = lane % kChunk;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows + place);
    int slabs = (K - 1) / kWidth + 1;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            next_unit = atomicAdd(&sorted.totals->next_units[kRuns], 1);
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

        // The groups of a part: each parts-th, but for each shared_out-th, which others take.
        auto index_of = [&](int i) {
            if (part == parts)
                return i * shared_out + shared_out - 1;
            int index = i * parts + part;
            return shared_out == 0 ? index : index + index / (shared_out - 1);
        };
        long long k = first_column + place * kColumns;
        bool inside = k < K;
        const Element* x = X + k;
        Element* y = Y + k;
        // Lanes hold the length and the rows of the next group; of a run, which is one row's, that row's number.
        int next = 0, next_row = 0;
        int4 next_group = make_int4(0, 0, 0, 0);
        auto fetch = [&]() {
            if (lane == 0)
                next = atomicAdd(&next_run, 1);
            next = index_of(__shfl_sync(kFullMask, next, 0));
            if (next >= many)
                return;
            next_group = __ldg((kRuns ? sorted.runs : sorted.groups) + next);
            next_row = kRuns ? __ldg(sorted.run_longs + next) : __ldg(sorted.order + next * kRows + lane);
        };
        fetch();
        Batch now;
        if (next < many)
            now.load(sorted, (size_t)next_group.x * kRows + lane);
        while (next < many) {
            int4 group = next_group;
            int row = next_row, left = group.y;
            size_t slot = (size_t)group.x * kRows + lane;
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
            next_batch.load(sorted, (size_t)next_group.x * kRows + lane);
            Fars far;
            size_t far_slot = (size_t)group.z * kRows + lane / kChunk * kChunk;
            if (group.w > 0)
                far.load(sorted, far_slot);
            now.add_to(sum, left, slab);
            now = next_batch;
            turn(sum);
            for (int i = 0; i < group.w; ++i) {
                float4 v[kChunk];
#pragma unroll
                for (int j = 0; j < kChunk; ++j) {
                    unsigned column = far.column(j);
                    v[j] = inside && column != kNone ? __ldg((const float4*)(x + column * (size_t)K))
                                                     : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                }
#pragma unroll
                for (int j = 0; j < kChunk; ++j)
                    sum[j].add(far.value(j), v[j]);
                if (i + 1 < group.w)
                    far.load(sorted, far_slot += kRows);
            }
            if constexpr (kRuns) { // its lanes share a row
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
#pragma unroll
                    for (int j = 1; j < kChunk; ++j)
                        sum[0].at[c] += sum[j].at[c];
                    for (int distance = kChunk; distance < 32; distance *= 2)
                        sum[0].at[c] += __shfl_xor_sync(kFullMask, sum[0].at[c], distance);
                }
                if (lane < kChunk && inside)
                    sum[0].add_to(sorted.long_sums + (size_t)row * K + k);
            } else {
#pragma unroll
                for (int j = 0; j < kChunk; ++j) {
                    int target = __shfl_sync(kFullMask, row, lane / kChunk * kChunk + j);
                    if (inside && target >= 0)
                        sum[j].store(y + (size_t)target * K);
                }
            }
        }
    }
}

// Stores the sums of long rows, a block for each.
__global__ void __launch_bounds__(kSmall) store_kernel_optimized(int K, Sorted sorted, Element* Y) {
    int row = sorted.longs[blockIdx.x].x;
    for (int k = threadIdx.x; k < K; k += kSmall)
        Y[row * (size_t)K + k] = Element(sorted.long_sums[blockIdx.x * (size_t)K + k]);
}

// Multiplies all groups, or all runs, by all slabs; `all` is how many cycles that takes for each slab, about.
template <bool kRuns>
static void multiply(int processors, int many, double all, int K, int columns, const Sorted& sorted,
                     const Element* X, Element* Y) {
    int slabs = (K - 1) / kWidth + 1;
    // Parts of them, so that all processors have about as much to do: cycles of a part, times rounds. A slab costs about
    // 20000 cycles. The pipe of shared memory takes one for each entry in the slab and 1.4 for others, and some more for
    // each group.
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
    int whole = processors / slabs, others = processors - whole * slabs;
    if (whole > 0 && others > 0) {
        // As many processors for each slab as there are, and what the others can do in that time: each `shared_out`-th.
        double each = (slabs - 1) / others + 1,
               share = (all / whole - (each - 1.0) * 20000.0) / (all * (each + 1.0 / whole));
        if (share > 1e-4 && 20000.0 + all * (1.0 - share) / whole < best) {
            shared_out = (int)(1.0 / share + 0.5);
            parts = whole;
            units = (whole + 1) * slabs;
        }
    }
    int grid = units < processors ? units : processors;
    cudaFuncSetAttribute(multiply_kernel_optimized<kRuns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         kShared);
    multiply_kernel_optimized<kRuns>
        <<<grid, kLarge, kShared>>>(K, columns, many, parts, units, shared_out, sorted, X, Y);
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
    if (shared < kShared + 64)
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
    sorted.longs = (int2*)take(2 * (size_t)rows);
    size_t most_groups = ((size_t)rows - 1) / kRows + 1;
    sorted.groups = (int4*)take(4 * most_groups);
    sorted.order = take(kRows * most_groups);
    if (used > kArena)
        return false;
    cudaMemsetAsync(ints, 0, cleared * sizeof(int), 0);
    int row_grid = (rows - 1) / kSmall + 1;
    survey_kernel_optimized<<<row_grid, kSmall>>>(rows, row_offsets, col_indices, sorted);
    plan_kernel_optimized<<<1, kPlanners>>>(sorted);
    place_kernel_optimized<<<row_grid, kSmall>>>(rows, row_offsets, col_indices, sorted);
    Totals totals;
    if (cudaMemcpy(&totals, sorted.totals, sizeof(totals), cudaMemcpyDeviceToHost) != cudaSuccess)
        return false;
    if (totals.columns > 2 * kHeight)
        return false;

    int longs = (int)(totals.longs_and_runs >> 32), runs = (int)totals.longs_and_runs;
    size_t room = ((size_t)totals.pairs + (size_t)runs * kRunPairs) * kRows,
           far_room = ((size_t)totals.fars + (size_t)runs * kRunFars) * kRows;
    if (room > kMostPlaces || far_room > kMostPlaces)
        return false;
    if ((size_t)longs * kLongShare > (size_t)rows)
        return false;
    size_t needed = 3 * (room + kSlack) + far_room + far_room / 2 + 5 * (size_t)runs + (size_t)longs * K + 64;
    int* more = nullptr;
    if (used + needed > kArena) {
        if (cudaMallocAsync((void**)&more, needed * sizeof(int), 0) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        ints = more;
        used = 0;
    }
    sorted.packed = (unsigned short*)take(room + kSlack);
    sorted.values = (float*)take(2 * (room + kSlack));
    sorted.far_columns = (unsigned short*)take(far_room / 2 + 1);
    sorted.far_values = (float*)take(far_room);
    sorted.runs = (int4*)take(4 * (size_t)runs);
    sorted.run_longs = take(runs);
    sorted.long_sums = (float*)take((size_t)longs * K);
    int all_groups = runs + totals.groups;
    gather_kernel_optimized<<<all_groups / (kSmall / 32) + 1, kSmall>>>(rows, values, col_indices,
                                                                        row_offsets, sorted);
    if (longs > 0)
        cudaMemsetAsync(sorted.long_sums, 0, sizeof(float) * longs * K, 0);
    multiply<false>(processors, totals.groups,
                    32.0 * (2.1 * totals.pairs + 1.5 * totals.fars) + 100.0 * totals.groups, K,
                    totals.columns, sorted, X, Y);
    if (runs > 0)
        multiply<true>(processors, runs, 1.3 * kRun * runs, K, totals.columns, sorted, X, Y);
    if (longs > 0)
        store_kernel_optimized<<<longs, kSmall>>>(K, sorted, Y);
    if (more != nullptr)
        cudaFreeAsync(more, 0);
    return true;
}

// Small matrices: one launch sorts and multiplies. Each block prepares a share of the rows while its slab is on the way. A
// row's place is the number of rows with smaller keys, which takes neither an atomic operation nor a plan.
constexpr int kRowsOfX = 2048; // the same in every case
constexpr int kBox = 256;      // of them come with one copy
constexpr int kBoxes = 7;
constexpr int kInSlab = kBoxes * kBox; // rows of X in this slab
constexpr int kSmallShared = (kInSlab + 1) * kChunk * 16;
constexpr int kWarps = kLarge / 32;
constexpr int kNears = 256;                // entries in the slab of a row of a group at most
constexpr int kFars = 32;                  // and one more than those beyond it
constexpr int kMostRows = 8192;            // of a small matrix
constexpr long long kFewResults = 4 << 20; // for fewer a slab is not worthwhile
constexpr int kLongKey = 0xffff;
constexpr int kNoKey = 0x7fffffff; // above all keys
constexpr int kAhead = 4;          // entries that a lane asks for at a time
constexpr int kFewLongs = 64;      // long rows that a block shares, one by one
constexpr int kLongAhead = 8;      // entries of a long row that eight lanes ask for at a time

// Where they are sorted.
struct Places {
    int* keys;     // of rows: a key of 16 bits, and the row below it
    int4* members; // of groups: row, entries in the slab or -1 for a long row, entries beyond it
    int2* nears;   // kNears of each row: offset in the slab, bits of the value
    int2* fars;    // kFars of each row: column or -1, bits of the value
};

// The order of rows: as that of bins, but that each length stands alone.
__device__ int key_of(int near, int far) {
    return near <= kNears && far < kFars
               ? (kFars - 1 - far) * (kNears + 1) + (far % 2 == 0 ? kNears - near : near)
               : kLongKey;
}

// Rows that a block prepares: the first, and the one behind the last.
__device__ int2 rows_of_block(int rows) {
    return make_int2((int)((long long)rows * blockIdx.x / gridDim.x),
                     (int)((long long)rows * (blockIdx.x + 1) / gridDim.x));
}

// Entries as the caller has them.
struct Entries {
    const int* columns;
    const Element* values;
    const int* row_offsets;
    __device__ int count(int row) const { return row_offsets[row + 1] - row_offsets[row]; }
    // Where the entries of a row are: the first, and one behind the last.
    static constexpr int kRanges = 1;
    __device__ uint2 range(int row, int) const { return make_uint2(row_offsets[row], row_offsets[row + 1]); }
    // Column, bits of the value.
    __device__ int2 at(int place) const {
        return make_int2(columns[place], __float_as_int((float)values[place]));
    }
};

// The rows that a warp prepares, kMine at most: it counts their entries, tells all blocks the keys, and when it knows those of
// all rows, brings the entries to their places.
template <int kMine> struct Share {
    int row[kMine], first[kMine], count[kMine], key[kMine];
    int2 entry[kMine]; // of the first 32 each in a lane

    __device__ void load(int rows, const Entries& entries) {
        int2 range = rows_of_block(rows);
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
            row[i] = range.x + (int)threadIdx.x / 32 + i * kWarps;
            if (row[i] >= range.y)
                row[i] = -1;
            first[i] = row[i] >= 0 ? (int)entries.range(row[i], 0).x : 0;
            count[i] = row[i] >= 0 ? entries.count(row[i]) : 0;
        }
#pragma unroll
        for (int i = 0; i < kMine; ++i)
            entry[i] = get(entries, i, 0);
    }
    __device__ bool is_long(int i) const { return count[i] >= kNears + kFars; }
    // Entry `from` + lane of row i; the column is -1 where there is none.
    __device__ int2 get(const Entries& entries, int i, int from) const {
        int n = from + (int)threadIdx.x % 32;
        return n < count[i] && !is_long(i) ? entries.at(first[i] + n) : make_int2(-1, 0);
    }
    // Nothing is in the places for entries beyond the slab of the row at `place`, from the `far`-th on.
    __device__ void no_far(const Places& places, int place, int far) const {
        static_assert(kFars == 32); // a lane for each
        int n = threadIdx.x % 32;
        if (n >= far)
            places.fars[((size_t)(place / kRows) * kFars + n) * kRows + place % kRows] = make_int2(-1, 0);
    }
    // Calls visit(entry) for all entries of row i, 32 at a time.
    template <class Visit> __device__ void for_each(const Entries& entries, int i, Visit visit) const {
        visit(entry[i]);
        for (int from = 32; from < count[i] && !is_long(i); from += 32)
            visit(get(entries, i, from));
    }
    __device__ void tell_keys(int rows, const Entries& entries, const Places& places) {
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
            int far = 0;
            for_each(entries, i,
                     [&](int2 entry) { far += __popc(__ballot_sync(kFullMask, entry.x >= kInSlab)); });
            key[i] = (is_long(i) ? kLongKey : key_of(count[i] - far, far)) * kMostRows + row[i];
            if (row[i] >= 0 && threadIdx.x % 32 == 0)
                places.keys[row[i]] = key[i];
        }
        // A warp reads 128 keys at a time.
        if (blockIdx.x == 0 && (int)threadIdx.x < (128 - rows % 128) % 128)
            places.keys[rows + threadIdx.x] = kNoKey;
    }
    __device__ void bring(int rows, const Entries& entries, const Places& places) {
        int lane = threadIdx.x % 32;
        // Members that the last group lacks have no entries.
        if (blockIdx.x == 0)
            for (int place = rows + (int)threadIdx.x / 32; place < (rows + kRows - 1) / kRows * kRows;
                 place += kWarps)
                no_far(places, place, 0);
        int position[kMine] = {};
#pragma unroll 8
        for (int at = 0; at < rows; at += 128) {
            int4 four = ((const int4*)places.keys)[at / 4 + lane];
#pragma unroll
            for (int i = 0; i < kMine; ++i)
                position[i] += (four.x < key[i]) + (four.y < key[i]) + (four.z < key[i]) + (four.w < key[i]);
        }
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
            int place = __reduce_add_sync(kFullMask, position[i]), near = 0, far = 0;
            if (row[i] < 0)
                continue;
            bool lanes_take_it = key[i] / kMostRows < kLongKey;
            if (lanes_take_it) {
                int2* nears = places.nears + (size_t)(place / kRows) * (kNears * kRows) + place % kRows;
                int2* fars = places.fars + (size_t)(place / kRows) * (kFars * kRows) + place % kRows;
                for_each(entries, i, [&](int2 entry) {
                    unsigned before = (1u << lane) - 1, beyond = __ballot_sync(kFullMask, entry.x >= kInSlab),
                             in_slab = __ballot_sync(kFullMask, entry.x >= 0) & ~beyond;
                    if (entry.x >= kInSlab)
                        fars[(far + __popc(beyond & before)) * kRows] = entry;
                    else if (entry.x >= 0)
                        nears[(near + __popc(in_slab & before)) * kRows] =
                            make_int2(entry.x * (kChunk * 16), entry.y);
                    near += __popc(in_slab);
                    far += __popc(beyond);
                });
            }
            no_far(places, place, far);
            if (lane == 0)
                places.members[place] = make_int4(row[i], lanes_take_it ? near : -1, far, 0);
        }
    }
};

// Asks for the slab, by one thread; `arrival` is the barrier that learns when it is there.
__device__ void ask_for_slab(const CUtensorMap* map, int column, unsigned slab, unsigned arrival) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(arrival) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(arrival),
                 "r"(kInSlab * kChunk * 16)
                 : "memory");
    for (int i = 0; i < kBoxes; ++i)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%2, %3}], [%4];" ::"r"(slab + i * kBox * kChunk * 16),
                     "l"(map), "r"(column), "r"(i * kBox), "r"(arrival)
                     : "memory");
#endif
}

__device__ void wait_for_slab(unsigned arrival) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;}" ::"r"(arrival)
                 : "memory");
#endif
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr int kSmallThreads = kLarge;
#else
// Too few for a launch, by which the host sees that there is nothing to launch.
constexpr int kSmallThreads = 32;
#endif

template <int kMine>
__global__ void __launch_bounds__(kSmallThreads, 1)
    small_kernel_optimized(const __grid_constant__ CUtensorMap map, int rows, int K, int slabs, int parts,
                           Entries entries, Places places, const Element* __restrict__ X,
                           Element* __restrict__ Y) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ __align__(8) unsigned long long arrived;
    __shared__ int next_group;
    __shared__ Sums partial[kWarps / 2][kChunk];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, place = lane % kChunk, part = blockIdx.x / slabs;
    int first_column = (int)(blockIdx.x % slabs) * kWidth;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows),
             arrival = (unsigned)__cvta_generic_to_shared(&arrived);
    if (threadIdx.x == 0)
        next_group = kWarps;
    if (threadIdx.x < kChunk)
        slab_rows[kInSlab * kChunk + threadIdx.x] = make_int4(0, 0, 0, 0);
    auto grid = cooperative_groups::this_grid();
    Share<kMine> share;
    share.load(rows, entries);
    if (threadIdx.x == 0)
        ask_for_slab(&map, first_column, slab, arrival);
    share.tell_keys(rows, entries, places);
    grid.sync();
    // Rows of X beyond the slab, from memory into L2.
    if (threadIdx.x < kRowsOfX - kInSlab)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            (const void*)(X + first_column + (kInSlab + threadIdx.x) * (size_t)K)));
    share.bring(rows, entries, places);
    grid.sync();

    // Multiplies groups, a lane for each row.
    long long k = first_column + place * kColumns;
    bool inside = k < K;
    const Element* x = X + k;
    Element* y = Y + k;
    int groups = (rows + kRows - 1) / kRows, next = warp * parts + part;
    int4 next_member = make_int4(0, -1, 0, 0);
    int2 ahead[kAhead];
    auto fetch_member = [&]() {
        int position = next * kRows + lane;
        next_member = position < rows ? __ldcg(places.members + position) : make_int4(0, -1, 0, 0);
    };
    // The entries of a lane from `at` on; behind its last, products with zeros.
    auto fetch = [&](int group, int at, int count) {
        const int2* from = places.nears + (size_t)group * (kNears * kRows) + lane;
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            ahead[i] = at + i < count ? __ldcg(from + (at + i) * kRows) : make_int2(kInSlab * kChunk * 16, 0);
    };
    fetch_member();
    fetch(next, 0, next_member.y);
    wait_for_slab(arrival);
    while (next < groups) {
        int group = next;
        int4 member = next_member;
        if (lane == 0)
            next = atomicAdd(&next_group, 1) * parts + part;
        next = __shfl_sync(kFullMask, next, 0);
        fetch_member();
        int longest = __reduce_max_sync(kFullMask, member.y),
            farthest = __reduce_max_sync(kFullMask, member.z);
        Sums sum[kChunk];
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
            sum[j].clear();
        for (int at = 0; at < longest; at += kAhead) {
            int2 now[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i)
                now[i] = ahead[i];
            fetch(group, at + kAhead, member.y);
#pragma unroll
            for (int i = 0; i < kAhead; ++i)
                if (at + i < longest)
                    add_near(sum, __int_as_float(now[i].y), slab + place * 16 + now[i].x);
        }
        fetch(next, 0, next_member.y);
        turn(sum);
        const int4* from =
            (const int4*)(places.fars + (size_t)group * (kFars * kRows) + lane / kChunk * kChunk);
#pragma unroll 1
        for (int i = 0; i < farthest; ++i) {
            int2 far[kChunk];
#pragma unroll
            for (int j = 0; j < kChunk; j += 2) {
                int4 two = __ldcg(from + i * (kRows / 2) + j / 2);
                far[j] = make_int2(two.x, two.y);
                far[j + 1] = make_int2(two.z, two.w);
            }
            float4 v[kChunk];
#pragma unroll
            for (int j = 0; j < kChunk; ++j)
                v[j] = inside && far[j].x >= 0 ? __ldg((const float4*)(x + far[j].x * (size_t)K)) : float4();
#pragma unroll
            for (int j = 0; j < kChunk; ++j)
                sum[j].add(__int_as_float(far[j].y), v[j]);
        }
        int target = member.y >= 0 ? member.x : -1;
#pragma unroll
        for (int j = 0; j < kChunk; ++j) {
            int row = __shfl_sync(kFullMask, target, lane / kChunk * kChunk + j);
            if (inside && row >= 0)
                sum[j].store(y + row * (size_t)K);
        }
    }

    // Long rows stand behind all others. Where they are few, the block shares each. Eight lanes have an entry.
    int last_short = rows - 1 - kFewLongs;
    bool shares = last_short < 0 || __ldcg(places.members + last_short).y >= 0;
    // Each eight lanes begin at an entry of their own and go on by `step`, or have a row of their own.
    int eights = shares ? 1 : kLarge / kChunk, eight = shares ? 0 : (int)threadIdx.x / kChunk;
    unsigned step = shares ? kLarge / kChunk : 1, begin = shares ? threadIdx.x / kChunk : 0;
    for (int position = rows - 1 - (eight * parts + part); position >= 0; position -= eights * parts) {
        int4 member = __ldcg(places.members + position);
        if (member.y >= 0)
            break;
        Sums sum;
        sum.clear();
        for (int i = 0; i < Entries::kRanges; ++i) {
            uint2 range = entries.range(member.x, i);
            int2 ahead[kLongAhead];
            auto fetch = [&](unsigned at) {
#pragma unroll
                for (int j = 0; j < kLongAhead; ++j)
                    ahead[j] =
                        at + j * step < range.y ? entries.at((int)(at + j * step)) : make_int2(kInSlab, 0);
            };
            fetch(range.x + begin);
            for (unsigned at = range.x + begin; at < range.y; at += kLongAhead * step) {
                int2 now[kLongAhead];
                float4 v[kLongAhead];
#pragma unroll
                for (int j = 0; j < kLongAhead; ++j)
                    now[j] = ahead[j];
                fetch(at + kLongAhead * step);
                // Where there is no entry, the slab's row of zeros.
#pragma unroll
                for (int j = 0; j < kLongAhead; ++j)
                    v[j] = shared_at(slab + place * 16 + min(now[j].x, kInSlab) * (kChunk * 16));
#pragma unroll
                for (int j = 0; j < kLongAhead; ++j)
                    if (now[j].x >= kInSlab && inside && at + j * step < range.y)
                        v[j] = __ldg((const float4*)(x + now[j].x * (size_t)K));
#pragma unroll
                for (int j = 0; j < kLongAhead; ++j)
                    sum.add(__int_as_float(now[j].y), v[j]);
            }
        }
        if (shares) {
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
                for (int distance = kChunk; distance < 32; distance *= 2)
                    sum.at[c] += __shfl_xor_sync(kFullMask, sum.at[c], distance);
            for (int half = kWarps / 2; half > 0; half /= 2) {
                if (lane < kChunk && warp >= half && warp < 2 * half)
                    partial[warp - half][lane] = sum;
                __syncthreads();
                if (lane < kChunk && warp < half)
                    for (int c = 0; c < kColumns; ++c)
                        sum.at[c] += partial[warp][lane].at[c];
                __syncthreads();
            }
        }
        if (inside && (!shares || threadIdx.x < kChunk))
            sum.store(y + member.x * (size_t)K);
    }
}

// Sorts and multiplies by one launch where that is possible; returns whether it was.
static bool by_one_launch(int rows, int K, const Element* values, const int* col_indices,
                          const int* row_offsets, const Element* X, Element* Y) {
    if (K % kColumns != 0 || (((size_t)X | (size_t)Y) & 15) != 0)
        return false;
    int device = 0, processors = 0, shared = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    int slabs = (K - 1) / kWidth + 1, parts = processors / slabs;
    // Each warp prepares up to four rows.
    if (major < 9 || shared < kSmallShared + 2560 || parts == 0 || rows > kMostRows ||
        (long long)rows > 4LL * kWarps * slabs * parts)
        return false;
    CUtensorMap map;
    cuuint64_t sizes[2] = {(cuuint64_t)K, kRowsOfX}, strides[1] = {(cuuint64_t)K * sizeof(Element)};
    cuuint32_t box[2] = {kWidth, kBox}, steps[2] = {1, 1};
    CUtensorMapDataType type =
        sizeof(Element) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (cuTensorMapEncodeTiled(&map, type, 2, (void*)X, sizes, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return false;

    int4* memory = nullptr;
    cudaGetSymbolAddress((void**)&memory, arena);
    Places places;
    places.keys = (int*)memory;
    places.members = memory + kMostRows / 4;
    places.nears = (int2*)(places.members + kMostRows);
    places.fars = places.nears + (size_t)kMostRows * kNears;
    static_assert(kMostRows / 4 + kMostRows + (size_t)kMostRows * (kNears + kFars) / 2 <= kArena / 4);
    Entries entries = {col_indices, values, row_offsets};
    int each = (rows - 1) / (kWarps * slabs * parts) + 1;
    auto kernel = each <= 2 ? small_kernel_optimized<2> : small_kernel_optimized<4>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmallShared);
    void* arguments[] = {&map, &rows, &K, &slabs, &parts, &entries, &places, &X, &Y};
    if (cudaLaunchCooperativeKernel(kernel, dim3(slabs * parts), dim3(kLarge), arguments, kSmallShared, 0) ==
        cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
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
    if ((long long)rows * K >= kFewResults && K >= kManyColumns &&
        by_one_launch(rows, K, values, col_indices, row_offsets, X, Y))
        return;
    if (rows >= kManyRows && K >= kManyColumns && by_slabs(rows, K, values, col_indices, row_offsets, X, Y))
        return;
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_csr_kernel_optimized<true><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
    else
        spmm_csr_kernel_optimized<false><<<grid, kThreads>>>(rows, K, values, col_indices, row_offsets, X, Y);
}
