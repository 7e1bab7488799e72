// idea: One launch: blocks that each read all points, or a cluster that exchanges points between shared memories
// why: In step 1 each of 64 blocks reads all of the input and multiplies every point. Here columns are transformed
//      and then rows, as few operations as a fast transform needs. From 256 to 2048 points up to eight blocks read
//      all points too, but 256 threads add them up, to one sum each, as they come, and 64 threads transform the
//      sums. So blocks exchange nothing, for 8 or 16 KB that each has to read. From 4096 points on a cluster of
//      eight shares the points, and a block sends its columns' results to the blocks that have their rows. The
//      stores count themselves at the receiver's barrier, so nothing waits for a fence, which takes 1.6 µs less than
//      a barrier of the cluster at 16384 points. With fewer blocks each has more instructions to issue: at 4096
//      points two, four and eight take 2.3, 1.8 and 1.7. There a thread has four points, for six steps of radix 4,
//      which takes another 0.1 to 0.2 off; from 8192 points on it has eight, for five steps of up to radix 8.
//      Roots are computed while points are on their way, by polynomials and into tables, and are in registers when
//      the points come. Without the tables nvcc computes them where they are used, which takes 0.2 more, and
//      unrolled they are 2 to 5 KB of code that comes from cold memory, which takes 0.3 more. A product of rounded
//      roots is off by as much as all its factors, so the second and the fourth power of a root are computed apart.
//      On the device, by events with cold caches, 1024 to 16384 points take 0.98, 1.35, 1.56, 2.05 and 2.74 µs
//      beyond an empty kernel of 4.5 on an H200. One block up to 2048 points and a cluster of M / 32 blocks beyond,
//      eight points a thread, took 1.29, 1.86, 2.38, 2.54 and 2.77, `torch.fft.fft` takes 2.1, 3.2, 4.2, 5.2 and
//      10.5, and a kernel that only loads and stores the points 0.7 to 1.0.
//      Longer transforms, and those from 4096 points on without clusters, go through memory in two passes, from 2^21
//      on in three. A pass transforms 64 to 1024 points in shared memory, 16 in a thread's registers, in up to three
//      steps of radix 4 to 16; the first leaves its results in the order that lets the others work in place, in the
//      output. Tiles of the three passes are 16 or 32 transforms wide: longer segments of memory gain up to 17 %. A
//      later launch begins before the one before it ends. 2^20 points take 20.6 µs on the device and 2^26 974, where
//      cuFFT without the packing takes 21.6 and 1002, and passes of eight points a thread took 28.4 and 1231.
//      What binds it now: latency. Of 1800 cycles in the kernel at 1024 points, 1050 are the way of the points from
//      memory, 250 the sums and their barrier, 500 four steps and the stores. About 160 are for code from cold
//      memory.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kShort = 128; // points that one block transforms two a thread
constexpr int kMaxThreads = 256;

// exp(-2 pi i turns)
__device__ __forceinline__ float2 fft_root(float turns) {
    float2 root;
    sincospif(-2.0f * turns, &root.y, &root.x);
    return root;
}

// The same by fewer instructions: the nearest quarter of a turn by its number, the rest by polynomials. Off by at
// most 7e-8. The passes of long transforms would spill registers with it.
__device__ __forceinline__ float2 fft_quick_root(float turns) {
    float shifted = fmaf(turns, 4.0f, 12582912.0f); // 1.5 * 2^23, so that the low bits are the number
    unsigned quarter = __float_as_uint(shifted);
    float rest = fmaf(shifted - 12582912.0f, -0.25f, turns), square = rest * rest;
    float sine = fmaf(fmaf(-75.4533997f, square, 81.5939407f), square, -41.3416748f);
    sine = fmaf(rest, 6.28318548f, rest * fmaf(sine, square, -1.74845560e-7f)); // 2 pi in two parts
    float cosine = fmaf(fmaf(59.2459679f, square, -85.4437408f), square, 64.9393234f);
    cosine = fmaf(fmaf(cosine, square, -19.7392082f), square, 1.0f);
    bool odd = quarter & 1;
    unsigned real = __float_as_uint(odd ? sine : cosine), img = __float_as_uint(odd ? cosine : sine);
    return make_float2(__uint_as_float(real ^ ((quarter + 1) & 2) << 30),
                       __uint_as_float(img ^ (~quarter & 2) << 30));
}

