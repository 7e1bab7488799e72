// Reference of simpson_int in double precision: the rule's three sums apart, each from its end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void simpson_int_reference(const T* y_samples, mskb::Expected& result, float a, float b, int N) {
    double third = (static_cast<double>(b) - a) / (N - 1.0) / 3;
    double ends = mskb::to_double(y_samples[N - 1]) + mskb::to_double(y_samples[0]);
    double odd = 0, even = 0, scale = std::abs(mskb::to_double(y_samples[N - 1]));
    scale += std::abs(mskb::to_double(y_samples[0]));
    for (int i = N - 2; i >= 1; --i) {
        double y = mskb::to_double(y_samples[i]);
        if (i % 2 == 1) {
            odd += y;
            scale += 4 * std::abs(y);
        } else if (i <= N - 3) {
            even += y;
            scale += 2 * std::abs(y);
        }
    }
    result.set(0, third * (ends + 4 * odd + 2 * even), mskb::of_one_sign(std::abs(third) * scale, N));
}
