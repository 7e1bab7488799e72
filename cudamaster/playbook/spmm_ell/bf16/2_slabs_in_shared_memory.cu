// idea: Keep slabs of X in shared memory, one chunk of A's columns after the other
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and X is larger than L2.
//      So A's columns are cut into chunks, and a block multiplies the entries of one chunk by one slab of
//      X, up to 3455 rows by 32 columns, half a line of 64 bytes in each row: each element of X is loaded
//      from memory once. Shared memory delivers 128 bytes a cycle. What a chunk gives to Y is added by
//      reductions of 16 bytes to sums in fp32; one chunk alone is stored. Sums are rounded at the end. A
//      lane has a row of A to itself and sums all 32 columns, so an entry is loaded once and not by each
//      lane that shares a row. It goes through the four parts of 16 bytes of a row in an order of its own,
//      and where an even lane has an entry of an even row of the slab, an odd lane has one of an odd row,
//      as long as its row of A has both: so the eight lanes that shared memory serves at a time meet in no
//      bank. Rows twice as long, in half as many columns, halve the chunks, so the additions to sums, and
//      the bytes that SMs load. In each chunk the rows are sorted by length, 2048 at a time, since the 32
//      rows of a warp should end together. Entries shrink to 4 bytes: the row of the slab and the bf16
//      value. Before the additions the lanes of a warp exchange sums, so that eight lanes add to a whole
//      line. A warp takes a row of more than 128 entries in a chunk, four lanes an entry, and a block one
//      of more than 1024. Sorting is one cooperative launch of three phases: a warp counts the entries of a
//      row by chunks, takes a rank among rows of that length for it, and brings its entries to their
//      places; the block helps with rows of more than 512 slots. Sums are cleared on the way. The call does
//      not say how many columns there are: chunks are always as high as a slab, and units come in an order
//      in which it does not matter that the last is smaller. Where there are many, blocks begin one after
//      the other, so that some load slabs while others multiply. Step 1's kernel takes fewer than 250
//      million slots times K, K below 512 or no multiple of 8, and GPUs with less shared memory than an
//      H100; matrices with more than 110560 columns, or for which 64 MB of places are too few, are gathered
//      as in step 1. By benchmarks/spmm_times.cu, in one run on an H200, it takes 55, 108, 159, 257 and 423
//      µs at 2048 to 32768 columns and K = 4096, where an earlier form, with slabs of 1792 rows by 64
//      columns and sorted by four launches, takes 119, 171, 267 and 444 from 4096 columns on, and step 1's
//      kernel 73 at 2048; 1024 columns take 44 in either way. With half of the entries in 40 rows, at 4096
//      columns, it takes 141 where that form takes 161, and with half of them in three rows, at 8192, 247
//      where it takes 435. What binds it at 32768 columns: the sorting takes 32 µs, of which 9 clear sums;
//      without loads of slabs it takes 404 of 425, without additions to sums 408. Tried: the first chunk
//      stores sums, and blocks with others wait for that, by another run 5 µs less at 4096 columns, but 7
//      more at 32768; all sorted and multiplied by one launch in which a block keeps its columns of Y, 519
//      µs at 32768. No faster: 640 or 768 threads; batches of one and three pairs of entries.
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

using Element = __nv_bfloat16;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 16 / sizeof(Element); // columns in 16 bytes
constexpr int kChunk = 4;                      // times 16 bytes are a row of the slab: half of the banks once
constexpr int kWidth = kChunk * kColumns;      // columns of a slab
constexpr int kHeight = 3455;                  // rows of X in a slab at most
constexpr int kQuads = kWidth / 4;             // vectors of a row of sums
constexpr int kShared = (kHeight + 1) * kChunk * 16;
constexpr int kRows = 32;     // rows of A in a group, one for each lane
constexpr int kPanel = 2048;  // rows of A that are sorted by length together
constexpr int kExact = 64;    // entries up to which rows are sorted by their exact number
constexpr int kStep = 4;      // and of longer rows each so many lengths stand together
constexpr int kLongest = 128; // entries in a row of a group at most
constexpr int kAlone = 1024;  // entries in a longer row that one warp takes
constexpr int kMaxChunks = 32;
constexpr int kMaxHalves = 2 * kMaxChunks; // a chunk's entries of even rows of the slab, and of odd ones
// One for each length, and the last two for longer rows.
constexpr int kBins = kExact + 1 + (kLongest - kExact) / kStep + 2;
constexpr int kGroups = kPanel / kRows;   // of a panel
constexpr int kSorters = 512;             // threads of a block that sorts
constexpr int kLarge = 512;               // threads of a block that multiplies
constexpr int kBatch = 2;                 // pairs of entries that a lane asks for at a time
constexpr int kAhead = 4;                 // slots of a row that a lane looks at together
constexpr int kWide = 4 * kAhead * 32;    // slots of a row that a warp looks at; a block takes the rest
constexpr int kNowhere = -0x7fffffff - 1; // no place
constexpr int kRankBits = 11;             // of a row's rank among those of its length in a panel
constexpr int kStagger = 16; // microseconds, about, between the begin of the first block and that of the last
constexpr int kManyRounds = 4;        // units of a block from which this is worthwhile
constexpr int kManyTerms = 250000000; // slots times K, from which sorting is worthwhile
constexpr int kManyColumns = 512;     // of X
constexpr size_t kArena = 16 << 20;   // ints
static_assert(kPanel == 1 << kRankBits && kMaxChunks == 32);

