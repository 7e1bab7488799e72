// idea: Keep the whole row in registers between one read and one write, with one barrier
// why: The baseline goes over a row three times with 2-byte loads, computes every exponential twice, and
//      synchronises a block of 256 threads at each of the eight levels of two trees. There are few rows and
//      they are long, so a row gets up to 1024 threads, each with one to two 16-byte vectors that are
//      requested at once. A warp takes exponentials relative to its own maximum, so it needs no other warp
//      for its sum. Maxima and sums of all warps then meet at one barrier, and each warp corrects its
//      exponentials by one factor that divides by the sum, too. Rows longer than a block holds are shared by
//      a cluster of four blocks, which tell each other maxima and sums through shared memory. Rows that are
//      not aligned to 16 bytes, or longer still, are read again in each pass. On an H100 the second barrier
//      and the branch for unaligned rows, which have a kernel of their own now, took 0.6 of 8.3 µs on the
//      device at 64 x 16384; whole calls differ by less than can be told apart, as an empty launch is 10 of
//      13 µs. What binds it now: all blocks read at the same time and then all write, so memory rests while
//      L2 takes the results. Clusters of two blocks that load two rows and write one while the other arrives
//      are slower (9.0 µs on the device beside 7.8 at 128 x 16384, on an H200).
// flags: -O3 --use_fast_math
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <utility>

namespace cg = cooperative_groups;

constexpr int kWidth = 8; // elements of a 16-byte load
constexpr int kMaxThreads = 1024;
constexpr int kMaxVectors = 2; // of a thread, where a row has one block
constexpr int kCluster = 4;
constexpr int kClusterThreads = 512;
constexpr int kClusterVectors = 8; // of a thread, where a row has a cluster
constexpr unsigned kFullMask = 0xffffffffu;
constexpr unsigned kMinusInfinity = 0xff80ff80u; // two of them as bf16

struct Numbers {
    float at[kWidth];
};

// Of two bf16 in a word the first is the lower one; a bf16 is the upper half of a float.
__device__ Numbers numbers(uint4 vector) {
    unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
    Numbers x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        x.at[2 * w] = __uint_as_float(words[w] << 16);
        x.at[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
    }
    return x;
}

__device__ uint4 vector(const Numbers& x) {
    unsigned words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(x.at[2 * w], x.at[2 * w + 1]);
        words[w] = *reinterpret_cast<unsigned*>(&pair);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kFullMask, value, distance));
    return value;
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kFullMask, value, distance);
    return value;
}

// The largest of some elements, and the sum of the exponentials of what each is below it.
struct Part {
    float largest, sum;
};

// Every blockDim.x-th of `count` vectors as exponentials, and what the warp has of them.
template <int kVectors>
__device__ Part exponentials(const uint4* row, int count, Numbers (&values)[kVectors]) {
    uint4 raw[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        int i = v * blockDim.x + threadIdx.x;
        raw[v] = make_uint4(kMinusInfinity, kMinusInfinity, kMinusInfinity, kMinusInfinity);
        if (i < count)
            raw[v] = row[i];
    }
    Part part = {-CUDART_INF_F, 0.0f};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        values[v] = numbers(raw[v]);
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            part.largest = fmaxf(part.largest, values[v].at[k]);
    }
    part.largest = warp_max(part.largest);
    float origin = part.largest == -CUDART_INF_F ? 0.0f : part.largest; // of a warp that has nothing
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            part.sum += values[v].at[k] = expf(values[v].at[k] - origin);
    part.sum = warp_sum(part.sum);
    return part;
}

// What a warp's exponentials have to be multiplied by, from the parts of all warps of a row.
template <int kMaxParts> __device__ float factor_of(const Part& own, const float2* parts, int count) {
    constexpr int kEach = (kMaxParts + 31) / 32;
    float2 part[kEach];
    float largest = -CUDART_INF_F, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        int i = j * 32 + threadIdx.x % 32;
        part[j] = i < count ? parts[i] : make_float2(-CUDART_INF_F, 0.0f);
        largest = fmaxf(largest, part[j].x);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int j = 0; j < kEach; ++j)
        sum += part[j].y * expf(part[j].x - largest);
    return expf(own.largest - largest) / warp_sum(sum);
}

template <int kVectors>
__device__ void store(uint4* row, int count, Numbers (&values)[kVectors], float factor) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        int i = v * blockDim.x + threadIdx.x;
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            values[v].at[k] *= factor;
        if (i < count)
            row[i] = vector(values[v]);
    }
}

