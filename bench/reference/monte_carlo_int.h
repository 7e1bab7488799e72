// Reference of monte_carlo_int in double precision: summed from the end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void monte_carlo_int_reference(const T* y_samples, mskb::Expected& result, float a, float b, int N) {
    double sum = 0, scale = 0;
    for (int i = N; i-- > 0;) {
        sum += mskb::to_double(y_samples[i]);
        scale += std::abs(mskb::to_double(y_samples[i]));
    }
    double width = static_cast<double>(b) - a;
    result.set(0, width * sum / N, mskb::of_one_sign(std::abs(width) * scale / N, N));
}
