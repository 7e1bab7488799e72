// A product of matrices as kernels for Hopper are made: a warp that copies tiles by tensor maps into a ring, a warpgroup
// that multiplies them where they lie, and a copy out of the result. And what becomes of it where something is left out: the
// name of that is the argument. C = A B^T, A and B of bf16, C of f32.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

enum Left {
    kNothing,
    kFull,     // consumers do not wait for the tiles
    kEmpty,    // the producer does not wait until a stage is free
    kParity,   // it waits there for the phase that was before
    kRelease,  // a stage is given back before its products were waited for
    kInits,    // the fence of barriers' inits
    kHalf,     // the bytes of one tile of two are announced
    kTooMany,  // more are announced than come
    kFence,    // wgmma.fence
    kProducts, // nobody waits for the products
    kProxy,    // the fence between threads' writes and the copy out of the result
    kSync,     // the barrier there
    kOut,      // nobody waits for the copy out
    kReused,   // the result's place is written again while it is read
    kAlone,    // a stage is free when one block has given it back
    kOwn,      // half of the rows of A go to the own block alone
    kLeaves,   // a block ends while the other still counts on it
};

constexpr int kTile = 64, kStages = 3, kBlocks = 2, kInner = 6 * kTile + 24, kSize = kBlocks * kTile;
constexpr unsigned kTileBytes = kTile * kTile * 2;

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void wait_for(const void* barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void init(const void* barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
                 : "memory");
}
__device__ __forceinline__ void load(const void* to, const CUtensorMap* map, int column, int row,
                                     const void* full) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(full))
                 : "memory");
}

// A tile of 64 x 64 elements of 16 bits, k side by side, swizzled over 128 bytes.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {
    return (shared_address(tile) >> 4 & 0x3fff) | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, 1, 1, 1, 0, 0;\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b));
}

