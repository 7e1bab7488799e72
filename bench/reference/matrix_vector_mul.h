// Reference of matrix_vector_mul in double precision: a row is summed from its end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void matrix_vector_mul_reference(const T* A, const T* x, mskb::Expected& y, int, int N) {
    for (size_t i = 0; i < y.wanted.size(); ++i) {
        const T* row = A + y.wanted[i] * N;
        double sum = 0, scale = 0;
        for (int j = N; j-- > 0;) {
            double term = mskb::to_double(row[j]) * mskb::to_double(x[j]);
            sum += term;
            scale += std::abs(term);
        }
        y.set(i, sum, scale);
    }
}
