// idea: One cluster transforms columns, then rows, and exchanges points between its blocks' shared memory
// why: In step 1 each of 64 blocks reads all of the input and multiplies every point. Here 64 M points are M columns
//      of 64 and then 64 rows of M, as few operations as a fast transform needs. Up to 2048 points one block does it,
//      beyond that a cluster of up to eight: a block has 32 columns, and sends each result to the block that has its
//      row. The stores count themselves at the receiver's barrier, so nothing waits for a fence: on an H200, 16384
//      points take 1.9 µs beyond an empty launch so, and 3.5 with a barrier of the cluster. A thread has eight points
//      and takes up to five steps of radix 8, the last of radix 2, 4 or 8. Roots are computed while points are on
//      their way. A product of rounded roots is off by as much as all its factors, so the second and the fourth power
//      of a root are computed apart, which halves the error and takes 0.5. Roots by calls of one function are slower
//      by 0.7, a table of roots in shared memory is no faster.
//      By `evaluate`, 16384 points take 13.4 µs in fp32 and 15.6 in bf16, where an empty launch takes 10.4 and 11.1;
//      step 1 takes 4 µs more than this one in fp32, in turn with it. All times are from before the wait had the
//      scope of the cluster.
//      Longer transforms, and those from 4096 points on without clusters, go through memory in passes of 64 to 512
//      points, the first of which leaves them in the order that lets the others work in place.
//      What binds it now: latency. Of 2.5 µs in the kernel, 1.0 is the way of the points from memory, 0.3 to 0.5 the
//      exchange, 0.4 the last step and its stores.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kShort = 512; // points that one block transforms two a thread
constexpr int kMaxThreads = 256;
constexpr int kPassThreads = 1024;
constexpr int kLogPass = 13; // points of a block of a pass: eight a thread
constexpr int kMaxPasses = 4;

// exp(-2 pi i turns)
__device__ __forceinline__ float2 fft_root(float turns) {
    float2 root;
    sincospif(-2.0f * turns, &root.y, &root.x);
    return root;
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
    return {fft_root(turns), fft_root(2.0f * turns), fft_root(4.0f * turns)};
}

// Multiplies v[k] by the k-th power of a root.
__device__ __forceinline__ void fft_turn(float2* v, const FftRoots& roots) {
    float2 third = fft_product(roots.second, roots.first);
    v[1] = fft_product(v[1], roots.first);
    v[2] = fft_product(v[2], roots.second);
    v[3] = fft_product(v[3], third);
    v[4] = fft_product(v[4], roots.fourth);
    v[5] = fft_product(v[5], fft_product(roots.fourth, roots.first));
    v[6] = fft_product(v[6], fft_product(roots.fourth, roots.second));
    v[7] = fft_product(v[7], fft_product(roots.fourth, third));
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

// Writes to the same place in the shared memory of another block, whose barrier counts the bytes.
__device__ __forceinline__ void fft_send(int block, unsigned place, float2 point, unsigned barrier) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    unsigned its_place, its_barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_place) : "r"(place), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_barrier) : "r"(barrier), "r"(block));
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

