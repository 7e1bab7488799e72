// Reference of selu in double precision, through expm1.
#pragma once
#include <cmath>
#include "mskb/expected.h"

// On the negative side exp(x) and 1 are terms of their own, and the exponential amplifies the rounding of x.
template <class T>
void selu_reference(mskb::Expected& output, const T* input, int, float alpha, float lambda) {
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        double x = mskb::to_double(input[output.wanted[j]]);
        double factor = x > 0 ? lambda : static_cast<double>(lambda) * alpha;
        double value = x > 0 ? x : std::expm1(x);
        double terms = x > 0 ? x : std::exp(x) * (1 - x) + 1;
        output.set(j, factor * value, std::abs(factor) * terms);
    }
}