__device__ __forceinline__ float2 fft_product(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

__device__ __forceinline__ float2 fft_sum(float2 a, float2 b) {
    return make_float2(a.x + b.x, a.y + b.y);
}

__device__ __forceinline__ float2 fft_difference(float2 a, float2 b) {
    return make_float2(a.x - b.x, a.y - b.y);
}

// a times -i
__device__ __forceinline__ float2 fft_quarter_turn(float2 a) {
    return make_float2(a.y, -a.x);
}

// Transforms kPoints numbers (1, 2, 4 or 8) in registers.
template <int kPoints> __device__ __forceinline__ void fft_in_registers(float2* v) {
    if constexpr (kPoints == 2) {
        float2 a = v[0];
        v[0] = fft_sum(a, v[1]);
        v[1] = fft_difference(a, v[1]);
    } else if constexpr (kPoints == 4) {
        float2 a = fft_sum(v[0], v[2]), b = fft_difference(v[0], v[2]);
        float2 c = fft_sum(v[1], v[3]), d = fft_quarter_turn(fft_difference(v[1], v[3]));
        v[0] = fft_sum(a, c);
        v[1] = fft_sum(b, d);
        v[2] = fft_difference(a, c);
        v[3] = fft_difference(b, d);
    } else if constexpr (kPoints == 8) {
        constexpr float kHalfRoot = 0.70710678118654752f;
        float2 even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
        fft_in_registers<4>(even);
        fft_in_registers<4>(odd);
        odd[1] = make_float2(kHalfRoot * (odd[1].x + odd[1].y), kHalfRoot * (odd[1].y - odd[1].x));
        odd[2] = fft_quarter_turn(odd[2]);
        odd[3] = make_float2(kHalfRoot * (odd[3].y - odd[3].x), -kHalfRoot * (odd[3].x + odd[3].y));
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            v[k] = fft_sum(even[k], odd[k]);
            v[k + 4] = fft_difference(even[k], odd[k]);
        }
    }
}

// Powers of a root, each computed by itself: a product of rounded roots is off by as much as all of them.
struct FftRoots {
    float2 first, second, fourth;
};

__device__ __forceinline__ FftRoots fft_roots(float turns) {
    return {fft_quick_root(turns), fft_quick_root(2.0f * turns), fft_quick_root(4.0f * turns)};
}

// Multiplies v[0] by the k-th power of a root, to v[k].
__device__ __forceinline__ void fft_powers(float2* v, const FftRoots& roots) {
    v[1] = fft_product(v[0], roots.first);
    v[2] = fft_product(v[0], roots.second);
    v[3] = fft_product(v[0], fft_product(roots.second, roots.first));
#pragma unroll
    for (int k = 4; k < 8; ++k)
        v[k] = fft_product(v[k - 4], roots.fourth);
}

// Multiplies v[k] by roots[k], from 1 on.
template <int kPoints> __device__ __forceinline__ void fft_turn(float2* v, const float2* roots) {
#pragma unroll
    for (int k = 1; k < kPoints; ++k)
        v[k] = fft_product(v[k], roots[k]);
}

// The same by a table: `first` is the place of the first root.
__device__ __forceinline__ void fft_turn(float2* v, const float2* table, int first) {
#pragma unroll
    for (int k = 1; k < 8; ++k)
        v[k] = fft_product(v[k], table[k * first]);
}

// One result of a transform of kPoints: the sum of points[r] times a root to the power r. The powers that are needed
// are that root to the power kPoints / 2 (1 or -1), kPoints / 4 ... 1.
template <int kPoints>
__device__ __forceinline__ float2 fft_one_result(float2* points, const float2* powers) {
#pragma unroll
    for (int half = kPoints / 2, level = 0; half >= 1; half /= 2, ++level)
#pragma unroll
        for (int r = 0; r < half; ++r) {
            float2 a = points[r], b = points[r + half], root = powers[level];
            points[r] = level == 0 ? make_float2(a.x + root.x * b.x, a.y + root.x * b.y)
                                   : fft_sum(a, fft_product(b, root));
        }
    return points[0];
}

constexpr int kSet = 20,
              kLine = 82; // places with padding against conflicts: of 16 points, and of four such sets

// The first two of the three steps that transform 64 points, by 16 neighbouring threads with four points each. Then
// result `thread` of the last step is one of line[thread + kSet * r].
__device__ __forceinline__ void fft_two_steps(float2* v, int thread, const float2* first,
                                              const float2* second, float2* line) {
    fft_in_registers<4>(v);
    fft_turn<4>(v, first);
#pragma unroll
    for (int a = 0; a < 4; ++a)
        line[a * kSet + thread] = v[a];
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = line[thread / 4 * kSet + thread % 4 + 4 * r];
    fft_in_registers<4>(v);
    fft_turn<4>(v, second);
    __syncwarp();
#pragma unroll
    for (int a = 0; a < 4; ++a)
        line[thread % 4 * kSet + thread / 4 + 4 * a] = v[a];
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Makes the block's barrier, which is passed once `bytes` have come, and tells the cluster that it is there.
__device__ __forceinline__ void fft_expect(unsigned barrier, int bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                     : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void fft_wait_for_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// What another block's shared memory has at the same place.
__device__ __forceinline__ unsigned fft_its(unsigned place, int block) {
    unsigned its = place;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its) : "r"(place), "r"(block));
#endif
    return its;
}

