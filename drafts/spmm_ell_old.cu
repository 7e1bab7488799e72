// idea: Keep slabs of X in shared memory, one chunk of A's columns after the other
// why: Every entry needs a row of X. Step 1 gathers these rows through the caches, and X is larger than L2. A
//      slab of up to 1792 rows by 32 columns of X, one line of 128 bytes in each row, fits into an SM's
//      shared memory, which delivers 128 bytes a cycle. So A's columns are cut into chunks of that height, and
//      a block multiplies the entries of one chunk by one slab: each element of X is loaded from memory once.
//      What a chunk gives to Y is added by atomic operations of 16 bytes. In each chunk the rows are sorted by
//      length, since the eight rows that a warp sums at a time should end together. Entries shrink to 6 bytes:
//      the row of the slab in 16 bits, and the value. Four lanes share a row of A. Each takes two of a line's
//      eight parts of 16 bytes, one in either half, and lanes of neighbouring rows begin with different halves:
//      so the eight lanes that shared memory serves at a time meet in no bank. A block shares a row that is
//      much longer than the others. Small matrices, more than 114688 columns, and GPUs with less shared memory
//      than an H100 take step 1's kernels. At 32768 columns and K = 4096 an H200 takes 0.79 ms where step 1
//      takes 1.88. What binds it now: what lies between two slabs, about 10 µs; without loads and additions to
//      Y it would take a fifth less. Tried, and no faster: the next slab fetched to L2 beforehand; shorter
//      shares of rows for a warp.
// flags: -O3 --use_fast_math
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

using Element = float;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 16 / sizeof(Element); // columns in 16 bytes
constexpr int kChunk = 8;                      // times 16 bytes are a row of the slab: all banks once
constexpr int kWidth = kChunk * kColumns;      // columns of a slab
constexpr int kHeight = 1792;                  // rows of X in a slab at most
constexpr int kShared = (kHeight + 1) * kChunk * 16;
constexpr int kQuad = 4;          // lanes that share a row of A, each for twice 16 bytes of a slab
constexpr int kRows = 32 / kQuad; // rows of A in a group, all of one length
constexpr int kLongest = 128;     // pairs of entries in a row of a group at most
constexpr int kMaxChunks = 64;
constexpr int kBins = kLongest + 2; // one for each number of pairs, and the last for longer rows
constexpr int kSmall = 256;         // threads of a block that prepares
constexpr int kLarge = 768;         // threads of a block that multiplies
constexpr int kRun = 4;             // groups that a warp takes at a time
constexpr int kBatch = 3;           // pairs of entries that a lane asks for at a time
constexpr int kManySlots = 120000;  // from which sorting the entries by chunks is worthwhile
constexpr int kManyColumns = 512;   // of X
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
    int* lengths;           // of chunks and bins: keys
    int* taken;             // of chunks and bins: keys that have their place
    int* counts;            // of keys: entries in the slab
    int4* starts;           // of chunks and bins, longest first: first group, pair, long row
    int* slots;             // of keys: place of the first pair, for long rows ~place
    int4* longs;            // row, first pair, pairs
    int2* groups;           // first pair, pairs
    int* order;             // rows of groups, -1 for none
    unsigned short* packed; // entries: row of the slab
    float* values;
};

__device__ int pairs_of(int count) {
    return count / 2 + count % 2;
}

__device__ int bin_of(int count) {
    int pairs = pairs_of(count);
    return pairs <= kLongest ? pairs : kBins - 1;
}

// A block shares a long row, which costs barriers: where more than one in kLongShare is long, step 1 takes the matrix.
// That share is a guess; no such matrix was timed.
constexpr int kLongShare = 16;
constexpr size_t kMostPlaces = 0x7fffffff; // of pairs: a place is an int
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

// Calls visit(slot, row, column) for each slot that has an entry.
template <class Visit>
__device__ void for_each_entry(int rows, int width, const int* __restrict__ col_ids, Visit visit) {
    long long slots = (long long)rows * width; // kMostPlaces at most
    for (long long tile = blockIdx.x * (long long)kTile; tile < slots; tile += gridDim.x * (long long)kTile) {
        int column[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            long long p = tile + i * kSmall + threadIdx.x;
            column[i] = p < slots ? col_ids[p] : -1;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            long long p = tile + i * kSmall + threadIdx.x;
            if (column[i] >= 0)
                visit(p, (int)p / width, column[i]);
        }
    }
}