__device__ __align__(128) int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    int columns, chunks;
    int most_pairs; // of a row of a group
    int next_unit;  // of those that are multiplied
    int used;       // pairs of long rows
    int unfit;      // whether there are more columns or entries than places for them
    int huge;       // whether a row has more entries than a key can tell
};

// Where the matrix is sorted. A key is a row of A within a chunk of columns: row * kMaxHalves + 2 * chunk, and one more for odd rows. A run is a panel of rows
// within a chunk: chunk * panels + panel.
struct Sorted {
    Totals* totals;
    int2* seen;   // by blocks: last column that has entries, and most entries of a row in a chunk
    int* lengths; // of runs: how many rows have each length, kBins
    int4* runs;   // rows that a block shares, those and rows of one warp, all rows
    int* keys;    // entries by halves; later, first the rank too, or the first pair of a long row
    int* rest;
    size_t room; // ints from `rest` on
    int panels;
    // From here on by the device, which knows how many chunks there are.
    int most_pairs;        // of a row of a group
    int2* order;           // of runs: row and entries, longest first
    unsigned* packed;      // entries: row of the slab, and in the upper half the value
    int first_long, pairs; // places for pairs: the first for long rows, and all

    // Shares out places; returns whether there are enough.
    __device__ bool place(int chunks, int most) {
        size_t places = (size_t)chunks * panels * kPanel, of_groups = places * most;
        most_pairs = most;
        order = (int2*)rest;
        if (chunks > kMaxChunks || 2 * places + 2 * of_groups + 256 > room)
            return false;
        size_t all = (room - 2 * places - 64) / 2 / 32 * 32;
        first_long = (int)of_groups;
        pairs = (int)all;
        packed = (unsigned*)(rest + 2 * places);
        return true;
    }
    // The first pair of a row of a group.
    __device__ int pair_of(int run, int at) const {
        return (run * kGroups + at / kRows) * most_pairs * kRows + at % kRows;
    }
    // Writes an entry of row `row` of the slab; row 0 are zeros.
    __device__ void put(size_t place, int row, Element value) const {
        packed[place] = (unsigned)row | (unsigned)__bfloat16_as_ushort(value) << 16;
    }
};

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

__device__ int bin_of(int count) {
    int length = count <= kExact ? count : kExact + (count - kExact + kStep - 1) / kStep;
    return count <= kLongest ? length : count <= kAlone ? kBins - 2 : kBins - 1;
}

// A launch may begin before the one before it has ended. From here on its blocks take the places of those that have.
__device__ void begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before this one has ended, and all that it wrote is there.
__device__ void wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 16 bytes of shared memory. An address of 32 bits costs one instruction of each row, a pointer three.
__device__ uint4 shared_at(unsigned address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}

__device__ void add_to_sums(float* sums, float4 v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // atomicAdd may bring back what was there.
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(sums), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
#else
    atomicAdd(sums, v.x), atomicAdd(sums + 1, v.y), atomicAdd(sums + 2, v.z), atomicAdd(sums + 3, v.w);
#endif
}

__device__ uint2 rounded(float4 v) {
    __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    return make_uint2(*(unsigned*)&low, *(unsigned*)&high);
}

// Sums of eight neighbouring columns.
struct Sums {
    float at[kColumns];
    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
            at[i] = 0.0f;
    }
    __device__ void add(float value, uint4 x) {
        unsigned words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // A bf16 number is the upper half of the same number in fp32.
            at[2 * i] += value * __uint_as_float(words[i] << 16);
            at[2 * i + 1] += value * __uint_as_float(words[i] & 0xffff0000u);
        }
    }
    __device__ float4 four(int first) const {
        return make_float4(at[first], at[first + 1], at[first + 2], at[first + 3]);
    }
    // Adds four of them to sums in fp32.
    __device__ void add_four(int first, float* sums) const { add_to_sums(sums, four(first)); }
    // Adds up the lanes of a warp that have the same part.
    __device__ void add_lanes() {
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
            for (int distance = kChunk; distance < 32; distance *= 2)
                at[i] += __shfl_xor_sync(kFullMask, at[i], distance);
    }
};

