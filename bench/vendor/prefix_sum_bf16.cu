// Prefix sum, bf16 storage, fp32 sums, inclusive, by CUB: output[i] = sum of input[0..i].
//
// Call      cub::DeviceScan::InclusiveSum through iterators that widen what is read and round what is written: CUB sums in
//           the type that it reads, and the card wants fp32 sums, rounded once
// Includes  what CUB launches
// Without   the work space, made before the first call of a case
#include <cub/device/device_scan.cuh>
#include <cuda_bf16.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include "vendor/check.h"

namespace {
vendor::Memory workspace;
size_t bytes = 0;

struct Widen {
    __host__ __device__ float operator()(__nv_bfloat16 value) const { return __bfloat162float(value); }
};

struct Round {
    __host__ __device__ __nv_bfloat16 operator()(float value) const { return __float2bfloat16(value); }
};

void scan(void* place, __nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    auto widened = thrust::make_transform_iterator(input, Widen{});
    auto rounded = thrust::make_transform_output_iterator(output, Round{});
    VENDOR_CHECK(cub::DeviceScan::InclusiveSum(place, bytes, widened, rounded, N));
}
} // namespace

extern "C" void prefix_sum_bf16_prepare(long long N) {
    scan(nullptr, nullptr, nullptr, static_cast<int>(N));
    workspace.hold(bytes);
}

extern "C" void prefix_sum_bf16(__nv_bfloat16* output, const __nv_bfloat16* input, int N) {
    scan(workspace.get(), output, input, N);
}