// Counts the entries of each key, and finds the last column that has any.
__global__ void __launch_bounds__(kSmall)
    count_kernel_optimized(int rows, int max_nnz_per_row, const int* __restrict__ col_ids, int chunks,
                           int height, Sorted sorted) {
    __shared__ int highest;
    if (threadIdx.x == 0)
        highest = -1;
    __syncthreads();
    int mine = -1;
    auto count = [&](long long, int row, int column) {
        mine = max(mine, column);
        if (column / height < chunks)
            atomicAdd(&sorted.counts[(size_t)(column / height) * rows + row], 1);
    };
    for_each_entry(rows, max_nnz_per_row, col_ids, count);
    mine = __reduce_max_sync(kFullMask, mine);
    if (threadIdx.x % 32 == 0)
        atomicMax(&highest, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(&sorted.totals->highest, highest);
}

// How many keys each bin has. A block has keys of one chunk, blockIdx.y.
__global__ void __launch_bounds__(kSmall) survey_kernel_optimized(int rows, int height, Sorted sorted) {
    if ((int)blockIdx.y > sorted.totals->highest / height)
        return;
    __shared__ int lengths[kBins];
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        lengths[bin] = 0;
    __syncthreads();
    long long row = blockIdx.x * (long long)kSmall + threadIdx.x;
    if (row < rows) {
        int count = sorted.counts[(size_t)blockIdx.y * rows + row];
        int bin = bin_of(count);
        atomicAdd(&lengths[bin], 1);
        if (bin == kBins - 1)
            atomicAdd(&sorted.totals->long_pairs, pairs_of(count));
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < kBins; bin += kSmall)
        if (lengths[bin] > 0)
            atomicAdd(&sorted.lengths[blockIdx.y * kBins + bin], lengths[bin]);
}

// Where each bin starts: sums over all bins before it, by one block.
constexpr int kPlanners = 1024;
__global__ void __launch_bounds__(kPlanners) plan_kernel_optimized(int chunks, int height, Sorted sorted) {
    chunks = min(chunks, sorted.totals->highest / height + 1);
    __shared__ int4 warp_sums[kPlanners / 32];
    int bins = chunks * kBins, share = (bins + kPlanners - 1) / kPlanners;
    int first = min(threadIdx.x * share, bins), last = min(first + share, bins);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto add_size_of = [&](int4& sum, int i) {
        int bin = kBins - 1 - i % kBins, keys = sorted.lengths[i / kBins * kBins + bin];
        if (bin == kBins - 1) {
            sum.z += keys;
        } else {
            int groups = bin > 0 ? (keys + kRows - 1) / kRows : 0; // a row without entries adds nothing to Y
            sum.x += groups;
            sum.y += groups * bin;
        }
    };
    int4 sum = make_int4(0, 0, 0, 0);
    for (int i = first; i < last; ++i)
        add_size_of(sum, i);
    int4 end = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
        int x = __shfl_up_sync(kFullMask, end.x, distance), y = __shfl_up_sync(kFullMask, end.y, distance),
            z = __shfl_up_sync(kFullMask, end.z, distance);
        if (lane >= distance)
            end.x += x, end.y += y, end.z += z;
    }
    if (lane == 31)
        warp_sums[warp] = end;
    __syncthreads();
    int4 at = make_int4(end.x - sum.x, end.y - sum.y, end.z - sum.z, 0);
    for (int i = 0; i < warp; ++i)
        at.x += warp_sums[i].x, at.y += warp_sums[i].y, at.z += warp_sums[i].z;
    for (int i = first; i < last; ++i) {
        sorted.starts[i] = at;
        add_size_of(at, i);
    }
    if (first < bins && last == bins) {
        sorted.starts[bins] = at;
        sorted.totals->groups = at.x;
        sorted.totals->pairs = at.y;
        sorted.totals->longs = at.z;
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
    int count = row < rows ? sorted.counts[key] : 0;
    int bin = bin_of(count), rank = row < rows ? atomicAdd(&members[bin], 1) : 0;
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += kSmall)
        bases[i] = members[i] > 0 ? atomicAdd(&sorted.taken[chunk * kBins + i], members[i]) : 0;
    __syncthreads();
    if (row < rows && bin > 0) {
        int4 start = sorted.starts[start_of(chunk, bin)];
        int position = bases[bin] + rank;
        int slot;
        if (bin == kBins - 1) {
            int pairs = pairs_of(count);
            slot = sorted.totals->pairs * kRows + atomicAdd(&sorted.totals->used_pairs, pairs);
            sorted.longs[start.z + position] = make_int4((int)row, slot, pairs, 0);
            if (count % 2 != 0)
                put(sorted, 2 * ((size_t)slot + count / 2) + 1, 0, Element(0.0f));
            slot = ~slot;
        } else {
            int group = start.x + position / kRows, member = position % kRows;
            int pair = start.y + position / kRows * bin;
            slot = pair * kRows + member;
            sorted.order[group * kRows + member] = (int)row;
            if (member == 0)
                sorted.groups[group] = make_int2(pair, bin);
            if (count % 2 != 0)
                put(sorted, 2 * ((size_t)slot + count / 2 * kRows) + 1, 0, Element(0.0f));
        }
        sorted.slots[key] = slot;
    }
    if (blockIdx.x == 0 && chunk == 0) // what a lane asks for behind the last group
        for (int i = threadIdx.x; i < 2 * kSlack; i += kSmall)
            put(sorted, 2 * ((size_t)sorted.totals->pairs * kRows + sorted.totals->long_pairs) + i, 0,
                Element(0.0f));
    for (int i = 1 + blockIdx.x; i < kBins - 1; i += gridDim.x) {
        int keys = sorted.lengths[chunk * kBins + i];
        if (keys % kRows == 0)
            continue;
        int4 start = sorted.starts[start_of(chunk, i)];
        int group = keys / kRows, first = keys % kRows;
        size_t pair = start.y + group * i;
        for (int k = threadIdx.x; k < 2 * i * kRows; k += kSmall)
            if (k / 2 % kRows >= first)
                put(sorted, 2 * pair * kRows + k, 0, Element(0.0f));
        if (threadIdx.x >= first && threadIdx.x < kRows)
            sorted.order[(start.x + group) * kRows + threadIdx.x] = -1;
    }
}

