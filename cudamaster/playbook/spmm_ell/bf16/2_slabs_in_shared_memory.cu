// idea: Keep slabs of X in shared memory, one chunk of A's columns after the other
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and X is larger than L2. A
//      slab of up to 1792 rows by 64 columns of X, one line of 128 bytes in each row, fits into an SM's
//      shared memory, which delivers 128 bytes a cycle. So A's columns are cut into chunks, and a block
//      multiplies the entries of one chunk by one slab: each element of X is loaded from memory once. What a
//      chunk gives to Y is added by reductions of 16 bytes to sums in fp32, which are rounded at the end. A
//      lane has a row of A to itself and sums all 64 columns, so an entry is loaded once and not by each lane
//      that shares a row. It goes through the eight parts of 16 bytes of a line in an order of its own: the
//      eight lanes that shared memory serves at a time meet in no bank. In each chunk the rows are sorted by
//      length, 2048 at a time, since the 32 rows of a warp should end together. Entries shrink to 4 bytes:
//      the row of the slab and the bf16 value. Before the additions the lanes of a warp exchange sums, so
//      that eight lanes add to a whole line. A warp takes a row of more than 128 entries in a chunk, eight
//      lanes an entry, and a block one of more than 1024. Sorting is four launches, each of which begins
//      while the one before it ends, and the host waits for none of them up to 1048576 slots: the first finds
//      how many columns there are, which the call does not say, and cuts them so that the last round of
//      blocks is full; the second counts the entries of each row and chunk; the third gives rows their
//      places, a block for each 2048; the fourth takes the entries there. Sums are cleared on the way. Where
//      there are many chunks blocks begin one after the other, so that some load slabs while others multiply.
//      Step 1's kernel takes fewer than 200000 slots, K that is no multiple of 8, matrices that have more
//      than 1048576 slots and more than 114688 columns, and GPUs with less shared memory than an H100. By
//      benchmarks/spmm_times.cu an H100 takes 188, 290 and 448 µs at 8192, 16384 and 32768 columns and K =
//      4096, where the form before, sorted by five launches with a wait of the host between them, takes 227,
//      320 and 523. With half of the entries in 40 rows, at 4096 columns, it takes 180 where that form takes
//      314, and with half of them in three rows, at 8192, 478 where it takes 521. What bound that form on an
//      H200: of 480 µs at 32768 columns the multiplication took 390, in which the pipe of shared memory was
//      busy in 71 % of the cycles and instructions were issued in 67; 21 % fewer of them made it 3 % faster,
//      no additions to sums 13 %, no loads of slabs 7 %. Sums that begin a line, and eight lanes that add to
//      a whole line of them where they added to halves of two, save that pipe a tenth of its work. Tried, and
//      no faster: the last block that adds to a slab rounds it; so the multiplication took 166 µs at 8192
//      columns on an H200, where it had taken 125, and rounding by a launch of its own 13.
// flags: -O3 --use_fast_math
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>

