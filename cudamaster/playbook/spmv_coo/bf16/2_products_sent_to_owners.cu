// idea: Blocks send their products to the blocks that own the rows
// why: Step 1 adds 671000 products to y one by one in L2, which does about 31 a cycle, and if one row holds
//      half of the entries, one at a time: 604 µs on an H200. Here each block is the owner of up to 256 rows.
//      Blocks multiply equal shares of the entries and put the products in order of owners in shared memory,
//      where an atomic operation on an integer gives each its place. What they send to one another lies in L2,
//      4 bytes an entry: the product of two bf16 numbers has 16 significant bits, so it and the row within a
//      block need 24. After one barrier of the grid each block takes what is its own, gives the products of a
//      row places in shared memory, adds them up and writes y once. So y is not cleared, and no sum meets
//      another in L2. What finds no place, as with skewed rows, is added up by the lanes of a warp that have
//      the same row, and one of them adds it in L2, or in shared memory where the row is the block's own. With
//      even rows 32768 take 21.0 µs where step 1 takes 24.5, and an empty launch 9. With half of the entries in
//      one row or in three, or all in one, they take 31 to 38 where step 1 takes 212 to 1193. Fewer than 250000
//      entries, more rows or entries than blocks can own, and no more rows than blocks take step 1's kernel.
//      What binds it now: the trips. Loads and products take 5 µs beyond an empty launch, the order 1, sending
//      1, the barrier 1, what comes back 1 to 2, sums and y 2 to 3. Tried, and no faster: compare and swap for
//      the sums, 512 threads, a barrier of its own making; words that tell by themselves that they have come,
//      instead of a barrier (3 µs more).
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using Element = __nv_bfloat16;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kColumns = 2048; // length of x, the same in every case
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kVectors = 2048 / kThreads; // vectors of four entries that a thread requests at once
constexpr int kEntries = 4 * kVectors;
constexpr int kTile = kEntries * kThreads; // entries of a block at most
constexpr int kOwners = 128;               // blocks at most
constexpr int kOwned = 256;                // rows of a block at most
constexpr int kPlaces = 64;                // products that one block sends to another at most
constexpr int kMean = 42;                  // and on average, or overflow is no rarity
constexpr int kStride = kPlaces + 1;       // so that equal places lie in different banks
constexpr int kRankStride = kOwned + 8;    // so that four ranks of eight rows lie in different banks
constexpr int kRanks = 48;                 // products of a row that have places of their own
constexpr int kQuad = 4;                   // lanes that share a row
constexpr int kSearches = 8;               // rows that a warp adds up together before it goes on one by one
constexpr int kMerged = 3;                 // lanes with one row that make this worthwhile
constexpr int kMisses = 2;                 // rows with fewer that end the search
constexpr int kManyEntries = 250000;       // fewer are for step 1

// What a block sends for one entry.
struct Sent {
    static constexpr bool kAlways = true; // whether places without an entry are sent, too
    // The product, and in the lower eight bits the row within its block. The product of two bf16 numbers has 16
    // significant bits, so it loses nothing; NaN stays NaN. A product of 0 with row 0 looks as if there were no
    // entry, which is as good.
    unsigned bits;

    __device__ static Sent of(float product, int row) {
        return {(__float_as_uint(product) & 0xffffff00u) | row};
    }
    __device__ void load(const Sent* from) { bits = __ldcg(&from->bits); }
    __device__ void set_count(int) {}
    __device__ int count() const { return 0; }
    __device__ bool exists(int, int) const { return bits != 0; }
    __device__ int row() const { return bits & 0xff; }
    __device__ float product() const { return __uint_as_float(bits & 0xffffff00u); }
};

constexpr int kSharedBytes = kOwners * kStride * (int)sizeof(Sent) > kRanks * kRankStride * (int)sizeof(float)
                                 ? kOwners * kStride * (int)sizeof(Sent)
                                 : kRanks * kRankStride * (int)sizeof(float);

__device__ Sent sent[kOwners * kOwners * kPlaces]; // of each owner and sender
// Zero between calls: sums of what did not find a place, and who has such sums.
__device__ float extra[kOwners * kOwned];
__device__ int has_extra[kOwners];

__device__ __forceinline__ float to_float(float number) {
    return number;
}

__device__ __forceinline__ float to_float(__nv_bfloat16 number) {
    return __bfloat162float(number);
}