// Takes each entry to its place.
__global__ void __launch_bounds__(kSmall)
    scatter_kernel_optimized(int rows, int max_nnz_per_row, const Element* __restrict__ values,
                             const int* __restrict__ col_ids, int height, Sorted sorted) {
    auto scatter = [&](long long p, int row, int column) {
        size_t key = (size_t)(column / height) * rows + row;
        int row_of_slab = 1 + column % height;
        int number = atomicSub(&sorted.counts[key], 1) - 1;
        int slot = __ldg(&sorted.slots[key]);
        size_t pair = slot < 0 ? ~slot + number / 2 : slot + number / 2 * kRows;
        put(sorted, 2 * pair + number % 2, row_of_slab, values[p]);
    };
    for_each_entry(rows, max_nnz_per_row, col_ids, scatter);
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
    multiply_kernel_optimized(int K, int columns, int chunks, int height, int units, Sorted sorted,
                              const Element* __restrict__ X, float* __restrict__ sums) {
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
        // Blocks that work at a time share rows of Y. The last chunk, which may have fewer columns, comes last.
        int chunk = chunks - 1, index = unit - slabs * (chunks - 1);
        if (index < 0) {
            chunk = unit % (chunks - 1);
            index = unit / (chunks - 1);
        }
        long long first_column = (long long)index * kWidth;
        int last_row = min(height, columns - chunk * height);
        const Element* corner = X + (size_t)chunk * height * K + first_column;
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
                    sum[half].add_to(sums + (size_t)row * K + k[half]);
        };

        int4 start = sorted.starts[chunk * kBins], stop = sorted.starts[(chunk + 1) * kBins];
        // Long rows: the whole block shares one.
        for (int i = start.z; i < stop.z; ++i) {
            int4 row = sorted.longs[i];
            Sums sum[2];
            sum[0].clear();
            sum[1].clear();
            for (int pair = threadIdx.x / kQuad; pair < row.z; pair += kLarge / kQuad) {
                unsigned rows = stream((const unsigned*)sorted.packed + row.y + pair);
                uint2 values = stream((const uint2*)sorted.values + row.y + pair);
                mine.add(sum, __uint_as_float(values.x), rows & 0xffff);
                mine.add(sum, __uint_as_float(values.y), rows >> 16);
            }
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
        int2 next_groups = make_int2(0, 0);
        auto fetch = [&]() {
            if (lane == 0)
                next = atomicAdd(&next_run, 1);
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
            int2 groups = next_groups;
            size_t slot = (size_t)__shfl_sync(kFullMask, groups.x, 0) * kRows + member;
            Batch now;
            now.load(sorted, slot);
            fetch();
            for (int done = 0; done < many; ++done) {
                int left = __shfl_sync(kFullMask, groups.y, done),
                    row = __shfl_sync(kFullMask, rows, done * kRows + member);
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
                now.add_to(sum, left, mine);
                now = next_batch;
                finish(row, sum);
            }
        }
    }
}

