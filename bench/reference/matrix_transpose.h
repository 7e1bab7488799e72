// Reference of matrix_transpose: every element of B is looked up in A; exact, so the scale is 0.
#pragma once
#include "mskb/expected.h"

template <class T> void matrix_transpose_reference(const T* A, mskb::Expected& B, int M, int N) {
    for (size_t j = 0; j < B.wanted.size(); ++j) {
        size_t col = B.wanted[j] / M, row = B.wanted[j] % M; // of A
        B.set(j, mskb::to_double(A[row * N + col]), 0.0);
    }
}