template <int left>
__global__ void __launch_bounds__(160, 1)
    ring_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                const __grid_constant__ CUtensorMap c_map, int inner) {
    extern __shared__ __align__(1024) unsigned char stages[]; // [kStages][a, b][kTileBytes]
    __shared__ __align__(128) float result[kTile][kTile];
    __shared__ unsigned long long full[kStages], empty[kStages];
    int thread = threadIdx.x, row = blockIdx.y * kTile, column = blockIdx.x * kTile,
        tiles = (inner + kTile - 1) / kTile;
    auto tile = [&](int slot, int which) { return stages + (2 * slot + which) * kTileBytes; };
    if (thread == 0) {
        for (int slot = 0; slot < kStages; ++slot) {
            init(full + slot, 1);
            init(empty + slot, 128);
        }
        if (left != kInits)
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (thread >= 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 128) {
            for (int i = 0; i < tiles; ++i) {
                int slot = i % kStages;
                if (left != kEmpty && i >= kStages)
                    wait_for(empty + slot, (i / kStages - (left == kParity ? 0 : 1)) % 2);
                unsigned bytes = left == kHalf      ? kTileBytes
                                 : left == kTooMany ? 2 * kTileBytes + 16
                                                    : 2 * kTileBytes;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                                 shared_address(full + slot)),
                             "r"(bytes)
                             : "memory");
                load(tile(slot, 0), &a_map, i * kTile, row, full + slot);
                load(tile(slot, 1), &b_map, i * kTile, column, full + slot);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[32] = {};
    for (int i = 0; i < tiles; ++i) {
        int slot = i % kStages;
        if (left != kFull)
            wait_for(full + slot, i / kStages % 2);
        if (left != kFence)
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        unsigned long long a = descriptor(tile(slot, 0)), b = descriptor(tile(slot, 1));
        for (int k = 0; k < kTile / 16; ++k)
            multiply(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (left != kRelease && left != kProducts)
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(empty + slot))
                     : "memory");
        if (left == kRelease)
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 0; i < 32; ++i)
        result[thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8][i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
    if (left != kProxy)
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (left != kSync)
        asm volatile("bar.sync 1, 128;" ::: "memory");
    if (thread == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&c_map),
            "r"(column), "r"(row), "r"(shared_address(result))
            : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (left == kReused)
            result[3][5] = 0;
        if (left != kOut)
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// The same by two blocks of a cluster that need the same rows of A: each copies half of them to both. A stage is free when
// the warpgroups of both blocks have given it back.
template <int left>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(160, 1)
    shared_ring_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                       float* c, int inner) {
    extern __shared__ __align__(1024) unsigned char stages[];
    __shared__ unsigned long long full[kStages], empty[kStages];
    int thread = threadIdx.x, row = blockIdx.y * kTile, column = blockIdx.x * kTile,
        tiles = (inner + kTile - 1) / kTile;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    auto tile = [&](int slot, int which) { return stages + (2 * slot + which) * kTileBytes; };
    if (thread == 0) {
        for (int slot = 0; slot < kStages; ++slot) {
            init(full + slot, 1);
            init(empty + slot, left == kAlone ? 128 : 256);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    if (thread == 128)
        for (int i = 0; i < tiles; ++i) {
            int slot = i % kStages;
            if (i >= kStages)
                wait_for(empty + slot, (i / kStages - 1) % 2);
            asm volatile(
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full + slot)),
                "r"(2 * kTileBytes)
                : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
                             shared_address(tile(slot, 0) + rank * kTileBytes / 2)),
                         "l"(&a_map), "r"(i * kTile), "r"(row + static_cast<int>(rank) * kTile / 2),
                         "r"(shared_address(full + slot)),
                         "h"(static_cast<unsigned short>(left == kOwn ? 1 << rank : 3))
                         : "memory");
            load(tile(slot, 1), &b_map, i * kTile, column, full + slot);
        }
    float d[32] = {};
    for (int i = 0; i < tiles && thread < 128; ++i) {
        int slot = i % kStages;
        wait_for(full + slot, i / kStages % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        unsigned long long a = descriptor(tile(slot, 0)), b = descriptor(tile(slot, 1));
        for (int k = 0; k < kTile / 16; ++k)
            multiply(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (unsigned other = 0; other < kBlocks; ++other)
            if (left != kAlone || other == rank)
                asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                             "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(
                                 shared_address(empty + slot)),
                             "r"(other)
                             : "memory");
    }
    for (int i = 0; i < 32 && thread < 128; ++i)
        c[(row + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8) * kSize + column + i / 4 * 8 +
          thread % 4 * 2 + i % 2] = d[i];
    if (left != kLeaves)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

bool make_map(CUtensorMap* map, CUtensorMapDataType type, unsigned element, void* base, int columns,
              CUtensorMapSwizzle swizzle, unsigned rows = kTile) {
    cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), kSize};
    cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * element};
    cuuint32_t box[2] = {kTile, rows}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(map, type, 2, base, sizes, strides, box, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int main(int, char** names) {
    static __nv_bfloat16 a[kSize][kInner], b[kSize][kInner];
    static float c[kSize][kSize];
    auto whole = [](int i, int k, int by) { return static_cast<float>((i * 7 + k * by) % 13 - 6); };
    for (int i = 0; i < kSize; ++i)
        for (int k = 0; k < kInner; ++k) {
            a[i][k] = __float2bfloat16(whole(i, k, 3));
            b[i][k] = __float2bfloat16(whole(i, k, 5));
        }
    void *a_data, *b_data, *c_data;
    cudaMalloc(&a_data, sizeof a);
    cudaMalloc(&b_data, sizeof b);
    cudaMalloc(&c_data, sizeof c);
    cudaMemcpy(a_data, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(b_data, b, sizeof b, cudaMemcpyHostToDevice);
    cudaMemset(c_data, 0, sizeof c);
    auto is = [&](const char* other) { return !std::strcmp(names[1], other); };
    CUtensorMap a_map, half_a_map, b_map, c_map;
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    if (!make_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a_data, kInner,
                  is("unswizzled") ? CU_TENSOR_MAP_SWIZZLE_NONE : swizzle) ||
        !make_map(&half_a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a_data, kInner, swizzle, kTile / 2) ||
        !make_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b_data, kInner, swizzle) ||
        !make_map(&c_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, c_data, kSize, CU_TENSOR_MAP_SWIZZLE_NONE))
        return 20;
    auto run_shared = [&](auto kernel) {
        int bytes = kStages * 2 * kTileBytes;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<dim3(kBlocks, kBlocks), 160, bytes>>>(half_a_map, b_map, static_cast<float*>(c_data),
                                                       kInner);
    };
    auto run = [&](auto kernel) {
        int bytes = kStages * 2 * kTileBytes;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<dim3(kBlocks, kBlocks), 160, bytes>>>(a_map, b_map, c_map, kInner);
    };
    if (is("shared"))
        run_shared(shared_ring_kernel<kNothing>);
    else if (is("shared-alone"))
        run_shared(shared_ring_kernel<kAlone>);
    else if (is("shared-by-nobody"))
        run_shared(shared_ring_kernel<kOwn>);
    else if (is("shared-left-too-early"))
        run_shared(shared_ring_kernel<kLeaves>);
    else if (is("no-wait-for-tiles"))
        run(ring_kernel<kFull>);
    else if (is("no-wait-for-room"))
        run(ring_kernel<kEmpty>);
    else if (is("phase-before"))
        run(ring_kernel<kParity>);
    else if (is("released-too-early"))
        run(ring_kernel<kRelease>);
    else if (is("no-fence-of-inits"))
        run(ring_kernel<kInits>);
    else if (is("half-the-bytes"))
        run(ring_kernel<kHalf>);
    else if (is("too-many-bytes"))
        run(ring_kernel<kTooMany>);
    else if (is("no-wgmma-fence"))
        run(ring_kernel<kFence>);
    else if (is("no-wait-for-products"))
        run(ring_kernel<kProducts>);
    else if (is("no-fence-of-proxies"))
        run(ring_kernel<kProxy>);
    else if (is("no-barrier"))
        run(ring_kernel<kSync>);
    else if (is("no-wait-for-the-copy-out"))
        run(ring_kernel<kOut>);
    else if (is("overwritten"))
        run(ring_kernel<kReused>);
    else
        run(ring_kernel<kNothing>);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(c, c_data, sizeof c, cudaMemcpyDeviceToHost);
    cudaFree(a_data);
    cudaFree(b_data);
    cudaFree(c_data);
    for (int i = 0; i < kSize; ++i)
        for (int j = 0; j < kSize; ++j) {
            float sum = 0;
            for (int k = 0; k < kInner; ++k)
                sum += whole(i, k, 3) * whole(j, k, 5);
            if (c[i][j] != sum)
                return 3;
        }
    return 0;
}
