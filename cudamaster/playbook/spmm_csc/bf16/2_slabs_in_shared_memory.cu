// idea: Keep slabs of X in shared memory, one chunk of A's columns after the other
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and X is larger than L2. A
//      slab of up to 1792 rows by 64 columns of X, one line of 128 bytes in each row, fits into an SM's shared
//      memory, which delivers 128 bytes a cycle. So A's columns are cut into chunks of that height, and a block
//      multiplies the entries of one chunk by one slab: each element of X is loaded from memory once. What a
//      chunk gives to Y is added by atomic operations of 16 bytes to sums in fp32, which are rounded at the
//      end. A lane has a row of A to itself and sums all 64 columns, so an entry is loaded once and not by each
//      lane that shares a row. It goes through the eight parts of 16 bytes of a line in an order of its own:
//      the eight lanes that shared memory serves at a time meet in no bank. In each chunk the rows are sorted
//      by length, since the 32 rows of a warp should end together. Entries shrink to 4 bytes: the row of the
//      slab and the bf16 value. Before the additions to the sums the lanes of a warp exchange sums, so that
//      neighbours add to neighbouring places and each addition fills sectors of 32 bytes: spmm_ell took 0.63 ms
//      without, and 0.50 so. A block shares a row of more than 256 entries in a chunk. Blocks begin one after
//      the other, so that some load slabs while others multiply. One atomic operation counts an entry and gives
//      it its place in the row. Step 1's kernels take small matrices, those with more than 114688 columns, more
//      rows and chunks than the fixed room has places for, or more than one such long row in 16, K that is no
//      multiple of 8, and GPUs with less shared memory than an H100. At 16384 columns and K = 4096 an H200
//      takes 0.31 ms where an earlier form with four lanes for a row took 0.39, and step 1 takes 1.16. What
//      binds it now: sorting takes 0.09 ms; what binds the rest was not measured.
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
constexpr int kExact = 64;    // entries up to which rows are sorted by their exact number
constexpr int kStep = 4;      // and of longer rows each so many lengths stand together
constexpr int kLongest = 256; // entries in a row of a group at most
constexpr int kMaxChunks = 64;
// One for each length, and the last for longer rows.
constexpr int kBins = kExact + 1 + (kLongest - kExact) / kStep + 1;
constexpr int kSmall = 256;       // threads of a block that prepares
constexpr int kLarge = 512;       // threads of a block that multiplies
constexpr int kBatch = 2;         // pairs of entries that a lane asks for at a time
constexpr int kNumbers = 4 << 20; // entries whose number within the key can be kept
constexpr int kStagger = 20; // microseconds, about, between the begin of the first block and that of the last
constexpr int kManyRows = 512;      // from which sorting the entries by chunks is worthwhile, with
constexpr int kManyChunks = 4;      // full chunks of A's columns and
constexpr int kManyColumns = 512;   // columns of X
constexpr size_t kArena = 16 << 20; // ints

__device__ int4 arena[kArena / 4];

// What is known of the matrix.
struct Totals {
    int highest;    // column of any entry
    int long_pairs; // pairs of entries of long rows
    int used_pairs;
    int groups, pairs, longs;
    int next_unit;
};

// Where the matrix is sorted. A key is a row of A within a chunk of columns: chunk * rows + row.
struct Sorted {
    Totals* totals;
    int* lengths;     // of chunks and bins: keys
    int* counts;      // of keys: entries in the slab
    int* numbers;     // of entries: how many of its key came before
    int* starts;      // of chunks and bins, longest first: first position, or long row
    int4* ranges;     // of chunks: first group, and the next chunk's; first long row, and the next chunk's
    int* ranks;       // of keys: number within the bin
    int* slots;       // of keys: place of the first pair, for long rows ~place
    int4* longs;      // row, first pair, pairs
    int2* groups;     // first pair, entries
    int* order;       // rows of groups, -1 for none
    unsigned* packed; // entries: row of the slab, and in the upper half the value
};

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

__device__ int bin_of(int count) {
    int length = count <= kExact ? count : kExact + (count - kExact + kStep - 1) / kStep;
    return count <= kLongest ? length : kBins - 1;
}

