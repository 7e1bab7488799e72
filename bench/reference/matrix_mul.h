// Reference of matrix_mul in double precision: the right factor is transposed, and an element is summed from
// the end.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T> void matrix_mul_reference(const T* A, const T* B, mskb::Expected& C, int, int N, int K) {
    std::vector<T> columns((size_t)N * K); // of B, one after the other
    for (size_t k = 0; k < (size_t)K; ++k)
        for (size_t col = 0; col < (size_t)N; ++col)
            columns[col * K + k] = B[k * N + col];
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        const T* row = A + C.wanted[j] / N * K;
        const T* column = columns.data() + C.wanted[j] % N * K;
        double sum = 0, scale = 0;
        for (int k = K; k-- > 0;) {
            double term = mskb::to_double(row[k]) * mskb::to_double(column[k]);
            sum += term;
            scale += std::abs(term);
        }
        C.set(j, sum, scale);
    }
}
