// Reference of vector_add in double precision.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void vector_add_reference(const T* A, const T* B, mskb::Expected& C, int) {
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        double a = mskb::to_double(A[C.wanted[j]]), b = mskb::to_double(B[C.wanted[j]]);
        C.set(j, a + b, std::abs(a) + std::abs(b));
    }
}