// Writes to another block's shared memory. Its barrier counts the bytes.
__device__ __forceinline__ void fft_send(unsigned its_place, float2 point, unsigned its_barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(its_place),
        "f"(point.x), "f"(point.y), "r"(its_barrier)
        : "memory");
#endif
}

__device__ __forceinline__ void fft_wait(unsigned barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;}" ::"r"(barrier)
                 : "memory");
#endif
}

// N = 256 * kBlocks points, by blocks that never meet. Each reads all points: its results are those of its own number
// modulo kBlocks, a transform of 256 sums of kBlocks points. All threads add, 64 of them transform by four steps.
template <int kBlocks>
__global__ void __launch_bounds__(kMaxThreads)
    fft_apart_kernel_optimized(const float* input_real, const float* input_img, float* output_real,
                               float* output_img) {
    constexpr int kSums = kMaxThreads, N = kSums * kBlocks;
    __shared__ float2 table[kSums], sums[kSums], rows[kSums], lines[4 * kLine];
    int t = threadIdx.x, block = blockIdx.x, u = t % 16, row = t / 16;
    float real[kBlocks], img[kBlocks];
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
        real[r] = input_real[t + kSums * r];
        img[r] = input_img[t + kSums * r];
    }
    // Roots of 256, and the thread's own one of N, while the points are on their way. If nvcc unrolled the loop, it
    // would compute them before it loads points, or where they are used.
#pragma unroll 1
    for (int step = kBlocks; step >= 0; step -= kBlocks)
        (step > 0 ? table : rows)[t] = fft_quick_root((float)((step > 0 ? step : block) * t) * (1.0f / N));
    __syncthreads();
    float2 own = rows[t], powers[4], first[4], second[4], third[4];
#pragma unroll
    for (int order = 2, level = 0; order <= kBlocks; order *= 2, ++level)
        powers[level] = table[kSums / order * block % kSums];
    if (t < 64)
#pragma unroll
        for (int a = 1; a < 4; ++a) {
            first[a] = table[a * t];
            second[a] = table[4 * a * u];
            third[a] = table[16 * a * (u % 4)];
        }

    float2 all[kBlocks];
#pragma unroll
    for (int r = 0; r < kBlocks; ++r)
        all[r] = make_float2(real[r], img[r]);
    sums[t] = fft_product(fft_one_result<kBlocks>(all, powers), own);
    __syncthreads();
    float2 v[4];
    if (t < 64) {
#pragma unroll
        for (int r = 0; r < 4; ++r)
            v[r] = sums[t + 64 * r];
        fft_in_registers<4>(v);
        fft_turn<4>(v, first);
#pragma unroll
        for (int a = 0; a < 4; ++a)
            rows[64 * a + t] = v[a];
    }
    __syncthreads();
    if (t < 64) {
#pragma unroll
        for (int r = 0; r < 4; ++r)
            v[r] = rows[64 * row + u + 16 * r];
        float2* line = lines + row * kLine;
        fft_two_steps(v, u, second, third, line);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 4; ++r)
            v[r] = line[u + kSet * r];
        fft_in_registers<4>(v);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            int to = block + kBlocks * (row + 4 * (u + 16 * k));
            output_real[to] = v[k].x;
            output_img[to] = v[k].y;
        }
    }
}

constexpr int kBlocks = 8; // of a cluster

