// A product of a warpgroup, and what becomes of it where something is left out. The name of that is the argument.
#include <cstdio>
#include <cstring>

enum Left { kNothing, kWait, kOverwritten, kFence, kCommit, kProxy, kChanged, kTooEarly, kFencedAgain };

__device__ __forceinline__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(1));
}

// Ones in both factors: every element of the product is 16.
template <int left> __global__ void __launch_bounds__(128) product_kernel(float* out) {
    extern __shared__ __align__(1024) unsigned short shared[];
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < 64 * 16 + 8 * 16; i += 128)
        shared[i] = 0x3f80;
    if (left != kProxy)
        asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long start = __cvta_generic_to_shared(shared) >> 4;
    unsigned long long a = start | 8ull << 16 | 16ull << 32, b = (start + 128) | 8ull << 16 | 16ull << 32;
    float d[4] = {1, 1, 1, 1};
    if (left != kFence)
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    multiply(d, a, b);
    if (left != kCommit)
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (left == kOverwritten) {
        __syncthreads();
        shared[64 * 16 + t] = 0;
        __syncthreads();
    }
    if (left == kTooEarly)
        d[1] += 1;
    if (left != kWait)
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (left == kChanged || left == kFencedAgain) {
        // Another one onto what is made of the first; then both are taken off again.
        for (float& value : d)
            value += 1;
        if (left == kFencedAgain)
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        multiply(d, a, b);
        multiply(d, a, b);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (float& value : d)
            value -= 33;
    }
    for (int i = 0; i < 4; ++i)
        out[4 * t + i] = d[i];
}

// One product is always on its way: as many as eight onto each of two sets of accumulators, by turns.
__global__ void __launch_bounds__(128) ring_kernel(float* out) {
    extern __shared__ __align__(1024) unsigned short shared[];
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < 64 * 16 + 8 * 16; i += 128)
        shared[i] = 0x3f80;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long start = __cvta_generic_to_shared(shared) >> 4;
    unsigned long long a = start | 8ull << 16 | 16ull << 32, b = (start + 128) | 8ull << 16 | 16ull << 32;
    float even[4] = {1, 1, 1, 1}, odd[4] = {1, 1, 1, 1};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        multiply(k % 2 ? odd : even, a, b);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i)
        out[4 * t + i] = even[i] == 129 && odd[i] == 129 ? 17 : 0;
}

int main(int, char** names) {
    float* out;
    static float got[512];
    cudaMalloc(&out, sizeof got);
    cudaMemset(out, 0, sizeof got);
    auto is = [&](const char* other) { return !std::strcmp(names[1], other); };
    size_t bytes = 4096;
    if (is("product"))
        product_kernel<kNothing><<<1, 128, bytes>>>(out);
    else if (is("no-wait"))
        product_kernel<kWait><<<1, 128, bytes>>>(out);
    else if (is("overwritten"))
        product_kernel<kOverwritten><<<1, 128, bytes>>>(out);
    else if (is("changed"))
        product_kernel<kChanged><<<1, 128, bytes>>>(out);
    else if (is("changed-too-early"))
        product_kernel<kTooEarly><<<1, 128, bytes>>>(out);
    else if (is("fenced-again"))
        product_kernel<kFencedAgain><<<1, 128, bytes>>>(out);
    else if (is("ring"))
        ring_kernel<<<1, 128, bytes>>>(out);
    else if (is("no-fence-of-proxies"))
        product_kernel<kProxy><<<1, 128, bytes>>>(out);
    else if (is("no-fence"))
        product_kernel<kFence><<<1, 128, bytes>>>(out);
    else
        product_kernel<kCommit><<<1, 128, bytes>>>(out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(out);
    for (float value : got)
        if (value != 17)
            return 3;
    return 0;
}
