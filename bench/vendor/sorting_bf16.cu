// Sorting, bf16, ascending, in place, by CUB.
//
// Call      cub::DeviceRadixSort::SortKeys, which takes floating-point keys, bf16 too, and lets +0 and -0 be equal
// Includes  what CUB launches, and a copy where its passes leave the result in the second buffer
// Without   the second buffer and the work space, made before the first call of a case
#include <cub/device/device_radix_sort.cuh>
#include <cuda_bf16.h>
#include "vendor/check.h"

namespace {
vendor::Memory second, workspace;
size_t bytes = 0;
} // namespace

extern "C" void sorting_bf16_prepare(long long N) {
    second.hold(N * sizeof(__nv_bfloat16));
    cub::DoubleBuffer<__nv_bfloat16> keys(nullptr, nullptr);
    VENDOR_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, static_cast<int>(N)));
    workspace.hold(bytes);
}

extern "C" void sorting_bf16(__nv_bfloat16* data, int N) {
    cub::DoubleBuffer<__nv_bfloat16> keys(data, second.as<__nv_bfloat16>());
    VENDOR_CHECK(cub::DeviceRadixSort::SortKeys(workspace.get(), bytes, keys, N));
    if (keys.Current() != data)
        VENDOR_CHECK(
            cudaMemcpyAsync(data, keys.Current(), N * sizeof(__nv_bfloat16), cudaMemcpyDeviceToDevice));
}
