// Reference of softmax in double precision: the maximum and the sum of a row go from its end.
//
// A rounding of x - m changes exp(x - m) by |x - m| times as much; that of the element itself and that of the
// whole sum are in the scale.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

template <class T> void softmax_reference(mskb::Expected& out, const T* input, int, int C) {
    size_t known = SIZE_MAX;
    double largest = 0, sum = 0, sum_sensitivity = 0;
    for (size_t k = 0; k < out.wanted.size(); ++k) {
        size_t e = out.wanted[k], row = e / C;
        const T* x = input + row * C;
        if (row != known) {
            known = row;
            largest = -INFINITY;
            sum = sum_sensitivity = 0;
            for (int j = C; j-- > 0;)
                largest = std::max(largest, mskb::to_double(x[j]));
            for (int j = C; j-- > 0;) {
                double below = largest - mskb::to_double(x[j]);
                sum += std::exp(-below);
                sum_sensitivity += below * std::exp(-below);
            }
        }
        double below = largest - mskb::to_double(x[e % C]);
        double weight = std::exp(-below) / sum;
        out.set(k, weight, weight * (1 + below + sum_sensitivity / sum));
    }
}