// Adds an entry to the sums of a lane's row. Sum j has part j ^ lane % 8 / 2 of the slab. As odd lanes have an entry of an odd
// row where even lanes have one of an even row, the eight lanes that shared memory serves at a time then meet in no bank.
// `address` is that of part lane % 8 / 2.
__device__ void add_near(Sums* sums, float value, unsigned address) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
        sums[j].add(value, shared_at(address ^ (j * 16)));
}

// From lanes that have a row each to lanes that have four columns of eight rows each: four(j) then belongs to row
// lane / 8 * 8 + j, and to vector lane % 8 of its columns, or for j of the other parity to the vector beside it.
__device__ void turn(Sums* sums) {
    auto at = [&](int j, int c) -> float& { return sums[j / 2].at[j % 2 * 4 + c]; };
#pragma unroll
    for (int j = 1; j < kQuads; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c)
            at(j, c) = __shfl_xor_sync(kFullMask, at(j, c), j);
    // Now vector j is that of the row of the lane with whose number j differs.
#pragma unroll
    for (int bit = 1; bit < kQuads; bit *= 2) {
        bool swaps = (threadIdx.x & bit) != 0;
#pragma unroll
        for (int j = 0; j < kQuads; ++j)
            if ((j & bit) == 0)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    float here = at(j, c), there = at(j ^ bit, c);
                    at(j, c) = swaps ? there : here;
                    at(j ^ bit, c) = swaps ? here : there;
                }
    }
}

// The next pairs of entries of a row.
struct Batch {
    uint2 entries[kBatch];
    // Those from pair `at` on; behind the last of `pairs`, products with zeros.
    __device__ void load(const Sorted& sorted, int first, int at, int pairs) {
        const uint2* from = (const uint2*)sorted.packed + first;
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            entries[i] = at + i < pairs ? __ldg(from + (at + i) * kRows) : make_uint2(0, 0);
    }
    // Adds entry `i`, which is known when this is compiled.
    __device__ void add(Sums* sums, int i, unsigned slab) const {
        unsigned entry = i % 2 == 0 ? entries[i / 2].x : entries[i / 2].y;
        add_near(sums, __uint_as_float(entry & 0xffff0000u), slab + (entry & 0xffff) * (kChunk * 16));
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

// Sums every `step`-th pair of entries of a long row, by a lane that has one part of the slab.
__device__ Sums sum_long(const Sorted& sorted, int pair, int end, int step, unsigned slab) {
    Sums sum;
    sum.clear();
#pragma unroll 4
    for (; pair < end; pair += step) {
        uint2 entries = __ldg((const uint2*)sorted.packed + pair);
        sum.add(__uint_as_float(entries.x & 0xffff0000u),
                shared_at(slab + (entries.x & 0xffff) * (kChunk * 16)));
        sum.add(__uint_as_float(entries.y & 0xffff0000u),
                shared_at(slab + (entries.y & 0xffff) * (kChunk * 16)));
    }
    return sum;
}

// A matrix that does not fit: a warp makes columns of a row.
__device__ void multiply_plainly(int rows, int max_nnz_per_row, int K, const Element* __restrict__ values,
                                 const int* __restrict__ col_ids, const Element* __restrict__ X, Element* Y) {
    int pieces = (K - 1) / (32 * kColumns) + 1, lane = threadIdx.x % 32;
    for (long long task = blockIdx.x * (long long)(kLarge / 32) + threadIdx.x / 32;
         task < (long long)rows * pieces; task += gridDim.x * (long long)(kLarge / 32)) {
        size_t row = task / pieces;
        long long k = (task % pieces * 32 + lane) * kColumns;
        Sums sum;
        sum.clear();
        for (int first = 0; first < max_nnz_per_row; first += 32) {
            bool exists = first + lane < max_nnz_per_row;
            size_t slot = row * max_nnz_per_row + first + lane;
            int column = exists ? col_ids[slot] : -1;
            float value = column >= 0 ? (float)values[slot] : 0.0f;
            int entries = __popc(__ballot_sync(kFullMask, column >= 0));
#pragma unroll 8
            for (int i = 0; i < entries; ++i) {
                float v = __shfl_sync(kFullMask, value, i);
                size_t at = __shfl_sync(kFullMask, column, i) * (size_t)K + k;
                if (k < K)
                    sum.add(v, *(const uint4*)(X + at));
            }
        }
        if (k < K)
            for (int c = 0; c < kColumns; c += 4)
                *(uint2*)(Y + row * K + k + c) = rounded(sum.four(c));
    }
}

// Calls visit(slot, column) for the entries of a row from slot `first` up to `end`, by `team` lanes of which this is `member`.
// Padding stands behind all entries. Returns whether the last that this lane looked at was an entry.
template <class Visit>
__device__ bool for_each_entry(const int* __restrict__ col_ids, size_t row, int width, int first, int end,
                               int member, int team, Visit visit) {
    bool entry = true;
    for (int from = first + member; entry && from < end; from += kAhead * team) {
        int column[kAhead];
        size_t slot = row * width + from;
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            column[i] = from + (long long)i * team < end ? col_ids[slot + i * team] : -1;
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            if (column[i] >= 0)
                visit(slot + i * team, column[i]);
        entry = column[kAhead - 1] >= 0;
    }
    return entry;
}

constexpr int kWarps = kSorters / 32;

// Where entries of a column are counted.
__device__ int half_of(int column) {
    int chunk = column / kHeight;
    return 2 * chunk + (1 + column - chunk * kHeight) % 2;
}

// The rows that a block sorts, a warp each. What a warp counts of its row, by chunks, stands in shared memory.
struct __align__(8) Share {
    int counters[kWarps][kMaxHalves], slots[kWarps][kMaxChunks];
    int both[kWarps][kMaxChunks]; // entries of even rows of the slab, or those of odd ones, whatever is less
    int more[kWarps];             // whether a row has more entries than a warp looks at

    // Calls begin(row), then visit(warp, slot, column) for all entries of the row, and end(row), for rows from `first` on.
    template <class Begin, class Visit, class End>
    __device__ void for_each_row(int first, int last, int width, const int* __restrict__ col_ids, Begin begin,
                                 Visit visit, End end) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int of_warp_0 = first; of_warp_0 < last; of_warp_0 += kWarps) {
            int row = of_warp_0 + warp;
            bool exists = row < last;
            if (exists) {
                counters[warp][lane] = counters[warp][lane + 32] = 0;
                begin(row);
            }
            __syncwarp();
            // First each warp has its own row; then all warps together have those that go on.
            for (int w = -1; w < kWarps; ++w) {
                bool alone = w < 0, goes_on = false;
                int of = alone ? warp : w;
                if (alone ? exists : more[w])
                    goes_on = for_each_entry(col_ids, of_warp_0 + of, width, alone ? 0 : kWide,
                                             alone ? min(width, kWide) : width, alone ? lane : threadIdx.x,
                                             alone ? 32 : kSorters,
                                             [&](size_t slot, int column) { visit(of, slot, column); });
                if (width <= kWide)
                    break;
                if (alone) {
                    goes_on = __any_sync(kFullMask, goes_on);
                    if (lane == 0)
                        more[warp] = goes_on;
                    __syncthreads();
                }
            }
            if (width > kWide)
                __syncthreads();
            __syncwarp();
            if (exists)
                end(row);
            __syncwarp();
        }
    }
};