using Element = __nv_bfloat16;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 16 / sizeof(Element); // columns in 16 bytes
constexpr int kChunk = 8;                      // times 16 bytes are a row of the slab: all banks once
constexpr int kWidth = kChunk * kColumns;      // columns of a slab
constexpr int kHeight = 1792;                  // rows of X in a slab at most
constexpr int kShared = (kHeight + 1) * kChunk * 16;
constexpr int kRows = 32;     // rows of A in a group, one for each lane
constexpr int kPanel = 2048;  // rows of A that are sorted by length together
constexpr int kExact = 64;    // entries up to which rows are sorted by their exact number
constexpr int kStep = 4;      // and of longer rows each so many lengths stand together
constexpr int kLongest = 128; // entries in a row of a group at most
constexpr int kAlone = 1024;  // entries in a longer row that one warp takes
constexpr int kMaxChunks = 64;
// One for each length, and the last two for longer rows.
constexpr int kBins = kExact + 1 + (kLongest - kExact) / kStep + 2;
constexpr int kGroups = kPanel / kRows;      // of a panel
constexpr int kPanelPlaces = kPanel + kRows; // in the order of a panel's rows
constexpr int kPlacers = 1024;               // threads of a block that looks at the matrix, or sorts rows
constexpr int kSorters = 128;                // threads of a block that looks at slots
constexpr int kManySeen = 1024;              // multiprocessors at most
constexpr int kLarge = 512;                  // threads of a block that multiplies
constexpr int kBatch = 2;                    // pairs of entries that a lane asks for at a time
constexpr int kUnitCost = 400;               // rows of X that the additions of a unit's sums cost as much as
constexpr int kLoadCost = 12; // rows of X in a slab that are loaded while the entries of one are multiplied
constexpr int kStagger = 32; // microseconds, about, between the begin of the first block and that of the last
constexpr int kManyRounds = 8;      // units of a block from which this is worthwhile
constexpr int kManySlots = 200000;  // from which sorting the entries by chunks is worthwhile
constexpr size_t kBlind = 1 << 20;  // slots from which it is asked how many entries there are
constexpr int kManyColumns = 512;   // of X
constexpr size_t kArena = 16 << 20; // ints

__device__ __align__(128) int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    int columns, chunks, height; // height: columns of a chunk
    int parts;                   // that share the groups of a chunk and slab
    int units;                   // chunks times slabs times parts
    int next_unit;
    int used;  // places, in rows of kRows pairs
    int unfit; // whether there are more columns or entries than places for them
};

// Where the matrix is sorted. A key is a row of A within a chunk of columns: chunk * rows + row. A panel is kPanel rows within a
// chunk: chunk * panels + number.
struct Sorted {
    Totals* totals;
    int2* seen;  // by blocks that look: last column that has entries, and how many
    int* counts; // of keys: entries in the slab
    int* slots;  // of keys: place of the first pair, for long rows ~place
    int* order;  // of panels: rows, longest first, -1 for none
    int2*
        longs; // of panels: how many rows a block shares, the first in that order, and with those of one warp
    int4* groups;     // of panels: first pair, entries or -1 for no group, place in the order
    unsigned* packed; // entries: row of the slab, and in the upper half the value
    size_t room;      // for rows of kRows pairs
};

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

__device__ int bin_of(int count) {
    int length = count <= kExact ? count : kExact + (count - kExact + kStep - 1) / kStep;
    return count <= kLongest ? length : count <= kAlone ? kBins - 2 : kBins - 1;
}

// The most entries that a row of this bin has.
__device__ int longest_of(int bin) {
    return bin <= kExact ? bin : kExact + (bin - kExact) * kStep;
}

constexpr int kSlack = 2 * kBatch * kRows; // pairs behind the last that are read, not used

