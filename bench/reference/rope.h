// Reference of rope in double precision.
//
// The scale is the size of the pair, with the rounding of the angle: the angle a = m * base^(-x) is off by
// roundings of its own and, through the exponent x, by x * ln(base) times as much; a turn by so much moves
// the point by its distance from the origin times that.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void rope_reference(mskb::Expected& output, const T* input, int, int D, float base) {
    for (size_t k = 0; k < output.wanted.size(); ++k) {
        size_t e = output.wanted[k], row = e / D, pair = e % D / 2;
        double logarithm = std::log(double(base)) * 2 * static_cast<double>(pair) / D;
        double angle = static_cast<double>(row) * std::exp(-logarithm);
        double x = mskb::to_double(input[e - e % 2]), y = mskb::to_double(input[e - e % 2 + 1]);
        double turned = e % 2 == 0 ? x * std::cos(angle) - y * std::sin(angle)
                                   : y * std::cos(angle) + x * std::sin(angle);
        output.set(k, turned, (std::abs(x) + std::abs(y)) * (1 + angle * (1 + std::abs(logarithm))));
    }
}