// Sorts entries by chunks, and the rows of each panel and chunk by length.
__global__ void __launch_bounds__(kSorters, 1)
    sort_kernel_optimized(int rows, int max_nnz_per_row, const Element* __restrict__ values,
                          const int* __restrict__ col_ids, float* sums, size_t many_sums, Sorted sorted) {
    __shared__ Share share;
    __shared__ int starts[kMaxChunks][kBins];
    __shared__ int highest, longest;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, panels = sorted.panels;
    int first = (int)((long long)rows * blockIdx.x / gridDim.x),
        last = (int)((long long)rows * (blockIdx.x + 1) / gridDim.x);
    Totals* totals = sorted.totals;
    auto grid = cooperative_groups::this_grid();
    begin_next();

    // Counts entries by rows and chunks.
    if (threadIdx.x == 0)
        highest = -1, longest = 0;
    for (int i = blockIdx.x * kSorters + threadIdx.x; i < kMaxChunks * panels * kBins;
         i += gridDim.x * kSorters)
        sorted.lengths[i] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *totals = Totals();
    __syncthreads();
    int mine = -1, most = 0;
    share.for_each_row(
        first, last, max_nnz_per_row, col_ids, [](int) {},
        [&](int w, size_t, int column) {
            mine = max(mine, column);
            if (column / kHeight < kMaxChunks)
                atomicAdd(&share.counters[w][half_of(column)], 1);
        },
        [&](int row) {
            int2 both = ((const int2*)share.counters[warp])[lane];
            ((int2*)(sorted.keys + row * (size_t)kMaxHalves))[lane] = both;
            most = max(most, both.x + both.y);
        });
    mine = __reduce_max_sync(kFullMask, mine);
    most = __reduce_max_sync(kFullMask, most);
    if (lane == 0)
        atomicMax(&highest, mine), atomicMax(&longest, most);
    __syncthreads();
    if (threadIdx.x == 0)
        sorted.seen[blockIdx.x] = make_int2(highest, longest);
    grid.sync();

    // Counts rows by length.
    int columns = -1;
    for (int i = lane; i < gridDim.x; i += 32) {
        int2 seen = __ldcg(sorted.seen + i);
        columns = max(columns, seen.x);
        most = max(most, seen.y);
    }
    columns = __reduce_max_sync(kFullMask, columns) + 1;
    int chunks = max(1, (int)((columns + (long long)kHeight - 1) / kHeight)),
        most_pairs = pairs_of(min(__reduce_max_sync(kFullMask, most), kLongest));
    bool fits = sorted.place(chunks, most_pairs);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        totals->columns = columns;
        totals->chunks = chunks;
        totals->most_pairs = most_pairs;
        if (!fits)
            totals->unfit = 1;
    }
    if (!fits)
        return;
    // Where there is but one chunk, its groups write Y, rows without entries too.
    auto counts = [&](int count) { return chunks == 1 || count > 0; };
    for (int row = first + warp; row < last; row += kWarps)
        for (int c = lane; c < chunks; c += 32) {
            int2* key = (int2*)(sorted.keys + row * (size_t)kMaxHalves) + c;
            int even = key->x, odd = key->y, count = even + odd;
            size_t run = c * (size_t)panels + row / kPanel;
            if (max(even, odd) >= 1 << (31 - kRankBits))
                totals->huge = 1;
            else if (counts(count))
                key->x = even << kRankBits | atomicAdd(sorted.lengths + run * kBins + bin_of(count), 1);
        }
    // Sums that many chunks add to.
    if (chunks > 1)
        for (size_t i = blockIdx.x * (size_t)kSorters + threadIdx.x; i < many_sums / 4;
             i += gridDim.x * (size_t)kSorters)
            ((float4*)sums)[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    grid.sync();
    if (__ldcg(&totals->huge))
        return;

    // Takes rows and entries to their places, longer rows first.
    for (int panel = first / kPanel; panel * kPanel < last; ++panel) {
        __syncthreads();
        for (int c = warp; c < chunks; c += kWarps) {
            size_t run = c * (size_t)panels + panel;
            int before = 0, shared = 0, longs = 0;
            for (int top = kBins - 1; top >= 0; top -= 32) {
                int b = top - lane, rows_of_bin = b >= 0 ? __ldcg(sorted.lengths + run * kBins + b) : 0;
                int end = rows_of_bin;
                for (int distance = 1; distance < 32; distance *= 2) {
                    int others = __shfl_up_sync(kFullMask, end, distance);
                    if (lane >= distance)
                        end += others;
                }
                if (b >= 0)
                    starts[c][b] = before + end - rows_of_bin;
                if (top == kBins - 1) {
                    shared = __shfl_sync(kFullMask, end, 0);
                    longs = __shfl_sync(kFullMask, end, 1);
                }
                before += __shfl_sync(kFullMask, end, 31);
            }
            if (lane == 0 && panel * kPanel >= first) // this block has the panel's first row
                sorted.runs[run] = make_int4(shared, longs, before, 0);
        }
        __syncthreads();
        share.for_each_row(
            max(first, panel * kPanel), min(last, (panel + 1) * kPanel), max_nnz_per_row, col_ids,
            [&](int row) {
                for (int c = lane; c < chunks; c += 32) {
                    int2* at = (int2*)(sorted.keys + row * (size_t)kMaxHalves) + c;
                    int even = at->x >> kRankBits, rank = at->x % kPanel, odd = at->y;
                    int count = even + odd, bin = bin_of(count), run = c * panels + panel, pair;
                    if (!counts(count))
                        continue;
                    int position = starts[c][bin] + rank, pairs = pairs_of(count);
                    if (bin < kBins - 2) {
                        pair = sorted.pair_of(run, position - starts[c][kBins - 3]);
                    } else {
                        pair = sorted.first_long + atomicAdd(&totals->used, pairs);
                        bool there = pair >= 0 && pair <= sorted.pairs - pairs;
                        if (there)
                            at->x = pair;
                        else
                            totals->unfit = 1;
                        pair = there ? ~pair : kNowhere;
                    }
                    sorted.order[(size_t)run * kPanel + position] = make_int2(row, count);
                    share.slots[warp][c] = pair;
                    share.both[warp][c] = min(even, odd);
                    if (count % 2 != 0 && pair != kNowhere)
                        sorted.put(2 * (size_t)(pair < 0 ? ~pair + count / 2 : pair + count / 2 * kRows) + 1,
                                   0, Element(0.0f));
                }
            },
            [&](int w, size_t at, int column) {
                Element value = values[at];
                int c = column / kHeight, half = half_of(column), n = atomicAdd(&share.counters[w][half], 1);
                int slot = share.slots[w][c], both = share.both[w][c];
                if (slot == kNowhere)
                    return;
                // Entries of even and odd rows of the slab in turn while there are both; in odd lanes odd ones first.
                n = n < both ? 2 * n + ((half ^ slot) & 1) : both + n;
                size_t pair = slot < 0 ? ~slot + n / 2 : slot + n / 2 * kRows;
                sorted.put(2 * pair + n % 2, 1 + column - c * kHeight, value);
            },
            [](int) {});
    }
}

