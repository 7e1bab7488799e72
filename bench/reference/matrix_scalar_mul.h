// Reference of matrix_scalar_mul in double precision.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void matrix_scalar_mul_reference(const T* A, mskb::Expected& B, T scalar, int, int) {
    double factor = mskb::to_double(scalar);
    for (size_t j = 0; j < B.wanted.size(); ++j) {
        double product = factor * mskb::to_double(A[B.wanted[j]]);
        B.set(j, product, std::abs(product));
    }
}