// 4096 points: 64 columns of 64, then 64 rows of 64, in three steps of radix 4 each. A block has four warps with four
// points a thread, as two with eight points would have twice as many instructions to issue, one after another.
__global__ void __launch_bounds__(128)
    fft_square_kernel_optimized(const float* input_real, const float* input_img, float* output_real,
                                float* output_img) {
    constexpr int M = 64, N = M * M, kColumns = M / kBlocks, kRows = M / kBlocks;
    __shared__ float2 points[M * kColumns], others[68 * kColumns], rows[kRows * M], lines[kRows * kLine],
        roots[M];
    __shared__ unsigned long long arrived;
    unsigned barrier = shared_address(&arrived);
    int rank = blockIdx.x, column = threadIdx.x % kColumns, g = threadIdx.x / kColumns,
        m = rank * kColumns + column;
    float real[4], img[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        real[r] = input_real[(g + 16 * r) * M + m];
        img[r] = input_img[(g + 16 * r) * M + m];
    }
    fft_expect(barrier, kRows * M * sizeof(float2));
    // Roots while the points are on their way.
#pragma unroll 2
    for (int e = 0; e < 4; ++e)
        points[e * 128 + threadIdx.x] = fft_quick_root((float)(m * (g + 16 * e)) * (1.0f / N));
    if (threadIdx.x < M)
        roots[threadIdx.x] = fft_quick_root((float)threadIdx.x * (1.0f / M));
    int row = threadIdx.x / 16, u = threadIdx.x % 16;
    float2 column_roots[2][4], own[4], row_roots[2][4];
    unsigned its_barrier[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        own[e] = points[e * 128 + threadIdx.x];
        its_barrier[e] = fft_its(barrier, (g + 16 * e) / kRows);
    }
    fft_wait_for_cluster();
    __syncthreads();
#pragma unroll
    for (int a = 1; a < 4; ++a) {
        column_roots[0][a] = roots[a * g];
        column_roots[1][a] = roots[4 * a * (g % 4)];
        row_roots[0][a] = roots[a * u];
        row_roots[1][a] = roots[4 * a * (u % 4)];
    }

    float2 v[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = make_float2(real[r], img[r]);
    fft_in_registers<4>(v);
    fft_turn<4>(v, column_roots[0]);
#pragma unroll
    for (int a = 0; a < 4; ++a)
        points[(a * 16 + g) * kColumns + column] = v[a];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = points[(g / 4 * 16 + g % 4 + 4 * r) * kColumns + column];
    fft_in_registers<4>(v);
    fft_turn<4>(v, column_roots[1]);
#pragma unroll
    for (int a = 0; a < 4; ++a)
        others[(g % 4 * 17 + g / 4 + 4 * a) * kColumns + column] = v[a];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = others[(r * 17 + g) * kColumns + column];
    fft_in_registers<4>(v);
#pragma unroll
    for (int e = 0; e < 4; ++e) { // row g + 16 e of all
        unsigned place = shared_address(&rows[(g + 16 * e) % kRows * M + m]);
        fft_send(its_barrier[e] + (place - barrier), fft_product(v[e], own[e]), its_barrier[e]);
    }
    fft_wait(barrier);
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = rows[row * M + u + 16 * r];
    fft_two_steps(v, u, row_roots[0], row_roots[1], lines + row * kLine);
    __syncthreads();
    // Neighbouring threads have neighbouring rows, which are neighbours in the output.
    row = threadIdx.x % kRows;
    u = threadIdx.x / kRows;
#pragma unroll
    for (int r = 0; r < 4; ++r)
        v[r] = lines[row * kLine + u + kSet * r];
    fft_in_registers<4>(v);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        int to = rank * kRows + row + M * (u + 16 * k);
        output_real[to] = v[k].x;
        output_img[to] = v[k].y;
    }
}