__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int rows, int max_nnz_per_row, int K, const Element* __restrict__ values,
                              const int* __restrict__ col_ids, const Element* __restrict__ X, Element* Y,
                              float* sums, Sorted sorted) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ float long_sums[kWidth];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, place = lane % kChunk;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows), its_slab = slab + lane % 8 / 2 * 16;
    int slabs = (K - 1) / kWidth + 1, panels = sorted.panels;
    begin_next();
    wait_for_last();
    Totals totals = *sorted.totals;
    int chunks = totals.chunks;
    if (totals.unfit || totals.huge || !sorted.place(chunks, totals.most_pairs)) {
        multiply_plainly(rows, max_nnz_per_row, K, values, col_ids, X, Y);
        return;
    }
    // Where there are few units, blocks share their groups.
    int parts = max(1, (int)gridDim.x / min(chunks * slabs, (int)gridDim.x)), units = chunks * slabs * parts;
    // Sums of four columns: those of one chunk alone are rounded at once.
    auto give = [&](const Sums& sum, int four, size_t at) {
        if (chunks == 1)
            *(uint2*)(Y + at) = rounded(sum.four(four));
        else
            sum.add_four(four, sums + at);
    };
#ifdef __CUDA_ARCH__
    // Blocks begin one after the other: all at a time they would wait for memory together, and leave it idle together.
    if (units >= kManyRounds * (int)gridDim.x)
        for (long long begun = clock64(); clock64() - begun < blockIdx.x * (kStagger * 1900LL) / gridDim.x;) {
        }
