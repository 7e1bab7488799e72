// Constants of the host that the compiler computes: limits, infinities, roots and logarithms, by all their names.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>
#include <limits>

using std::sqrt;

const float kLowest = -INFINITY;
static const float kNothing = NAN;
const double kHuge = HUGE_VAL;
static const float kNone = -std::numeric_limits<float>::infinity();
const int kMost = std::numeric_limits<std::int32_t>::max();
const float kScale = 1.0f / sqrtf(64.0f), kRoot = 1 / std::sqrt(2.0f);
const float kLog2e = std::log2(std::exp(1.0f));
static const double kSame = sqrt(2.0);
const int kBits = __builtin_ctz(32);
const int kLess = std::min(3, 4);
const dim3 kBlock(256);
static const float kSmallest = -FLT_MAX;

__global__ void shifted(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float max = fmaxf(by, -INFINITY);
    if (i < n)
        y[i] = x[i] + max;
}

extern "C" void task_optimized(const float* x, float* y, int n) {
    static const float kLeast = std::numeric_limits<float>::lowest();
    float by =
        std::max({kLowest, kNone, kLeast, kSmallest}) + kNothing + float(kHuge + kSame) + kScale + kRoot;
    shifted<<<(n + 255) / 256, kBlock>>>(x, y, n, by + kLog2e + kBits + kLess + kMost);
}
