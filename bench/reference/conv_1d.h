// Reference of conv_1d in double precision: summed from the kernel's end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void conv_1d_reference(const T* input, const T* kernel, mskb::Expected& output, int, int kernel_size) {
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        const T* first = input + output.wanted[j];
        double sum = 0, scale = 0;
        for (int k = kernel_size; k-- > 0;) {
            double term = mskb::to_double(first[k]) * mskb::to_double(kernel[k]);
            sum += term;
            scale += std::abs(term);
        }
        output.set(j, sum, scale);
    }
}