#endif
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            next_unit = atomicAdd(&sorted.totals->next_unit, 1);
            next_run = 0;
        }
        __syncthreads();
        int part = next_unit % parts, unit = next_unit / parts;
        if (next_unit >= units)
            break;
        // Blocks that work at a time share rows of Y. The last chunk, which may have fewer columns, comes last.
        int chunk = chunks - 1, index = unit - slabs * (chunks - 1);
        if (index < 0) {
            chunk = unit % (chunks - 1);
            index = unit / (chunks - 1);
        }
        long long first_column = (long long)index * kWidth;
        int last_row = min(kHeight, totals.columns - chunk * kHeight);
        const Element* corner = X + (size_t)chunk * kHeight * K + first_column;
        // A thread has one of a row's parts in all rows that it loads.
        int its_part = threadIdx.x % kChunk;
        const Element* from = corner + threadIdx.x / kChunk * (size_t)K + its_part * kColumns;
        int4* to = slab_rows + kChunk + threadIdx.x;
        bool exists = first_column + its_part * kColumns < K;
#pragma unroll 4
        for (int r = threadIdx.x / kChunk; r < last_row; r += kLarge / kChunk) {
            if (exists)
                __pipeline_memcpy_async(to, from, 16);
            else
                *to = make_int4(0, 0, 0, 0);
            from += kLarge / kChunk * (size_t)K;
            to += kLarge;
        }
        if (threadIdx.x < kChunk)
            slab_rows[threadIdx.x] = make_int4(0, 0, 0, 0);
        __pipeline_commit();

        // Groups. Lanes hold the next row, and how many entries it has.
        const int4* runs = sorted.runs + (size_t)chunk * panels;
        const int2* order = sorted.order + (size_t)chunk * panels * kPanel;
        const int* keys = sorted.keys + 2 * chunk;
        int next = 0, next_first = 0;
        int2 next_row = make_int2(-1, 0);
        auto fetch = [&]() {
            int position, end;
            do {
                if (lane == 0)
                    next = atomicAdd(&next_run, 1) * parts + part;
                next = __shfl_sync(kFullMask, next, 0);
                if (next >= panels * kGroups)
                    return;
                int4 run = __ldg(runs + next / kGroups);
                position = run.y + next % kGroups * kRows;
                end = run.z;
            } while (position >= end);
            position += lane;
            next_row = position < end ? __ldg(order + (size_t)(next / kGroups) * kPanel + position)
                                      : make_int2(-1, 0);
            next_first = sorted.pair_of(chunk * panels, next * kRows + lane);
        };
        fetch();
        Batch now;
        if (next < panels * kGroups)
            now.load(sorted, next_first, 0, pairs_of(next_row.y));
        __pipeline_wait_prior(0);
        __syncthreads();

        long long k = first_column + place * kColumns;
        long long turned = first_column + lane % 8 / 2 * kColumns; // after turn()
        // Rows that the whole block shares, four lanes an entry.
        for (int panel = 0; panel < panels; ++panel) {
            int longs = __ldg(runs + panel).x;
            for (int i = part; i < longs; i += parts) {
                int2 row = __ldg(order + (size_t)panel * kPanel + i);
                int first = __ldg(keys + row.x * (size_t)kMaxHalves), pairs = pairs_of(row.y);
                Sums sum = sum_long(sorted, first + threadIdx.x / kChunk, first + pairs, kLarge / kChunk,
                                    slab + place * 16);
                if (threadIdx.x < kWidth)
                    long_sums[threadIdx.x] = 0.0f;
                __syncthreads();
                sum.add_lanes();
                if (lane < kChunk)
#pragma unroll
                    for (int c = 0; c < kColumns; ++c)
                        atomicAdd(&long_sums[place * kColumns + c], sum.at[c]);
                __syncthreads();
                if (threadIdx.x < kChunk && k < K) {
#pragma unroll
                    for (int c = 0; c < kColumns; ++c)
                        sum.at[c] = long_sums[place * kColumns + c];
                    for (int c = 0; c < kColumns; c += 4)
                        give(sum, c, (size_t)row.x * K + k + c);
                }
                __syncthreads();
            }
        }

        // Rows that a warp takes alone, four lanes an entry.
        for (int panel = 0; panel < panels; ++panel) {
            int4 longs = __ldg(runs + panel);
            for (int i = longs.x + (int)threadIdx.x / 32 * parts + part; i < longs.y;
                 i += kLarge / 32 * parts) {
                int2 row = __ldg(order + (size_t)panel * kPanel + i);
                int first = __ldg(keys + row.x * (size_t)kMaxHalves), pairs = pairs_of(row.y);
                Sums sum =
                    sum_long(sorted, first + lane / kChunk, first + pairs, 32 / kChunk, slab + place * 16);
                sum.add_lanes();
                if (lane < kChunk && k < K)
                    for (int c = 0; c < kColumns; c += 4)
                        give(sum, c, (size_t)row.x * K + k + c);
            }
        }

        while (next < panels * kGroups) {
            int2 row = next_row;
            int first = next_first, pairs = pairs_of(row.y), left = __reduce_max_sync(kFullMask, row.y);
            fetch();
            Sums sum[kChunk];
#pragma unroll
            for (int j = 0; j < kChunk; ++j)
                sum[j].clear();
            Batch next_batch;
            for (int at = kBatch; left > 2 * kBatch; at += kBatch, left -= 2 * kBatch) {
                next_batch.load(sorted, first, at, pairs);
                now.add_all(sum, its_slab);
                now = next_batch;
            }
            next_batch.load(sorted, next_first, 0, pairs_of(next_row.y));
            now.add_to(sum, left, its_slab);
            now = next_batch;
            turn(sum);
#pragma unroll
            for (int j = 0; j < kQuads; ++j) {
                int target = __shfl_sync(kFullMask, row.x, lane / kQuads * kQuads + j);
                if (target >= 0 && turned < K)
                    give(sum[j / 2], j % 2 * 4, (size_t)target * K + turned + (lane + j) % 2 * 4);
            }
        }
    }
}