// The most entries that a row of this bin has.
__device__ int longest_of(int bin) {
    return bin <= kExact ? bin : kExact + (bin - kExact) * kStep;
}

// A block shares a long row, which costs barriers: where more than one in kLongShare is long, step 1 takes the matrix.
// That share is a guess; no such matrix was timed.
constexpr int kLongShare = 16;
constexpr size_t kMostPlaces = 0x7fffffff; // of pairs: a place is an int
constexpr int kSlack = 2 * kBatch * kRows; // pairs behind the last that are read, not used

// Writes an entry of row `row` of the slab; row 0 are zeros.
__device__ void put(const Sorted& sorted, size_t place, int row, Element value) {
    sorted.packed[place] = (unsigned)row | (unsigned)__bfloat16_as_ushort(value) << 16;
}

// Where starts has a bin: the bins of a chunk from the longest rows down.
__device__ int start_of(int chunk, int bin) {
    return chunk * kBins + kBins - 1 - bin;
}

constexpr int kAtOnce = 4;              // entries that a thread looks at together
constexpr int kTile = kAtOnce * kSmall; // entries that a block looks at together

// The column that entry `p` is in, searched for by a warp in ranges of 32 parts.
__device__ int owner_of(const int* offsets, int high, int p) {
    int low = 0;
    while (low < high) {
        int step = (high - low + 31) / 32, probe = low + step * (int)(threadIdx.x % 32 + 1);
        bool before = probe <= high && offsets[probe] <= p;
        low += step * __popc(__ballot_sync(kFullMask, before));
        high = min(high, low + step - 1);
    }
    return low;
}

// Calls visit(entries, first, rows, columns) for as many entries as a thread looks at together: `first`, and those kSmall
// behind each other. Where there is none, the row is -1.
template <class Visit>
__device__ void for_each_entry(int owners, const int* __restrict__ offsets, const int* __restrict__ others,
                               Visit visit) {
    __shared__ int ends[2];
    long long nnz = offsets[owners];
    for (long long tile = blockIdx.x * (long long)kTile; tile < nnz; tile += gridDim.x * (long long)kTile) {
        int other[kAtOnce], owner[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            long long p = tile + i * kSmall + threadIdx.x;
            other[i] = p < nnz ? others[p] : -1;
        }
        __syncthreads();
        if (threadIdx.x < 64) {
            long long last = tile + kTile < nnz ? tile + kTile - 1 : nnz - 1;
            int end = owner_of(offsets, owners - 1, (int)(threadIdx.x < 32 ? tile : last));
            if (threadIdx.x % 32 == 0)
                ends[threadIdx.x / 32] = end;
        }
        __syncthreads();
        // The searches of a thread go on in step: the last owner whose first entry is not behind p.
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            owner[i] = ends[0];
        int reach = 1;
        while (reach <= ends[1] - ends[0])
            reach *= 2;
        for (reach /= 2; reach > 0; reach /= 2)
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                int probe = owner[i] + reach;
                if (probe <= ends[1] && offsets[probe] <= tile + i * kSmall + (int)threadIdx.x)
                    owner[i] = probe;
            }
        visit(nnz, tile + threadIdx.x, other, owner);
    }
}

// Counts the entries of each key, gives each its number, and finds the last column that has any.
__global__ void __launch_bounds__(kSmall)
    count_kernel_optimized(int rows, int columns, const int* __restrict__ row_indices,
                           const int* __restrict__ col_offsets, int height, Sorted sorted) {
    __shared__ int highest;
    if (threadIdx.x == 0)
        highest = -1;
    __syncthreads();
    int mine = -1;
    auto count = [&](long long nnz, long long first, const int* row, const int* column) {
        int number[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            bool exists = row[i] >= 0;
            mine = max(mine, exists ? column[i] : -1);
            number[i] =
                exists ? atomicAdd(&sorted.counts[(size_t)(column[i] / height) * rows + row[i]], 1) : 0;
        }
        if (nnz <= kNumbers)
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                if (row[i] >= 0)
                    sorted.numbers[first + i * kSmall] = number[i];
    };
    for_each_entry(columns, col_offsets, row_indices, count);
    mine = __reduce_max_sync(kFullMask, mine);
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(&sorted.totals->highest, highest);
}

