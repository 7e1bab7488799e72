// Copies of boxes of tensors. `main` is told what to do: a case, its file of elements, and a file for what came of it.
//
//   load D TYPE SWIZZLE FILL     boxes into shared memory, as their bytes lie there
//   store D TYPE SWIZZLE FILL    boxes that hold 0, 1, 2, ... into the tensor
//   reduce OPERATION TYPE SWIZZLE FILL
//
// and sizes, box, steps, coordinates, each D numbers; the stride of a dimension is what the ones before fill, rounded up to 16
// bytes.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

struct Box {
    int at[5];
};

template <int dimensions>
__device__ void load(unsigned to, const CUtensorMap* map, const Box& box, unsigned full) {
    unsigned long long m = reinterpret_cast<unsigned long long>(map);
    const int* c = box.at;
    if constexpr (dimensions == 1)
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                     "[%1, {%2}], [%3];" ::"r"(to),
                     "l"(m), "r"(c[0]), "r"(full)
                     : "memory");
    else if constexpr (dimensions == 2)
        asm volatile("{ .reg .b64 policy;\n"
                     "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
                     "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_"
                     "hint [%0], [%1, {%2, %3}], [%4], policy; }" ::"r"(to),
                     "l"(m), "r"(c[0]), "r"(c[1]), "r"(full)
                     : "memory");
    else if constexpr (dimensions == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], "
                     "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
                     "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(full)
                     : "memory");
    else if constexpr (dimensions == 4)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                     "cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                     "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(full),
                     "h"(static_cast<unsigned short>(1))
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
                     "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]), "r"(full)
                     : "memory");
}

template <int dimensions> __device__ void store(const CUtensorMap* map, const Box& box, unsigned from) {
    unsigned long long m = reinterpret_cast<unsigned long long>(map);
    const int* c = box.at;
    if constexpr (dimensions == 1)
        asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];" ::"l"(m),
                     "r"(c[0]), "r"(from)
                     : "memory");
    else if constexpr (dimensions == 2)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(m),
                     "r"(c[0]), "r"(c[1]), "r"(from)
                     : "memory");
    else if constexpr (dimensions == 3)
        asm volatile(
            "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(m),
            "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(from)
            : "memory");
    else if constexpr (dimensions == 4)
        asm volatile(
            "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(m),
            "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(from)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(
                m),
            "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]), "r"(from)
            : "memory");
}

#define REDUCE(name)                                                                                         \
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." name                                   \
                 ".tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),                                        \
                 "r"(box.at[0]), "r"(box.at[1]), "r"(from)                                                   \
                 : "memory")
__device__ void reduce(int operation, const CUtensorMap* map, const Box& box, unsigned from) {
    switch (operation) {
    case 0:
        REDUCE("add");
        break;
    case 1:
        REDUCE("min");
        break;
    case 2:
        REDUCE("max");
        break;
    case 3:
        REDUCE("inc");
        break;
    case 4:
        REDUCE("dec");
        break;
    case 5:
        REDUCE("and");
        break;
    case 6:
        REDUCE("or");
        break;
    default:
        REDUCE("xor");
        break;
    }
}

template <int dimensions>
__global__ void load_kernel(const __grid_constant__ CUtensorMap map, Box box, unsigned bytes,
                            unsigned char* out) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(bytes)
                     : "memory");
        load<dimensions>(shared_address(tile), &map, box, shared_address(&full));
    }
    __syncthreads();
    wait_for(shared_address(&full), 0);
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
        out[i] = tile[i];
}

__device__ void fill_tile(unsigned char* tile, const unsigned char* in, unsigned bytes) {
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
        tile[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

template <int dimensions>
__global__ void store_kernel(const __grid_constant__ CUtensorMap map, Box box, unsigned bytes,
                             const unsigned char* in) {
    extern __shared__ __align__(1024) unsigned char tile[];
    fill_tile(tile, in, bytes);
    if (threadIdx.x == 0) {
        store<dimensions>(&map, box, shared_address(tile));
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// The map lies in global memory, where threads of another block might have changed it.
__global__ void reduce_kernel(int operation, const CUtensorMap* map, Box box, unsigned bytes,
                              const unsigned char* in) {
    extern __shared__ __align__(1024) unsigned char tile[];
    fill_tile(tile, in, bytes);
    if (threadIdx.x == 0) {
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
        asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
                     "r"(box.at[0]), "r"(box.at[1])
                     : "memory");
        reduce(operation, map, box, shared_address(tile));
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// What is wrong with a use of a map.
__global__ void by_value_kernel(CUtensorMap map, unsigned char* out) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
    load<2>(shared_address(tile), &map, Box{}, shared_address(&full));
    out[0] = tile[0];
}
template <int dimensions>
__global__ void misplaced_kernel(const __grid_constant__ CUtensorMap map, unsigned offset) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
    load<dimensions>(shared_address(tile) + offset, &map, Box{}, shared_address(&full));
}

const unsigned kElements[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};

CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* steps, int swizzle, int fill) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &status) != cudaSuccess ||
        status != cudaDriverEntryPointSuccess)
        return CUDA_ERROR_UNKNOWN;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found)(
        map, type, rank, base, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        static_cast<CUtensorMapSwizzle>(swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        static_cast<CUtensorMapFloatOOBfill>(fill));
}

