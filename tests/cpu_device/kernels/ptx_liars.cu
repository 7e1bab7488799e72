// Kernels that give what they should on this device, as far as nobody looks, and not on an H200; and some in styles that are
// right. The name of what is done is the argument.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void wait_for(const void* barrier, unsigned parity) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void init(const void* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(const void* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void arrive(const void* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void load(void* to, const void* from, unsigned bytes, const void* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
__device__ __forceinline__ void store(void* to, const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void fence_proxies() {
    asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

constexpr unsigned kThreads = 128, kBytes = kThreads * sizeof(float);

enum Out { kRight, kFencedBefore, kFencedByAnother, kOtherWaits, kReadTooEarly };

// out = in + 1, by a copy in bulk.
template <Out how> __global__ void out_kernel(float* in, float* out) {
    __shared__ __align__(128) float tile[kThreads];
    unsigned t = threadIdx.x;
    if (how == kFencedBefore)
        fence_proxies();
    tile[t] = in[t] + 1;
    if (how == kRight || how == kOtherWaits || how == kReadTooEarly || (how == kFencedByAnother && t == 5))
        fence_proxies();
    __syncthreads();
    if (t == 0) {
        store(out, tile, kBytes);
        if (how == kReadTooEarly) {
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            out[kThreads] = out[3];
        }
    }
    if (t == (how == kOtherWaits ? 1 : 0))
        wait_for_stores();
}

enum In { kAllWait, kOneWaits, kExpectedLater, kAllArrive, kUsedAgain, kZeroed, kOverWritten, kOfThreads };

// out = in + 1, where a copy in bulk brings it.
template <In how> __global__ void in_kernel(float* in, float* out) {
    __shared__ __align__(128) float tile[kThreads];
    __shared__ unsigned long long full;
    unsigned t = threadIdx.x;
    if (t == 0)
        init(&full, how == kAllArrive ? kThreads : 1);
    if (how == kZeroed || how == kOverWritten)
        tile[t] = 0;
    if (how == kOverWritten)
        fence_proxies();
    if (how == kOfThreads)
        in[t] = in[t] + 0;
    __syncthreads();
    if (t == 0) {
        if (how != kExpectedLater)
            expect(&full, kBytes);
        load(tile, in, kBytes / 2, &full);
        load(tile + kThreads / 2, in + kThreads / 2, kBytes / 2, &full);
        if (how == kExpectedLater)
            expect(&full, kBytes);
    } else if (how == kAllArrive) {
        arrive(&full);
    }
    if (how != kOneWaits || t == 0)
        wait_for(&full, 0);
    if (how == kOneWaits)
        __syncthreads();
    out[t] = tile[t] + 1;
    if (how == kUsedAgain) {
        __syncthreads();
        if (t == 0) {
            asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&full)) : "memory");
            *reinterpret_cast<volatile float*>(&full) = 1;
            out[0] = tile[0] + *reinterpret_cast<volatile float*>(&full);
        }
    }
}

// Each thread reads what its neighbour wrote before it arrived.
template <bool relaxed> __global__ void passed_on_kernel(float* out) {
    __shared__ float tile[kThreads];
    __shared__ unsigned long long all;
    unsigned t = threadIdx.x;
    if (t == 0)
        init(&all, kThreads);
    __syncthreads();
    tile[t] = 1;
    if (relaxed)
        asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(&all))
                     : "memory");
    else
        arrive(&all);
    wait_for(&all, 0);
    out[t] = tile[(t + 1) % kThreads];
}

enum Group { kWhole, kOneWarp, kThreeWarps, kShifted, kOtherFactors, kOneWarpMore };

// Ones in both factors: every element of the product is 16, and 1 is added.
template <Group how> __global__ void product_kernel(float* out) {
    extern __shared__ __align__(1024) unsigned short shared[];
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < 2 * 64 * 16 + 8 * 16; i += blockDim.x)
        shared[i] = 0x3f80;
    fence_proxies();
    __syncthreads();
    unsigned warp = t / 32, first = how == kShifted ? 1 : 0, last = how == kThreeWarps ? 2 : first + 3;
    if (warp < first || warp > last)
        return;
    unsigned long long start = __cvta_generic_to_shared(shared) >> 4;
    unsigned long long a = start | 8ull << 16 | 16ull << 32, b = (start + 128) | 8ull << 16 | 16ull << 32;
    if (how == kOtherFactors && warp == 2)
        a += 8;
    float d[4] = {1, 1, 1, 1};
    int products = how == kOneWarpMore && warp == 3 ? 2 : 1;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < products; ++i)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i)
        out[(4 * t + i) % kThreads] = d[i] - 16;
}