// Writes an entry of row `row` of the slab; row 0 are zeros.
__device__ void put(const Sorted& sorted, size_t place, int row, Element value) {
    sorted.packed[place] = (unsigned)row | (unsigned)__bfloat16_as_ushort(value) << 16;
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

// Clears a share of sums that many chunks add to.
__device__ void clear(float* sums, size_t many) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < many / 4;
         i += gridDim.x * (size_t)blockDim.x)
        ((float4*)sums)[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// Finds the last column that has any entries, and how many there are, for each block.
__global__ void __launch_bounds__(kPlacers)
    look_kernel_optimized(long long slots, const int* __restrict__ col_ids, Sorted sorted) {
    constexpr int kAhead = 8;
    __shared__ int highest, total;
    begin_next();
    if (threadIdx.x == 0)
        highest = -1, total = 0;
    __syncthreads();
    int mine = -1, entries = 0;
    for (long long first = blockIdx.x * (long long)kPlacers + threadIdx.x; first < slots;
         first += gridDim.x * (long long)kPlacers * kAhead) {
        int column[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            long long slot = first + i * (long long)kPlacers * gridDim.x;
            column[i] = slot < slots ? col_ids[slot] : -1;
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            mine = max(mine, column[i]), entries += column[i] >= 0;
    }
    mine = __reduce_max_sync(kFullMask, mine);
    entries = __reduce_add_sync(kFullMask, entries);
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine), atomicAdd(&total, entries);
    __syncthreads();
    if (threadIdx.x == 0)
        sorted.seen[blockIdx.x] = make_int2(highest, total);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *sorted.totals = Totals();
}

// How long a grid of `processors` blocks takes, in rows of X, if a chunk has `height` columns: full chunks come first, and the
// last, which may have fewer, is shared out behind them.
__device__ int time_of(int columns, int height, int slabs, int parts, int processors) {
    int full = columns / height, rest = columns % height;
    auto unit = [&](int rows) { return rows / kLoadCost + (rows + kUnitCost) / parts + 1; };
    int units = full * slabs * parts, rounds = units / processors, left = units % processors;
    int time = (rounds + (left > 0)) * unit(height);
    int small = rest > 0 ? slabs * parts : 0;
    if (small > 0 && left > 0) // those that had one less full unit
        small -= (processors - left) * (unit(height) / unit(rest));
    return small > 0 ? time + (small + processors - 1) / processors * unit(rest) : time;
}

// How A's columns are cut, by a warp.
__device__ Totals plan(int columns, int slabs, int processors) {
    int least = columns > 0 ? (columns - 1) / kHeight + 1 : 1;
    // Lane 0 tries chunks as high as they can be, lane i as many more chunks of equal heights.
    int lane = threadIdx.x % 32, chunks = least + lane - 1;
    int height = lane == 0 || columns == 0 ? kHeight : (columns - 1) / chunks + 1;
    chunks = columns > 0 ? (columns - 1) / height + 1 : 1;
    int parts = max(1, processors / max(1, min(chunks * slabs, processors)));
    int time = chunks <= kMaxChunks || lane == 0
                   ? time_of(columns, height, min(slabs, 4096), parts, processors)
                   : 0x7fffffff;
    int best = __reduce_min_sync(kFullMask, time);
    int from = __ffs(__ballot_sync(kFullMask, time == best)) - 1;
    Totals totals = {};
    totals.columns = columns;
    totals.chunks = __shfl_sync(kFullMask, chunks, from);
    totals.height = __shfl_sync(kFullMask, height, from);
    totals.parts = __shfl_sync(kFullMask, parts, from);
    totals.units = totals.chunks * slabs * totals.parts;
    totals.unfit = totals.chunks > kMaxChunks;
    return totals;
}

constexpr int kAtOnce = 4;                 // slots that a thread looks at together
constexpr int kPiece = kAtOnce * kSorters; // neighbouring slots of a row that a block looks at together

// Calls visit(slot, column) for the entries of a row, those of a block's threads together.
template <class Visit>
__device__ void for_each_entry(int row, int width, const int* __restrict__ col_ids, Visit visit) {
    for (int piece = 0; piece < width; piece += kPiece) {
        size_t slot = row * (size_t)width + piece + threadIdx.x;
        int column[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            column[i] =
                (long long)piece + threadIdx.x + i * kSorters < width ? col_ids[slot + i * kSorters] : -1;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            if (column[i] >= 0)
                visit(slot + i * kSorters, column[i]);
        // Padding stands behind all entries.
        if (width - piece <= kPiece || !__syncthreads_or(column[kAtOnce - 1] >= 0))
            break;
    }
}

// Counts the entries of each key, a block those of a row.
__global__ void __launch_bounds__(kSorters)
    count_kernel_optimized(int rows, int max_nnz_per_row, const int* __restrict__ col_ids, int lookers,
                           int slabs, float* sums, size_t many_sums, Sorted sorted) {
    __shared__ int counts[kMaxChunks];
    __shared__ Totals totals;
    static_assert(kMaxChunks <= kSorters);
    begin_next();
    wait_for_last();
    if (threadIdx.x < 32) {
        int highest = -1;
        for (int i = threadIdx.x; i < lookers; i += 32)
            highest = max(highest, sorted.seen[i].x);
        Totals plans = plan(__reduce_max_sync(kFullMask, highest) + 1, slabs, lookers);
        if (threadIdx.x == 0) {
            totals = plans;
            if (blockIdx.x == 0)
                *sorted.totals = plans;
        }
    }
    __syncthreads();
    int chunks = totals.chunks, height = totals.height, chunk = threadIdx.x;
    if (totals.unfit)
        return;
    clear(sums, many_sums);
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        if (chunk < chunks)
            counts[chunk] = 0;
        __syncthreads();
        auto count = [&](size_t, int column) { atomicAdd(&counts[column / height], 1); };
        for_each_entry(row, max_nnz_per_row, col_ids, count);
        __syncthreads();
        if (chunk < chunks)
            sorted.counts[(size_t)chunk * rows + row] = counts[chunk];
    }
}

// The sums of all threads before a thread, and of all threads in `total`.
__device__ int sum_before(int mine, int* total) {
    __shared__ int warp_sums[kPlacers / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int end = mine;
    for (int distance = 1; distance < 32; distance *= 2) {
        int before = __shfl_up_sync(kFullMask, end, distance);
        if (lane >= distance)
            end += before;
    }
    __syncthreads();
    if (lane == 31)
        warp_sums[warp] = end;
    __syncthreads();
    int sum = warp_sums[lane];
    *total = __reduce_add_sync(kFullMask, sum);
    return __reduce_add_sync(kFullMask, lane < warp ? sum : 0) + end - mine;
}

// Sorts the rows of each panel by length into groups, gives each key its place, and fills places that no entry will take with
// products of zeros.
__global__ void __launch_bounds__(kPlacers)
    place_kernel_optimized(int rows, int panels, float* sums, size_t many_sums, Sorted sorted) {
    static_assert(kPlacers == 1024 && kBins <= kPlacers && kGroups <= kPlacers);
    constexpr int kMine = kPanel / kPlacers;
    __shared__ int lengths[kBins], starts[kBins], group_lengths[kGroups], group_places[kGroups];
    __shared__ int base;
    begin_next();
    wait_for_last();
    // Not `unfit`, which other blocks may set now: threads of a block would read different answers.
    int chunks = sorted.totals->chunks;
    if (chunks > kMaxChunks)
        return;
    for (int panel = blockIdx.x; panel < chunks * panels; panel += gridDim.x) {
        int chunk = panel / panels, first_row = panel % panels * kPanel, i = threadIdx.x;
        int count[kMine], rank[kMine];
        __syncthreads();
        if (i < kBins)
            lengths[i] = 0;
        if (i < kGroups)
            group_lengths[i] = -1;
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kMine; ++r) {
            int row = first_row + r * kPlacers + i;
            count[r] = row < rows ? sorted.counts[(size_t)chunk * rows + row] : -1;
            rank[r] = count[r] > 0 ? atomicAdd(&lengths[bin_of(count[r])], 1) : 0;
        }
        __syncthreads();
        int total, longs = lengths[kBins - 1] + lengths[kBins - 2];
        int start = sum_before(i < kBins ? lengths[kBins - 1 - i] : 0, &total);
        if (i < kBins)
            starts[kBins - 1 - i] = start;
        __syncthreads();
        // The first row of a group is its longest, or as long.
#pragma unroll
        for (int r = 0; r < kMine; ++r) {
            int bin = bin_of(count[r]);
            rank[r] += count[r] > 0 ? starts[bin] : 0;
            if (count[r] > 0 && rank[r] >= longs && (rank[r] - longs) % kRows == 0)
                group_lengths[(rank[r] - longs) / kRows] = longest_of(bin);
        }
        __syncthreads();
        int length = i < kGroups ? group_lengths[i] : -1, used;
        int place = sum_before(length > 0 ? pairs_of(length) : 0, &used);
        if (i == 0) {
            base = atomicAdd(&sorted.totals->used, used);
            sorted.longs[panel] = make_int2(lengths[kBins - 1], longs);
        }
        __syncthreads();
        // Where places are lacking, nothing is written.
        if ((size_t)base + used > sorted.room)
            sorted.totals->unfit = 1;
        bool fits = (size_t)base + used <= sorted.room;
        if (i < kGroups) {
            group_places[i] = base + place;
            sorted.groups[(size_t)panel * kGroups + i] =
                make_int4((base + place) * kRows, length, panel * kPanelPlaces + longs + i * kRows, 0);
        }
        __syncthreads();
        auto pad = [&](int group, int member, int from) {
            for (int e = from; e < 2 * pairs_of(group_lengths[group]); ++e)
                put(sorted, 2 * ((size_t)(group_places[group] + e / 2) * kRows + member) + e % 2, 0,
                    Element(0.0f));
        };
#pragma unroll
        for (int r = 0; r < kMine; ++r) {
            if (count[r] <= 0)
                continue;
            int row = first_row + r * kPlacers + i, slot, at = rank[r] - longs;
            sorted.order[(size_t)panel * kPanelPlaces + rank[r]] = row;
            if (at < 0) {
                int pairs = pairs_of(count[r]), needed = (pairs + kRows - 1) / kRows;
                int first = atomicAdd(&sorted.totals->used, needed);
                if ((size_t)first + needed > sorted.room)
                    sorted.totals->unfit = 1;
                else if (count[r] % 2 != 0)
                    put(sorted, 2 * ((size_t)first * kRows + pairs - 1) + 1, 0, Element(0.0f));
                slot = ~(first * kRows);
            } else {
                slot = group_places[at / kRows] * kRows + at % kRows;
                if (fits)
                    pad(at / kRows, at % kRows, count[r]);
            }
            sorted.slots[(size_t)chunk * rows + row] = slot;
        }
        // Members that the last group lacks.
        int last = total - longs, member = last + i;
        if (i < kRows && last % kRows != 0 && member / kRows == last / kRows) {
            sorted.order[(size_t)panel * kPanelPlaces + longs + member] = -1;
            if (fits)
                pad(member / kRows, member % kRows, 0);
        }
    }
    clear(sums, many_sums);
}

// Takes each entry to its place, a block those of a row.
__global__ void __launch_bounds__(kSorters)
    scatter_kernel_optimized(int rows, int max_nnz_per_row, const Element* __restrict__ values,
                             const int* __restrict__ col_ids, Sorted sorted) {
    __shared__ int slots[kMaxChunks], counts[kMaxChunks];
    begin_next();
    wait_for_last();
    int chunks = sorted.totals->chunks, height = sorted.totals->height, chunk = threadIdx.x;
    if (sorted.totals->unfit)
        return;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        __syncthreads();
        if (chunk < chunks) {
            counts[chunk] = 0;
            slots[chunk] = sorted.slots[(size_t)chunk * rows + row];
        }
        __syncthreads();
        auto move = [&](size_t at, int column) {
            Element value = values[at];
            int of = column / height, n = atomicAdd(&counts[of], 1), slot = slots[of];
            size_t pair = slot < 0 ? ~slot + n / 2 : slot + n / 2 * kRows;
            put(sorted, 2 * pair + n % 2, 1 + column - of * height, value);
        };
        for_each_entry(row, max_nnz_per_row, col_ids, move);
    }
}