// Calls add(row, sum) until nothing is left. Lanes with the same row are added up first. All lanes come; -1 is no row.
template <int kCount, class Add>
__device__ __forceinline__ void add_left(int (&row)[kCount], const float (&product)[kCount], Add add) {
    int misses = 0;
    for (int search = 0; search < kSearches && misses < kMisses; ++search) {
        int mine = -1;
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            mine = row[i] >= 0 ? row[i] : mine;
        unsigned left = __ballot_sync(kFullMask, mine >= 0);
        if (left == 0)
            return;
        int sample = __shfl_sync(kFullMask, mine, __ffs(left) - 1);
        float sum = 0.0f;
        bool found = false;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            bool same = row[i] == sample;
            sum += same ? product[i] : 0.0f;
            row[i] = same ? -1 : row[i];
            found |= same;
        }
        misses += __popc(__ballot_sync(kFullMask, found)) < kMerged;
        for (int distance = 16; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(kFullMask, sum, distance);
        if (threadIdx.x % 32 == 0)
            add(sample, sum);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        if (row[i] >= 0)
            add(row[i], product[i]);
}

// Four entries of one vector, from `p` on; the row is -1 where there is none.
__device__ __forceinline__ void load_entries(const Element* values, const int* row_indices,
                                             const int* col_indices, bool aligned, long long p, long long end,
                                             int* row, int* column, float* value) {
    if (aligned && p + 4 <= end) {
        int4 r = *(const int4*)(row_indices + p);
        int4 c = *(const int4*)(col_indices + p);
        row[0] = r.x, row[1] = r.y, row[2] = r.z, row[3] = r.w;
        column[0] = c.x, column[1] = c.y, column[2] = c.z, column[3] = c.w;
        uint2 v = *(const uint2*)(values + p);
        // A bf16 number is the upper half of the same number in fp32.
        value[0] = __uint_as_float(v.x << 16), value[1] = __uint_as_float(v.x & 0xffff0000u);
        value[2] = __uint_as_float(v.y << 16), value[3] = __uint_as_float(v.y & 0xffff0000u);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        row[i] = p + i < end ? row_indices[p + i] : -1;
        column[i] = p + i < end ? col_indices[p + i] : 0;
        value[i] = p + i < end ? to_float(values[p + i]) : 0.0f;
    }
}

__global__ void __launch_bounds__(kThreads, 1)
    exchange_bf16_kernel_optimized(int rows, int nnz, const Element* __restrict__ values,
                                   const int* __restrict__ row_indices, const int* __restrict__ col_indices,
                                   const Element* __restrict__ x, Element* __restrict__ y, int share,
                                   int owned, unsigned reciprocal) {
    extern __shared__ uint2 shared[];
    __shared__ float vector[kColumns];
    __shared__ int filled[kOwners], row_counts[kOwned];
    __shared__ float late[kOwned]; // sums of what found no rank
    Sent* bins = (Sent*)shared;
    float* table = (float*)shared;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;

    // The block's share of the entries, and x.
    bool aligned = (((size_t)row_indices | (size_t)col_indices) & 15) == 0 &&
                   ((size_t)values & (4 * sizeof(Element) - 1)) == 0;
    long long first = (long long)blockIdx.x * share, end = min(first + share, (long long)nnz);
    int row[kEntries], column[kEntries];
    float product[kEntries];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
        load_entries(values, row_indices, col_indices, aligned, first + 4 * (k * kThreads + (int)threadIdx.x),
                     end, row + 4 * k, column + 4 * k, product + 4 * k);
    Element staged[kColumns / kThreads];
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        staged[k] = x[k * kThreads + threadIdx.x];
    static_assert(kOwners <= kThreads && kOwned <= kThreads);
    if (threadIdx.x < kOwners)
        filled[threadIdx.x] = 0;
    if (threadIdx.x < kOwned) {
        row_counts[threadIdx.x] = 0;
        late[threadIdx.x] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kColumns / kThreads; ++k)
        vector[k * kThreads + threadIdx.x] = to_float(staged[k]);
    __syncthreads();

    // Products, put in order of the blocks that own their rows. Each loop asks for all that the next one needs.
#pragma unroll
    for (int i = 0; i < kEntries; ++i)
        product[i] *= vector[column[i]];
    int owner[kEntries], place[kEntries];
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
        owner[i] = __umulhi(max(row[i], 0), reciprocal);
        place[i] = row[i] >= 0 ? atomicAdd(&filled[owner[i]], 1) : kPlaces;
    }
    bool left = false;
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
        bool fits = place[i] < kPlaces;
        if (fits)
            bins[owner[i] * kStride + place[i]] = Sent::of(product[i], row[i] - owner[i] * owned);
        row[i] = fits ? -1 : row[i];
        left |= row[i] >= 0;
    }
    if (__any_sync(kFullMask, left))
        add_left(row, product, [&](int r, float sum) {
            atomicAdd(&extra[r], sum);
            has_extra[__umulhi(r, reciprocal)] = 1;
        });
    __syncthreads();
    for (int owner = warp; owner < blocks; owner += kWarps) {
        int count = min(filled[owner], kPlaces);
        Sent* to = sent + (owner * kOwners + blockIdx.x) * kPlaces;
#pragma unroll
        for (int i = lane; i < kPlaces; i += 32) {
            Sent one = i < count ? bins[owner * kStride + i] : Sent();
            if (i == 0)
                one.set_count(count);
            if (Sent::kAlways || i < count || i == 0)
                to[i] = one;
        }
    }
    cooperative_groups::this_grid().sync();

    // What the block owns.
    bool any_extra = __ldcg(&has_extra[blockIdx.x]) != 0;
    constexpr int kSenders = kOwners / kWarps, kHalves = kPlaces / 32;
    Sent got[kSenders * kHalves];