// How many keys each bin has, and the number of each key in its bin. A block has keys of one chunk, blockIdx.y.
__global__ void __launch_bounds__(kSmall) survey_kernel_optimized(int rows, int height, Sorted sorted) {
    int chunk = blockIdx.y;
    if (chunk > sorted.totals->highest / height)
        return;
    __shared__ int lengths[kBins];
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        lengths[bin] = 0;
    __syncthreads();
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    size_t key = (size_t)chunk * rows + row;
    int bin = 0, rank = 0;
    if (row < rows) {
        int count = sorted.counts[key];
        bin = bin_of(count);
        rank = atomicAdd(&lengths[bin], 1);
        if (bin == kBins - 1)
            atomicAdd(&sorted.totals->long_pairs, pairs_of(count));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += kSmall)
        if (lengths[i] > 0)
            lengths[i] = atomicAdd(&sorted.lengths[chunk * kBins + i], lengths[i]);
    __syncthreads();
    if (row < rows)
        sorted.ranks[key] = lengths[bin] + rank;
}

// The sums of all threads before a thread, and of all threads in `total`.
constexpr int kPlanners = 256;
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

// Where the bins of a chunk start, and how long its groups are and where they start, by one block. The chunks take
// their places in any order.
__global__ void __launch_bounds__(kPlanners) plan_kernel_optimized(int height, Sorted sorted) {
    static_assert(kBins <= kPlanners);
    int chunk = blockIdx.x, i = threadIdx.x, bin = kBins - 1 - i;
    if (chunk > sorted.totals->highest / height)
        return;
    __shared__ int2 used[kBins]; // bins that are: first position in this chunk, bin
    __shared__ int first_group, first_pair, first_long;
    // A row without entries adds nothing to Y.
    int longs = sorted.lengths[chunk * kBins + kBins - 1];
    int keys = i > 0 && bin > 0 ? sorted.lengths[chunk * kBins + bin] : 0;
    int2 total, at = sum_before(make_int2(keys, keys > 0), &total);
    if (keys > 0)
        used[at.y] = make_int2(at.x, bin);
    int position = at.x, positions = total.x, bins = total.y, groups = (positions + kRows - 1) / kRows;
    __syncthreads();
    int share = (groups + kPlanners - 1) / kPlanners;
    int first = min(i * share, groups), last = min(first + share, groups);
    int low = 0; // the bin that the first group begins in
    for (int high = bins - 1; low < high;) {
        int middle = (low + high + 1) / 2;
        if (used[middle].x <= first * kRows)
            low = middle;
        else
            high = middle - 1;
    }
    // Entries of the longest row of group `g`, its first. The group begins in bin `b`.
    auto length_of = [&](int g, int& b) {
        while (b + 1 < bins && used[b + 1].x <= g * kRows)
            ++b;
        return longest_of(used[b].y);
    };
    int pairs = 0;
    for (int g = first, b = low; g < last; ++g)
        pairs += pairs_of(length_of(g, b));
    at = sum_before(make_int2(pairs, 0), &total);
    if (i == 0) {
        first_group = atomicAdd(&sorted.totals->groups, groups);
        first_pair = atomicAdd(&sorted.totals->pairs, total.x);
        first_long = atomicAdd(&sorted.totals->longs, longs);
        sorted.ranges[chunk] = make_int4(first_group, first_group + groups, first_long, first_long + longs);
    }
    __syncthreads();
    if (i < kBins)
        sorted.starts[start_of(chunk, bin)] = i > 0 ? first_group * kRows + position : first_long;
    pairs = first_pair + at.x;
    for (int g = first, b = low; g < last; ++g) {
        int length = length_of(g, b);
        sorted.groups[first_group + g] = make_int2(pairs, length);
        pairs += pairs_of(length);
    }
}

