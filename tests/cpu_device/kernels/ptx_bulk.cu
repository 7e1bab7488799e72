// Copies in bulk and barriers in shared memory: a stream through two stages, and what becomes of it where something is left
// out. The name of what is left out is the argument.
#include <cstdio>
#include <cstring>

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

enum Left {
    kNothing,
    kWait,     // a consumer does not wait for the bytes
    kParity,   // it waits for the same phase twice
    kExpect,   // nobody says how many bytes come
    kTooMany,  // more bytes are announced than come
    kEmpty,    // the producer does not wait until a stage is free
    kInit,     // a barrier is used as it is
    kArrivals, // more arrive than are expected
    kRead,     // what is copied out is overwritten too early
    kGroup,    // nobody waits for what is copied out
    kFence,    // what threads wrote is copied out without a fence of proxies
    kInitOnly, // the fence of barriers' inits is missing
    kIssuer,   // who copies out fences, behind the barrier, and not who wrote; right
    kTest,     // waits by polling; right
    kState,    // waits by the state that an arrival gave; right
    kTurns,    // polls two barriers in turn; right
    kOnce,     // tries once, and takes any answer for a yes
};

__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

constexpr int kThreads = 64, kStages = 2, kTiles = 7;

template <int left> __global__ void stream_kernel(const float4* in, float4* out) {
    extern __shared__ __align__(128) float4 stage[]; // [kStages][kThreads]
    __shared__ float4 result[kThreads];
    __shared__ unsigned long long full[kStages], empty[kStages];
    unsigned t = threadIdx.x, bytes = kThreads * sizeof(float4);
    if (t == 0 && left != kInit) {
        for (int i = 0; i < kStages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(full + i)), "r"(1)
                         : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(empty + i)),
                         "r"(left == kArrivals ? kThreads / 2 : kThreads)
                         : "memory");
        }
        if (left != kInitOnly)
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto produce = [&](int tile) {
        int slot = tile % kStages;
        if (left != kEmpty && tile >= kStages)
            wait_for(shared_address(empty + slot), (tile / kStages - 1) % 2);
        if (left == kExpect)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(full + slot))
                         : "memory");
        else
            asm volatile(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full + slot)),
                "r"(left == kTooMany ? bytes + 16 : bytes)
                : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(stage + slot * kThreads)),
            "l"(in + tile * kThreads), "r"(bytes), "r"(shared_address(full + slot))
            : "memory");
    };
    if (t == 0)
        for (int tile = 0; tile < kStages; ++tile)
            produce(tile);
    for (int tile = 0; tile < kTiles; ++tile) {
        int slot = tile % kStages;
        unsigned parity = left == kParity ? 0 : tile / kStages % 2, done;
        if (left == kTest)
            do
                asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                             "selp.u32 %0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(shared_address(full + slot)), "r"(parity)
                             : "memory");
            while (!done);
        else if (left == kTurns)
            for (int turn = 1;; turn ^= 1) {
                int other = tile + turn;
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                             "selp.u32 %0, 1, 0, p; }"
                             : "=r"(done)
                             : "r"(shared_address(full + other % kStages)), "r"(other / kStages % 2)
                             : "memory");
                if (!turn && done)
                    break;
            }
        else if (left == kOnce)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; }" ::"r"(
                             shared_address(full + slot)),
                         "r"(parity)
                         : "memory");
        else if (left != kWait)
            wait_for(shared_address(full + slot), parity);
        float4 value = stage[slot * kThreads + (t + 5) % kThreads];
        if (left == kState) {
            unsigned long long state;
            asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];"
                         : "=l"(state)
                         : "r"(shared_address(empty + slot))
                         : "memory");
            asm volatile(
                "{ .reg .pred p; again: mbarrier.try_wait.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::
                    "r"(shared_address(empty + slot)),
                "l"(state)
                : "memory");
        } else {
            asm volatile(
                "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(empty + slot))
                : "memory");
        }
        if (t == 0 && tile + kStages < kTiles)
            produce(tile + kStages);
        // Out again, by a bulk copy of thread 0.
        if (t == 0 && left != kRead)
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __syncthreads();
        result[t] = make_float4(value.x + 1, value.y, value.z, value.w);
        if (left != kFence && left != kIssuer)
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (t == 0) {
            if (left == kIssuer)
                asm volatile("fence.proxy.async;" ::: "memory");
            asm volatile(
                "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + tile * kThreads),
                "r"(shared_address(result)), "r"(bytes)
                : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    }
    if (t == 0 && left != kGroup)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ bool is_over(unsigned barrier, unsigned parity) {
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}

// A barrier that is used once, for a tile in two copies; it is told of `expected` bytes, and polled.
__global__ void halves_kernel(const float4* in, float4* out, unsigned expected) {
    __shared__ __align__(128) float4 stage[kThreads];
    __shared__ unsigned long long full;
    unsigned t = threadIdx.x, half = sizeof stage / 2;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(expected)
                     : "memory");
        for (int i = 0; i < 2; ++i)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"(shared_address(stage) + i * half),
                "l"(in + blockIdx.x * kThreads + i * kThreads / 2), "r"(half), "r"(shared_address(&full))
                : "memory");
    }
    __syncthreads();
    while (!is_over(shared_address(&full), 0))
        __nanosleep(20);
    float4 value = stage[(t + 5) % kThreads];
    out[blockIdx.x * kThreads + t] = make_float4(value.x + 1, value.y, value.z, value.w);
}