template <class T> __device__ T stream(const T* at) {
    return __ldg(at);
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

// The part of the slab that a lane's sum 0 has.
__device__ int first_part() {
    int lane = threadIdx.x % kChunk;
    return lane / 2 + lane % 2 * (kChunk / 2);
}

// Adds an entry to the sums of a lane's row. Sum j has part j ^ first_part() of the slab: so the eight lanes that shared
// memory serves at a time meet in no bank, whatever their rows. `address` is that of part first_part().
__device__ void add_near(Sums* sums, float value, unsigned address) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
        sums[j].add(value, shared_at(address ^ (j * 16)));
}

// From lanes that have a row each to lanes that have columns of eight rows each: sum j then belongs to row lane / 8 * 8 + j.
// Its first four columns are those of part lane % 8 / 2, the others those of the fourth part behind it, the upper half of either
// for odd lanes. So eight lanes add to a whole line.
__device__ void turn(Sums* sums) {
    constexpr int kHalf = kColumns / 2, kFar = kChunk / 2;
    auto swap_if = [](bool swaps, float& a, float& b) {
        float here = a, there = b;
        a = swaps ? there : here;
        b = swaps ? here : there;
    };
    // Let halves that go to lanes of one distance stand in the same places.
#pragma unroll
    for (int j = 0; j < kFar; ++j)
#pragma unroll
        for (int c = 0; c < kHalf; ++c) {
            swap_if(threadIdx.x & 1, sums[j].at[c], sums[j + kFar].at[c + kHalf]);
            swap_if(threadIdx.x & 1, sums[j].at[c + kHalf], sums[j + kFar].at[c]);
        }
    Sums turned[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
            int distance = j % kFar * 2 + c / kHalf;
            float v = sums[j].at[c];
            turned[distance].at[j / kFar * kHalf + c % kHalf] =
                distance == 0 ? v : __shfl_xor_sync(kFullMask, v, distance);
        }
    // Now sum j is that of the row of the lane with whose number j differs.
#pragma unroll
    for (int bit = 1; bit < kChunk; bit *= 2)
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
            if ((j & bit) == 0)
#pragma unroll
                for (int c = 0; c < kColumns; ++c)
                    swap_if(threadIdx.x & bit, turned[j].at[c], turned[j ^ bit].at[c]);
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
        sums[j] = turned[j];
}