// A box that lies behind the tensor's end altogether.
__global__ void nowhere_kernel(const __grid_constant__ CUtensorMap map, float* out) {
    __shared__ __align__(128) float tile[64];
    unsigned t = threadIdx.x;
    if (t < 64)
        tile[t] = 7;
    fence_proxies();
    __syncthreads();
    if (t == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
            "r"(64), "r"(64), "r"(shared_address(tile))
            : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        wait_for_stores();
    }
    out[t] = 1;
}

template <int registers, bool gives> __global__ void __launch_bounds__(384, 1) registers_kernel(float* out) {
    if (threadIdx.x < 128) {
        if (gives)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
    }
    if (threadIdx.x < kThreads)
        out[threadIdx.x] = 1;
}

// Waits for an arrival that nobody makes.
template <bool dynamic> __global__ void never_kernel() {
    __shared__ unsigned long long full[2];
    extern __shared__ __align__(1024) unsigned short shared[];
    void* barrier = dynamic ? static_cast<void*>(shared + 20) : full + 1;
    if (threadIdx.x == 0)
        init(barrier, 1);
    __syncthreads();
    wait_for(barrier, 0);
}

int main(int, char** names) {
    static float got[kThreads];
    float *in, *out;
    cudaMalloc(&in, kBytes);
    cudaMalloc(&out, 2 * kBytes);
    cudaMemset(in, 0, kBytes);
    auto is = [&](const char* other) { return !std::strcmp(names[1], other); };
#define OUT(name, how)                                                                                       \
    if (is(name))                                                                                            \
    out_kernel<how><<<1, kThreads>>>(in, out)
#define IN(name, how)                                                                                        \
    if (is(name))                                                                                            \
    in_kernel<how><<<1, kThreads>>>(in, out)
#define PRODUCT(name, how, threads)                                                                          \
    if (is(name))                                                                                            \
    product_kernel<how><<<1, threads, 8192>>>(out)
    OUT("out", kRight);
    OUT("fenced-before", kFencedBefore);
    OUT("fenced-by-another", kFencedByAnother);
    OUT("another-waits", kOtherWaits);
    OUT("read-too-early", kReadTooEarly);
    IN("in", kAllWait);
    IN("one-waits", kOneWaits);
    IN("expected-later", kExpectedLater);
    IN("all-arrive", kAllArrive);
    IN("used-again", kUsedAgain);
    IN("zeroed", kZeroed);
    IN("zeroed-and-fenced", kOverWritten);
    IN("of-threads", kOfThreads);
    PRODUCT("product", kWhole, 128);
    PRODUCT("one-warp", kOneWarp, 32);
    PRODUCT("three-warps", kThreeWarps, 128);
    PRODUCT("shifted", kShifted, 160);
    PRODUCT("other-factors", kOtherFactors, 128);
    PRODUCT("one-warp-more", kOneWarpMore, 128);
    if (is("nowhere")) {
        CUtensorMap map;
        cuuint64_t sizes[2] = {32, 1}, strides[1] = {128};
        cuuint32_t box[2] = {8, 8}, steps[2] = {1, 1};
        if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, in, sizes, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
            return 20;
        nowhere_kernel<<<1, kThreads>>>(map, out);
    }
    if (is("never"))
        never_kernel<false><<<1, kThreads>>>();
    if (is("never-in-dynamic-memory"))
        never_kernel<true><<<1, kThreads, 64>>>();
    if (is("passed-on"))
        passed_on_kernel<false><<<1, kThreads>>>(out);
    if (is("passed-on-relaxed"))
        passed_on_kernel<true><<<1, kThreads>>>(out);
    if (is("registers"))
        registers_kernel<240, true><<<1, 384>>>(out);
    if (is("too-many-registers"))
        registers_kernel<240, false><<<1, 384>>>(out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, kBytes, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    for (float value : got)
        if (value != 1)
            return 3;
    return 0;
}
