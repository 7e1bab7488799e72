// Copies of boxes of tensors by the functions that C++ has for them: to shared memory, out of it, and with an operation.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_runtime.h>

#include <cstdint>

namespace ptx = cuda::ptx;
namespace cde = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kColumns = 40, kRows = 12, kWide = 16, kHigh = 8;

// Each element is doubled: it is stored twice as large by the older functions, or added to itself.
__global__ void double_kernel(const __grid_constant__ CUtensorMap from, const CUtensorMap* to, bool older) {
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier barrier;
    __shared__ alignas(128) int tile[kHigh][kWide];
    int column = blockIdx.x * kWide, row = blockIdx.y * kHigh;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        if (older)
            cde::cp_async_bulk_tensor_2d_global_to_shared(tile, &from, column, row, barrier);
        else
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &from, {column, row},
                                      cuda::device::barrier_native_handle(barrier));
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int i = threadIdx.x; i < kHigh * kWide; i += blockDim.x)
        tile[i / kWide][i % kWide] *= older ? 2 : 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_gpu, to, ptx::n32_t<128>());
        if (older)
            cde::cp_async_bulk_tensor_2d_shared_to_global(to, column, row, tile);
        else
            ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, to,
                                             {column, row}, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

int main() {
    static int values[kRows][kColumns];
    for (int i = 0; i < kRows * kColumns; ++i)
        values[i / kColumns][i % kColumns] = 3 * i - 100;
    int* data;
    CUtensorMap map, *map_data;
    cudaMalloc(&data, sizeof values);
    cudaMalloc(&map_data, sizeof map);
    cuuint64_t sizes[2] = {kColumns, kRows}, strides[1] = {kColumns * sizeof(int)};
    cuuint32_t box[2] = {kWide, kHigh}, steps[2] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, sizes, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return 20;
    cudaMemcpy(map_data, &map, sizeof map, cudaMemcpyHostToDevice);
    for (bool older : {true, false}) {
        static int got[kRows][kColumns];
        cudaMemcpy(data, values, sizeof values, cudaMemcpyHostToDevice);
        dim3 grid((kColumns + kWide - 1) / kWide, (kRows + kHigh - 1) / kHigh);
        cudaLaunchConfig_t config{};
        config.gridDim = grid;
        config.blockDim = dim3(32);
        if (older)
            double_kernel<<<grid, 32>>>(map, map_data, older);
        else
            cudaLaunchKernelEx(&config, double_kernel, map, map_data, older);
        if (cudaDeviceSynchronize() != cudaSuccess)
            return 9;
        cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost);
        for (int i = 0; i < kRows * kColumns; ++i)
            if (got[i / kColumns][i % kColumns] != 2 * values[i / kColumns][i % kColumns])
                return older ? 3 : 4;
    }
    cudaFree(data);
    cudaFree(map_data);
    return 0;
}
