// Reference of conv_2d in double precision: summed from the kernel's end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void conv_2d_reference(const T* input, const T* kernel, mskb::Expected& output, int, int input_cols,
                       int kernel_rows, int kernel_cols) {
    size_t output_cols = input_cols - kernel_cols + 1;
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        const T* first = input + output.wanted[j] / output_cols * input_cols + output.wanted[j] % output_cols;
        double sum = 0, scale = 0;
        for (size_t p = kernel_rows; p-- > 0;) {
            for (size_t q = kernel_cols; q-- > 0;) {
                double term =
                    mskb::to_double(first[p * input_cols + q]) * mskb::to_double(kernel[p * kernel_cols + q]);
                sum += term;
                scale += std::abs(term);
            }
        }
        output.set(j, sum, scale);
    }
}