// Single copies whose arrival is awaited.
__global__ void arrivals_kernel(const float4* in, float4* out) {
    __shared__ float4 stage[kThreads];
    __shared__ unsigned long long full;
    unsigned t = threadIdx.x;
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&full)), "n"(kThreads)
                     : "memory");
    __syncthreads();
    for (int tile = 0; tile < kTiles; ++tile) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(stage + t)),
                     "l"(in + tile * kThreads + t)
                     : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&full))
                     : "memory");
        wait_for(shared_address(&full), tile % 2);
        float4 value = stage[(t + 5) % kThreads];
        out[tile * kThreads + t] = make_float4(value.x + 1, value.y, value.z, value.w);
        __syncthreads();
    }
}

// Arrivals that may not complete a phase, and one that does; `expected` is how many the barrier is made for.
__global__ void incomplete_kernel(const float4* in, float4* out, int expected) {
    __shared__ float4 stage[kThreads];
    __shared__ unsigned long long full;
    unsigned t = threadIdx.x;
    unsigned long long state;
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&full)), "r"(expected)
                     : "memory");
    __syncthreads();
    for (int tile = 0; tile < kTiles; ++tile) {
        stage[t] = in[tile * kThreads + t];
        asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 1;"
                     : "=l"(state)
                     : "r"(shared_address(&full))
                     : "memory");
        __syncthreads();
        if (t == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&full)) : "memory");
        wait_for(shared_address(&full), tile % 2);
        float4 value = stage[(t + 5) % kThreads];
        out[tile * kThreads + t] = make_float4(value.x + 1, value.y, value.z, value.w);
        __syncthreads();
    }
}

int main(int, char** names) {
    const int count = kThreads * kTiles;
    float4 values[count], got[count];
    for (int i = 0; i < count; ++i)
        values[i] = make_float4(i, 2 * i, 3, 4);
    float4 *in, *out;
    cudaMalloc(&in, sizeof values);
    cudaMalloc(&out, sizeof got);
    cudaMemcpy(in, values, sizeof values, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, sizeof got);
    size_t bytes = kStages * kThreads * sizeof(float4);
    auto is = [&](const char* other) { return !std::strcmp(names[1], other); };
    if (is("arrivals-of-copies"))
        arrivals_kernel<<<1, kThreads>>>(in, out);
    else if (is("incomplete"))
        incomplete_kernel<<<1, kThreads>>>(in, out, kThreads + 1);
    else if (is("incomplete-completes"))
        incomplete_kernel<<<1, kThreads>>>(in, out, kThreads);
    else if (is("stream"))
        stream_kernel<kNothing><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-wait"))
        stream_kernel<kWait><<<1, kThreads, bytes>>>(in, out);
    else if (is("turns"))
        stream_kernel<kTurns><<<1, kThreads, bytes>>>(in, out);
    else if (is("one-try"))
        stream_kernel<kOnce><<<1, kThreads, bytes>>>(in, out);
    else if (is("same-parity"))
        stream_kernel<kParity><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-expect"))
        stream_kernel<kExpect><<<1, kThreads, bytes>>>(in, out);
    else if (is("too-many-bytes"))
        stream_kernel<kTooMany><<<1, kThreads, bytes>>>(in, out);
    else if (is("not-empty"))
        stream_kernel<kEmpty><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-init"))
        stream_kernel<kInit><<<1, kThreads, bytes>>>(in, out);
    else if (is("too-many-arrivals"))
        stream_kernel<kArrivals><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-wait-for-read"))
        stream_kernel<kRead><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-wait-for-group"))
        stream_kernel<kGroup><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-fence"))
        stream_kernel<kFence><<<1, kThreads, bytes>>>(in, out);
    else if (is("no-fence-of-inits"))
        stream_kernel<kInitOnly><<<1, kThreads, bytes>>>(in, out);
    else if (is("issuer-fences"))
        stream_kernel<kIssuer><<<1, kThreads, bytes>>>(in, out);
    else if (is("halves"))
        halves_kernel<<<kTiles, kThreads>>>(in, out, kThreads * sizeof(float4));
    else if (is("half-the-bytes"))
        halves_kernel<<<kTiles, kThreads>>>(in, out, kThreads * sizeof(float4) / 2);
    else if (is("more-than-expected"))
        halves_kernel<<<kTiles, kThreads>>>(in, out, kThreads * sizeof(float4) - 16);
    else if (is("polled-forever"))
        halves_kernel<<<kTiles, kThreads>>>(in, out, kThreads * sizeof(float4) + 16);
    else if (is("polling"))
        stream_kernel<kTest><<<1, kThreads, bytes>>>(in, out);
    else
        stream_kernel<kState><<<1, kThreads, bytes>>>(in, out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    for (int i = 0; i < count; ++i) {
        float4 value = values[i / kThreads * kThreads + (i % kThreads + 5) % kThreads];
        value.x += 1;
        if (std::memcmp(&value, got + i, sizeof value))
            return 3;
    }
    return 0;
}
