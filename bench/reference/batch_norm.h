// Reference of batch_norm in double precision: the sums of all columns go from the last row to the first.
//
// The scale has the terms of the result, with the difference x - mean also at the size of what was averaged:
// where a mean is far from zero, its own rounding is in every difference.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T>
void batch_norm_reference(mskb::Expected& output, const T* input, const T* gamma, const T* beta,
                          float epsilon, int N, int C) {
    std::vector<double> mean(C, 0.0), mean_size(C, 0.0), variance(C, 0.0);
    for (size_t i = N; i-- > 0;) {
        for (int j = 0; j < C; ++j) {
            double x = mskb::to_double(input[i * C + j]);
            mean[j] += x / N;
            mean_size[j] += std::abs(x) / N;
        }
    }
    for (size_t i = N; i-- > 0;) {
        for (int j = 0; j < C; ++j) {
            double difference = mskb::to_double(input[i * C + j]) - mean[j];
            variance[j] += difference * difference / N;
        }
    }
    for (size_t k = 0; k < output.wanted.size(); ++k) {
        size_t e = output.wanted[k], j = e % C;
        double difference = mskb::to_double(input[e]) - mean[j];
        double factor = mskb::to_double(gamma[j]) / std::sqrt(variance[j] + epsilon);
        double addend = mskb::to_double(beta[j]);
        output.set(k, difference * factor + addend,
                   (std::abs(difference) + mean_size[j]) * std::abs(factor) + std::abs(addend));
    }
}