#pragma unroll
    for (int i = 0; i < kSenders; ++i)
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
            int sender = i * kWarps + warp;
            got[i * kHalves + half] = Sent();
            if (sender < blocks)
                got[i * kHalves + half].load(sent + ((int)blockIdx.x * kOwners + sender) * kPlaces +
                                             half * 32 + lane);
        }
    int local[kSenders * kHalves];
    float term[kSenders * kHalves];
    left = false;
#pragma unroll
    for (int i = 0; i < kSenders; ++i) {
        int count = got[i * kHalves].count();
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
            int at = i * kHalves + half;
            local[at] = got[at].exists(half * 32 + lane, count) ? got[at].row() : -1;
            term[at] = got[at].product();
        }
    }
    int rank[kSenders * kHalves];
#pragma unroll
    for (int i = 0; i < kSenders * kHalves; ++i)
        rank[i] = local[i] >= 0 ? atomicAdd(&row_counts[local[i]], 1) : kRanks;
#pragma unroll
    for (int i = 0; i < kSenders * kHalves; ++i) {
        bool fits = rank[i] < kRanks;
        if (fits)
            table[rank[i] * kRankStride + local[i]] = term[i];
        local[i] = fits ? -1 : local[i];
        left |= local[i] >= 0;
    }
    if (__any_sync(kFullMask, left))
        add_left(local, term, [&](int r, float sum) { atomicAdd(&late[r], sum); });
    __syncthreads();
    for (int r = threadIdx.x / kQuad; r < kOwned; r += kThreads / kQuad) {
        float sum = 0.0f;
        int count = min(row_counts[r], kRanks);
        for (int rank = threadIdx.x % kQuad; rank < count; rank += kQuad)
            sum += table[rank * kRankStride + r];
        for (int distance = 1; distance < kQuad; distance *= 2)
            sum += __shfl_xor_sync(kFullMask, sum, distance);
        int global_row = (int)blockIdx.x * owned + r;
        if (threadIdx.x % kQuad == 0 && r < owned && global_row < rows) {
            sum += late[r];
            if (any_extra) {
                sum += __ldcg(&extra[global_row]);
                extra[global_row] = 0.0f;
            }
            y[global_row] = __float2bfloat16(sum);
        }
    }
    if (any_extra && threadIdx.x == 0)
        has_extra[blockIdx.x] = 0;
}

