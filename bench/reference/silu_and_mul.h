// Reference of silu_and_mul in double precision: the sigmoid with the exponential of the side that does not
// overflow.
//
// A rounding of x changes the sigmoid s by |x| * (1 - s) times as much. A sigmoid whose exponential overflows
// fp32 may be zero; fast division makes it so a little earlier, near 2^-125.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void silu_and_mul_reference(const T* input, mskb::Expected& out, int, int D) {
    constexpr double kOverflown = 0x1.0p-103; // times the least bound, 2^-21, it is 2^-124
    for (size_t k = 0; k < out.wanted.size(); ++k) {
        size_t row = out.wanted[k] / D, column = out.wanted[k] % D;
        double x = mskb::to_double(input[row * 2 * D + column]);
        double product = x * mskb::to_double(input[row * 2 * D + D + column]);
        double tail = std::exp(-std::abs(x));
        double sigmoid = (x < 0 ? tail : 1) / (1 + tail), rest = (x < 0 ? 1 : tail) / (1 + tail);
        double sensitivity = sigmoid * (1 + std::abs(x) * rest) + kOverflown;
        out.set(k, product * sigmoid, std::abs(product) * sensitivity);
    }
}