// Multiplies by slabs where that is possible; returns whether it was.
static bool by_slabs(int rows, int max_nnz_per_row, int K, const Element* values, const int* col_ids,
                     const Element* X, Element* Y) {
    constexpr int height = kHeight;
    constexpr int chunks_at_most = kMaxChunks;
    if ((long long)rows * max_nnz_per_row > (long long)kMostPlaces) // entries are counted in ints
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
    sorted.taken = take((size_t)chunks_at_most * kBins);
    sorted.counts = take(keys);
    size_t cleared = used;
    sorted.starts = (int4*)take(((size_t)chunks_at_most * kBins + 1) * 4);
    sorted.slots = take(keys);
    if (used > kArena)
        return false;
    cudaMemsetAsync(ints, 0, cleared * sizeof(int), 0);
    int small_grid = processors * 8;
    dim3 key_grid((rows - 1) / kSmall + 1, chunks_at_most);
    count_kernel_optimized<<<small_grid, kSmall>>>(rows, max_nnz_per_row, col_ids, chunks_at_most, height,
                                                   sorted);
    survey_kernel_optimized<<<key_grid, kSmall>>>(rows, height, sorted);
    plan_kernel_optimized<<<1, kPlanners>>>(chunks_at_most, height, sorted);
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
    size_t needed = 4 * (room + kSlack) + (2 + kRows) * (size_t)totals.groups + 4 * (size_t)totals.longs + 32;
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
    sorted.groups = (int2*)take(2 * (size_t)totals.groups);
    sorted.order = take(kRows * (size_t)totals.groups);
    sorted.packed = (unsigned short*)take(room + kSlack);
    sorted.values = (float*)take(2 * (room + kSlack));
    key_grid.y = chunks;
    place_kernel_optimized<<<key_grid, kSmall>>>(rows, sorted);
    scatter_kernel_optimized<<<small_grid, kSmall>>>(rows, max_nnz_per_row, values, col_ids, height, sorted);
    int slabs = (K - 1) / kWidth + 1;
    int units = chunks * slabs;
    int grid = units < processors ? units : processors;
    float* sums = Y;
    cudaMemsetAsync(sums, 0, sizeof(float) * rows * K, 0);
    cudaFuncSetAttribute(multiply_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    multiply_kernel_optimized<<<grid, kLarge, kShared>>>(K, columns_used, chunks, height, units, sorted, X,
                                                         sums);
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
constexpr int kSlots = 32; // slots of a row in shared memory, one for each lane of a warp

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
    spmm_ell_kernel_optimized(int rows, int max_nnz_per_row, int K, const float* __restrict__ values,
                              const int* __restrict__ col_ids, const float* __restrict__ X,
                              float* __restrict__ Y) {
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
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (long long chunk = 0; chunk < max_nnz_per_row; chunk += kSlots) {
            int lane = threadIdx.x % 32;
            __syncthreads();
            for (int r = threadIdx.x / 32; r < kBlockRows; r += kThreads / 32) {
                bool exists = first_row + r < rows && chunk + lane < max_nnz_per_row;
                size_t slot = (first_row + r) * (size_t)max_nnz_per_row + chunk + lane;
                int column = exists ? col_ids[slot] : -1;
                float value = exists ? values[slot] : 0.0f;
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

extern "C" void spmm_ell_optimized(int rows, int max_nnz_per_row, int K, const float* values,
                                   const int* col_ids, const float* X, float* Y) {
    if ((long long)rows * max_nnz_per_row >= kManySlots && K >= kManyColumns &&
        by_slabs(rows, max_nnz_per_row, K, values, col_ids, X, Y))
        return;
    int slabs = (K - 1) / kNarrowSlab + 1;
    dim3 grid((rows - 1) / kBlockRows + 1, slabs < 65535 ? slabs : 65535);
    if (K % kLaneWidth == 0 && (((size_t)X | (size_t)Y) & 15) == 0)
        spmm_ell_kernel_optimized<true><<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
    else
        spmm_ell_kernel_optimized<false><<<grid, kThreads>>>(rows, max_nnz_per_row, K, values, col_ids, X, Y);
}