// N = 64 * M points, M = 1 << kLogM, by one block or a cluster of M / 32. The first two steps transform columns:
// 64 points that are M apart. What they make goes to the block that has the row, and the other steps transform rows
// of M points.
template <int kLogM>
__global__ void __launch_bounds__(kMaxThreads)
    fft_kernel_optimized(const float* input_real, const float* input_img, float* output_real,
                         float* output_img) {
    constexpr int M = 1 << kLogM, N = 64 * M;
    constexpr int kBlocks = M > 32 ? M / 32 : 1, kColumns = M / kBlocks, kRows = 64 / kBlocks;
    constexpr int kLength = M / 8; // of a row's transforms behind its first step
    constexpr bool kTwoMore = kLength > 8;
    constexpr int kLast = kTwoMore ? kLength / 8 : kLength; // points of the last step
    constexpr int kRow = M + (kLength == 32 ? 0 : kLength),
                  kLastRow = M + 1; // with padding against conflicts
    __shared__ float2 points[64 * kColumns + kRows], rows[kRows * kRow];
    __shared__ unsigned long long arrived;
    unsigned barrier = shared_address(&arrived);
    int rank = kBlocks > 1 ? (int)blockIdx.x : 0;
    int column = threadIdx.x % kColumns, g = threadIdx.x / kColumns, m = rank * kColumns + column;
    float real[8], img[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        real[r] = input_real[(g + 8 * r) * M + m];
        img[r] = input_img[(g + 8 * r) * M + m];
    }
    if constexpr (kBlocks > 1)
        fft_expect(barrier, kRows * M * sizeof(float2));
    // roots while the points are on their way
    FftRoots column_roots = fft_roots(g / 64.0f), eighths = fft_roots((float)m / (N / 8));
    float2 root = fft_root((float)(g * m) / N);
    if constexpr (kBlocks > 1)
        fft_wait_for_cluster();

    float2 v[8];
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = make_float2(real[r], img[r]);
    fft_in_registers<8>(v);
    fft_turn(v, column_roots);
#pragma unroll
    for (int a = 0; a < 8; ++a)
        points[(a * 8 + g) * kColumns + column] = v[a];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = points[(g * 8 + r) * kColumns + column];
    fft_in_registers<8>(v);
    fft_turn(v, eighths);
#pragma unroll
    for (int e = 0; e < 8; ++e) { // row g + 8 e of all
        constexpr int kEach = 8 / kBlocks;
        float2* place = &rows[(g + 8 * (e % kEach)) * kRow + m];
        if constexpr (kBlocks > 1)
            fft_send(e / kEach, shared_address(place), fft_product(v[e], root), barrier);
        else
            *place = fft_product(v[e], root);
    }

    int row = threadIdx.x / kLength, j = threadIdx.x % kLength;
    FftRoots row_roots = fft_roots((float)j / M);
    if constexpr (kBlocks > 1)
        fft_wait(barrier);
    else
        __syncthreads();
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = rows[row * kRow + j + kLength * r];
    fft_in_registers<8>(v);
    fft_turn(v, row_roots);
    int digit = 0; // of the results of two more steps
    if constexpr (kTwoMore) {
        // A row has threads of one warp. Its eighths are turned by kLast points, against conflicts.
        __syncwarp();
#pragma unroll
        for (int a = 0; a < 8; ++a)
            rows[row * kRow + a * kLength + (j + a * kLast) % kLength] = v[a];
        __syncwarp();
        digit = j / kLast;
        j %= kLast;
#pragma unroll
        for (int r = 0; r < 8; ++r)
            v[r] = rows[row * kRow + digit * kLength + (j + kLast * (r + digit)) % kLength];
        fft_in_registers<8>(v);
        fft_turn(v, fft_roots((float)j / kLength));
    }
#pragma unroll
    for (int a = 0; a < 8; ++a)
        points[row * kLastRow + (kTwoMore ? digit + 8 * a : a) * kLast + j] = v[a];
    __syncthreads();
    // Neighbouring threads have neighbouring rows, which are neighbours in the output.
    row = threadIdx.x % kRows;
#pragma unroll
    for (int i = 0; i < 8 / kLast; ++i) {
        int place = threadIdx.x / kRows + i * (kColumns * 8 / kRows);
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

// How a long transform is cut into passes: N is the product of their lengths 1 << log[pass].
struct FftCut {
    int passes, log[kMaxPasses];
};

// Where the transforms of the first pass belong: their number with its digits in reverse, one for each later pass.
__device__ int fft_reversed(int number, int bits, const FftCut& cut) {
    int place = 0, shift = 0;
    for (int pass = 1; pass < cut.passes; ++pass) {
        bits -= cut.log[pass];
        place |= (number >> bits & ((1 << cut.log[pass]) - 1)) << shift;
        shift += cut.log[pass];
    }
    return place;
}

// exp(-2 pi i numerator / 2^bits), by the angle that is nearest to zero
__device__ float2 fft_fine_root(unsigned numerator, int bits) {
    int nearest = (int)(numerator << (32 - bits)) >> (32 - bits);
    return fft_root(nearest * (1.0f / (1u << bits)));
}

__device__ __forceinline__ float fft_number(float x) {
    return x;
}

__device__ __forceinline__ void fft_store(float* at, float x) {
    *at = x;
}

// One pass of a long transform: transforms of R = 1 << kLogR points. The first pass takes points N / R apart and writes
// results side by side, each later one combines, in place, `made` = 1 << log_made results of those before with R - 1
// others. A block has neighbouring transforms, so that it reads and writes neighbours.
template <int kLogR, bool kFirst, class From, class To>
__global__ void __launch_bounds__(kPassThreads)
    fft_pass_kernel_optimized(const From* from_real, const From* from_img, To* to_real, To* to_img, int log_n,
                              int log_made, FftCut cut) {
    constexpr int R = 1 << kLogR, kGroup = R / 8, kLast = R / 64, kColumns = (1 << kLogPass) / R;
    constexpr int kRow = kLast * 65; // of a transform whose results are written side by side
    extern __shared__ float2 fft_points[];
    int column = threadIdx.x % kColumns, g = threadIdx.x / kColumns;
    int number = blockIdx.x * kColumns + column;
    bool exists = number < 1 << (log_n - kLogR); // always, from 1 << kLogPass points on
    int bits = kFirst ? log_n - kLogR : log_made;
    int low = number & ((1 << bits) - 1);
    size_t first = ((size_t)(number >> bits) << (bits + kLogR)) + low;
    float2 v[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        size_t at = first + ((size_t)(g + kGroup * r) << bits);
        v[r] = exists ? make_float2(fft_number(from_real[at]), fft_number(from_img[at]))
                      : make_float2(0.0f, 0.0f);
    }
    if (!kFirst) {
        int made_now = log_made + kLogR;
        unsigned step = (unsigned)low * kGroup;
        fft_turn(v, {fft_fine_root(step, made_now), fft_fine_root(2 * step, made_now),
                     fft_fine_root(4 * step, made_now)});
        float2 root = fft_fine_root((unsigned)low * g, made_now);
#pragma unroll
        for (int r = 0; r < 8; ++r)
            v[r] = fft_product(v[r], root);
    }
    fft_in_registers<8>(v);
    fft_turn(v, fft_roots((float)g / R));
#pragma unroll
    for (int a = 0; a < 8; ++a)
        fft_points[(a * kGroup + g) * kColumns + column] = v[a];
    __syncthreads();
    int a = g / kLast, j = g % kLast;
#pragma unroll
    for (int r = 0; r < 8; ++r)
        v[r] = fft_points[(a * kGroup + j + kLast * r) * kColumns + column];
    fft_in_registers<8>(v);
    fft_turn(v, fft_roots((float)j / kGroup));
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 8; ++b) { // the lower digits of a result's number are a and b
        if (kFirst)
            fft_points[column * kRow + j * 65 + a + 8 * b] = v[b];
        else
            fft_points[((a + 8 * b) * kLast + j) * kColumns + column] = v[b];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8 / kLast; ++i) {
        int ab, step;
        size_t to;
        if (kFirst) {
            ab = threadIdx.x % 64;
            int mine = (threadIdx.x + i * kPassThreads) / 64;
            number = blockIdx.x * kColumns + mine;
            exists = number < 1 << bits;
            to = ((size_t)fft_reversed(number, bits, cut) << kLogR) + ab;
            step = 0;
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                v[k] = fft_points[mine * kRow + k * 65 + ab];
        } else {
            ab = g + kGroup * i;
            to = first + ((size_t)ab << bits);
            step = bits;
#pragma unroll
            for (int k = 0; k < kLast; ++k)
                v[k] = fft_points[(ab * kLast + k) * kColumns + column];
        }
        fft_in_registers<kLast>(v);
#pragma unroll
        for (int k = 0; k < kLast; ++k) {
            size_t at = to + ((size_t)(64 * k) << step);
            if (exists) {
                fft_store(to_real + at, v[k].x);
                fft_store(to_img + at, v[k].y);
            }
        }
    }
}

template <int kLogR, bool kFirst, class From, class To>
void fft_start_pass(const From* from_real, const From* from_img, To* to_real, To* to_img, int log_n,
                    int log_made, const FftCut& cut) {
    int bytes = sizeof(float2) << kLogPass;
    if (kFirst)
        bytes += bytes / 64;
    cudaFuncSetAttribute(fft_pass_kernel_optimized<kLogR, kFirst, From, To>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int blocks = log_n > kLogPass ? 1 << (log_n - kLogPass) : 1;
    fft_pass_kernel_optimized<kLogR, kFirst>
        <<<blocks, kPassThreads, bytes>>>(from_real, from_img, to_real, to_img, log_n, log_made, cut);
}

// The pass that has the length cut.log[pass], of which the passes before have made 1 << log_made.
template <bool kFirst, class From, class To>
void fft_pass(int pass, const From* from_real, const From* from_img, To* to_real, To* to_img, int log_n,
              int log_made, const FftCut& cut) {
    if (cut.log[pass] == 6)
        fft_start_pass<6, kFirst>(from_real, from_img, to_real, to_img, log_n, log_made, cut);
    else if (cut.log[pass] == 7)
        fft_start_pass<7, kFirst>(from_real, from_img, to_real, to_img, log_n, log_made, cut);
    else if (cut.log[pass] == 8)
        fft_start_pass<8, kFirst>(from_real, from_img, to_real, to_img, log_n, log_made, cut);
    else
        fft_start_pass<9, kFirst>(from_real, from_img, to_real, to_img, log_n, log_made, cut);
}

// From 4096 points on. Between the passes numbers are in fp32.
void fft_by_passes(const float* input_real, const float* input_img, float* output_real, float* output_img,
                   int N) {
    int log_n = 0;
    while (1 << log_n < N)
        ++log_n;
    FftCut cut;
    cut.passes = (log_n + 8) / 9;
    for (int pass = 0; pass < cut.passes; ++pass)
        cut.log[pass] = (log_n + pass) / cut.passes;
    float *real = output_real, *img = output_img;
    fft_pass<true>(0, input_real, input_img, real, img, log_n, 0, cut);
    int log_made = cut.log[0], last = cut.passes - 1;
    for (int pass = 1; pass < last; ++pass) {
        fft_pass<false>(pass, (const float*)real, (const float*)img, real, img, log_n, log_made, cut);
        log_made += cut.log[pass];
    }
    fft_pass<false>(last, (const float*)real, (const float*)img, output_real, output_img, log_n, log_made,
                    cut);
}

template <int kLogM>
bool fft_start(const float* input_real, const float* input_img, float* output_real, float* output_img) {
    constexpr int M = 1 << kLogM, kBlocks = M > 32 ? M / 32 : 1;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(8 * M / kBlocks);
    config.attrs = &attribute;
    config.numAttrs = kBlocks > 1;
    if (cudaLaunchKernelEx(&config, fft_kernel_optimized<kLogM>, input_real, input_img, output_real,
                           output_img) == cudaSuccess)
        return true;
    cudaGetLastError(); // a GPU without clusters
    return false;
}

extern "C" void fft_optimized(const float* input_real, const float* input_img, float* output_real,
                              float* output_img, int N) {
    bool started = false;
    if (N == 1024)
        started = fft_start<4>(input_real, input_img, output_real, output_img);
    else if (N == 2048)
        started = fft_start<5>(input_real, input_img, output_real, output_img);
    else if (N == 4096)
        started = fft_start<6>(input_real, input_img, output_real, output_img);
    else if (N == 8192)
        started = fft_start<7>(input_real, input_img, output_real, output_img);
    else if (N == 16384)
        started = fft_start<8>(input_real, input_img, output_real, output_img);
    if (started)
        return;
    if (N <= kShort)
        fft_short_kernel_optimized<<<1, kShort / 2>>>(input_real, input_img, output_real, output_img, N);
    else
        fft_by_passes(input_real, input_img, output_real, output_img, N);
}
