// Reference of prefix_sum in double precision: sums of 1, 2, 4, 8 ... elements that end at each place, each
// made of two of the round before.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T> void prefix_sum_reference(mskb::Expected& output, const T* input, int N) {
    std::vector<double> sum(N), scale(N);
    for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = mskb::to_double(input[i]);
        scale[i] = std::abs(sum[i]);
    }
    for (size_t length = 1; length < sum.size(); length *= 2) {
        for (size_t i = sum.size(); i-- > length;) {
            sum[i] += sum[i - length];
            scale[i] += scale[i - length];
        }
    }
    for (size_t j = 0; j < output.wanted.size(); ++j)
        output.set(j, sum[output.wanted[j]], scale[output.wanted[j]]);
}
