// Reference of elu in double precision, through expm1.
#pragma once
#include <cmath>
#include "mskb/expected.h"

// On the negative side exp(x) and 1 are terms of their own, and the exponential amplifies the rounding of x.
template <class T> void elu_reference(mskb::Expected& output, const T* input, int, float alpha) {
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        double x = mskb::to_double(input[output.wanted[j]]);
        if (x > 0)
            output.set(j, x, x);
        else
            output.set(j, alpha * std::expm1(x), std::abs(alpha) * (std::exp(x) * (1 - x) + 1));
    }
}