// N = 64 * M points, M = 1 << kLogM, by a cluster. The first two steps transform columns: 64 points that are M apart.
// What they make goes to the block that has the row, and the other steps transform rows of M points. A thread has
// eight points: of radix 4 there would be seven steps.
template <int kLogM>
__global__ void __launch_bounds__(kMaxThreads)
    fft_kernel_optimized(const float* input_real, const float* input_img, float* output_real,
                         float* output_img) {
    constexpr int M = 1 << kLogM, N = 64 * M;
    constexpr int kColumns = M / kBlocks, kRows = 64 / kBlocks, kThreads = 8 * kColumns;
    constexpr int kLength = M / 8,
                  kLast = kLength / 8; // of a row's transforms behind its first step; of the last step
    constexpr int kRow = M + (kLength == 32 ? 0 : kLength),
                  kLastRow = M + 1; // with padding against conflicts
    __shared__ float2 points[64 * kColumns + kRows], rows[kRows * kRow];
    __shared__ float2 roots[64 + M]; // of 64, and those of M in the order of their use
    const float2* row_roots = roots + 64;
    __shared__ unsigned long long arrived;
    unsigned barrier = shared_address(&arrived);
    int rank = blockIdx.x, column = threadIdx.x % kColumns, g = threadIdx.x / kColumns,
        m = rank * kColumns + column;
    float real[8], img[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        real[r] = input_real[(g + 8 * r) * M + m];
        img[r] = input_img[(g + 8 * r) * M + m];
    }
    fft_expect(barrier, kRows * M * sizeof(float2));
    // Roots while the points are on their way.
#pragma unroll 1
    for (int i = threadIdx.x; i < 64 + M; i += kThreads) {
        int at = i - 64;
        roots[i] = fft_quick_root(at < 0 ? i / 64.0f : (float)(at / kLength * (at % kLength)) / M);
    }
    float2 own[8] = {fft_quick_root((float)(m * g) / N)}, v[8];
    FftRoots eighths = fft_roots((float)m / (N / 8));
    unsigned its_barrier[8];
#pragma unroll
    for (int e = 0; e < 8; ++e)
        its_barrier[e] = fft_its(barrier, e);
    fft_wait_for_cluster();
    __syncthreads();

#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = make_float2(real[r], img[r]);
    fft_in_registers<8>(v);
    fft_turn(v, roots, g);
#pragma unroll
    for (int a = 0; a < 8; ++a)
        points[(a * 8 + g) * kColumns + column] = v[a];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = points[(g * 8 + r) * kColumns + column];
    fft_in_registers<8>(v);
    fft_powers(own, eighths);
#pragma unroll
    for (int e = 0; e < 8; ++e) { // row g of block e
        unsigned place = shared_address(&rows[g * kRow + m]);
        fft_send(its_barrier[e] + (place - barrier), fft_product(v[e], own[e]), its_barrier[e]);
    }

    int row = threadIdx.x / kLength, j = threadIdx.x % kLength;
    fft_wait(barrier);
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = rows[row * kRow + j + kLength * r];
    fft_in_registers<8>(v);
    fft_turn(v, row_roots + j, kLength);
    // A row has threads of one warp. Its eighths are turned by kLast points, against conflicts.
    __syncwarp();
#pragma unroll
    for (int a = 0; a < 8; ++a)
        rows[row * kRow + a * kLength + (j + a * kLast) % kLength] = v[a];
    __syncwarp();
    int digit = j / kLast;
    j %= kLast;
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = rows[row * kRow + digit * kLength + (j + kLast * (r + digit)) % kLength];
    fft_in_registers<8>(v);
    fft_turn(v, row_roots + 8 * j, kLength);
#pragma unroll
    for (int a = 0; a < 8; ++a)
        points[row * kLastRow + (digit + 8 * a) * kLast + j] = v[a];
    __syncthreads();
    // Neighbouring threads have neighbouring rows, as above.
    row = threadIdx.x % kRows;
#pragma unroll
    for (int i = 0; i < 8 / kLast; ++i) {
        int place = threadIdx.x / kRows + i * kThreads / kRows;
#pragma unroll
        for (int k = 0; k < kLast; ++k)
            v[k] = points[row * kLastRow + place * kLast + k];
        fft_in_registers<kLast>(v);
#pragma unroll
        for (int k = 0; k < kLast; ++k) {
            int to = rank * kRows + row + 64 * (place + M / kLast * k);
            output_real[to] = v[k].x;
            output_img[to] = v[k].y;
        }
    }
}

// Up to kShort points by one block, in steps of radix 2. Each writes in the order that the next one reads.
__global__ void __launch_bounds__(kShort / 2)
    fft_short_kernel_optimized(const float* input_real, const float* input_img, float* output_real,
                               float* output_img, int N) {
    __shared__ float2 points[2][kShort];
    int i = threadIdx.x, half = N / 2;
    for (int at = i; at < N; at += blockDim.x)
        points[0][at] = make_float2(input_real[at], input_img[at]);
    __syncthreads();
    int now = 0;
    for (int stride = 1; stride < N; stride *= 2) {
        if (i < half) {
            int inside = i & (stride - 1), start = i - inside;
            float2 a = points[now][i], b = points[now][i + half];
            points[1 - now][2 * start + inside] = fft_sum(a, b);
            points[1 - now][2 * start + inside + stride] =
                fft_product(fft_difference(a, b), fft_root((float)start / N));
        }
        __syncthreads();
        now = 1 - now;
    }
    for (int at = i; at < N; at += blockDim.x) {
        output_real[at] = points[now][at].x;
        output_img[at] = points[now][at].y;
    }
}

// 16 points: four transforms of four, turned, and four of four across them.
__device__ __forceinline__ void fft_sixteen(float2* v) {
    constexpr float kCos = 0.92387953251128674f, kSin = 0.38268343236508977f, kHalf = 0.70710678118654752f;
    float2 w[16];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        float2 column[4] = {v[r], v[r + 4], v[r + 8], v[r + 12]};
        fft_in_registers<4>(column);
#pragma unroll
        for (int a = 0; a < 4; ++a)
            w[4 * a + r] = column[a];
    }
    w[5] = fft_product(w[5], make_float2(kCos, -kSin));
    w[6] = make_float2(kHalf * (w[6].x + w[6].y), kHalf * (w[6].y - w[6].x));
    w[7] = fft_product(w[7], make_float2(kSin, -kCos));
    w[9] = make_float2(kHalf * (w[9].x + w[9].y), kHalf * (w[9].y - w[9].x));
    w[10] = fft_quarter_turn(w[10]);
    w[11] = make_float2(kHalf * (w[11].y - w[11].x), -kHalf * (w[11].x + w[11].y));
    w[13] = fft_product(w[13], make_float2(kSin, -kCos));
    w[14] = make_float2(kHalf * (w[14].y - w[14].x), -kHalf * (w[14].x + w[14].y));
    w[15] = fft_product(w[15], make_float2(-kCos, kSin));
