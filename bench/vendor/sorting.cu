// Sorting, fp32, ascending, in place, by CUB.
//
// Call      cub::DeviceRadixSort::SortKeys, which takes floating-point keys and lets +0 and -0 be equal
// Includes  what CUB launches, and a copy where its passes leave the result in the second buffer
// Without   the second buffer and the work space, made before the first call of a case
#include <cub/device/device_radix_sort.cuh>
#include "vendor/check.h"

namespace {
vendor::Memory second, workspace;
size_t bytes = 0;
} // namespace

extern "C" void sorting_prepare(long long N) {
    second.hold(N * sizeof(float));
    cub::DoubleBuffer<float> keys(nullptr, nullptr);
    VENDOR_CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, static_cast<int>(N)));
    workspace.hold(bytes);
}

extern "C" void sorting(float* data, int N) {
    cub::DoubleBuffer<float> keys(data, second.as<float>());
    VENDOR_CHECK(cub::DeviceRadixSort::SortKeys(workspace.get(), bytes, keys, N));
    if (keys.Current() != data)
        VENDOR_CHECK(cudaMemcpyAsync(data, keys.Current(), N * sizeof(float), cudaMemcpyDeviceToDevice));
}
