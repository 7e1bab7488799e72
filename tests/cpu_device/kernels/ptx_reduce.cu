// Copies in bulk that do an operation to each element of their target: all blocks to one array, and a block to its own shared
// memory. The operation is the argument, or what is left out.
#include <cstdio>
#include <cstring>

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

constexpr int kBlocks = 5, kWords = 64; // of 32 bits

#define REDUCTION(name, operation)                                                                           \
    struct name {                                                                                            \
        static __device__ void start(unsigned* out, unsigned from) {                                         \
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." operation                     \
                         " [%0], [%1], %2;" ::"l"(out),                                                      \
                         "r"(from), "r"(kWords * 4)                                                          \
                         : "memory");                                                                        \
        }                                                                                                    \
    };
REDUCTION(AddU32, "add.u32")
REDUCTION(AddU64, "add.u64")
REDUCTION(AddF32, "add.f32")
REDUCTION(AddF64, "add.f64")
REDUCTION(AddF16, "add.noftz.f16")
REDUCTION(AddBf16, "add.noftz.bf16")
REDUCTION(MinS32, "min.s32")
REDUCTION(MaxU64, "max.u64")
REDUCTION(MaxF16, "max.f16")
REDUCTION(IncU32, "inc.u32")
REDUCTION(AndB32, "and.b32")
REDUCTION(OrB64, "or.b64")
REDUCTION(XorB32, "xor.b32")

enum Left { kNothing, kWait, kFence, kAddsToo };

template <class Reduction, int left> __global__ void reduce_kernel(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned words[kWords];
    unsigned t = threadIdx.x;
    words[t] = in[blockIdx.x * kWords + t];
    if (left != kFence)
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        Reduction::start(out, shared_address(words));
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (left != kWait)
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (left == kAddsToo)
        atomicAdd(out + t, 1);
}

// To shared memory, with an mbarrier; the sum is what was there and what the source has.
__global__ void own_kernel(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned words[kWords], sums[kWords];
    __shared__ unsigned long long full;
    unsigned t = threadIdx.x, done = 0;
    words[t] = in[t];
    sums[t] = 1000;
    if (t == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(kWords * 4)
                     : "memory");
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
                     "[%0], [%1], "
                     "%2, [%3];" ::"r"(shared_address(sums)),
                     "r"(shared_address(words)), "r"(kWords * 4), "r"(shared_address(&full))
                     : "memory");
    }
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(&full))
                     : "memory");
    out[t] = sums[t];
}

int main(int count, char** arguments) {
    // Reads what is to be reduced and what is there before, writes what comes of it.
    static unsigned given[(kBlocks + 1) * kWords], made[kWords];
    FILE* file = fopen(arguments[2], "rb");
    if (count < 4 || !file || fread(given, sizeof given, 1, file) != 1)
        return 2;
    fclose(file);
    unsigned *in, *out;
    cudaMalloc(&in, sizeof given);
    cudaMalloc(&out, sizeof made);
    cudaMemcpy(in, given, sizeof given, cudaMemcpyHostToDevice);
    cudaMemcpy(out, given + kBlocks * kWords, sizeof made, cudaMemcpyHostToDevice);
#define CASE(name, kernel)                                                                                   \
    if (!std::strcmp(arguments[1], name))                                                                    \
        kernel<<<kBlocks, kWords>>>(in, out);
    CASE("add.u32", (reduce_kernel<AddU32, kNothing>))
    CASE("add.u64", (reduce_kernel<AddU64, kNothing>))
    CASE("add.f32", (reduce_kernel<AddF32, kNothing>))
    CASE("add.f64", (reduce_kernel<AddF64, kNothing>))
    CASE("add.f16", (reduce_kernel<AddF16, kNothing>))
    CASE("add.bf16", (reduce_kernel<AddBf16, kNothing>))
    CASE("min.s32", (reduce_kernel<MinS32, kNothing>))
    CASE("max.u64", (reduce_kernel<MaxU64, kNothing>))
    CASE("max.f16", (reduce_kernel<MaxF16, kNothing>))
    CASE("inc.u32", (reduce_kernel<IncU32, kNothing>))
    CASE("and.b32", (reduce_kernel<AndB32, kNothing>))
    CASE("or.b64", (reduce_kernel<OrB64, kNothing>))
    CASE("xor.b32", (reduce_kernel<XorB32, kNothing>))
    CASE("no-wait", (reduce_kernel<AddU32, kWait>))
    CASE("no-fence", (reduce_kernel<AddU32, kFence>))
    CASE("atomics-too", (reduce_kernel<AddU32, kAddsToo>))
    if (!std::strcmp(arguments[1], "own"))
        own_kernel<<<1, kWords>>>(in, out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(made, out, sizeof made, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    file = fopen(arguments[3], "wb");
    return file && fwrite(made, sizeof made, 1, file) == 1 && fclose(file) == 0 ? 0 : 4;
}
