// Reference of sigmoid in double precision, from the exponential that cannot overflow.
#pragma once
#include <cmath>
#include <limits>
#include "mskb/expected.h"

// The scale has the rounding of x, amplified by the slope. Its absolute term makes an error of the smallest
// normal number of fp32 just pass at the least bound: below -87.3 the result is denormal, 1 / (1 + exp(-x))
// is 0 once exp(-x) overflows at -88.7, and fast arithmetic flushes denormals to 0.
template <class T> void sigmoid_reference(mskb::Expected& out, const T* input, int) {
    constexpr double kAbsolute = std::numeric_limits<float>::min() / 0x1p-21; // 2^-21 is that bound
    for (size_t j = 0; j < out.wanted.size(); ++j) {
        double x = mskb::to_double(input[out.wanted[j]]);
        double tail = std::exp(-std::abs(x)); // at most 1
        double value = (x < 0 ? tail : 1.0) / (1.0 + tail);
        double slope = tail / ((1.0 + tail) * (1.0 + tail));
        out.set(j, value, value + std::abs(x) * slope + kAbsolute);
    }
}
