// Reference of row_tanh in double precision, through expm1.
#pragma once
#include <cmath>
#include "mskb/expected.h"

// The scale is relative down to 0: the value, and the rounding of x amplified by the slope.
template <class T> void row_tanh_reference(mskb::Expected& out, const T* input, int) {
    for (size_t j = 0; j < out.wanted.size(); ++j) {
        double x = mskb::to_double(input[out.wanted[j]]);
        double growth = std::expm1(-2 * std::abs(x)); // from 0 down to -1
        double value = std::copysign(growth / (2 + growth), x);
        out.set(j, value, std::abs(value) + std::abs(x) * (1 - value * value));
    }
}
