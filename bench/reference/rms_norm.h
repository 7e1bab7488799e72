// Reference of rms_norm in double precision: summed from the end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void rms_norm_reference(mskb::Expected& output, const T* input, const T* weight, const T* bias, float epsilon,
                        int N) {
    double squares = 0;
    for (size_t i = N; i-- > 0;) {
        double x = mskb::to_double(input[i]);
        squares += x * x;
    }
    double divisor = std::sqrt(squares / N) + epsilon;
    for (size_t k = 0; k < output.wanted.size(); ++k) {
        size_t i = output.wanted[k];
        double product = mskb::to_double(input[i]) / divisor * mskb::to_double(weight[i]);
        double addend = mskb::to_double(bias[i]);
        output.set(k, product + addend, std::abs(product) + std::abs(addend));
    }
}
