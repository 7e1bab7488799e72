// Kernels of a Hopper GPU whose counts can be worked out by hand: calls of test_tracing_hopper.py, in the order of its CALLS.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

extern "C" void cudamaster_cpu_record(int on);

__device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}
__device__ void init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
__device__ void load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
__device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}
__device__ unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// ---- Products of a warpgroup: 64 x 8 sums, 32 bytes of k ----

#define PRODUCT(name, types, values, constraint, constants)                                                  \
    __device__ void name(values(&d)[4], unsigned long long a, unsigned long long b) {                        \
        asm volatile("wgmma.mma_async.sync.aligned." types " {%0, %1, %2, %3}, %4, %5, " constants ";"       \
                     : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]),                     \
                       "+" constraint(d[3])                                                                  \
                     : "l"(a), "l"(b));                                                                      \
    }
PRODUCT(of_bf16, "m64n8k16.f32.bf16.bf16", float, "f", "1, 1, 1, 0, 0")
PRODUCT(of_tf32, "m64n8k8.f32.tf32.tf32", float, "f", "1, 1, 1")
PRODUCT(of_e4m3, "m64n8k32.f32.e4m3.e4m3", float, "f", "1, 1, 1")
PRODUCT(of_s8, "m64n8k32.s32.s8.s8", int, "r", "1")

__device__ void of_registers(float (&d)[4], unsigned a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %4, %4, %4}, %5, "
        "1, 1, 1, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a), "l"(b));
}

template <class Value, class Multiply> __device__ void products(void* out, int count, Multiply multiply) {
    __shared__ __align__(1024) unsigned char factors[8192];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x)
        ((unsigned*)factors)[i] = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned long long a = (shared_address(factors) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    unsigned long long b = ((shared_address(factors) + 4096) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    Value d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < count; ++i)
        multiply(d, a, b);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    ((Value*)out)[threadIdx.x] = d[0];
}

template <int kind> __global__ void product_kernel(void* out, int count) {
    if constexpr (kind == 0)
        products<float>(out, count, of_bf16);
    else if constexpr (kind == 1)
        products<float>(out, count, of_tf32);
    else if constexpr (kind == 2)
        products<float>(out, count, of_e4m3);
    else if constexpr (kind == 3)
        products<int>(out, count, of_s8);
    else
        products<float>(out, count, [](float (&d)[4], unsigned long long a, unsigned long long b) {
            of_registers(d, (unsigned)a, b);
        });
}

// ---- Copies in bulk ----

// Tiles of so many bytes come in `stages` at a time, each to an mbarrier of its own; all threads wait.
__global__ void tiles_kernel(const unsigned char* in, float* out, int bytes, int tiles, int stages) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ unsigned long long full[8];
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i)
            init(shared_address(full + i), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (int tile = 0; tile < tiles; tile += stages) {
        if (threadIdx.x == 0)
            for (int i = 0; i < stages; ++i) {
                expect(shared_address(full + i), bytes);
                load(shared_address(memory) + i * bytes,
                     in + ((long long)blockIdx.x * tiles + tile + i) * bytes, bytes,
                     shared_address(full + i));
            }
        for (int i = 0; i < stages; ++i)
            wait(shared_address(full + i), tile / stages % 2);
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = memory[threadIdx.x];
}

// A copy out of shared memory, or an addition to what is there.
__global__ void out_kernel(float* out, int elements, bool adds) {
    extern __shared__ __align__(128) unsigned char memory[];
    float* tile = (float*)memory;
    for (int i = threadIdx.x; i < elements; i += blockDim.x)
        tile[i] = 1.0f;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x)
        return;
    float* to = out + blockIdx.x * elements;
    if (adds)
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                     "r"(shared_address(tile)), "r"(elements * 4)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(shared_address(tile)), "r"(elements * 4)
                     : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// A box of 16 rows of 64 bf16, and back out where `back` says so. Of its rows 12 are the matrix's.
__global__ void box_kernel(const __grid_constant__ CUtensorMap map, bool back) {
    __shared__ __align__(1024) unsigned char tile[2048];
    __shared__ unsigned long long full;
    if (threadIdx.x)
        return;
    init(shared_address(&full), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    expect(shared_address(&full), 2048);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(shared_address(tile)),
        "l"(&map), "r"(0), "r"(0), "r"(shared_address(&full))
        : "memory");
    wait(shared_address(&full), 0);
    if (!back)
        return;
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(0), "r"(0), "r"(shared_address(tile))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- Clusters ----

// The first block has a tile copied to all four of its cluster.
__global__ void __cluster_dims__(1, 4, 1) multicast_kernel(const unsigned char* in, int bytes) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(shared_address(&full), bytes);
    }
    cluster_barrier();
    if (threadIdx.x == 0 && rank_in_cluster() == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(memory)),
                     "l"(in + (long long)(blockIdx.x + gridDim.x * (blockIdx.y / 4)) * bytes), "r"(bytes),
                     "r"(shared_address(&full)), "h"((unsigned short)0xf)
                     : "memory");
    wait(shared_address(&full), 0);
    cluster_barrier();
}