// One row of `count` vectors per block, kVectors of them per thread.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads)
    softmax_bf16_kernel_optimized(uint4* __restrict__ out, const uint4* __restrict__ input, int count) {
    __shared__ float2 parts[kMaxThreads / 32];
    size_t first = (size_t)blockIdx.x * count;
    Numbers values[kVectors];
    Part own = exponentials<kVectors>(input + first, count, values);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = make_float2(own.largest, own.sum);
    __syncthreads();
    store<kVectors>(out + first, count, values, factor_of<kMaxThreads / 32>(own, parts, blockDim.x / 32));
}

// Columns first .. end of a row of C elements, by a block that reads all of it; any alignment.
__device__ void long_row(__nv_bfloat16* out, const __nv_bfloat16* input, int C, int first, int end) {
    __shared__ float2 parts[kMaxThreads / 32];
    Part own = {-CUDART_INF_F, 0.0f};
    for (int i = threadIdx.x; i < C; i += blockDim.x)
        own.largest = fmaxf(own.largest, (float)input[i]);
    own.largest = warp_max(own.largest);
    float origin = own.largest == -CUDART_INF_F ? 0.0f : own.largest;
    for (int i = threadIdx.x; i < C; i += blockDim.x)
        own.sum += expf((float)input[i] - origin);
    own.sum = warp_sum(own.sum);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = make_float2(own.largest, own.sum);
    __syncthreads();
    float factor = factor_of<kMaxThreads / 32>(own, parts, blockDim.x / 32);
    for (int i = first + threadIdx.x; i < end; i += blockDim.x)
        out[i] = expf((float)input[i] - origin) * factor;
}

// One row of `count` vectors per cluster.
__global__ void __launch_bounds__(kClusterThreads)
    softmax_bf16_cluster_kernel_optimized(uint4* __restrict__ out, const uint4* __restrict__ input,
                                          int count) {
    int rank = blockIdx.x % kCluster, share = (count - 1) / kCluster + 1;
    size_t row = (size_t)(blockIdx.x / kCluster) * count;
    int first = rank * share < count ? rank * share : count,
        end = first + share < count ? first + share : count;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int kWarps = kClusterThreads / 32;
    __shared__ float2 parts[kCluster * kWarps];
    cg::cluster_group cluster = cg::this_cluster();
    auto started = cluster.barrier_arrive();
    Numbers values[kClusterVectors];
    Part own = exponentials<kClusterVectors>(input + row + first, end - first, values);
    cluster.barrier_wait(std::move(started)); // all blocks are there: their shared memory may be written
    int lane = threadIdx.x % 32;
    if (lane < kCluster)
        *cluster.map_shared_rank(&parts[rank * kWarps + threadIdx.x / 32], lane) =
            make_float2(own.largest, own.sum);
    cluster.sync();
    store<kClusterVectors>(out + row + first, end - first, values,
                           factor_of<kCluster * kWarps>(own, parts, kCluster * kWarps));
#else
    long_row((__nv_bfloat16*)(out + row), (const __nv_bfloat16*)(input + row), count * kWidth, first * kWidth,
             end * kWidth);
#endif
}

__global__ void __launch_bounds__(kMaxThreads)
    softmax_bf16_long_kernel_optimized(__nv_bfloat16* out, const __nv_bfloat16* input, int C) {
    long_row(out + (size_t)blockIdx.x * C, input + (size_t)blockIdx.x * C, C, 0, C);
}

// Whether clusters could be started: a GPU before sm_90 has none.
bool start_clusters(uint4* out, const uint4* input, int N, int count) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(N * kCluster);
    config.blockDim = dim3(kClusterThreads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, softmax_bf16_cluster_kernel_optimized, out, input, count) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

extern "C" void softmax_bf16_optimized(__nv_bfloat16* out, const __nv_bfloat16* input, int N, int C) {
    bool aligned = (((size_t)out | (size_t)input) & 15) == 0 && C % kWidth == 0;
    uint4* to = (uint4*)out;
    const uint4* from = (const uint4*)input;
    int count = C / kWidth, in_block = kMaxThreads * kMaxVectors;
    if (aligned && count > in_block && count <= kCluster * kClusterThreads * kClusterVectors &&
        start_clusters(to, from, N, count))
        return;
    int warps = (count - 1) / 32 + 1; // with one vector per thread
    int long_threads = C < kMaxThreads ? (C - 1) / 32 * 32 + 32 : kMaxThreads;
    if (!aligned || count > in_block)
        softmax_bf16_long_kernel_optimized<<<N, long_threads>>>(out, input, C);
    else if (count <= kMaxThreads)
        softmax_bf16_kernel_optimized<1><<<N, warps * 32>>>(to, from, count);
    else
        softmax_bf16_kernel_optimized<2><<<N, (warps + 1) / 2 * 32>>>(to, from, count);
}
