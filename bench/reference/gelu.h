// Reference of gelu in double precision, through the complementary error function.
#pragma once
#include <cmath>
#include "mskb/expected.h"

// x / 2 and x / 2 * erf are the terms; the error function's slope amplifies the rounding of its argument.
template <class T> void gelu_reference(mskb::Expected& output, const T* input, int) {
    const double root_of_half = std::sqrt(0.5), density_at_0 = 1 / std::sqrt(2 * std::acos(-1.0));
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        double x = mskb::to_double(input[output.wanted[j]]);
        double value = x / 2 * std::erfc(-x * root_of_half);
        double terms = std::abs(x) / 2 * (1 + std::abs(std::erf(x * root_of_half)));
        output.set(j, value, terms + x * x * density_at_0 * std::exp(-x * x / 2));
    }
}