// Each block copies a tile into the next block of its cluster, which then reads a word per thread of it from there.
__global__ void __cluster_dims__(2, 1, 1) neighbour_kernel(float* out, int bytes) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ unsigned long long full;
    unsigned own = shared_address(memory), there, barrier;
    unsigned other = rank_in_cluster() ^ 1;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(shared_address(&full), bytes);
    }
    ((float*)memory)[threadIdx.x] = 1.0f;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    cluster_barrier();
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(other));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(barrier)
                 : "r"(shared_address(&full)), "r"(other));
    if (threadIdx.x == 0)
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                "r"(there + bytes),
            "r"(own), "r"(bytes), "r"(barrier)
            : "memory");
    wait(shared_address(&full), 0);
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there + threadIdx.x * 4) : "memory");
    cluster_barrier();
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// Each thread stores a word in the other block, once in a round, and waits for that of the other one.
__global__ void __cluster_dims__(2, 1, 1) words_kernel(float* out, int rounds) {
    __shared__ float words[64];
    __shared__ unsigned long long full;
    unsigned there, barrier, bytes = blockDim.x * 4;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_address(&words[threadIdx.x])), "r"(rank_in_cluster() ^ 1));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(barrier)
                 : "r"(shared_address(&full)), "r"(rank_in_cluster() ^ 1));
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    float value = threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x == round)
            expect(shared_address(&full), bytes);
        cluster_barrier();
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(there),
                     "f"(value), "r"(barrier)
                     : "memory");
        wait(shared_address(&full), round % 2);
        value += words[threadIdx.x];
    }
    cluster_barrier();
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// ---- Barriers ----

// The second half of the threads tells the first, which waits.
__global__ void numbered_kernel(int rounds) {
    for (int i = 0; i < rounds; ++i)
        if (threadIdx.x < blockDim.x / 2)
            asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x) : "memory");
        else
            asm volatile("bar.arrive 1, %0;" ::"r"(blockDim.x) : "memory");
}

// All threads arrive at an mbarrier and wait for it, one phase after another.
__global__ void phases_kernel(int phases) {
    __shared__ unsigned long long barrier;
    if (threadIdx.x == 0)
        init(shared_address(&barrier), blockDim.x);
    __syncthreads();
    for (int i = 0; i < phases; ++i) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
        wait(shared_address(&barrier), i % 2);
    }
}

__global__ void __cluster_dims__(2, 1, 1) cluster_barriers_kernel(int rounds) {
    for (int i = 0; i < rounds; ++i)
        cluster_barrier();
}

// All threads of a block arrive at its mbarrier as they would at another block's, and wait.
__global__ void __cluster_dims__(2, 1, 1) scope_kernel(int phases) {
    __shared__ unsigned long long barrier;
    unsigned there;
    if (threadIdx.x == 0)
        init(shared_address(&barrier), blockDim.x);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    cluster_barrier();
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_address(&barrier)), "r"(rank_in_cluster()));
    for (int i = 0; i < phases; ++i) {
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        asm volatile("{.reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;}" ::"r"(shared_address(&barrier)),
                     "r"(i % 2)
                     : "memory");
    }
    cluster_barrier();
}

template <class Call> void recorded(const Call& call) {
    cudamaster_cpu_record(1);
    call();
    cudamaster_cpu_record(0);
}

int main() {
    const int n = 1 << 20;
    unsigned char* in;
    float* out;
    if (cudaMalloc(&in, n * 4) || cudaMalloc(&out, n * 4))
        return 1;
    cudaMemset(in, 0, n * 4);
    cudaMemset(out, 0, n * 4);
    recorded([&] { product_kernel<0><<<2, 128>>>(out, 3); });
    recorded([&] { product_kernel<1><<<2, 128>>>(out, 3); });
    recorded([&] { product_kernel<2><<<2, 128>>>(out, 3); });
    recorded([&] { product_kernel<3><<<2, 128>>>(out, 3); });
    recorded([&] { product_kernel<4><<<2, 128>>>(out, 3); });
    recorded([&] { product_kernel<0><<<2, 128>>>(out, 6); });
    recorded([&] { tiles_kernel<<<4, 64, 4096>>>(in, out, 1024, 8, 1); });
    recorded([&] { tiles_kernel<<<4, 64, 4096>>>(in, out, 1024, 8, 4); });
    recorded([&] { tiles_kernel<<<4, 64, 4096>>>(in + 16, out, 1024, 8, 4); });
    recorded([&] { out_kernel<<<4, 64, 4096>>>(out, 1024, false); });
    recorded([&] { out_kernel<<<4, 64, 4096>>>(out, 1024, true); });
    CUtensorMap map;
    cuuint64_t sizes[2] = {256, 12}, strides[1] = {512};
    cuuint32_t box[2] = {64, 16}, steps[2] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, in, sizes, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        return 2;
    recorded([&] { box_kernel<<<1, 32>>>(map, false); });
    recorded([&] { box_kernel<<<1, 32>>>(map, true); });
    recorded([&] { multicast_kernel<<<dim3(16, 8), 32, 4096>>>(in, 4096); });
    recorded([&] { neighbour_kernel<<<8, 64, 512>>>(out, 256); });
    recorded([&] { words_kernel<<<8, 64>>>(out, 3); });
    recorded([&] { numbered_kernel<<<4, 128>>>(10); });
    recorded([&] { phases_kernel<<<4, 64>>>(10); });
    recorded([&] { cluster_barriers_kernel<<<4, 64>>>(10); });
    recorded([&] { scope_kernel<<<4, 64>>>(10); });
    return 0;
}