// Whether the blocks exchanged products.
static bool by_exchange(int rows, int nnz, const Element* values, const int* row_indices,
                        const int* col_indices, const Element* x, Element* y, int multiprocessors) {
    int blocks = multiprocessors < kOwners ? multiprocessors : kOwners;
    if (nnz < kManyEntries || nnz > kMean * blocks * blocks || rows > kOwned * blocks)
        return false;
    int share = ((nnz - 1) / blocks / 4 + 1) * 4;
    int owned = (rows - 1) / blocks + 1;
    // Its product with a row has owner of that row in the upper half, since rows are below 2^15 or so.
    unsigned reciprocal = 0xffffffffu / owned + 1;
    if (share > kTile || owned == 1)
        return false;
    if (cudaFuncSetAttribute(exchange_bf16_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kSharedBytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    void* arguments[] = {&rows, &nnz, &values, &row_indices, &col_indices,
                         &x,    &y,   &share,  &owned,       &reciprocal};
    cudaLaunchCooperativeKernel(exchange_bf16_kernel_optimized, dim3(blocks), dim3(kThreads), arguments,
                                kSharedBytes, 0);
    return true;
}

// Step 1, for other matrices.
constexpr int kFewVectors = 2; // vectors of four entries that a thread requests at once
constexpr int kFewEntries = 4 * kFewVectors;
constexpr int kMinThreads = 128;
constexpr int kMaxThreads = 1024;
constexpr int kFixedRows = 65536;

__device__ float fixed_sums[kFixedRows]; // zero between calls

// Rows and products of the entries that a thread has in hand; the row is -1 where there is none.
struct Products {
    int row[kFewEntries];
    float product[kFewEntries];
};

__device__ Products load_products(int nnz, const __nv_bfloat16* values, const int* row_indices,
                                  const int* col_indices, const __nv_bfloat16* x, bool aligned,
                                  long long first_vector, long long vector_stride) {
    Products products;
    int column[kFewEntries];
    float value[kFewEntries];
#pragma unroll
    for (int k = 0; k < kFewVectors; ++k) {
        long long vector = first_vector + k * vector_stride;
        int* rows4 = &products.row[4 * k];
        int* columns4 = &column[4 * k];
        float* values4 = &value[4 * k];
        if (aligned && vector < nnz / 4) {
            int4 r = ((const int4*)row_indices)[vector];
            int4 c = ((const int4*)col_indices)[vector];
            uint2 v = ((const uint2*)values)[vector];
            rows4[0] = r.x, rows4[1] = r.y, rows4[2] = r.z, rows4[3] = r.w;
            columns4[0] = c.x, columns4[1] = c.y, columns4[2] = c.z, columns4[3] = c.w;
            // A bf16 number is the upper half of the same number in fp32.
            values4[0] = __uint_as_float(v.x << 16), values4[1] = __uint_as_float(v.x & 0xffff0000u);
            values4[2] = __uint_as_float(v.y << 16), values4[3] = __uint_as_float(v.y & 0xffff0000u);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            long long p = 4 * vector + i;
            rows4[i] = p < nnz ? row_indices[p] : -1;
            columns4[i] = p < nnz ? col_indices[p] : 0;
            values4[i] = p < nnz ? __bfloat162float(values[p]) : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < kFewEntries; ++i)
        products.product[i] = products.row[i] >= 0 ? value[i] * __bfloat162float(x[column[i]]) : 0.0f;
    return products;
}

// `given_sums` is null where the fixed ones are enough.
__global__ void __launch_bounds__(kMaxThreads)
    spmv_coo_bf16_kernel_optimized(int rows, int nnz, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_indices, const __nv_bfloat16* x, __nv_bfloat16* y,
                                   float* given_sums) {
    float* sums = given_sums ? given_sums : fixed_sums;
    bool aligned = (((size_t)row_indices | (size_t)col_indices) & 15) == 0 && ((size_t)values & 7) == 0;
    long long threads = (long long)gridDim.x * blockDim.x;
    long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long vectors = ((long long)nnz + 3) / 4;

    for (long long first = thread; first < vectors; first += kFewVectors * threads) {
        Products products = load_products(nnz, values, row_indices, col_indices, x, aligned, first, threads);
#pragma unroll
        for (int i = 0; i < kFewEntries; ++i)
            if (products.row[i] >= 0)
                atomicAdd(&sums[products.row[i]], products.product[i]);
    }
    cooperative_groups::this_grid().sync();
    for (long long i = thread; i < rows; i += threads) {
        y[i] = __float2bfloat16(sums[i]);
        sums[i] = 0.0f;
    }
}

extern "C" void spmv_coo_bf16_optimized(int rows, int nnz, const __nv_bfloat16* values,
                                        const int* row_indices, const int* col_indices,
                                        const __nv_bfloat16* x, __nv_bfloat16* y) {
    int device = 0, multiprocessors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (by_exchange(rows, nnz, values, row_indices, col_indices, x, y, multiprocessors))
        return;
    // A block on each multiprocessor, as large as the entries need; where they are few, on some.
    int wanted = nnz / (kFewEntries * multiprocessors) + 1;
    int threads = wanted < kMinThreads   ? kMinThreads
                  : wanted < kMaxThreads ? (wanted + 31) / 32 * 32
                                         : kMaxThreads;
    int work = nnz > rows ? nnz : rows;
    int needed = (work - 1) / (kFewEntries * threads) + 1;
    int blocks = needed < multiprocessors ? needed : multiprocessors;
    float* given_sums = nullptr;
    if (rows > kFixedRows) {
        cudaMallocAsync(&given_sums, sizeof(float) * rows, 0);
        cudaMemsetAsync(given_sums, 0, sizeof(float) * rows, 0);
    }
    void* arguments[] = {&rows, &nnz, &values, &row_indices, &col_indices, &x, &y, &given_sums};
    cudaLaunchCooperativeKernel(spmv_coo_bf16_kernel_optimized, dim3(blocks), dim3(threads), arguments);
    if (given_sums)
        cudaFreeAsync(given_sums, 0);
}