// Gives each key its place, and fills places that no entry will take with products of zeros.
__global__ void __launch_bounds__(kSmall) place_kernel_optimized(int rows, Sorted sorted) {
    int chunk = blockIdx.y;
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    size_t key = (size_t)chunk * rows + row;
    int count = row < rows ? sorted.counts[key] : 0, bin = bin_of(count);
    // Places of a member of a group from entry `from` on.
    auto clear = [&](int2 group, int member, int from) {
        for (int i = from; i < 2 * pairs_of(group.y); ++i)
            put(sorted, 2 * ((size_t)(group.x + i / 2) * kRows + member) + i % 2, 0, Element(0.0f));
    };
    if (row < rows && bin > 0) {
        int position = sorted.starts[start_of(chunk, bin)] + sorted.ranks[key];
        int slot;
        if (bin == kBins - 1) {
            int pairs = pairs_of(count);
            slot = sorted.totals->pairs * kRows + atomicAdd(&sorted.totals->used_pairs, pairs);
            sorted.longs[position] = make_int4((int)row, slot, pairs, 0);
            if (count % 2 != 0)
                put(sorted, 2 * ((size_t)slot + count / 2) + 1, 0, Element(0.0f));
            slot = ~slot;
        } else {
            int2 group = sorted.groups[position / kRows];
            slot = group.x * kRows + position % kRows;
            sorted.order[position] = (int)row;
            clear(group, position % kRows, count);
        }
        sorted.slots[key] = slot;
    }
    // Members that the last group lacks.
    int position = sorted.starts[start_of(chunk, 0)] + (int)threadIdx.x, groups = sorted.ranges[chunk].y;
    if (blockIdx.x == 0 && position < groups * kRows) {
        sorted.order[position] = -1;
        clear(sorted.groups[groups - 1], position % kRows, 0);
    }
}