#pragma unroll
    for (int a = 0; a < 4; ++a) {
        fft_in_registers<4>(w + 4 * a);
#pragma unroll
        for (int b = 0; b < 4; ++b)
            v[a + 4 * b] = w[4 * a + b];
    }
}

template <int kPoints> __device__ __forceinline__ void fft_step(float2* v) {
    if constexpr (kPoints == 16)
        fft_sixteen(v);
    else
        fft_in_registers<kPoints>(v);
}

// How a long transform is cut into passes: N is the product of their lengths 1 << log[pass]. The number of a
// transform of the first pass has a digit of `lower` bits and, with three passes, one of `upper` bits above it.
struct FftCut {
    int passes, log[3], lower, upper;
};

// Where a transform of the first pass belongs: its number with its digits in reverse, one for each later pass.
__device__ __forceinline__ int fft_reversed(int number, const FftCut& cut) {
    return (number >> cut.lower) + ((number & ((1 << cut.lower) - 1)) << cut.upper);
}

// exp(-2 pi i numerator / 2^bits), by the angle that is nearest to zero
__device__ __forceinline__ float2 fft_fine_root(unsigned numerator, int bits) {
    int nearest = (int)(numerator << (32 - bits)) >> (32 - bits);
    return fft_root(nearest * (1.0f / (1u << bits)));
}

template <class T> __device__ __forceinline__ T fft_rounded(float x) {
    return x;
}

// Points of which the real and the imaginary parts are in arrays of their own.
template <class T, class Pointer = T*> struct FftArrays {
    Pointer real, img;
    struct Raw {
        T real, img;
    };
    __device__ __forceinline__ Raw load(size_t at) const { return {real[at], img[at]}; }
    __device__ __forceinline__ void store(size_t at, float2 point) const {
        real[at] = fft_rounded<T>(point.x);
        img[at] = fft_rounded<T>(point.y);
    }
    static __device__ __forceinline__ float2 point(const Raw& raw) { return make_float2(raw.real, raw.img); }
};

// A launch may begin before the one before it has ended.
__device__ __forceinline__ void fft_begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before this one has ended, and all that it wrote is there.
__device__ __forceinline__ void fft_wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A transform of R = 16 * kMiddle * kLast points in a pass, and the tile of kColumns of them that a block has. A
// thread has 16 points.
template <int kLogR, int kLogColumns> struct FftTile {
    static constexpr int kR = 1 << kLogR, kColumns = 1 << kLogColumns;
    static constexpr int kMiddle = kLogR <= 8 ? 1 : kLogR == 9 ? 8 : 16;
    static constexpr int kLast = kR / 16 / kMiddle; // 4, 8 or 16
    static constexpr int kGroup = kR / 16, kThreads = kGroup * kColumns;
    // Places of what the last step reads, against conflicts of banks: kLast sets of those that the last step makes,
    // each with one more; in the first pass column by column.
    static constexpr int kSet = 16 * kMiddle + 1;
    static constexpr int kSpread = kColumns >= 16 ? 1 : 16 / kColumns;
    static constexpr int kColumn = (kSet * kLast - kSpread + 15) / 16 * 16 + kSpread;
    static constexpr int kPoints = kColumn * kColumns; // of shared memory, enough for either order
    static constexpr int kBytes = (kPoints + kR + kGroup) * (int)sizeof(float2);
};