std::vector<unsigned char> content(const char* path) {
    std::vector<unsigned char> bytes;
    FILE* file = std::fopen(path, "rb");
    for (int byte; (byte = std::fgetc(file)) != EOF;)
        bytes.push_back(static_cast<unsigned char>(byte));
    std::fclose(file);
    return bytes;
}

int main(int, char** words) {
    const char *what = words[1], *operation = words[2];
    bool loads = !std::strcmp(what, "load"), reduces = !std::strcmp(what, "reduce");
    int rank = reduces ? 2 : std::atoi(operation), type = std::atoi(words[3]), swizzle = std::atoi(words[4]);
    char** numbers = words + 8;
    cuuint64_t sizes[5], strides[5];
    cuuint32_t box[5], steps[5];
    Box first{};
    unsigned bytes = kElements[type];
    for (int i = 0; i < rank; ++i) {
        sizes[i] = std::strtoull(numbers[i], nullptr, 10);
        box[i] = std::atoi(numbers[rank + i]);
        steps[i] = std::atoi(numbers[2 * rank + i]);
        first.at[i] = std::atoi(numbers[3 * rank + i]);
        cuuint64_t under = i ? strides[i - 1] : kElements[type];
        strides[i] = (under * sizes[i] + 15) / 16 * 16;
        bytes *= i ? (box[i] + steps[i] - 1) / steps[i] : box[0];
    }
    std::vector<unsigned char> tensor = content(words[6]), tile(bytes);
    unsigned char *data, *tile_data;
    CUtensorMap map, *map_data;
    cudaMalloc(&data, tensor.size());
    cudaMalloc(&tile_data, bytes);
    cudaMalloc(&map_data, sizeof map);
    cudaMemcpy(data, tensor.data(), tensor.size(), cudaMemcpyHostToDevice);
    for (unsigned i = 0; i < bytes; ++i)
        tile[i] = static_cast<unsigned char>(i % 251);
    cudaMemcpy(tile_data, tile.data(), bytes, cudaMemcpyHostToDevice);
    CUresult made = encode(&map, static_cast<CUtensorMapDataType>(type), rank, data, sizes, strides, box,
                           steps, swizzle, std::atoi(words[5]));
    if (made != CUDA_SUCCESS)
        return 20;
    cudaMemcpy(map_data, &map, sizeof map, cudaMemcpyHostToDevice);
    auto with = [&](auto kernel, auto... arguments) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes + 1024);
        kernel<<<1, 32, bytes + 1024>>>(arguments...);
    };
    if (loads && rank == 1)
        with(load_kernel<1>, map, first, bytes, tile_data);
    else if (loads && rank == 2)
        with(load_kernel<2>, map, first, bytes, tile_data);
    else if (loads && rank == 3)
        with(load_kernel<3>, map, first, bytes, tile_data);
    else if (loads && rank == 4)
        with(load_kernel<4>, map, first, bytes, tile_data);
    else if (loads)
        with(load_kernel<5>, map, first, bytes, tile_data);
    else if (reduces)
        with(reduce_kernel, std::atoi(operation), map_data, first, bytes, tile_data);
    else if (!std::strcmp(what, "by-value"))
        with(by_value_kernel, map, tile_data);
    else if (!std::strcmp(what, "misaligned"))
        with(misplaced_kernel<2>, map, 64u);
    else if (!std::strcmp(what, "other-rank"))
        with(misplaced_kernel<3>, map, 0u);
    else if (!std::strcmp(what, "no-map"))
        with(misplaced_kernel<2>, CUtensorMap{}, 0u);
    else if (rank == 1)
        with(store_kernel<1>, map, first, bytes, tile_data);
    else if (rank == 2)
        with(store_kernel<2>, map, first, bytes, tile_data);
    else if (rank == 3)
        with(store_kernel<3>, map, first, bytes, tile_data);
    else if (rank == 4)
        with(store_kernel<4>, map, first, bytes, tile_data);
    else
        with(store_kernel<5>, map, first, bytes, tile_data);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    std::vector<unsigned char>& result = loads ? tile : tensor;
    cudaMemcpy(result.data(), loads ? tile_data : data, result.size(), cudaMemcpyDeviceToHost);
    cudaFree(data);
    cudaFree(tile_data);
    cudaFree(map_data);
    FILE* file = std::fopen(words[7], "wb");
    std::fwrite(result.data(), 1, result.size(), file);
    std::fclose(file);
    return 0;
}