// Takes each entry to its place.
__global__ void __launch_bounds__(kSmall)
    scatter_kernel_optimized(int rows, int columns, const Element* __restrict__ values,
                             const int* __restrict__ row_indices, const int* __restrict__ col_offsets,
                             int height, Sorted sorted) {
    auto scatter = [&](long long nnz, long long first, const int* row, const int* column) {
        Element value[kAtOnce];
        int number[kAtOnce], slot[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            bool exists = row[i] >= 0;
            size_t key = exists ? (size_t)(column[i] / height) * rows + row[i] : 0;
            value[i] = exists ? values[first + i * kSmall] : Element(0.0f);
            slot[i] = exists ? sorted.slots[key] : 0;
            if (nnz <= kNumbers)
                number[i] = exists ? sorted.numbers[first + i * kSmall] : 0;
            else // which entry gets which number is all the same
                number[i] = exists ? atomicSub(&sorted.counts[key], 1) - 1 : 0;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
            if (row[i] >= 0) {
                int n = number[i];
                size_t pair = slot[i] < 0 ? ~slot[i] + n / 2 : slot[i] + n / 2 * kRows;
                put(sorted, 2 * pair + n % 2, 1 + column[i] % height, value[i]);
            }
    };
    for_each_entry(columns, col_offsets, row_indices, scatter);
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
    // Adds four of them to sums in fp32.
    __device__ void add_four(int first, float* sums) const {
        float4 v = make_float4(at[first], at[first + 1], at[first + 2], at[first + 3]);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        atomicAdd((float4*)sums, v);
#else
        atomicAdd(sums, v.x), atomicAdd(sums + 1, v.y), atomicAdd(sums + 2, v.z), atomicAdd(sums + 3, v.w);
#endif
    }
};

// Adds an entry to the sums of a lane's row. Sum j has part j ^ lane % 8 of the slab: so the eight lanes that shared
// memory serves at a time meet in no bank, whatever their rows. `address` is that of part lane % 8.
__device__ void add_near(Sums* sums, float value, unsigned address) {
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
        sums[j].add(value, shared_at(address ^ (j * 16)));
}

// From lanes that have a row each to lanes that have columns of eight rows each: sum j then belongs to row lane / 8 * 8 + j.
// Its first four columns are those of part lane % 8 / 2 * 2, the others those of the next, the upper half of either for odd
// lanes. So lanes that are neighbours add to neighbouring places, and each addition of a warp fills sectors of 32 bytes.
__device__ void turn(Sums* sums) {
    constexpr int kHalf = kColumns / 2;
    auto swap_if = [](bool swaps, float& a, float& b) {
        float here = a, there = b;
        a = swaps ? there : here;
        b = swaps ? here : there;
    };
    // Sum j is that of part j ^ lane % 8. Let halves that go to lanes of one distance stand in the same places.
#pragma unroll
    for (int j = 0; j < kChunk; j += 2)
#pragma unroll
        for (int c = 0; c < kHalf; ++c) {
            swap_if(threadIdx.x & 1, sums[j].at[c], sums[j + 1].at[c + kHalf]);
            swap_if(threadIdx.x & 1, sums[j].at[c + kHalf], sums[j + 1].at[c]);
        }
    Sums turned[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
            int distance = j / 2 * 2 + c / kHalf;
            float v = sums[j].at[c];
            turned[distance].at[j % 2 * kHalf + c % kHalf] =
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

__global__ void __launch_bounds__(kLarge, 1)
    multiply_kernel_optimized(int K, int columns, int chunks, int height, int units, Sorted sorted,
                              const Element* __restrict__ X, float* __restrict__ sums) {
    extern __shared__ __align__(kChunk * 16) int4 slab_rows[];
    __shared__ float long_sums[kWidth];
    __shared__ int next_unit, next_run;
    int lane = threadIdx.x % 32, place = lane % kChunk;
    unsigned slab = (unsigned)__cvta_generic_to_shared(slab_rows + place);
    int slabs = (K - 1) / kWidth + 1;
#ifdef __CUDA_ARCH__
    // Blocks begin one after the other: all at a time they would wait for memory together, and leave it idle together.
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
        int unit = next_unit;
        if (unit >= units)
            break;
        // Blocks that work at a time share rows of Y. The last chunk, which may have fewer columns, comes last.
        int chunk = chunks - 1, index = unit - slabs * (chunks - 1);
        if (index < 0) {
            chunk = unit % (chunks - 1);
            index = unit / (chunks - 1);
        }
        long long first_column = (long long)index * kWidth;
        int last_row = min(height, columns - chunk * height);
        const Element* corner = X + (size_t)chunk * height * K + first_column;
        // A thread has one of a row's parts in all rows that it loads.
        int part = threadIdx.x % kChunk;
        const Element* from = corner + threadIdx.x / kChunk * (size_t)K + part * kColumns;
        int4* to = slab_rows + kChunk + threadIdx.x;
        bool exists = first_column + part * kColumns < K;
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
        bool inside = k < K;
        long long turned =
            first_column + place / 2 * 2 * kColumns + place % 2 * (kColumns / 2); // after turn()
        int4 range = sorted.ranges[chunk];
        // Long rows: the whole block shares one, eight lanes an entry.
        for (int i = range.z; i < range.w; ++i) {
            int4 row = sorted.longs[i];
            Sums sum;
            sum.clear();
            for (int pair = threadIdx.x / kChunk; pair < row.z; pair += kLarge / kChunk) {
                uint2 entries = stream((const uint2*)sorted.packed + row.y + pair);
                sum.add(__uint_as_float(entries.x & 0xffff0000u),
                        shared_at(slab + (entries.x & 0xffff) * (kChunk * 16)));
                sum.add(__uint_as_float(entries.y & 0xffff0000u),
                        shared_at(slab + (entries.y & 0xffff) * (kChunk * 16)));
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
                sum.add_four(0, sums + (size_t)row.x * K + k);
                sum.add_four(4, sums + (size_t)row.x * K + k + 4);
            }
            __syncthreads();
        }

        // Groups. Lanes hold the length and the rows of the next one.
        int next = 0, next_row = 0;
        int2 next_group = make_int2(0, 0);
        auto fetch = [&]() {
            if (lane == 0)
                next = atomicAdd(&next_run, 1);
            next = range.x + __shfl_sync(kFullMask, next, 0);
            if (next < range.y) {
                next_group = __ldg(sorted.groups + next);
                next_row = __ldg(sorted.order + next * kRows + lane);
            }
        };
        fetch();
        Batch now;
        if (next < range.y)
            now.load(sorted, (size_t)next_group.x * kRows + lane);
        while (next < range.y) {
            int2 group = next_group;
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
            now.add_to(sum, left, slab);
            now = next_batch;
            turn(sum);
#pragma unroll
            for (int j = 0; j < kChunk; ++j) {
                int target = __shfl_sync(kFullMask, row, lane / kChunk * kChunk + j);
                float* y = sums + (size_t)target * K + turned;
                if (target >= 0 && turned < K)
                    sum[j].add_four(0, y);
                if (target >= 0 && turned + kColumns < K)
                    sum[j].add_four(4, y + kColumns);
            }
        }
    }
}

// Rounds sums, once.
__global__ void __launch_bounds__(kSmall)
    round_kernel_optimized(size_t quads, const float4* __restrict__ sums, uint2* __restrict__ Y) {
    for (size_t i = blockIdx.x * (size_t)kSmall + threadIdx.x; i < quads; i += gridDim.x * (size_t)kSmall) {
        float4 v = __ldcs(sums + i);
        __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
        Y[i] = make_uint2(*(unsigned*)&low, *(unsigned*)&high);
    }
}

// Multiplies by slabs where that is possible; returns whether it was.
static bool by_slabs(int rows, int columns, int K, const Element* values, const int* row_indices,
                     const int* col_offsets, const Element* X, Element* Y) {
    int chunks_at_most = (columns - 1) / kHeight + 1;
    int height = (columns - 1) / chunks_at_most + 1;
    if (chunks_at_most > kMaxChunks)
        return false;
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
    sorted.counts = take(keys);
    size_t cleared = used;
    sorted.starts = take((size_t)chunks_at_most * kBins);
    sorted.ranges = (int4*)take(4 * (size_t)chunks_at_most);
    sorted.groups = (int2*)take(2 * (size_t)chunks_at_most * ((rows - 1) / kRows + 1));
    sorted.ranks = take(keys);
    sorted.slots = take(keys);
    sorted.numbers = take(kNumbers);
    if (used > kArena)
        return false;
    cudaMemsetAsync(ints, 0, cleared * sizeof(int), 0);
    int small_grid = processors * 8;
    dim3 key_grid((rows - 1) / kSmall + 1, chunks_at_most);
    count_kernel_optimized<<<small_grid, kSmall>>>(rows, columns, row_indices, col_offsets, height, sorted);
    survey_kernel_optimized<<<key_grid, kSmall>>>(rows, height, sorted);
    plan_kernel_optimized<<<chunks_at_most, kPlanners>>>(height, sorted);
    Totals totals;
    if (cudaMemcpy(&totals, sorted.totals, sizeof(totals), cudaMemcpyDeviceToHost) != cudaSuccess)
        return false;
    int columns_used = totals.highest + 1;
    int chunks = columns_used == 0 ? 1 : (columns_used - 1) / height + 1;
    if (chunks > chunks_at_most)
        return false;

    size_t room = (size_t)totals.pairs * kRows + totals.long_pairs;
    if (room > kMostPlaces)
        return false;
    if ((size_t)totals.longs * kLongShare > (size_t)rows * chunks)
        return false;
    size_t needed = 3 * (room + kSlack) + kRows * (size_t)totals.groups + 4 * (size_t)totals.longs + 32;
    needed += (size_t)rows * K;
    int* more = nullptr;
    if (used + needed > kArena) {
        if (cudaMallocAsync((void**)&more, needed * sizeof(int), 0) != cudaSuccess) {
            cudaGetLastError();
            return false;
        }
        ints = more;
        used = 0;
    }
    sorted.longs = (int4*)take(4 * (size_t)totals.longs);
    sorted.order = take(kRows * (size_t)totals.groups);
    sorted.packed = (unsigned*)take(2 * (room + kSlack));
    key_grid.y = chunks;
    place_kernel_optimized<<<key_grid, kSmall>>>(rows, sorted);
    scatter_kernel_optimized<<<small_grid, kSmall>>>(rows, columns, values, row_indices, col_offsets, height,
                                                     sorted);
    int slabs = (K - 1) / kWidth + 1;
    int units = chunks * slabs;
    int grid = units < processors ? units : processors;
    float* sums = (float*)take((size_t)rows * K);
    cudaMemsetAsync(sums, 0, sizeof(float) * rows * K, 0);
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    multiply_kernel_optimized<<<grid, kLarge, kShared>>>(K, columns_used, chunks, height, units, sorted, X,
                                                         sums);
    round_kernel_optimized<<<processors * 8, kSmall>>>((size_t)rows * K / 4, (const float4*)sums, (uint2*)Y);
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
__global__ void number_entries_bf16_kernel_optimized(int nnz, const int* row_indices, int* numbers,
                                                     int* counts) {
    size_t p = blockIdx.x * (size_t)kThreads + threadIdx.x;
    if (p < nnz)
        numbers[p] = atomicAdd(&counts[row_indices[p]], 1);
}

// Places for the rows of a block, one behind the other; the blocks get theirs in any order.
__global__ void place_rows_bf16_kernel_optimized(int rows, const int* counts, int* starts, int* taken) {
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

__global__ void sort_entries_bf16_kernel_optimized(int columns, const __nv_bfloat16* values,
                                                   const int* row_indices, const int* col_offsets,
                                                   Scratch scratch) {
    long long column = (blockIdx.x * (long long)kThreads + threadIdx.x) / kLanes;
    if (column >= columns)
        return;
    for (long long p = col_offsets[column] + threadIdx.x % kLanes; p < col_offsets[column + 1]; p += kLanes)
        scratch.sorted[scratch.starts[row_indices[p]] + scratch.numbers[p]] =
            make_int2((int)column, __float_as_int(__bfloat162float(values[p])));
}

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
    sum_rows_bf16_kernel_optimized(int rows, int K, const int2* __restrict__ sorted,
                                   const int* __restrict__ starts, const int* __restrict__ counts,
                                   const __nv_bfloat16* __restrict__ X, __nv_bfloat16* __restrict__ Y) {
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
        float sum[kLaneWidth] = {};
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
                add_columns<kVectors>(sum, __int_as_float(entry.y), X + entry.x * (size_t)K + k, K - k);
            }
        }
        if (inside)
            store_columns<kVectors>(Y + row * (size_t)K + k, K - k, sum);
    }
}

extern "C" void spmm_csc_bf16_optimized(int rows, int columns, int K, const __nv_bfloat16* values,
                                        const int* row_indices, const int* col_offsets,
                                        const __nv_bfloat16* X, __nv_bfloat16* Y) {
    if (rows >= kManyRows && columns >= kManyChunks * kHeight && K >= kManyColumns &&
        by_slabs(rows, columns, K, values, row_indices, col_offsets, X, Y))
        return;
    int nnz = 0;
    cudaMemcpy(&nnz, col_offsets + columns, sizeof(int), cudaMemcpyDeviceToHost);
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
        number_entries_bf16_kernel_optimized<<<(nnz - 1) / kThreads + 1, kThreads>>>(
            nnz, row_indices, scratch.numbers, scratch.counts);
    place_rows_bf16_kernel_optimized<<<(rows - 1) / kThreads + 1, kThreads>>>(
        rows, scratch.counts, scratch.starts, scratch.counts + rows);
    if (nnz > 0)
        sort_entries_bf16_kernel_optimized<<<(columns - 1) / (kThreads / kLanes) + 1, kThreads>>>(
            columns, values, row_indices, col_offsets, scratch);
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        sum_rows_bf16_kernel_optimized<true>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    else
        sum_rows_bf16_kernel_optimized<false>
            <<<grid, kThreads>>>(rows, K, scratch.sorted, scratch.starts, scratch.counts, X, Y);
    if (needed > kFixedScratch)
        cudaFreeAsync(memory, 0);
}