// One pass of a long transform. The first pass takes points N / R apart and writes results side by side, each later
// one combines, in place, `made` = 1 << log_made results of those before with R - 1 others. A block has neighbouring
// transforms, so that it reads and writes neighbours.
template <int kLogR, int kLogColumns, bool kFirst, class From, class To>
__global__ void __launch_bounds__(FftTile<kLogR, kLogColumns>::kThreads,
                                  1024 / FftTile<kLogR, kLogColumns>::kThreads)
    fft_pass_kernel_optimized(From from, To to, int log_n, int log_made, FftCut cut) {
    using Tile = FftTile<kLogR, kLogColumns>;
    constexpr int R = Tile::kR, kGroup = Tile::kGroup, kColumns = Tile::kColumns, kThreads = Tile::kThreads;
    constexpr int kMiddle = Tile::kMiddle, kLast = Tile::kLast, kSet = Tile::kSet;
    extern __shared__ float2 fft_points[];
    float2 *roots = fft_points + Tile::kPoints, *fewer_roots = roots + R; // of R and of R / 16
    int column = threadIdx.x % kColumns, g = threadIdx.x / kColumns;
    int number = blockIdx.x * kColumns + column;
    int bits = kFirst ? log_n - kLogR : log_made;
    int low = number & ((1 << bits) - 1);
    size_t first = ((size_t)(number >> bits) << (bits + kLogR)) + low;
    fft_begin_next();
    if (!kFirst)
        fft_wait_for_last();
    float2 v[16];
    {
        typename From::Raw raw[16];
#pragma unroll
        for (int r = 0; r < 16; ++r)
            raw[r] = from.load(first + ((size_t)(g + kGroup * r) << bits));
#pragma unroll 1
        for (int i = threadIdx.x; i < R; i += kThreads)
            roots[i] = fft_root((float)i / R);
        if (kMiddle > 1)
#pragma unroll 1
            for (int i = threadIdx.x; i < kGroup; i += kThreads)
                fewer_roots[i] = fft_root((float)i / kGroup);
#pragma unroll
        for (int r = 0; r < 16; ++r)
            v[r] = From::point(raw[r]);
    }
    if (!kFirst) {
        int made_now = log_made + kLogR;
        unsigned step = (unsigned)low * kGroup;
        float2 base = fft_fine_root((unsigned)low * g, made_now);
        float2 power[5] = {fft_fine_root(step, made_now), fft_fine_root(2 * step, made_now),
                           fft_fine_root(4 * step, made_now), fft_fine_root(8 * step, made_now)};
#pragma unroll
        for (int r = 0; r < 16; ++r) {
            float2 root = base;
#pragma unroll
            for (int bit = 0; bit < 4; ++bit)
                if (r >> bit & 1)
                    root = fft_product(root, power[bit]);
            v[r] = fft_product(v[r], root);
        }
    }
    fft_sixteen(v);
    __syncthreads();
#pragma unroll
    for (int a = 1; a < 16; ++a)
        v[a] = fft_product(v[a], roots[g * a]);
    if constexpr (kMiddle > 1) {
#pragma unroll
        for (int a = 0; a < 16; ++a)
            fft_points[(a * kGroup + g) * kColumns + column] = v[a];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16 / kMiddle; ++i) {
            int item = g + i * kGroup, a = item / kLast, j = item % kLast;
#pragma unroll
            for (int r = 0; r < kMiddle; ++r)
                v[i * kMiddle + r] = fft_points[(a * kGroup + j + kLast * r) * kColumns + column];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16 / kMiddle; ++i) {
            int item = g + i * kGroup, a = item / kLast, j = item % kLast;
            fft_step<kMiddle>(v + i * kMiddle);
#pragma unroll
            for (int b = 0; b < kMiddle; ++b) {
                float2 point = v[i * kMiddle + b];
                if (b > 0)
                    point = fft_product(point, fewer_roots[j * b]);
                int place = j * kSet + a + 16 * b;
                fft_points[kFirst ? column * Tile::kColumn + place : place * kColumns + column] = point;
            }
        }
    } else {
#pragma unroll
        for (int a = 0; a < 16; ++a) {
            int place = g * kSet + a;
            fft_points[kFirst ? column * Tile::kColumn + place : place * kColumns + column] = v[a];
        }
    }
    __syncthreads();
    constexpr int kSums = 16 * kMiddle; // results of the steps before the last
    if (kFirst) {
        // Neighbouring threads have neighbouring results.
#pragma unroll
        for (int i = 0; i < 16 / kLast; ++i) {
            int item = threadIdx.x + i * kThreads, sum = item % kSums, mine = item / kSums;
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                v[k] = fft_points[mine * Tile::kColumn + k * kSet + sum];
            fft_step<kLast>(v);
            size_t at = ((size_t)fft_reversed(blockIdx.x * kColumns + mine, cut) << kLogR) + sum;
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                to.store(at + kSums * k, v[k]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 16 / kLast; ++i) {
            int sum = g + i * kGroup;
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                v[k] = fft_points[(k * kSet + sum) * kColumns + column];
            fft_step<kLast>(v);
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                to.store(first + ((size_t)(sum + kSums * k) << bits), v[k]);
        }
    }
}

template <int kLogR, int kLogColumns, bool kFirst, class From, class To>
void fft_start_pass(const From& from, const To& to, int log_n, int log_made, const FftCut& cut) {
    using Tile = FftTile<kLogR, kLogColumns>;
    auto kernel = fft_pass_kernel_optimized<kLogR, kLogColumns, kFirst, From, To>;
    if (Tile::kBytes > 48 << 10)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kBytes);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1 << (log_n - kLogR - kLogColumns));
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = Tile::kBytes;
    config.attrs = &early;
    config.numAttrs = !kFirst;
    cudaLaunchKernelEx(&config, kernel, from, to, log_n, log_made, cut);
}

