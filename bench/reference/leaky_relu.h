// Reference of leaky_relu in double precision: the two sides are added, one of them 0.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

template <class T> void leaky_relu_reference(mskb::Expected& output, const T* input, int, float alpha) {
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        double x = mskb::to_double(input[output.wanted[j]]);
        double value = std::max(x, 0.0) + alpha * std::min(x, 0.0);
        output.set(j, value, std::abs(value));
    }
}