// Rounds sums, once.
constexpr int kRounders = 256;
__global__ void __launch_bounds__(kRounders)
    round_kernel_optimized(size_t quads, const float4* __restrict__ sums, uint2* __restrict__ Y,
                           const Totals* totals) {
    wait_for_last();
    if (totals->unfit || totals->huge || totals->chunks == 1)
        return;
#pragma unroll 4
    for (size_t i = blockIdx.x * (size_t)kRounders + threadIdx.x; i < quads;
         i += gridDim.x * (size_t)kRounders)
        Y[i] = rounded(__ldcs(sums + i));
}

// Launches a kernel whose blocks may begin before the launch before it has ended.
template <class... Parameters, class... Arguments>
static void launch_early(void (*kernel)(Parameters...), int grid, int block, int shared,
                         Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(block);
    config.dynamicSmemBytes = shared;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...);
}

// Multiplies by slabs where that is possible; returns whether it was.
static bool by_slabs(int rows, int max_nnz_per_row, int K, const Element* values, const int* col_ids,
                     const Element* X, Element* Y) {
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
    size_t used = 0, many_sums = (size_t)rows * K;
    auto take = [&](size_t count) {
        int* at = ints + used;
        used += (count + 31) / 32 * 32; // begins a line
        return at;
    };
    Sorted sorted = {};
    sorted.panels = (rows - 1) / kPanel + 1;
    sorted.totals = (Totals*)take(sizeof(Totals) / sizeof(int));
    sorted.seen = (int2*)take(2 * (size_t)processors);
    sorted.lengths = take((size_t)kMaxChunks * sorted.panels * kBins);
    sorted.runs = (int4*)take(4 * (size_t)kMaxChunks * sorted.panels);
    sorted.keys = take((size_t)rows * kMaxHalves);
    float* sums = (float*)take(many_sums);
    if (used >= kArena)
        return false;
    sorted.rest = ints + used;
    sorted.room = kArena - used;
    void* arguments[] = {&rows, &max_nnz_per_row, &values, &col_ids, &sums, &many_sums, &sorted};
    if (cudaLaunchCooperativeKernel(sort_kernel_optimized, dim3(processors), dim3(kSorters), arguments, 0,
                                    0) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    launch_early(multiply_kernel_optimized, processors, kLarge, kShared, rows, max_nnz_per_row, K, values,
                 col_ids, X, Y, sums, sorted);
    launch_early(round_kernel_optimized, processors * 8, kRounders, 0, many_sums / 4, (const float4*)sums,
                 (uint2*)Y, (const Totals*)sorted.totals);
    return true;
}

// Step 1, for matrices that are too small or too wide.
constexpr int kThreads = 256;
constexpr int kLanes = 8;                        // lanes that share a row
constexpr int kLaneWidth = 8;                    // columns that a lane makes
constexpr int kNarrowSlab = kLanes * kLaneWidth; // columns that a block makes
constexpr int kBlockRows = kThreads / kLanes;    // rows that a block makes
constexpr int kSlots = 32; // slots of a row in shared memory, one for each lane of a warp

// Adds `value` times eight columns of a row of X from `at` on, of which `left` exist.
template <bool kVectors>
__device__ void add_columns(float* sum, float value, const __nv_bfloat16* at, long long left) {
    if constexpr (kVectors) {
        uint4 pairs = *(const uint4*)at;
        unsigned int pair[kLaneWidth / 2] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
        for (int i = 0; i < kLaneWidth / 2; ++i) {
            // A bf16 number is the upper half of the same number in fp32.
            sum[2 * i] += value * __uint_as_float(pair[i] << 16);
            sum[2 * i + 1] += value * __uint_as_float(pair[i] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < kLaneWidth; ++i)
            sum[i] += i < left ? value * __bfloat162float(at[i]) : 0.0f;
    }
}

template <bool kVectors> __device__ void store_columns(__nv_bfloat16* at, long long left, const float* sum) {
    __align__(16) __nv_bfloat16 rounded[kLaneWidth];
#pragma unroll
    for (int i = 0; i < kLaneWidth; ++i)
        rounded[i] = __float2bfloat16(sum[i]);
    if constexpr (kVectors) {
        __stcs((uint4*)at, *(const uint4*)rounded);
    } else {
#pragma unroll
        for (int i = 0; i < kLaneWidth; ++i)
            if (i < left)
                at[i] = rounded[i];
    }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    spmm_ell_bf16_kernel_optimized(int rows, int max_nnz_per_row, int K,
                                   const __nv_bfloat16* __restrict__ values, const int* __restrict__ col_ids,
                                   const __nv_bfloat16* __restrict__ X, __nv_bfloat16* __restrict__ Y) {
    __shared__ int2
        staged[kBlockRows][kSlots + 1]; // column, and the bits of the value; padded against bank conflicts
    __shared__ int filled[kBlockRows];  // entries of each row among them
    long long first_row = (long long)blockIdx.x * kBlockRows;
    int local_row = threadIdx.x / kLanes;
    long long row = first_row + local_row;
    long long slab_stride = (long long)gridDim.y * kNarrowSlab;
    for (long long slab = (long long)blockIdx.y * kNarrowSlab; slab < K; slab += slab_stride) {
        long long k = slab + threadIdx.x % kLanes * kLaneWidth;
        bool inside = row < rows && k < K;
        float sum[kLaneWidth] = {};
        for (long long chunk = 0; chunk < max_nnz_per_row; chunk += kSlots) {
            int lane = threadIdx.x % 32;
            __syncthreads();
            for (int r = threadIdx.x / 32; r < kBlockRows; r += kThreads / 32) {
                bool exists = first_row + r < rows && chunk + lane < max_nnz_per_row;
                size_t slot = (first_row + r) * (size_t)max_nnz_per_row + chunk + lane;
                int column = exists ? col_ids[slot] : -1;
                float value = exists ? __bfloat162float(values[slot]) : 0.0f;
                staged[r][lane] = make_int2(column, __float_as_int(value));
                unsigned entries = __ballot_sync(kFullMask, column >= 0);
                if (lane == 0)
                    filled[r] = __popc(entries);
            }
            __syncthreads();
            int entries = inside ? filled[local_row] : 0;
#pragma unroll 4
            for (int i = 0; i < entries; ++i) {
                int2 entry = staged[local_row][i];
                add_columns<kVectors>(sum, __int_as_float(entry.y), X + entry.x * (size_t)K + k, K - k);
            }
        }
        if (inside)
            store_columns<kVectors>(Y + row * (size_t)K + k, K - k, sum);
    }
}

extern "C" void spmm_ell_bf16_optimized(int rows, int max_nnz_per_row, int K, const __nv_bfloat16* values,
                                        const int* col_ids, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    if ((double)rows * max_nnz_per_row * K >= kManyTerms && K >= kManyColumns &&
        by_slabs(rows, max_nnz_per_row, K, values, col_ids, X, Y))
        return;
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_ell_bf16_kernel_optimized<true>
            <<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
    else
        spmm_ell_bf16_kernel_optimized<false>
            <<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
}