// The pass that has the length cut.log[pass], of which the passes before have made 1 << log_made. Two passes have
// narrow tiles, for more blocks; three have wider ones, for longer segments of memory.
template <bool kFirst, bool kWide, class From, class To>
void fft_pass(int pass, const From& from, const To& to, int log_n, int log_made, const FftCut& cut) {
    if constexpr (kWide) {
        if (cut.log[pass] == 7)
            fft_start_pass<7, 5, kFirst>(from, to, log_n, log_made, cut);
        else if (cut.log[pass] == 8)
            fft_start_pass<8, 5, kFirst>(from, to, log_n, log_made, cut);
        else if (cut.log[pass] == 9)
            fft_start_pass<9, 4, kFirst>(from, to, log_n, log_made, cut);
        else
            fft_start_pass<10, 3, kFirst>(from, to, log_n, log_made, cut);
    } else {
        if (cut.log[pass] == 6)
            fft_start_pass<6, 3, kFirst>(from, to, log_n, log_made, cut);
        else if (cut.log[pass] == 7)
            fft_start_pass<7, 3, kFirst>(from, to, log_n, log_made, cut);
        else if (cut.log[pass] == 8)
            fft_start_pass<8, 3, kFirst>(from, to, log_n, log_made, cut);
        else if (cut.log[pass] == 9)
            fft_start_pass<9, 3, kFirst>(from, to, log_n, log_made, cut);
        else
            fft_start_pass<10, 3, kFirst>(from, to, log_n, log_made, cut);
    }
}

constexpr int kLogTwoPasses = 20; // of the most points that take two passes

FftCut fft_cut(int log_n) {
    FftCut cut;
    cut.passes = log_n <= kLogTwoPasses ? 2 : 3;
    for (int pass = 0; pass < cut.passes; ++pass)
        cut.log[pass] = (log_n + pass) / cut.passes;
    cut.lower = cut.log[cut.passes - 1];
    cut.upper = cut.passes == 3 ? cut.log[1] : 0;
    return cut;
}

// From 4096 points on. Between the passes the points are in the output.
void fft_by_passes(const float* input_real, const float* input_img, float* output_real, float* output_img,
                   int N) {
    int log_n = 0;
    while (1 << log_n < N)
        ++log_n;
    FftCut cut = fft_cut(log_n);
    FftArrays<float, const float*> input = {input_real, input_img};
    FftArrays<float> output = {output_real, output_img};
    if (cut.passes == 2) {
        fft_pass<true, false>(0, input, output, log_n, 0, cut);
        fft_pass<false, false>(1, output, output, log_n, cut.log[0], cut);
    } else {
        fft_pass<true, true>(0, input, output, log_n, 0, cut);
        fft_pass<false, true>(1, output, output, log_n, cut.log[0], cut);
        fft_pass<false, true>(2, output, output, log_n, cut.log[0] + cut.log[1], cut);
    }
}

// Starts a cluster of kBlocks. Not every GPU has them.
template <class Kernel>
bool fft_start(Kernel kernel, int threads, const float* input_real, const float* input_img,
               float* output_real, float* output_img) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(threads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, kernel, input_real, input_img, output_real, output_img) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

extern "C" void fft_optimized(const float* input_real, const float* input_img, float* output_real,
                              float* output_img, int N) {
    bool started = false;
    if (N == 4096)
        started = fft_start(fft_square_kernel_optimized, 128, input_real, input_img, output_real, output_img);
    else if (N == 8192)
        started = fft_start(fft_kernel_optimized<7>, 128, input_real, input_img, output_real, output_img);
    else if (N == 16384)
        started = fft_start(fft_kernel_optimized<8>, 256, input_real, input_img, output_real, output_img);
    if (started)
        return;
    if (N <= kShort)
        fft_short_kernel_optimized<<<1, kShort / 2>>>(input_real, input_img, output_real, output_img, N);
    else if (N == 256)
        fft_apart_kernel_optimized<1><<<1, kMaxThreads>>>(input_real, input_img, output_real, output_img);
    else if (N == 512)
        fft_apart_kernel_optimized<2><<<2, kMaxThreads>>>(input_real, input_img, output_real, output_img);
    else if (N == 1024)
        fft_apart_kernel_optimized<4><<<4, kMaxThreads>>>(input_real, input_img, output_real, output_img);
    else if (N == 2048)
        fft_apart_kernel_optimized<8><<<8, kMaxThreads>>>(input_real, input_img, output_real, output_img);
    else
        fft_by_passes(input_real, input_img, output_real, output_img, N);
}
