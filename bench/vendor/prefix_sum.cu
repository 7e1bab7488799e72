// Prefix sum, fp32, inclusive, by CUB: output[i] = sum of input[0..i].
//
// Call      cub::DeviceScan::InclusiveSum
// Includes  what CUB launches
// Without   the work space, made before the first call of a case
#include <cub/device/device_scan.cuh>
#include "vendor/check.h"

namespace {
vendor::Memory workspace;
size_t bytes = 0;
} // namespace

extern "C" void prefix_sum_prepare(long long N) {
    const float* input = nullptr;
    float* output = nullptr;
    VENDOR_CHECK(cub::DeviceScan::InclusiveSum(nullptr, bytes, input, output, static_cast<int>(N)));
    workspace.hold(bytes);
}

extern "C" void prefix_sum(float* output, const float* input, int N) {
    VENDOR_CHECK(cub::DeviceScan::InclusiveSum(workspace.get(), bytes, input, output, N));
}
