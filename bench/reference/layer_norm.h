// Reference of layer_norm in double precision: summed from the end.
//
// The scale has the terms of the result, with the difference x - mean also at the size of what was averaged:
// where the mean is far from zero, its own rounding is in every difference.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void layer_norm_reference(mskb::Expected& output, const T* input, const T* weight, const T* bias,
                          float epsilon, int N) {
    double sum = 0, sum_size = 0, squares = 0;
    for (size_t i = N; i-- > 0;) {
        sum += mskb::to_double(input[i]);
        sum_size += std::abs(mskb::to_double(input[i]));
    }
    double mean = sum / N, mean_size = sum_size / N;
    for (size_t i = N; i-- > 0;) {
        double difference = mskb::to_double(input[i]) - mean;
        squares += difference * difference;
    }
    double deviation = std::sqrt(squares / N + epsilon);
    for (size_t k = 0; k < output.wanted.size(); ++k) {
        size_t i = output.wanted[k];
        double difference = mskb::to_double(input[i]) - mean;
        double factor = mskb::to_double(weight[i]) / deviation;
        double addend = mskb::to_double(bias[i]);
        output.set(k, difference * factor + addend,
                   (std::abs(difference) + mean_size) * std::abs(factor) + std::abs(addend));
    }
}