// The next pairs of entries of a row.
struct Batch {
    uint2 entries[kBatch];
    __device__ void load(const Sorted& sorted, size_t slot) {
        const uint2* at = (const uint2*)sorted.packed + slot;
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            entries[i] = stream(at + i * kRows);
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
        uint2 entries = stream((const uint2*)sorted.packed + pair);
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

__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int rows, int max_nnz_per_row, int K, const Element* __restrict__ values,
                              const int* __restrict__ col_ids, const Element* __restrict__ X, Element* Y,
                              float* sums, Sorted sorted) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ float long_sums[kWidth];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, place = lane % kChunk;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows);
    int slabs = (K - 1) / kWidth + 1, panels = (rows - 1) / kPanel + 1;
    begin_next();
    wait_for_last();
    Totals totals = *sorted.totals;
    int chunks = totals.chunks, height = totals.height, parts = totals.parts;
    if (totals.unfit) {
        multiply_plainly(rows, max_nnz_per_row, K, values, col_ids, X, Y);
        return;
    }
#ifdef __CUDA_ARCH__
    // Blocks begin one after the other: all at a time they would wait for memory together, and leave it idle together.
    if (totals.units >= kManyRounds * (int)gridDim.x)
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
        if (next_unit >= totals.units)
            break;
        // Blocks that work at a time share rows of Y. The last chunk, which may have fewer columns, comes last.
        int chunk = chunks - 1, index = unit - slabs * (chunks - 1);
        if (index < 0) {
            chunk = unit % (chunks - 1);
            index = unit / (chunks - 1);
        }
        long long first_column = (long long)index * kWidth;
        int last_row = min(height, totals.columns - chunk * height);
        const Element* corner = X + (size_t)chunk * height * K + first_column;
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
        __pipeline_wait_prior(0);
        __syncthreads();

        long long k = first_column + place * kColumns;
        // Rows that the whole block shares, eight lanes an entry.
        for (int panel = chunk * panels; panel < (chunk + 1) * panels; ++panel) {
            int longs = sorted.longs[panel].x;
            for (int i = part; i < longs; i += parts) {
                int row = sorted.order[(size_t)panel * kPanelPlaces + i];
                size_t key = (size_t)chunk * rows + row;
                int first = ~sorted.slots[key], pairs = pairs_of(sorted.counts[key]);
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
                    size_t at = (size_t)row * K + k;
#pragma unroll
                    for (int c = 0; c < kColumns; c += 4)
                        sum.add_four(c, sums + at + c);
                }
                __syncthreads();
            }
        }

        // Rows that a warp takes alone, eight lanes an entry.
        for (int panel = chunk * panels; panel < (chunk + 1) * panels; ++panel) {
            int2 longs = sorted.longs[panel];
            for (int i = longs.x + (int)threadIdx.x / 32 * parts + part; i < longs.y;
                 i += kLarge / 32 * parts) {
                int row = sorted.order[(size_t)panel * kPanelPlaces + i];
                size_t key = (size_t)chunk * rows + row;
                int first = ~sorted.slots[key], pairs = pairs_of(sorted.counts[key]);
                Sums sum =
                    sum_long(sorted, first + lane / kChunk, first + pairs, 32 / kChunk, slab + place * 16);
                sum.add_lanes();
                if (lane < kChunk && k < K) {
                    size_t at = (size_t)row * K + k;
#pragma unroll
                    for (int c = 0; c < kColumns; c += 4)
                        sum.add_four(c, sums + at + c);
                }
            }
        }

        // Groups. Lanes hold the length and the rows of the next one.
        const int4* groups = sorted.groups + (size_t)chunk * panels * kGroups;
        int next = 0, next_row = 0;
        int4 next_group = make_int4(0, 0, 0, 0);
        auto fetch = [&]() {
            do {
                if (lane == 0)
                    next = atomicAdd(&next_run, 1) * parts + part;
                next = __shfl_sync(kFullMask, next, 0);
                if (next >= panels * kGroups)
                    return;
                next_group = __ldg(groups + next);
            } while (next_group.y < 0);
            next_row = __ldg(sorted.order + next_group.z + lane);
        };
        fetch();
        Batch now;
        if (next < panels * kGroups)
            now.load(sorted, (size_t)next_group.x + lane);
        long long turned = first_column + place / 2 * kColumns + place % 2 * (kColumns / 2); // after turn()
        constexpr int kFar = kWidth / 2;
        unsigned its_slab = slab + first_part() * 16;
        while (next < panels * kGroups) {
            int row = next_row, left = next_group.y;
            size_t slot = (size_t)next_group.x + lane;
            fetch();
            Sums sum[kChunk];
#pragma unroll
            for (int j = 0; j < kChunk; ++j)
                sum[j].clear();
            Batch next_batch;
            while (left > 2 * kBatch) {
                next_batch.load(sorted, slot += kBatch * kRows);
                now.add_all(sum, its_slab);
                now = next_batch;
                left -= 2 * kBatch;
            }
            next_batch.load(sorted, (size_t)next_group.x + lane);
            now.add_to(sum, left, its_slab);
            now = next_batch;
            turn(sum);
#pragma unroll
            for (int j = 0; j < kChunk; ++j) {
                int target = __shfl_sync(kFullMask, row, lane / kChunk * kChunk + j);
                size_t at = (size_t)target * K + turned;
                if (target >= 0 && turned < K)
                    sum[j].add_four(0, sums + at);
                if (target >= 0 && turned + kFar < K)
                    sum[j].add_four(kColumns / 2, sums + at + kFar);
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
    if (totals->unfit)
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
    size_t used = 0;
    auto take = [&](size_t count) {
        int* at = ints + used;
        used += (count + 31) / 32 * 32; // begins a line
        return at;
    };
    int slabs = (K - 1) / kWidth + 1, panels = (rows - 1) / kPanel + 1;
    size_t keys = (size_t)rows * kMaxChunks, all_panels = (size_t)panels * kMaxChunks;
    Sorted sorted;
    sorted.totals = (Totals*)take(sizeof(Totals) / sizeof(int));
    sorted.seen = (int2*)take(2 * (size_t)processors);
    sorted.counts = take(keys);
    sorted.slots = take(keys);
    sorted.order = take(all_panels * kPanelPlaces);
    sorted.longs = (int2*)take(2 * all_panels);
    sorted.groups = (int4*)take(4 * all_panels * kGroups);
    if (used > kArena)
        return false;
    // Groups of sorted rows need little more room than the entries, and there may be as many of them as slots.
    size_t slots = (size_t)rows * max_nnz_per_row, many_sums = (size_t)rows * K, words = 0;
    auto make_room = [&](size_t entries) {
        sorted.room = entries / kRows + (size_t)panels * 256 + 4096;
        words = 2 * (sorted.room * kRows + kSlack);
        return sorted.room * kRows <= (size_t)0x7fffffff;
    };
    bool fits = slots <= kBlind && make_room(slots) && used + words + many_sums + 64 <= kArena;
    int* more = nullptr;
    float* sums = fits ? (float*)take(many_sums) : nullptr;
    look_kernel_optimized<<<processors, kPlacers>>>((long long)slots, col_ids, sorted);
    if (!fits) {
        int2 seen[kManySeen];
        int many = processors < kManySeen ? processors : kManySeen, highest = -1;
        if (many < processors ||
            cudaMemcpy(seen, sorted.seen, sizeof(int2) * many, cudaMemcpyDeviceToHost) != cudaSuccess)
            return false;
        size_t entries = 0;
        for (int i = 0; i < many; ++i) {
            highest = seen[i].x > highest ? seen[i].x : highest;
            entries += (unsigned)seen[i].y;
        }
        if (highest >= kMaxChunks * kHeight || !make_room(entries))
            return false;
        if (used + words + many_sums + 64 > kArena) {
            if (cudaMallocAsync((void**)&more, (words + many_sums + 64) * sizeof(int), 0) != cudaSuccess) {
                cudaGetLastError();
                return false;
            }
            ints = more;
            used = 0;
            // Places behind the last are read, and not used.
            cudaMemsetAsync(more, 0, (words + 64) * sizeof(int), 0);
        }
        sorted.packed = (unsigned*)take(words);
        sums = (float*)take(many_sums);
    } else {
        sorted.packed = (unsigned*)take(words);
    }
    size_t half = many_sums / 8 * 4;
    int row_blocks = rows < processors * 16 ? rows : processors * 16;
    launch_early(count_kernel_optimized, row_blocks, kSorters, 0, rows, max_nnz_per_row, col_ids, processors,
                 slabs, sums, half, sorted);
    launch_early(place_kernel_optimized, processors, kPlacers, 0, rows, panels, sums + half, many_sums - half,
                 sorted);
    launch_early(scatter_kernel_optimized, row_blocks, kSorters, 0, rows, max_nnz_per_row, values, col_ids,
                 sorted);
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    launch_early(multiply_kernel_optimized, processors, kLarge, kShared, rows, max_nnz_per_row, K, values,
                 col_ids, X, Y, sums, sorted);
    launch_early(round_kernel_optimized, processors * 8, kRounders, 0, many_sums / 4, (const float4*)sums,
                 (uint2*)Y, (const Totals*)sorted.totals);
    if (more != nullptr)
        cudaFreeAsync(more, 0);
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
    if ((long long)rows * max_nnz_per_row >= kManySlots && K >= kManyColumns &&
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
