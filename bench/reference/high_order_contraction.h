// Reference of high_order_contraction in double precision: both sums run from their ends.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void high_order_contraction_reference(const T* A, const T* B, mskb::Expected& C, int, int b_dim, int c_dim,
                                      int x_dim, int y_dim) {
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        size_t c = C.wanted[j] % c_dim, b = C.wanted[j] / c_dim % b_dim, a = C.wanted[j] / c_dim / b_dim;
        double sum = 0, scale = 0;
        for (int x = x_dim; x-- > 0;) {
            const T* left = A + ((a * x_dim + x) * b_dim + b) * y_dim;
            const T* right = B + ((size_t)x * c_dim + c) * y_dim;
            for (int y = y_dim; y-- > 0;) {
                double term = mskb::to_double(left[y]) * mskb::to_double(right[y]);
                sum += term;
                scale += std::abs(term);
            }
        }
        C.set(j, sum, scale);
    }
}
